"""A synthetic conda channel of the size of the large public ones, for benchmarks of the solver.

PROVENANCE: hand-made. Half a million records of about 420 bytes for each platform: 50 packages with
540 builds each, of which every one needs the next ones, and thousands of packages around them that
nobody asks for. A name's last version is the highest, as in a channel that grows.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Iterator

CLOSURE = 50
BUILDS = 540
ASKED_FOR = ("chain-000", "chain-010", "chain-025 >=3")
"""Specs whose closure is all 50 packages."""


def build_channel(folder: Path, records: int, platforms: tuple[str, ...] = ("linux-64",)) -> None:
    """Write `repodata.json` for each platform with so many records, and an empty `noarch`.

    Raises:
        ValueError: fewer records than the closure alone has.
    """
    if records < CLOSURE * BUILDS:
        raise ValueError(f"{records} records, the closure alone has {CLOSURE * BUILDS}")
    for platform in platforms:
        _write(folder / platform, platform, _records(records, platform))
    _write(folder / "noarch", "noarch", iter(()))


def _write(folder: Path, platform: str, entries: Iterator[str]) -> None:
    os.makedirs(folder, exist_ok=True)
    with open(folder / "repodata.json", "w", encoding="ascii") as file:
        file.write(f'{{"info":{{"subdir":"{platform}"}},"packages":{{}},"packages.conda":{{')
        first = True
        for entry in entries:
            file.write(entry if first else "," + entry)
            first = False
        file.write('},"repodata_version":1}')


def _records(count: int, platform: str) -> Iterator[str]:
    """Entries sorted by file name, as an index has them."""
    for number in range(CLOSURE):
        # A chain with a second link, so that the solver has choices to make and none of them fails.
        for build in range(BUILDS):
            depends = [
                f"chain-{other:03d} >={build // 100}" for other in (number + 1, number + 7) if other < CLOSURE
            ]
            yield _record(f"chain-{number:03d}", build, depends, platform)
    for number in range(count - CLOSURE * BUILDS):
        name, build = f"other-{number // 25:05d}", number % 25
        yield _record(name, build, [f"other-{number // 50:05d}", "chain-000 >=1"], platform)


def _record(name: str, build: int, depends: list[str], platform: str) -> str:
    version = f"{build // 100}.{build // 10 % 10}.{build % 10}"
    digest = hashlib.sha256(f"{name} {version} {platform}".encode()).hexdigest()
    needs = ",".join(f'"{item}"' for item in depends)
    return (
        f'"{name}-{version}-h{digest[:7]}_0.conda":{{"build":"h{digest[:7]}_0","build_number":0,'
        f'"depends":[{needs}],"license":"BSD-3-Clause","md5":"{digest[:32]}","name":"{name}",'
        f'"sha256":"{digest}","size":{100_000 + build},"subdir":"{platform}",'
        f'"timestamp":{1_600_000_000_000 + build},"version":"{version}"}}'
    )
