"""What a section answers, and the law that its facts keep."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from envaudit.probe.secrets import clean

# The limits of the model that reads the answer (envaudit.model.canonical and codec): what is
# beyond them would make it refuse all sections of the node, not one.
_MAX_DEPTH = 31
_MAX_TEXT = 64 * 1024
_MAX_INTEGER = 2**64
_MAX_ERRORS = 255
_MAX_ERROR_TEXT = 2000


class Answer(NamedTuple):
    """What a section says of its subject.

    Attributes:
        status: `ok`, `partial` (facts that apply could not be read), `absent` (the subject is not
            on this node, and that was seen) or `error` (nothing could be read).
        facts: what two healthy equal nodes share; str, int, bool, None, list, dict, no floats.
        notes: what differs by nature. What needs root or a tool that is not there stands in
            `notes["not_examined"]` as what → reason, and makes no answer partial.
        errors: what failed and why, one text each.
    """

    status: str
    facts: Dict[str, Any]
    notes: Mapping[str, Any] = {}
    errors: Sequence[str] = ()


def row_of(name: str, schema: int, answer: Answer) -> Dict[str, Any]:
    """An answer as the JSON object that leaves the node.

    Raises:
        ValueError: it breaks the law of facts; the text names the key path.
    """
    _check(answer.facts, "facts", 0)
    _check(answer.notes, "notes", 0)
    return {
        "name": name,
        "schema": schema,
        "status": answer.status,
        "facts": answer.facts,
        "notes": answer.notes,
        "errors": _bounded(answer.errors),
    }


def error_row(name: str, schema: int, text: str) -> Dict[str, Any]:
    """The row of a section of which nothing could be read."""
    return row_of(name, schema, Answer("error", {}, {}, (text,)))


def _check(value: object, where: str, depth: int) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        if len(value) > _MAX_TEXT:
            raise ValueError(f"{where}: text of {len(value)} characters")
    elif isinstance(value, int):
        if abs(value) > _MAX_INTEGER:
            raise ValueError(f"{where}: integer out of range")
    elif depth >= _MAX_DEPTH:
        raise ValueError(f"{where}: nested too deep")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{where}: key of type {type(key).__name__}")
            _check(item, f"{where}.{key}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth + 1)
    else:
        raise ValueError(f"{where}: {type(value).__name__} is no fact")


def _bounded(errors: Sequence[str]) -> List[str]:
    # The words of a program or an exception may quote a URL with its credentials.
    texts = [clean(text[:_MAX_ERROR_TEXT]) for text in errors[:_MAX_ERRORS]]
    if len(errors) > _MAX_ERRORS:
        texts.append(f"and {len(errors) - _MAX_ERRORS} more")
    return texts
