"""Where a finding about a file is: the file, and the line and column in it."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from envaudit.model.finding import Finding

_PLACE = re.compile(r"(?P<path>.+?)(?::(?P<line>[0-9]{1,9}):(?P<column>[0-9]{1,9}))?\Z", re.DOTALL)
# EA000 to EA099 judge environment files and locks; the paths of all others are those of facts.
_OF_FILES = re.compile(r"EA0[0-9]{2}\Z")


class Place(NamedTuple):
    """A place in a file; line and column count from 1, and are 0 where the file as a whole is meant."""

    path: str
    line: int = 0
    column: int = 0


def place_of(finding: Finding) -> Optional[Place]:
    """The place that a finding of an environment file or a lock names; None for any other finding."""
    if finding.nodes or not _OF_FILES.match(finding.rule):
        return None
    match = _PLACE.match(finding.path)
    if match is None:
        return None
    return Place(match["path"], int(match["line"] or 0), int(match["column"] or 0))
