"""Values side by side, so that the eye sees what differs."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from envaudit.model.canonical import Fact, canonical_json
from envaudit.model.drift import Drift, Group, join_path
from envaudit.model.nodeset import fold
from envaudit.report.screen import ELLIPSIS, printable, shortened

# Characters that stay at least on each side of the part in which long values differ.
_CONTEXT = 8


# Whether a value is there, and the value.
Cell = Tuple[bool, Fact]


class Difference(NamedTuple):
    """A path and the texts of its values, one for each group whose value is known."""

    path: str
    texts: Tuple[str, ...]


def differences(drift: Drift, limit: int) -> List[Difference]:
    """A drift's values as texts, in the order of its groups.

    Lists of maps (GPUs, ports) that are equally long are taken apart, so that one GPU with
    another VBIOS reads `gpu/gpus[3]/vbios` and not two walls of JSON.

    Args:
        drift: of a kind other than `unknown`.
        limit: characters that a value may take; 0 for no limit.
    """
    known = known_groups(drift)
    values = [group.value for group in known]
    if all(_is_table(value) for value in values):
        if len({len(value) for value in values if isinstance(value, list)}) > 1:
            texts = [_count(value) for value in values if isinstance(value, list)]
            return [Difference(drift.path, tuple(texts))]
        return [
            Difference(f"{drift.path}{inside}", tuple(_texts(cells, limit)))
            for inside, cells in _cells(values)
        ]
    present = [group for group in known if group.state == "present"]
    if len(present) == 1 and present[0].value is None:
        texts = ["present" if group.state == "present" else "absent" for group in known]
    else:
        texts = _texts(
            [(group.state == "present", _measured(drift.path, group.value)) for group in known], limit
        )
    return [Difference(drift.path, tuple(texts))]


# The unit is in a fact's key; the larger units are taken where nothing is lost by it.
_UNITS = {
    "_bytes": ((1 << 30, "GiB"), (1 << 20, "MiB"), (1, "bytes")),
    "_gib": ((1, "GiB"),),
    "_mw": ((1000, "W"), (1, "mW")),
    "_mhz": ((1, "MHz"),),
    "_mbps": ((1, "Mbit/s"),),
}


def _measured(path: str, value: Fact) -> Fact:
    """A number with its unit, `700 W` of `gpu/each/power_limit_mw`; anything else as it is."""
    key = path.rpartition("/")[2]
    if key in ("soft", "hard"):
        key = path.split("/")[-2]
    steps = _UNITS.get(key[key.rfind("_") :])
    if steps is None or not isinstance(value, int) or isinstance(value, bool):
        return value
    size, unit = next((size, unit) for size, unit in steps if size == 1 or (value and value % size == 0))
    return f"{value // size} {unit}"


def known_groups(drift: Drift) -> List[Group]:
    """The groups whose value is known."""
    return [group for group in drift.groups if group.state != "unknown"]


def value_text(value: Fact) -> str:
    """A fact in one line: text bare where that is clear, the rest as JSON."""
    if isinstance(value, str):
        return printable(value) if value and value == value.strip() else f'"{printable(value)}"'
    if isinstance(value, dict) and isinstance(value.get("version"), str):
        named = [value["version"], value.get("build")]
        return printable(" ".join(part for part in named if isinstance(part, str)))
    if isinstance(value, dict) and isinstance(value.get("value"), str):
        return value_text(value["value"])
    # Canonical JSON is ASCII with every control escaped: printable as it is.
    return canonical_json(value)


def value_texts(values: Sequence[Fact], limit: int = 0) -> List[str]:
    """Facts that differ, as texts that differ too: the text "1" and the number 1 are told apart.

    Long values keep the part in which they differ.
    """
    texts = [value_text(value) for value in values]
    if len(set(texts)) < len(texts):
        texts = [canonical_json(value) for value in values]
    return _around_difference(texts, limit) if limit else texts


def _texts(cells: Sequence[Cell], limit: int) -> List[str]:
    """Texts of what is there, in order, and `absent` for what is not."""
    queue = iter(value_texts([value for is_there, value in cells if is_there], limit))
    return [next(queue) if is_there else "absent" for is_there, _ in cells]


def _count(table: Sequence[object]) -> str:
    return "1 entry" if len(table) == 1 else f"{len(table)} entries"


def _is_table(value: Fact) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _cells(tables: Sequence[Any]) -> List[Tuple[str, List[Cell]]]:
    """The cells in which equally long tables differ; rows that differ alike stand together."""
    alike: Dict[Tuple[str, str], List[int]] = {}
    cells_of: Dict[Tuple[str, str], List[Cell]] = {}
    for number, rows in enumerate(zip(*tables)):
        for key in sorted({key for row in rows for key in row}):
            cells = [(key in row, row.get(key)) for row in rows]
            if len({canonical_json(cell) for cell in cells}) > 1:
                place = (key, canonical_json(cells))
                alike.setdefault(place, []).append(number)
                cells_of[place] = cells
    return [
        (f"[{fold(map(str, numbers)).strip('[]')}]/{join_path(place[0])}", cells_of[place])
        for place, numbers in alike.items()
    ]


def _around_difference(texts: List[str], limit: int) -> List[str]:
    if all(len(text) <= limit for text in texts):
        return texts
    if len(texts) == 1:
        return [shortened(texts[0], limit)]
    prefix = _common_prefix(texts)
    suffix = _common_prefix([text[prefix:][::-1] for text in texts])
    differing = max(len(text) for text in texts) - prefix - suffix
    context = max(_CONTEXT, (limit - differing - 2 * len(ELLIPSIS)) // 2)
    before, after = max(0, prefix - context), max(0, suffix - context)
    cut = []
    for text in texts:
        inner = text[before : len(text) - after]
        inner = (ELLIPSIS if before else "") + inner + (ELLIPSIS if after else "")
        cut.append(shortened(text if len(text) <= limit else inner, limit))
    return cut if len(set(cut)) == len(set(texts)) else texts


def _common_prefix(texts: Sequence[str]) -> int:
    first, last = min(texts), max(texts)
    for place, character in enumerate(first):
        if place >= len(last) or last[place] != character:
            return place
    return len(first)
