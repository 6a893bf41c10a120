"""`envaudit check` inside a launch: torchrun, srun and mpirun start the processes, and these meet.

Each process checks its own device, all run the collectives together, and the first one judges and prints.
Nobody leaves before that: the end of one rank makes a launcher end the others. All end with the same code.

What members say, once the result is out:

    check.said   {"captured_at", "sections": [row, ...]}   what this process has found
    check.end    {"code"}                                  to the members: it is printed
    check.bye    {}                                        this one has it
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from envaudit._version import __version__
from envaudit.checks.collectives.asked import Asked
from envaudit.checks.collectives.ending import DONE, NOT_TESTED
from envaudit.checks.collectives.hello import SECTIONS, hello_of
from envaudit.checks.collectives.layout import Layout
from envaudit.checks.collectives.section import answer_of
from envaudit.checks.collectives.supervising import (
    busy_in_words,
    machine_of,
    ms_since,
    supervise_ranks,
)
from envaudit.checks.merging import merged
from envaudit.checks.plan import options_of
from envaudit.cli.aside import Aside
from envaudit.cli.checkoptions import CheckAsk
from envaudit.cli.output import check_output_options, emit
from envaudit.cli.seat import InBand, end_with_launcher, layout_in
from envaudit.cli.stepnodes import missing_of, nodes_by_index
from envaudit.control.client import Client
from envaudit.control.hub import Event, Hub
from envaudit.control.tokens import token_of
from envaudit.errors import EXIT_FINDINGS, EXIT_INCOMPLETE, EnvauditError, InputError
from envaudit.model import Fingerprint, Missing, Section, Snapshot
from envaudit.model.checked import SECTION as CHECKS
from envaudit.model.codec import NODE_NAME, fingerprint_of_answer
from envaudit.model.collective import SECTION
from envaudit.model.printing import printable
from envaudit.report import Report
from envaudit.transport.inband import read_here

SAID, END, BYE = "check.said", "check.end", "check.bye"

_TICK_S = 0.1
# How long members may take to say what they found, and to say that they have the code.
_SAYING_S = 30.0
_LEAVING_S = 5.0
# Beyond the budget of the kernels: the interpreter's start and torch's.
_AROUND_S = 30

# The report of what all have said, made by the caller's rules.
Judge = Callable[[Snapshot], Report]


def execute(options: argparse.Namespace, ask: CheckAsk, place: InBand, began: float) -> int:
    """Take part in the check of a launch; the same code in every process of it.

    Raises:
        UsageError: in the first process, the hub's port is taken.
    """
    if place.prints:
        check_output_options(options)
    return _Part(options, ask, place, began).run()


class _Part:
    """One process' part."""

    def __init__(self, options: argparse.Namespace, ask: CheckAsk, place: InBand, began: float) -> None:
        self.options = options
        self.ask = ask
        self.place = place
        self.began = began
        self.code: Optional[int] = None
        self._heard: queue.Queue[Tuple[Dict[int, Any], Dict[str, Missing]]] = queue.Queue()
        self._judged: queue.Queue[int] = queue.Queue()

    def run(self) -> int:
        """Until the code is known; nothing that was started is left."""
        place, ask = self.place, self.ask
        # What forks comes before the meeting, which has threads.
        own = read_here(place.node, sections=SECTIONS, workdir=os.getcwd())
        machine = machine_of(sys.executable, os.environ, os.getcwd())
        layout = layout_in(place, machine)
        kernels = self._kernels(layout)
        asked = Asked(
            plan=ask.collective_plan,
            seat=place.seat,
            limits=ask.limits,
            token=token_of(os.environ, self.options.token_file or ""),
            requested=ask.requested,
            collectives=ask.collectives,
            kernels=kernels is not None,
            kernels_s=ask.plan.budget_s + _AROUND_S,
            mtu=ask.mtu,
        )
        hello = hello_of(_reader(own), os.environ, machine.cards, (place.host, place.port))
        hello["busy"] = busy_in_words(machine, layout) or None
        end_with_launcher(os.environ)
        try:
            before = (lambda: _run(kernels, asked.kernels_s)) if kernels is not None else None
            said = supervise_ranks(
                asked,
                layout,
                lambda: hello,
                machine,
                before,
                names_of=lambda came: nodes_by_index(place, os.environ, came),
                conduct=self._conduct,
                attend=lambda client, found: self._attend(client, asked, kernels, found),
            )
        finally:
            if kernels is not None:
                kernels.close()
        return self._without_verdict(said.result["ended"]) if self.code is None else self.code

    def _kernels(self, layout: Layout) -> Optional[Aside]:
        """This process' own devices, in a process that waits; a CPU is its node's first one's."""
        if not self.ask.kernels:
            return None
        options = options_of(self.ask.plan)
        if self.place.rank is not None:
            device = layout.devices[0]
            if device == "cpu" and self.place.local_rank:
                return None
            options["check_only"] = int(device.partition(":")[2] or 0)
        node, seconds = self.place.node, float(self.ask.plan.budget_s + _AROUND_S)

        def read() -> Dict[str, Any]:
            found = read_here(node, sections=(CHECKS,), options=options, timeout_s=seconds)
            return _row(found.sections[CHECKS])

        return Aside(read)

    def _attend(self, client: Client, asked: Asked, kernels: Optional[Aside], said: Any) -> None:
        """Say what was found, and wait for the code; the first process judges meanwhile."""
        answer = answer_of(asked, said, took_ms=ms_since(self.began))
        facts, notes = json.loads(json.dumps([answer.facts, dict(answer.notes)]))
        rows = [_row(Section(SECTION, 1, answer.status, facts, notes, tuple(answer.errors)))]
        if kernels is not None:
            _run(kernels, asked.kernels_s, lambda: _keep(client))
            rows.append(_value(kernels))
        client.send(SAID, {"node": self.place.node, "sections": rows})
        ends = time.monotonic() + _SAYING_S + asked.kernels_s + asked.limits.stall_s
        while self.code is None and time.monotonic() < ends:
            if self.place.prints:
                self._judge(said.result["ended"]["kind"])
            for kind, body in client.poll(_TICK_S):
                if kind == END:
                    self.code = int(body["code"])
                    client.send(BYE, {})
            client.beat()

    def _judge(self, kind: str) -> None:
        """In the first process, after a run of this end: report what all said, and have the hub tell it."""
        try:
            heard, gone = self._heard.get_nowait()
        except queue.Empty:
            return
        try:
            from envaudit.cli.check import report_of

            # Where the run did not come to its end, that tells of whoever is missing.
            gone = gone if kind in (DONE, NOT_TESTED) else {}
            report = report_of(_snapshot(heard, gone), self.options, self.ask, self.began)
            emit(report, self.options)
            self._judged.put(report.verdict.exit_code)
        except EnvauditError as error:
            self._judged.put(error.exit_code)
            raise

    def _conduct(self, hub: Hub, waiting: List[Event]) -> None:
        """In the first process, beside its own part: hear all, tell the code, wait until they have it."""
        heard: Dict[int, Any] = {}
        silence_s = self.ask.limits.stall_s
        _listen(hub, SAID, heard, _SAYING_S + self.ask.plan.budget_s + _AROUND_S, waiting, silence_s)
        self._heard.put((heard, self._gone(hub, heard)))
        code = None
        while code is None:
            hub.poll(_TICK_S)
            try:
                code = self._judged.get_nowait()
            except queue.Empty:
                continue
        hub.broadcast(END, {"code": code})
        _listen(hub, BYE, {}, _LEAVING_S, [], silence_s)

    def _gone(self, hub: Hub, heard: Mapping[int, Any]) -> Dict[str, Missing]:
        """Those who never came, and those who came and said nothing: what they would have said is no pass."""
        place = self.place
        came = {index: member.node for index, member in hub.members.items()}
        absent = [index for index in range(hub.expected) if index not in came]
        where = f"{place.host}:{place.port} in {self.ask.limits.join_s:g} s"
        gone = missing_of(absent, nodes_by_index(place, os.environ, came), came, where)
        processes = Counter(came.values())
        for index in sorted(set(came) - set(heard)):
            node, left = came[index], hub.members[index].left
            known = bool(NODE_NAME.match(node))
            alone = known and processes[node] == 1
            its = "its process" + (f" on {node}" if known and not alone else "")
            why = f"{its} has gone: {left}" if left else f"{its} did not say what it found"
            gone[node if alone else f"rank{index}"] = Missing("crashed" if left else "timeout", why)
        return gone

    def _without_verdict(self, ended: Mapping[str, Any]) -> int:
        """The hub was not found, or is gone: one line a node, and the code that belongs to it."""
        if self.place.complains:
            why = printable(str(ended["text"]))  # a hub's own words, which may be anybody's
            sys.stderr.write(f"envaudit: no verdict was told to this process: {why}\n")
        return EXIT_FINDINGS if ended["kind"] == "hub_lost" else EXIT_INCOMPLETE


