"""What must agree between nodes, and what is not known on one of them."""

from __future__ import annotations

from typing import Any

import pytest

from envaudit.checks.collectives.comparing import Claim, compare, unknown

FACTS: dict[str, Any] = {
    "tool": "1.0",
    "python": "3.11.9",
    "torch": "2.9.0+cu130",
    "torch_git": "0123456",
    "cuda": "13.0",
    "hip": None,
    "nccl": "2.27.7",
    "cudnn": "9.13.0",
    "driver": "580.95.05",
    "interface": {"name": "eth0", "address": "10.0.0.1"},
}


def claims(*changes: dict[str, Any], **layout: Any) -> dict[int, Claim]:
    """Nodes of two cards each, alike but for the changes."""
    found = {}
    for index, change in enumerate(changes):
        cards = [{"uuid": f"GPU-{index}{card}", "model": "H100"} for card in range(2)]
        facts = {**FACTS, "gpus": cards, **change}
        usual = {"local_ranks": 2, "devices": ("cuda:0", "cuda:1")}
        found[index] = Claim(f"n{index}", facts, **{**usual, **layout})
    return found


def test_alike_nodes_agree_and_know_everything() -> None:
    """Hip is of no card here."""
    assert [] == compare(claims({}, {}, {}))
    assert {} == unknown(claims({}, {}))


@pytest.mark.parametrize(
    ("what", "value", "severity"),
    [
        ("torch", "2.8.0+cu130", "error"),
        ("torch_git", "fedcba9", "error"),
        ("cuda", "12.8", "error"),
        ("hip", "6.4", "warning-free"),
        ("nccl", "2.20.5", "error"),
        ("tool", "0.9", "error"),
        ("cudnn", "9.1.0", "warning"),
        ("driver", "550.54.14", "warning"),
        ("python", "3.12.1", "warning"),
    ],
)
def test_value_of_one_node_that_differs_is_told_with_the_nodes(what: str, value: str, severity: str) -> None:
    """What nobody else knows is not compared."""
    found = compare(claims({}, {what: value}, {}))
    if severity == "warning-free":
        assert [] == found
        return
    (row,) = found
    assert (what, severity) == (row["what"], row["severity"])
    assert {str(FACTS[what]): ["n0", "n2"], value: ["n1"]} == row["values"]
    assert row["text"]


def test_value_that_a_node_does_not_know_is_not_compared_and_said_to_be_unknown() -> None:
    """Null is no version."""
    with_gap = claims({}, {"nccl": None}, {})
    assert [] == compare(with_gap)
    assert {"nccl": ["n1"]} == unknown(with_gap)


def test_errors_come_before_warnings() -> None:
    """Each is told once."""
    found = compare(claims({}, {"driver": "550", "nccl": "2.20.5", "torch": "2.8"}))
    assert ["torch", "nccl", "driver"] == [row["what"] for row in found]


def test_one_gpu_for_two_ranks_is_an_error_by_its_uuid() -> None:
    """As two containers have it to which one card was given; unused cards do not matter."""
    shared = {"gpus": [{"uuid": "GPU-00", "model": "H100"}, {"uuid": "GPU-x", "model": "H100"}]}
    (row,) = compare(claims({}, shared))
    assert ("duplicate_gpu", {"GPU-00": ["n0", "n1"]}) == (row["what"], row["values"])
    assert [] == compare(claims({}, shared, devices=("cpu", "cpu")))


def test_models_that_differ_are_a_warning_and_cards_on_some_nodes_only_an_error() -> None:
    """The slowest sets the pace; gloo and NCCL do not mix."""
    other = [{"uuid": f"GPU-b{card}", "model": "A100"} for card in range(2)]
    (row,) = compare(claims({}, {"gpus": other}))
    assert ("gpu", "warning") == (row["what"], row["severity"])
    mixed = claims({}, {})
    mixed[1] = mixed[1]._replace(devices=("cpu", "cpu"))
    (row,) = compare(mixed)
    assert ("backend", {"cuda": ["n0"], "cpu": ["n1"]}) == (row["what"], row["values"])


def test_loopback_is_wrong_between_nodes_and_right_on_one() -> None:
    """An interface without an address is wrong everywhere."""
    loopback = {"interface": {"name": "lo", "address": "127.0.0.1"}}
    (row,) = compare(claims({}, loopback))
    assert {"eth0": ["n0"], "lo 127.0.0.1": ["n1"]} == row["values"]
    alone = claims(loopback)
    assert [] == compare({**alone, 1: alone[0]._replace(devices=("cpu", "cpu"))})[1:]
    (row,) = compare(claims({"interface": {"name": "ib9", "address": None}}))
    assert "ib9, which is not there" in row["values"]


def dealt(*ranks: tuple[int, ...], world: int = 4) -> dict[int, Claim]:
    """Nodes whose launcher gave them these ranks."""
    found = claims(*({} for _ in ranks), devices=("cpu", "cpu"), world=world)
    return {index: found[index]._replace(ranks=ranks[index]) for index in found}


def test_nodes_that_are_wrong_by_themselves_are_named_however_many_they_are() -> None:
    """The one node that is right is not the odd one."""
    loopback = {"interface": {"name": "lo", "address": "127.0.0.1"}}
    (row,) = compare(claims(loopback, {}, loopback))
    assert ("interface", ["n0", "n2"]) == (row["what"], row["nodes"])
    shared = [{"gpus": [{"uuid": uuid, "model": "H100"}] * 2} for uuid in ("GPU-a", "GPU-a", "GPU-b")]
    (row,) = compare(claims(*shared))
    assert ("duplicate_gpu", ["n0", "n1", "n2"]) == (row["what"], row["nodes"])


@pytest.mark.parametrize(
    ("versions", "nodes"), [("aab", ["n2"]), ("ab", ["n0", "n1"]), ("aabb", ["n0", "n1", "n2", "n3"])]
)
def test_value_of_the_most_nodes_is_the_reference(versions: str, nodes: list[str]) -> None:
    """On a tie nobody is."""
    (row,) = compare(claims(*({"nccl": version} for version in versions)))
    assert nodes == row["nodes"]


def test_launcher_s_numbers_must_hold_every_rank_once() -> None:
    """Twice, beyond the world, missing, and given to some only."""
    assert [] == compare(dealt((0, 1), (2, 3)))
    assert {"rank 1": ["n0", "n1"]} == compare(dealt((0, 1), (1, 2)))[0]["values"]
    (row,) = compare(dealt((0, 1), (2, 5)))
    assert {"beyond 4: 5": ["n1"], "missing of 4: 3": []} == row["values"]
    assert {"given": ["n0"], "none": ["n1"]} == compare(dealt((0, 1), ()))[0]["values"]


def test_two_launches_at_one_hub_are_told_by_their_worlds() -> None:
    """Each says how many ranks there are."""
    two = dealt((0, 1), (2, 3))
    two[1] = two[1]._replace(world=8)
    assert "world" == compare(two)[0]["what"]
