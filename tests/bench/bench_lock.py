"""The speed of solving that is promised: half a million records, and real metadata.

Run by `nox -s bench`; alone: `python tests/bench/bench_lock.py [--runs N] [--records N]`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.measure import Command, in_turn, median_s
from tests.bench.synthetic_channel import ASKED_FOR, CLOSURE, build_channel

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus" / "channel"
RECORDS = 500_000

# The seconds of the solve alone go to a file, the process around it is timed from outside.
_SOLVE = """
import sys, time
from pathlib import Path
from envaudit.lock.condarc import Settings
from envaudit.lock.solve import solve_platforms
from envaudit.lock.spec import channels_for, spec_of
from envaudit.lock.virtual import virtual_packages
seconds, cache, priority, cuda, platforms, expected, urls, *texts = sys.argv[1:]
began = {}
class Phases:
    def phase(self, platform, phase, detail):
        began.setdefault(phase, time.perf_counter())
        began["last"] = time.perf_counter()
settings = Settings(channel_priority=priority)
specs = [spec_of(text) for text in texts]
channels, _ = channels_for(urls.split(","), specs, settings)
solution = solve_platforms({each: specs for each in platforms.split(",")}, channels, settings,
                           virtual_packages(cuda=cuda), cache_dir=cache, progress=Phases())
assert {len(records) for records in solution.records.values()} == {int(expected)}, solution
assert not solution.conflicts
Path(seconds).write_text(str(began["last"] - began["solve"]))
"""


def main() -> int:
    """Measure and say; 1 when a promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--records", type=int, default=RECORDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = synthetic(Path(folder), options.runs, options.records)
    with tempfile.TemporaryDirectory() as folder:
        kept &= real(Path(folder), options.runs)
    return 0 if kept else 1


def synthetic(folder: Path, runs: int, records: int = RECORDS) -> bool:
    """One and two platforms of a channel with half a million records each."""
    build_channel(folder / "channel", records, ("linux-64", "osx-arm64"))
    url = (folder / "channel").as_uri()
    one = _command(folder / "one", "linux-64", CLOSURE, url, ASKED_FOR)
    two = _command(folder / "two", "linux-64,osx-arm64", CLOSURE, url, ASKED_FOR)
    results = in_turn({"one": one, "two": two}, runs)
    solve_s = float((folder / "one" / "seconds").read_text())
    peak = max(run.peak_bytes for run in results["one"]) / 1e9
    times = statistics.median(b.wall_s / a.wall_s for a, b in zip(results["one"], results["two"]))
    wall_s = median_s(results["one"])
    return say(
        f"{records:,} records, {CLOSURE} packages: solve {solve_s:.2f} s, process {wall_s:.2f} s, "
        f"{peak:.2f} GB, promised 1.5 s, 3 s, 0.5 GB",
        solve_s <= 1.5 and wall_s <= 3 and peak <= 0.5,
    ) & say(f"two platforms cost {times:.2f} times one, promised 1.6", times <= 1.6)


def real(folder: Path, runs: int) -> bool:
    """Real metadata: the GPU build of PyTorch 2.1 with everything it needs."""
    if not CORPUS.is_dir():
        return say("real metadata: not measured, ../shared/corpus/channel is absent", True)
    urls = ",".join((CORPUS / name).as_uri() for name in ("pytorch", "nvidia", "conda-forge"))
    command = _command(folder, "linux-64", 80, urls, ("python=3.10", "pytorch=2.1.0"))
    wall_s = median_s(in_turn({"real": command}, runs)["real"])
    return say(f"real metadata, 80 packages: process {wall_s:.2f} s, promised 1.2 s", wall_s <= 1.2)


def _command(folder: Path, platforms: str, expected: int, urls: str, specs: tuple[str, ...]) -> Command:
    folder.mkdir(parents=True, exist_ok=True)
    arguments = [str(folder / "seconds"), str(folder / "cache"), "strict", "12.4", platforms, str(expected)]
    return Command([sys.executable, "-c", _SOLVE, *arguments, urls, *specs], str(folder))


def say(text: str, kept: bool) -> bool:
    """One line of the result."""
    print(("kept    " if kept else "BROKEN  ") + text, flush=True)
    return kept


if __name__ == "__main__":
    sys.exit(main())
