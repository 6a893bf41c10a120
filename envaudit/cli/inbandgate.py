"""`envaudit gate` inside a launch (torchrun, srun, mpirun), or on one machine alone.

All processes of the launch meet at a hub that the first one runs. One of each node has read it. The first
one judges by what was compiled into the one-file form, prints, and writes the verdict's file before any
process leaves; all of them end with the same code.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

from envaudit._version import __version__
from envaudit.checks.collectives.asked import LOOPBACK, Asked
from envaudit.checks.collectives.coordinator import Coordinator
from envaudit.checks.collectives.hello import hello_of
from envaudit.checks.collectives.member import Member
from envaudit.checks.collectives.road import NcclLogs
from envaudit.checks.collectives.section import answer_of
from envaudit.checks.collectives.supervising import Said, machine_of, of_one_rank
from envaudit.checks.plan import options_of
from envaudit.cli import asking, compiled, gatejudging, stepnodes
from envaudit.cli.aside import Aside
from envaudit.cli.checkoptions import CheckAsk, asked_by
from envaudit.cli.gatemeeting import CHECK, CHECKED, READ, Attendant, Gathering, let_leave
from envaudit.cli.output import check_output_options, emit
from envaudit.cli.policyof import policy_of
from envaudit.cli.seat import InBand, end_with_launcher, job_nodes, layout_in
from envaudit.cli.thisnode import this_node
from envaudit.control.client import HubLost
from envaudit.control.failures import turned_away
from envaudit.control.hub import Hub, HubClosed
from envaudit.control.meeting import Meeting
from envaudit.control.tokens import token_of
from envaudit.errors import EXIT_INCOMPLETE, EnvauditError
from envaudit.model import Fingerprint, Missing, Section
from envaudit.model.checked import SECTION as CHECKS
from envaudit.model.collective import SECTION as COLLECTIVES
from envaudit.probe.registry import section_names
from envaudit.report import Stage
from envaudit.report.lines import plain_text
from envaudit.report.summary import verdict_lines
from envaudit.rules import Policy
from envaudit.store import discard
from envaudit.transport.inband import read_here

# Once all are there, a node says at once what it has read; it was read before.
_SAY_S = 20.0
# Beyond the budget of the kernels: the interpreter's start and torch's.
_AROUND_S = 30


def execute(options: argparse.Namespace, launch: Optional[InBand]) -> int:
    """Take part in the launch's gate; without a launch look at this machine alone.

    Raises:
        UsageError: an option that this form has not, or the hub's port is taken.
        HubUnreachable: the first process of the launch was not to be found.
    """
    began = time.monotonic()
    gatejudging.refuse_others(options)
    held = gatejudging.held_by(options)
    policy = policy_of(options)
    ask = _ask_of(options, policy)
    seat = launch or InBand("", 0, 1, this_node(), LOOPBACK, 0, local_ranks=ask.local_ranks)
    # Whoever has the first place on a node reads it, before there are threads in this process.
    own = _read(options, seat.node) if seat.local_rank == 0 else None
    return _Gate(options, seat, ask, held, own, policy, began).run()


class _Gate:
    """One process' part in a gate."""

    def __init__(
        self,
        options: argparse.Namespace,
        launch: InBand,
        ask: CheckAsk,
        held: gatejudging.Held,
        own: Optional[Fingerprint],
        policy: Policy,
        began: float,
    ) -> None:
        self.options = options
        self.launch = launch
        self.ask = ask
        self.held = held
        self.own = own
        self.policy = policy
        self.began = began
        self.limits = ask.limits
        self.stages: List[Stage] = []
        # The nodes of all processes, in the first one once they have met.
        self.names: Tuple[str, ...] = ()
        self.machine = machine_of(sys.executable, os.environ, os.getcwd())
        self.layout = layout_in(launch, self.machine)
        self._kernels = self._kernels_aside() if own is not None and ask.kernels else None
        self._code = EXIT_INCOMPLETE

    def run(self) -> int:
        """Until the verdict is told; nothing that was started is left."""
        nodes = job_nodes(os.environ)
        if self.launch.count == 1 and nodes > 1:
            # A batch script that calls it without srun would take one node's pass for that of the job.
            self.stages.append(
                Stage("nodes", f"this one alone of the {nodes} of the job; srun starts it on all")
            )
        try:
            if self.launch.count == 1 and self.layout.local_ranks == 1:
                return self._alone()
            return self._meet()
        finally:
            if self._kernels is not None:
                self._kernels.close()

    def _alone(self) -> int:
        """One process with one rank: it has nobody to meet."""
        assert self.own is not None
        _check_outputs(self.options)
        sections = dict(self.own.sections)
        sections.update(self._checked())
        if self.ask.collectives:
            sections[COLLECTIVES] = self._collectives(of_one_rank(), {}, 0)
        self._report((replace(self.own, sections=sections),), {}, clocks_asked=False)
        return self._code

    def _meet(self) -> int:
        launch = self.launch
        hello = {"reads": self.own is not None, **gatejudging.own_form()}
        end_with_launcher(os.environ)
        with Meeting(launch.seat, self._token(), hello, self.limits.join_s, self._conduct) as meeting:
            attendant = Attendant(meeting.client, {})
            if self.own is not None:
                speak_of = gatejudging.notable(self.own, self.policy)
                attendant.tell(READ, self.own.sections, speak_of, self.own.captured_at)

            def check(collectives: bool) -> None:
                self._check(meeting, attendant, collectives)

            try:
                return attendant.attend(check).code
            except HubLost as error:
                if launch.complains:
                    sys.stderr.write(f"envaudit: no verdict was told: {error}\n")
                return EXIT_INCOMPLETE

    # In every process

    def _check(self, meeting: Meeting, attendant: Attendant, collectives: bool) -> None:
        """Run what is to be run on this node, and say what it came to."""
        if collectives:
            self._run_collectives(meeting, attendant)
        if self._kernels is not None:
            # Where the ranks could not agree they have not begun.
            self._kernels.begin()
            while not self._kernels.over(0.2):
                meeting.client.beat()
                meeting.client.poll(0)
        if self.own is not None:
            made = self._checked()
            whole = replace(self.own, sections={**self.own.sections, **made})
            speak_of = gatejudging.notable(whole, self.policy)
            attendant.tell(CHECKED, made, speak_of, self.own.captured_at)

    def _run_collectives(self, meeting: Meeting, attendant: Attendant) -> None:
        """Take part in the collectives, and say which road NCCL took here."""
        on_gpu = any(device.startswith("cuda") for device in self.layout.devices)
        with NcclLogs(wanted=on_gpu) as logs:
            started = self.machine.started
            member = Member(
                meeting.client,
                self.layout,
                self._hello(),
                started._replace(environ={**started.environ, **logs.environ}),
                self.limits,
                self._run_kernels if self._kernels is not None else None,
                float(self._kernels_s) if self._kernels is not None else 0.0,
            )
            result = member.run()
            own = {each["rank"] for each in result["ranks"] if each["node"] == self.launch.node}
            attendant.tell_road(logs.read(result["world"], own))

    def _run_kernels(self) -> None:
        assert self._kernels is not None
        self._kernels.begin()
        self._kernels.over(self._kernels_s)

    def _checked(self) -> Dict[str, Section]:
        """Section `checks`, where it was to be run."""
        if self._kernels is None:
            return {}
        self._run_kernels()
        try:
            row = self._kernels.value()
        except RuntimeError as error:
            return {CHECKS: Section(CHECKS, 1, "error", {}, {}, (str(error),))}
        return {CHECKS: _section(row)}

    @property
    def _kernels_s(self) -> int:
        return self.ask.plan.budget_s + _AROUND_S if self.ask.kernels else _AROUND_S

    def _kernels_aside(self) -> Aside:
        plan, node, seconds = self.ask.plan, self.launch.node, self._kernels_s

        def run() -> Dict[str, Any]:
            found = read_here(node, sections=(CHECKS,), options=options_of(plan), timeout_s=seconds)
            return _row(found.sections[CHECKS])

        return Aside(run)

    def _hello(self) -> Mapping[str, Any]:
        own = self.own

        def read(name: str) -> Tuple[Mapping[str, Any], Mapping[str, Any]]:
            section = own.sections.get(name) if own is not None else None
            return ({}, {}) if section is None else (section.facts, section.notes)

        return hello_of(read, os.environ, self.machine.cards, (self.launch.host, self.launch.port))

    def _token(self) -> bytes:
        return token_of(os.environ, self.options.token_file or "")

    # In the first process, beside its own part

    def _conduct(self, hub: Hub) -> None:
        """Come to a verdict, and let all leave with the same code, whatever it is."""
        try:
            line = self._verdict(hub)
        except HubClosed:
            raise
        except Exception as error:
            code = error.exit_code if isinstance(error, EnvauditError) else EnvauditError.exit_code
            hub.join(self.limits.join_s)
            let_leave(hub, code, f"no verdict: {error}")
            raise
        let_leave(hub, self._code, line)

    def _verdict(self, hub: Hub) -> str:
        """Gather, run, judge, report; the report's last line."""
        _check_outputs(self.options)
        joining = time.monotonic()
        missing = hub.join(self.limits.join_s)
        self.names = stepnodes.nodes_by_index(self.launch, os.environ, _came(hub))
        there = f"{len(hub.members)} of {self.launch.count} processes"
        self.stages.append(Stage("joined", there, time.monotonic() - joining))
        known = list(self.own.sections.values()) if self.own is not None else []
        if self.held.baseline is not None:
            known += [s for each in self.held.baseline.by_node.values() for s in each.sections.values()]
        gathering = Gathering(hub, known, __version__)
        began = time.monotonic()
        gatejudging.refuse_other_forms((member.node, member.hello) for member in hub.members.values())
        gathering.gather(_SAY_S)
        words = f"{len(gathering.nodes)} read, {gathering.asked} sections asked for"
        self.stages.append(Stage("nodes", words, time.monotonic() - began))
        collected = self._run_all(hub, gathering, missing)
        nodes, gone = gathering.fingerprints()
        if collected is not None:
            nodes = tuple(replace(n, sections={**n.sections, COLLECTIVES: collected}) for n in nodes)
        where = f"{self.launch.host}:{self.launch.port} in {self.limits.join_s:g} s"
        refused = turned_away(hub.refused)
        where += f", which refused {refused}" if refused else ""
        gone.update(stepnodes.missing_of(missing, self.names, _came(hub), where))
        nodes = self._with_clocks(nodes, gathering, hub)
        return self._report(nodes, gone, clocks_asked=len(nodes) > 1)

    def _run_all(self, hub: Hub, gathering: Gathering, missing: List[int]) -> Optional[Section]:
        """Kernels and collectives, in one meeting; the section of the latter, where they are run."""
        if not self.ask.kernels and not self.ask.collectives:
            self.stages.append(Stage("checks", "not run (--no-check)"))
            return None
        began = time.monotonic()
        hub.broadcast(CHECK, {"collectives": self.ask.collectives})
        result, took_ms, events = None, 0, []
        if self.ask.collectives:
            coordinator = Coordinator(hub, self.ask.collective_plan, self.limits, self.names)
            result = coordinator.run(missing)
            events = coordinator.others
            took_ms = int((time.monotonic() - began) * 1000)
            gathering.expect_roads()
            words = (
                f"{result['ended']['kind']}, {len(result['cases'])} collectives of {result['world']} ranks"
            )
            self.stages.append(Stage("ranks", words, time.monotonic() - began))
        gathering.gather(self._kernels_s, CHECKED, events, self.limits.stall_s)
        return None if result is None else self._collectives(result, gathering.roads, took_ms)

    def _collectives(self, result: Dict[str, Any], road: Dict[str, Any], took_ms: int) -> Section:
        asked = Asked(plan=self.ask.collective_plan, seat=self.launch.seat, requested=self.ask.requested)
        answer = answer_of(asked, Said(result, road, None), took_ms=took_ms)
        facts, notes = json.loads(json.dumps([answer.facts, dict(answer.notes)]))
        return Section(COLLECTIVES, 1, answer.status, facts, notes, tuple(answer.errors))

    def _with_clocks(
        self, nodes: Tuple[Fingerprint, ...], gathering: Gathering, hub: Hub
    ) -> Tuple[Fingerprint, ...]:
        members = {node.label: hub.members[node.index] for node in gathering.nodes.values()}
        run = f"{self.launch.node} {self.began:.6f}"
        return tuple(
            gatejudging.with_offset(each, members[each.node].offset_ns, members[each.node].bound_ns, run)
            for each in nodes
        )

    def _report(
        self, nodes: Tuple[Fingerprint, ...], missing: Mapping[str, Missing], *, clocks_asked: bool
    ) -> str:
        """Judge, print, write the verdict's file; the last line."""
        asked = [*section_names(), "lock", *self.options.require]
        asked += [CHECKS] if self.ask.kernels else []
        asked += [COLLECTIVES] if self.ask.collectives else []
        stages = [*self.stages, *(Stage("compiled", line) for line in compiled.description())]
        seen = gatejudging.Seen(nodes, missing, tuple(stages), tuple(dict.fromkeys(asked)), clocks_asked)
        report = gatejudging.report_of(seen, self.held, self.options, self.began)
        self._code = report.verdict.exit_code
        line = plain_text(verdict_lines(report)[-1])
        said = f"{line}\n".encode("utf-8", "backslashreplace")
        emit(report, self.options, [(path, said) for path in [self.options.verdict_file] if path])
        return line


