"""What a rule is, what it is given, and the register of all rules."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from envaudit.model.drift import Drift
from envaudit.model.finding import SEVERITIES, THRESHOLDS, Finding
from envaudit.model.fingerprint import Fingerprint, Missing
from envaudit.model.nodeset import natural_key

# The ids that the rules of one subject, one module, may take; docs/rules.md is the register.
SUBJECTS: Mapping[str, Tuple[int, int]] = {
    "envfile": (0, 9),
    "portability": (10, 19),
    "pipsection": (20, 29),
    "gpubuild": (30, 39),
    "solving": (50, 59),
    "lockfile": (60, 79),
    "lockedcuda": (80, 89),
    "host": (100, 149),
    "clock": (150, 199),
    "lock": (200, 209),
    "packages": (210, 249),
    "loaded": (250, 259),
    "integrity": (260, 269),
    "drift": (290, 299),
    "gpu": (300, 329),
    "driver": (330, 359),
    "network": (400, 449),
    "nccl": (450, 499),
    "numbers": (500, 599),
    "collectives": (600, 699),
    "evidence": (900, 999),
}

SCOPES = ("node", "cross")


@dataclass(frozen=True)
class Policy:
    """What the user wants of a run.

    Attributes:
        fail_on: a key of `model.finding.THRESHOLDS`.
        require: sections without which a node's evidence is incomplete. That a subject is seen
            to be absent is evidence; that nobody looked is none.
    """

    fail_on: str = "error"
    require: Tuple[str, ...] = ("torch", "libraries", "packages", "gpu")

    def __post_init__(self) -> None:
        """Hold the threshold to its names.

        Raises:
            ValueError: `fail_on` is none of them.
        """
        if self.fail_on not in THRESHOLDS:
            raise ValueError(f"fail_on is one of {', '.join(THRESHOLDS)}, not {self.fail_on!r}")


@dataclass(frozen=True)
class Evidence:
    """Everything that is judged.

    Attributes:
        fingerprints: of the nodes that answered.
        missing: the nodes that did not.
        drifts: between these nodes, or between them and their references.
        sections: the sections that are compared; None for all that there are.
        references: fingerprints that the nodes were held against.
        comparing: whether the run was asked for a comparison at all.
        unmatched: what the user asked for alone and no node has a fact of.
        clocks_asked: whether the run was asked how far the clocks are apart.
    """

    fingerprints: Tuple[Fingerprint, ...]
    missing: Mapping[str, Missing] = field(default_factory=dict)
    drifts: Tuple[Drift, ...] = ()
    sections: Optional[Tuple[str, ...]] = None
    references: Tuple[Fingerprint, ...] = ()
    comparing: bool = True
    unmatched: Tuple[str, ...] = ()
    clocks_asked: bool = False

    @property
    def everything(self) -> Tuple[Fingerprint, ...]:
        """The fingerprints and what they were held against."""
        own = {fingerprint.node for fingerprint in self.fingerprints}
        return self.fingerprints + tuple(one for one in self.references if one.node not in own)

    def covers(self, section: str) -> bool:
        """Whether a section is part of what was asked."""
        return self.sections is None or section in self.sections


class Found(NamedTuple):
    """What a rule function yields; the register adds the id and the severity.

    Attributes are those of `model.Finding`; without a hint the rule's own advice stands.
    """

    message: str
    nodes: Tuple[str, ...] = ()
    path: str = ""
    evidence: Tuple[str, ...] = ()
    hint: str = ""
    drifts: Tuple[Drift, ...] = ()


Judge = Callable[[Evidence, Policy], Iterator[Found]]


@dataclass(frozen=True)
class Rule:
    """One judgement.

    Attributes:
        id: `EA901`; never reused.
        severity: by default; one of `model.finding.SEVERITIES`.
        scope: `node` (judged on one node) or `cross` (across nodes).
        needs: sections that some node must have for the rule to say anything.
        title: what is wrong, in a few words.
        why: why that matters for training.
        how_to_fix: a whole sentence; empty when it depends on the case.
        judge: the function.
    """

    id: str
    severity: str
    scope: str
    needs: Tuple[str, ...]
    title: str
    why: str
    how_to_fix: str
    judge: Judge

    def findings(self, evidence: Evidence, policy: Policy) -> Iterator[Finding]:
        """What the rule has to say about this evidence."""
        for found in self.judge(evidence, policy):
            yield Finding(
                rule=self.id,
                severity=self.severity,
                message=found.message,
                nodes=tuple(sorted(found.nodes, key=natural_key)),
                path=found.path,
                evidence=found.evidence,
                hint=found.hint or self.how_to_fix,
                drifts=found.drifts,
            )


_RULES: Dict[str, Rule] = {}


def rule(
    rule_id: str,
    *,
    severity: str,
    scope: str,
    title: str,
    why: str,
    how_to_fix: str = "",
    needs: Sequence[str] = (),
) -> Callable[[Judge], Judge]:
    """Register the decorated function as a rule.

    Raises:
        ValueError: an id that is taken or lies outside its subject's range, or a severity or a
            scope that there is not.
    """

    def register(judge: Judge) -> Judge:
        subject = judge.__module__.rsplit(".", 1)[-1]
        if subject not in SUBJECTS:
            raise ValueError(f"{rule_id}: rules/{subject}.py is no subject; add it to SUBJECTS")
        first, last = SUBJECTS[subject]
        digits = rule_id[2:]
        if rule_id[:2] != "EA" or len(digits) != 3 or not (digits.isdigit() and first <= int(digits) <= last):
            raise ValueError(f"{rule_id}: ids of {subject} are EA{first:03d} to EA{last:03d}")
        if rule_id in _RULES:
            raise ValueError(f"{rule_id} is taken by {_RULES[rule_id].title!r}")
        if severity not in SEVERITIES or scope not in SCOPES:
            raise ValueError(f"{rule_id}: severity {severity!r} or scope {scope!r} is not known")
        _RULES[rule_id] = Rule(rule_id, severity, scope, tuple(needs), title, why, how_to_fix, judge)
        return judge

    return register


def all_rules() -> List[Rule]:
    """Every rule, by id. Imports the modules of this room, also from inside a zip."""
    import envaudit.rules

    for name in _module_names(envaudit.rules.__path__[0]):
        importlib.import_module(f"envaudit.rules.{name}")
    return [_RULES[rule_id] for rule_id in sorted(_RULES)]


def _module_names(place: str) -> List[str]:
    try:
        return [name[: -len(".py")] for name in os.listdir(place) if name.endswith(".py")]
    except NotADirectoryError:
        # Inside a zip. Only here, for it imports inspect: 5 to 10 ms of each command.
        import pkgutil

        return [module.name for module in pkgutil.iter_modules([place])]
