"""Collectives: what the ranks of a run came to together, and who is at fault (`envaudit check`).

Whoever is silent is at fault, and whoever complains is mostly its victim. Where the evidence leaves more than
one, all are named and none is accused alone.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Sequence, Tuple

from envaudit.model.collective import (
    DONE,
    HUB_LOST,
    NOT_TESTED,
    SECTION,
    Case,
    Collectives,
    Mismatch,
    Suspect,
    collective_runs,
)
from envaudit.model.drift import join_path
from envaudit.model.nodeset import fold
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule

# What is compared before ranks are started, and the rules that say so where nodes are compared as well.
_TOLD_BY = {
    "python": ("EA211", "EA212"),
    "torch": ("EA213",),
    "torch_git": ("EA213",),
    "cuda": ("EA213",),
    "hip": ("EA213",),
    "nccl": ("EA214",),
    "cudnn": ("EA220",),
    "driver": ("EA331", "EA332"),
    "gpu": ("EA301",),
}
_NAMED_CASES = 6
_NAMED_RANKS = 16
_STDERR_LINES = 4
_DDP = "ddp"
# The beginning of the reason why a backend does not run something (`checks/collectives/abilities.py`).
_OF_KIND = ("gloo of ", "nccl of ", "needs two ranks")


@rule(
    "EA600",
    severity="error",
    scope="cross",
    title="wrong result of a collective",
    why="Every rank knows the right answer without the others: gradients that went this way are wrong.",
    how_to_fix="Take the named node out of the pool, and run 'envaudit check' on it alone and on the others "
    "without it.",
    needs=(SECTION,),
)
def wrong_collective(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding for each suspect; one for all where nobody can be named, and one for the step of DDP."""
    for run in collective_runs(evidence.fingerprints):
        step = run.cases.get(_DDP)
        if step is not None and step.status == "wrong":
            blamed = tuple(dict.fromkeys(node for suspect in run.suspects for node in suspect.nodes))
            # What one rank spoils is wrong on all of them.
            on_all = len(step.wrong_ranks) == run.world
            nodes = (blamed if on_all else ()) or run.nodes_of(step.wrong_ranks) or run.said_by
            lines: Tuple[str, ...] = (_case_line(run, step), "ranks train models of their own from here on")
            yield Found(
                "parameters differ after a step of DDP", nodes, join_path(SECTION, "parameters"), lines
            )
        wrong = [case for case in run.cases.values() if case.status == "wrong" and case.name != _DDP]
        if not wrong:
            continue
        lines = tuple(_case_line(run, case) for case in wrong[:_NAMED_CASES])
        if len(wrong) > _NAMED_CASES:
            lines = (*lines, f"and {len(wrong) - _NAMED_CASES} more collectives")
        if not run.suspects:
            ranks = sorted({rank for case in wrong for rank in case.wrong_ranks})
            where = run.ranks_in_words(ranks)
            what = f"collectives give wrong results on {where}, and nothing tells who is at fault"
            yield Found(what, run.nodes_of(ranks) or run.said_by, join_path(SECTION, "cases"), lines)
        for suspect in run.suspects:
            evidence_lines = (suspect.how, *lines) if suspect.how else lines
            nodes = suspect.nodes or run.nodes_of(suspect.ranks or suspect.link)
            what = f"collectives give wrong results: {_suspect(run, suspect)}"
            yield Found(what, nodes, join_path(SECTION, "cases"), evidence_lines)


