"""The time service, and whether the clock is synchronised; how far it is off is a note.

Status, not measurement: what the service and the kernel say of themselves. Offsets are integers in
nanoseconds. How far the node's clock is from the others' is measured by whoever asks, and added to
these notes as `against_controller`.

Facts:
    service: chrony, systemd-timesyncd, ntpd, ntpd-rs, ptp4l or phc2sys, `none`; null in a container
        in which none is to be seen, for the host's would not be.
    synchronised: null where neither the service nor the kernel says it for certain.
    leap: normal, insert second, delete second, not synchronised; null where nobody says.

Notes: the service's own source, stratum, offset, delay and dispersion; `kernel`, what adjtimex(2)
says; `running`, where more than one service does.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from envaudit.probe import timeservices
from envaudit.probe.context import Answer, Context, ProgramFailed, ProgramMissing, ProgramTimeout
from envaudit.probe.timeservices import NoWord, Word
from envaudit.probe.virtualisation import container_kind

SCHEMA = 1
DEADLINE_S = 8.0

_TIMEOUT_S = 2.0
_CHRONY_SOCKET = "/run/chrony/chronyd.sock"

# The name of a process, of which the kernel keeps 15 characters, to its service; the first of them
# that runs is the one that is told.
_DAEMONS = {
    "chronyd": "chrony",
    "systemd-timesyn": "systemd-timesyncd",
    "ntpd": "ntpd",
    "ntp-daemon": "ntpd-rs",
    "ptp4l": "ptp4l",
    "phc2sys": "phc2sys",
}
# Where these write down their process, so that not every process of a large node must be looked at.
_UNITS = (
    "chrony.service",
    "chronyd.service",
    "systemd-timesyncd.service",
    "ntp.service",
    "ntpd.service",
    "ntpsec.service",
)
_GROUPS = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")
_PID_FILES = ("/run/chrony/chronyd.pid", "/run/chronyd.pid", "/run/ntpd.pid")

# What each service is asked, in this order until one answers: words, and how the answer is read.
_Question = Tuple[Sequence[str], Callable[[str], Word]]
_QUESTIONS: Mapping[str, Sequence[_Question]] = {
    "chrony": (
        (("chronyc", "-c", "tracking"), timeservices.chrony_row),
        (("chronyc", "tracking"), timeservices.chrony_text),
    ),
    "systemd-timesyncd": (
        # Before version 239 timedatectl knows the last one only.
        (("timedatectl", "timesync-status"), timeservices.timesync_status),
        (("timedatectl", "show-timesync", "--all"), timeservices.timesync_properties),
        (("timedatectl", "show", "--property=NTPSynchronized"), timeservices.timedatectl_status),
        (("timedatectl",), timeservices.timedatectl_status),
    ),
    "ntpd": (
        (("ntpq", "-c", "rv"), timeservices.ntp_variables),
        (("ntpq", "-pn"), timeservices.ntp_peers),
    ),
    # Boundary hops 0: the ptp4l of this machine alone. It answers over a socket that root may use.
    "ptp4l": ((("pmc", "-u", "-b", "0", "GET PORT_DATA_SET", "GET TIME_STATUS_NP"), timeservices.ptp_port),),
}

# How programs say that they are too old for a question.
_UNKNOWN = ("unknown", "unrecognized", "invalid option")

_STA_INS, _STA_DEL, _STA_UNSYNC = 0x10, 0x20, 0x40  # include/uapi/linux/timex.h
_STA_NANO = 0x2000


class _Found(NamedTuple):
    """A time service, and what it says."""

    name: Optional[str]
    word: Word


def read(context: Context) -> Answer:
    """Facts service, synchronised, leap.

    STA_UNSYNC clear proves that the clock is synchronised. Set it proves nothing where chronyd
    runs, which sets it unless it is configured with `rtcsync`, nor in a container, whose host may
    run it. chronyd is asked in any case; the others keep the bit themselves, and are asked where it
    proves nothing, or where the option `clock` is `whole`.
    """
    errors: List[str] = []
    not_examined: Dict[str, str] = {}
    kernel = _kernel(context, not_examined)
    proof = kernel is not None and not kernel["status"] & _STA_UNSYNC
    running = _running(context)
    found = _asked(context, running, errors, not_examined, proof=proof)
    word = found.word
    synchronised = word.synchronised
    if proof and found.name != "chrony":
        synchronised = True
    elif synchronised is None:
        synchronised = _by_kernel(found.name, kernel, proof=proof)
    if synchronised is None and not errors:
        not_examined.setdefault("synchronised", _why_not_known(context, found.name))
    facts = {"service": found.name, "synchronised": synchronised, "leap": word.leap or _leap(kernel)}
    notes: Dict[str, Any] = dict(word.notes)
    if kernel is not None:
        notes["kernel"] = kernel
    if len(running) > 1:
        notes["running"] = running
    resolution_ns = round(time.clock_getres(time.CLOCK_REALTIME) * 1_000_000_000) if context.live else 1
    if resolution_ns > 1:
        notes["resolution_ns"] = resolution_ns
    if not_examined:
        notes["not_examined"] = not_examined
    return Answer("partial" if errors else "ok", facts, notes, errors)


def _asked(
    context: Context, running: List[str], errors: List[str], not_examined: Dict[str, str], *, proof: bool
) -> _Found:
    # In a container with the host's network chronyd answers though its process is not to be seen. A
    # socket proves nothing: it stays behind when the service is killed.
    name = running[0] if running else "chrony"
    nothing = Word(None, None)
    if running:
        wanted = name == "chrony" or not proof or context.options.get("clock") == "whole"
    else:
        wanted = context.exists(_CHRONY_SOCKET) or _chrony_listens(context)
    if wanted:
        try:
            return _Found(name, _word_of(context, name))
        except ProgramTimeout as error:
            errors.append(str(error))
        except ProgramFailed as error:
            if running:
                not_examined["time service"] = str(error)
    if running:
        return _Found(name, nothing)
    if container_kind(context) == "none":
        return _Found("none", nothing)
    not_examined["service"] = "none is visible, and the host's would not be: this is a container"
    return _Found(None, nothing)


def _word_of(context: Context, name: str) -> Word:
    """What a service says; an older program is asked in the way that it knows.

    Raises:
        ProgramFailed: none did; the text is the first one's.
    """
    questions = _QUESTIONS.get(name, ())
    ways = [questions]
    if name == "chrony" and context.exists(_CHRONY_SOCKET):
        # Without a network of its own, UDP port 323 may be somebody else's chronyd.
        ways.insert(0, [((argv[0], "-h", _CHRONY_SOCKET, *argv[1:]), reads) for argv, reads in questions])
    failures: List[ProgramFailed] = []
    for way in ways:
        for argv, reads in way:
            try:
                return reads(_said(context, argv))
            except NoWord as error:
                failures.append(ProgramFailed(f"{argv[0]}: {error}"))
            except ProgramTimeout:
                raise
            except ProgramFailed as error:
                failures.append(error)
                is_too_old = any(word in str(error).lower() for word in _UNKNOWN)
                if not is_too_old and not isinstance(error, ProgramMissing):
                    break  # it knows the question, and has no answer
    raise failures[0] if failures else ProgramFailed(f"{name} has no program that tells of it")


def _said(context: Context, argv: Sequence[str]) -> str:
    ran = context.run(argv, timeout_s=_TIMEOUT_S)
    if ran.rc != 0:
        words = (ran.stdout + ran.stderr).strip()[:200]
        raise ProgramFailed(f"{argv[0]}: {words or f'ended with status {ran.rc}'}")
    return ran.stdout


def _by_kernel(service: Optional[str], kernel: Optional[Mapping[str, int]], *, proof: bool) -> Optional[bool]:
    """What the kernel's bit is worth beside a service that does not say."""
    if proof:
        return True
    if kernel is None or service in ("chrony", "ptp4l", "phc2sys", None):
        return None
    return False


