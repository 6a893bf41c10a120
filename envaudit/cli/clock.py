"""`envaudit clock`: how far the clocks of nodes are apart, and what keeps them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from envaudit._version import __version__
from envaudit.cli import asking
from envaudit.cli.judging import judged
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.selection import add_node_options
from envaudit.model import Finding, Fingerprint
from envaudit.model.clockoffset import SECTION, Offset, against_median, in_words, offset_of
from envaudit.model.finding import THRESHOLDS
from envaudit.model.nodeset import natural_key
from envaudit.report import Clock, Report
from envaudit.rules import Evidence
from envaudit.rules.clock import OFFSET_RULES
from envaudit.transport.clockoffset import THOROUGH


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit clock`."""
    add_node_options(parser)
    group = parser.add_argument_group("what is judged")
    group.add_argument("--fail-on", choices=tuple(THRESHOLDS), help="default: error")
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Measure, judge, report; nothing is stored."""
    began = time.monotonic()
    check_output_options(options)
    # Nothing else is read: a busy node would answer its pings late.
    options.section, options.nothing_else = [SECTION], True
    options.pings = THOROUGH
    options.time_services = "whole"
    snapshot = asking.ask_selected(options)
    nodes = snapshot.fingerprints
    evidence = Evidence(nodes, snapshot.missing, sections=(SECTION,), comparing=False, clocks_asked=True)
    findings, verdict, rests_on, aside = judged(evidence, options)
    clocks, basis = clocks_of(nodes, findings)
    report = Report(
        command="clock",
        tool=__version__,
        verdict=verdict,
        findings=findings,
        missing=snapshot.missing,
        nodes=tuple(each.node for each in nodes),
        sections=(SECTION,),
        comparing=False,
        outcome=clock_words(clocks, basis, findings),
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        stages=rests_on,
        set_aside=aside,
        clocks=clocks,
        clock_basis=basis,
        fingerprints=snapshot.fingerprints,
    )
    emit(report, options)
    return verdict.exit_code


def clocks_of(nodes: Sequence[Fingerprint], findings: Sequence[Finding]) -> tuple[tuple[Clock, ...], str]:
    """The clock of each node of one run, as far as it was read, and what the offsets are relative to."""
    basis, offsets = _offsets(nodes)
    apart = {node for finding in findings if finding.rule in OFFSET_RULES for node in finding.nodes}
    clocks = tuple(
        _clock(each, offsets.get(each.node), apart=each.node in apart)
        for each in sorted(nodes, key=lambda each: natural_key(each.node))
        if SECTION in each.sections
    )
    return clocks, basis


def _offsets(nodes: Sequence[Fingerprint]) -> tuple[str, dict[str, Offset]]:
    """What the offsets of the answering nodes are relative to, and the offsets."""
    found = {each.node: offset_of(each) for each in nodes}
    measured = {node: offset for node, offset in found.items() if offset is not None}
    if len(measured) > 1:
        return "pair" if len(measured) == 2 else "median", against_median(measured)
    return "here" if measured else "alone", measured


def _clock(fingerprint: Fingerprint, offset: Offset | None, *, apart: bool) -> Clock:
    facts = fingerprint.sections[SECTION].facts
    service, leap, synchronised = (facts.get(name) for name in ("service", "leap", "synchronised"))
    return Clock(
        node=fingerprint.node,
        service=service if isinstance(service, str) else "",
        synchronised=synchronised if isinstance(synchronised, bool) else None,
        leap=leap if isinstance(leap, str) else "",
        offset_ns=None if offset is None else offset.offset_ns,
        bound_ns=0 if offset is None else offset.bound_ns,
        apart=apart,
    )


def clock_words(clocks: Sequence[Clock], basis: str, findings: Sequence[Finding]) -> str:
    """`16 clocks within 0.152 ms ± 0.264 ms`, or how far a single one is from this machine's."""
    known = [(clock.offset_ns, clock.bound_ns) for clock in clocks if clock.offset_ns is not None]
    text = "1 clock" if len(clocks) == 1 else f"{len(clocks)} clocks"
    if known:
        bound = in_words(max(bound_ns for _, bound_ns in known))
        if basis == "here":
            text += f", {in_words(known[0][0], signed=True)} ± {bound} from this machine's"
        else:
            text += f" within {in_words(max(abs(offset_ns) for offset_ns, _ in known))} ± {bound}"
    for severity, noun in (("warning", "warning"), ("info", "remark")):
        count = sum(finding.severity == severity for finding in findings)
        text += f", {count} {noun}{'s' if count > 1 else ''}" if count else ""
    return text
