"""What a list of names takes, by NCCL's rules."""

from __future__ import annotations

from typing import List, Tuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from envaudit.probe.ncclnames import ANY_PORT, MAX_NAMES, Entry, NameList, chosen, integer

NAMES = ["lo", "eth0", "eth1", "eth10", "ib0", "ib1", "docker0", "br-1f", "ens5f0np0", "bond0", "bond0.12"]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("=eth1,ib0", ["eth1", "ib0"]),
        ("=eth", []),
        ("^docker,lo,br-", ["eth0", "eth1", "eth10", "ib0", "ib1", "ens5f0np0", "bond0", "bond0.12"]),
        ("^=eth1", [name for name in NAMES if name != "eth1"]),
        ("bond0", ["bond0", "bond0.12"]),
        ("eth0,eth0,,eth0", ["eth0"]),
        ("wlan", []),
        (" eth0", []),
        ("ETH0", []),
        ("", NAMES),
        (",", NAMES),
        ("^", []),
        ("=^eth0", ["eth0"]),
        ("eth0:1", ["eth0"]),
    ],
)  # fmt: skip
def test_list_takes_what_nccl_would_take(text: str, taken: List[str]) -> None:
    """Prefixes, whole names, exclusions, and the corners of the parser."""
    assert taken == [name for name in NAMES if NameList.parse(text).takes(name)]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("mlx5_1", [("mlx5_1", 1), ("mlx5_1", 2), ("mlx5_10", 1)]),
        ("=mlx5_1", [("mlx5_1", 1), ("mlx5_1", 2)]),
        ("=mlx5_1:2,mlx5_0:1", [("mlx5_0", 1), ("mlx5_1", 2)]),
        ("mlx5_1:2", [("mlx5_1", 2)]),
        ("^mlx5_1:2", [("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_10", 1)]),
        ("^=mlx5_1", [("mlx5_0", 1), ("mlx5_10", 1)]),
        ("mlx5_0:x", []),
        (":1", [("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_1", 2), ("mlx5_10", 1)]),
    ],
)
def test_list_of_hcas_knows_ports(text: str, taken: List[Tuple[str, int]]) -> None:
    """A name without a port is all ports of the card; a port that is no number is 0, which no card has."""
    there = [("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_1", 2), ("mlx5_10", 1)]
    wanted = NameList.parse(text)
    assert taken == [(name, port) for name, port in there if wanted.takes(name, port)]


def test_list_tells_which_entries_match_nothing() -> None:
    """A name of a card that is not here, a port that it does not have; an exclusion misses nothing."""
    there = [("mlx5_0", 1), ("mlx5_1", 1)]
    assert ["mlx5_9", "mlx5_1:2"] == NameList.parse("=mlx5_0,mlx5_9,mlx5_1:2").idle(there)
    assert [] == NameList.parse("^mlx5_9").idle(there)


def test_list_names_what_it_says_in_whole() -> None:
    """`eth1` names eth1, and takes eth10 by its prefix only; an exclusion names nothing."""
    wanted = NameList.parse("eth1,ib")
    assert ["eth1"] == [name for name in NAMES if wanted.names(name)]
    assert [] == [name for name in NAMES if NameList.parse("^eth1").names(name)]


@pytest.mark.parametrize(
    ("there", "step", "taken"),
    [
        (["eth0", "ib0", "ib1", "lo"], "ib", ["ib0", "ib1"]),
        (["lo", "docker0", "eth0", "virbr0", "cali1"], "other", ["eth0", "cali1"]),
        (["lo", "docker0", "virbr0"], "docker", ["docker0"]),
        (["lo", "virbr0"], "lo", ["lo"]),
        (["virbr0"], "virbr", ["virbr0"]),
        ([], "none", []),
    ],
)
def test_own_choice_goes_step_by_step(there: List[str], step: str, taken: List[str]) -> None:
    """First what begins with ib, then anything but docker, lo and virbr, then these."""
    assert (step, taken) == chosen(there)


