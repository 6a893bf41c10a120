"""The exec template: words first, names after, never a shell."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.errors import NeededError, UsageError
from envaudit.model.fingerprint import Missing
from envaudit.transport import Request, Target, gather
from envaudit.transport.exec import Exec
from envaudit.transport.local import Local

NODE_NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,60}", fullmatch=True)


@pytest.mark.parametrize(
    ("template", "launch", "argv"),
    [
        ("{python}", "exec", ["/p y"]),
        ("ip netns exec {node} {python}", "exec", ["ip", "netns", "exec", "n1", "/p y"]),
        (
            "kubectl exec -i {node} -n train -- {python}",
            "exec",
            ["kubectl", "exec", "-i", "n1", "-n", "train", "--", "/p y"],
        ),
        (
            "/opt/slurm/bin/srun --export=NONE -N1 -n1 -w {node} {python}",
            "slurm",
            ["/opt/slurm/bin/srun", "--export=NONE", "-N1", "-n1", "-w", "n1", "/p y"],
        ),
        ("env 'A=b c' N={node}.{node} {python}", "exec", ["env", "A=b c", "N=n1.n1", "/p y"]),
        ("echo '$HOME;rm' {other} {python}", "exec", ["echo", "$HOME;rm", "{other}", "/p y"]),
    ],
)
def test_argv_of_a_template_keeps_its_words(template: str, launch: str, argv: list[str]) -> None:
    """Each word of the template is one word of the command, whatever is filled in."""
    transport = Exec(template)
    assert (launch, argv) == (transport.launch, transport.argv(Target("n1", "/p y")))


def test_command_that_passes_no_standard_input_on_is_told_what_it_lacks() -> None:
    """`kubectl exec` and `docker exec` without -i give the interpreter an empty input."""
    command = 'sh -c \'exec "$0" "$@" </dev/null\' {python}'
    snapshot = gather(Exec(command), [Target("n1", sys.executable)], Request(sections=("env",)))
    missing = snapshot.missing["n1"]
    assert ("unreachable", True) == (missing.kind, "standard input ended" in missing.why)
    assert "kubectl exec -i" in missing.next_step


@given(NODE_NAMES, st.text(min_size=1).map("/{}".format))
def test_argv_values_never_become_more_words_or_fields(node: str, python: str) -> None:
    """Blanks, quotes and braces in an interpreter's path are not read again."""
    assert ["a", node, f"x{python}", python] == Exec("a {node} x{python} {python}").argv(Target(node, python))


@pytest.mark.parametrize(
    "template",
    ["", "  ", "kubectl exec {node}", "{python} {node}", "sh -c '{python}", "ssh {node} x{python}"],
)
def test_template_without_the_interpreter_last_is_a_usage_error(template: str) -> None:
    """BOOT's arguments follow the interpreter, so it must come last."""
    with pytest.raises(UsageError, match="command"):
        Exec(template)


@pytest.mark.parametrize(
    ("template", "words"),
    [("env {node} {python}", "env"), ("/opt/nodes/{node} {python}", "exec"), ("{python}", "exec")],
)
def test_way_of_a_template_is_named_after_its_program(template: str, words: str) -> None:
    """Messages say how a node was reached, and no field that was never filled in."""
    assert words == Exec(template).words


def test_gather_absent_program_of_the_controller_is_needed() -> None:
    """A missing kubectl is a fault of this machine (5), not of every node (3)."""
    with pytest.raises(NeededError, match="no-such-kubectl: not found"):
        gather(Exec("no-such-kubectl {node} {python}"), [Target("n1", "/usr/bin/python3")], Request())


@pytest.mark.parametrize("python", ["python3", "~/bin/python", "", "-c"])
def test_gather_exec_with_a_relative_interpreter_is_a_usage_error(python: str) -> None:
    """What the template reaches has no working directory or PATH that could be relied on."""
    with pytest.raises(UsageError, match="absolute"):
        gather(Exec("{python}"), [Target("n1", python)], Request())


@pytest.mark.parametrize(
    "name", ["../../etc/x", "-oProxyCommand=x", "", "a b", "a\n", ".", "x" * 254, "a/b", "ä"]
)
def test_gather_what_is_no_node_name_is_refused(name: str) -> None:
    """No transport sees a name that could be an option, a path or two words."""
    with pytest.raises(UsageError, match="not a node name"):
        gather(Exec("{python}"), [Target("n1", sys.executable), Target(name, sys.executable)], Request())


