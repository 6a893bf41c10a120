"""nvidia-smi in NVML's place, where that library cannot be asked: `-q -x`, then `nvlink --status`."""

from __future__ import annotations

from typing import Any, Dict, List

from envaudit.probe.context import Context, ProgramFailed
from envaudit.probe.nvidia_smi_xml import read_report
from envaudit.probe.nvlink_status import read_link_status
from envaudit.probe.nvml import Told
from envaudit.probe.xml_elements import NotReadable

_COMMAND = ("nvidia-smi", "-q", "-x")
_LINKS_COMMAND = ("nvidia-smi", "nvlink", "--status")
_LIMIT_BYTES = 8 << 20


class SmiFailed(Exception):
    """nvidia-smi is not there, or said nothing usable; the text says why."""


def listen_to_smi(context: Context, timeout_s: float) -> Told:
    """What nvidia-smi says, in the rows that NVML has.

    Raises:
        SmiFailed: it says nothing usable.
    """
    try:
        ran = context.run(_COMMAND, timeout_s=timeout_s, limit_bytes=_LIMIT_BYTES)
        if ran.rc != 0:
            words = (ran.stdout or ran.stderr).strip().splitlines()
            raise SmiFailed(f"exit status {ran.rc}: {words[0][:200] if words else 'it says nothing'}")
        report = read_report(ran.stdout)
    except (ProgramFailed, NotReadable) as error:
        raise SmiFailed(str(error)) from None
    errors: List[str] = []
    if report.values["count"] != len(report.devices):
        errors.append(f"nvidia-smi describes {len(report.devices)} of {report.values['count']} GPUs")
    for row in report.devices:
        if "processes" in row["notes"]:
            row["notes"]["processes"] = _described(context, row["notes"]["processes"])
    _add_links(context, report.devices, timeout_s)
    system: Dict[str, Any] = {"library": None, "init": 0, "values": report.values, "source": "nvidia-smi"}
    return Told({**system, "errors": errors, "not_examined": {}}, report.devices, [])


def _add_links(context: Context, devices: List[Dict[str, Any]], timeout_s: float) -> None:
    """The NVLinks, which the XML lacks; unknown where they are not told."""
    try:
        ran = context.run(_LINKS_COMMAND, timeout_s=timeout_s)
    except ProgramFailed:
        return
    told = read_link_status(ran.stdout) if ran.rc == 0 else {}
    for row in devices:
        status = told.get(row["ordinal"])
        if status:
            row["facts"].update(status.facts)
            if status.down:
                row["notes"]["nvlinks_down"] = status.down


def _described(context: Context, rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """With users, where /proc is this machine's."""
    if not rows or not context.live:
        return rows
    from envaudit.probe.nvml_processes import describe_process, own_tree

    mine = own_tree()
    return [describe_process(row, mine) for row in rows]
