"""Slurm in the lab: controller and munge on a head node of their own, one slurmd a node.

One munged serves all: its socket is a file, and every node sees the lab's folder.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import Dict, Sequence

from tests.lab.cluster import Cluster
from tests.lab.node import LabError

IDLE_S = 20.0

_CONFIGURATION = """\
ClusterName=lab
SlurmctldHost=head({head})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
CommunicationParameters=NoAddrCache
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=2
InactiveLimit=0
"""


class Slurm:
    """Slurm on a cluster that is up; it ends with the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.folder = os.path.join(cluster.folder, "slurm")

    @property
    def configuration(self) -> str:
        """The slurm.conf of the lab."""
        return os.path.join(self.folder, "slurm.conf")

    @property
    def variables(self) -> Dict[str, str]:
        """What Slurm's commands need in their environment."""
        return {"SLURM_CONF": self.configuration}

    def start(self) -> None:
        """Starts everything and waits until all nodes are idle; raises LabError."""
        os.makedirs(os.path.join(self.folder, "state"))
        head = self.cluster.add_node("head")
        self._write_configuration(head.place.address)
        key = os.path.join(self.folder, "munge.key")
        with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as stream:
            stream.write(os.urandom(1024))
        self._on("head", self._munged(key))
        self._on("head", ["env", f"SLURM_CONF={self.configuration}", "slurmctld", "-c"])
        for name in self.cluster.names:
            os.makedirs(os.path.join(self.folder, f"spool.{name}"))
            self._on(name, ["env", f"SLURM_CONF={self.configuration}", "slurmd", "-c", "-N", name])
        self._wait_idle()

    def run(self, argv: Sequence[str], timeout_s: float = 20.0) -> subprocess.CompletedProcess[str]:
        """A Slurm command on the controller's machine, where envaudit runs too.

        From `/`, which every node has: a step goes to the folder that it was started in.
        """
        return subprocess.run(
            argv,
            cwd="/",
            env={**os.environ, **self.variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def _munged(self, key: str) -> list[str]:
        files = {
            "socket": "munge.socket",
            "pid-file": "munge.pid",
            "log-file": "munge.log",
            "seed-file": "munge.seed",
        }
        options = [f"--{name}={os.path.join(self.folder, file)}" for name, file in files.items()]
        return ["munged", "--force", f"--key-file={key}", *options]

    def _write_configuration(self, head_address: str) -> None:
        lines = [_CONFIGURATION.format(head=head_address, folder=self.folder)]
        for name in self.cluster.names:
            address = self.cluster.node(name).place.address
            lines.append(f"NodeName={name} NodeAddr={address} CPUs=2 RealMemory=2000 State=UNKNOWN\n")
        lines.append(
            f"PartitionName=all Nodes={','.join(self.cluster.names)} Default=YES State=UP "
            "MaxTime=INFINITE OverSubscribe=YES:64\n"
        )
        with open(self.configuration, "w", encoding="utf-8") as stream:
            stream.write("".join(lines))

    def _wait_idle(self) -> None:
        deadline = time.monotonic() + IDLE_S
        seen = ""
        while time.monotonic() < deadline:
            seen = self.run(["sinfo", "-h", "-N", "-o", "%N %t"]).stdout
            states = dict(line.split() for line in seen.splitlines())
            if len(states) == len(self.cluster.names) and set(states.values()) == {"idle"}:
                return
            time.sleep(0.1)
        raise LabError(f"Slurm's nodes are not idle in {IDLE_S:g} s: {seen}")

    def _on(self, name: str, argv: Sequence[str]) -> None:
        done = self.cluster.node(name).run(argv)
        if done.returncode != 0:
            raise LabError(f"{name}: {' '.join(argv)}: {done.returncode}: {done.stdout} {done.stderr}")
