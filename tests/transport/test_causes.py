"""The words of ssh and of commands become a kind, a cause and a next step.

PROVENANCE: hand-made after the messages of OpenSSH 9.2, bash, dash, csh, fish, kubectl and srun; those of
OpenSSH and of the shells are met again for real in `test_ssh.py` and in the lab.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.model.fingerprint import MISSING_KINDS
from envaudit.transport.causes import Ended, of_end, of_stop, of_timeout, one_line


def ended(complaint: str = "", rc: int | None = 255, **changes: Any) -> Ended:
    """A command over ssh that ended somehow."""
    facts: dict[str, Any] = {
        "node": "node01",
        "python": "/opt/env/bin/python3",
        "words": "ssh, BatchMode",
        "trial": "ssh node01 true",
        "rc": rc,
        "complaint": complaint,
        "last_line": "",
    }
    return Ended(**{**facts, **changes})


@pytest.mark.parametrize(
    ("complaint", "why"),
    [
        (
            "ssh: Could not resolve hostname node01: Name or service not known\r\n",
            "unknown host (ssh, BatchMode: Name or service not known)",
        ),
        (
            "ssh: Could not resolve hostname node01: Temporary failure in name resolution\r\n",
            "unknown host (ssh, BatchMode: Temporary failure in name resolution)",
        ),
        (
            "root@node01: Permission denied (publickey,password).\r\n",
            "permission denied: the node refused every key",
        ),
        (
            "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\r\n",
            "permission denied",
        ),
        ("Host key verification failed.\r\n", "host key verification failed"),
        (
            "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nIt is possible that someone\n",
            "host key verification failed",
        ),
        (
            "No ED25519 host key is known for node01 and you have requested strict checking.\r\n",
            "host key verification failed",
        ),
        ("ssh: connect to host node01 port 22: No route to host\r\n", "no route to host"),
        ("ssh: connect to host node01 port 22: Network is unreachable\r\n", "no route to host"),
        ("ssh: connect to host node01 port 22: Connection refused\r\n", "connection refused"),
        ("ssh: connect to host node01 port 22: Connection timed out\r\n", "connection timed out"),
        ("Connection timed out during banner exchange\r\n", "connection timed out"),
        ("Timeout, server node01 not responding.\r\n", "connection timed out"),
        ("kex_exchange_identification: read: Connection reset by peer\r\n", "the connection was closed"),
        ("Connection closed by 10.0.0.1 port 22\r\n", "the connection was closed"),
        (
            "Authorised use only.\nssh: connect to host node01 port 22: Connection refused\r\n",
            "connection refused",
        ),
        ("Cannot execute command-line and remote command.\r\n", "has a RemoteCommand"),
        ("rbash: line 1: exec: restricted\n", "login shell on the node is restricted"),
        (
            "This account is currently not available.\n",
            "ended with 255 (ssh, BatchMode): This account is currently",
        ),
        ("", "ended with 255 (ssh, BatchMode), without saying why"),
    ],
)
def test_of_end_ssh_complaint_is_unreachable_with_its_cause(complaint: str, why: str) -> None:
    """Each way in which a connection fails has words of its own, and something to do about it."""
    missing = of_end(ended(complaint))
    assert "unreachable" == missing.kind
    assert why in missing.why
    assert missing.next_step.endswith(".")
    assert "{" not in missing.why + missing.next_step


@pytest.mark.parametrize(
    ("rc", "complaint", "how"),
    [
        (127, "bash: line 1: /opt/env/bin/python3: No such file or directory\n", "not found"),
        (127, "bash: line 1: exec: python3: not found\n", "not found"),
        (127, "", "not found"),
        (
            127,
            "fish: Unknown command: /opt/env/bin/python3\nfish: exec /opt/env/bin/python3 -I\n     ^~~\n",
            "not found",
        ),
        (1, "/opt/env/bin/python3: Command not found.\n", "not found"),
        (126, "bash: line 1: /opt/env/bin/python3: Permission denied\n", "cannot be executed"),
        (
            126,
            "fish: Unknown command. '/opt/env/bin/python3' exists but is not an executable file.\n"
            "exec /opt/env/bin/python3 -I\n     ^~~\n",
            "cannot be executed",
        ),
        (
            1,
            'exec: "/opt/env/bin/python3": stat /opt/env/bin/python3: no such file or directory: unknown\n',
            "not found",
        ),
    ],
)
def test_of_end_missing_interpreter_is_named(rc: int, complaint: str, how: str) -> None:
    """Every shell says it differently; the interpreter that was asked for is what the user wants to read."""
    missing = of_end(ended(complaint, rc))
    assert f"/opt/env/bin/python3: {how} on the node (ssh, BatchMode)" == missing.why
    assert "--python" in missing.next_step


@pytest.mark.parametrize(
    ("rc", "complaint", "kind", "why"),
    [
        (137, "", "crashed", "ended by SIGKILL"),
        (139, "", "crashed", "ended by SIGSEGV"),
        (200, "", "crashed", "ended by signal 72"),
        (None, "", "crashed", "before it answered"),
        (
            1,
            "Traceback (most recent call last):\n  File\nOSError: [Errno 12] x\n",
            "crashed",
            "OSError: [Errno 12] x",
        ),
        (
            1,
            "bash: fork: Cannot allocate memory\n",
            "crashed",
            "run out of something: Cannot allocate memory",
        ),
        (
            1,
            "Traceback (most recent call last):\n"
            "BlockingIOError: [Errno 11] Resource temporarily unavailable\n",
            "crashed",
            "run out of something: Resource temporarily unavailable",
        ),
        (
            255,
            "ssh: connect to host node01 port 22: Resource temporarily unavailable\r\n",
            "unreachable",
            "no connection (ssh, BatchMode: Resource temporarily unavailable)",
        ),
        (126, "/opt/env/bin/python3: Too many open files\n", "crashed", "it may open no more files"),
        (0, "", "truncated", "no answer, though the command ended with 0"),
        (
            1,
            'Error from server (NotFound): pods "node01" not found\n',
            "unreachable",
            'pods "node01" not found',
        ),
        (
            1,
            "srun: error: Unable to create step for job 3: Invalid node name\n",
            "unreachable",
            "Invalid node name",
        ),
        (2, "Unknown option: -I\nusage: python [option]\n", "unreachable", "is Python 2, which is too old"),
    ],
)
def test_of_end_other_endings_are_told_apart(rc: int | None, complaint: str, kind: str, why: str) -> None:
    """A crash is no missing connection, and an empty success is no answer."""
    missing = of_end(ended(complaint, rc))
    assert kind == missing.kind
    assert why in missing.why
    assert missing.next_step


@pytest.mark.parametrize("words", ["{0}", "{}", "{x}", "{node.__class__}", "{"])
@pytest.mark.parametrize(
    "begin", ["Connection closed by ", "bash: Cannot fork ", "Could not resolve hostname n: "]
)
def test_of_end_words_with_braces_are_told_as_they_are(begin: str, words: str) -> None:
    """What a node says is no template: one that has such words would cost all others their answers."""
    assert words in of_end(ended(f"{begin}{words}\n")).why


def test_of_end_of_an_empty_success_has_the_words_of_who_came_instead() -> None:
    """A forced command says on its standard output why it let nobody in."""
    missing = of_end(ended("", 0, last_line="maintenance until noon"))
    assert (
        "no answer, though the command ended with 0 (ssh, BatchMode): maintenance until noon" == missing.why
    )


@pytest.mark.parametrize(
    ("word", "text", "kind", "why"),
    [
        ("python", "3.6.15", "unreachable", "is Python 3.6.15, which is too old"),
        ("place", "[Errno 30] Read-only file system: '/tmp/x'", "crashed", "Read-only file system"),
        ("digest", "1234", "corrupt", "arrived damaged at the node (digest 1234)"),
        ("header", "JSONDecodeError", "corrupt", "arrived damaged"),
    ],
)
def test_of_stop_each_word_of_boot_has_its_cause(word: str, text: str, kind: str, why: str) -> None:
    """What BOOT could not do is told with a next step."""
    missing = of_stop(word, text, "python3")
    assert kind == missing.kind
    assert why in missing.why
    assert missing.next_step


def test_of_timeout_names_the_way_the_limit_and_the_last_words() -> None:
    """The message says what was waited for, and how to try it by hand."""
    missing = of_timeout(ended("Loading modules ...\n", None), 30)
    assert "no answer in 30 s (ssh, BatchMode); last words: Loading modules ..." == missing.why
    assert "Check that 'ssh node01 true' works, or raise --timeout." == missing.next_step


@given(st.text(), st.one_of(st.none(), st.integers(-1, 300)), st.text())
def test_of_end_any_words_make_a_kind_and_one_clean_line(
    complaint: str, rc: int | None, last_line: str
) -> None:
    """Whatever a node says, the cause is one printable line of bounded length, and nothing raises."""
    missing = of_end(ended(complaint, rc, last_line=last_line))
    assert missing.kind in MISSING_KINDS
    assert len(missing.why) < 500
    assert not [character for character in missing.why if ord(character) < 32 or ord(character) == 127]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m alert", "red alert"),
        ("a\r\nb\tc", "a b c"),
        ("left\u202eright", "left right"),
        ("x" * 400, "x" * 299 + "…"),
    ],
)
def test_text_of_a_node_is_one_plain_line(text: str, expected: str) -> None:
    """Colours, line ends and bidi controls are gone, and length is bounded."""
    assert expected == one_line(text)
