"""Every public lock through the audit, and against the source that it was published with."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.errors import InputError
from envaudit.lock.audit import lock_section
from envaudit.lock.freshness import freshness_section
from envaudit.lock.lockfile import read_lock
from envaudit.lock.sourcefile import read_source
from envaudit.model import Fingerprint, Section
from envaudit.rules import Evidence, judge

pytestmark = pytest.mark.corpus

CUDA = "EA083 CUDA 12.5 (cuda-version 12.5) beside CUDA 11.8 (cuda-cudart 11.8.89) on"
# Lock to what is found in it; a text where it cannot be read.
EXPECTED: dict[str, list[str] | str] = {
    "01-bertchen-linux64-pytorch-cuda.yml": [f"{CUDA} linux-64, win-64"],
    "02-bertchen-ppc64le.yml": [],
    "04-pangeo-pytorch-notebook.yml": [],
    "05-condalock-zlib-multiplatform.yml": [],
    "06-condalock-pip-linux64-aarch64.yml": [],
    "08-condalock-categories.yml": [],
    "10-mamba-missing-category.yml": [
        "EA062 libzlib needs vc, which is not locked (win-64)",
        "EA062 libzlib needs vs2015_runtime, which is not locked (win-64)",
    ],
    "12-INVALID-missing-package.yml": "package: expected a list, got nothing",
    "14-INVALID-metadata-type.yml": "metadata: expected a mapping, got 'this should be a dict not a string'",
}
_OTHER_HASH = (
    "the content hash of {} is another one; every spec is still met, so what changed is a spec that "
    "the locked version meets too, or the virtual packages"
)


def told(*sections: Section) -> list[str]:
    """Rule and message of each finding."""
    fingerprint = Fingerprint("", "lock", "2026-11-30T10:00:00Z", "0", {each.name: each for each in sections})
    found = judge(Evidence((fingerprint,), comparing=False))
    return [f"{finding.rule} {finding.message}" for finding in found]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_public_lock_has_the_findings_that_are_known(corpus: Path, name: str) -> None:
    """The CUDA family of one is really on two versions; the rest is whole."""
    path = corpus / "locks" / name
    expected = EXPECTED[name]
    if isinstance(expected, str):
        with pytest.raises(InputError) as raised:
            read_lock(str(path))
        assert expected == raised.value.what
    else:
        found = told(lock_section(read_lock(str(path))))
        print(f"{name}: {found or 'no findings'}")
        assert expected == found


def test_every_public_lock_is_accounted_for(corpus: Path) -> None:
    """None is left out in silence."""
    assert sorted(EXPECTED) == sorted(path.name for path in (corpus / "locks").iterdir())


@pytest.mark.parametrize(
    ("lock", "source", "changes"),
    [
        (
            "01-bertchen-linux64-pytorch-cuda.yml",
            "13-bertchen.yml",
            [_OTHER_HASH.format("linux-64, osx-arm64, win-64")],
        ),
        (
            "02-bertchen-ppc64le.yml",
            "13-bertchen.yml",
            [
                "channels: +nvidia, -{1}, -defaults",
                "pytorch::pytorch=2.1.0: the lock has 2.0.1 cuda11.8_py310_1",
                "pytorch::pytorch-cuda=11.8: the lock has none",
                "lightning=2.3.2: the lock has 2.1.0 pyhd8ed1ab_0",
            ],
        ),
        ("04-pangeo-pytorch-notebook.yml", "16-pangeo-pytorch.yml", [_OTHER_HASH.format("linux-64")]),
    ],
)
def test_public_lock_against_its_source_names_what_is_known(
    corpus: Path, lock: str, source: str, changes: list[str]
) -> None:
    """Made with virtual packages of their own, or for another source; the content hash says so."""
    made = read_lock(str(corpus / "locks" / lock))
    section = freshness_section(
        made, [read_source(str(corpus / "environments" / source))], platforms=made.platforms
    )
    channels = [channel.url for channel in made.channels]
    assert [change.format(*channels) for change in changes] == section.facts["changes"]
