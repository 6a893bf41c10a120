"""Which snapshot a tag, a time or `latest` means for a node."""

from __future__ import annotations

import os
import re
import time
from typing import Dict, Iterable, List, NoReturn, Sequence, Set

from envaudit.errors import UsageError
from envaudit.model.nodeset import fold
from envaudit.store.listing import newest_heads, snapshot_names
from envaudit.store.snapshot_file import parse_name
from envaudit.store.tags import LATEST, check_node, check_tag, is_tag, nodes_with, read_tag, tag_names

_TIME = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)([T ](?P<minute>\d\d:\d\d)(:(?P<second>\d\d)(\.\d{1,6})?)?)?(?P<utc>Z?)\Z"
)
_STAMP = "%Y%m%dT%H%M%SZ"
# So far the clocks of machines that share a store may be apart.
_AHEAD_S = 600


def locate(snapshots: str, tags: str, nodes: Sequence[str], reference: str) -> Dict[str, str]:
    """The snapshot file that `reference` means for each node; of no node it is asked whether the tag exists.

    Raises:
        UsageError: no such tag, no such time, a node without a snapshot; the nearest name is
            suggested.
        InputError: a file that may be the one in question is corrupt.
    """
    for node in nodes:
        check_node(node)
    names = snapshot_names(snapshots).snapshots
    if not names:
        raise UsageError(
            "the store has no snapshot yet",
            where=os.path.dirname(snapshots),
            next_step="Run 'envaudit snapshot' first, or name another store with --store.",
        )
    if is_tag(reference) and reference != LATEST:
        check_tag(reference)
        return _locate_tag(tags, nodes, reference)
    return _locate_newest(snapshots, nodes, reference, names)


def end_of(reference: str) -> str:
    """The first second after a time reference, as a UTC stamp `20261130T100100Z`.

    A time means its whole last unit: what `10:00` shows of 10:00:30 finds it, and a date
    includes that day. Without a Z it is local time.

    Raises:
        UsageError: not a time.
    """
    # Imported for a time alone, here and below: with its calendar it costs 4 ms.
    from datetime import datetime, timedelta, timezone

    match = _TIME.match(reference)
    try:
        if match is None:
            raise ValueError(reference)
        text = f"{match['day']} {match['minute'] or '00:00'}:{match['second'] or '00'}"
        start = datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
        unit = "seconds" if match["second"] else "minutes" if match["minute"] else "days"
        end = start + timedelta(**{unit: 1})
        # Without a zone, astimezone takes the local one with its summer time on that day.
        aware = end.replace(tzinfo=timezone.utc) if match["utc"] else end.astimezone(timezone.utc)
        return aware.strftime(_STAMP)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{reference!a} is neither a tag nor a time",
            next_step="A time is 2026-11-30, 2026-11-30T10:00 or 2026-11-30T10:00:00, UTC with a Z.",
        ) from None


def no_snapshot_of(snapshots: str, nodes: Iterable[str], known: Iterable[str]) -> NoReturn:
    """Raise the usage error for nodes that the store has never seen."""
    gone = sorted(nodes)
    raise UsageError(
        "no snapshot in the store",
        where=fold(gone),
        why=os.path.dirname(snapshots),
        next_step=_either(suggest(gone[0], known), "run 'envaudit snapshot --nodes' for it first."),
    )


def _locate_tag(tags: str, nodes: Sequence[str], tag: str) -> Dict[str, str]:
    found = {node: read_tag(tags, tag, node) for node in nodes}
    gone = [node for node, name in found.items() if name is None]
    if found and not gone:
        return {node: name for node, name in found.items() if name is not None}
    tagged = nodes_with(tags, tag)
    if not tagged:
        # A tag's folder is left, with nothing in it, where no node answered to be tagged.
        known = [name for name in tag_names(tags) if nodes_with(tags, name)]
        raise UsageError(
            f"no tag '{tag}' in the store",
            why=os.path.dirname(tags),
            next_step=suggest(tag, [*known, LATEST])
            or (f"Its tags are {', '.join(known[:8])}." if known else "It has no tags yet, only 'latest'."),
        )
    if not gone:
        return {}
    raise UsageError(
        f"no tag '{tag}' on this node",
        where=fold(gone),
        why=f"{fold(tagged)} have it" if len(tagged) > 1 else f"{tagged[0]} has it",
        next_step=_either(
            suggest(gone[0], tagged),
            f"give it one: envaudit baseline accept --from '{fold(gone)}@latest' --tag {tag}.",
        ),
    )


def _locate_newest(
    snapshots: str, nodes: Sequence[str], reference: str, names: Sequence[str]
) -> Dict[str, str]:
    end = _soon() if reference == LATEST else end_of(reference)
    old_enough = [name for name in names if _stamp(name) < end]
    later_ones = names[len(old_enough) :]
    if reference == LATEST:
        # Taken while a clock was ahead: older than what was taken since, and all the same better than none.
        old_enough, later_ones = [*later_ones, *old_enough], []
    found: Dict[str, str] = {}
    wanted = set(nodes)
    known: Set[str] = set()
    for name, head in newest_heads(snapshots, old_enough):
        found.update(dict.fromkeys(wanted.intersection(head["nodes"]), name))
        wanted.difference_update(head["nodes"])
        known.update(head["nodes"])
        if not wanted:
            return found
    oldest: Dict[str, str] = {}
    for name, head in newest_heads(snapshots, later_ones):
        oldest.update(dict.fromkeys(head["nodes"], name))
    never = wanted.difference(oldest)
    if never:
        no_snapshot_of(snapshots, never, known.union(oldest))
    later = sorted(wanted)
    raise UsageError(
        f"no snapshot as old as {reference}",
        where=fold(later),
        next_step=f"The oldest one of {later[0]} is of {_readable(_stamp(oldest[later[0]]))}.",
    )


def _either(meant: str, otherwise: str) -> str:
    """What was probably meant, and what to do where it was not: node02 beside node01 is no typing error."""
    return f"{meant} If not, {otherwise}" if meant else f"{otherwise[0].upper()}{otherwise[1:]}"


def suggest(name: str, known: Iterable[str]) -> str:
    """A sentence that names what was probably meant, or nothing."""
    import difflib  # only once something was mistyped

    near: List[str] = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean '{near[0]}'?" if near else ""


def _soon() -> str:
    """The stamp after which nothing can have been taken yet."""
    return time.strftime(_STAMP, time.gmtime(time.time() + _AHEAD_S))


def _stamp(name: str) -> str:
    match = parse_name(name)
    assert match is not None
    return match["stamp"]


def _readable(stamp: str) -> str:
    # By hand: the name of a file may tell an impossible time.
    return f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:11]}:{stamp[11:13]}:{stamp[13:]}"
