"""Events written by torch's SummaryWriter, read back by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import envaudit
from envaudit.model import Snapshot
from envaudit.report import Report
from envaudit.store import read_snapshot_file
from tests.track.conftest import WICKED

pytest.importorskip("torch", reason="needs torch: nox -s checks")
pytest.importorskip("tensorboard", reason="needs tensorboard: nox -s checks")


def read_back(folder: Path) -> Any:
    """What TensorBoard itself finds in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    events.Reload()
    return events


def text_of(events: Any, tag: str) -> str:
    """The Markdown of a text."""
    (event,) = events.Tensors(f"{tag}/text_summary")
    return bytes(event.tensor_proto.string_val[0]).decode()


@pytest.fixture
def writer(tmp_path: Path) -> Any:
    """A writer into a folder of the test's own."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(log_dir=str(tmp_path / "run"))
    yield writer
    writer.close()


def test_digests_verdict_and_snapshot_are_in_the_events(
    writer: Any, snapshot: Snapshot, result: Report, tmp_path: Path
) -> None:
    """Whoever looks at a curve finds what it was computed on."""
    assert snapshot == envaudit.track.tensorboard(writer, snapshot, result, step=7)
    writer.close()
    events = read_back(tmp_path / "run")
    digests = text_of(events, "envaudit/digests").splitlines()
    assert [f"    {each.digest}  {each.node}" for each in snapshot.fingerprints] == digests[:2]
    assert "FAIL EA214 node[01-02]" in text_of(events, "envaudit/summary")
    numbers = {
        tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }
    assert {
        "envaudit/exit_code": [(7, 1.0)],
        "envaudit/findings/error": [(7, 1.0)],
        "envaudit/findings/incomplete": [(7, 1.0)],
        "envaudit/findings/warning": [(7, 0.0)],
        "envaudit/findings/info": [(7, 0.0)],
    } == numbers
    name = text_of(events, "envaudit/snapshot").strip()
    assert snapshot == read_snapshot_file(str(tmp_path / "run" / name))


def test_what_a_node_says_is_no_markup(
    writer: Any, snapshot: Snapshot, result: Report, tmp_path: Path
) -> None:
    """TensorBoard shows texts as Markdown: every line is code, and prints."""
    envaudit.track.tensorboard(writer, snapshot, result)
    writer.close()
    events = read_back(tmp_path / "run")
    texts = [text_of(events, f"envaudit/{name}") for name in ("digests", "summary")]
    assert all(WICKED[:-1] + "\\u202e" in text for text in texts)
    lines = [line for text in texts for line in text.splitlines()]
    assert [line for line in lines if line.strip() and not line.startswith("    ")] == []


def test_events_without_a_folder_carry_the_snapshot_itself(snapshot: Snapshot) -> None:
    """A bucket is no folder of this machine."""
    told: dict[str, str] = {}

    class Remote:
        log_dir = "gs://bucket/run"

        def add_text(self, tag: str, text: str, step: int) -> None:
            told[tag] = text

    envaudit.track.tensorboard(Remote(), snapshot)  # type: ignore[arg-type]
    assert ["envaudit/digests", "envaudit/snapshot"] == sorted(told)
    assert '"format":"envaudit.snapshot"' in told["envaudit/snapshot"]


def test_writer_alone_logs_this_machine(writer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in a training script is enough."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    logged = envaudit.track.tensorboard(writer)
    writer.close()
    (here,) = logged.fingerprints
    assert here.digest in text_of(read_back(tmp_path / "run"), "envaudit/digests")
