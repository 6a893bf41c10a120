"""Path MTU between nodes: the largest packet that arrives unfragmented, and whether larger ones vanish.

Each node sends UDP packets that must not be fragmented (RFC 1191; ip(7): IP_PMTUDISC_PROBE sends them
whatever the kernel thinks that the path takes) to an echo at each other node, which answers with a few
bytes. Where a large packet gets no answer and no ICMP message says why, the path is a *black hole*: small
messages pass, a connection opens, and the first large one hangs it. Standard library only.

The row of a node:

    interface, address    what was probed from
    mtu        of that interface, in bytes
    equal      how many other nodes its largest packets reach
    peers      {"node02": {"state": "black_hole", "mtu": 1400}}: the others. `less`: a router said how
               much it takes; `black_hole`: nobody did; `silent`: not even small packets are answered
"""

from __future__ import annotations

import errno
import fcntl
import os
import selectors
import socket
import struct
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

# From linux/in.h and linux/in6.h; socket has no names for them before Python 3.12.
_IP_MTU_DISCOVER, _IP_RECVERR, _IP_MTU, _PMTUDISC_PROBE = 10, 11, 14, 3
_IPV6_MTU_DISCOVER, _IPV6_RECVERR, _IPV6_MTU = 23, 25, 24
_SIOCGIFMTU = 0x8921
_MSG_ERRQUEUE = 0x2000

# Every host takes so much (RFC 791), and every link of IPv6 1280 (RFC 8200).
_LEAST_MTU = 576
_LEAST_MTU_V6 = 1280
_MOST_MTU = 65535
_HEADERS_V4, _HEADERS_V6 = 28, 48
_MAGIC = b"eaMTU1"
_NONCE_BYTES = 16
# Magic, the run's nonce, the prober's number of the packet, and its size.
_HEAD = struct.Struct("!6s16sIH")
_TRIES = 3
_WAIT_S = 0.25
_SIZES = 8
_TICK_S = 0.02
_AHEAD = 64

OK, LESS, BLACK_HOLE, SILENT = "ok", "less", "black_hole", "silent"


