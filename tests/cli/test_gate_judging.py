"""The gate in a launch holds its nodes to a lock and to each other, and folds as the one outside does."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import List, Optional, Tuple

import pytest

from envaudit.cli import compiled, compiling, gatejudging
from envaudit.cli.configuration import Lock
from envaudit.cli.main import parser_of
from envaudit.model import Section
from envaudit.report import Report
from tests.cases.nodes import USUAL, node
from tests.diff.nodes import fingerprint

PACKAGE = "nvidia-nccl-cu13"
EXAMPLE = Path(__file__).parents[2] / "lockfiles"
SOURCE, LOCK = "train.environment.yml", "train.conda-lock.yml"


def report(folder: Path, versions: list[str], policy: str) -> Report:
    """Nodes with these versions of a wheel that the lock has as 2.27.7, under a policy."""
    lock, rules = folder / "requirements.lock", folder / "policy.toml"
    lock.write_text(f"{PACKAGE}==2.27.7\n")
    rules.write_text(policy)
    made = compiling.compile_lock(str(lock), ("main",))
    held = gatejudging.Held(compiled.expected_of(json.loads(made.decode("ascii"))), None)
    nodes = tuple(
        fingerprint(
            f"node{place:02d}",
            packages=Section("packages", 1, "ok", {"distributions": {PACKAGE: {"version": version}}}, {}),
        )
        for place, version in enumerate(versions, 1)
    )
    options = parser_of("gate").parse_args(["--policy", str(rules)])
    seen = gatejudging.Seen(nodes, {}, (), ("packages", "lock"))
    return gatejudging.report_of(seen, held, options, time.monotonic())


def test_other_package_than_the_locks_is_one_finding(tmp_path: Path) -> None:
    """The lock knows which is right; what follows goes with it."""
    found = report(tmp_path, ["2.27.7", "2.27.7", "2.26.2"], "")
    assert [("EA202", ("node03",))] == [(one.rule, one.nodes) for one in found.findings]


def test_other_package_is_told_between_the_nodes_where_the_lock_must_not_speak_loud(tmp_path: Path) -> None:
    """A remark takes along nothing that is worse."""
    found = report(tmp_path, ["2.27.7", "2.27.7", "2.26.2"], '[rules.EA202]\nseverity = "info"\n')
    assert ["EA216", "EA202"] == [one.rule for one in found.findings]


def test_setting_of_one_node_is_told_of_a_launch_whose_baseline_was_read_over_ssh() -> None:
    """The baseline says nothing of a launch's libraries: the other nodes of the launch do."""
    names = ("n1", "n2", "n3")
    before = {name: node(name, USUAL._replace(launch="ssh")) for name in names}
    held = gatejudging.Held(None, compiled.Baseline("good", "", before, for_all=False))
    odd = {"n2": {"libraries/nccl/version": "2.27.3"}}
    now = tuple(node(name, USUAL._replace(launch="inband"), odd.get(name)) for name in names)
    options = parser_of("gate").parse_args([])
    found = gatejudging.report_of(
        gatejudging.Seen(now, {}, (), tuple(now[0].sections)), held, options, time.monotonic()
    )
    errors = [(one.rule, one.nodes) for one in found.findings if one.severity == "error"]
    assert [("EA214", ("n2",))] == errors


def of_example(folder: Path) -> Report:
    """A node held to the example's lock as it lies in this folder, and to nothing else."""
    made = compiling.compile_lock(LOCK, ("main",), Lock(sources=(str(folder / SOURCE),)))
    held = gatejudging.Held(compiled.expected_of(json.loads(made.decode("ascii"))), None)
    options = parser_of("gate").parse_args([])
    seen = gatejudging.Seen((fingerprint("node01"),), {}, (), ("lock",))
    return gatejudging.report_of(seen, held, options, time.monotonic())


@pytest.mark.parametrize(
    ("edit", "words", "rules"),
    [
        (None, f"{LOCK} is fresh", []),
        (("pytorch=2.0.1", "pytorch=2.0.2"), f"{LOCK} is stale", ["EA060"]),
    ],
)
def test_lock_is_as_fresh_in_a_launch_as_outside_of_it(
    edit: Optional[Tuple[str, str]],
    words: str,
    rules: List[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What `lock --check` said when it was compiled in counts where no YAML is read."""
    monkeypatch.chdir(tmp_path)
    for name in (SOURCE, LOCK):
        shutil.copy(EXAMPLE / name, tmp_path)
    if edit is not None:
        (tmp_path / SOURCE).write_text((tmp_path / SOURCE).read_text().replace(*edit))
    found = of_example(tmp_path)
    told = [stage.text for stage in found.stages if stage.name == "lock"]
    assert [words] == told
    assert rules == [one.rule for one in found.findings if one.rule == "EA060"]


def test_source_that_changes_after_it_was_compiled_in_is_told(tmp_path: Path) -> None:
    """What that means only a YAML reader can say."""
    (tmp_path / SOURCE).write_text("dependencies: [python, pip]\n")
    digest = hashlib.sha256(b"dependencies: [python]\n").hexdigest()
    made = compiled.Expected(LOCK, "", {}, {}, None, "", {SOURCE: digest, "elsewhere.yml": digest})
    assert [SOURCE] == made.changed_sources(str(tmp_path))


def test_source_that_is_a_pipe_or_a_device_keeps_no_launch(tmp_path: Path) -> None:
    """What lies in the launch's folder may be anything; neither is read."""
    os.mkfifo(tmp_path / "pipe.yml")
    (tmp_path / "device.yml").symlink_to("/dev/zero")
    made = compiled.Expected(LOCK, "", {}, {}, None, "", {"pipe.yml": "1", "device.yml": "2"})
    assert [] == made.changed_sources(str(tmp_path))


def test_lock_without_its_sources_is_compiled_and_is_not_called_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still says what nodes must have."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLE / LOCK, tmp_path)
    told = [stage.text for stage in of_example(tmp_path).stages if stage.name == "lock"]
    assert told[0].startswith(f"{LOCK}: whether it is fresh is not known: ")