def _listen(
    hub: Hub, kind: str, heard: Dict[int, Any], seconds: float, waiting: List[Event], silence_s: float
) -> None:
    """Until every member that is there and beats has said this: one that is stopped would say nothing."""
    ends = time.monotonic() + seconds
    events = list(waiting)
    while True:
        for event in events:
            if event.kind == kind:
                heard[event.index] = event.body
        now = time.monotonic()
        there = [
            index
            for index, member in hub.members.items()
            if not member.left and now - member.heard_at < silence_s
        ]
        if now >= ends or all(index in heard for index in there):
            return
        events = hub.poll(_TICK_S)


def _snapshot(heard: Mapping[int, Any], gone: Mapping[str, Missing]) -> Snapshot:
    """A fingerprint a node, of what its processes have said; and who is gone."""
    said: Dict[str, List[Fingerprint]] = {}
    missing = dict(gone)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for index in sorted(heard):
        body = heard[index] if isinstance(heard[index], dict) else {}
        node = str(body.get("node", ""))
        if not NODE_NAME.match(node):
            missing[f"rank{index}"] = Missing("corrupt", "it says what no process says")
            continue
        answer = {"captured_at": now, "tool": __version__, "sections": body.get("sections")}
        try:
            made = fingerprint_of_answer(answer, node=node, source="inband", where=f"process {index}")
        except InputError as error:
            missing[node] = Missing("corrupt", str(error))
            continue
        said.setdefault(node, []).append(made)
    nodes = tuple(_together(each) for node, each in said.items() if node not in missing)
    return Snapshot(nodes, missing)


