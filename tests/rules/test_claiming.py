"""Each difference is spoken of once: by the rule of its cause, or by the generic one."""

from __future__ import annotations

from typing import List, Tuple

from hypothesis import given
from hypothesis import strategies as st

from envaudit.model import Drift, Group
from envaudit.rules import Evidence, Policy, all_rules
from envaudit.rules.claiming import REST, deal, matcher

PATHS = st.sampled_from(
    [
        "conda/packages/nccl/version",
        "conda/packages/numpy/version",
        "env/variables/PYTHONHASHSEED",
        "git/commit",
        "gpu/driver",
        "host/kernel",
        "libraries/cudnn/version",
        "libraries/nccl/path",
        "libraries/nccl/version",
        "packages/distributions/nvidia-nccl-cu12/version",
        "packages/distributions/ray",
        "python/soabi",
        "python/version",
        "strange/fact",
        "torch/cuda",
        "torch/version",
    ]
)


def drift(path: str, odd: Tuple[str, ...]) -> Drift:
    """Ten nodes, of which some have another value."""
    rest = tuple(f"n{number}" for number in range(10) if f"n{number}" not in odd)
    return Drift(path, "changed", (Group("1.0", rest), Group("2.0", odd)), rest, f"majority {len(rest)}/10")


NODES = st.lists(st.sampled_from([f"n{n}" for n in range(4)]), min_size=1, max_size=3, unique=True).map(
    lambda names: tuple(sorted(names))
)
DRIFTS = st.lists(
    st.builds(drift, PATHS, NODES), max_size=8, unique_by=lambda each: (each.path, each.outliers)
)


@given(DRIFTS)
def test_every_difference_is_dealt_out_exactly_once(drifts: List[Drift]) -> None:
    """Nothing is told twice, and nothing is lost on the way."""
    dealt = deal(Evidence((), drifts=tuple(drifts)), all_rules(), Policy())
    told = [
        each for claims in dealt.values() for claim in claims for each in (*claim.drifts, *claim.following)
    ]
    assert sorted(map(id, drifts)) == sorted(map(id, told))


@given(DRIFTS)
def test_symptoms_are_told_on_nodes_of_their_cause_alone(drifts: List[Drift]) -> None:
    """A node that is not among the cause's has its difference from something else."""
    dealt = deal(Evidence((), drifts=tuple(drifts)), all_rules(), Policy())
    for rule_id, claims in dealt.items():
        for claim in claims:
            if rule_id != REST:
                assert {claim.nodes} == {each.outliers for each in claim.drifts}
            assert all(set(each.outliers) <= set(claim.nodes) for each in claim.following)


@given(DRIFTS, st.randoms())
def test_order_of_differences_does_not_matter(drifts: List[Drift], random: object) -> None:
    """The cause is found wherever it stands."""
    shuffled = list(drifts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    def dealt(of: List[Drift]) -> object:
        claims = deal(Evidence((), drifts=tuple(of)), all_rules(), Policy())
        return {
            rule_id: sorted((claim.nodes, sorted(each.path for each in claim.drifts)) for claim in of_rule)
            for rule_id, of_rule in claims.items()
        }

    assert dealt(drifts) == dealt(shuffled)


def test_no_pattern_matches_nothing() -> None:
    """A rule that takes nothing along takes nothing along."""
    assert not matcher(())("python/version")
