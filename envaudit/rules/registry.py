"""What a rule is, what it is given, and the register of all rules."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from envaudit.model.drift import Drift
from envaudit.model.finding import SEVERITIES, Finding
from envaudit.model.fingerprint import Fingerprint, Missing
from envaudit.model.nodeset import natural_key
from envaudit.rules.policy import Policy, Waiver
from envaudit.rules.wording import advice, common_path, not_known

# The ids that the rules of one subject, one module, may take; docs/rules.md is the register.
SUBJECTS: Mapping[str, Tuple[int, int]] = {
    "envfile": (0, 9),
    "portability": (10, 19),
    "pipsection": (20, 29),
    "gpubuild": (30, 39),
    "solving": (50, 59),
    "lockfile": (60, 79),
    "lockedcuda": (80, 89),
    "host": (100, 124),
    "limits": (125, 134),
    "controlgroups": (135, 139),
    "storage": (140, 144),
    "clock": (150, 199),
    "lock": (200, 209),
    "packages": (210, 219),
    "libraries": (220, 229),
    "resolved": (230, 239),
    "torchbuild": (240, 244),
    "stacks": (245, 249),
    "loaded": (250, 259),
    "integrity": (260, 269),
    "drift": (290, 299),
    "gpu": (300, 306),
    "mixedgpus": (307, 309),
    "gpuhealth": (310, 319),
    "gpuuse": (320, 329),
    "driver": (330, 336),
    "cudacompat": (337, 339),
    "architectures": (340, 344),
    "fabric": (345, 349),
    "gpumemory": (350, 359),
    "network": (400, 419),
    "interfaces": (420, 429),
    "rdma": (430, 439),
    "gpudirect": (440, 449),
    "nccl": (450, 469),
    "selection": (470, 499),
    "numbers": (500, 599),
    "collectives": (600, 609),
    "roads": (610, 619),
    "evidence": (900, 909),
    "waivers": (910, 919),
}

SCOPES = ("node", "cross")


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
        gate: whether a job is to start on these nodes now, so that what is busy is an error.
        allowed_missing: how many nodes the user goes on without.
        without_baseline: nodes that answered, and that have no baseline of the name that was asked for.
        baseline: that name.
        claims: rule id → the differences that this rule is to speak of; `judge` deals them out.
        taken_by_lock: package path → what the lock's finding about it takes along; `judge` finds it.
        unused_waivers: those that matched nothing; `judge` finds them.
    """

    fingerprints: Tuple[Fingerprint, ...]
    missing: Mapping[str, Missing] = field(default_factory=dict)
    drifts: Tuple[Drift, ...] = ()
    sections: Optional[Tuple[str, ...]] = None
    references: Tuple[Fingerprint, ...] = ()
    comparing: bool = True
    unmatched: Tuple[str, ...] = ()
    claims: Mapping[str, Tuple[Claim, ...]] = field(default_factory=dict)
    taken_by_lock: Mapping[Tuple[str, ...], TakenByLock] = field(default_factory=dict)
    unused_waivers: Tuple[Waiver, ...] = ()
    clocks_asked: bool = False
    gate: bool = False
    allowed_missing: int = 0
    without_baseline: Tuple[str, ...] = ()
    baseline: str = ""

    @property
    def everything(self) -> Tuple[Fingerprint, ...]:
        """The fingerprints and what they were held against."""
        own = {fingerprint.node for fingerprint in self.fingerprints}
        return self.fingerprints + tuple(one for one in self.references if one.node not in own)

    def covers(self, section: str) -> bool:
        """Whether a section is part of what was asked."""
        return self.sections is None or section in self.sections


class TakenByLock(NamedTuple):
    """What a lock's finding about a package takes along.

    Attributes:
        claims: what other rules would have spoken of, by their ids, on the nodes that are not as locked.
        words: those rules, `NCCL differs (EA214)`.
    """

    claims: Tuple[Tuple[str, Claim], ...] = ()
    words: Tuple[str, ...] = ()


class Claims(NamedTuple):
    """Which differences between nodes a rule speaks of; attributes as the arguments of `difference`."""

    of: Tuple[str, ...]
    follows: Tuple[str, ...]
    when: Optional[Callable[[Drift, Policy], bool]]
    order: int
    across_roles: bool
    compared: str


