"""A node that does not play by the rules, as the program of an exec command.

`command = "<python> pretender.py MODE {node} {python}"`: it reads what a node's Python would read
and then misbehaves as MODE says. PROVENANCE: hand-made; the modes are the faults that the transport
promises to name.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from base64 import b64encode
from hashlib import sha256
from typing import Any, Callable, Dict, List

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

SECTION = {
    "name": "env",
    "schema": 1,
    "status": "ok",
    "facts": {"NCCL_ALGO": "Ring"},
    "notes": {},
    "errors": [],
}
GOOD = {
    "schema": 1,
    "answer": {"tool": "0", "captured_at": "2026-11-30T10:00:00Z", "sections": [SECTION]},
}


def frames_of(document: bytes, nonce: str, node: str, size: int = 3600) -> List[bytes]:
    """Frames written by hand, not by the code under test."""
    blob = zlib.compress(document)
    text = b64encode(blob)
    parts = [b64encode(sha256(blob).digest())] + [text[at : at + size] for at in range(0, len(text), size)]
    head = f"@envaudit {nonce} {node} ".encode()
    return [head + b"%d/%d %s\n" % (i, len(parts) - 1, part) for i, part in enumerate(parts)]


def say(*pieces: bytes) -> None:
    """Write all of it."""
    for piece in pieces:
        view = memoryview(piece)
        while view:
            view = view[os.write(1, view) :]


def with_section(**changes: Any) -> bytes:
    """A good answer but for some fields of its section."""
    answer = dict(GOOD["answer"], sections=[dict(SECTION, **changes)])  # type: ignore[call-overload]
    return json.dumps({"schema": 1, "answer": answer}).encode()


class Node:
    """What the header told."""

    def __init__(self, node: str, real_python: str) -> None:
        self.node = node
        self.python = real_python
        self.header: Dict[str, Any] = {}

    def listen(self) -> None:
        """Read header and payload, as BOOT does."""
        line = sys.stdin.buffer.readline()
        self.header = json.loads(line)
        sys.stdin.buffer.read(self.header["size"])

    def frames(self, document: bytes, node: str = "", size: int = 3600) -> List[bytes]:
        """The frames of a document under this run's nonce."""
        return frames_of(document, self.header["nonce"], node or self.node, size)

    def good(self) -> List[bytes]:
        """The frames of a good answer."""
        return self.frames(json.dumps(GOOD).encode())


def obedient(node: Node) -> None:
    """Does everything right."""
    say(*node.good())


def banner(node: Node) -> None:
    """Greets before the answer and leaves with a word."""
    say(b"\xff\xfeWelcome to the cluster\r\n\x1b]0;title\x07@envaudit deadbeef x 0/1 zzzz\n$ ")
    say(*node.good())
    say(b"logout\n")


def glued(node: Node) -> None:
    """The prompt stands on the first frame's line."""
    say(b"[user@node ~]$ ", *node.good())


def carriage(node: Node) -> None:
    """Ends its lines as a terminal does."""
    say(*(frame.replace(b"\n", b"\r\n") for frame in node.good()))


def shuffled(node: Node) -> None:
    """Sends the last frame first."""
    document = json.dumps(GOOD).encode()
    say(*reversed(node.frames(document, size=8)))


def repeated(node: Node) -> None:
    """Says everything twice."""
    say(*node.good(), *node.good())


def other_name(node: Node) -> None:
    """Claims to be another node."""
    say(*node.frames(json.dumps(GOOD).encode(), node="node99"))


def wrong_nonce(node: Node) -> None:
    """Sends an answer of another run."""
    say(*frames_of(json.dumps(GOOD).encode(), "0" * 32, node.node))


def cut(node: Node) -> None:
    """Loses the last frame."""
    say(*node.frames(json.dumps(GOOD).encode(), size=8)[:-1])


def contradiction(node: Node) -> None:
    """Sends one frame twice, with different content."""
    lines = node.frames(json.dumps(GOOD).encode(), size=8)
    say(lines[1], lines[1].replace(lines[1].split()[-1], b"AAAAAAAA"), *lines)


