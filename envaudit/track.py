"""What a run was on, beside its curves: digests, the verdict, and the snapshot as a file.

    import envaudit

    envaudit.track.tensorboard(writer)                  # this machine, now
    envaudit.track.wandb(run, snapshot, result)         # what a gate found before the launch

One process of a job calls it, as a rule the one of rank 0. Neither tracker is imported here: whoever
calls has the writer or the run already.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any, Protocol

from envaudit._version import __version__
from envaudit.errors import NeededError
from envaudit.model import Snapshot
from envaudit.model.codec import encode_snapshot
from envaudit.model.finding import SEVERITIES
from envaudit.model.nodeset import fold
from envaudit.model.printing import printable
from envaudit.report import Report, html, plain
from envaudit.store import write_snapshot_file

__all__ = ["tensorboard", "wandb"]

_FILE_NAME = "envaudit-snapshot.json.gz"
_REPORT_NAME = "envaudit-report.html"
_NEVER = "1970-01-01T00:00:00Z"


class Writer(Protocol):
    """What is used of a `SummaryWriter`, that of torch or of tensorboardX."""

    def add_text(self, tag: str, text_string: str, global_step: int) -> Any:
        """Log Markdown."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """Log a number."""


def tensorboard(
    writer: Writer, snapshot: Snapshot | None = None, result: Report | None = None, *, step: int = 0
) -> Snapshot:
    """Log to TensorBoard, under `envaudit/`.

    Texts `envaudit/digests` and `envaudit/summary` (the report), numbers `envaudit/exit_code` and
    `envaudit/findings/error` and so on where there is a result. The snapshot becomes the file
    `envaudit-snapshot.json.gz` beside the events, which `envaudit diff` and `show` read, and the text
    `envaudit/snapshot` says where; where the events go to no folder of this machine, that text is the
    snapshot itself.

    Args:
        writer: a SummaryWriter.
        snapshot: what to log; None for this machine as it is now.
        result: what a gate, a diff or a check found.
        step: the global step.

    Returns:
        The snapshot that was logged.

    Raises:
        NeededError: the file cannot be written.
    """
    snapshot = _snapshot(snapshot)
    writer.add_text("envaudit/digests", _block(_digest_lines(snapshot)), step)
    if result is not None:
        writer.add_text("envaudit/summary", _block(plain.render(result).splitlines()), step)
        for name, value in _numbers(result).items():
            writer.add_scalar(f"envaudit/{name}", value, step)
    folder = _folder(writer)
    if folder:
        path = os.path.join(folder, _FILE_NAME)
        write_snapshot_file(path, snapshot, captured_at=_captured_at(snapshot), tool=__version__)
        writer.add_text("envaudit/snapshot", _block([_FILE_NAME]), step)
    else:
        text = encode_snapshot(snapshot, captured_at=_captured_at(snapshot), tool=__version__)
        writer.add_text("envaudit/snapshot", _block(text.splitlines()), step)
    return snapshot


def wandb(run: Any, snapshot: Snapshot | None = None, result: Report | None = None) -> Snapshot:
    """Log to a run of Weights & Biases.

    `config.envaudit` has the digest of each node and of its sections, the summary has
    `envaudit/exit_code` and the number of findings of each severity, and an artefact of type
    `envaudit-snapshot` has the snapshot and, where there is a result, the report as one HTML page.

    Args:
        run: of `wandb.init()`; its mode, offline too, is its own matter.
        snapshot: what to log; None for this machine as it is now.
        result: what a gate, a diff or a check found.

    Returns:
        The snapshot that was logged.

    Raises:
        NeededError: wandb is not installed.
    """
    try:
        from wandb import Artifact
    except ImportError:
        raise NeededError("wandb is not installed", next_step="Install it: pip install wandb.") from None
    snapshot = _snapshot(snapshot)
    digests = {
        each.node: {
            "digest": each.digest,
            "sections": {name: section.digest for name, section in sorted(each.sections.items())},
        }
        for each in snapshot.fingerprints
    }
    run.config.update({"envaudit": {"tool": __version__, "nodes": digests}}, allow_val_change=True)
    if result is not None:
        told: dict[str, Any] = {"envaudit/verdict": result.verdict.name}
        told.update({f"envaudit/{name}": value for name, value in _numbers(result).items()})
        run.summary.update(told)
    artifact = Artifact(f"envaudit-{run.id}", type="envaudit-snapshot")
    with tempfile.TemporaryDirectory(prefix="envaudit-wandb-") as folder:
        path = os.path.join(folder, _FILE_NAME)
        write_snapshot_file(path, snapshot, captured_at=_captured_at(snapshot), tool=__version__)
        artifact.add_file(path, name=_FILE_NAME)
        if result is not None:
            with artifact.new_file(_REPORT_NAME, encoding="utf-8") as file:
                file.write(html.render(result))
        run.log_artifact(artifact)
    return snapshot


def _snapshot(given: Snapshot | None) -> Snapshot:
    if given is not None:
        return given
    from envaudit.api import snapshot

    return snapshot()


def _captured_at(snapshot: Snapshot) -> str:
    """When the first node was read."""
    return min((each.captured_at for each in snapshot.fingerprints), default=_NEVER)


def _numbers(result: Report) -> dict[str, int]:
    counts = {name: sum(each.severity == name for each in result.findings) for name in SEVERITIES}
    return {"exit_code": result.exit_code, **{f"findings/{name}": count for name, count in counts.items()}}


def _digest_lines(snapshot: Snapshot) -> Iterator[str]:
    """A line for each kind of node, and one for each node that gave no answer."""
    kinds: dict[str, list[str]] = {}
    for fingerprint in snapshot.fingerprints:
        kinds.setdefault(fingerprint.digest, []).append(fingerprint.node)
    for digest, nodes in kinds.items():
        yield f"{digest}  {fold(nodes)}"
    for node, gone in snapshot.missing.items():
        yield f"no answer  {node}  {gone.kind}: {gone.why}"


def _block(lines: Any) -> str:
    """Lines as a block of code in Markdown: nothing that a node said is markup."""
    return "".join(f"    {printable(line)}\n" for line in lines)


def _folder(writer: Any) -> str:
    """The folder of this machine that the events go to; empty where they go elsewhere."""
    folder = getattr(writer, "log_dir", None) or getattr(writer, "logdir", None)
    text = os.fspath(folder) if folder else ""
    return text if isinstance(text, str) and os.path.isdir(text) else ""
