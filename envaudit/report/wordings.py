"""What the counting formats say of a finding: the lines of the text report, as many as a reader wants."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from envaudit.model.drift import Drift
from envaudit.model.finding import Finding
from envaudit.report import Report
from envaudit.report.layout import finding_lines
from envaudit.report.outcomes import rule_text
from envaudit.report.screen import printable, shortened
from envaudit.report.values import Difference, differences, known_groups

# A finding of a thousand nodes with a value of its own each fills a thousand lines.
_LINES = 24
_CHARACTERS = 300
_VALUE_CHARACTERS = 80
_OWN_VALUES = 10


class Wordings:
    """The words of one report's findings; each is made once, however many nodes it is about."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._lines: Dict[int, Tuple[str, ...]] = {}
        self._values: Dict[int, Tuple[List[Difference], Dict[str, int]]] = {}

    def title(self, rule_id: str) -> str:
        """`EA214 NCCL differs`: the same in each run, for CI systems follow a test by its name."""
        title = rule_text(rule_id, self._report).title
        return rule_id if title == rule_id else f"{rule_id} {printable(title)}"

    def lines(self, finding: Finding) -> Tuple[str, ...]:
        """The finding as the text report has it, below the names of its nodes."""
        made = self._lines.get(id(finding))
        if made is None:
            # Without nodes the first line names the whole run, which stands in the report already.
            whole = finding_lines(finding, self._report)[0 if finding.nodes else 1 :]
            every = [shortened(each, _CHARACTERS) for each in whole]
            rest = len(every) - _LINES
            made = tuple(every if rest <= 1 else [*every[:_LINES], f"{rest} more lines in the text report"])
            self._lines[id(finding)] = made
        return made

    def facts(self, finding: Finding) -> List[str]:
        """The same lines for a cell of a table, without columns, and without the names and the rule."""
        lines = [" ".join(each.split()) for each in self.lines(finding)[1 if finding.nodes else 0 :]]
        return [re.sub(rf"^. {finding.rule} ", "", each) for each in lines]

    def own_values(self, finding: Finding, node: str) -> List[str]:
        """What one node has where more than two values are about: a line a path."""
        told = []
        for drift in finding.drifts:
            if drift.kind == "unknown" or len(known_groups(drift)) < 3:
                continue
            rows, place_of = self._of(drift)
            if node in place_of:
                told += [f"{printable(row.path)} here: {row.texts[place_of[node]]}" for row in rows]
            if len(told) >= _OWN_VALUES:
                break
        return told[:_OWN_VALUES]

    def _of(self, drift: Drift) -> Tuple[List[Difference], Dict[str, int]]:
        made = self._values.get(id(drift))
        if made is None:
            known = known_groups(drift)
            places = {node: place for place, group in enumerate(known) for node in group.nodes}
            made = self._values[id(drift)] = (differences(drift, _VALUE_CHARACTERS), places)
        return made
