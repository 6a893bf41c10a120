"""Clocks: how far the nodes' are apart, and whether anything keeps them together.

An offset is always judged with its bound: what is certain to be off is a finding, what may be is
told as not known. Offsets of one run alone are held against each other.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from envaudit.model.clockoffset import SECTION, Offset, Run, against_median, apart, in_words, runs
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.nodeset import natural_key
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, Threshold, rule, threshold

# How far off is too far. Logs and traces of several nodes cannot be put in order from a tenth of a
# second on; from a second on, files of the future, expired tokens and leases.
_FAR = Threshold(1, "s", "from there on a clock is an error")
_OFF = Threshold(0.1, "s", "from there on a clock is a warning, and an error where nothing sets it right")
_NAME = "offset_s"

# The rules that name clocks which are off.
OFFSET_RULES = ("EA150", "EA151", "EA152")

_SET = "Let its time service follow the same source as the others'; 'chronyc makestep' sets it at once."
_START = "Enable chronyd or systemd-timesyncd on it, with the same source as on the other nodes."


class _Off(NamedTuple):
    """One clock that is off, or two that are apart: the certain distance, and the words for it."""

    nodes: Tuple[str, ...]
    at_least_ns: int
    line: str


@rule(
    "EA150",
    severity="error",
    scope="cross",
    needs=(SECTION,),
    title="clock is off by more than a second",
    why="Tokens expire, leases and locks of file systems break, and make or rsync takes old files for new.",
    how_to_fix=_SET,
    thresholds={_NAME: _FAR},
)
def clock_far_off(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Clocks that are certain to be off by more than the threshold of errors."""
    far_ns = _far_ns(policy)
    yield from _folded([each for each in _off(evidence) if each.at_least_ns > far_ns], far_ns)