def test_gather_no_node_or_one_twice_is_refused() -> None:
    """An empty set is no pass, and a node has one place."""
    with pytest.raises(UsageError, match="no nodes"):
        gather(Exec("{python}"), [], Request())
    with pytest.raises(UsageError, match="twice"):
        gather(Exec("{python}"), [Target("n1", sys.executable)] * 2, Request())


@given(NODE_NAMES)
def test_worker_of_any_node_name_keeps_the_name(name: str) -> None:
    """ClusterShell's node sets give back exactly the name they were given."""
    from envaudit.transport.engine import ArgvWorker, Listener

    worker = ArgvWorker(name, Listener(), 1.0, ["true"])
    assert [name] == [client.key for client in worker._engine_clients()]


@pytest.mark.parametrize(
    ("transport", "python", "words"),
    [
        (Exec("{python}"), "/no/such/python", "/no/such/python: not found"),
        (Exec("env {python}"), "/no/such/python", "/no/such/python: not found"),
        (Exec('sh -c \'"$0" "$@"\' {python}'), "/no/such/python", "/no/such/python: not found"),
        (Local(), "/no/such/python", "/no/such/python: not found"),
        (Exec("sh -c 'echo no such pod >&2; exit 1' {python}"), "/usr/bin/python3", "no such pod"),
        (Exec("sh -c 'exit 3' {python}"), "/usr/bin/python3", "ended with 3 (sh), without saying why"),
        (Exec("sh -c 'echo on stdout; exit 3' {python}"), "/usr/bin/python3", "ended with 3 (sh): on stdout"),
    ],
)
def test_gather_command_that_fails_is_unreachable_with_its_last_words(
    transport: Exec, python: str, words: str
) -> None:
    """What the command said last explains the missing node."""
    missing = gather(transport, [Target("n1", python)], Request(timeout_s=10)).missing["n1"]
    assert isinstance(missing, Missing)
    assert "unreachable" == missing.kind
    assert words in missing.why
    assert missing.next_step


@pytest.mark.parametrize("transport", [Local(), Exec("{python}"), Exec('sh -c \'"$0" "$@"\' {python}')])
def test_gather_interpreter_without_execute_permission_says_so(transport: Exec, tmp_path: Path) -> None:
    """An interpreter that is there but may not be run is told from one that is not there."""
    python = tmp_path / "python"
    python.write_bytes(b"")
    missing = gather(transport, [Target("n1", str(python))], Request(timeout_s=10)).missing["n1"]
    assert ("unreachable", f"{python}: cannot be executed") == (missing.kind, missing.why.split(" on the")[0])


def test_gather_fanout_beyond_the_open_files_still_reaches_every_node() -> None:
    """Where the limit of open files is low, fewer nodes are asked at a time."""
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from envaudit.transport import Request, Target, gather\n"
        "from envaudit.transport.exec import Exec\n"
        "targets = [Target(f'n{number}', sys.executable) for number in range(40)]\n"
        "snapshot = gather(Exec('true {python}'), targets, Request(timeout_s=20, fanout=40))\n"
        "print({gone.kind for gone in snapshot.missing.values()}, len(snapshot.missing))\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert "{'truncated'} 40\n" == done.stdout


def test_node_that_others_have_given_up_is_waited_for_no_longer_than_they_say(tmp_path: Path) -> None:
    """One answers and says so; the other's command hangs, and has minutes left."""
    hangs = tmp_path / "n2"
    hangs.write_text("#!/bin/sh\nexec sleep 300\n")
    hangs.chmod(0o755)
    targets = [Target("n1", sys.executable), Target("n2", str(hangs))]
    request = Request(
        sections=("host",), timeout_s=200, given_up=lambda answer: {"n2": 1.0, answer.node: 1.0}
    )
    began = time.monotonic()
    snapshot = gather(Exec("env NODE={node} {python}"), targets, request)
    took_s = time.monotonic() - began
    assert ["n1"] == [each.node for each in snapshot.fingerprints]
    assert "timeout" == snapshot.missing["n2"].kind
    assert snapshot.missing["n2"].why == ("the others did not hear it, and it was silent for 1 s after that")
    assert took_s < 100
