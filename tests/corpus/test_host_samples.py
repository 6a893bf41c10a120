"""Recorded files of hosts and of conda, read by their sections."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from envaudit.probe.context import Context
from envaudit.probe.sections import conda, host

pytestmark = pytest.mark.corpus


@pytest.mark.parametrize(
    ("name", "package", "facts"),
    [
        (
            "condalockfiles-conda-meta-python_abi.json",
            "python_abi",
            {"version": "3.13", "build": "7_cp313", "channel": "conda-forge"},
        ),
        (
            "syft-conda-meta-zlib.json",
            "zlib",
            {"version": "1.2.11", "build": "h90dfc92_1014", "channel": "conda-forge"},
        ),
    ],
)
def test_record_of_an_installed_package_is_read(
    corpus: Path, tmp_path: Path, name: str, package: str, facts: dict[str, str]
) -> None:
    """Records that conda and rattler wrote: version, build, channel and hash."""
    sample = corpus / "samples" / "conda" / name
    record = json.loads(sample.read_text(encoding="utf-8"))
    folder = tmp_path / "env" / "conda-meta"
    folder.mkdir(parents=True)
    shutil.copy(sample, folder / f"{package}-{record['version']}-{record['build']}.json")
    (folder / "history").touch()
    context = Context(
        root=str(tmp_path), environ={}, workdir="/", launch="ssh", interpreter={"prefix": "/env"}
    )
    answer = conda.read(context)
    assert ("ok", []) == (answer.status, list(answer.errors))
    told = answer.facts["packages"][package]
    assert facts == {key: told[key] for key in facts}
    assert record["sha256"] in told.values()


def test_memory_of_a_recorded_meminfo_is_told(corpus: Path, tmp_path: Path) -> None:
    """MemTotal is in KiB, whatever it calls itself."""
    (tmp_path / "proc").mkdir()
    shutil.copy(corpus / "samples/net/jc-proc-meminfo.txt", tmp_path / "proc/meminfo")
    context = Context(root=str(tmp_path), environ={}, workdir="/", launch="ssh", interpreter={})
    assert 3997272 * 1024 == host.read(context).notes["memory_bytes"]
