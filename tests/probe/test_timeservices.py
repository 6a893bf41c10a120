"""Readers of time services' texts: whatever a program prints, they answer within the law of facts."""

from __future__ import annotations

from typing import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.probe import timeservices
from envaudit.probe.answer import Answer, row_of
from envaudit.probe.timeservices import NoWord, Word

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

# What these programs print, in pieces that may be put together in any way.
PIECES = st.sampled_from(
    [
        ",",
        "\n",
        " : ",
        "=",
        "Leap status",
        "Normal",
        "Not synchronised",
        "Stratum",
        "System time",
        "0.5 seconds slow of NTP time",
        "Server: 10.0.0.1\n",
        "Leap: normal\n",
        "Packet count: 0\n",
        "Offset: -1min 4s\n",
        "ServerName=ntp\n",
        "NTPMessage={ Leap=0, Stratum=2 }\n",
        "NTPSynchronized=yes\n",
        "leap_none",
        "sync_ntp",
        "offset=1e400",
        "====\n",
        "*10.0.0.1 .GPS. 1 u 1 64 377 0.1 0.2 0.3\n",
        "portState SLAVE\n",
        "master_offset -12\n",
        "9" * 400,
        "nan",
        "inf",
        "-",
        "\0",
        "\udcff",
        "١",
    ]
)
TEXTS = st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=30).map("".join))


@given(text=TEXTS)
@pytest.mark.parametrize("reads", READERS, ids=lambda reads: reads.__name__)
def test_any_text_is_an_answer_or_none(reads: Callable[[str], Word], text: str) -> None:
    """No exception but one, no float, no number beyond what a fact may be."""
    try:
        word = reads(text)
    except NoWord:
        return
    assert word.synchronised in (True, False, None)
    row_of("clock", 1, Answer("ok", {"leap": word.leap}, word.notes))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1min 4s", 64_000_000_000),
        ("-5.224ms", -5_224_000),
        ("+4.077ms", 4_077_000),
        ("91us", 91_000),
        ("2h", 7_200_000_000_000),
        ("", None),
        ("soon", None),
        ("9" * 400 + "s", None),
    ],
)
def test_span_of_systemd_is_read_in_nanoseconds(text: str, expected: object) -> None:
    """As `systemd.time` writes it."""
    assert expected == timeservices._span(text)
