"""A postponed module is executed at its first use, and is then the module itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import PROJECT

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


THREADS = """
import sys, threading
from envaudit.transport.postponed import postpone
postpone("slow")
import slow
told = []
def use():
    try:
        told.append(slow.last)
    except Exception as error:
        told.append(repr(error))
threads = [threading.Thread(target=use) for _ in range(4)]
for each in threads: each.start()
for each in threads: each.join()
print(told, hasattr(slow, "no_such_name"))
"""


def test_postponed_module_is_whole_for_every_thread(tmp_path: Path) -> None:
    """A program that imports envaudit has threads of its own, and its `tarfile` is postponed as well."""
    slow = "import sys, time\nassert not hasattr(sys.modules[__name__], 'last')\ntime.sleep(0.2)\nlast = 1\n"
    (tmp_path / "slow.py").write_text(slow)
    argv = [sys.executable, "-c", THREADS]
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{PROJECT}"}
    ran = subprocess.run(argv, capture_output=True, text=True, check=True, env=environ)
    assert "[1, 1, 1, 1] False\n" == ran.stdout


def test_gather_is_imported_without_the_clients_of_http() -> None:
    """What ClusterShell does not use is not loaded for it."""
    script = "import sys; from envaudit.transport import gather; print('http.client' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "False\n" == ran.stdout
