"""The generic rule: facts that differ and that no other rule has a word for."""

from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

from envaudit.model.drift import Drift
from envaudit.rules.catalogue import UNKNOWN_SEVERITY, severity_of
from envaudit.rules.claiming import REST
from envaudit.rules.policy import Policy, Waiver
from envaudit.rules.registry import Evidence, Found, rule
from envaudit.rules.wording import common_path, not_known

# From so many on, what differs on the same nodes in one section is one finding with a line each.
FOLD_FROM = 4

_VERBS = {"changed": "differs", "missing": "is missing", "extra": "is extra", "some": "is on some nodes only"}


@rule(
    REST,
    severity=UNKNOWN_SEVERITY,
    scope="cross",
    title="facts differ",
    why="Nobody has said yet how much it matters; nodes that are alike do not differ in it.",
)
def facts_differ(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a difference; many of one section on the same nodes are one finding.

    These are the differences that no rule of their own speaks of; how much each matters stands in
    the catalogue, or in the policy.
    """
    families: Dict[Tuple[Tuple[str, ...], str, str, bool, Tuple[Waiver, ...]], List[Drift]] = {}
    for drift in (drift for claim in evidence.claims.get(REST, ()) for drift in claim.drifts):
        set_by_path = policy.level_of_path(drift.path)
        severity = set_by_path or severity_of(drift.path)
        waived = policy.waivers_of(drift, REST)
        family = (drift.outliers, drift.section, severity, set_by_path is not None, waived)
        families.setdefault(family, []).append(drift)
    for (outliers, _, severity, settled, _), drifts in families.items():
        folded = len(drifts) >= FOLD_FROM
        for part in [drifts] if folded else [[drift] for drift in drifts]:
            path = common_path(part)
            yield Found(
                f"{len(part)} facts of {path} differ" if folded else f"{path} {_VERBS[_direction(part[0])]}",
                outliers,
                path,
                not_known(drifts),
                drifts=tuple(part),
                severity=severity,
                settled=settled,
            )


def _direction(drift: Drift) -> str:
    """The drift's kind, or `some` where no reference says who has too much and who too little."""
    return "some" if drift.kind == "missing" and not drift.reference else drift.kind
