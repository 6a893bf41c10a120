"""The speed of hashing that is promised: an environment's files against openssl over the same files.

Run by `nox -s bench`; alone: `python tests/bench/bench_integrity.py [--runs N] [--files N] [--megabytes N]`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.measure import Command, in_turn, median_s, ratio

FILES, MEGABYTES = 20_000, 1_500
SITE = "lib/python3.11/site-packages"
_PACKAGES = 200

# The section alone, in a process of its own; every file has to be as recorded, and to have been read.
_HASH = """
import sys
from envaudit.probe.static import read_prefix
prefix, mode, files, size = sys.argv[1:]
(row,) = read_prefix(prefix, tool="bench", sections=["integrity"], options={"integrity": mode})["sections"]
assert row["status"] == "ok" and not any(row["facts"]["counts"].values()), row
assert row["notes"]["examined"] == int(files), row["notes"]
assert row["notes"]["read_bytes"] == int(size), row["notes"]
"""
# The least that Python can do: files that are known, the largest first, dealt out to processes with one
# buffer each.
_BARE = """
import hashlib, os, sys
listed, processes = sys.argv[1], int(sys.argv[2])
with open(listed, "rb") as file:
    paths = file.read().split(b"\\0")[:-1]
place = 0
while place + 1 < processes and os.fork():
    place += 1
buffer = memoryview(bytearray(256 << 10))
for path in paths[place::processes]:
    fd = os.open(path, os.O_RDONLY)
    count = os.readv(fd, [buffer])
    digest = hashlib.sha256(buffer[:count])
    while count:
        count = os.readv(fd, [buffer])
        digest.update(buffer[:count])
    os.close(fd)
    digest.hexdigest()
if place + 1 == processes:
    for _ in range(place):
        assert os.wait()[1] == 0
"""


def main() -> int:
    """Measure and say; 1 when the promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = integrity(Path(folder), options.runs, options.files, options.megabytes)
    return 0 if kept else 1


def integrity(folder: Path, runs: int, files: int = FILES, megabytes: int = MEGABYTES) -> bool:
    """`hash` of all files against `openssl dgst -sha256` on as many processes; `size` and a bare loop beside.

    openssl and the loop are given the names of the files, and compare nothing; the whole command reads the
    records, compares, and looks for files that nobody recorded. The loop says how much room is left for that.
    """
    if shutil.which("openssl") is None:
        return say("integrity: not measured, openssl is absent", True)
    prefix = folder / "env"
    paths = build_prefix(prefix, files, megabytes << 20)
    listed, largest_first = folder / "paths", folder / "largest"
    listed.write_bytes(_names(paths))
    largest_first.write_bytes(_names(sorted(paths, key=lambda path: -path.stat().st_size)))
    total = sum(path.stat().st_size for path in paths)
    # As many processes as envaudit takes, and several turns for each, so that they end together.
    processes = min(8, len(os.sched_getaffinity(0)))
    share = max(1, len(paths) // (4 * processes))
    openssl = ["xargs", "-0", "-a", str(listed), f"-P{processes}", f"-n{share}"]
    ours = [sys.executable, "-c", _HASH, str(prefix)]
    commands = {
        "hash": Command([*ours, "hash", str(len(paths)), str(total)]),
        "openssl": Command([*openssl, "openssl", "dgst", "-sha256"]),
        "bare": Command([sys.executable, "-c", _BARE, str(largest_first), str(processes)]),
        "size": Command([*ours, "size", str(len(paths)), "0"]),
    }
    results = in_turn(commands, runs)
    value, bare = (ratio(results, name, "openssl") for name in ("hash", "bare"))
    hash_s, openssl_s, bare_s, size_s = (median_s(results[name]) for name in commands)
    return say(
        f"hash of {total / 1e9:.2f} GB in {len(paths):,} files on {processes} processes {hash_s:.2f} s, "
        f"openssl {openssl_s:.2f} s, ratio {value:.2f}, promised 1; a bare loop {bare_s:.2f} s, "
        f"ratio {bare:.2f}; size {size_s:.2f} s",
        value <= 1,
    )


def _names(paths: list[Path]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def build_prefix(prefix: Path, files: int, size_bytes: int) -> list[Path]:
    """A prefix of half conda, half pip packages; returns the files that they recorded.

    PROVENANCE: hand-made after an environment with a CUDA build of torch: two libraries hold a third of
    the bytes, one file in twenty has 100 kB to 900 kB, the rest are modules of some kilobytes.
    """
    chance = random.Random(20)
    block = chance.randbytes(1 << 20)
    sizes = [size_bytes // 6] * 2 + [chance.randint(100_000, 900_000) for _ in range(files // 20)]
    rest = files - len(sizes)
    average = max(1, (size_bytes - sum(sizes)) // rest)
    sizes += [chance.randint(0, 2 * average) for _ in range(rest)]
    written: list[Path] = []
    (prefix / "conda-meta").mkdir(parents=True)
    for number in range(_PACKAGES):
        name = f"package{number:03d}"
        rows = []
        for index, size in enumerate(sizes[number::_PACKAGES]):
            path = prefix / SITE / name / f"part{index % 10}" / f"module_{index:04d}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows.append((path, _write(path, block, size), size))
            written.append(path)
        (_record_of_conda if number % 2 else _record_of_pip)(prefix, name, rows)
    return written


def _write(path: Path, block: bytes, size: int) -> bytes:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        while size > 0:
            part = block[: min(size, len(block))]
            file.write(part)
            digest.update(part)
            size -= len(part)
    return digest.digest()


def _record_of_conda(prefix: Path, name: str, rows: list[tuple[Path, bytes, int]]) -> None:
    paths = [
        {
            "_path": str(path.relative_to(prefix)),
            "path_type": "hardlink",
            "sha256": digest.hex(),
            "sha256_in_prefix": digest.hex(),
            "size_in_bytes": size,
        }
        for path, digest, size in rows
    ]
    record = {
        "name": name,
        "version": "1",
        "files": [path["_path"] for path in paths],
        "paths_data": {"paths": paths, "paths_version": 1},
    }
    (prefix / "conda-meta" / f"{name}-1-0.json").write_text(json.dumps(record, indent=2))


def _record_of_pip(prefix: Path, name: str, rows: list[tuple[Path, bytes, int]]) -> None:
    about = prefix / SITE / f"{name}-1.dist-info"
    about.mkdir(parents=True)
    (about / "INSTALLER").write_text("pip\n")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    lines = [
        f"{path.relative_to(prefix / SITE)},"
        f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')},{size}\n"
        for path, digest, size in rows
    ]
    (about / "RECORD").write_text("".join(lines) + f"{name}-1.dist-info/RECORD,,\n")


def say(text: str, kept: bool) -> bool:
    """One line of the result."""
    print(("kept    " if kept else "BROKEN  ") + text, flush=True)
    return kept


if __name__ == "__main__":
    sys.exit(main())
