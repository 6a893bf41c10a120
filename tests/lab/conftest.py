"""Fixtures of the lab; see the package for what it is made of.

Without root or a Debian package the tests are skipped and say why. With ENVAUDIT_REQUIRE_LAB=1 that
is a failure: a CI that lost its lab must not stay green.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import pytest

from tests.lab import chrony, faketime
from tests.lab.cluster import Cluster
from tests.lab.command import Command, over_ssh
from tests.lab.faults import Faults
from tests.lab.requirements import missing
from tests.lab.slurm import Slurm
from tests.lab.training_env import TrainingEnvironment


def _demand(*parts: str) -> None:
    reasons = [reason for part in parts for reason in missing(part)]
    if not reasons:
        return
    text = "no lab: " + "; ".join(reasons)
    if os.environ.get("ENVAUDIT_REQUIRE_LAB") == "1":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


@pytest.fixture(scope="session")
def lab() -> None:
    """For tests that bring up a lab themselves."""
    _demand("cluster")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four healthy nodes with one training environment and an NVIDIA driver each."""
    _demand("cluster", "compiler")
    with Cluster(4) as cluster:
        TrainingEnvironment(cluster).build()
        yield cluster


@pytest.fixture
def faults(cluster: Cluster) -> Iterator[Faults]:
    """Breaks nodes of `cluster` for one test."""
    with Faults(cluster) as faults:
        yield faults


@pytest.fixture(scope="session")
def chrony_cluster() -> Iterator[Cluster]:
    """Three nodes that all follow one clock."""
    _demand("cluster", "chrony")
    with Cluster(3) as cluster:
        chrony.start(cluster)
        yield cluster


@pytest.fixture(scope="session")
def clock_cluster() -> Iterator[Cluster]:
    """Sixteen nodes whose clocks can be set apart from each other."""
    _demand("cluster", "faketime")
    with Cluster(16) as cluster:
        faketime.start(cluster)
        yield cluster


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """Slurm over two nodes, which are `slurm.cluster`."""
    _demand("cluster", "slurm")
    with Cluster(2) as cluster:
        slurm = Slurm(cluster)
        slurm.start()
        yield slurm


@pytest.fixture(scope="session")
def training(cluster: Cluster) -> TrainingEnvironment:
    """The training environment of `cluster`."""
    return TrainingEnvironment(cluster)


@pytest.fixture
def envaudit(cluster: Cluster, tmp_path: Path) -> Command:
    """The command over ssh to `cluster`, with a store of its own."""
    return over_ssh(cluster, tmp_path)
