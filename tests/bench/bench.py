"""The speed that is promised, measured whole process against whole process in one run.

`nox -s bench` runs it in an environment with a CPU build of torch. Each line says what was measured,
the promise, and whether it was kept; the exit code is 1 when one was not. Usage:

    python tests/bench/bench.py [--runs N] [--only local,probe,ssh]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Callable

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from tests.bench.measure import Command, in_turn, median_s, ratio  # noqa: E402

ENVAUDIT = [str(Path(sys.executable).parent / "envaudit")]


def main() -> int:
    """Run the chosen measurements; 1 when a promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", default=",".join(MEASUREMENTS))
    options = parser.parse_args()
    kept = True
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            kept &= MEASUREMENTS[name](Path(folder), options.runs)
    return 0 if kept else 1


def local(folder: Path, runs: int) -> bool:
    """`envaudit snapshot` here against torch's own report, both of one environment.

    It is a conda environment of 400 packages, to which a `.pth` file adds the torch of this one.
    """
    python = environment(folder)
    commands = {
        "ours": Command([*ENVAUDIT, "snapshot", "--python", python], str(folder)),
        "collect_env": Command([python, "-m", "torch.utils.collect_env"], str(folder)),
    }
    results = in_turn(commands, runs)
    ours, theirs = median_s(results["ours"]), median_s(results["collect_env"])
    value = ratio(results, "ours", "collect_env")
    return say(
        f"snapshot here {ours:.3f} s, collect_env {theirs:.3f} s, ratio {value:.3f}, promised 1/8",
        value <= 1 / 8,
    )


def probe(folder: Path, runs: int) -> bool:
    """All default sections of that environment on this machine, beyond the bare start of its interpreter."""
    from tests.bench.bench_probe import seconds

    probes, bare = map(statistics.median, seconds(environment(folder), 3 * runs))
    return say(
        f"default probe {probes:.3f} s, of which a bare interpreter {bare:.3f} s, promised 0.25 s beyond it",
        probes - bare <= 0.25,
    )


def environment(folder: Path) -> str:
    """The interpreter of a conda environment of 400 packages that has this one's torch."""
    from tests.bench.synthetic_env import build_conda_env

    python = build_conda_env(str(folder / "env"), packages=400)
    site = next((folder / "env" / "lib").glob("python3*/site-packages"))
    (site / "torch_beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def ssh(folder: Path, runs: int) -> bool:
    """Four nodes over ssh against clush that starts Python there and nothing else."""
    if os.geteuid() != 0 or shutil.which("sshd", path="/usr/sbin:/usr/bin") is None:
        return say("four nodes over ssh: not measured, needs root and openssh-server", True)
    from tests.bench.bench_cluster import compare_with_clush

    results = compare_with_clush(folder, ENVAUDIT, runs)
    ours, theirs = median_s(results["ours"]), median_s(results["clush"])
    value = ratio(results, "ours", "clush")
    return say(
        f"4 nodes over ssh {ours:.3f} s, clush {theirs:.3f} s, ratio {value:.2f}, promised 2.5", value <= 2.5
    )


def clock(folder: Path, runs: int) -> bool:
    """Sixteen clocks over ssh, 64 pings each."""
    if os.geteuid() != 0 or shutil.which("sshd", path="/usr/sbin:/usr/bin") is None:
        return say("sixteen clocks over ssh: not measured, needs root and openssh-server", True)
    from tests.bench.bench_cluster import clocks

    wall_s = median_s(clocks(folder, ENVAUDIT, runs))
    return say(f"clock of 16 nodes over ssh {wall_s:.3f} s, promised 3 s", wall_s <= 3)


_STORE_FLEET = """
import sys
from envaudit.store import Store
from tests.bench.synthetic_fleet import CAPTURED_AT, TOOL, synthetic_fleet
snapshot = synthetic_fleet(nodes=1000, packages=500, outliers=10)
Store(sys.argv[1]).write(snapshot, captured_at=CAPTURED_AT, tool=TOOL, host="bench")
"""


def fleet(folder: Path, runs: int) -> bool:
    """`diff` of 1,000 stored nodes with 500 packages each, 10 of which differ."""
    # In a process of its own: Linux counts the memory of whoever forked towards a command's peak.
    argv = [sys.executable, "-c", _STORE_FLEET, str(folder / ".envaudit")]
    subprocess.run(argv, check=True, cwd=PROJECT)
    argv = [*ENVAUDIT, "diff", "node[0001-1000]@latest", "--fail-on", "warning"]
    command = Command(argv, str(folder), expected=1)
    results = in_turn({"ours": command}, runs)["ours"]
    wall_s, peak = median_s(results), max(run.peak_bytes for run in results) / 1e6
    return say(
        f"diff of 1,000 stored nodes {wall_s:.3f} s, {peak:.0f} MB, promised 1 s and 200 MB",
        wall_s <= 1 and peak <= 200,
    )


def rules(folder: Path, runs: int) -> bool:
    """Judging 1,000 nodes by all rules, 20 of which differ in five ways."""
    from tests.bench.bench_rules import judging_s

    wall_s = judging_s(nodes=1000, outliers=20, runs=runs)
    return say(f"judging 1,000 nodes with 20 outliers {wall_s:.3f} s, promised 2 s", wall_s <= 2)


def lock(folder: Path, runs: int) -> bool:
    """Solving against half a million records, and against real metadata."""
    from tests.bench.bench_lock import real, synthetic

    return synthetic(folder / "synthetic", runs) & real(folder / "real", runs)


def integrity(folder: Path, runs: int) -> bool:
    """Hashing an environment's files, against openssl over the same files."""
    from tests.bench import bench_integrity

    return bench_integrity.integrity(folder, runs)


def hub(folder: Path, runs: int) -> bool:
    """1,024 supervisors join a hub, beat, tell how it went and get the verdict."""
    from tests.bench.bench_hub import cost

    wall_s, peak_bytes = cost(supervisors=1024, runs=runs)
    return say(
        f"hub of 1,024 supervisors {wall_s:.3f} s, {peak_bytes / 1e6:.0f} MB, promised 5 s and 150 MB",
        wall_s <= 5 and peak_bytes <= 150e6,
    )


def collectives(folder: Path, runs: int) -> bool:
    """All collectives of two and of four ranks here, against importing torch alone in as many processes."""
    from tests.bench import bench_collectives

    kept = True
    for world, promised in ((2, 1.5), (4, 2.0)):
        found = bench_collectives.ratios(world, runs)
        text = (
            f"check --nproc {world} --only collectives, ratio to importing torch {found.command:.2f}, "
            f"of it the ranks alone {found.ranks:.2f}, promised {promised:g}"
        )
        kept &= say(text, found.command <= promised)
    return kept


MEASUREMENTS: dict[str, Callable[[Path, int], bool]] = {
    "local": local,
    "probe": probe,
    "ssh": ssh,
    "clock": clock,
    "fleet": fleet,
    "rules": rules,
    "lock": lock,
    "integrity": integrity,
    "collectives": collectives,
    "hub": hub,
}


def say(text: str, kept: bool) -> bool:
    """One line of the result."""
    print(("kept    " if kept else "BROKEN  ") + text, flush=True)
    return kept


if __name__ == "__main__":
    sys.exit(main())
