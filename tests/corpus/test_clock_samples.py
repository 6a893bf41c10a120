"""What time services have been seen to say: each recorded text read to exactly what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

import pytest

from envaudit.probe import timeservices
from envaudit.probe.timeservices import NoWord, Word

pytestmark = pytest.mark.corpus

FOLDER = Path("samples", "time")

# File to its reader, and to synchronised, leap and some of the notes.
READ: Dict[str, Tuple[Callable[[str], Word], Optional[bool], Optional[str], Dict[str, Any]]] = {
    "chronyc-tracking-normal-debian.txt": (
        timeservices.chrony_text,
        True,
        "normal",
        {
            "source": "ntp-a.example.net",
            "stratum": 3,
            "offset_ns": 3264,
            "root_delay_ns": 2_041_159,
            "root_dispersion_ns": 522_824,
        },
    ),
    "chronyc-tracking-normal-ec2-centos.txt": (
        timeservices.chrony_text,
        True,
        "normal",
        {"source": "ntp-b.example.net", "stratum": 3, "offset_ns": 31_625, "root_delay_ns": 88_264_696},
    ),
    "chronyc-tracking-ok-2.txt": (
        timeservices.chrony_text,
        True,
        "normal",
        {"source": "ntp1.time.nl", "stratum": 2, "offset_ns": 22_151, "root_dispersion_ns": 430_042},
    ),
    "chronyc-tracking-UNSYNC-tail.txt": (
        timeservices.chrony_text,
        False,
        "not synchronised",
        {"stratum": None},
    ),
    "jc-ntpq-p-ubuntu1804.out": (
        timeservices.ntp_peers,
        True,
        None,
        {"source": "clock.nyc.he.ne", "stratum": 1, "offset_ns": -65_938_000},
    ),
    "jc-ubuntu-18.04-ntpq-p.out.txt": (
        timeservices.ntp_peers,
        True,
        None,
        {"source": "clock.nyc.he.ne", "stratum": 1, "offset_ns": -65_938_000},
    ),
    "jc-timedatectl-centos77.out": (timeservices.timedatectl_status, True, None, {}),
    "jc-timedatectl-ubuntu1804.out": (timeservices.timedatectl_status, True, None, {}),
    "jc-timedatectl-rtc-local.out": (timeservices.timedatectl_status, True, None, {}),
    "jc-timedatectl-timesync-status.out": (
        timeservices.timesync_status,
        True,
        "normal",
        {
            "source": "216.239.35.8 (time.google.com)",
            "stratum": 1,
            "offset_ns": -5_224_000,
            "root_distance_ns": 91_000,
        },
    ),
    "timedatectl-timesync-status-synced.txt": (
        timeservices.timesync_status,
        True,
        "normal",
        {"stratum": 2, "offset_ns": 4_077_000, "root_distance_ns": 8_322_000},
    ),
    "timedatectl-timesync-status-NEVER-synced.txt": (
        timeservices.timesync_status,
        False,
        "not synchronised",
        {},
    ),
    "timedatectl-show-timesync-all-synced.txt": (
        timeservices.timesync_properties,
        True,
        "normal",
        {
            "source": "0.north-america.pool.ntp.org",
            "stratum": 2,
            "root_delay_ns": 3_097_000,
            "root_dispersion_ns": 6_774_000,
        },
    ),
    "timedatectl-show-timesync-NO-NTPMessage.txt": (
        timeservices.timesync_properties,
        False,
        "not synchronised",
        {},
    ),
}

# Files whose lines are each an answer of their own, or none at all.
OTHERS = {"chronyc-c-tracking.csv", "chronyc-tracking-daemon-down.txt"}

READERS = (
    timeservices.chrony_row,
    timeservices.chrony_text,
    timeservices.timesync_status,
    timeservices.timesync_properties,
    timeservices.timedatectl_status,
    timeservices.ntp_variables,
    timeservices.ntp_peers,
    timeservices.ptp_port,
)


@pytest.mark.parametrize("name", READ)
def test_recorded_answer_is_read_as_it_says(corpus: Path, name: str) -> None:
    """Synchronised or not, the leap state, and numbers to the last digit."""
    reads, synchronised, leap, notes = READ[name]
    word = reads((corpus / FOLDER / name).read_text())
    assert (synchronised, leap) == (word.synchronised, word.leap)
    assert notes == {key: word.notes.get(key) for key in notes}


def test_recorded_rows_of_chrony_are_read_as_they_say(corpus: Path) -> None:
    """Two that are synchronised, and between them one that says offset 0 of a clock nobody has looked at."""
    rows = (corpus / FOLDER / "chronyc-c-tracking.csv").read_text().splitlines()
    words = [timeservices.chrony_row(row) for row in rows]
    assert [(True, "normal"), (False, "not synchronised"), (True, "normal")] == [
        (word.synchronised, word.leap) for word in words
    ]
    assert [("PPS", 1, 15), (None, 0, None), ("192.168.1.1", 3, 123_000)] == [
        tuple(word.notes.get(key) for key in ("source", "stratum", "offset_ns")) for word in words
    ]


def test_recorded_row_without_its_first_field_reads_the_same(corpus: Path) -> None:
    """Older versions of chronyc have one field less, and the rest alike."""
    row = (corpus / FOLDER / "chronyc-c-tracking.csv").read_text().splitlines()[2]
    assert timeservices.chrony_row(row) == timeservices.chrony_row(row.partition(",")[2])


@pytest.mark.parametrize("reads", READERS, ids=lambda reads: reads.__name__)
def test_complaint_of_a_client_whose_service_is_down_is_no_answer(
    corpus: Path, reads: Callable[[str], Word]
) -> None:
    """Whoever reads it."""
    with pytest.raises(NoWord, match="506 Cannot talk to daemon"):
        reads((corpus / FOLDER / "chronyc-tracking-daemon-down.txt").read_text())


def test_every_recorded_answer_is_read_here(corpus: Path) -> None:
    """None is left out."""
    assert sorted({*READ, *OTHERS}) == sorted(path.name for path in (corpus / FOLDER).iterdir())
