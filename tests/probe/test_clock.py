"""What the time services say, and what the kernel's word is worth."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.sections import clock

MakeNode = Callable[..., Context]

_UNSYNC, _SYNC, _INSERT = 0x40, 0x2001, 0x2011
_TRACKING = "chronyc -c tracking"
_ROW_14 = (
    "C0A80101,192.168.1.1,3,1711000000.123,-0.000001500,0.000002,0.000003,-12.3,0.001,0.01,"
    "0.000100,0.000200,64.2,Normal"
)
_ROW_13 = _ROW_14.partition(",")[2]
_ROW_UNSYNCHRONISED = "00000000,,0,0.000000000,0.000000000,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised"


def read(
    make_node: MakeNode, comm: str = "", commands: Dict[str, Any] | None = None, status: int | None = None
) -> Answer:
    """The section of a node with one daemon, these programs and this kernel status."""
    files = {"/proc/1/comm": "init\n", "/proc/self/status": "x"}
    if comm:
        files["/proc/812/comm"] = comm[:15] + "\n"
    node: Dict[str, Any] = {"commands": commands or {}}
    if status is not None:
        node["adjtimex"] = {
            "status": status,
            "offset_ns": 5,
            "max_error_us": 1,
            "estimated_error_us": 1,
            "frequency_scaled_ppm": 0,
        }
    return clock.read(make_node(files, **node))


def told(stdout: str, rc: int = 0, stderr: str = "") -> Dict[str, Any]:
    """What a program says."""
    return {"rc": rc, "stdout": stdout, "stderr": stderr}


@pytest.mark.parametrize("row", [_ROW_13, _ROW_14, _ROW_14.replace("Normal", "Insert second")])
def test_chrony_in_sync_says_so_in_either_layout(make_node: MakeNode, row: str) -> None:
    """Rows of 13 and 14 fields are counted from their end; the offset is a note in nanoseconds."""
    answer = read(make_node, "chronyd", {_TRACKING: told(row + "\n")}, status=_UNSYNC)
    leap = row.rpartition(",")[2].lower()
    assert {"service": "chrony", "synchronised": True, "leap": leap} == answer.facts
    assert (3, -1500, "192.168.1.1") == tuple(answer.notes[key] for key in ("stratum", "offset_ns", "source"))


def test_unsynchronised_chrony_is_not_offset_zero(make_node: MakeNode) -> None:
    """A row with stratum 0 says offset 0.0 and no name: neither is good news."""
    answer = read(make_node, "chronyd", {_TRACKING: told(_ROW_UNSYNCHRONISED)}, status=_UNSYNC)
    assert {"service": "chrony", "synchronised": False, "leap": "not synchronised"} == answer.facts
    assert "offset_ns" not in answer.notes


def test_chrony_is_asked_over_its_socket_first(make_node: MakeNode) -> None:
    """Without a network namespace of its own, UDP port 323 may be somebody else's chronyd."""
    node = make_node(
        {"/proc/8/comm": "chronyd\n", "/run/chrony/chronyd.sock": ""},
        commands={
            "chronyc -h /run/chrony/chronyd.sock -c tracking": told(_ROW_14),
            _TRACKING: told(_ROW_UNSYNCHRONISED),
        },
    )
    assert clock.read(node).facts["synchronised"] is True


def test_chrony_that_is_seen_only_by_its_answer_counts(make_node: MakeNode) -> None:
    """A container with the host's network hears chronyd and does not see its process."""
    answer = read(make_node, "", {_TRACKING: told(_ROW_14)}, status=_UNSYNC)
    assert ("chrony", True) == (answer.facts["service"], answer.facts["synchronised"])


def test_socket_of_a_killed_chrony_is_no_service(make_node: MakeNode) -> None:
    """A socket stays behind when the service is killed."""
    node = make_node(
        {"/proc/8/comm": "bash\n", "/run/chrony/chronyd.sock": ""},
        commands={_TRACKING: told("506 Cannot talk to daemon\n", rc=1)},
    )
    assert "none" == clock.read(node).facts["service"]


@pytest.mark.parametrize(("status", "expected"), [(_SYNC, True), (_UNSYNC, None), (None, None)])
def test_silent_chrony_leaves_the_kernel_to_prove_sync_only(
    make_node: MakeNode, status: Optional[int], expected: Optional[bool]
) -> None:
    """Chronyd without rtcsync sets STA_UNSYNC though it is synchronised: set is no proof, clear is."""
    answer = read(make_node, "chronyd", {_TRACKING: told("506 Cannot talk to daemon\n", rc=1)}, status=status)
    assert ("ok", "chrony", expected) == (
        answer.status,
        answer.facts["service"],
        answer.facts["synchronised"],
    )
    assert "chronyc: 506 Cannot talk to daemon" == answer.notes["not_examined"]["synchronised"]


def test_hanging_chronyc_makes_the_section_partial(make_node: MakeNode) -> None:
    """A service that does not answer in time is a fault that is told."""
    answer = read(make_node, "chronyd", {_TRACKING: {"hang": True}}, status=_UNSYNC)
    assert ("partial", ["chronyc: no answer within 2 s"]) == (answer.status, list(answer.errors))
    assert answer.facts["synchronised"] is None


