"""A postponed module is executed at its first use, and is then the module itself."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from envaudit.transport.postponed import postpone
postpone("urllib.request")
import urllib.request
import xml.sax.saxutils
print("http.client" in sys.modules)
print(urllib.request.Request("http://127.0.0.1/x").host)
print("http.client" in sys.modules, hasattr(urllib.request, "no_such_name"))
"""


def test_postponed_module_is_executed_when_it_is_used() -> None:
    """Importing it, also by others, loads nothing; an attribute loads all of it."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert ["False", "127.0.0.1", "True False"] == ran.stdout.splitlines()


def test_gather_is_imported_without_the_clients_of_http() -> None:
    """What ClusterShell does not use is not loaded for it."""
    script = "import sys; from envaudit.transport import gather; print('http.client' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "False\n" == ran.stdout