@rule(
    "EA601",
    severity="error",
    scope="cross",
    title="ranks that cannot work together",
    why="A launch with these differences hangs or crashes before its first step; no rank was started.",
    needs=(SECTION,),
)
def mismatch(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a difference; those that only slow a launch down are warnings.

    Where the nodes were compared as well, and an error speaks of the same, that is told once.
    """
    for run in collective_runs(evidence.fingerprints):
        for found in run.mismatches:
            if _is_told_by_comparison(found, evidence, policy):
                continue
            lines = tuple(f"{fold(nodes)}: {value}" for value, nodes in found.values)
            severity = "warning" if found.severity == "warning" else ""
            yield Found(
                f"{found.what.replace('_', ' ')} differs: {found.text}",
                found.nodes,
                SECTION,
                lines,
                severity=severity,
            )


def _is_told_by_comparison(found: Mismatch, evidence: Evidence, policy: Policy) -> bool:
    """Whether a rule about that difference between nodes speaks in this run too, and as loud."""
    loud = ("error",) if found.severity == "error" else ("error", "warning", "info")
    with_lock = {rule_id for taken in evidence.taken_by_lock.values() for rule_id, _claim in taken.claims}
    for rule_id in _TOLD_BY.get(found.what, ()):
        waived = any(waiver.rule == rule_id for waiver in policy.waivers)
        speaks = bool(evidence.claims.get(rule_id)) or rule_id in with_lock
        if speaks and not waived and policy.level_of(rule_id, found.severity) in loud:
            return True
    return False


@rule(
    "EA602",
    severity="incomplete",
    scope="cross",
    title="rank missing",
    why="The others waited for it, as a launch would; nothing is known of it.",
    how_to_fix="See whether the node is up and the launcher started a process there, or raise --join.",
    needs=(SECTION,),
)
def rank_missing(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A process that never came to the hub."""
    yield from _ended(evidence, ("missing",), "not all processes of the launch came")


@rule(
    "EA603",
    severity="incomplete",
    scope="cross",
    title="node cannot be reached by the others",
    why="A launch over these nodes would wait for its rendezvous and end without a step.",
    how_to_fix="Look for a firewall between the nodes and at the interface that is chosen "
    "(GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME); give --hub HOST:PORT where another address is meant.",
    needs=(SECTION,),
)
def unreachable(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The hub, or a port of the rendezvous."""
    yield from _ended(evidence, ("unreachable",), "nodes cannot reach each other")


@rule(
    "EA604",
    severity="error",
    scope="cross",
    title="rank lost",
    why="A process died in the middle of a collective, and took the launch with it.",
    needs=(SECTION,),
)
def rank_lost(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A worker or its supervisor ended without having said so."""
    yield from _ended(evidence, ("lost", "exit", "hub_lost"), "lost")


@rule(
    "EA605",
    severity="error",
    scope="cross",
    title="rank silent",
    why="Its process is stopped, swapped out, or cut off: the others wait for it in the collective.",
    needs=(SECTION,),
)
def rank_silent(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """No heartbeat, and no word of its end."""
    yield from _ended(evidence, ("silent",), "silent")


@rule(
    "EA606",
    severity="error",
    scope="cross",
    title="rank stuck",
    why="It is alive and does not enter the collective in which the others wait for it.",
    needs=(SECTION,),
)
def rank_stuck(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Heartbeats without progress."""
    yield from _ended(evidence, ("stuck",), "stuck")


@rule(
    "EA607",
    severity="error",
    scope="cross",
    title="collective failed at a rank",
    why="An exception on one rank ends it, and hangs or ends the others.",
    needs=(SECTION,),
)
def rank_failed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """An exception with its text."""
    yield from _ended(evidence, ("error",), "failed")


@rule(
    "EA608",
    severity="error",
    scope="cross",
    title="network between ranks fails",
    why="All ranks entered the collective and none came out: what lies between them lost it.",
    how_to_fix="Look at the link, its errors and its MTU ('envaudit check --only mtu').",
    needs=(SECTION,),
)
def network_failed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """With the link, where rounds of pairs have found one."""
    yield from _ended(evidence, ("network",), "the network fails")


@rule(
    "EA609",
    severity="info",
    scope="cross",
    title="collectives not tested",
    why="What was not tested is no pass; where it was asked for, the run is incomplete.",
    how_to_fix="Run with two ranks or more: --nproc 2, --nodes with two nodes, or under torchrun.",
)
def collectives_not_tested(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One rank, a busy GPU, or a time that was over; incomplete where asked for by name or by the policy.

    What the backend does not have is told as well: nothing is said about it. A run of which nothing is left
    is no pass.
    """
    silent = _without_answer(evidence)
    if silent:
        yield Found(
            "collectives: NOT TESTED (no answer tells of them)", silent, SECTION, severity="incomplete"
        )
    for run in collective_runs(evidence.fingerprints):
        wanted = run.requested or SECTION in policy.require
        if run.ended.kind == NOT_TESTED and run.asked:
            nodes = run.ended.nodes or run.said_by
            severity = "incomplete" if wanted else ""
            # The rule's own advice is for a rank that is alone, which is the usual reason.
            alone = run.ended.text.startswith("one rank ")
            hint = "" if alone else "Mend that, then run 'envaudit check --only collectives'."
            if alone and evidence.missing:
                hint = "Two ranks are needed: see why the other nodes gave no evidence."
            told = f"collectives: NOT TESTED ({run.ended.text})"
            yield Found(told, nodes, SECTION, hint=hint, severity=severity)
        elif run.ended.kind == "deadline":
            yield Found(
                f"collectives: NOT TESTED to their end ({run.ended.text})",
                run.ended.nodes or run.said_by,
                SECTION,
                _after(run),
                hint="Give --total and --stall more time, or fewer --ops and --sizes.",
                severity="incomplete",
            )
        elif (
            run.ended.kind == DONE
            and run.asked
            and not any(case.status != "not_run" for case in run.cases.values())
        ):
            yield Found(
                "collectives: NOT TESTED (none of those that were asked for was run)",
                run.said_by,
                SECTION,
                hint="See what there is: envaudit check without --ops, --dtypes and --sizes.",
                severity="incomplete",
            )
        lacking = _not_run(run, of_kind=True)
        if lacking:
            what = f"{_count(sum(map(len, lacking.values())), 'collective')} that {run.backend} does not have"
            lines = tuple(f"{reason}: {_kinds(names)}" for reason, names in lacking.items())
            yield Found(
                what,
                run.said_by,
                SECTION,
                lines,
                hint="Nothing has to be done; ranks that need one of them need another backend.",
            )
        for reason, names in _not_run(run, of_kind=False).items():
            yield Found(
                f"{_count(len(names), 'collective')} not run: {reason}",
                run.said_by,
                SECTION,
                (_some(names),),
                hint="Mend that, then run 'envaudit check --only collectives'.",
                severity="incomplete" if run.ended.kind == DONE else "",
            )


def _without_answer(evidence: Evidence) -> Tuple[str, ...]:
    """The nodes whose section is there and empty, while no run tells of a rank of theirs."""
    if evidence.sections is None or SECTION not in evidence.sections:
        return ()
    told = {rank.node for run in collective_runs(evidence.fingerprints) for rank in run.ranks}
    return tuple(
        each.node
        for each in evidence.fingerprints
        if SECTION in each.sections and each.sections[SECTION].status == "absent" and each.node not in told
    )


def _ended(evidence: Evidence, kinds: Sequence[str], what: str) -> Iterator[Found]:
    runs = collective_runs(evidence.fingerprints)
    met = {node for run in runs if run.ended.kind not in ("unreachable", HUB_LOST) for node in run.said_by}
    for run in runs:
        if run.ended.kind in kinds:
            nodes = run.ended.nodes or run.nodes_of(run.ended.ranks)
            if not run.supervisors and nodes and met.issuperset(nodes):
                # Others met at the hub that this one did not find.
                nodes = run.said_by
            named = [rank for rank in run.ended.ranks if run.nodes_of((rank,))]
            who = f"{run.ranks_in_words(named)}: " if named else ""
            # The text begins with the node, which stands with its ranks already.
            text = run.ended.text
            for node in nodes if who else ():
                text = text[len(node) + 2 :] if text.startswith(f"{node}: ") else text
            yield Found(f"{who}{text or what}", nodes, join_path(SECTION, "ended"), _after(run))


def _after(run: Collectives) -> Tuple[str, ...]:
    """Who suffered from it, and the last words of who did not."""
    lines = [line for line in run.ended.stderr.splitlines() if line.strip()][-_STDERR_LINES:]
    victims = f"victims: {run.ranks_in_words(run.ended.victims)}" if run.ended.victims else ""
    through = sum(case.status == "ok" for case in run.cases.values())
    so_far = f"right until then: {_count(through, 'collective')}" if through else ""
    return tuple(text for text in (victims, so_far, *lines) if text)


def _suspect(run: Collectives, suspect: Suspect) -> str:
    """`rank 3 (node02)`, `probably the link between ...`, `one of rank 0 (node01), rank 1 (node02)`."""
    if suspect.link:
        who = "the link between " + " and ".join(run.words_of(rank) for rank in suspect.link)
    elif len(suspect.ranks) == 1:
        who = run.words_of(suspect.ranks[0])
    else:
        # That says by itself that it is not sure.
        return "one of " + ", ".join(run.words_of(rank) for rank in suspect.ranks[:_NAMED_RANKS])
    return who if suspect.sure else f"probably {who}"


def _case_line(run: Collectives, case: Case) -> str:
    where = f" on {run.ranks_in_words(case.wrong_ranks)}" if case.wrong_ranks else ""
    return f"{case.name}{where}" + (f": {case.reason}" if case.reason else "")


def _not_run(run: Collectives, *, of_kind: bool) -> Dict[str, List[str]]:
    found: Dict[str, List[str]] = {}
    for case in run.cases.values():
        if case.status == "not_run" and case.reason.startswith(_OF_KIND) == of_kind:
            found.setdefault(case.reason or "no reason is known", []).append(case.name)
    return found


def _kinds(names: Sequence[str]) -> str:
    """Operations and dtypes, without reductions and sizes: `all_reduce e4m3, e5m2; reduce e4m3`."""
    dtypes: Dict[str, Dict[str, None]] = {}
    for name in names:
        parts = name.split("/")
        dtypes.setdefault(parts[0], {})[parts[-2] if len(parts) > 2 else ""] = None
    return "; ".join(f"{op} {', '.join(each)}".strip() for op, each in dtypes.items())


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_CASES} more" if len(names) > _NAMED_CASES else ""
    return ", ".join(names[:_NAMED_CASES]) + more


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
