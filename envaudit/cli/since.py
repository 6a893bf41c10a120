"""Since when a finding holds: the first of a node's stored snapshots that has what it has now."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from envaudit.errors import EnvauditError
from envaudit.model import Finding, Fingerprint, canonical_json, split_path
from envaudit.model.finding import SEVERITIES
from envaudit.rules import Evidence, Policy, judge
from envaudit.store import Entry, Store

# How far back a history is read, in snapshots of one node, and how many are read in all: one of a
# thousand nodes takes a third of a second.
_MAX_BACK = 50
_MAX_READ = 50

# The segment under which a version's local tag is told apart; the fact itself is the version.
_LOCAL, _VERSION = "local", "version"


def with_since(
    findings: Sequence[Finding], current: Sequence[Fingerprint], store: Store, policy: Policy
) -> Tuple[Finding, ...]:
    """The findings, each with the time of the first snapshot since which it holds.

    A difference holds since its facts are as they are; what is judged on a node alone, since the
    same was to be said of that node's snapshots: that may rest on notes, free space or counters.

    Where a finding is about several nodes, the earliest time counts. A node without a history, and
    a finding without a fact, say nothing.
    """
    by_node = {fingerprint.node: fingerprint for fingerprint in current}
    alone = {node for finding in findings if not finding.drifts for node in finding.nodes}
    history = _History(store, policy, alone)
    return tuple(replace(finding, since=_since(finding, by_node, history)) for finding in findings)


def _since(finding: Finding, by_node: Mapping[str, Fingerprint], history: _History) -> str:
    paths = [drift.path for drift in finding.drifts]
    times = [
        time
        for node in finding.nodes
        if node in by_node
        for time in [
            history.first_with(by_node[node], paths) if paths else history.first_saying(finding, node)
        ]
        if time
    ]
    return min(times, default="")


class _History:
    """The stored snapshots of some nodes, each read once."""

    def __init__(self, store: Store, policy: Policy, alone: Set[str]) -> None:
        """`alone` are the nodes of which something was judged on the node by itself."""
        self._store = store
        self._alone = alone
        self._policy = policy
        self._said: Dict[str, Set[Tuple[str, str, str, str]]] = {}
        self._read: Dict[str, Mapping[str, Fingerprint]] = {}
        self._entries: Optional[List[Entry]] = None

    def first_with(self, now: Fingerprint, paths: Iterable[str]) -> str:
        """The time of the oldest snapshot from which on the facts at some paths never changed."""
        wanted = {path: value_at(now, path) for path in paths}
        first = ""
        for entry in reversed(self._of(now.node)[-_MAX_BACK:]):
            before = self._nodes_of(entry.name).get(now.node)
            if before is None or any(value_at(before, path) != value for path, value in wanted.items()):
                break
            first = entry.captured_at
        return first

    def first_saying(self, finding: Finding, node: str) -> str:
        """The time of the oldest snapshot from which on this was to be said of the node by itself."""
        first = ""
        for entry in reversed(self._of(node)[-_MAX_BACK:]):
            if (finding.rule, finding.path, finding.message, node) not in self._said_of(entry.name):
                break
            first = entry.captured_at
        return first

    def _said_of(self, name: str) -> Set[Tuple[str, str, str, str]]:
        if name not in self._said:
            nodes = tuple(each for each in self._nodes_of(name).values() if each.node in self._alone)
            found = judge(Evidence(nodes, comparing=False), self._policy) if nodes else ()
            self._said[name] = {
                (each.rule, each.path, each.message, node) for each in found for node in each.nodes
            }
        return self._said[name]

    def _of(self, node: str) -> List[Entry]:
        """The node's snapshots, oldest first; none where files were compared that no store knows."""
        if self._entries is None:
            self._entries = self._store.entries()
        return [entry for entry in self._entries if node in entry.nodes]

    def _nodes_of(self, name: str) -> Mapping[str, Fingerprint]:
        """What a snapshot holds; nothing of one too many, or of one that cannot be read any more."""
        if name not in self._read and len(self._read) < _MAX_READ:
            try:
                self._read[name] = self._store.load(name).by_node
            except EnvauditError:
                self._read[name] = {}
        return self._read.get(name, {})


def value_at(fingerprint: Fingerprint, path: str) -> Optional[str]:
    """The fact at a path as canonical JSON; None where it is not there or could not be read."""
    name, *segments = split_path(path)
    section = fingerprint.sections.get(name)
    if section is None or section.status == "error":
        return None
    if segments and segments[-1] == _LOCAL:
        segments = [*segments[:-1], _VERSION]
    value: object = section.facts
    for segment in segments:
        if not isinstance(value, Mapping) or segment not in value:
            return "absent"
        value = value[segment]
    return canonical_json(value)


def seen_before(
    findings: Sequence[Finding], before: Sequence[Finding], labels: Mapping[str, str]
) -> Tuple[List[Finding], int]:
    """The findings that are new or worse, and how many old ones were left out.

    What is said otherwise, or is more severe, than it was of the baseline is not what somebody knew.

    Args:
        findings: of now.
        before: of the baselines, judged by themselves.
        labels: node → the name of its baseline.
    """
    known: Dict[Tuple[str, str, str, str], int] = {}
    for finding in before:
        for node in finding.nodes:
            key = (finding.rule, finding.path, finding.message, node)
            known[key] = min(known.get(key, len(SEVERITIES)), SEVERITIES.index(finding.severity))
    fresh: List[Finding] = []
    left_out = 0
    for finding in findings:
        if finding.drifts or finding.severity == "incomplete" or not finding.nodes:
            fresh.append(finding)
            continue
        new = tuple(
            node
            for node in finding.nodes
            if SEVERITIES.index(finding.severity)
            < known.get((finding.rule, finding.path, finding.message, labels.get(node, "")), len(SEVERITIES))
        )
        if new:
            fresh.append(replace(finding, nodes=new))
        left_out += len(new) < len(finding.nodes)
    return fresh, left_out
