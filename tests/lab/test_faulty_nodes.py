"""Nodes that cannot be read are named with cause and next step; the others are still compared."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable

import pytest

from tests.lab.cluster import Cluster
from tests.lab.command import Command, over_ssh
from tests.lab.faults import Faults
from tests.lab.training_env import TrainingEnvironment

pytestmark = pytest.mark.lab

ODD = "node02"

# Runs the real interpreter and loses what follows the first 2 kB of its answer.
_TRUNCATING = '"$REAL" "$@" | head -c 2000'
_GARBAGE = "yes '0123456789 garbage' | head -c 300000000"


def _link_down(faults: Faults) -> None:
    faults.link_down(ODD)


def _sshd_stopped(faults: Faults) -> None:
    faults.sshd_stopped(ODD)


def _key_refused(faults: Faults) -> None:
    faults.sshd_option(ODD, "AuthorizedKeysFile", "/dev/null")


def _host_key_changed(faults: Faults) -> None:
    faults.file(ODD, "/etc/lab_host_key", _new_host_key(faults.cluster))
    faults.cluster.node(ODD).run(["chmod", "600", "/etc/lab_host_key"])
    faults.sshd_option(ODD, "HostKey", "/etc/lab_host_key")


def _python_missing(faults: Faults) -> None:
    faults.python(ODD, None)


def _truncated(faults: Faults) -> None:
    faults.python(ODD, _TRUNCATING)


def _garbage(faults: Faults) -> None:
    faults.python(ODD, _GARBAGE)


def _silent(faults: Faults) -> None:
    faults.python(ODD, "exit 0")


@pytest.mark.parametrize(
    ("break_node", "kind", "cause"),
    [
        (_link_down, "unreachable", "timed out"),
        (_sshd_stopped, "unreachable", "refused"),
        (_key_refused, "unreachable", "ermission denied"),
        (_host_key_changed, "unreachable", "ost key verification failed"),
        (_python_missing, "unreachable", "python3"),
        (_truncated, "truncated", ""),
        (_garbage, "corrupt", ""),
        (_silent, "truncated", ""),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_diff_with_one_unreadable_node_is_incomplete(
    envaudit: Command, faults: Faults, break_node: Callable[[Faults], None], kind: str, cause: str
) -> None:
    """Exit 3, one finding for the node with cause and next step, the three others alike."""
    break_node(faults)
    ended = envaudit("diff", "node[01-04]", "--format", "json")
    assert 3 == ended.code, ended.text
    envelope = ended.envelope
    assert {ODD: kind} == {node: gone["kind"] for node, gone in envelope["missing"].items()}, ended.text
    assert cause in envelope["missing"][ODD]["why"], ended.text
    assert envelope["missing"][ODD]["next_step"], ended.text
    assert ("INCOMPLETE", []) == (envelope["verdict"], envelope["drifts"]), ended.text


def test_diff_with_a_node_down_still_compares_the_others(envaudit: Command, faults: Faults) -> None:
    """A finding among the others fails the run although it is incomplete too; both are printed."""
    faults.sshd_stopped(ODD)
    faults.variable("node04", "NCCL_ALGO", "Tree")
    ended = envaudit("diff", "node[01-04]")
    assert 1 == ended.code, ended.text
    for words in ("node04", "NCCL_ALGO", ODD, "refused"):
        assert words in ended.stdout, ended.text


def test_snapshot_with_a_node_down_stores_the_others(envaudit: Command, faults: Faults) -> None:
    """Exit 3; what answered is kept and tagged, and the node without evidence has no such tag."""
    faults.sshd_stopped(ODD)
    taken = envaudit("snapshot", "--nodes", "node[01-04]", "--tag", "good")
    assert 3 == taken.code, taken.text
    assert 0 == envaudit("diff", "node01@good", "node03@good", "node04@good").code
    shown = envaudit("show", f"{ODD}@good")
    assert 2 == shown.code, shown.text


def test_diff_with_an_unknown_host_names_it(envaudit: Command) -> None:
    """A name that nothing resolves costs that node alone."""
    ended = envaudit("diff", "node[01-02],nowhere", "--format", "json")
    assert 3 == ended.code, ended.text
    assert "unknown host" in ended.envelope["missing"]["nowhere"]["why"], ended.text


def test_hanging_interpreter_is_given_up_at_the_timeout(
    cluster: Cluster, faults: Faults, tmp_path: Path
) -> None:
    """A node whose Python never says anything costs the timeout, not the run."""
    faults.python(ODD, "exec sleep 300")
    began = time.monotonic()
    ended = over_ssh(cluster, tmp_path, timeout_s=3)("diff", "node[01-04]", "--format", "json")
    took_s = time.monotonic() - began
    assert 3 == ended.code, ended.text
    assert {ODD: "timeout"} == {node: gone["kind"] for node, gone in ended.envelope["missing"].items()}
    assert took_s < 8.0


def test_python_3_6_is_named_as_too_old(cluster: Cluster, tmp_path: Path) -> None:
    """An interpreter that is too old says so itself; nothing of the probe runs on it."""
    old = _python_3_6()
    if old is None:
        pytest.skip("no Python 3.6 under pyenv")
    envaudit = over_ssh(cluster, tmp_path, interpreters={ODD: old})
    ended = envaudit("diff", "node[01-04]", "--format", "json")
    assert 3 == ended.code, ended.text
    assert "3.6" in ended.envelope["missing"][ODD]["why"], ended.text


@pytest.mark.parametrize(
    "noise",
    ["banner", "shell start-up", "forced command", "Python start-up"],
)
def test_noise_before_the_answer_changes_nothing(
    envaudit: Command, faults: Faults, training: TrainingEnvironment, noise: str
) -> None:
    """Banners, chatty start-up files of shell and Python, and forced commands precede a whole answer."""
    text = "Welcome \\033[31mto the\\007 cluster\\n@envaudit 1 2 3"
    if noise == "banner":
        faults.file(ODD, "/etc/lab_banner", "Authorised use only.\n@envaudit\n" * 20)
        faults.sshd_option(ODD, "Banner", "/etc/lab_banner")
    elif noise == "shell start-up":
        source = Path(faults.cluster.folder, "noisy.bashrc")
        source.write_text(f"printf '{text}'\n", encoding="utf-8")
        faults.shown(ODD, str(source), f"{faults.cluster.folder}/home/.bashrc")
    elif noise == "forced command":
        faults.sshd_option(ODD, "ForceCommand", f'printf "{text}"; eval "$SSH_ORIGINAL_COMMAND"')
    else:
        source = Path(faults.cluster.folder, "noisy.pth")
        source.write_text(f"import os; os.write(1, b'{text}'); os.write(2, b'{text}')\n", encoding="utf-8")
        faults.shown(ODD, str(source), training.start_up)
    heard = faults.cluster.ssh(ODD, f"{faults.cluster.python} -c pass")
    assert "@envaudit" in heard.stdout + heard.stderr
    ended = envaudit("diff", "node[01-04]")
    assert 0 == ended.code, ended.text


def test_read_only_tmp_on_a_node_is_its_finding_alone(envaudit: Command, faults: Faults) -> None:
    """Nothing is written on a node, so that all its facts are read; training could not write."""
    faults.empty_folder(ODD, "/tmp", read_only=True)
    assert "Read-only" in faults.cluster.node(ODD).run(["touch", "/tmp/probe"]).stderr
    ended = envaudit("diff", "node[01-04]", "--format", "json")
    assert 1 == ended.code, ended.text
    found = ended.envelope["findings"]
    errors = [(each["rule"], each["nodes"]) for each in found if each["severity"] == "error"]
    assert [("EA127", [ODD])] == errors, ended.text
    assert {} == ended.envelope["missing"], ended.text


def _new_host_key(cluster: Cluster) -> str:
    path = Path(cluster.folder, "other_hostkey")
    path.unlink(missing_ok=True)
    cluster.node(ODD).run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)])
    return path.read_text(encoding="utf-8")


def _python_3_6() -> str | None:
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return next((str(path) for path in sorted(versions.glob("3.6*/bin/python3.6"))), None)
