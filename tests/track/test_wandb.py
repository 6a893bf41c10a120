"""A run of Weights & Biases in offline mode, its files read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envaudit.model import Snapshot
from envaudit.store import read_snapshot_file, write_snapshot_file
from tests.diff.nodes import CAPTURED_AT, TOOL
from tests.track.wandbfile import records_of

pytest.importorskip("wandb", reason="needs wandb: nox -s checks")

# A process of its own: wandb starts a service, and leaves threads and handlers behind.
PROGRAM = """
import sys, envaudit, wandb
from envaudit.store import read_snapshot_file

snapshot = read_snapshot_file(sys.argv[1])
with wandb.init(project="p", dir=sys.argv[2], mode="offline") as run:
    logged = envaudit.track.wandb(run, snapshot, envaudit.diff(snapshot))
    print("RUN", run.id, run.dir)
assert logged == snapshot
"""


@pytest.fixture
def records(snapshot: Snapshot, tmp_path: Path) -> list[Any]:
    """Everything that the run wrote down to be sent one day."""
    write_snapshot_file(str(tmp_path / "a.json"), snapshot, captured_at=CAPTURED_AT, tool=TOOL)
    own = {
        name: str(tmp_path / name.lower())
        for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "HOME")
    }
    environment = {**os.environ, **own, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "a.json"), str(tmp_path)]
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120, check=False
    )
    assert (0, "") == (ended.returncode, ended.stderr if ended.returncode else "")
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    return list(records_of(file))


def test_digests_verdict_and_snapshot_are_in_the_run(
    records: list[Any], snapshot: Snapshot, tmp_path: Path
) -> None:
    """Digests in the configuration, counts in the summary, the snapshot and the page as an artefact."""
    config = {
        update.key: json.loads(update.value_json)
        for record in records
        if record.WhichOneof("record_type") == "config"
        for update in record.config.update
    }
    assert {each.node: each.digest for each in snapshot.fingerprints} == {
        node: row["digest"] for node, row in config["envaudit"]["nodes"].items()
    }
    summary = {
        (update.key or "/".join(update.nested_key)): json.loads(update.value_json)
        for record in records
        if record.WhichOneof("record_type") == "summary"
        for update in record.summary.update
    }
    assert ("FAIL", 1, 1) == (
        summary["envaudit/verdict"],
        summary["envaudit/exit_code"],
        summary["envaudit/findings/incomplete"],
    )
    (artifact,) = _artifacts(records)
    files = {entry.path: entry.local_path for entry in artifact.manifest.contents}
    assert "envaudit-snapshot" == artifact.type
    assert ["envaudit-report.html", "envaudit-snapshot.json.gz"] == sorted(files)
    assert snapshot == read_snapshot_file(files["envaudit-snapshot.json.gz"])
    assert "FAIL EA214 node[01-02]" in Path(files["envaudit-report.html"]).read_text(encoding="utf-8")


def _artifacts(records: list[Any]) -> list[Any]:
    """The artefacts that the run would upload."""
    return [
        record.request.log_artifact.artifact
        if record.WhichOneof("record_type") == "request"
        else record.artifact
        for record in records
        if record.WhichOneof("record_type") == "artifact"
        or (
            record.WhichOneof("record_type") == "request"
            and record.request.WhichOneof("request_type") == "log_artifact"
        )
    ]
