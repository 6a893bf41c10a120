"""What time services say of themselves, from the texts of their own programs.

A service that has no source says offset 0 and stratum 0 or nothing at all: it is read as not
synchronised, and its numbers are not taken. Spans become integers in nanoseconds.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

NOT_SYNCHRONISED = "not synchronised"
_LEAPS = ("normal", "insert second", "delete second")

# Stratum 16 is "unsynchronised" on the wire, 0 "unspecified" (RFC 5905, figure 11).
_NO_STRATA = (0, 16)
# The leap indicator 3 is "unknown (clock unsynchronized)" (RFC 5905, figure 9).
_LEAP_INDICATORS = ("normal", "insert second", "delete second", NOT_SYNCHRONISED)

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_SPAN = r"([-+]?)\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|min|s|h)\b"
_MAX_WORD = 200


class Word(NamedTuple):
    """What a service says: `synchronised` and `leap` are None where it does not say."""

    synchronised: Optional[bool]
    leap: Optional[str]
    notes: Mapping[str, Any] = {}


class NoWord(Exception):
    """The text is no answer of that program; it says why."""


_NOT = Word(False, NOT_SYNCHRONISED)


def chrony_row(text: str) -> Word:
    """`chronyc -c tracking`: 14 fields, 13 from older versions; counted from their end they are alike.

    Raises:
        NoWord: no such row, or one without a leap state.
    """
    row = _last_line(text).split(",")
    if len(row) not in (13, 14):
        raise NoWord(_first_words(text))
    stratum = _integer(row[-12])
    leap = row[-1].strip().lower()
    return _chrony(
        leap,
        stratum,
        {
            "source": row[-13][:_MAX_WORD],
            "stratum": stratum,
            "offset_ns": _seconds(row[-10]),
            "root_delay_ns": _seconds(row[-4]),
            "root_dispersion_ns": _seconds(row[-3]),
        },
    )


def chrony_text(text: str) -> Word:
    """`chronyc tracking`, for versions whose chronyc knows no `-c`; the head of it may be missing.

    Raises:
        NoWord: no line with a leap state.
    """
    values = _colon_lines(text)
    if "Leap status" not in values:
        raise NoWord(_first_words(text))
    shift = re.match(r"([\d.]+) seconds (slow|fast)", values.get("System time", ""))
    source = re.search(r"\(([^()]*)\)", values.get("Reference ID", ""))
    stratum = _integer(values.get("Stratum", ""))
    notes = {
        "source": source[1][:_MAX_WORD] if source else "",
        "stratum": stratum,
        # As in the row: how far the clock is to be moved; it is slow by a positive amount.
        "offset_ns": _seconds(("" if shift[2] == "slow" else "-") + shift[1]) if shift else None,
        "root_delay_ns": _seconds(values.get("Root delay", "").partition(" ")[0]),
        "root_dispersion_ns": _seconds(values.get("Root dispersion", "").partition(" ")[0]),
    }
    return _chrony(values["Leap status"].lower(), stratum, notes)


def _chrony(leap: str, stratum: Optional[int], notes: Mapping[str, Any]) -> Word:
    if leap == NOT_SYNCHRONISED or stratum is None or stratum in _NO_STRATA:
        return _NOT._replace(notes={"stratum": stratum})
    if leap not in _LEAPS:
        raise NoWord(f"no leap state: {leap[:40]}")
    return Word(True, leap, notes)


def timesync_status(text: str) -> Word:
    """`timedatectl timesync-status`: without a leap line no packet has come yet.

    Raises:
        NoWord: it is none.
    """
    values = _colon_lines(text)
    if "Server" not in values and "Packet count" not in values:
        raise NoWord(_first_words(text))
    leap = values.get("Leap", NOT_SYNCHRONISED)
    if leap not in _LEAPS:
        return _NOT
    notes = {
        "source": values.get("Server", "")[:_MAX_WORD],
        "stratum": _integer(values.get("Stratum", "")),
        "offset_ns": _span(values.get("Offset", "")),
        "root_distance_ns": _span(values.get("Root distance", "").partition("(")[0]),
    }
    return Word(True, leap, notes)


def timesync_properties(text: str) -> Word:
    """`timedatectl show-timesync --all`: without NTPMessage no packet has come yet.

    Raises:
        NoWord: it is none.
    """
    values = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    if "ServerName" not in values and "FallbackNTPServers" not in values:
        raise NoWord(_first_words(text))
    message = values.get("NTPMessage", "")
    fields = dict(re.findall(r"(\w+)=([^,}]*)", message))
    indicator = _integer(fields.get("Leap", "").strip())
    if indicator is None or indicator >= 3:
        return _NOT
    notes = {
        "source": values.get("ServerName", "")[:_MAX_WORD],
        "stratum": _integer(fields.get("Stratum", "").strip()),
        "root_delay_ns": _span(fields.get("RootDelay", "")),
        "root_dispersion_ns": _span(fields.get("RootDispersion", "")),
    }
    return Word(True, _LEAP_INDICATORS[indicator], notes)


def timedatectl_status(text: str) -> Word:
    """`timedatectl show --property=NTPSynchronized`, or the text that every version prints.

    Raises:
        NoWord: neither.
    """
    found = re.search(
        r"^\s*(?:NTPSynchronized=|NTP synchronized: |System clock synchronized: )(yes|no)\s*$", text, re.M
    )
    if found is None:
        raise NoWord(_first_words(text))
    return Word(found[1] == "yes", None)


def ntp_variables(text: str) -> Word:
    """`ntpq -c rv`: `leap_none, sync_ntp, ..., stratum=3, ..., offset=-0.012`, in milliseconds.

    Raises:
        NoWord: no leap state.
    """
    words = text.replace("\n", " ").replace(",", " ").split()
    leaps = [word[len("leap_") :] for word in words if word.startswith("leap_")]
    if not leaps:
        raise NoWord(_first_words(text))
    names = {"none": "normal", "add_sec": "insert second", "del_sec": "delete second"}
    if leaps[0] not in names or "sync_unspec" in words:
        return _NOT
    values = dict(word.split("=", 1) for word in words if "=" in word)
    notes: Dict[str, Any] = {
        "source": values.get("refid", "")[:_MAX_WORD],
        "stratum": _integer(values.get("stratum", "")),
    }
    for key, name in (
        ("offset", "offset_ns"),
        ("rootdelay", "root_delay_ns"),
        ("rootdisp", "root_dispersion_ns"),
    ):
        notes[name] = _seconds(values.get(key, ""), scale=1_000_000)
    return Word(True, names[leaps[0]], notes)


def ntp_peers(text: str) -> Word:
    """`ntpq -pn`: the peer that is followed has `*` before its name, or `o` where a pulse helps.

    Raises:
        NoWord: no table of peers.
    """
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("====")]
    if not heads:
        raise NoWord(_first_words(text))
    for line in lines[heads[0] + 1 :]:
        cells = line[1:].split()
        if line[:1] in ("*", "o") and len(cells) >= 10:
            notes = {
                "source": cells[0][:_MAX_WORD],
                "stratum": _integer(cells[2]),
                "offset_ns": _seconds(cells[-2], scale=1_000_000),
            }
            return Word(True, None, notes)
    return _NOT


def ptp_port(text: str) -> Word:
    """`pmc ... 'GET PORT_DATA_SET' 'GET TIME_STATUS_NP'`: a slave follows a master.

    That ptp4l follows says nothing of the system clock, which phc2sys follows the card's with; that
    no port does says that nothing is followed at all.

    Raises:
        NoWord: no port answered.
    """
    states = re.findall(r"^\s*portState\s+(\w+)", text, re.M)
    if not states:
        raise NoWord(_first_words(text))
    offset = re.search(r"^\s*master_offset\s+(-?\d{1,18})\s*$", text, re.M)
    notes: Dict[str, Any] = {"port_states": sorted(states)[:16]}
    if offset is not None:
        notes["offset_ns"] = int(offset[1])
    follows = "SLAVE" in states or "MASTER" in states or "GRAND_MASTER" in states
    return Word(None if follows else False, None, notes)


def _colon_lines(text: str) -> Dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _span(text: str) -> Optional[int]:
    """`1min 4s`, `-5.224ms`, `0` in nanoseconds."""
    parts: List[Any] = re.findall(_SPAN, text)
    if not parts:
        return 0 if text.strip() == "0" else None
    sizes = [_seconds(number, scale=_UNITS_NS[unit]) for _, number, unit in parts[:8]]
    if None in sizes:
        return None
    size = sum(size for size in sizes if size is not None)
    return -size if parts[0][0] == "-" else size


def _seconds(text: str, scale: int = 1_000_000_000) -> Optional[int]:
    """A decimal number times `scale`; None where it is none, or beyond any clock."""
    try:
        value = round(float(text) * scale)
    except (ValueError, OverflowError):
        return None
    return value if abs(value) < 2**62 else None


def _integer(text: str) -> Optional[int]:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def _first_words(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:_MAX_WORD] if lines else "ended without an answer"