def _why_not_known(context: Context, service: Optional[str]) -> str:
    if service is None:
        return f"the kernel's word is no proof in a container ({container_kind(context)})"
    return f"{service} gave no answer, and the kernel's is no proof"


def _running(context: Context) -> List[str]:
    """The time services that run, the one that is told first."""
    seen = set(_services_of(context, _written_down(context)))
    if not seen:
        try:
            seen = set(_services_of(context, filter(str.isdigit, context.list_dir("/proc"))))
        except OSError:
            return []
    return [name for name in _DAEMONS.values() if name in seen]


def _written_down(context: Context) -> Iterator[str]:
    """Processes that pid files and systemd's control groups name."""
    for path in _PID_FILES:
        yield from (context.peek(path) or "").split()[:1]
    for folder in _GROUPS:
        for unit in _UNITS:
            yield from (context.peek(f"{folder}/{unit}/cgroup.procs") or "").split()[:8]


def _chrony_listens(context: Context) -> bool:
    """Whether somebody takes the questions that chronyc asks, on UDP port 323 (0x143)."""
    return any(":0143 " in (context.peek(f"/proc/net/{name}") or "") for name in ("udp", "udp6"))


def _services_of(context: Context, pids: Any) -> Iterator[str]:
    for pid in pids:
        if not pid.isdigit() or pid == "0":
            continue  # a process of another namespace has no number here
        try:
            name = context.read_head(f"/proc/{pid}/comm", 32).strip().decode("ascii", "replace")
        except OSError:
            continue  # it ended meanwhile
        if name in _DAEMONS and not _is_of_a_container(context, pid):
            yield _DAEMONS[name]


def _is_of_a_container(context: Context, pid: str) -> bool:
    """Whether a process lives in a process namespace below ours: its clock service is not the node's.

    `NSpid` lists its number in each namespace from that of /proc downward (proc(5)).
    """
    try:
        status = context.read_head(f"/proc/{pid}/status", 4096).decode("utf-8", "replace")
    except OSError:
        return False
    return any(line.startswith("NSpid:") and len(line.split()) > 2 for line in status.splitlines())


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
