"""What ssh is given, and what its real complaints become; real nodes are in the lab."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from envaudit.errors import NeededError, UsageError
from envaudit.transport import Request, Target, gather
from envaudit.transport.boot import BOOT
from envaudit.transport.ssh import Ssh, remote_command

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="the OpenSSH client is not installed")


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `ssh` that notes its arguments and runs the remote command in the node's login shell, here sh."""
    tools = tmp_path / "tools"
    tools.mkdir()
    script = tools / "ssh"
    script.write_text(
        "#!/bin/sh\n"
        'for word; do printf "%s\\n" "$word" >> "$NOTED"; done\n'
        'while [ $# -gt 1 ]; do shift; done\nexec sh -c "$1"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("NOTED", str(tmp_path / "noted"))
    return tmp_path / "noted"


def test_gather_ssh_passes_the_users_configuration_and_no_weaker_check(
    fake_ssh: Path, tmp_path: Path
) -> None:
    """BatchMode, no terminal, a timeout and -F stand there; nothing loosens the check of host keys."""
    config = tmp_path / "my config"
    config.write_text("")
    transport = Ssh(ssh_config=str(config), connect_timeout_s=7)
    snapshot = gather(transport, [Target("node01", sys.executable)], Request(timeout_s=20))
    assert {} == snapshot.missing
    assert "ssh" == snapshot.fingerprints[0].sections["host"].facts["launch"]
    words = fake_ssh.read_text().splitlines()
    assert "node01" == words[-2]
    assert str(config) == words[words.index("-F") + 1]
    assert {"-oBatchMode=yes", "-oConnectTimeout=7", "-T"} <= set(words)
    assert not [word for word in words[:-1] if "StrictHostKeyChecking" in word or "KnownHosts" in word]


def test_gather_ssh_home_relative_interpreter_is_expanded_on_the_node(
    fake_ssh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`~/` is the node's home, not the controller's."""
    home = tmp_path / "home of node"
    (home / "env/bin").mkdir(parents=True)
    (home / "env/bin/python").symlink_to(sys.executable)
    monkeypatch.setenv("HOME", str(home))
    snapshot = gather(
        Ssh(), [Target("node01", "~/env/bin/python")], Request(timeout_s=20, sections=("host",))
    )
    assert {} == snapshot.missing


@pytest.mark.parametrize(
    ("python", "start"),
    [
        ("python3", "exec python3 -I -B -c '"),
        ("/opt/a b/python", "exec '/opt/a b/python' -I"),
        ("~/env/bin/python", "exec ~/env/bin/python -I"),
        ("~/a b/python", "exec ~/'a b/python' -I"),
        ("/$(reboot)/`id`/python;x", "exec '/$(reboot)/`id`/python;x' -I"),
        ("/a~b/python", "exec '/a~b/python' -I"),
    ],
)
def test_remote_command_quotes_everything_but_a_leading_home(python: str, start: str) -> None:
    """Nothing of an interpreter's path is read by the node's shell, except that `~/` is its home."""
    command = remote_command(python)
    assert start == command[: len(start)]
    assert command.endswith(f" -c '{BOOT}'")


@pytest.mark.parametrize(
    "python", ["", "~/", "-c", "/a'b", "/a\\b", "/a!b", "/a\nb", "/a\tb", "/a\x00b", "~/-x"]
)
def test_remote_command_of_what_no_quoting_carries_is_a_usage_error(python: str) -> None:
    """What sh, csh and fish would not all read alike is refused before ssh is started."""
    with pytest.raises(UsageError):
        gather(Ssh(), [Target("node01", python)], Request())


def test_gather_without_ssh_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing ssh is a fault of this machine (5)."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NeededError, match="ssh: not found"):
        gather(Ssh(), [Target("node01", "python3")], Request())


def test_gather_with_an_absent_ssh_configuration_is_a_usage_error(tmp_path: Path) -> None:
    """A wrong ssh-config is told once, not once per node."""
    with pytest.raises(UsageError, match="cannot be read"):
        gather(Ssh(ssh_config=str(tmp_path / "absent")), [Target("node01", "python3")], Request())


@needs_ssh
def test_gather_unknown_and_refusing_hosts_are_told_apart(tmp_path: Path) -> None:
    """Real ssh, real complaints: a name nobody knows, and a port where nobody listens."""
    config = tmp_path / "config"
    config.write_text("Host refusing\n  HostName 127.0.0.1\n  Port 1\n")
    targets = [Target("no-such-host.invalid", "python3"), Target("refusing", "python3")]
    missing = gather(Ssh(str(config), connect_timeout_s=5), targets, Request(timeout_s=20)).missing
    assert {"unreachable"} == {gone.kind for gone in missing.values()}
    assert "unknown host" in missing["no-such-host.invalid"].why
    assert "connection refused" in missing["refusing"].why
    assert "sshd" in missing["refusing"].next_step
