"""The place of this process in a launch, as torchrun, srun and mpirun tell it by variables.

Sources: torch.distributed.run ("Environment Variables"), srun(1) ("OUTPUT ENVIRONMENT VARIABLES"), Open
MPI's FAQ ("Which environment variables does Open MPI set"), and for Hydra its wiki (PMI_RANK, PMI_SIZE).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import threading
import time
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Tuple

from envaudit.cli.thisnode import this_node
from envaudit.control.tokens import VARIABLE
from envaudit.errors import UsageError
from envaudit.model.codec import NODE_NAME

if TYPE_CHECKING:
    from envaudit.checks.collectives.layout import Layout
    from envaudit.checks.collectives.supervising import Machine
    from envaudit.control.seat import Seat

LOOPBACK = "127.0.0.1"
# torchrun's own default is 29500 for the rendezvous; the hub stands beside it.
DEFAULT_PORT = 29501
# Linux gives clients ports from here on (ip_local_port_range), and keeps each for a minute after its end.
_CLIENT_PORTS_FROM = 32768
# Jobs that share a node meet apart, and below those.
JOB_PORTS = range(20000, 30000)
_MAX_RANKS = 100_000
_PARENT_EVERY_S = 0.5
MAX_LOCAL_RANKS = 1024


@dataclass(frozen=True)
class InBand:
    """One process of a launch.

    Attributes:
        launcher: `torchrun`, `srun` or `mpirun`.
        index: its number among the processes of the launch, from 0; that one runs the hub and prints.
        count: how many there are.
        node: the name of the machine that it runs on.
        host: where the hub is to be found.
        port: likewise.
        rank: the rank that it is, None where it starts the ranks of its node itself.
        local_rank: its number among the processes of its node.
        local_ranks: how many ranks it starts; 0 for as many as the node has GPUs, at least one.
    """

    launcher: str
    index: int
    count: int
    node: str
    host: str
    port: int
    rank: Optional[int] = None
    local_rank: int = 0
    local_ranks: int = 1

    @property
    def seat(self) -> Seat:
        """The same as the hub's and its members' code takes it."""
        from envaudit.control.seat import Seat

        return Seat(index=self.index, count=self.count, host=self.host, port=self.port, node=self.node)

    @property
    def prints(self) -> bool:
        """Whether this is the one process that reports for all."""
        return self.index == 0

    @property
    def complains(self) -> bool:
        """Whether this process says that the first one is gone: on each node one, for they know the same."""
        return self.local_rank == 0 or self.index == 1


def add_seat_options(group: Any) -> None:
    """`--nproc-per-node`, `--hub`, `--token-file`."""
    group.add_argument(
        "--nproc-per-node",
        type=local_ranks,
        metavar="N",
        help="ranks on each node (default: one a GPU, and one on a node without)",
    )
    group.add_argument(
        "--hub",
        type=hub_address,
        metavar="HOST:PORT",
        help="where the nodes of a run meet (default: MASTER_ADDR:MASTER_PORT+1, else the first node)",
    )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"the secret of a launch, in a file of mode 600 (default: the variable {VARIABLE})",
    )


def seat_of_environment(environ: Mapping[str, str], options: argparse.Namespace) -> Optional[InBand]:
    """The place in a launch; None where this process was started alone.

    Args:
        environ: the process's environment.
        options: `nproc_per_node` and `hub`, where the command has them.

    Raises:
        UsageError: variables that contradict each other, or a hub that nobody names.
    """
    launch = _of_torchrun(environ) or _of_mpirun(environ) or _of_srun(environ, options) or _of_hydra(environ)
    if launch is None:
        if "RANK" in environ and "WORLD_SIZE" not in environ:
            # torch refuses this too (env://): each rank would look at itself alone, and pass.
            raise UsageError(
                "RANK is set, and WORLD_SIZE is not",
                next_step="Set both, as torchrun does, or neither.",
            )
        return None
    hub = _hub_option(options)
    if hub:
        return replace(launch, host=hub[0], port=hub[1])
    if launch.host:
        return launch
    raise UsageError(
        f"{launch.launcher} does not say where the first node is",
        next_step="Give --hub HOST:PORT, or set MASTER_ADDR and MASTER_PORT.",
    )


def end_with_launcher(environ: Mapping[str, str]) -> None:
    """End this process, as SIGTERM does, once the torchrun that started it is gone.

    One that was ended by SIGKILL has ended none of its ranks. Of other launchers the node's own daemon does;
    who starts ranks from a shell, in the background, wants them to outlive it.
    """
    if "TORCHELASTIC_RUN_ID" not in environ:
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_EVERY_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="envaudit launcher", daemon=True).start()


def layout_in(place: InBand, machine: Machine) -> Layout:
    """The ranks of a process of a launch: its own one, or all of its node."""
    from envaudit.checks.collectives.layout import Layout
    from envaudit.checks.collectives.supervising import layout_of

    if place.rank is None:
        return layout_of(machine, place.local_ranks)
    gpus = machine.started.gpus
    # A launcher may show each process its own GPU alone.
    device = "cpu" if not gpus else f"cuda:{place.local_rank if place.local_rank < gpus else 0}"
    return Layout(1, (place.rank,), place.count, place.local_rank, (device,))


def _of_torchrun(environ: Mapping[str, str]) -> Optional[InBand]:
    if not {"RANK", "WORLD_SIZE"}.issubset(environ):
        return None
    rank, world = _place(environ, "RANK", "WORLD_SIZE")
    local = _number(environ, "LOCAL_RANK") if "LOCAL_RANK" in environ else _maybe(environ, "SLURM_LOCALID")
    all_here = _maybe(environ, "LOCAL_WORLD_SIZE") == world
    host, port = _master(environ)
    if all_here:
        host, port = LOOPBACK, _apart_from_clients(port)
    return InBand("torchrun", rank, world, this_node(), host, port, rank=rank, local_rank=local or 0)


def _of_mpirun(environ: Mapping[str, str]) -> Optional[InBand]:
    if not {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}.issubset(environ):
        return None
    rank, world = _place(environ, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    local = _maybe(environ, "OMPI_COMM_WORLD_LOCAL_RANK") or 0
    here = _maybe(environ, "OMPI_COMM_WORLD_LOCAL_SIZE")
    return _of_mpi(environ, rank, world, local, here)


def _of_hydra(environ: Mapping[str, str]) -> Optional[InBand]:
    if not {"PMI_RANK", "PMI_SIZE"}.issubset(environ):
        return None
    rank, world = _place(environ, "PMI_RANK", "PMI_SIZE")
    local = _maybe(environ, "MPI_LOCALRANKID") or 0
    return _of_mpi(environ, rank, world, local, _maybe(environ, "MPI_LOCALNRANKS"))


def _of_mpi(environ: Mapping[str, str], rank: int, world: int, local: int, here: Optional[int]) -> InBand:
    host, port = _master(environ)
    if here == world:
        host = LOOPBACK
    elif not host:
        # Inside an allocation, ranks are dealt from its first node on.
        host = first_of(environ.get("SLURM_JOB_NODELIST", ""))
    return InBand("mpirun", rank, world, this_node(), host, port, rank=rank, local_rank=local)


def job_nodes(environ: Mapping[str, str]) -> int:
    """How many nodes the Slurm job has in which this process runs; 1 outside of any."""
    return _maybe(environ, "SLURM_JOB_NUM_NODES") or 1


def _of_srun(environ: Mapping[str, str], options: argparse.Namespace) -> Optional[InBand]:
    # A batch script has SLURM_PROCID as well, and is no task of a step that somebody started with srun.
    if not {"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}.issubset(environ):
        return None
    index, count = _place(environ, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    host, port = _master(environ)
    if not host:
        host = first_of(environ.get("SLURM_STEP_NODELIST", ""))
    if _maybe(environ, "SLURM_STEP_NUM_NODES") == 1:
        host = LOOPBACK
    place = InBand("srun", index, count, _slurm_node(environ), host, port)
    if max(tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", "")), default=1) > 1:
        return replace(place, rank=index, local_rank=_number(environ, "SLURM_LOCALID"))
    if count == 1:
        # `srun --pty bash` is a shell, in which a command looks at its own machine or at those it is told.
        return None
    return replace(place, local_ranks=getattr(options, "nproc_per_node", None) or 0)


def _slurm_node(environ: Mapping[str, str]) -> str:
    """The node as Slurm calls it, which is what its other commands take."""
    name = environ.get("SLURMD_NODENAME", "")
    return name if NODE_NAME.match(name) else this_node()


def _master(environ: Mapping[str, str]) -> Tuple[str, int]:
    """MASTER_ADDR and the port beside MASTER_PORT; without that one of the launch's own."""
    host = environ.get("MASTER_ADDR", "")
    if host and not _is_host(host):
        raise UsageError(f"'{host[:80]}' is no host", where="MASTER_ADDR")
    if "MASTER_PORT" in environ:
        port = _number(environ, "MASTER_PORT")
        if not 0 < port < 65536:
            raise UsageError(f"{port} is no port", where="MASTER_PORT")
        return host, port + 1 if port < 65535 else port - 1
    launch = environ.get("PMIX_NAMESPACE")
    if launch:
        # One name in all processes of an mpirun, and another one beside it. Those of Slurm may be of the step
        # that started the daemon of a node.
        return host, JOB_PORTS[zlib.crc32(os.fsencode(launch)) % len(JOB_PORTS)]
    job = _maybe(environ, "SLURM_JOB_ID")
    if job is None:
        return host, DEFAULT_PORT
    step = _maybe(environ, "SLURM_STEP_ID") or 0
    # Steps of one job lie apart, and jobs by more than they have steps (a prime, so that they spread).
    return host, JOB_PORTS[(job * 131 + step) % len(JOB_PORTS)]