def _came(hub: Hub) -> Dict[int, str]:
    """The nodes of those who joined, by index."""
    return {index: member.node for index, member in hub.members.items()}


def _read(options: argparse.Namespace, node: str) -> Fingerprint:
    return read_here(
        node,
        also=asking.on_request(options),
        options=asking.told(options),
        workdir=options.workdir or os.getcwd(),
        timeout_s=options.timeout or asking.DEFAULT_TIMEOUT_S,
    )


def _ask_of(options: argparse.Namespace, policy: Policy) -> CheckAsk:
    """What is run: nothing with `--no-check`; what the policy requires was asked for by name."""
    ask = asked_by(options)
    if options.no_check:
        return ask._replace(kernels=False, collectives=False, mtu=False)
    return ask._replace(requested=ask.requested or COLLECTIVES in policy.require)


def _check_outputs(options: argparse.Namespace) -> None:
    """Refuse a file that cannot be written before anything is run; in the first process, for all.

    What an earlier launch has said goes: who reads it after one that was killed must not take it for its own.

    Raises:
        NeededError, UsageError: such a file.
    """
    check_output_options(options, [options.verdict_file] if options.verdict_file else ())
    if options.verdict_file:
        discard(options.verdict_file)


def _row(section: Section) -> Dict[str, Any]:
    return {
        "schema": section.schema,
        "status": section.status,
        "facts": section.facts,
        "notes": section.notes,
        "errors": list(section.errors),
    }


def _section(row: Mapping[str, Any]) -> Section:
    return Section(CHECKS, row["schema"], row["status"], row["facts"], row["notes"], tuple(row["errors"]))
