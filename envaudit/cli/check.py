"""`envaudit check`: operations whose right answer is known, on single devices and between all ranks."""

from __future__ import annotations

import argparse
import copy
import os
import time
from functools import partial
from typing import Dict, Optional, Sequence, Tuple

from envaudit._version import __version__
from envaudit.checks.collectives.ending import HUB_LOST, SILENT, UNREACHABLE
from envaudit.checks.plan import options_of
from envaudit.cli import asking
from envaudit.cli.checkoptions import CheckAsk, add_check_options, asked_by
from envaudit.cli.checkwords import checked_words, limits_of, outcome_words
from envaudit.cli.judging import judged
from envaudit.cli.meetingplan import Arranged, arranged, arranged_here
from envaudit.cli.output import add_output_options, check_output_options, emit
from envaudit.cli.seat import InBand, seat_of_environment
from envaudit.cli.selection import add_node_options, selected_nodes
from envaudit.cli.thisnode import this_node
from envaudit.model import Fingerprint, Missing, Snapshot
from envaudit.model.checked import checked_devices
from envaudit.model.collective import collective_runs
from envaudit.model.finding import THRESHOLDS
from envaudit.report import Report
from envaudit.rules import Evidence

__all__ = ["checked_words", "configure", "execute", "report_of", "run_on"]

# Beyond what is run: the way to the node, the interpreter's start, and the answer's way back.
_AROUND_S = 30


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit check`."""
    add_node_options(parser)
    add_check_options(parser)
    group = parser.add_argument_group("what is judged")
    group.add_argument("--fail-on", choices=tuple(THRESHOLDS), help="default: error")
    add_output_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Run, judge, report; nothing is stored. In a launch every rank ends with the same code."""
    began = time.monotonic()
    ask = asked_by(options)
    place = in_band(options)
    if place is not None and ask.meets:
        from envaudit.cli import inbandcheck

        return inbandcheck.execute(options, ask, place, began)
    check_output_options(options)
    report = report_of(_asked(options, ask), options, ask, began)
    emit(report, options)
    return report.verdict.exit_code


def in_band(options: argparse.Namespace) -> Optional[InBand]:
    """The place in a launch that the environment gives; None where nodes are named, or one process is all."""
    if options.nodes or options.hostfile or options.all or getattr(options, "nproc", None):
        return None
    place = seat_of_environment(os.environ, options)
    return place if place is not None and place.count > 1 else None


def report_of(snapshot: Snapshot, options: argparse.Namespace, ask: CheckAsk, began: float) -> Report:
    """What the nodes said, judged."""
    sections = ask.sections
    evidence = Evidence(snapshot.fingerprints, snapshot.missing, sections=sections, comparing=False)
    findings, verdict, rests_on, aside = judged(evidence, options)
    devices = checked_devices(snapshot.fingerprints)
    runs = collective_runs(snapshot.fingerprints)
    return Report(
        command="check",
        tool=__version__,
        verdict=verdict,
        findings=findings,
        missing=snapshot.missing,
        nodes=tuple(each.node for each in snapshot.fingerprints),
        sections=sections,
        comparing=False,
        outcome=outcome_words(devices, runs[0] if runs else None),
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        stages=(*limits_of(devices, ask.plan), *rests_on),
        set_aside=aside,
        checks=tuple(devices),
        collectives=tuple(runs),
        fingerprints=snapshot.fingerprints,
    )


def _asked(options: argparse.Namespace, ask: CheckAsk) -> Snapshot:
    """What this machine or the chosen nodes say of what is asked for."""
    nodes: Tuple[str, ...] = ()
    if not asking.is_one_file():
        from envaudit.cli import configuration

        nodes = selected_nodes(options, configuration.of(options))
    if not ask.meets:
        return run_on(options, ask, nodes, Arranged({}, {}))
    if len(nodes) < 2:
        return run_on(options, ask, nodes, arranged_here(ask, nodes[0] if nodes else this_node()))
    network = _read(options, nodes, ("network",))
    answered = tuple(each.node for each in network.fingerprints)
    if not answered:
        return network
    # Whoever did not answer now is not waited for: it would only be missing once more.
    said = run_on(options, ask, answered, arranged(ask, network.fingerprints, options))
    gone: Dict[str, Missing] = {**network.missing, **said.missing}
    return Snapshot(said.fingerprints, gone)


def run_on(
    options: argparse.Namespace, ask: CheckAsk, nodes: Sequence[str], arrangement: Arranged
) -> Snapshot:
    """What these nodes say of what is asked for, and of nothing else; none of them means this machine."""
    asked = copy.copy(options)
    asked.section_options = {**options_of(ask.plan), **arrangement.options}
    asked.own_options = arrangement.own
    asked.timeout = max(options.timeout or 0, ask.longest_s + _AROUND_S)
    if ask.meets and len(nodes) > 1:
        # Who waits for its turn is missing to those who have begun.
        asked.fanout = max(options.fanout or 0, len(nodes))
        asked.given_up = partial(_given_up, ask)
    return _read(asked, nodes, ask.sections)


def _given_up(ask: CheckAsk, answer: Fingerprint) -> Dict[str, float]:
    """The nodes that ranks did not hear, or no more, the hub's among them, by what one of the others says.

    A supervisor that lives needs no longer than its kernels, and a hub that began to listen late as long
    again as others tried to find it; one that hangs would hold the run to its end.
    """
    again_s = {SILENT: 0.0, HUB_LOST: 0.0, UNREACHABLE: ask.limits.join_s}
    seconds = ask.limits.stall_s + (ask.plan.budget_s if ask.kernels else 0)
    ended = [run.ended for run in collective_runs((answer,)) if run.ended.kind in again_s]
    return {node: seconds + again_s[each.kind] for each in ended for node in each.nodes}


def _read(options: argparse.Namespace, nodes: Sequence[str], sections: Sequence[str]) -> Snapshot:
    """These sections alone, of each node its own: numbers are nothing that nodes share."""
    asked = copy.copy(options)
    asked.section, asked.nothing_else, asked.every_node = list(sections), True, True
    return asking.ask(tuple(nodes), asked)