def _apart_from_clients(port: int) -> int:
    """The port, or one below those of clients.

    `torchrun --standalone` takes whichever is free among these, and the one beside it may be anybody's.
    """
    return port if port < _CLIENT_PORTS_FROM else JOB_PORTS[port * 131 % len(JOB_PORTS)]


def _place(environ: Mapping[str, str], index_name: str, count_name: str) -> Tuple[int, int]:
    index, count = _number(environ, index_name), _number(environ, count_name)
    if not 0 <= index < count <= _MAX_RANKS:
        raise UsageError(f"{index_name}={index} and {count_name}={count} are no place in a launch")
    return index, count


def _number(environ: Mapping[str, str], name: str) -> int:
    value = _maybe(environ, name)
    if value is None:
        raise UsageError(f"'{environ.get(name, '')[:80]}' is no number", where=name)
    return value


def _maybe(environ: Mapping[str, str], name: str) -> Optional[int]:
    text = environ.get(name, "")
    return int(text) if re.match(r"\d{1,10}\Z", text, re.ASCII) else None


def first_of(nodes: str) -> str:
    """The first node of a list as Slurm writes it, `rack[1-2]n[01-04],login`; empty for an empty one."""
    first = re.match(r"(?:[^,\[\]]|\[[^\[\]]*\])+", nodes)
    name = re.sub(r"\[([^\[\],-]*)[^\[\]]*\]", r"\1", first[0]) if first else ""
    return name if NODE_NAME.match(name) else ""


