"""A node's own names: what it calls itself, short and in full."""

from __future__ import annotations

import os
from typing import List

from envaudit.probe.context import Context


def own_name(context: Context) -> str:
    """The host name as the kernel has it; that of a fake node stands in its node.json."""
    if not context.live:
        return str(context.node.get("hostname", ""))
    return os.uname().nodename


def host_names(context: Context) -> List[str]:
    """The full name, if it is one, and the short one."""
    name = own_name(context)
    short = name.partition(".")[0]
    return [name, short] if short != name else [name] if name else []
