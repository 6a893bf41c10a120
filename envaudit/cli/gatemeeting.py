"""The processes of one launch meet before it: what they tell each other of their nodes.

Each node is read by one of its processes before anybody meets. What it says:

    gate.read     {"captured_at", "sections": {name: digest}, "notable": [name]}   what it has read
    gate.part     {"name", "number", "of", "text"}    a section that it was asked for, deflated
    gate.road     {"rows": {rank: row}}               how NCCL connected its ranks (`road.py`)
    gate.checked  as gate.read, of the sections that were made meanwhile
    gate.bye      {}                                  it has the verdict

and what it is told:

    gate.ask      {"sections": [name]}                tell these
    gate.check    {"collectives": bool}               run what is to be run
    gate.verdict  {"code", "line"}                    how it ended
    gate.leave    {}                                  all have it: leave together

A section is asked for where nobody has told one of that digest, once for all nodes that have it; and
where the node's own rules speak of it, for they may rest on notes, which a digest does not cover. So a
healthy node says one line.
"""

from __future__ import annotations

import base64
import json
import math
import re
import time
import zlib
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from envaudit.control.client import Client
from envaudit.control.hub import Event, Hub
from envaudit.errors import InputError
from envaudit.model import Fingerprint, Missing, Section
from envaudit.model.codec import NODE_NAME, parse_json, section_of_mapping

READ, PART, ROAD, CHECKED, BYE = "gate.read", "gate.part", "gate.road", "gate.checked", "gate.bye"
ASK, CHECK, VERDICT, LEAVE = "gate.ask", "gate.check", "gate.verdict", "gate.leave"

# Of a digest; 16 bytes tell apart whatever differs by accident, and a node that wants to lie can.
_DIGEST_BYTES = 16
_PART_CHARACTERS = 256 * 1024
_MAX_PARTS = 256
_MAX_SECTION_BYTES = 16 << 20
# What one node may tell in all, as text and inflated: no node has a tenth of it.
_MAX_NODE_BYTES = 2 * _MAX_SECTION_BYTES
_TICK_S = 0.2
_LEAVE_S = 3.0
_RANK = re.compile(r"\d{1,7}\Z", re.ASCII)


class Told(NamedTuple):
    """How the meeting ended for a member: the exit code, and the verdict's line."""

    code: int
    line: str


def short_digest(section: Section) -> str:
    """A section's digest in 22 characters."""
    whole = bytes.fromhex(section.digest)[:_DIGEST_BYTES]
    return base64.urlsafe_b64encode(whole).decode("ascii").rstrip("=")


def said_of(sections: Mapping[str, Section], notable: Iterable[str], captured_at: str) -> Dict[str, Any]:
    """What a node says of its sections before it is asked for any."""
    return {
        "captured_at": captured_at,
        "sections": {name: short_digest(section) for name, section in sorted(sections.items())},
        "notable": sorted(set(notable).intersection(sections)),
    }


