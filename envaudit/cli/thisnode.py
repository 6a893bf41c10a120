"""What this machine is called."""

from __future__ import annotations

import os
import re


def this_node() -> str:
    """The machine's name as a node name: the host name without its domain."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", os.uname().nodename.split(".")[0])
    return re.sub(r"\A-+", "", name)[:253] or "localhost"