def tasks_per_node(text: str) -> List[int]:
    """How many tasks each node has: 2, 2, 2 and 1 for `2(x3),1`."""
    found = re.findall(r"(?:\A|,)(\d{1,6})(?:\(x(\d{1,6})\))?(?=,|\Z)", text)
    return [int(number) for number, times in found for _ in range(int(times or 1))]


def _hub_option(options: argparse.Namespace) -> Optional[Tuple[str, int]]:
    hub: Any = getattr(options, "hub", None)
    if not hub or isinstance(hub, tuple):
        return hub or None
    try:
        return hub_address(hub)
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error), where="--hub") from None


def hub_address(text: str) -> Tuple[str, int]:
    """Host and port of `node01:29501` or `[fe80::1]:29501`.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    match = re.match(
        r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d{1,5})\Z", text, re.ASCII
    )
    host = (match["v6"] or match["host"]) if match else ""
    port = int(match["port"]) if match else 0
    if not _is_host(host) or not 0 < port < 65536:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, got '{text}'")
    return host, port


def _is_host(host: str) -> bool:
    return bool(re.match(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,252}\Z", host)) or host.startswith("::")


def local_ranks(text: str) -> int:
    """A number of ranks on one node.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    value = int(text) if re.match(r"[1-9]\d{0,3}\Z", text, re.ASCII) else 0
    if not 0 < value <= MAX_LOCAL_RANKS:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MAX_LOCAL_RANKS}, got '{text}'")
    return value
