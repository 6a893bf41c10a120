"""One of four nodes drifts: that node and those facts are named, nothing else."""

from __future__ import annotations

import pytest

from tests.lab.command import Command, drifted
from tests.lab.faults import Faults
from tests.lab.training_env import TrainingEnvironment, driver_text

pytestmark = pytest.mark.lab

ODD = "node03"


def test_diff_names_the_drifting_node_and_its_facts_alone(
    envaudit: Command, faults: Faults, training: TrainingEnvironment
) -> None:
    """Another driver, NCCL library, package build and NCCL_ALGO on one node of four: exit 1."""
    faults.file(ODD, "/etc/fakenvml.conf", driver_text("570.86.15"))
    faults.shown(ODD, training.other_nccl("2.26.2"), training.nccl)
    faults.shown(ODD, training.rebuilt_record("numpy", "py311h64a7726_1"), training.conda_record("numpy"))
    faults.variable(ODD, "NCCL_ALGO", "Tree")
    ended = envaudit("diff", "node[01-04]", "--format", "json")
    assert 1 == ended.code, ended.text
    expected = {
        "gpu/driver",
        "libraries/nccl/version",
        "conda/packages/numpy/build",
        "env/nccl/NCCL_ALGO/value",
    }
    assert {(path, (ODD,)) for path in expected} == drifted(ended), ended.text


def test_diff_in_words_names_node_and_values(envaudit: Command, faults: Faults) -> None:
    """The report for people holds the node, the fact and both values, and ends in the verdict."""
    faults.variable(ODD, "NCCL_ALGO", "Tree")
    ended = envaudit("diff", "node[01-04]")
    assert 1 == ended.code, ended.text
    for words in (ODD, "NCCL_ALGO", "Tree", "Ring,Tree", "majority 3/4"):
        assert words in ended.stdout, ended.text
    assert ended.last_line.startswith("FAIL"), ended.text


def test_diff_against_the_tag_names_what_changed_since(envaudit: Command, faults: Faults) -> None:
    """The basis is the baseline: even a change on a lonely node is found."""
    envaudit("snapshot", "--nodes", "node01", "--tag", "good")
    faults.file("node01", "/etc/fakenvml.conf", driver_text("570.86.15"))
    ended = envaudit("diff", "node01@good", "node01", "--format", "json")
    assert 1 == ended.code, ended.text
    assert {("gpu/driver", ("node01",))} == drifted(ended), ended.text


def test_diff_of_two_against_two_has_no_reference(envaudit: Command, faults: Faults) -> None:
    """A tie has no majority: both groups are shown, the basis is none."""
    for name in ("node03", "node04"):
        faults.variable(name, "NCCL_ALGO", "Tree")
    ended = envaudit("diff", "node[01-04]", "--format", "json")
    assert 1 == ended.code, ended.text
    (drift,) = ended.envelope["drifts"]
    assert ("none", []) == (drift["basis"], drift["reference"]), ended.text


def test_diff_of_an_ignored_path_passes(envaudit: Command, faults: Faults) -> None:
    """What the user says does not matter does not fail."""
    faults.variable(ODD, "NCCL_ALGO", "Tree")
    ended = envaudit("diff", "node[01-04]", "--ignore", "env/*")
    assert 0 == ended.code, ended.text