class Claim(NamedTuple):
    """The differences of one group of nodes that one rule is to speak of.

    Attributes:
        nodes: the outliers.
        drifts: what differs.
        following: what differs on these nodes because of that.
        evidence: the whole of what is judged, for the words.
    """

    nodes: Tuple[str, ...]
    drifts: Tuple[Drift, ...]
    following: Tuple[Drift, ...]
    evidence: Evidence

    def found(
        self, message: str, *, evidence: Tuple[str, ...] = (), hint: str = "", severity: str = ""
    ) -> Found:
        """The finding over all differences of the claim."""
        said = (*evidence, *not_known(self.drifts))
        path = common_path(self.drifts)
        return Found(message, self.nodes, path, said, hint, self.drifts, self.following, severity)


class Found(NamedTuple):
    """What a rule function yields; the register adds the id and the severity.

    Attributes are those of `model.Finding`; without a hint the rule's own advice stands, without a
    severity its own severity. A `settled` severity is the policy's already.
    """

    message: str
    nodes: Tuple[str, ...] = ()
    path: str = ""
    evidence: Tuple[str, ...] = ()
    hint: str = ""
    drifts: Tuple[Drift, ...] = ()
    following: Tuple[Drift, ...] = ()
    severity: str = ""
    settled: bool = False


Judge = Callable[[Evidence, Policy], Iterator[Found]]
Speak = Callable[[Claim, Policy], Iterator[Found]]