@rule(
    "EA151",
    severity="error",
    scope="cross",
    needs=(SECTION,),
    title="clock is off, and nothing sets it right",
    why="It drifts on: a clock of its own goes wrong by a second a day and more.",
    how_to_fix=_START,
)
def clock_off_and_free(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Clocks off by more than the threshold of warnings that are not synchronised either."""
    free = _unsynchronised(evidence)
    off = [each for each in _slightly_off(evidence, policy) if not free.isdisjoint(each.nodes)]
    yield from _folded(off, _off_ns(policy), ", and not synchronised")


@rule(
    "EA152",
    severity="warning",
    scope="cross",
    needs=(SECTION,),
    title="clock is off by more than a tenth of a second",
    why="Logs and traces of several nodes cannot be put in order, and the time service is not at its best.",
    how_to_fix=_SET,
    thresholds={_NAME: _OFF},
)
def clock_off(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Clocks off by more than the threshold of warnings though they are synchronised."""
    free = _unsynchronised(evidence)
    off = [each for each in _slightly_off(evidence, policy) if free.isdisjoint(each.nodes)]
    yield from _folded(off, _off_ns(policy))


@rule(
    "EA153",
    severity="warning",
    scope="node",
    needs=(SECTION,),
    title="clock is not synchronised",
    why="It is right by chance, and drifts away.",
    how_to_fix="See what its service says: 'chronyc sources', 'timedatectl timesync-status', 'ntpq -p'.",
)
def clock_not_synchronised(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A time service that runs and has no source; that of a node that is off is told there."""
    told = _told_elsewhere(evidence, policy)
    by_service: Dict[str, List[str]] = {}
    for fingerprint in _of_clock(evidence):
        facts = fingerprint.sections[SECTION].facts
        service = facts.get("service")
        if service not in ("none", None) and facts.get("synchronised") is False:
            by_service.setdefault(str(service), [])
            by_service[str(service)] += [fingerprint.node] if fingerprint.node not in told else []
    for service, nodes in by_service.items():
        if nodes:
            yield Found(f"the clock is not synchronised ({service})", tuple(nodes), "clock/synchronised")


@rule(
    "EA154",
    severity="warning",
    scope="node",
    needs=(SECTION,),
    title="no time service",
    why="Nothing keeps the clock, and it drifts away from the others'.",
    how_to_fix=_START,
)
def no_time_service(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """No service runs, and the kernel does not say that somebody keeps the clock, or others have one.

    Just after its service stopped, a clock is still called synchronised.
    """
    for told, words in (
        (False, "the clock is not synchronised"),
        (None, "nobody says whether the clock is synchronised"),
    ):
        yield from _without_service(evidence, policy, "none", (told,), f"no time service, and {words}")
    lacking = _lacking(evidence) - _told_elsewhere(evidence, policy)
    for service, what in (("none", "no time service"), (None, "no time service visible")):
        nodes = []
        for one in _of_clock(evidence):
            facts = one.sections[SECTION].facts
            is_told = service == "none" and facts.get("synchronised") is not True
            if one.node in lacking and facts.get("service") == service and not is_told:
                nodes.append(one.node)
        if nodes:
            yield Found(f"{what}, where others have one", tuple(nodes), "clock/service")


@rule(
    "EA155",
    severity="info",
    scope="node",
    needs=(SECTION,),
    title="no time service visible from a container",
    why="The host keeps the clock of its containers, or does not: from inside nobody can tell.",
)
def time_service_not_visible(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Where clocks were asked for: a container in which nobody can tell what keeps its clock.

    Said of every container in every comparison it would be noise.
    """
    if evidence.clocks_asked:
        message = "no time service visible from inside the container"
        yield from _without_service(evidence, policy, None, (False, None), message)


@rule(
    "EA156",
    severity="incomplete",
    scope="cross",
    needs=(SECTION,),
    title="clock offset not known",
    why="A clock that could not be measured may be the one that is off.",
)
def offset_not_known(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Where the run was asked for offsets: nodes without one, or with one too coarse to judge."""
    if evidence.clocks_asked:
        yield from _not_known(evidence, policy)


@rule(
    "EA157",
    severity="info",
    scope="cross",
    needs=(SECTION,),
    title="clock offset not measured along the way",
    why="The comparison says nothing about how far these clocks are apart.",
    how_to_fix="Ask for it alone: envaudit clock --nodes ...",
)
def offset_not_measured(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The same where offsets are by-catch of another question."""
    if not evidence.clocks_asked:
        yield from _not_known(evidence, policy)


def _of_clock(evidence: Evidence) -> List[Fingerprint]:
    if not evidence.covers(SECTION):
        return []
    return [one for one in evidence.fingerprints if SECTION in one.sections]


def _off(evidence: Evidence) -> Iterator[_Off]:
    """Clocks off by anything, with their distance; two nodes are held against each other."""
    by_node = {one.node: one for one in _of_clock(evidence)}
    for run in runs(list(by_node.values())):
        if len(run.measured) == 2:
            yield _pair(run.measured, by_node)
        elif len(run.measured) > 2:
            for node, offset in against_median(run.measured).items():
                line = f"{node}: {_with_bound(offset)} from the median of {len(run.measured)} clocks"
                yield _Off((node,), offset.at_least_ns, f"{line}; {_kept(by_node[node])}")


def _pair(measured: Mapping[str, Offset], by_node: Mapping[str, Fingerprint]) -> _Off:
    first, second = sorted(measured, key=natural_key)
    offset = apart(measured[first], measured[second])
    if offset.offset_ns < 0:
        first, second, offset = second, first, offset._replace(offset_ns=-offset.offset_ns)
    line = f"{second} is {_with_bound(offset)} ahead of {first}; which of two is right they cannot tell"
    kept = ", ".join(f"{node}: {_kept(by_node[node])}" for node in (first, second))
    return _Off((first, second), offset.at_least_ns, f"{line} ({kept})")


def _with_bound(offset: Offset) -> str:
    return f"{in_words(offset.offset_ns, signed=True)} ± {in_words(offset.bound_ns)}"


def _kept(fingerprint: Fingerprint) -> str:
    """By what the clock is kept, in words."""
    facts = fingerprint.sections[SECTION].facts
    service = facts.get("service")
    name = {"none": "no time service", "None": "no time service visible"}.get(str(service), str(service))
    told = facts.get("synchronised")
    if told is None:
        return f"{name}, whether synchronised is not known"
    return f"{name}, {'synchronised' if told is True else 'not synchronised'}"


def _slightly_off(evidence: Evidence, policy: Policy) -> List[_Off]:
    off_ns, far_ns = _off_ns(policy), _far_ns(policy)
    return [each for each in _off(evidence) if off_ns < each.at_least_ns <= far_ns]


def _far_ns(policy: Policy) -> int:
    return round(threshold("EA150", _NAME, policy) * 1_000_000_000)


def _off_ns(policy: Policy) -> int:
    return round(threshold("EA152", _NAME, policy) * 1_000_000_000)


def _folded(off: List[_Off], limit_ns: int, more: str = "") -> Iterator[Found]:
    """One finding for all of them: what sets one clock wrong is rarely that of one node alone."""
    if not off:
        return
    limit = _limit(limit_ns)
    nodes = tuple(sorted({node for each in off for node in each.nodes}, key=natural_key))
    pair = any(len(each.nodes) == 2 for each in off)
    message = f"clocks are more than {limit} apart" if pair else f"clock is off by more than {limit}"
    yield Found(f"{message}{more}", nodes, SECTION, tuple(each.line for each in off))


def _unsynchronised(evidence: Evidence) -> Set[str]:
    return {
        one.node for one in _of_clock(evidence) if one.sections[SECTION].facts.get("synchronised") is False
    }


def _lacking(evidence: Evidence) -> Set[str]:
    """Nodes that have another time service than most, or none."""
    drifts = [drift for drift in evidence.drifts if drift.path == "clock/service" and drift.kind != "unknown"]
    return {node for drift in drifts for node in drift.outliers}


def _told_elsewhere(evidence: Evidence, policy: Policy) -> Set[str]:
    """Nodes whose time service another finding names, since their clock is off."""
    off_ns = _off_ns(policy)
    return {node for each in _off(evidence) if each.at_least_ns > off_ns for node in each.nodes}


def _without_service(
    evidence: Evidence,
    policy: Policy,
    service: Optional[str],
    synchronised: Tuple[Optional[bool], ...],
    message: str,
) -> Iterator[Found]:
    told = _told_elsewhere(evidence, policy)
    nodes = []
    for one in _of_clock(evidence):
        facts = one.sections[SECTION].facts
        is_meant = facts.get("service", "") == service and facts.get("synchronised") in synchronised
        if is_meant and one.node not in told:
            nodes.append(one.node)
    if nodes:
        yield Found(message, tuple(nodes), "clock/service")


def _not_known(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Nodes of a run of several whose offset was not measured, or may be anything around the threshold."""
    for run in runs(_of_clock(evidence)):
        if len(run.measured) + len(run.reasons) < 2:
            continue
        reasons: Dict[str, List[str]] = {}
        for node, why in run.reasons.items():
            reasons.setdefault(why, []).append(node)
        if len(run.measured) == 1:
            reasons.setdefault("there is no other clock to hold it against", []).extend(run.measured)
        for why, nodes in reasons.items():
            yield Found(f"clock offset not known: {why}", tuple(nodes), SECTION)
        coarse = _too_coarse(run, _off_ns(policy))
        if coarse:
            limit = _limit(_off_ns(policy))
            lines = tuple(f"{node}: {_with_bound(offset)}" for node, offset in coarse.items())
            yield Found(f"clock offset not known well enough for {limit}", tuple(coarse), SECTION, lines)


def _too_coarse(run: Run, off_ns: int) -> Dict[str, Offset]:
    """Measured nodes whose bound reaches across the threshold of warnings."""
    if len(run.measured) == 2:
        first, second = run.measured
        distances = dict.fromkeys(run.measured, apart(run.measured[first], run.measured[second]))
    else:
        distances = against_median(run.measured)
    return {
        node: distance
        for node, distance in distances.items()
        if distance.at_least_ns <= off_ns < distance.at_most_ns
    }


def _limit(limit_ns: int) -> str:
    """A threshold in words, `1 s` and `100 ms`."""
    return in_words(limit_ns).replace(".000", "")
