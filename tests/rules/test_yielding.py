"""What a lock tells of a node takes along what differs between the nodes for that reason."""

from __future__ import annotations

from typing import Sequence, Tuple

import pytest

from envaudit.model import Drift, Finding
from envaudit.model.drift import Group
from envaudit.rules import Evidence, Policy, judge
from envaudit.rules.policy import Waiver
from tests.diff.nodes import fingerprint

OTHERS, ODD = ("node01", "node02"), "node03"
WHEEL = "packages/distributions/nvidia-nccl-cu13"


def between(path: str, usual: str = "2.27.7", odd: str = "2.26.2") -> Drift:
    """Another value on one node of three."""
    groups = (Group(usual, OTHERS), Group(odd, (ODD,)))
    return Drift(path, "changed", groups, OTHERS, "majority 2/3")


def against_lock(path: str, nodes: Tuple[str, ...] = (ODD,)) -> Drift:
    """Nodes that are not as locked."""
    labels = tuple(f"{node}@train.lock" for node in nodes)
    return Drift(path, "changed", (Group("2.27.7", labels), Group("2.26.2", nodes)), labels, "lock")


NCCL = (between("libraries/nccl/version"), between(f"{WHEEL}/version"))
USUAL = Policy()
LOCKED = against_lock(f"{WHEEL}/version")


def judged(drifts: Sequence[Drift], policy: Policy = USUAL) -> Tuple[Finding, ...]:
    """The findings over these differences."""
    return judge(Evidence((), drifts=tuple(drifts), comparing=False), policy)


def rules(found: Sequence[Finding]) -> list[str]:
    """Their ids."""
    return [each.rule for each in found]


def test_other_nccl_than_the_locks_is_one_finding_and_says_what_follows() -> None:
    """The lock knows which is right; that ranks will hang is told with it."""
    (found,) = judged([LOCKED, *NCCL])
    assert ("EA202", "error", (ODD,)) == (found.rule, found.severity, found.nodes)
    assert "and so NCCL differs (EA214)" in found.evidence
    assert set(NCCL) == set(found.following)


def test_nccl_that_is_not_as_locked_and_too_old_for_torch_is_one_finding() -> None:
    """As where no lock is; where the others are the ones that are not as locked, it is two causes."""
    row = {"version": "2.26.2", "origin": "wheel", "path": "{site}/nvidia/nccl/lib/libnccl.so.2"}
    libraries = {"nccl": row, "torch": {"built_with": {"nccl": "2.27.7"}}}
    odd = fingerprint(ODD, libraries=libraries)
    assert ["EA232"] == rules(judge(Evidence((odd,), sections=("libraries",), comparing=False)))
    found = judge(Evidence((odd,), drifts=(LOCKED, *NCCL), sections=("libraries",), comparing=False))
    assert ["EA202"] == rules(found)
    drifts = (against_lock(f"{WHEEL}/version", OTHERS), *NCCL)
    assert ["EA202", "EA232"] == rules(
        judge(Evidence((odd,), drifts=drifts, sections=("libraries",), comparing=False))
    )


def test_other_nccl_without_a_lock_is_told_between_the_nodes() -> None:
    """As ever."""
    assert ["EA214"] == rules(judged(NCCL))


def test_difference_on_another_node_than_the_locks_stays_a_finding() -> None:
    """Two causes are two findings."""
    found = judged([against_lock(f"{WHEEL}/version", ("node02",)), *NCCL])
    assert ["EA202", "EA214"] == rules(found)


def test_package_of_which_no_rule_speaks_is_told_by_the_lock_alone() -> None:
    """The rest of what differs stays."""
    path = "conda/packages/numpy/build"
    found = judged([against_lock(path), between(path), between("env/nccl/NCCL_ALGO/value")])
    assert ["EA203", "EA451"] == sorted(rules(found))


def test_node_that_alone_is_as_locked_is_not_blamed_for_being_another() -> None:
    """The lock knows which of them is right, however few they are."""
    (found,) = judged([against_lock(f"{WHEEL}/version", OTHERS), *NCCL])
    assert ("EA202", OTHERS) == (found.rule, found.nodes)


def test_other_nccl_that_a_node_loads_is_told_beside_the_one_that_is_not_as_locked() -> None:
    """That node's packages are as locked: what it loads in their stead has a cause of its own."""
    groups = (Group("2.27.7", OTHERS), Group("2.26.2", (ODD,)), Group("2.25.1", ("node04",)))
    loaded = Drift("libraries/nccl/version", "changed", groups, OTHERS, "majority 2/4")
    found = judged([LOCKED, loaded, between(f"{WHEEL}/version")])
    assert [("EA202", (ODD,)), ("EA214", (ODD, "node04"))] == sorted((one.rule, one.nodes) for one in found)


def test_build_that_a_lock_does_not_know_is_told_of_a_node_that_has_the_locked_version() -> None:
    """A lock of versions alone says nothing of it."""
    path = "conda/packages/numpy"
    groups = (Group("h0", OTHERS), Group("h1", (ODD,)), Group("h2", ("node04",)))
    builds = Drift(f"{path}/build", "changed", groups, OTHERS, "majority 2/4")
    found = judged([against_lock(f"{path}/version"), between(f"{path}/version"), builds])
    assert {"node04"} <= {node for one in found for node in one.nodes}, found


@pytest.mark.parametrize(
    "policy",
    [
        Policy(levels={"EA202": "info"}),
        Policy(levels={"EA202": "off"}),
        Policy(today="2026-11-30", waivers=(Waiver("EA202", "2027-01-01", "trial", "ops"),)),
    ],
    ids=["softened", "off", "waived"],
)
def test_lock_that_must_not_speak_loud_takes_nothing_along(policy: Policy) -> None:
    """An error does not go with a remark."""
    assert "EA214" in rules(judged([LOCKED, *NCCL], policy))
