"""Four nodes over ssh, held against the lock of their environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envaudit.lock.export import Environment, conda_lock, of_fingerprint
from envaudit.store import read_snapshot_file
from tests.lab.command import Command
from tests.lab.faults import Faults
from tests.lab.training_env import TrainingEnvironment

pytestmark = pytest.mark.lab

ODD = "node03"


@pytest.fixture
def environment(envaudit: Command, tmp_path: Path) -> Environment:
    """What node01 has, with addresses for the pip packages, which are nowhere fetched here."""
    ended = envaudit("snapshot", "--nodes", "node01", "-o", str(tmp_path / "node01.json"))
    assert 0 == ended.code, ended.text
    (fingerprint,) = read_snapshot_file(str(tmp_path / "node01.json")).fingerprints
    found = of_fingerprint(fingerprint)
    pip = [replace(each, url=f"https://index.example/{each.name}.whl", sha256="0" * 64) for each in found.pip]
    return replace(found, pip=tuple(pip))


def lock_of(environment: Environment, folder: Path) -> str:
    """Its lock file."""
    path = folder / "train.conda-lock.yml"
    path.write_text(conda_lock(environment), encoding="utf-8")
    return str(path)


def test_verify_over_ssh_passes_on_four_nodes_as_locked(
    envaudit: Command, environment: Environment, tmp_path: Path
) -> None:
    """Conda packages, pip packages, and every file of theirs hashed on its node."""
    ended = envaudit("verify", lock_of(environment, tmp_path), "--nodes", "node[01-04]", "--format", "json")
    assert 0 == ended.code, ended.text
    assert [] == ended.envelope["findings"], ended.text
    assert len(environment.conda) > 20
    assert len(environment.pip) > 10


def test_verify_over_ssh_names_the_node_with_another_build(
    envaudit: Command, environment: Environment, tmp_path: Path, faults: Faults, training: TrainingEnvironment
) -> None:
    """The same version in another build on one node of four."""
    faults.shown(ODD, training.rebuilt_record("numpy", "py311h64a7726_1"), training.conda_record("numpy"))
    ended = envaudit("verify", lock_of(environment, tmp_path), "--nodes", "node[01-04]", "--format", "json")
    assert 1 == ended.code, ended.text
    (finding,) = ended.envelope["findings"]
    assert ("EA203", [ODD], "conda/packages/numpy/build") == (
        finding["rule"],
        finding["nodes"],
        finding["path"],
    )


def test_verify_over_ssh_names_nodes_whose_driver_is_older_than_the_lock_needs(
    envaudit: Command, environment: Environment, tmp_path: Path
) -> None:
    """A package that asks for a CUDA which no driver here serves."""
    first, *rest = environment.conda
    asking = replace(environment, conda=(replace(first, dependencies={"__cuda": ">=99.1"}), *rest))
    ended = envaudit("verify", lock_of(asking, tmp_path), "--nodes", "node[01-04]", "--format", "json")
    assert 1 == ended.code, ended.text
    (finding,) = ended.envelope["findings"]
    assert ("EA208", 4) == (finding["rule"], len(finding["nodes"])), ended.text
    assert "the lock needs 99.1" in finding["message"]