class Attendant:
    """A member's side, from joining to the verdict.

    Args:
        client: connected to the hub.
        sections: what this process has read of its node; empty where another one reads it.
    """

    def __init__(self, client: Client, sections: Mapping[str, Section]) -> None:
        self._client = client
        self._sections = dict(sections)

    def tell(
        self, kind: str, sections: Mapping[str, Section], notable: Sequence[str], captured_at: str
    ) -> None:
        """Say what was read, or made, here."""
        self._sections.update(sections)
        self._client.send(kind, said_of(sections, notable, captured_at))

    def tell_road(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Say how the ranks of this process were connected; each process does, with or without rows."""
        self._client.send(ROAD, {"rows": rows})

    def attend(self, check: Callable[[bool], None]) -> Told:
        """Answer until all may leave.

        Args:
            check: runs what is to be run; whether with collectives.

        Raises:
            HubLost: the hub has gone before there was a verdict.
        """
        told: Optional[Told] = None
        while True:
            try:
                messages = self._client.poll(_TICK_S)
                self._client.beat()
            except Exception:
                if told is not None:
                    return told
                raise
            for kind, body in messages:
                if kind == ASK:
                    self._answer(body["sections"])
                elif kind == CHECK:
                    check(bool(body["collectives"]))
                elif kind == VERDICT:
                    told = Told(int(body["code"]), str(body["line"]))
                    self._client.send(BYE, {})
                elif kind == LEAVE and told is not None:
                    return told

    def _answer(self, names: Sequence[str]) -> None:
        for name in names:
            section = self._sections.get(name)
            if section is None:
                continue
            texts = _deflated(section)
            for number, text in enumerate(texts):
                self._client.send(PART, {"name": name, "number": number, "of": len(texts), "text": text})


class _Node:
    """What is known of one node that some process reads.

    Attributes:
        said: digest by section, None before it has said anything.
        asked: the sections that it was asked for and has not told.
        told: whole sections.
        left_bytes: how much more it may tell.
        lost: why nothing more will come; None while it may.
    """

    def __init__(self, index: int, label: str) -> None:
        self.index = index
        self.label = label
        self.said: Optional[Dict[str, str]] = None
        self.captured_at = ""
        self.asked: Set[str] = set()
        self.told: Dict[str, Section] = {}
        self.parts: Dict[str, Dict[int, str]] = {}
        self.left_bytes = _MAX_NODE_BYTES
        self.lost: Optional[Missing] = None


class Gathering:
    """The hub's side: the nodes' sections, each told by one of those that have it.

    Args:
        hub: whose members have joined.
        known: sections that need not be asked for, such as this process' own.
        tool: the version to state.

    Attributes:
        nodes: by index, of the members that read a node.
        asked: how many sections were asked for in all.
        roads: how ranks were connected, by rank.
    """

    def __init__(self, hub: Hub, known: Iterable[Section], tool: str) -> None:
        self._hub = hub
        self._tool = tool
        self._pool = {short_digest(section): section for section in known}
        self.nodes: Dict[int, _Node] = {}
        self.asked = 0
        self.roads: Dict[str, Any] = {}
        self._owing: Set[int] = set()
        labels: Set[str] = set()
        for index, member in sorted(hub.members.items()):
            if member.hello.get("reads") is not True:
                continue
            label = member.node if NODE_NAME.match(member.node) else f"rank{index}"
            # Two machines that call themselves alike are still two.
            while label in labels:
                label += f":{index}"
            labels.add(label)
            self.nodes[index] = _Node(index, label)
            if member.left:
                self._lose(self.nodes[index], member.left)

    def expect_roads(self) -> None:
        """Hear in the next round how the ranks of every process were connected."""
        self._owing = {index for index, member in self._hub.members.items() if not member.left}

    def gather(
        self, seconds: float, kind: str = READ, events: Sequence[Event] = (), silence_s: float = math.inf
    ) -> None:
        """Hear what every node has read, and ask for what nobody knows; no longer than that.

        Args:
            seconds: how long a node may say nothing.
            kind: `gate.read`, or `gate.checked` for what was made meanwhile.
            events: what has arrived already.
            silence_s: how long a process that beats while it works may not be heard at all; one that is
                stopped, or whose machine has died, would hold the launch for the whole of `seconds`.
        """
        waiting = {index for index, node in self.nodes.items() if node.lost is None}
        deadline = time.monotonic() + seconds
        self._take(events, kind, waiting)
        while waiting or self._owing or any(n.asked for n in self.nodes.values() if n.lost is None):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            if self._take(self._hub.poll(min(left_s, _TICK_S)), kind, waiting):
                deadline = time.monotonic() + seconds
            self._give_up(waiting, silence_s)
        self._owing.clear()
        for node in self.nodes.values():
            if node.lost is None and (node.index in waiting or node.asked):
                node.lost = Missing("timeout", f"it said nothing for {seconds:g} s")

    def fingerprints(self) -> Tuple[Tuple[Fingerprint, ...], Dict[str, Missing]]:
        """Of the nodes that said all, and of the others why there is none."""
        made: List[Fingerprint] = []
        missing: Dict[str, Missing] = {}
        for node in self.nodes.values():
            if node.lost is not None or node.said is None:
                missing[node.label] = node.lost or Missing("timeout", "it said nothing")
                continue
            sections = {name: self._section(node, name, digest) for name, digest in node.said.items()}
            made.append(Fingerprint(node.label, "inband", node.captured_at, self._tool, sections))
        return tuple(made), missing

    def _give_up(self, waiting: Set[int], silence_s: float) -> None:
        """Wait no longer for who is not heard at all."""
        now = time.monotonic()
        silent = {i for i, member in self._hub.members.items() if now - member.heard_at > silence_s}
        self._owing -= silent
        for index in silent & set(self.nodes):
            node = self.nodes[index]
            if node.lost is None and (index in waiting or node.asked):
                node.lost = Missing("timeout", f"it was not heard for {silence_s:g} s")
                waiting.discard(index)
                self._ask_others(node)

    def _take(self, events: Sequence[Event], kind: str, waiting: Set[int]) -> bool:
        """Take what nodes say; whether any of them said something that was waited for."""
        heard = False
        for event in events:
            if event.kind == ROAD and event.index in self._owing:
                self.roads.update(_rows(event.body))
                heard = True
            if event.kind in (ROAD, ""):
                self._owing.discard(event.index)
            node = self.nodes.get(event.index)
            if node is None or node.lost is not None:
                continue
            try:
                if not event.kind:
                    self._lose(node, str(event.body))
                elif event.kind == kind and event.index in waiting:
                    self._read(node, event.body)
                    waiting.discard(event.index)
                elif event.kind == PART:
                    self._part(node, event.body)
                else:
                    continue
                heard = True
            except (InputError, KeyError, TypeError, ValueError, AttributeError, zlib.error) as error:
                node.lost = Missing("corrupt", f"it says what no node says ({type(error).__name__}: {error})")
            if node.lost is not None:
                waiting.discard(event.index)
                self._ask_others(node)
        return heard

    def _read(self, node: _Node, body: Mapping[str, Any]) -> None:
        digests = {str(name): str(digest) for name, digest in body["sections"].items()}
        node.captured_at = node.captured_at or str(body["captured_at"])
        node.said = {**(node.said or {}), **digests}
        notable = set(map(str, body["notable"]))
        self._ask(node, [name for name, digest in digests.items() if name in notable or self._is_new(digest)])

    def _is_new(self, digest: str) -> bool:
        """Whether nobody has told a section of this digest, or is about to."""
        return digest not in self._pool and not any(
            other.said is not None and other.said.get(name) == digest
            for other in self.nodes.values()
            for name in other.asked
        )

    def _ask(self, node: _Node, names: Sequence[str]) -> None:
        if names:
            node.asked.update(names)
            self.asked += len(names)
            self._hub.send(node.index, ASK, {"sections": sorted(names)})

    def _ask_others(self, gone: _Node) -> None:
        """What a node was to tell that has gone, another one that has it is asked for."""
        said = gone.said or {}
        names, gone.asked = gone.asked, set()
        for name in names:
            digest = said.get(name, "")
            if digest in self._pool:
                continue
            others = (
                node
                for node in self.nodes.values()
                if node.lost is None and node.said is not None and node.said.get(name) == digest
            )
            other = next(others, None)
            if other is not None:
                self._ask(other, [name])

    def _part(self, node: _Node, body: Mapping[str, Any]) -> None:
        name, number, of = str(body["name"]), int(body["number"]), int(body["of"])
        if name not in node.asked or node.said is None or not 0 <= number < of <= _MAX_PARTS:
            raise ValueError("a part that nobody asked for")
        parts = node.parts.setdefault(name, {})
        if number in parts:
            raise ValueError("a part for the second time")
        parts[number] = str(body["text"])
        node.left_bytes -= len(parts[number])
        if node.left_bytes <= 0:
            raise ValueError(f"more than {_MAX_NODE_BYTES >> 20} MiB")
        if len(parts) < of:
            return
        data = _inflated("".join(parts[place] for place in range(of)), node.left_bytes)
        node.left_bytes -= len(data)
        where = f"{node.label}: {name}"
        section = section_of_mapping(parse_json(data.decode("ascii"), where), where)
        del node.parts[name]
        node.asked.discard(name)
        if section.name != name or short_digest(section) != node.said[name]:
            raise ValueError(f"section {name} is not what its digest says")
        node.told[name] = section
        # Another node's notes and errors are not this one's.
        self._pool.setdefault(node.said[name], section.with_details({}, ()))

    def _section(self, node: _Node, name: str, digest: str) -> Section:
        told = node.told.get(name)
        if told is not None:
            return told
        held = self._pool.get(digest)
        if held is None:
            return Section(name, 1, "error", {}, {}, ("it was not told",))
        return held

    def _lose(self, node: _Node, why: str) -> None:
        node.lost = Missing("crashed", f"its process has gone: {why}")


def let_leave(hub: Hub, code: int, line: str) -> None:
    """Tell the verdict, and let all leave together once they have it, or soon.

    A launcher ends the others when the first process ends with another code than 0.
    """
    hub.broadcast(VERDICT, {"code": code, "line": line})
    waiting = {index for index, member in hub.members.items() if not member.left}
    deadline = time.monotonic() + _LEAVE_S
    while waiting and time.monotonic() < deadline:
        for event in hub.poll(_TICK_S):
            if event.kind in (BYE, ""):
                waiting.discard(event.index)
    hub.broadcast(LEAVE, {})


def _rows(body: Any) -> Dict[str, Any]:
    """What a process says of roads, as far as it is that; rules read the rest with care."""
    rows = body.get("rows") if isinstance(body, dict) else None
    if not isinstance(rows, dict):
        return {}
    return {rank: row for rank, row in rows.items() if _RANK.match(rank) and isinstance(row, dict)}


def _deflated(section: Section) -> List[str]:
    row = {
        "name": section.name,
        "schema": section.schema,
        "status": section.status,
        "facts": section.facts,
        "notes": section.notes,
        "errors": list(section.errors),
        "whole": list(section.whole),
    }
    text = base64.b64encode(zlib.compress(json.dumps(row).encode("ascii"), 6)).decode("ascii")
    return [text[start : start + _PART_CHARACTERS] for start in range(0, len(text), _PART_CHARACTERS)]


def _inflated(text: str, limit_bytes: int) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(base64.b64decode(text, validate=True), min(limit_bytes, _MAX_SECTION_BYTES))
    if inflater.unconsumed_tail or not inflater.eof:
        raise ValueError(f"a section of more than {_MAX_SECTION_BYTES >> 20} MiB, or half of one")
    return data
