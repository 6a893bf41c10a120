"""Why a node gave no answer, in words its owner can act on.

The texts that are looked for are those of OpenSSH (ssh.c, sshconnect.c, readconf.c, packet.c) and
of the C library's error messages, in the C locale.
"""

from __future__ import annotations

import re
import signal
from typing import NamedTuple

from envaudit.model.fingerprint import Missing
from envaudit.transport import boot

_PYTHON = "Python 3.8 or newer is needed on the node"


class Ended(NamedTuple):
    """How a node's command ended without a whole answer.

    Attributes:
        node: the node's name.
        python: the interpreter that was started there.
        words: how the node was reached, `ssh, BatchMode`.
        trial: a shell command by which the user can try the way.
        rc: the exit status, None when the command was ended from here.
        complaint: the last of its standard error.
        last_line: the last line of its standard output that was no frame.
    """

    node: str
    python: str
    words: str
    trial: str
    rc: int | None
    complaint: str
    last_line: str


# Pattern in standard error, kind, why, next step. `{...}` are fields of Ended; 1 is the pattern's
# group. The first that matches wins.
_COMPLAINTS: tuple[tuple[str, str, str, str], ...] = (
    (
        r"Could not resolve hostname [^\n]*?: ([^\n]+)",
        "unreachable",
        "unknown host ({words}: {1})",
        "Check the node's name, /etc/hosts and the ssh configuration.",
    ),
    (
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|No \S+ host key is known",
        "unreachable",
        "host key verification failed ({words})",
        "Compare the node's key with known_hosts, then run '{trial}' once and confirm it by hand.",
    ),
    (
        r"Permission denied \(([a-z,0-9@. -]+)\)|Too many authentication failures",
        "unreachable",
        "permission denied: the node refused every key ({words})",
        "Check that '{trial}' works without a password.",
    ),
    (
        r"No route to host|Network is unreachable",
        "unreachable",
        "no route to host ({words})",
        "Check that the node is up and its link is too, or leave it out.",
    ),
    (
        r"Connection refused",
        "unreachable",
        "connection refused ({words})",
        "Check that sshd runs on the node, and its port.",
    ),
    (
        r"(?:Connection|Operation) timed out|Timeout, server \S+ not responding",
        "unreachable",
        "connection timed out ({words})",
        "Check that the node is up and that '{trial}' works.",
    ),
    (
        r"(Connection (?:closed|reset)[^\n]*|kex_exchange_identification[^\n]*|Broken pipe)",
        "unreachable",
        "the connection was closed ({words}: {1})",
        "Check that '{trial}' works; sshd's MaxStartups limits many at a time: try a smaller --fanout.",
    ),
    (
        r"connect to host \S+ port \d+: ([^\n]+)",
        "unreachable",
        "no connection ({words}: {1})",
        "Check that '{trial}' works.",
    ),
    (
        r"Cannot execute command-line and remote command",
        "unreachable",
        "the ssh configuration has a RemoteCommand for this node ({words})",
        "Give it a Host of its own: where it stands ssh runs nothing else.",
    ),
    (
        r"exec: restricted",
        "unreachable",
        "the user's login shell on the node is restricted ({words})",
        "Take a user with another shell: User in your ssh configuration.",
    ),
    (
        r"Unknown option: -I",
        "unreachable",
        "{python} is Python 2, which is too old",
        _PYTHON + ": name it with --python or [nodes.interpreters].",
    ),
    (
        r"Too many open files",
        "crashed",
        "it may open no more files ({words})",
        "Raise the limit of open files: ulimit -n.",
    ),
    (
        r"(Cannot (?:fork|allocate memory)[^\n]*|MemoryError|No space left on device"
        r"|Resource temporarily unavailable)",
        "crashed",
        "the node has run out of something: {1}",
        "Free memory, processes or space on the node.",
    ),
)

