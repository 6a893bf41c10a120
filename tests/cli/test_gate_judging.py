"""The gate in a launch holds its nodes to a lock and to each other, and folds as the one outside does."""

from __future__ import annotations

import json
import time
from pathlib import Path

from envaudit.cli import compiled, compiling, gatejudging
from envaudit.cli.main import parser_of
from envaudit.model import Section
from envaudit.report import Report
from tests.diff.nodes import fingerprint

PACKAGE = "nvidia-nccl-cu13"


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
