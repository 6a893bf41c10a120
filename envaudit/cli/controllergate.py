"""`envaudit gate` from outside: a login node or a CI job asks the nodes, one stage after the other."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from envaudit._version import __version__
from envaudit.cli import configuration, gatestages, goodbad
from envaudit.cli.baselines import check_baseline
from envaudit.cli.checkoptions import CheckAsk
from envaudit.cli.clock import clocks_of
from envaudit.cli.judging import Judged, judged, passed_words
from envaudit.cli.loading import open_store
from envaudit.cli.output import check_output_options, emit
from envaudit.cli.policyof import policy_of
from envaudit.cli.policywords import policy_lines
from envaudit.cli.since import with_since
from envaudit.errors import UsageError
from envaudit.model import Finding, Fingerprint, Snapshot, Verdict
from envaudit.model.checked import checked_devices
from envaudit.model.collective import collective_runs
from envaudit.probe.registry import section_names
from envaudit.report import Report, Stage
from envaudit.report.lines import plain_text
from envaudit.report.screen import printable
from envaudit.report.summary import verdict_lines
from envaudit.rules import Evidence, all_rules
from envaudit.store import discard

Tell = Callable[[Stage], None]


class Gated(NamedTuple):
    """What a gate came to.

    Attributes:
        report: everything, for every format.
        nodes: those to go on with, and those to leave out.
    """

    report: Report
    nodes: goodbad.Sorted


def execute(options: argparse.Namespace) -> int:
    """Look, judge, report; write what the options ask for."""
    _make_way(options)
    gated = run_gate(options, _told)
    last = plain_text(verdict_lines(gated.report)[-1])
    files = (
        (options.good_nodes, goodbad.node_set_text(gated.nodes.good)),
        (options.bad_nodes, goodbad.node_set_text(gated.nodes.bad)),
        (options.verdict_file, f"{last}\n".encode("utf-8", "backslashreplace")),
    )
    emit(gated.report, options, [(path, data) for path, data in files if path])
    return gated.report.verdict.exit_code


def run_gate(options: argparse.Namespace, tell: Tell = lambda _stage: None) -> Gated:
    """A whole gate over the nodes that the options choose; nothing is printed or written.

    Args:
        options: of `envaudit gate`.
        tell: called with each stage as it ends.

    Raises:
        EnvauditError: what cannot be looked at at all: a policy, a lock, a store that cannot be read.
        KeyboardInterrupt: Ctrl-C; what ran on the nodes has been ended.
    """
    return _Gate(options, tell).run()


class _Gate:
    """One run: what was seen so far, and the stages that told it."""

    def __init__(self, options: argparse.Namespace, tell: Tell) -> None:
        self.began = time.monotonic()
        self.now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.options = options
        self.settings = configuration.of(options)
        self.policy = policy_of(options)
        self._tell = tell
        self.stages: list[Stage] = []
        if options.integrity is None and options.lock:
            options.integrity = "size"
        options.section, options.time_services = [], "whole"
        if options.stored and options.only:
            raise UsageError("--stored runs nothing on the nodes, so it goes without --only")
        check_baseline(options)
        self.ask = gatestages.asked_of(options)

    def run(self) -> Gated:
        """All stages, in the order in which one rests on another."""
        locked = None
        if self.options.lock:
            with self._stage("lock") as said:
                locked = gatestages.read_lock(self.options, self.now)
                said.append(locked.words)
        with self._stage("nodes") as said:
            named, snapshot = gatestages.read_nodes(self.options)
            said.append(gatestages.nodes_words(snapshot, stored=self.options.stored))
        evidence = Evidence(
            fingerprints=snapshot.fingerprints,
            missing=snapshot.missing,
            sections=_sections(self.options, self.ask),
            comparing=len(snapshot.fingerprints) + len(snapshot.missing) > 1 or bool(self.options.baseline),
            gate=True,
            allowed_missing=self.options.allow_missing,
            baseline=self.options.baseline or "",
        )
        if snapshot.fingerprints:
            evidence = self._look(evidence, locked, named)
        else:
            self._say(Stage("stopped", "no node answered, so that there is nothing else to look at"))
        if locked is not None and locked.freshness is not None:
            evidence = replace(evidence, fingerprints=(*evidence.fingerprints, locked.freshness))
        return self._judge(evidence, locked)

    def _look(self, evidence: Evidence, locked: gatestages.Locked | None, named: tuple[str, ...]) -> Evidence:
        """Everything that is to be seen of nodes that answered."""
        snapshot = Snapshot(evidence.fingerprints, evidence.missing)
        held = None
        if locked is not None:
            with self._stage("as locked") as said:
                held = gatestages.hold_to_lock(locked, snapshot, self.options)
                said.append(held.text)
        with self._stage("compare") as said:
            compared = gatestages.compare(snapshot, self.options)
            said.append(compared.words)
        drifts = compared.comparison.drifts
        references = compared.comparison.references
        if held is not None:
            drifts = (*held.drifts, *drifts)
            references = (*held.references, *references)
        with self._stage("clock") as said:
            said.append(gatestages.clock_stage(snapshot)[2])
        snapshot = self._run_on_nodes(snapshot, named)
        return replace(
            evidence,
            fingerprints=snapshot.fingerprints,
            missing=compared.comparison.missing,
            drifts=drifts,
            references=references,
            without_baseline=compared.without_baseline,
            clocks_asked=not self.options.stored and len(snapshot.fingerprints) > 1,
        )

    def _run_on_nodes(self, snapshot: Snapshot, named: tuple[str, ...]) -> Snapshot:
        if self.ask is None:
            why = "--stored" if self.options.stored else "--no-check"
            self._say(Stage("checks", f"not run ({why})"))
            return snapshot
        with self._stage("checks") as said:
            snapshot, words = gatestages.run_checks(self.ask, named, snapshot, self.options)
            said.append(words)
        return snapshot

    def _judge(self, evidence: Evidence, locked: gatestages.Locked | None) -> Gated:
        """The verdict over all that was seen, and what comes of it."""
        nodes = tuple(each for each in evidence.fingerprints if each.node)
        with self._stage("rules") as said:
            found = judged(evidence, self.options, full=self._is_full(nodes))
            findings = self._since(found.findings, evidence)
            said.append(_counted(findings))
        verdict = Verdict.of(findings, self.policy.fail_on)
        self._say_what_it_rests_on(found)
        answered = [each.node for each in nodes]
        sorted_nodes = goodbad.sort_nodes(
            answered,
            [node for node in evidence.missing if "@" not in node],
            findings,
            fail_on=self.policy.fail_on,
            max_bad_fraction=self.settings.gate.max_bad_fraction,
        )
        if sorted_nodes.fleet_wide:
            self._say(Stage("good", f"none, and none bad: {sorted_nodes.fleet_wide}"))
        suggestions: tuple[str, ...] = ()
        if self.options.suggest:
            titles = {rule.id: rule.title for rule in all_rules()}
            suggestions = goodbad.suggestions(self.options.suggest, sorted_nodes.bad, findings, titles)
        clocks, basis = clocks_of(nodes, findings)
        report = Report(
            command="gate",
            tool=__version__,
            verdict=verdict,
            findings=findings,
            drifts=evidence.drifts,
            missing=evidence.missing,
            nodes=tuple(answered),
            sections=tuple(
                name for name in evidence.sections or () if any(name in n.sections for n in nodes)
            ),
            comparing=evidence.comparing,
            reference=self.options.baseline or "",
            outcome=passed_words(
                evidence, found, locked=bool(self.options.lock), like=self.options.baseline or ""
            ),
            elapsed_s=time.monotonic() - self.began,
            verbose=self.options.verbose,
            stages=tuple(self.stages),
            clocks=clocks if self.options.verbose else (),
            clock_basis=basis,
            set_aside=found.set_aside,
            checks=tuple(checked_devices(nodes)),
            collectives=tuple(collective_runs(nodes)),
            fingerprints=nodes,
            held_against=locked.file.path if locked is not None else "",
            started_at=self.now,
            suggestions=suggestions,
        )
        return Gated(report, sorted_nodes)

    def _is_full(self, nodes: Sequence[Fingerprint]) -> bool:
        """Whether everything was looked at that a waiver could match."""
        ask, options = self.ask, self.options
        whole = ask is not None and ask.kernels and ask.collectives and not (options.only or options.ops)
        return bool(whole and nodes and options.lock and options.integrity != "none")

    def _since(self, findings: tuple[Finding, ...], evidence: Evidence) -> tuple[Finding, ...]:
        if not self.options.baseline:
            return findings
        return with_since(findings, evidence.fingerprints, open_store(self.options), self.policy)

    def _say_what_it_rests_on(self, found: Judged) -> None:
        """Policy, waivers and store: nobody has to guess what a verdict rests on."""
        lines = policy_lines(self.settings.policy, every=True)
        for line in lines or ("envaudit's own",):
            self._say(Stage("policy", line))
        for stage in found.stages:
            if stage.name != "policy":
                self._say(stage)
        if self.options.baseline or self.options.stored:
            self._say(Stage("store", os.path.relpath(open_store(self.options).path)))

    @contextmanager
    def _stage(self, name: str) -> Iterator[list[str]]:
        """A stage and its time; its words are what the block has put into the list."""
        began = time.monotonic()
        said: list[str] = []
        yield said
        self._say(Stage(name, " ".join(said), time.monotonic() - began))

    def _say(self, stage: Stage) -> None:
        self.stages.append(stage)
        self._tell(stage)


def _told(stage: Stage) -> None:
    """A stage that has ended, on a terminal; the report has them all again."""
    if sys.stderr.isatty() and not os.environ.get("CI"):
        took = f"  {stage.elapsed_s:.1f} s" if stage.elapsed_s else ""
        sys.stderr.write(f"{stage.name:<10} {printable(stage.text)}{took}\n")
        sys.stderr.flush()


def _sections(options: argparse.Namespace, ask: CheckAsk | None) -> tuple[str, ...]:
    """What a gate covers: all that is read by default, and what these options add."""
    asked = {*section_names(), "freshness", "lock"}
    if options.integrity not in (None, "none"):
        asked.add("integrity")
    if ask is not None:
        asked.update(ask.sections)
    return tuple(sorted({*asked, *options.require}))


def _make_way(options: argparse.Namespace) -> None:
    """Refuse a file that cannot be written before any node is asked, and remove what an earlier gate said.

    Who reads such a file after a gate that was killed must not find another one's answer.
    """
    paths = [path for path in (options.good_nodes, options.bad_nodes, options.verdict_file) if path]
    check_output_options(options, paths)
    read = (options.lock, options.hostfile, options.policy, options.config)
    taken = {os.path.realpath(path) for path in read if path}
    for path in paths:
        if os.path.realpath(path) in taken:
            raise UsageError(f"{path} is read by this run, and would be written by it")
    for path in paths:
        discard(path)


def _counted(findings: tuple[Finding, ...]) -> str:
    """`1 error, 2 warnings`."""
    words = {"error": "error", "incomplete": "gap in the evidence", "warning": "warning", "info": "remark"}
    counts = {name: sum(finding.severity == name for finding in findings) for name in words}
    told = [_count(count, words[name]) for name, count in counts.items() if count]
    return ", ".join(told) or "no finding"


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} gaps in the evidence" if noun.startswith("gap") else f"{number} {noun}s"
