"""Four nodes over ssh in the lab: `envaudit snapshot` against `clush ... python3 -c pass`.

Same ssh configuration and same interpreters on both ends. Needs root and the lab's Debian packages.
By itself, for a table and a line of JSON:

    python tests/bench/bench_cluster.py [--runs N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Sequence

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from tests.bench.measure import Command, Run, in_turn, median_s, ratio  # noqa: E402
from tests.lab.cluster import Cluster  # noqa: E402
from tests.lab.requirements import missing  # noqa: E402
from tests.lab.training_env import TrainingEnvironment  # noqa: E402

NODES = "node[01-04]"

# envaudit reads a node's whole environment where clush runs an empty program.
LIMIT_RATIO = 2.5


def compare_with_clush(folder: Path, envaudit: Sequence[str], runs: int) -> dict[str, list[Run]]:
    """Both commands `runs` times in turns on a lab of four nodes, as "ours" and "clush".

    Args:
        folder: an empty folder for the configuration and the store.
        envaudit: the words that start envaudit.
        runs: how often each is run, besides one to warm up.

    Raises:
        RuntimeError: a command failed, or the lab cannot run here.
    """
    reasons = missing("cluster") + missing("compiler")
    if reasons:
        raise RuntimeError("; ".join(reasons))
    with Cluster(4) as cluster:
        TrainingEnvironment(cluster).build()
        configuration = folder / "bench.toml"
        configuration.write_text(
            f'[nodes]\nssh-config = "{cluster.ssh_config}"\npython = "python3"\n', encoding="utf-8"
        )
        clush = [
            sys.executable,
            "-m",
            "ClusterShell.CLI.Clush",
            "-w",
            NODES,
            "-o",
            f"-F {cluster.ssh_config}",
        ]
        ours = [*envaudit, "snapshot", "--config", str(configuration), "--nodes", NODES]
        environment = {"HOME": str(folder), "PYTHONPATH": str(PROJECT)}
        commands = {
            "ours": Command(ours, str(folder), environment),
            "clush": Command([*clush, "python3", "-c", "pass"], str(folder), environment),
        }
        return in_turn(commands, runs)


def clocks(folder: Path, envaudit: Sequence[str], runs: int) -> list[Run]:
    """`envaudit clock` over sixteen nodes of the lab, `runs` times besides one to warm up.

    Raises:
        RuntimeError: the command failed, or the lab cannot run here.
    """
    reasons = missing("cluster")
    if reasons:
        raise RuntimeError("; ".join(reasons))
    with Cluster(16) as cluster:
        configuration = folder / "clock.toml"
        configuration.write_text(
            f'[nodes]\nssh-config = "{cluster.ssh_config}"\npython = "{cluster.python}"\n', encoding="utf-8"
        )
        words = [*envaudit, "clock", "--config", str(configuration), "--nodes", "node[01-16]"]
        environment = {"HOME": str(folder), "PYTHONPATH": str(PROJECT)}
        return in_turn({"clock": Command(words, str(folder), environment)}, runs)["clock"]


def main() -> int:
    """Prints a table and one line of JSON; 0 within the limit, 1 beyond it, 5 where it cannot run."""
    parser = argparse.ArgumentParser(description="envaudit snapshot against clush, over ssh, four nodes")
    parser.add_argument("--runs", type=int, default=7, metavar="N")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE as well")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            envaudit = [sys.executable, "-m", "envaudit"]
            results = compare_with_clush(Path(folder), envaudit, options.runs)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 5
    figures = {
        "runs": options.runs,
        "clush_s": round(median_s(results["clush"]), 4),
        "envaudit_s": round(median_s(results["ours"]), 4),
        "ratio": round(ratio(results, "ours", "clush"), 3),
        "limit_ratio": LIMIT_RATIO,
    }
    print(f"four nodes over ssh, median of {figures['runs']} runs")
    print(f"  clush -w {NODES} python3 -c pass   {figures['clush_s']:8.3f} s")
    print(f"  envaudit snapshot --nodes {NODES}  {figures['envaudit_s']:8.3f} s")
    print(f"  ratio                                    {figures['ratio']:8.2f}   limit {LIMIT_RATIO:g}")
    print(json.dumps(figures))
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0 if figures["ratio"] <= LIMIT_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