_NOT_EXECUTABLE = re.compile(r"permission denied|not an executable", re.I)
_NOT_THERE = re.compile(rf"not found|no such file|{_NOT_EXECUTABLE.pattern}", re.I)
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+"
)
_MAX_WHY_CHARACTERS = 300
_SIGNALLED = 128


def one_line(text: str, limit: int = _MAX_WHY_CHARACTERS) -> str:
    """A node's words on one line: without terminal controls, at most `limit` characters."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def last_words(complaint: str) -> str:
    """The last line of a complaint that says something."""
    lines = [line for line in complaint.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else ""


def of_end(ended: Ended) -> Missing:
    """The cause as the exit status and the complaint tell it."""
    complaint = ended.complaint
    if ended.rc in (1, 126, 127) and _names_interpreter(ended):
        how = "cannot be executed" if _NOT_EXECUTABLE.search(complaint) else "not found"
        return Missing(
            "unreachable",
            f"{ended.python}: {how} on the node ({ended.words})",
            f"{_PYTHON}: name it with --python.",
        )
    for pattern, kind, why, next_step in _COMPLAINTS:
        match = re.search(pattern, complaint)
        if match:
            facts = ended._asdict()
            group = one_line(match[1] or "", 100) if match.lastindex else ""
            return Missing(kind, *(part.format("", group, **facts) for part in (why, next_step)))
    words = last_words(complaint) or one_line(ended.last_line)
    tail = f": {words}" if words else ", without saying why"
    try_it = f"Check that '{ended.trial}' works."
    if ended.rc == boot.CUT_OFF and not words:
        return Missing(
            "unreachable",
            f"the interpreter's standard input ended before the probe was there ({ended.words})",
            "Let the command pass standard input on: kubectl exec -i, docker exec -i, ssh without -n.",
        )
    if ended.rc is None:
        return Missing("crashed", f"the command was ended before it answered{tail}", try_it)
    if ended.rc == 0:
        said = tail if words else ""
        return Missing(
            "truncated", f"no answer, though the command ended with 0 ({ended.words}){said}", try_it
        )
    if "Traceback (most recent call last)" in complaint:
        return Missing("crashed", f"the node's Python failed{tail}", try_it)
    if ended.rc > _SIGNALLED and ended.rc != 255:
        return Missing(
            "crashed", f"ended by {_signal_name(ended.rc - _SIGNALLED)} ({ended.words}){tail}", try_it
        )
    return Missing("unreachable", f"the command ended with {ended.rc} ({ended.words}){tail}", try_it)


def of_stop(word: str, text: str, python: str) -> Missing:
    """The cause as BOOT's last line tells it."""
    text = one_line(text, 120)
    if word == "python":
        return Missing(
            "unreachable",
            f"{python} is Python {text}, which is too old",
            f"{_PYTHON}: name it with --python or [nodes.interpreters].",
        )
    if word == "place":
        return Missing(
            "crashed",
            f"no place for the probe on the node: neither memfd nor a temporary folder ({text})",
            "Set TMPDIR on the node to a folder that can be written.",
        )
    return Missing(
        "corrupt",
        f"the probe arrived damaged at the node ({word} {text})".rstrip(),
        "Something changes what is piped to the node, such as a start-up file of its shell that reads input.",
    )


def of_timeout(ended: Ended, timeout_s: float) -> Missing:
    """No whole answer in time."""
    words = last_words(ended.complaint)
    tail = f"; last words: {words}" if words else ""
    return Missing(
        "timeout",
        f"no answer in {timeout_s:g} s ({ended.words}){tail}",
        f"Check that '{ended.trial}' works, or raise --timeout.",
    )


def _names_interpreter(ended: Ended) -> bool:
    """Whether the command ended because there is no such interpreter."""
    if ended.rc == 127:
        return True
    name = ended.python.rpartition("/")[2]
    return any(name in line and _NOT_THERE.search(line) for line in ended.complaint.splitlines())


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
