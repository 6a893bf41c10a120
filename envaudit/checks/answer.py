"""What a section of the checks answers: a value like that of the probe, which this room does not know."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Sequence


class Answer(NamedTuple):
    """What a section says, as `probe/answer.py` has it: status, facts, notes, errors."""

    status: str
    facts: Dict[str, Any]
    notes: Mapping[str, Any] = {}
    errors: Sequence[str] = ()
