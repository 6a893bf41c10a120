"""The time service, and whether the clock is synchronised; how far it is off is a note.

Status, not measurement: what the service and the kernel say of themselves. Offsets are integers in
nanoseconds.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from envaudit.probe.context import Answer, Context, ProgramFailed, ProgramTimeout

SCHEMA = 1
DEADLINE_S = 8.0

_TIMEOUT_S = 2.0
_CHRONY_SOCKET = "/run/chrony/chronyd.sock"
_DAEMONS = {
    "chronyd": "chrony",
    "systemd-timesyn": "systemd-timesyncd",  # the kernel keeps 15 characters of a name
    "ntpd": "ntpd",
    "ptp4l": "ptp4l",
}
_LEAPS = ("normal", "insert second", "delete second")
_STA_INS, _STA_DEL, _STA_UNSYNC = 0x10, 0x20, 0x40  # include/uapi/linux/timex.h
_STA_NANO = 0x2000


class _Service(NamedTuple):
    """What a time service says: `synchronised` and `leap` are None where it does not say."""

    name: str
    synchronised: Optional[bool]
    leap: Optional[str]
    notes: Mapping[str, Any]


def read(context: Context) -> Answer:
    """Facts service, synchronised, leap.

    STA_UNSYNC clear proves that the clock is synchronised. Set it proves nothing where chronyd
    runs, which sets it unless it is configured with `rtcsync`.
    """
    errors: List[str] = []
    not_examined: Dict[str, str] = {}
    kernel = _kernel(context, not_examined)
    service = _service(context, errors, not_examined)
    synchronised = service.synchronised
    if synchronised is None and kernel is not None:
        if not kernel["status"] & _STA_UNSYNC:
            synchronised = True
        elif service.name != "chrony":
            synchronised = False
    if synchronised is None and not errors and "synchronised" not in not_examined:
        not_examined["synchronised"] = f"{service.name} gave no answer, and the kernel's is no proof"
    facts = {"service": service.name, "synchronised": synchronised, "leap": service.leap or _leap(kernel)}
    notes: Dict[str, Any] = dict(service.notes)
    if kernel is not None:
        notes["kernel"] = kernel
    if not_examined:
        notes["not_examined"] = not_examined
    return Answer("partial" if errors else "ok", facts, notes, errors)


def _service(context: Context, errors: List[str], not_examined: Dict[str, str]) -> _Service:
    ask = {"chrony": _chrony, "systemd-timesyncd": _timesyncd, "ntpd": _ntpd}
    running = _running(context)
    # In a container with the host's network chronyd answers though its process is not to be seen. A
    # socket proves nothing: it stays behind when the service is killed.
    name = running[0] if running else "chrony"
    try:
        if name in ask:
            return ask[name](context)
    except ProgramTimeout as error:
        errors.append(str(error))
    except ProgramFailed as error:
        if running:
            not_examined["synchronised"] = str(error)
    return _Service(name if running else "none", None, None, {})


def _running(context: Context) -> List[str]:
    """The time services among the processes that are to be seen, chrony first."""
    try:
        pids = [name for name in context.list_dir("/proc") if name.isdigit()]
    except OSError:
        return []
    seen = set()
    for pid in pids:
        try:
            name = context.read_head(f"/proc/{pid}/comm", 32).strip().decode("ascii", "replace")
        except OSError:
            continue  # it ended meanwhile
        if name in _DAEMONS and not _is_of_a_container(context, pid):
            seen.add(_DAEMONS[name])
    return [name for name in _DAEMONS.values() if name in seen]


def _is_of_a_container(context: Context, pid: str) -> bool:
    """Whether a process lives in a process namespace below ours: its clock service is not the node's.

    `NSpid` lists its number in each namespace from that of /proc downward (proc(5)).
    """
    try:
        status = context.read_head(f"/proc/{pid}/status", 4096).decode("utf-8", "replace")
    except OSError:
        return False
    return any(line.startswith("NSpid:") and len(line.split()) > 2 for line in status.splitlines())


def _chrony(context: Context) -> _Service:
    """What `chronyc -c tracking` says, over the service's socket when that is there, else over UDP.

    The row has 14 fields, 13 from older versions; counted from its end the fields are alike. A row
    with stratum 0 is that of an unsynchronised service: its offset 0.0 is none.
    """
    argvs = [["chronyc", "-c", "tracking"]]
    if context.exists(_CHRONY_SOCKET):
        argvs.insert(0, ["chronyc", "-h", _CHRONY_SOCKET, "-c", "tracking"])
    complaint = ""
    for argv in argvs:
        ran = context.run(argv, timeout_s=_TIMEOUT_S)
        row = ran.stdout.strip().splitlines()[-1].split(",") if ran.stdout.strip() else []
        if ran.rc == 0 and len(row) in (13, 14):
            return _tracking(row)
        complaint = (ran.stdout + ran.stderr).strip()[:200] or f"chronyc ended with status {ran.rc}"
    raise ProgramFailed(f"chronyc: {complaint}")


def _tracking(row: List[str]) -> _Service:
    leap = row[-1].lower()
    stratum = int(row[-12]) if row[-12].isdigit() else 0
    if stratum == 0 or leap == "not synchronised":
        return _Service("chrony", False, "not synchronised", {"stratum": stratum})
    if leap not in _LEAPS:
        raise ProgramFailed(f"chronyc: no leap state: {leap[:40]}")
    notes = {
        "source": row[-13],
        "stratum": stratum,
        "offset_ns": _nanoseconds(row[-10]),
        "root_delay_ns": _nanoseconds(row[-4]),
        "root_dispersion_ns": _nanoseconds(row[-3]),
    }
    return _Service("chrony", True, leap, notes)


def _timesyncd(context: Context) -> _Service:
    ran = context.run(["timedatectl", "show", "--property=NTPSynchronized"], timeout_s=_TIMEOUT_S)
    key, _, value = ran.stdout.strip().partition("=")
    if ran.rc != 0 or key != "NTPSynchronized":
        raise ProgramFailed(f"timedatectl: {ran.stderr.strip()[:200] or 'ended without an answer'}")
    return _Service("systemd-timesyncd", value == "yes", None, {})


def _ntpd(context: Context) -> _Service:
    """What `ntpq -c rv` says: `leap_none, sync_ntp, ..., stratum=3, ..., offset=-0.012` (in ms)."""
    ran = context.run(["ntpq", "-c", "rv"], timeout_s=_TIMEOUT_S)
    words = ran.stdout.replace("\n", " ").replace(",", " ").split()
    leaps = [word[len("leap_") :] for word in words if word.startswith("leap_")]
    values = dict(word.split("=", 1) for word in words if "=" in word)
    if ran.rc != 0 or not leaps:
        raise ProgramFailed(f"ntpq: {ran.stderr.strip()[:200] or 'ended without an answer'}")
    names = {"none": "normal", "add_sec": "insert second", "del_sec": "delete second"}
    synchronised = leaps[0] in names and "sync_unspec" not in words
    notes: Dict[str, Any] = {"source": values.get("refid"), "stratum": _integer(values.get("stratum", ""))}
    for key, name in (
        ("offset", "offset_ns"),
        ("rootdelay", "root_delay_ns"),
        ("rootdisp", "root_dispersion_ns"),
    ):
        notes[name] = _nanoseconds(values.get(key, ""), scale=1_000_000)
    return _Service("ntpd", synchronised, names.get(leaps[0], "not synchronised"), notes)


def _nanoseconds(text: str, scale: int = 1_000_000_000) -> Optional[int]:
    try:
        return round(float(text) * scale)
    except (ValueError, OverflowError):
        return None


def _integer(text: str) -> Optional[int]:
    return int(text) if text.isdigit() else None


def _leap(kernel: Optional[Mapping[str, Any]]) -> Optional[str]:
    if kernel is None or kernel["status"] & _STA_UNSYNC:
        return None
    if kernel["status"] & _STA_INS:
        return "insert second"
    return "delete second" if kernel["status"] & _STA_DEL else "normal"


class _Timex(ctypes.Structure):
    """struct timex of include/uapi/linux/timex.h, up to the fields that are read."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", ctypes.c_long * 2),
        ("tick", ctypes.c_long),
        ("rest", ctypes.c_char * 256),
    ]


def _kernel(context: Context, not_examined: Dict[str, str]) -> Optional[Dict[str, int]]:
    """What adjtimex(2) says with modes 0, which changes nothing and needs no right."""
    if not context.live:
        told = context.node.get("adjtimex")
        if told is None:
            not_examined["kernel"] = "no adjtimex on this node"
        return told
    timex = _Timex()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(timex)) < 0:
        not_examined["kernel"] = f"adjtimex: errno {ctypes.get_errno()}"
        return None
    nano = 1 if timex.status & _STA_NANO else 1000
    return {
        "status": timex.status,
        "offset_ns": timex.offset * nano,
        "max_error_us": timex.maxerror,
        "estimated_error_us": timex.esterror,
        "frequency_scaled_ppm": timex.freq,  # parts per million, times 65536
    }
