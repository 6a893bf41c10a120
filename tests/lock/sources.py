"""Source files written by the tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envaudit.lock.sourcefile import SourceFile, read_source

CHANNEL = "https://conda.example/train"


def source_of(
    folder: Path,
    *dependencies: str,
    pip: Sequence[str] = (),
    channels: Sequence[str] = (CHANNEL,),
    name: str = "environment.yml",
    more: str = "",
) -> SourceFile:
    """Write an environment file and read it."""
    lines = [more] if more else []
    lines += ["channels:", *(f"  - {each}" for each in channels)]
    lines += ["dependencies:", *(f"  - {each}" for each in dependencies)]
    if pip:
        lines += ["  - pip:", *(f"    - {each}" for each in pip)]
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return read_source(str(path))