class Peer:
    """One way to another node, under search: a few sizes at a time, until the largest good one is known."""

    def __init__(self, node: str, address: Tuple[str, int], most: int, least: int) -> None:
        self.node = node
        self.address = address
        self.least, self.most = least, most
        self.good, self.bad = 0, most + 1
        self.told = 0
        # Under way at first: the smallest, without which nothing is known, and the largest, mostly all.
        self.sizes = sorted({least, most})
        self.tries = 0
        self.sent_at = 0.0
        self.done = False

    def arrived(self, size: int) -> None:
        """A packet of this size was answered."""
        self.good = max(self.good, size)
        self.sizes = [each for each in self.sizes if each > self.good]
        if not self.sizes:
            self._next()

    def lost(self) -> None:
        """What is still under way was not answered, however often it was sent."""
        self.bad = min([self.bad, *self.sizes])
        self._next()

    def refused(self, mtu: int) -> None:
        """A router said how much the way takes."""
        if self.least <= mtu < self.bad:
            self.told, self.bad = mtu, mtu + 1
            self._next()

    def _next(self) -> None:
        self.tries, self.sent_at = 0, 0.0
        if self.good + 1 >= self.bad or self.bad <= self.least:
            self.done = True
        elif self.told > self.good:
            self.sizes = [self.told]
        else:
            room = self.bad - self.good
            self.sizes = sorted(
                {self.good + max(1, room * step // (_SIZES + 1)) for step in range(1, _SIZES + 1)}
            )

    @property
    def state(self) -> str:
        """What the search came to."""
        if not self.good:
            return SILENT
        if self.good >= self.most:
            return OK
        return LESS if self.told == self.good else BLACK_HOLE


class Prober:
    """The echo of this node, and the search on the ways from it.

    Args:
        address: of this node, on the interface that is to be probed.
        interface: its name; empty where it is not known.
        nonce: bytes that all nodes of the run share, so that nobody else is answered.
    """

    def __init__(self, address: str, interface: str, nonce: bytes) -> None:
        self.interface = interface
        self.address = address
        self.nonce = nonce
        self._family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._is_v6 = self._family == socket.AF_INET6
        self._headers = _HEADERS_V6 if self._is_v6 else _HEADERS_V4
        self._echo = self._bound()
        self._probe = self._bound()
        level = socket.IPPROTO_IPV6 if self._is_v6 else socket.IPPROTO_IP
        discover = _IPV6_MTU_DISCOVER if self._is_v6 else _IP_MTU_DISCOVER
        self._probe.setsockopt(level, discover, _PMTUDISC_PROBE)
        self._probe.setsockopt(level, _IPV6_RECVERR if self._is_v6 else _IP_RECVERR, 1)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._echo, selectors.EVENT_READ)
        self._selector.register(self._probe, selectors.EVENT_READ)
        self.port: int = self._echo.getsockname()[1]
        self.peers: List[Peer] = []
        self._number = 0
        self._asked: Dict[int, Peer] = {}

    def close(self) -> None:
        """Give the sockets back."""
        self._selector.close()
        self._echo.close()
        self._probe.close()

    @property
    def mtu(self) -> int:
        """Of the interface, in bytes."""
        return interface_mtu(self.interface) if self.interface else 0

    def aim(self, others: Mapping[str, Tuple[str, int]]) -> None:
        """Search the ways to these nodes: name → address and port of their echo."""
        least = _LEAST_MTU_V6 if self._is_v6 else _LEAST_MTU
        for node, address in others.items():
            most = min(self.mtu or self._route_mtu(address), _MOST_MTU)
            self.peers.append(Peer(node, address, max(most, least), least))

    def step(self, seconds: float) -> bool:
        """Answer others, send what is due, listen for so long at most; whether every way is known."""
        now = time.monotonic()
        for peer in [each for each in self.peers if not each.done][:_AHEAD]:
            if now - peer.sent_at < _WAIT_S and peer.sent_at:
                continue
            if peer.tries >= _TRIES:
                peer.lost()
            if not peer.done:
                self._send(peer, now)
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._echo:
                self._answer()
            else:
                self._listen()
        return all(peer.done for peer in self.peers)

    def row(self) -> Dict[str, Any]:
        """The node's row."""
        told = {
            peer.node: {"state": peer.state, "mtu": peer.good or None}
            for peer in self.peers
            if peer.state != OK
        }
        return {
            "interface": self.interface or None,
            "address": self.address,
            "mtu": self.mtu or None,
            "equal": sum(peer.state == OK for peer in self.peers),
            "peers": told,
        }

    def _bound(self) -> socket.socket:
        made = socket.socket(self._family, socket.SOCK_DGRAM)
        try:
            made.bind((self.address, 0))
            made.setblocking(False)
        except OSError:
            made.close()
            raise
        return made

    def _route_mtu(self, address: Tuple[str, int]) -> int:
        """What the kernel thinks of the way, where the interface is not known."""
        with socket.socket(self._family, socket.SOCK_DGRAM) as trial:
            try:
                trial.connect(address)
                if self._is_v6:
                    return trial.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
                return trial.getsockopt(socket.IPPROTO_IP, _IP_MTU)
            except OSError:
                return 1500

    def _send(self, peer: Peer, now: float) -> None:
        peer.sent_at, peer.tries = now, peer.tries + 1
        for size in list(peer.sizes):
            self._number = (self._number + 1) & 0xFFFFFFFF
            head = _HEAD.pack(_MAGIC, self.nonce, self._number, size & 0xFFFF)
            try:
                self._probe.sendto(head.ljust(size - self._headers, b"\0"), peer.address)
            except OSError as error:
                if error.errno == errno.EMSGSIZE and size > peer.good:
                    # Larger than this node's own interface takes, which needs no packet to know.
                    peer.bad = min(peer.bad, size)
                # What else the kernel says here (no room, no route, an ICMP error before) is no answer.
                continue
            self._asked[self._number] = peer

    def _answer(self) -> None:
        for packet, sender in _received(self._echo):
            if len(packet) >= _HEAD.size and packet[: len(_MAGIC) + _NONCE_BYTES] == _MAGIC + self.nonce:
                try:
                    self._echo.sendto(packet[: _HEAD.size], sender)
                except OSError:
                    continue  # the other side asks again

    def _listen(self) -> None:
        for packet, sender in _received(self._probe):
            if len(packet) != _HEAD.size:
                continue
            magic, nonce, number, size = _HEAD.unpack(packet)
            peer = self._asked.pop(number, None)
            if magic != _MAGIC or nonce != self.nonce or peer is None or peer.done:
                continue
            if peer.address[0] == sender[0].split("%")[0] and size <= peer.most:
                peer.arrived(size)
        self._hear_complaints()

    def _hear_complaints(self) -> None:
        """What routers answered: in the socket's queue of errors lies a struct sock_extended_err."""
        for _ in range(_AHEAD):
            try:
                _, told, _, sender = self._probe.recvmsg(0, 512, _MSG_ERRQUEUE)
            except OSError:
                return
            for _, _, data in told:
                if len(data) >= 16:
                    number, _, _, _, _, mtu, _ = struct.unpack_from("IBBBBII", data)
                    if number == errno.EMSGSIZE:
                        self._refused(sender, mtu)

    def _refused(self, sender: Any, mtu: int) -> None:
        # The address of the packet that was refused, with the port it was sent to.
        for peer in self.peers:
            if sender and peer.address == (str(sender[0]).split("%")[0], sender[1]) and not peer.done:
                peer.refused(mtu)


def _received(of: socket.socket) -> List[Tuple[bytes, Any]]:
    found = []
    try:
        for _ in range(_AHEAD):
            found.append(of.recvfrom(_MOST_MTU))
    except OSError:
        pass  # nothing more, or an error whose cause is in the queue of errors
    return found


def interface_mtu(name: str) -> int:
    """The MTU of an interface in bytes, 0 where it is not to be had."""
    request = struct.pack("16sI12x", name.encode("utf-8", "surrogateescape")[:15], 0)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            return int(struct.unpack_from("16sI", fcntl.ioctl(any_socket, _SIOCGIFMTU, request))[1])
    except OSError:
        return 0


def chosen_peers(index: int, count: int) -> List[int]:
    """Whom one of many probes: all the others up to 64; of more, those at distances 1, 2, 4, ... and back.

    So every two nodes are joined by ways that were probed, and nobody sends to a thousand.
    """
    if count <= _AHEAD:
        return [other for other in range(count) if other != index]
    distances = [1 << power for power in range(count.bit_length()) if 1 << power < count]
    return sorted(
        {(index + step) % count for step in distances} | {(index - step) % count for step in distances}
    )


def attend(client: Any, address: str, interface: str, seconds: float) -> Optional[Dict[str, Any]]:
    """A member's part: say where its echo is, probe whom the hub names, stay until all are through.

    Args:
        client: the member's connection to the hub (`control/client.py`).
        address: what to probe from; empty where this member does not (another on its node does).
        interface: that address's.
        seconds: after which it is given up.

    Returns:
        The row, None where nothing could be probed.

    Raises:
        HubLost: the hub is gone.
    """
    ends = time.monotonic() + seconds
    prober: Optional[Prober] = None
    try:
        through = told = False
        while time.monotonic() < ends:
            for kind, body in client.poll(0.0 if prober else _TICK_S):
                if kind == "mtu.begin":
                    prober = _opened(address, interface, str(body.get("nonce", "")))
                    client.send("mtu.at", {"address": address, "port": prober.port} if prober else {})
                elif kind == "mtu.peers" and prober:
                    prober.aim(_addresses(body.get("peers")))
                    told = True
                elif kind == "mtu.peers":
                    client.send("mtu.done", {})
                elif kind == "mtu.end":
                    return prober.row() if prober and told else None
            if prober and prober.step(_TICK_S) and told and not through:
                through = True
                client.send("mtu.done", {})
            client.beat()
        return prober.row() if prober and told else None
    finally:
        if prober:
            prober.close()


def conduct(hub: Any, seconds: float) -> None:
    """The hub's part: deal the addresses, and end it when all are through or the time is over."""
    ends = time.monotonic() + seconds
    places: Dict[int, Dict[str, Any]] = {}
    # An echo is open before anybody sends to it: a packet that comes too early would look like a lost one.
    hub.broadcast("mtu.begin", {"nonce": os.urandom(_NONCE_BYTES).hex()})
    _until(hub, "mtu.at", ends, places)
    here = sorted(index for index, said in places.items() if said.get("address"))
    for place, index in enumerate(here):
        others = [here[other] for other in chosen_peers(place, len(here))]
        own = hub.members[index].node
        peers = {
            hub.members[other].node: [str(places[other]["address"]), places[other]["port"]]
            for other in others
            if hub.members[other].node != own
        }
        hub.send(index, "mtu.peers", {"peers": peers})
    for index in set(places) - set(here):
        hub.send(index, "mtu.peers", {})
    _until(hub, "mtu.done", ends, {})
    hub.broadcast("mtu.end", {})


def _opened(address: str, interface: str, nonce: str) -> Optional[Prober]:
    try:
        return Prober(address, interface, bytes.fromhex(nonce)) if address else None
    except (OSError, ValueError):
        return None


def _until(hub: Any, kind: str, ends: float, found: Dict[int, Dict[str, Any]]) -> None:
    """Listen until every member that is there has said this."""
    while time.monotonic() < ends:
        if all(index in found for index, member in hub.members.items() if not member.left):
            return
        for event in hub.poll(_TICK_S):
            if event.kind == kind and isinstance(event.body, dict):
                found[event.index] = event.body


def _addresses(peers: Any) -> Dict[str, Tuple[str, int]]:
    found = {}
    for node, place in (peers if isinstance(peers, dict) else {}).items():
        if isinstance(place, list) and len(place) == 2 and isinstance(place[1], int):
            found[str(node)] = (str(place[0]), place[1])
    return found
