"""A hub with a thousand supervisors: how long until all have their verdict, and what it takes.

The hub is a process of its own, so that its memory is its own. The supervisors are simulated by one
other process with a connection each, which speak as the real ones do: by the product's own handshake
and client.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

from envaudit.control.client import Client
from envaudit.control.joining import Handshake
from envaudit.control.stream import Stream

PROJECT = Path(__file__).resolve().parents[2]
TOKEN = b"a token of the benchmark"

# What a node with eight GPUs says first, and how its collectives went.
HELLO: Dict[str, Any] = {
    "torch": "2.13.0+cu128",
    "cuda": "12.8",
    "nccl": "2.27.5",
    "driver": "570.86.15",
    "gpus": [{"uuid": f"GPU-{index:032x}", "model": "NVIDIA H200"} for index in range(8)],
    "interface": {"name": "bond0", "address": "10.0.0.7"},
}
OUTCOMES = {f"all_reduce/sum/fp32/{size}+0": ["ok", f"{size:064x}", size] for size in range(64)}
VERDICT = {"ended": {"kind": "done"}, "ranks": [{"rank": rank, "node": "n"} for rank in range(512)]}

_HUB = """
import sys
from envaudit.control.hub import Hub, listen
from tests.bench.bench_hub import TOKEN, VERDICT

count = int(sys.argv[1])
listener = listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
hub = Hub(listener, count, TOKEN)
assert hub.join(60) == []
outcomes = 0
while outcomes < count:
    for event in hub.poll(60):
        assert event.kind == "outcome", event
        outcomes += 1
assert hub.broadcast("verdict", VERDICT) == count
left = 0
while left < count:
    for event in hub.poll(60):
        assert (event.kind, event.body) == ("", "goodbye"), event
        left += 1
hub.close()
with open("/proc/self/status") as status:
    print(*[line.split()[1] for line in status if line.startswith("VmHWM:")], flush=True)
"""


class Cost(NamedTuple):
    """Seconds from the first connection to the last goodbye, and the hub's peak of resident memory."""

    wall_s: float
    peak_bytes: int


def cost(supervisors: int, runs: int) -> Cost:
    """Median time and largest peak of `runs` meetings."""
    costs = [_meeting(supervisors) for _ in range(runs)]
    return Cost(statistics.median(each.wall_s for each in costs), max(each.peak_bytes for each in costs))


def _meeting(supervisors: int) -> Cost:
    argv = [sys.executable, "-c", _HUB, str(supervisors)]
    hub = subprocess.Popen(argv, cwd=PROJECT, stdout=subprocess.PIPE)
    try:
        assert hub.stdout is not None
        port = int(hub.stdout.readline())
        began = time.monotonic()
        _supervise(supervisors, port)
        wall_s = time.monotonic() - began
        # Its own word: what `wait4` tells counts the memory of whoever forked it too.
        return Cost(wall_s, 1024 * int(hub.stdout.readline()))
    finally:
        hub.kill()
        hub.wait()
        if hub.stdout is not None:
            hub.stdout.close()


class _Supervisor:
    """One simulated supervisor."""

    def __init__(self, index: int, port: int, facts: bytes) -> None:
        sock = socket.create_connection(("127.0.0.1", port))
        self.socket = sock
        self.index = index
        self._handshake = Handshake(Stream(sock), TOKEN, index, facts, "hub")
        self._client: Any = None

    def advance(self) -> bool:
        """Do what can be done now; whether the verdict is here."""
        if self._client is None:
            self._handshake.advance()
            if not self._handshake.done:
                return False
            self._client = Client(self._handshake.joined(), self.index, authenticated=True)
            self._client.beat()
            self._client.send("outcome", OUTCOMES)
        kinds = [kind for kind, _ in self._client.poll(0)]
        return "verdict" in kinds

    def leave(self) -> None:
        """Say goodbye."""
        self._client.close(0)


def _supervise(count: int, port: int) -> None:
    import resource

    from envaudit.control import codec

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    selector = selectors.DefaultSelector()
    for index in range(count):
        facts = codec.encode_body([f"node{index:04d}", HELLO], codec.MAX_HELLO_BYTES)
        supervisor = _Supervisor(index, port, facts)
        selector.register(supervisor.socket, selectors.EVENT_READ, supervisor)
    done: List[_Supervisor] = []
    while len(done) < count:
        for key, _ in selector.select(60):
            if key.data.advance():
                selector.unregister(key.fileobj)
                done.append(key.data)
                key.data.leave()
    selector.close()
