"""Files that are made to take long or to grow: read, judged or refused in moments."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from envaudit.lock.dependencies import MAX_ENTRIES
from tests.lock.envfiles import HEAD, judged, written

# Far above what these take (tenths of a second) and far below what they would take (hours).
LIMIT_S = 15

LONG = 900_000
TEXTS = {
    "one line of hashes": HEAD + "  - a " + "#" * LONG + "\n",
    "one comment of brackets": HEAD + "  - a # " + "[" * LONG + "\n",
    "one comment of selectors": HEAD + "  - a # " + "[linux]" * (LONG // 7) + "\n",
    "spaces inside a spec": HEAD + "  - a" + " " * LONG + "b\n",
    "commas inside a spec": HEAD + "  - a" + ">1," * (LONG // 3) + "\n",
    "brackets inside a spec": HEAD + "  - a" + "[a" * (LONG // 2) + "\n",
    "spaces inside a requirement": HEAD + "  - pip:\n    - a" + " " * LONG + "b\n",
    "one long name": HEAD + "  - pip:\n    - " + "a." * (LONG // 2) + "\n",
    "one long address": HEAD + "  - pip:\n    - https://h/" + "?token" * (LONG // 6) + "\n",
    "letters that begin no address": "name: " + "a" * LONG + "\n" + HEAD + "  - a\n",
    "pytorch without end": HEAD + "  - pytorch\n" * 60_000,
    "pytorch and cudatoolkit without end": HEAD + "  - pytorch\n  - cudatoolkit=11\n" * 25_000,
    "CPU and CUDA without end": HEAD + "  - cpuonly\n  - pytorch-cuda=11.8\n" * 25_000,
    "versions of CUDA without end": HEAD + "".join(f"  - cuda-version={n}.{n}\n" for n in range(30_000)),
    "pip sections of aliases": "channels: [c]\ndependencies:\n  - &p\n    pip: &l ["
    + "a," * 100_000 + "a]\n" + "  - *p\n" * 50_000,
    "faults without end": HEAD + "  - =\n" * 100_000,
    "keys without end": "".join(f"k{n}: 1\n" for n in range(60_000)) + HEAD + "  - a\n",
    "tabs without end": HEAD + "  - a\t\n" * 90_000,
    "nesting without end": HEAD + "  - " + "[" * LONG + "\n",
    "anchors without end": HEAD + "".join(f"  - &a{n} p\n" for n in range(40_000)),
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_hostile_file_is_judged_in_moments(tmp_path: Path, text: str) -> None:
    """Reading and judging take time as the length does, not as its square; messages stay short."""
    began = time.monotonic()
    source = written(tmp_path, text)
    findings = judged(source)
    assert time.monotonic() - began < LIMIT_S
    assert len(source.entries()) <= MAX_ENTRIES
    assert max((len(fault.message) for fault in source.faults), default=0) < 1000
    assert len(findings) < 3 * MAX_ENTRIES


def test_includes_that_grow_are_cut(tmp_path: Path) -> None:
    """A hundred files of half a megabyte each."""
    (tmp_path / "long.txt").write_text("a\n" * 250_000)
    (tmp_path / "joined.txt").write_text("a\\\n" * 250_000)
    lines = "    - -r long.txt\n" * 50 + "    - -r joined.txt\n" * 50
    began = time.monotonic()
    source = written(tmp_path, HEAD + "  - pip:\n" + lines)
    assert time.monotonic() - began < LIMIT_S
    assert len(source.pip) <= MAX_ENTRIES + len(lines)
    assert any("includes of more than 5000 lines" in fault.message for fault in source.faults)
