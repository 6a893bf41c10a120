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
    make_node: MakeNode,
    comm: str = "",
    commands: Dict[str, Any] | None = None,
    status: int | None = None,
    more: Dict[str, str] | None = None,
    **node: Any,
) -> Answer:
    """The section of a node with one daemon, these programs and this kernel status."""
    files = {"/proc/1/comm": "init\n", "/proc/self/status": "x", **(more or {})}
    if comm:
        files["/proc/812/comm"] = comm[:15] + "\n"
    node["commands"] = commands or {}
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


_LISTENS = "  sl  local_address rem_address   st\n  0: 0100007F:0143 00000000:0000 07\n"


def test_chrony_that_is_seen_only_by_its_answer_counts(make_node: MakeNode) -> None:
    """A container with the host's network hears chronyd and does not see its process."""
    more = {"/proc/net/udp": _LISTENS}
    answer = read(make_node, "", {_TRACKING: told(_ROW_14)}, status=_UNSYNC, more=more)
    assert ("chrony", True) == (answer.facts["service"], answer.facts["synchronised"])


def test_chronyc_is_not_started_where_nobody_listens(make_node: MakeNode) -> None:
    """A client that is installed is no service, and takes time to find that out."""
    answer = read(make_node, "", {_TRACKING: {"hang": True}}, status=_UNSYNC)
    assert ("ok", "none") == (answer.status, answer.facts["service"])


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
    assert "chronyc: 506 Cannot talk to daemon" == answer.notes["not_examined"]["time service"]


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
    expected = (3, -12_000, 1_500_000) if synchronised else (None, None, None)
    assert expected == tuple(answer.notes.get(key) for key in ("stratum", "offset_ns", "root_delay_ns"))


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


_STATUS = "timedatectl timesync-status"
_SYNCED = """\
       Server: 10.0.0.1 (ntp.cluster.example)
Poll interval: 1min 4s (min: 32s; max 34min 8s)
         Leap: normal
      Stratum: 2
Root distance: 1.25ms (max: 5s)
       Offset: -1min 2.5ms
 Packet count: 7
"""
_WAITING = """\
       Server: 10.0.0.1 (ntp.cluster.example)
Poll interval: 34min 8s (min: 32s; max 34min 8s)
 Packet count: 0
"""


@pytest.mark.parametrize("comm", ["systemd-timesyncd", "ntpd"])
def test_service_that_keeps_the_kernels_bit_is_not_asked_where_that_is_proof(
    make_node: MakeNode, comm: str
) -> None:
    """No program is started on a node whose kernel says it all: one that hangs is not noticed."""
    hanging = {name: {"hang": True} for name in (_STATUS, "ntpq -c rv")}
    answer = read(make_node, comm, hanging, status=_SYNC)
    assert {"service": comm, "synchronised": True, "leap": "normal"} == answer.facts
    assert ("ok", []) == (answer.status, list(answer.errors))


def test_whole_answer_asks_the_service_for_its_numbers(make_node: MakeNode) -> None:
    """`envaudit clock` wants to know by how much; the facts are the same."""
    answer = read(
        make_node, "systemd-timesyncd", {_STATUS: told(_SYNCED)}, status=_SYNC, options={"clock": "whole"}
    )
    assert {"service": "systemd-timesyncd", "synchronised": True, "leap": "normal"} == answer.facts
    assert ("10.0.0.1 (ntp.cluster.example)", 2, -60_002_500_000, 1_250_000) == tuple(
        answer.notes[key] for key in ("source", "stratum", "offset_ns", "root_distance_ns")
    )


def test_timesyncd_that_waits_for_its_first_packet_is_not_synchronised(make_node: MakeNode) -> None:
    """It runs, it has a server, and has heard nothing."""
    answer = read(make_node, "systemd-timesyncd", {_STATUS: told(_WAITING)}, status=_UNSYNC)
    assert (False, "not synchronised") == (answer.facts["synchronised"], answer.facts["leap"])


def test_timesyncd_beside_a_clock_in_local_time_is_believed(make_node: MakeNode) -> None:
    """It then leaves STA_UNSYNC set, to keep the kernel from the hardware's clock."""
    answer = read(make_node, "systemd-timesyncd", {_STATUS: told(_SYNCED)}, status=_UNSYNC)
    assert (True, "normal") == (answer.facts["synchronised"], answer.facts["leap"])


def test_old_timedatectl_is_asked_as_it_can_be(make_node: MakeNode) -> None:
    """Before 239 it knows its plain text only."""
    unknown = told("", 1, "Unknown operation timesync-status\n")
    answer = read(
        make_node,
        "systemd-timesyncd",
        {_STATUS: unknown, "timedatectl": told("     NTP enabled: yes\nNTP synchronized: yes\n")},
        status=_UNSYNC,
    )
    assert ("systemd-timesyncd", True) == (answer.facts["service"], answer.facts["synchronised"])


def test_timedatectl_without_a_bus_is_not_asked_in_three_other_ways(make_node: MakeNode) -> None:
    """The next question would fail alike: here it would hang."""
    commands = {
        _STATUS: told("", 1, "Failed to connect to bus: No such file or directory\n"),
        "timedatectl show-timesync --all": {"hang": True},
    }
    answer = read(make_node, "systemd-timesyncd", commands, status=_UNSYNC)
    assert ("ok", False) == (answer.status, answer.facts["synchronised"])


