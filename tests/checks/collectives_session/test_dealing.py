"""Which rank is whose, and where a node is reached by the others."""

from __future__ import annotations

from typing import Any

import pytest

from envaudit.checks.collectives.dealing import GLOO, NCCL, Here, addresses, backend_of, deal
from envaudit.checks.collectives.layout import Layout

NAMES = {0: "a", 1: "b"}


def here(own: str, hub: str = "10.0.0.1", address: Any = None, **layout: Any) -> Here:
    """What a member says first."""
    facts = {"interface": {"name": "eth0", "address": address}} if address else {}
    return Here(Layout(**layout), facts, 0, own, hub)


def test_ranks_are_dealt_in_order_of_the_members_where_no_launcher_did() -> None:
    """Each node has its own in a row, with its own numbers and devices."""
    both = {0: here("10.0.0.1", local_ranks=2), 1: here("10.0.0.2", local_ranks=1, devices=("cuda:0",))}
    places = deal(both, NAMES)
    assert [(0, "a", 0, "cpu"), (1, "a", 1, "cpu"), (2, "b", 0, "cuda:0")] == [
        (place.rank, place.node, place.local_rank, place.device) for place in places
    ]
    assert GLOO == backend_of(places)
    assert NCCL == backend_of(places[2:])


def test_launcher_s_numbers_are_kept() -> None:
    """Whatever the order of the members; torchrun starts one of them a rank."""
    both = {0: here("10.0.0.1", ranks=(3,), local_rank=1), 1: here("10.0.0.2", ranks=(0,))}
    assert [(0, 1, 0), (3, 0, 1)] == [
        (place.rank, place.owner, place.local_rank) for place in deal(both, NAMES)
    ]


@pytest.mark.parametrize(
    ("both", "expected"),
    [
        # The hub's node comes to it by loopback: the others know its address.
        ((here("127.0.0.1", "127.0.0.1"), here("10.0.0.2")), ("10.0.0.1", "10.0.0.2")),
        # The interface that the work uses comes first.
        (
            (here("127.0.0.1", address="10.9.0.1"), here("10.0.0.2", address="10.9.0.2")),
            ("10.9.0.1", "10.9.0.2"),
        ),
        ((here("10.0.0.1", address="127.0.0.1"), here("10.0.0.2")), ("10.0.0.1", "10.0.0.2")),
    ],
)
def test_node_is_reached_where_others_can_reach_it(
    both: tuple[Here, Here], expected: tuple[str, str]
) -> None:
    """Never by loopback from another node."""
    assert dict(enumerate(expected)) == addresses(dict(enumerate(both)), NAMES)


def test_one_machine_meets_on_loopback_and_machines_of_one_name_do_not() -> None:
    """Every other image is called localhost."""
    same = {0: "localhost", 1: "localhost"}
    assert {0: "127.0.0.1", 1: "127.0.0.1"} == addresses({0: here("10.0.0.1"), 1: here("10.0.0.1")}, same)
    assert {0: "10.0.0.1", 1: "10.0.0.2"} == addresses({0: here("10.0.0.1"), 1: here("10.0.0.2")}, same)


@pytest.mark.parametrize(
    "changes",
    [{"local_ranks": 0}, {"local_ranks": 5000}, {"ranks": [1, 2]}, {"devices": ["cpu"] * 3}, {"world": -1}],
)
def test_layout_out_of_bounds_is_refused(changes: dict[str, Any]) -> None:
    """It comes from another machine."""
    with pytest.raises(ValueError, match="layout"):
        Layout.from_json({**Layout().to_json(), **changes})