def wrong_digest(node: Node) -> None:
    """Announces another digest."""
    lines = node.good()
    lines[0] = lines[0].rsplit(b" ", 1)[0] + b" " + b64encode(bytes(32)) + b"\n"
    say(*lines)


def bomb(node: Node) -> None:
    """300 MB of spaces that deflate to some 300 kB."""
    deflater = zlib.compressobj(9)
    blob = b"".join(deflater.compress(b" " * (1 << 20)) for _ in range(300)) + deflater.flush()
    text = b64encode(blob)
    parts = [b64encode(sha256(blob).digest())] + [text[at : at + 3600] for at in range(0, len(text), 3600)]
    head = f"@envaudit {node.header['nonce']} {node.node} ".encode()
    say(*(head + b"%d/%d %s\n" % (i, len(parts) - 1, part) for i, part in enumerate(parts)))


def deep(node: Node) -> None:
    """Nests brackets two million deep."""
    say(*node.frames(b"[" * 2_000_000 + b"]" * 2_000_000))


def deep_facts(node: Node) -> None:
    """Nests facts forty deep."""
    facts: Dict[str, Any] = {}
    for _ in range(40):
        facts = {"a": facts}
    say(*node.frames(with_section(facts=facts)))


def floats(node: Node) -> None:
    """States a fact that is a float."""
    say(*node.frames(with_section(facts={"ratio": 0.5})))


def newer_section(node: Node) -> None:
    """Knows a schema of tomorrow."""
    say(*node.frames(with_section(schema=99)))


def newer_answer(node: Node) -> None:
    """Answers in a shape of tomorrow."""
    say(*node.frames(b'{"schema":2,"result":{}}'))


def no_json(node: Node) -> None:
    """Answers with a word."""
    say(*node.frames(b"hello"))


def no_object(node: Node) -> None:
    """Answers with a list."""
    say(*node.frames(b"[1,2,3]"))


def hostile_text(node: Node) -> None:
    """Says what would rewrite a terminal."""
    say(*node.frames(json.dumps({"schema": 1, "crashed": "a\x1b[2J\x1b]0;x\x07\u202eb\nc"}).encode()))


def refused(node: Node) -> None:
    """Refuses, as the probe does for root."""
    say(*node.frames(b'{"schema":1,"refused":"/opt/python can be written by others."}'))


def silent(node: Node) -> None:
    """Says nothing."""


def leaves_at_once(node: Node) -> None:
    """Does not even listen."""


def crashed(node: Node) -> None:
    """Raises."""
    raise RuntimeError("no such luck")


def killed(node: Node) -> None:
    """Is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def stubborn(node: Node) -> None:
    """Never answers, ignores the polite signals, and has a child that does too."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", os.environ.get("MARK", "")])
    time.sleep(600)


def half_and_hang(node: Node) -> None:
    """Falls silent in the middle."""
    say(*node.frames(json.dumps(GOOD).encode(), size=8)[:-1])
    time.sleep(600)


def stays_after_answer(node: Node) -> None:
    """Answers, closes nothing, and does not leave."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    say(*node.good())
    time.sleep(600)


def garbage_lines(node: Node) -> None:
    """Says 300 MB of short lines."""
    _garbage(b"y\n" * 500_000)


def garbage_without_newline(node: Node) -> None:
    """Says 300 MB in one line."""
    _garbage(b"\0" * 1_000_000)


def garbage_on_stderr(node: Node) -> None:
    """Complains for 300 MB."""
    _garbage(b"e" * 1_000_000, 2)


def _garbage(million: bytes, fd: int = 1) -> None:
    for _ in range(300):
        view = memoryview(million)
        while view:
            view = view[os.write(fd, view) :]


def noisy_then_good(node: Node) -> None:
    """20 MB of noise is a nuisance, not a fault."""
    for _ in range(20):
        say(b"n" * 1_000_000)
    say(b"\n", *node.good())


DEAF = (leaves_at_once,)
MODES: Dict[str, Callable[[Node], None]] = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__annotations__", {}).get("node") == "Node"
}


def main() -> None:
    """Play the part that the first argument names."""
    mode, node, python = sys.argv[1:4]
    speaker = Node(node, python)
    action = MODES[mode]
    if action not in DEAF:
        speaker.listen()
    action(speaker)


if __name__ == "__main__":
    main()