@pytest.mark.parametrize("word", ["yes", "no"])
def test_timesyncd_is_asked_through_timedatectl(make_node: MakeNode, word: str) -> None:
    """The kernel keeps 15 characters of the daemon's name."""
    command = {"timedatectl show --property=NTPSynchronized": told(f"NTPSynchronized={word}\n")}
    answer = read(make_node, "systemd-timesyncd", command)
    assert ("systemd-timesyncd", word == "yes") == (answer.facts["service"], answer.facts["synchronised"])


def test_timesyncd_without_dbus_leaves_the_kernel_to_say(make_node: MakeNode) -> None:
    """In a job without a bus, STA_UNSYNC is timesyncd's own word."""
    answer = read(make_node, "systemd-timesyncd", {}, status=_UNSYNC)
    assert ("systemd-timesyncd", False) == (answer.facts["service"], answer.facts["synchronised"])


@pytest.mark.parametrize(
    ("words", "synchronised", "leap"),
    [
        ("leap_none, sync_ntp, 1 event, clock_sync", True, "normal"),
        ("leap_add_sec, sync_ntp, 1 event, clock_sync", True, "insert second"),
        ("leap_alarm, sync_unspec, 1 event, freq_not_set", False, "not synchronised"),
    ],
)
def test_ntpd_is_asked_through_ntpq(make_node: MakeNode, words: str, synchronised: bool, leap: str) -> None:
    """Ntpq speaks milliseconds; notes are nanoseconds."""
    text = f"associd=0 status=0615 {words},\nstratum=3, refid=10.0.0.1,\noffset=-0.012, rootdelay=1.5\n"
    answer = read(make_node, "ntpd", {"ntpq -c rv": told(text)})
    assert {"service": "ntpd", "synchronised": synchronised, "leap": leap} == answer.facts
    assert (3, -12_000, 1_500_000) == tuple(
        answer.notes[key] for key in ("stratum", "offset_ns", "root_delay_ns")
    )


@pytest.mark.parametrize(("status", "expected"), [(_SYNC, True), (_UNSYNC, False)])
def test_node_without_a_service_has_the_kernels_word(
    make_node: MakeNode, status: int, expected: bool
) -> None:
    """In a container the host keeps the clock: a clear STA_UNSYNC proves it."""
    answer = read(make_node, status=status)
    assert ("none", expected) == (answer.facts["service"], answer.facts["synchronised"])


def test_pending_leap_second_of_the_kernel_is_told(make_node: MakeNode) -> None:
    """STA_INS announces a second that some nodes must not miss."""
    assert "insert second" == read(make_node, "ptp4l", status=_INSERT).facts["leap"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a,b,c",
        "\0",
        ",".join("x" * 14),
        ",".join("9" * 14),
        "nan,inf," * 7,
        "506 Cannot talk to daemon",
    ],
)
def test_garbled_answer_of_chronyc_is_never_good(make_node: MakeNode, text: str) -> None:
    """No garbage reads as a synchronised clock with an offset."""
    answer = read(make_node, "chronyd", {_TRACKING: told(text)}, status=_UNSYNC)
    assert answer.facts["synchronised"] in (None, False)
    assert isinstance(answer.notes.get("offset_ns", 0), (int, type(None)))


def test_kernel_of_this_machine_answers(tmp_path: object) -> None:
    """Adjtimex is really called; status 0x40 is the one bit that is judged."""
    node = Context(environ={"PATH": "/nowhere"}, workdir="/", launch="local", interpreter={})
    kernel = clock.read(node).notes["kernel"]
    assert all(isinstance(value, int) for value in kernel.values())
    assert 0 <= kernel["status"] < 1 << 16
    assert kernel["max_error_us"] >= 0


@pytest.mark.parametrize(
    ("name", "status", "service", "synchronised"),
    [
        ("healthy-h100", "ok", "chrony", True),
        ("cpu-only", "ok", "systemd-timesyncd", True),
        ("garbled", "ok", "chrony", None),
        ("denied-and-hanging", "partial", "chrony", None),
    ],
)
def test_fake_node_has_its_status(
    fake_node: Callable[[str], Context], name: str, status: str, service: str, synchronised: Optional[bool]
) -> None:
    """Synchronised, other, garbled and hanging services are told apart."""
    answer = clock.read(fake_node(name))
    assert (status, service, synchronised) == (
        answer.status,
        answer.facts["service"],
        answer.facts["synchronised"],
    )


def test_service_of_a_container_is_not_the_nodes(make_node: MakeNode) -> None:
    """A chronyd in a process namespace below shows in /proc of the host, and keeps no clock of it."""
    container = {"/proc/8/comm": "chronyd\n", "/proc/8/status": "Name:\tchronyd\nNSpid:\t8\t3\n"}
    own = {"/proc/9/comm": "chronyd\n", "/proc/9/status": "Name:\tchronyd\nNSpid:\t9\n"}
    assert "none" == clock.read(make_node(container)).facts["service"]
    assert "chrony" == clock.read(make_node({**container, **own})).facts["service"]
