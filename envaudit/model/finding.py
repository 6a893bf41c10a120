"""A finding: a judged fact; and the verdict over all findings of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, Tuple

from envaudit.errors import EXIT_FINDINGS, EXIT_INCOMPLETE, EXIT_PASS
from envaudit.model.drift import Drift

# Worst first. `incomplete` is evidence that is missing: it is no degree of badness, and never
# sorts below "fine": a run that has one and nothing worse is INCOMPLETE, not PASS.
SEVERITIES = ("error", "incomplete", "warning", "info")

# What `fail-on` may be, with the severities that then fail.
THRESHOLDS = {
    "error": ("error",),
    "warning": ("error", "warning"),
    "info": ("error", "warning", "info"),
}


@dataclass(frozen=True)
class Finding:
    """What a rule says about some nodes.

    Attributes:
        rule: its id, `EA901`.
        severity: one of `SEVERITIES`.
        message: one line, worst fact first, without the node names.
        nodes: the nodes at fault, sorted; empty when it concerns the run as a whole.
        path: the fact path, empty when there is none.
        evidence: lines that say where it was read and what was seen.
        hint: what to do, a whole sentence; empty when there is nothing to advise.
        drifts: the differences that this finding is about.
        following: differences that only follow from those.
        why: what that does to training, where the values alone do not say it.
        since: since when it is so, `good 2026-11-29T02:10:00Z`; empty where that is not known.
    """

    rule: str
    severity: str
    message: str
    nodes: Tuple[str, ...] = ()
    path: str = ""
    evidence: Tuple[str, ...] = ()
    hint: str = ""
    drifts: Tuple[Drift, ...] = ()
    following: Tuple[Drift, ...] = ()
    why: str = ""
    since: str = ""

    @property
    def rank(self) -> Tuple[int, str, str, Tuple[str, ...]]:
        """Sort key, worst first and otherwise stable."""
        return (SEVERITIES.index(self.severity), self.rule, self.path, self.nodes)


@dataclass(frozen=True)
class Verdict:
    """FAIL > INCOMPLETE > PASS over a run's findings.

    `failed` and `incomplete` may both hold; the exit code is then FAIL's and both are printed.
    `fail_on` is the key of `THRESHOLDS` that it was judged by; two verdicts are equal without it.
    """

    failed: bool
    incomplete: bool
    fail_on: str = field(default="error", compare=False)

    @classmethod
    def of(cls, findings: Iterable[Finding], fail_on: str = "error") -> Verdict:
        """Fold findings; `fail_on` is a key of `THRESHOLDS`."""
        severities = {finding.severity for finding in findings}
        return cls(
            failed=not severities.isdisjoint(THRESHOLDS[fail_on]),
            incomplete="incomplete" in severities,
            fail_on=fail_on,
        )

    def fails(self, finding: Finding) -> bool:
        """Whether this finding alone would make the run fail."""
        return finding.severity in THRESHOLDS[self.fail_on]

    @property
    def name(self) -> str:
        """`FAIL`, `INCOMPLETE` or `PASS`."""
        if self.failed:
            return "FAIL"
        return "INCOMPLETE" if self.incomplete else "PASS"

    @property
    def exit_code(self) -> int:
        """1, 3 or 0."""
        if self.failed:
            return EXIT_FINDINGS
        return EXIT_INCOMPLETE if self.incomplete else EXIT_PASS
