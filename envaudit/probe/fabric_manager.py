"""The fabric manager: the service without which a node with NVSwitches starts no CUDA (error 802).

It applies where the kernel shows NVSwitches and the service of the host can be seen. Its version
must be the driver's.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

from envaudit.probe.context import Context, ProgramFailed
from envaudit.probe.virtualisation import container_kind

_SWITCHES = "/proc/driver/nvidia-nvswitch"
_CONTROL = "/dev/nvidia-nvswitchctl"
_PROGRAM = "/usr/bin/nv-fabricmanager"
# PIDFile= of nvidia-fabricmanager.service.
_PID_FILE = "/run/nvidia-fabricmanager/nv-fabricmanager.pid"
_NAME = "nv-fabricmanage"  # as /proc/<pid>/comm has it, 15 characters
_TIMEOUT_S = 3.0


def fabric_manager(context: Context, not_examined: Dict[str, str]) -> Optional[Dict[str, Any]]:
    """{"switches", "installed", "running", "version"}; None where it does not apply.

    `switches` and `running` are null where they cannot be seen. The version is what the installed
    program says of itself, without root.
    """
    if not context.exists(_SWITCHES) and not context.exists(_CONTROL):
        return None
    if container_kind(context) != "none":
        not_examined["fabric manager"] = "a container does not see the host's services"
        return None
    installed = context.exists(_PROGRAM)
    return {
        "switches": _switch_count(context),
        "installed": installed,
        "running": _is_running(context),
        "version": _version(context, not_examined) if installed else None,
    }


def _switch_count(context: Context) -> Optional[int]:
    try:
        return len(context.list_dir(f"{_SWITCHES}/devices")) or None
    except OSError:
        return None


def _is_running(context: Context) -> Optional[bool]:
    """By its pid file, else by the names of all processes; None where foreign processes are hidden."""
    pid = context.peek(_PID_FILE) or ""
    if pid.isascii() and pid.isdigit() and context.peek(f"/proc/{pid}/comm") == _NAME:
        return True
    if context.peek("/proc/1/comm") is None:
        return None
    try:
        pids = [name for name in context.list_dir("/proc") if name.isdigit()]
    except OSError:
        return None
    return any(context.peek(f"/proc/{pid}/comm") == _NAME for pid in pids)


def _version(context: Context, not_examined: Dict[str, str]) -> Optional[str]:
    """From `Fabric Manager version is : 550.54.15`."""
    try:
        said = context.run([_PROGRAM, "--version"], timeout_s=_TIMEOUT_S)
    except ProgramFailed as error:
        not_examined["fabric manager version"] = str(error)
        return None
    match = re.search(r"\b(\d{3,4}\.\d+(?:\.\d+)?)\b", said.stdout + said.stderr)
    if match is None:
        not_examined["fabric manager version"] = "no version in what it printed"
        return None
    return match.group(1)
