"""ssh as users have it configured, and the transport's own refusals, on real nodes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Iterator

import ClusterShell
import pytest

from envaudit.model.fingerprint import Missing, Snapshot
from envaudit.transport import Request, Target, gather
from envaudit.transport.ssh import Ssh
from tests.lab.cluster import Cluster
from tests.lab.faults import Faults
from tests.lab.node import base_python

pytestmark = pytest.mark.lab


def ask(cluster: Cluster, *nodes: str, config: str = "", python: str = "", **request: float) -> Snapshot:
    """What some nodes answer over ssh."""
    targets = [Target(node, python or cluster.python) for node in nodes]
    wanted = Request(**{"timeout_s": 20.0, "sections": ("host", "python"), **request})  # type: ignore[arg-type]
    return gather(Ssh(config or cluster.ssh_config, connect_timeout_s=5), targets, wanted)


@pytest.fixture
def shared_connections(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """An ssh configuration that leaves a master connection behind (ControlPersist)."""
    # A control socket's path must be short.
    sockets = Path(cluster.folder, "cm")
    sockets.mkdir(exist_ok=True)
    config = tmp_path / "config"
    text = Path(cluster.ssh_config).read_text(encoding="utf-8")
    mux = f"Host *\n  ControlMaster auto\n  ControlPersist 60\n  ControlPath {sockets}/%h\n"
    config.write_text(mux + text, encoding="utf-8")
    yield str(config)
    for name in cluster.names:
        subprocess.run(["ssh", "-F", str(config), "-O", "exit", name], capture_output=True, check=False)


def test_gather_over_a_master_connection_neither_hangs_nor_ends_it(
    cluster: Cluster, shared_connections: str
) -> None:
    """The master that ssh leaves behind keeps its standard error open; no run waits for it or ends it."""
    for _ in range(2):
        began = time.monotonic()
        snapshot = ask(cluster, "node01", "node02", config=shared_connections)
        assert {} == snapshot.missing
        assert time.monotonic() - began < 8
    checked = subprocess.run(
        ["ssh", "-F", shared_connections, "-O", "check", "node01"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == checked.returncode, checked.stderr


@pytest.mark.parametrize("shell", ["dash", "csh", "fish"])
def test_gather_under_another_login_shell_reads_the_same(
    cluster: Cluster, faults: Faults, shell: str
) -> None:
    """Whatever shell the account has, BOOT arrives unharmed."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    faults.sshd_option("node02", "ForceCommand", f'{path} -c "$SSH_ORIGINAL_COMMAND"')
    snapshot = ask(cluster, "node01", "node02")
    assert {} == snapshot.missing
    python = [fingerprint.sections["python"].digest for fingerprint in snapshot.fingerprints]
    assert python[0] == python[1]


def test_gather_interpreter_that_others_can_write_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """Root does not run what somebody else could have changed; the node is named with the reason."""
    folder = Path(cluster.folder, "theirs")
    folder.mkdir()
    python = folder / "python3"
    shutil.copy(os.path.realpath(base_python()), python)
    python.chmod(0o777)
    missing = ask(cluster, "node01", python=str(python)).missing.get("node01")
    assert isinstance(missing, Missing)
    assert "crashed" == missing.kind
    assert "the probe refused to run" in missing.why
    assert missing.next_step


def test_gather_nodes_behind_a_gateway_with_their_own_interpreters(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway feeds one interpreter's nodes after the other's; none gets the other's input."""
    packages = Path(cluster.folder, "relay-packages")
    shutil.copytree(Path(ClusterShell.__file__).parent, packages / "ClusterShell")
    relay = Path(cluster.folder, "bin", "relay-python")
    relay.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {base_python()} "$@"\n', encoding="utf-8")
    relay.chmod(0o755)
    settings = tmp_path / "clustershell"
    settings.mkdir()
    this = socket.gethostname().split(".")[0]
    routes = f"[routes]\n{this}: node01\nnode01: node[02-04]\n"
    (settings / "topology.conf").write_text(routes, encoding="utf-8")
    monkeypatch.setenv("CLUSTERSHELL_CFGDIR", str(settings))
    monkeypatch.setenv("CLUSTERSHELL_GW_PYTHON_EXECUTABLE", str(relay))
    from ClusterShell.Defaults import config_paths
    from ClusterShell.Task import Task

    monkeypatch.setattr(Task, "TOPOLOGY_CONFIGS", config_paths("topology.conf"))
    targets = [
        Target("node02", cluster.python),
        Target("node03", base_python()),
        Target("node04", cluster.python),
        Target("nowhere", "/no/python"),
    ]
    snapshot = gather(Ssh(cluster.ssh_config), targets, Request(timeout_s=20, sections=("python",)))
    assert ["node02", "node03", "node04"] == sorted(snapshot.by_node), snapshot.missing
    assert ["nowhere"] == list(snapshot.missing)
