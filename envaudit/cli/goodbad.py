"""What to do with nodes after a gate: go on with the good ones, take the bad ones out."""

from __future__ import annotations

import shlex
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

from envaudit.model import Finding
from envaudit.model.finding import THRESHOLDS
from envaudit.model.nodeset import fold, natural_key

FLEET_WIDE = "fleet-wide: baseline or policy?"
# One or two nodes are never a fleet: of four nodes one bad one is a quarter.
_LEAST_OF_A_FLEET = 3
_TELLING = ("error", "incomplete")
# Evidence that is missing is no reason to take a node out, but for a node that does not answer.
_SILENT = "EA901"


class Sorted(NamedTuple):
    """The nodes of a run, sorted by what was found.

    Attributes:
        good: answered, and no finding that fails or leaves the run incomplete is about them.
        bad: all others.
        fleet_wide: why both are empty; empty where they are not.
    """

    good: Tuple[str, ...]
    bad: Tuple[str, ...]
    fleet_wide: str = ""


def sort_nodes(
    answered: Iterable[str],
    missing: Iterable[str],
    findings: Sequence[Finding],
    *,
    fail_on: str,
    max_bad_fraction: float,
) -> Sorted:
    """Good and bad nodes; neither, where one finding is about the fleet rather than about nodes.

    Args:
        answered: nodes of which there is evidence.
        missing: nodes that were asked for and gave none; allowed or not, they are never good.
        findings: of the run.
        fail_on: a key of `THRESHOLDS`.
        max_bad_fraction: beyond this part of the nodes, and from three of them on, one finding says
            that what the nodes are held to is wrong.
    """
    asked = {*answered, *missing}
    bad: Set[str] = set(missing)
    for finding in findings:
        if finding.severity not in (*THRESHOLDS[fail_on], "incomplete"):
            continue
        nodes = {node.partition("@")[0] for node in finding.nodes}.intersection(asked)
        if not nodes:
            return Sorted((), (), f"{finding.rule} is about the run as a whole")
        if len(nodes) >= _LEAST_OF_A_FLEET and len(nodes) > max_bad_fraction * len(asked):
            return Sorted((), (), f"{finding.rule} on {len(nodes)} of {len(asked)} nodes is {FLEET_WIDE}")
        bad |= nodes
    return Sorted(_ordered(asked - bad), _ordered(bad))


def node_set_text(nodes: Sequence[str]) -> bytes:
    """A folded node set as a file holds it: `node[01-03,05]`; an empty file for none."""
    return f"{fold(nodes, for_slurm=True)}\n".encode("ascii") if nodes else b""


def suggestions(
    to: str, bad: Iterable[str], findings: Sequence[Finding], titles: Mapping[str, str]
) -> Tuple[str, ...]:
    """Commands that take bad nodes out, for `slurm` or `kubectl`; the rule ids are the reason.

    What a node said is in no command: only names that were checked, and the register's own words.

    Args:
        to: a key of the writers below.
        bad: nodes to take out.
        findings: worst first.
        titles: of rules, by id.
    """
    wanted = set(bad)
    reasons: Dict[str, List[str]] = {}
    for finding in findings:
        if finding.severity in _TELLING and (finding.severity == "error" or finding.rule == _SILENT):
            for node in wanted.intersection(finding.nodes):
                if finding.rule not in reasons.setdefault(node, []):
                    reasons[node].append(finding.rule)
    alike: Dict[Tuple[str, ...], List[str]] = {}
    for node in _ordered(reasons):
        alike.setdefault(tuple(reasons[node]), []).append(node)
    write = _WRITERS[to]
    return tuple(line for ids, nodes in alike.items() for line in write(nodes, _reason(ids, titles)))


def _reason(ids: Sequence[str], titles: Mapping[str, str]) -> str:
    """`EA330 driver differs, EA206`: the worst one with its title."""
    return ", ".join([f"{ids[0]} {titles.get(ids[0], '')}".rstrip(), *ids[1:]])


def _slurm(nodes: Sequence[str], reason: str) -> List[str]:
    names = fold(nodes, for_slurm=True)
    words = ["scontrol", "update", f"NodeName={names}", "State=DRAIN", f"Reason=envaudit: {reason}"]
    return [shlex.join(words)]


def _kubectl(nodes: Sequence[str], reason: str) -> List[str]:
    # A cordon has no reason of its own: an annotation keeps it where the node is looked at.
    return [
        shlex.join(["kubectl", "cordon", *nodes]),
        shlex.join(["kubectl", "annotate", "--overwrite", "node", *nodes, f"envaudit/reason={reason}"]),
    ]


_WRITERS: Mapping[str, Callable[[Sequence[str], str], List[str]]] = {"slurm": _slurm, "kubectl": _kubectl}


def _ordered(nodes: Iterable[str]) -> Tuple[str, ...]:
    return tuple(sorted(nodes, key=natural_key))