def test_old_chronyc_is_read_from_its_text(make_node: MakeNode) -> None:
    """Before 2.4 it knows no -c; fast of NTP time is negative, as in the row."""
    text = (
        "Reference ID    : 10.0.0.1 (ntp.cluster.example)\nStratum         : 3\n"
        "System time     : 0.000001500 seconds fast of NTP time\nRoot delay      : 0.000100 seconds\n"
        "Leap status     : Normal\n"
    )
    answer = read(
        make_node,
        "chronyd",
        {_TRACKING: told("", 1, "chronyc: invalid option -- 'c'\n"), "chronyc tracking": told(text)},
        status=_UNSYNC,
    )
    assert {"service": "chrony", "synchronised": True, "leap": "normal"} == answer.facts
    assert ("ntp.cluster.example", 3, -1500, 100_000) == tuple(
        answer.notes[key] for key in ("source", "stratum", "offset_ns", "root_delay_ns")
    )


def test_ntpd_that_follows_no_peer_is_not_synchronised(make_node: MakeNode) -> None:
    """Peers that answer, none of them chosen."""
    table = (
        "     remote           refid      st t when poll reach   delay   offset  jitter\n"
        "==============================================================================\n"
        " 10.0.0.1        .INIT.          16 u    -   64    0    0.000    0.000   0.000\n"
    )
    answer = read(make_node, "ntpd", {"ntpq -pn": told(table)}, status=_UNSYNC)
    assert ("ntpd", False) == (answer.facts["service"], answer.facts["synchronised"])


_PMC = "pmc -u -b 0 GET PORT_DATA_SET GET TIME_STATUS_NP"


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        ("SLAVE", _SYNC, True),
        ("SLAVE", _UNSYNC, None),
        ("LISTENING", _UNSYNC, False),
        ("FAULTY", _SYNC, True),
    ],
)
def test_ptp_follows_a_master_with_its_card_and_says_nothing_of_the_system_clock(
    make_node: MakeNode, state: str, status: int, expected: Optional[bool]
) -> None:
    """Phc2sys takes the time from the card to the system, and clears STA_UNSYNC when it does."""
    text = (
        "sending: GET PORT_DATA_SET\n\t0c42a1.fffe.000001-1 seq 0 RESPONSE MANAGEMENT PORT_DATA_SET\n"
        f"\t\tportState               {state}\nsending: GET TIME_STATUS_NP\n\t\tmaster_offset   -42\n"
    )
    answer = read(make_node, "ptp4l", {_PMC: told(text)}, status=status, options={"clock": "whole"})
    assert ("ptp4l", expected) == (answer.facts["service"], answer.facts["synchronised"])
    assert ([state], -42) == (answer.notes["port_states"], answer.notes["offset_ns"])


def test_pmc_that_may_not_be_used_leaves_the_kernel_to_say(make_node: MakeNode) -> None:
    """Its socket is root's."""
    answer = read(make_node, "ptp4l", {_PMC: told("", 255, "uds: bind failed\n")}, status=_UNSYNC)
    assert ("ok", None) == (answer.status, answer.facts["synchronised"])
    assert "bind failed" in answer.notes["not_examined"]["time service"]


def test_several_services_are_a_note_and_the_first_is_told(make_node: MakeNode) -> None:
    """Chrony keeps the system's clock where ptp4l keeps the card's."""
    ptp = {"/proc/900/comm": "ptp4l\n", "/proc/901/comm": "phc2sys\n"}
    answer = read(make_node, "chronyd", {_TRACKING: told(_ROW_14)}, more=ptp)
    assert ("chrony", ["chrony", "ptp4l", "phc2sys"]) == (answer.facts["service"], answer.notes["running"])


@pytest.mark.parametrize("status", [_UNSYNC, None])
def test_container_without_a_service_does_not_know_its_hosts(
    make_node: MakeNode, status: Optional[int]
) -> None:
    """Not seen is unknown: neither `none` nor `not synchronised`."""
    answer = read(make_node, status=status, more={"/.dockerenv": ""})
    assert {"service": None, "synchronised": None, "leap": None} == answer.facts
    assert {"service", "synchronised"} <= set(answer.notes["not_examined"])


def test_container_whose_kernel_is_synchronised_says_so(make_node: MakeNode) -> None:
    """The host's clock is the container's, and STA_UNSYNC clear is proof."""
    answer = read(make_node, status=_SYNC, more={"/.dockerenv": ""})
    assert {"service": None, "synchronised": True, "leap": "normal"} == answer.facts


@pytest.mark.parametrize(
    "place",
    [
        "/run/chrony/chronyd.pid",
        "/sys/fs/cgroup/system.slice/chrony.service/cgroup.procs",
        "/sys/fs/cgroup/systemd/system.slice/chronyd.service/cgroup.procs",
    ],
)
def test_service_that_is_written_down_is_found_without_a_look_at_every_process(
    make_node: MakeNode, place: str
) -> None:
    """A large node has thousands of processes; what is written down counts where it is true."""
    node = make_node({place: "812\n", "/proc/812/comm": "chronyd\n"})
    node.list_dir = lambda path: pytest.fail(f"{path} was listed")  # type: ignore[method-assign]
    assert "chrony" == clock.read(node).facts["service"]


@pytest.mark.parametrize("text", ["", "0\n", "nobody\n", "-1\n", "999999999999999999999999\n", "13\n"])
def test_pid_file_that_lies_is_not_believed(make_node: MakeNode, text: str) -> None:
    """Left behind, of another namespace, or of a process that is no time service."""
    more = {"/run/chrony/chronyd.pid": text, "/proc/13/comm": "bash\n"}
    assert "none" == read(make_node, status=_UNSYNC, more=more).facts["service"]