class Threshold(NamedTuple):
    """A number that a rule judges by and that a policy may change.

    Attributes:
        value: by default.
        unit: `s`, `%`, `bytes`; empty for a count.
        meaning: what happens beyond it, in a few words.
        source: where the default comes from; empty where it is a matter of judgement.
    """

    value: float
    unit: str
    meaning: str
    source: str = ""


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
        advisory: what the rule would look at where it may: words of a section's `not_examined`.
        case: a public case, told in our own words; empty where there is none.
        thresholds: by name, the numbers that a policy may change.
        claims: the differences between nodes that the rule speaks of; None where it speaks of none.
    """

    id: str
    severity: str
    scope: str
    needs: Tuple[str, ...]
    title: str
    why: str
    how_to_fix: str
    judge: Judge
    advisory: Tuple[str, ...] = ()
    case: str = ""
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    claims: Optional[Claims] = None

    def findings(self, evidence: Evidence, policy: Policy) -> Iterator[Finding]:
        """What the rule has to say about this evidence, at the severity that the policy gives it."""
        for found in self.judge(evidence, policy):
            level = self._level(found, policy)
            if level == "off":
                continue
            yield Finding(
                rule=self.id,
                severity=level,
                message=found.message,
                nodes=tuple(sorted(found.nodes, key=natural_key)),
                path=found.path,
                evidence=found.evidence,
                hint=found.hint or advice(self.how_to_fix, found.drifts),
                drifts=found.drifts,
                following=found.following,
                why=self.why if self.claims is not None else "",
            )

    def _level(self, found: Found, policy: Policy) -> str:
        if found.settled:
            return found.severity
        own = found.severity or self.severity
        # That something could not be read is no fact that a path's level could speak of.
        by_path = policy.level_of_path(found.path) if found.path and own != "incomplete" else None
        return by_path or policy.level_of(self.id, self.severity, own)


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
    advisory: Sequence[str] = (),
    case: str = "",
    thresholds: Optional[Mapping[str, Threshold]] = None,
) -> Callable[[Judge], Judge]:
    """Register the decorated function as a rule.

    Raises:
        ValueError: an id that is taken or lies outside its subject's range, or a severity or a
            scope that there is not.
    """

    def register(judge: Judge) -> Judge:
        texts, numbers = (title, why, how_to_fix), dict(thresholds or {})
        made = Rule(rule_id, severity, scope, tuple(needs), *texts, judge, tuple(advisory), case, numbers)
        _enter(judge.__module__, made)
        return judge

    return register


def difference(
    rule_id: str,
    *,
    severity: str,
    title: str,
    why: str,
    of: Sequence[str],
    follows: Sequence[str] = (),
    when: Optional[Callable[[Drift, Policy], bool]] = None,
    order: int = 50,
    across_roles: bool = False,
    compared: str = "exactly",
    how_to_fix: str = "",
    case: str = "",
) -> Callable[[Speak], Speak]:
    """Register the decorated function as the rule that speaks of some differences between nodes.

    It is called once for each group of nodes that differ alike, with its `Claim`.

    Args:
        rule_id: `EA214`.
        severity: by default.
        title: what is wrong, in a few words.
        why: why that matters for training.
        of: patterns of the fact paths that the rule speaks of.
        follows: patterns of what only follows from those: where the same nodes differ in it, that
            is no finding of its own.
        when: which of the differences at those paths it takes, under a policy; None for all.
        order: rules of a lower number take their differences first: causes before symptoms.
        across_roles: whether nodes of different roles must be alike in it as well.
        compared: in words, for the document of facts: `exactly`, `by its first two parts`.
        how_to_fix: a whole sentence.
        case: a public case, told in our own words.

    Raises:
        ValueError: as `rule`.
    """

    def register(speak: Speak) -> Speak:
        def judge(evidence: Evidence, policy: Policy) -> Iterator[Found]:
            for claim in evidence.claims.get(rule_id, ()):
                yield from speak(claim, policy)

        judge.__module__ = speak.__module__
        claims = Claims(tuple(of), tuple(follows), when, order, across_roles, compared)
        _enter(
            speak.__module__,
            Rule(rule_id, severity, "cross", (), title, why, how_to_fix, judge, (), case, {}, claims),
        )
        return speak

    return register


def _enter(module: str, made: Rule) -> None:
    subject = module.rsplit(".", 1)[-1]
    if subject not in SUBJECTS:
        raise ValueError(f"{made.id}: rules/{subject}.py is no subject; add it to SUBJECTS")
    first, last = SUBJECTS[subject]
    digits = made.id[2:]
    if made.id[:2] != "EA" or len(digits) != 3 or not (digits.isdigit() and first <= int(digits) <= last):
        raise ValueError(f"{made.id}: ids of {subject} are EA{first:03d} to EA{last:03d}")
    if made.id in _RULES:
        raise ValueError(f"{made.id} is taken by {_RULES[made.id].title!r}")
    if made.severity not in SEVERITIES or made.scope not in SCOPES:
        raise ValueError(f"{made.id}: severity {made.severity!r} or scope {made.scope!r} is not known")
    _RULES[made.id] = made


def threshold(rule_id: str, name: str, policy: Policy) -> float:
    """The number that a rule judges by: the policy's, or its own.

    Raises:
        KeyError: the rule has no such number.
    """
    own = _RULES[rule_id].thresholds[name].value
    return policy.thresholds.get(rule_id, {}).get(name, own)


def all_rules() -> List[Rule]:
    """Every rule, by id. Imports the modules of this room, also from inside a zip."""
    import envaudit.rules

    for name in _module_names(envaudit.rules.__path__[0]):
        importlib.import_module(f"envaudit.rules.{name}")
    return [_RULES[rule_id] for rule_id in sorted(_RULES)]


def rules_of(rule_ids: Iterable[str]) -> List[Rule]:
    """The rules of the subjects that these ids belong to, by id; what no rule has is left out.

    Imports no other module of this room: all of them take half a second to compile inside a zip.
    """
    numbers = {int(rule_id[2:]) for rule_id in rule_ids if rule_id[2:].isdigit()}
    subjects = {name for name, (first, last) in SUBJECTS.items() if any(first <= n <= last for n in numbers)}
    for name in sorted(subjects):
        importlib.import_module(f"envaudit.rules.{name}")
    return [
        made for _, made in sorted(_RULES.items()) if made.judge.__module__.rpartition(".")[2] in subjects
    ]


def _module_names(place: str) -> List[str]:
    try:
        return [name[: -len(".py")] for name in os.listdir(place) if name.endswith(".py")]
    except NotADirectoryError:
        # Inside a zip. Only here, for it imports inspect: 5 to 10 ms of each command.
        import pkgutil

        return [module.name for module in pkgutil.iter_modules([place])]
