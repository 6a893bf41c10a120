"""What rules would look at where they may, and could not: told in one line, and never a finding.

Reading some things takes root or a program that is absent. A node on which that is so is healthy for
all that is known, and whoever relies on a rule must know that it had nothing to judge.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Tuple

from envaudit.model.nodeset import fold
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, all_rules

_TAKES_ROOT = re.compile(r"\broot\b|not permitted|permission", re.IGNORECASE)
_LONGEST = 80


class Unexamined(NamedTuple):
    """Some things that could not be looked at, for one reason, on some nodes.

    Attributes:
        what: as the probe calls it, `ACS`.
        why: `needs root`, or what the node said.
        nodes: on which.
    """

    what: Tuple[str, ...]
    why: str
    nodes: Tuple[str, ...]

    @property
    def words(self) -> str:
        """`ACS, Xid lines of the kernel's log (needs root) on node[01-08]`."""
        return f"{', '.join(self.what)} ({self.why}) on {fold(self.nodes)}"


def unexamined(evidence: Evidence, policy: Policy) -> Tuple[Unexamined, ...]:
    """The advisory facts of the rules that judge this run, where a node could not tell them."""
    nodes_of: Dict[Tuple[str, str], List[str]] = {}
    wanted = [
        (need, word)
        for rule in all_rules()
        if policy.level_of(rule.id, rule.severity) != "off"
        for need in rule.needs
        for word in rule.advisory
        if evidence.covers(need)
    ]
    for fingerprint in evidence.fingerprints:
        for need, word in dict.fromkeys(wanted):
            section = fingerprint.sections.get(need)
            told = section.notes.get("not_examined") if section is not None else None
            why = told.get(word) if isinstance(told, dict) else None
            if isinstance(why, str):
                reason = "needs root" if _TAKES_ROOT.search(why) else why[:_LONGEST]
                nodes_of.setdefault((word, reason), []).append(fingerprint.node)
    words_of: Dict[Tuple[str, Tuple[str, ...]], List[str]] = {}
    for (word, reason), nodes in nodes_of.items():
        words_of.setdefault((reason, tuple(nodes)), []).append(word)
    return tuple(Unexamined(tuple(words), reason, nodes) for (reason, nodes), words in words_of.items())
