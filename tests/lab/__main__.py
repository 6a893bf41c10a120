"""Keeps a lab up for trying things by hand: `python -m tests.lab --nodes 4 [--chrony] [--slurm]`.

It stands until Ctrl-C or the end of the terminal; as root, from the root of the project.
"""

from __future__ import annotations

import argparse
import signal
import sys

from tests.lab import chrony
from tests.lab.cluster import Cluster
from tests.lab.requirements import missing
from tests.lab.slurm import Slurm


def main() -> int:
    """Brings the lab up, says how to reach it, and waits."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("--nodes", type=int, default=4, metavar="N")
    parser.add_argument("--chrony", action="store_true", help="a time service on every node")
    parser.add_argument("--slurm", action="store_true", help="Slurm over all nodes")
    options = parser.parse_args()
    parts = ["cluster"] + ["chrony"] * options.chrony + ["slurm"] * options.slurm
    reasons = [reason for part in parts for reason in missing(part)]
    if reasons:
        print("\n".join(reasons), file=sys.stderr)
        return 5
    signal.signal(signal.SIGTERM, lambda *_arguments: sys.exit(143))
    with Cluster(options.nodes) as cluster:
        if options.chrony:
            chrony.start(cluster)
        print(f"ssh -F {cluster.ssh_config} node01 hostname")
        print(f"{cluster.folder}/bin/enter node01 hostname")
        if options.slurm:
            slurm = Slurm(cluster)
            slurm.start()
            print(f"SLURM_CONF={slurm.configuration} srun -N{options.nodes} -l hostname")
        print("Ctrl-C ends it.", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