def test_own_choice_prefers_the_subnet_of_the_comm_id_to_others() -> None:
    """One interface, and only where no ib is there."""
    assert ("subnet", ["eth1"]) == chosen(["eth0", "eth1", "eth2"], ["eth1", "eth2"])
    assert ("ib", ["ib0"]) == chosen(["eth0", "ib0"], ["eth0"])


def test_own_choice_ends_at_the_most_interfaces_nccl_takes() -> None:
    """A host of 300 interfaces gives the first 32."""
    there = [f"eth{number}" for number in range(300)]
    assert ("other", there[:MAX_NAMES]) == chosen(there)


@pytest.mark.parametrize(
    ("text", "number"),
    [("", -1), ("3", 3), ("-1", -1), ("0x10", 16), ("010", 8), (" 7 ", 7), ("3abc", 3), ("abc", 0), ("٣", 0)],
)
def test_integer_is_read_as_strtoll_reads_it(text: str, number: int) -> None:
    """Base 0, what is no number is 0, and only nothing is the default."""
    assert number == integer(text, -1)


# A small reference, letter by letter, written from the rules of parseStringList and matchIfList.


def reference_takes(text: str, name: str, port: int) -> bool:
    """Whether NCCL takes a name and port."""
    excludes = text[:1] == "^"
    if excludes:
        text = text[1:]
    exact = text[:1] == "="
    if exact:
        text = text[1:]
    letters = list(text)
    if letters[:1] in (["^"], ["="]):
        letters.pop(0)
    entries: List[Tuple[str, int]] = []
    prefix, number, in_port = "", "", False
    for letter in [*letters, ","]:
        if letter == ",":
            if prefix and len(entries) < MAX_NAMES:
                entries.append((prefix, reference_atoi(number) if in_port else -1))
            prefix, number, in_port = "", "", False
        elif in_port:
            number += letter
        elif letter == ":":
            in_port = True
        else:
            prefix += letter
    matches = not entries
    for entry, of_port in entries:
        same = entry == name if exact else name[: len(entry)] == entry
        if same and (port == -1 or of_port == -1 or port == of_port):
            matches = True
    return matches != excludes


def reference_atoi(text: str) -> int:
    """C's atoi over the ports that the strategy makes."""
    digits = ""
    for letter in text:
        if letter not in "0123456789":
            break
        digits += letter
    return int(digits or 0)


names = st.one_of(
    st.sampled_from([*NAMES, "mlx5_0", "mlx5_1", "mlx5_10", "ib", "e", "eth 0", "éth0", "\udcff"]),
    st.text(st.sampled_from("ebi0159_.- é\udcff"), min_size=1, max_size=6),
)
entries = st.one_of(
    names, st.tuples(names, st.sampled_from(["", "0", "1", "2", "1:2", "x"])).map(":".join), st.just("")
)
lists = st.tuples(
    st.sampled_from(["", "^", "=", "^=", "=^", "^^", "=="]), st.lists(entries, max_size=40).map(",".join)
).map("".join)


@given(text=lists, name=names, port=st.sampled_from([ANY_PORT, 1, 2]))
@example(text="^=eth0,eth1:1", name="eth1", port=2)
@example(text=",".join(["e"] * MAX_NAMES + ["ib0"]), name="ib0", port=ANY_PORT)
def test_list_of_any_text_takes_what_the_rules_take(text: str, name: str, port: int) -> None:
    """Spaces, commas, signs, other alphabets and more entries than NCCL reads."""
    assert reference_takes(text, name, port) is NameList.parse(text).takes(name, port)


@given(text=st.text(max_size=80))
@example(text="0:\x1f0")
def test_list_from_any_text_is_read(text: str) -> None:
    """Whatever stands in the variable: at most 32 entries, none of them empty."""
    wanted = NameList.parse(text)
    assert len(wanted.entries) <= MAX_NAMES
    assert all(isinstance(entry, Entry) and entry.name for entry in wanted.entries)
    assert isinstance(integer(text, -1), int)
