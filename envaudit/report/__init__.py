"""Reports: what a command found, as a pure function to text, one module a format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple

from envaudit.model.checked import CheckedDevice
from envaudit.model.collective import Collectives
from envaudit.model.drift import Drift
from envaudit.model.finding import Finding, Verdict
from envaudit.model.fingerprint import Fingerprint, Missing


@dataclass(frozen=True)
class Stage:
    """One step of a command that has several, such as a gate.

    Attributes:
        name: one word, `clock`.
        text: its outcome in one line.
        elapsed_s: how long it took, in seconds; 0 where that is not worth a word.
    """

    name: str
    text: str
    elapsed_s: float = 0.0


@dataclass(frozen=True)
class Moment:
    """One snapshot in the history of a node.

    Attributes:
        node: whose history it is.
        captured_at: UTC, `2026-11-30T10:00:00Z`.
        tags: the tags that point here, sorted.
        drifts: what differs from the snapshot before.
        first: whether there is none before.
        missing: set where the node gave no answer.
        run: what ran before it, `exit 1, job 81231, torchrun train.py`; empty where nothing is recorded.
        last_good: time and words of the last good run before; empty where that says nothing.
    """

    node: str
    captured_at: str
    tags: Tuple[str, ...] = ()
    drifts: Tuple[Drift, ...] = ()
    first: bool = False
    missing: Optional[Missing] = None
    run: str = ""
    last_good: str = ""


@dataclass(frozen=True)
class Clock:
    """One node's clock.

    Attributes:
        node: whose it is.
        service: its time service, `none`, or empty where none is to be seen.
        synchronised: None where that is not known.
        leap: `normal`, or the leap second that is to come; empty where that is not known.
        offset_ns: how far it is from the report's `clock_basis`, None where that is not known.
        bound_ns: how far the truth may be from that.
        apart: whether a finding says that it is off.
    """

    node: str
    service: str
    synchronised: Optional[bool]
    leap: str = ""
    offset_ns: Optional[int] = None
    bound_ns: int = 0
    apart: bool = False


@dataclass(frozen=True)
class RuleText:
    """What the register says of a rule.

    Attributes:
        id: `EA214`.
        severity: by default.
        title: what is wrong, in a few words.
        why: why that matters for training.
        how_to_fix: a whole sentence; empty where it depends on the case.
    """

    id: str
    severity: str
    title: str
    why: str = ""
    how_to_fix: str = ""


@dataclass(frozen=True)
class SetAside:
    """A finding that does not count, since somebody wants it so: never one of `Report.findings`.

    Attributes:
        finding: as it would count, with the nodes that it is set aside for.
        how: `waiver`, or `policy` where a rule or a path is switched off.
        words: until when, why, and who says so, in one line.
    """

    finding: Finding
    how: str
    words: str


@dataclass(frozen=True)
class Report:
    """Everything a format may print.

    Attributes:
        command: `diff`.
        tool: the version of envaudit.
        verdict: over the findings: it fails or is incomplete because one of them is.
        findings: worst first.
        drifts: all of them, also those that findings fold.
        missing: nodes that gave no evidence.
        nodes: labels of the nodes that did and are judged.
        sections: names of those that were looked at.
        about: what was looked at where it was no nodes, `environment.yml`; the findings' paths are
            then places in files, `environment.yml:12:5`.
        comparing: whether the nodes were compared with each other or with a reference.
        reference: what they were compared with, where it is not one of them: `node[01-04]@good`.
        outcome: what a pass says instead of "4 nodes alike, 12 sections".
        elapsed_s: the whole command, in seconds.
        verbose: long values whole, folded lines unfolded, notes shown.
        facts: fingerprints to show.
        timeline: history to show, oldest first.
        stages: the steps of the command.
        clocks: clocks to show.
        set_aside: findings that a waiver or the policy has taken out.
        clock_basis: what their offsets are relative to: `median` of all, the middle of a `pair`, this
            machine's clock (`here`), or nothing (`alone`).
        checks: devices whose numbers were checked.
        collectives: runs in which ranks talked to each other.
        fingerprints: what was read of `nodes`, for the formats that show each of them: they print no
            fact of it, unlike of `facts`.
        rules: the register's words for rules, by id; formats that tell of rules want those of all
            `findings` and `set_aside`.
        host: the machine that the command ran on; empty where that is not told.
        started_at: UTC, `2026-11-30T10:00:00Z`; empty where that is not told.
        held_against: the file that the nodes were held against, as its reader would find it:
            `conda-lock.yml`; for formats that show each finding in a file.
        suggestions: commands that take bad nodes out; none of them was run.
    """

    command: str
    tool: str
    verdict: Verdict
    findings: Tuple[Finding, ...] = ()
    drifts: Tuple[Drift, ...] = ()
    missing: Mapping[str, Missing] = field(default_factory=dict)
    nodes: Tuple[str, ...] = ()
    sections: Tuple[str, ...] = ()
    about: str = ""
    comparing: bool = True
    reference: str = ""
    outcome: str = ""
    elapsed_s: float = 0.0
    verbose: bool = False
    facts: Tuple[Fingerprint, ...] = ()
    timeline: Tuple[Moment, ...] = ()
    stages: Tuple[Stage, ...] = ()
    clocks: Tuple[Clock, ...] = ()
    clock_basis: str = "alone"
    set_aside: Tuple[SetAside, ...] = ()
    checks: Tuple[CheckedDevice, ...] = ()
    collectives: Tuple[Collectives, ...] = ()
    fingerprints: Tuple[Fingerprint, ...] = ()
    rules: Mapping[str, RuleText] = field(default_factory=dict)
    host: str = ""
    started_at: str = ""
    held_against: str = ""
    suggestions: Tuple[str, ...] = ()

    @property
    def hidden(self) -> int:
        """How many findings the policy has switched off."""
        return sum(each.how == "policy" for each in self.set_aside)

    @property
    def exit_code(self) -> int:
        """The verdict's: 0 pass, 1 fail, 3 incomplete."""
        return self.verdict.exit_code

    def _repr_html_(self) -> str:
        """The verdict and the findings, for a notebook."""
        from envaudit.report.notebook import fragment

        return fragment(self)


__all__ = ["Clock", "Moment", "Report", "RuleText", "SetAside", "Stage"]
