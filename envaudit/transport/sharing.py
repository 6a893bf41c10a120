"""One reading of a shared environment, taken for all nodes that see it in the same state.

`envaudit.probe.stamp` says when a node leaves the sections of its environment to another. Here is
decided which node reads them, and what becomes of those that wait:

- in the first round one node is told to read whatever it has, all others to wait. Where all have
  one environment that is all, and on local disks no node waits for anything;
- of each (source, path, stamp) that nobody has read yet, the next round asks one node. A reading
  that failed makes the next node the reader, three at most;
- what is still open then stays an error: unknown, never equal.

A node's stamp is its own claim and decides about its own sections alone: one that lies gets
another's facts, which it could have stated anyway. The reader's lie is its followers' too. Where
single nodes are not to be trusted, `every_node` has each of them read for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from envaudit.model.fingerprint import Fingerprint, Snapshot
from envaudit.model.section import Section
from envaudit.probe.stamp import LEAD, LEFT, NOTE, OPTION, WAIT
from envaudit.transport.causes import one_line
from envaudit.transport.interface import Request

# Source, path and stamp of an environment as a node sees it.
_Seen = tuple[str, str, str]

_READERS_TRIED = 3


def first_round(request: Request, reader: str) -> Callable[[str, bool], Request]:
    """What each node is asked at first, by its name and whether the way to it is a tree of gateways.

    A gateway tells all nodes the same; there all of them wait, and a second round has a reader.
    """

    def request_of(node: str, through_tree: bool) -> Request:
        return _with_part(request, LEAD if node == reader and not through_tree else WAIT)

    return request_of


def later_round(request: Request, sections: tuple[str, ...]) -> Request:
    """What the readers of a later round are asked: to read these sections whole."""
    return _with_part(request._replace(sections=sections, also=()), LEAD)


def _with_part(request: Request, part: str) -> Request:
    return request._replace(options={**request.options, OPTION: part})


class Sharing:
    """The nodes of one run: who has read which environment, and who waits for it.

    Attributes:
        sections: the names of the sections that the next round is about.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.sections: tuple[str, ...] = ()
        self._snapshot = snapshot
        self._read: dict[str, dict[str, Section]] = {}
        self._waiting: dict[tuple[_Seen, str], list[str]] = {}
        self._whole: dict[tuple[_Seen, str], tuple[str, Section]] = {}
        self._each: set[tuple[_Seen, str]] = set()
        self._tried: dict[tuple[_Seen, str], dict[str, str]] = {}
        self._asked: list[tuple[_Seen, str, str]] = []
        for fingerprint in snapshot.fingerprints:
            for name, section in fingerprint.sections.items():
                seen = _seen(section)
                if seen is None:
                    continue
                if _is_left(section):
                    self._waiting.setdefault((seen, name), []).append(fingerprint.node)
                else:
                    self._offer(seen, fingerprint.node, section)
        self._settle()

    def next_readers(self) -> list[str]:
        """The nodes that read whole in the next round; none when there is no such round."""
        self._asked = []
        for (seen, name), nodes in self._waiting.items():
            tried = self._tried.setdefault((seen, name), {})
            untried = [node for node in nodes if node not in tried]
            if (seen, name) not in self._each:
                untried = untried[:1] if len(tried) < _READERS_TRIED else []
            self._asked += [(seen, name, node) for node in untried]
        self.sections = tuple(sorted({name for _, name, _ in self._asked}))
        return list(dict.fromkeys(node for _, _, node in self._asked))

    def take(self, answers: Snapshot) -> None:
        """What the readers of the round answered."""
        by_node = answers.by_node
        for seen, name, node in self._asked:
            fingerprint = by_node.get(node)
            section = fingerprint.sections.get(name) if fingerprint is not None else None
            if section is None or _is_left(section):
                gone = answers.missing.get(node)
                self._tried[seen, name][node] = gone.why if gone is not None else "did not read it either"
                continue
            self._waiting[seen, name].remove(node)
            self._read.setdefault(node, {})[name] = section
            self._tried[seen, name][node] = section.errors[0] if section.errors else section.status
            now = _seen(section)
            if now is not None:
                self._offer(now, node, section)
        self._settle()

    def snapshot(self) -> Snapshot:
        """All nodes with the sections that they, or their readers, have read."""
        by_node = self._snapshot.by_node
        for (seen, name), nodes in self._waiting.items():
            tried = [f"{node} ({one_line(why)})" for node, why in self._tried.get((seen, name), {}).items()]
            why = f"not read: left to a node of the same shared environment; asked were {', '.join(tried)}"
            for node in nodes:
                section = by_node[node].sections[name]
                self._read.setdefault(node, {})[name] = section.with_details(section.notes, (why,))
        return replace(
            self._snapshot,
            fingerprints=tuple(self._joined(each) for each in self._snapshot.fingerprints),
        )

    def _joined(self, fingerprint: Fingerprint) -> Fingerprint:
        read = self._read.get(fingerprint.node)
        return replace(fingerprint, sections={**fingerprint.sections, **read}) if read else fingerprint

    def _offer(self, seen: _Seen, node: str, section: Section) -> None:
        """Let a section that was read stand for all that wait for it."""
        if section.status == "error":
            return
        if section.name == "packages" and _has_editable(section):
            # The checkout behind such a package may lie anywhere, also on each node's own disk.
            self._each.add((seen, section.name))
        else:
            self._whole.setdefault((seen, section.name), (node, section))

    def _settle(self) -> None:
        """Give the waiting nodes what has been read by now."""
        for key, (reader, section) in self._whole.items():
            waiting = self._waiting.pop(key, ())
            if not waiting:
                continue
            note = section.notes[NOTE]
            assert isinstance(note, dict)
            notes = {**section.notes, NOTE: {**note, "read_by": reader}}
            taken = section.with_details(notes, section.errors)
            for node in waiting:
                self._read.setdefault(node, {})[section.name] = taken


def _seen(section: Section) -> _Seen | None:
    """What a section says of the shared environment that it belongs to, if it does and says it."""
    note = section.notes.get(NOTE)
    if not isinstance(note, dict):
        return None
    source, path, stamp = note.get("source"), note.get("path"), note.get("stamp")
    if isinstance(source, str) and isinstance(path, str) and isinstance(stamp, str):
        return source, path, stamp
    return None


def _is_left(section: Section) -> bool:
    return section.status == "error" and section.errors == (LEFT,)


def _has_editable(section: Section) -> bool:
    distributions = section.facts.get("distributions")
    if not isinstance(distributions, dict):
        return True
    return any(not isinstance(one, Mapping) or "editable" in one for one in distributions.values())