def _together(of_one_node: List[Fingerprint]) -> Fingerprint:
    """The processes of one node: their devices in one section, and each its own road."""
    first = of_one_node[0]
    sections = {name: section for each in reversed(of_one_node) for name, section in each.sections.items()}
    checks = [each.sections[CHECKS] for each in of_one_node if CHECKS in each.sections]
    if len(checks) > 1 and all(each.status == "ok" for each in checks):
        facts, notes = merged([(each.facts, each.notes) for each in checks])
        sections[CHECKS] = replace(checks[0], facts=facts, notes=notes)
    elif checks:
        # One that failed must not hide behind those that did not.
        sections[CHECKS] = next((each for each in checks if each.status != "ok"), checks[0])
    roads: Dict[str, Any] = {}
    mtu = None
    for each in of_one_node:
        notes = each.sections[SECTION].notes if SECTION in each.sections else {}
        road = notes.get("road")
        roads.update(road if isinstance(road, dict) else {})
        mtu = mtu or notes.get("mtu")
    if SECTION in sections:
        own = sections[SECTION]
        own_notes = {**own.notes, "road": roads, **({"mtu": mtu} if mtu else {})}
        sections[SECTION] = own.with_details(own_notes, own.errors)
    return replace(first, sections=sections)


def _reader(own: Fingerprint) -> Callable[[str], Tuple[Mapping[str, Any], Mapping[str, Any]]]:
    def read(name: str) -> Tuple[Mapping[str, Any], Mapping[str, Any]]:
        section = own.sections.get(name)
        return ({}, {}) if section is None else (section.facts, section.notes)

    return read


def _run(kernels: Aside, seconds: float, between: Callable[[], None] = lambda: None) -> None:
    kernels.begin()
    ends = time.monotonic() + seconds
    while not kernels.over(_TICK_S) and time.monotonic() < ends:
        between()


def _keep(client: Client) -> None:
    client.poll(0)
    client.beat()


def _value(kernels: Aside) -> Dict[str, Any]:
    try:
        value: Dict[str, Any] = kernels.value()
        return value
    except RuntimeError as error:
        return _row(Section(CHECKS, 1, "error", {}, {}, (str(error),)))


def _row(section: Section) -> Dict[str, Any]:
    return {
        "name": section.name,
        "schema": section.schema,
        "status": section.status,
        "facts": section.facts,
        "notes": section.notes,
        "errors": list(section.errors),
    }
