"""Which node each process of a Slurm step was to run on, so that one that never came has a name.

Sources: srun(1), "OUTPUT ENVIRONMENT VARIABLES" and --distribution; tasks are dealt to the nodes of
SLURM_STEP_NODELIST in order, as many as SLURM_STEP_TASKS_PER_NODE says.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence, Tuple

from envaudit.cli.seat import InBand, tasks_per_node
from envaudit.errors import UsageError
from envaudit.model import Missing
from envaudit.model.nodeset import expand, natural_key

_LAUNCHERS = ("srun", "torchrun")


def nodes_by_index(launch: InBand, environ: Mapping[str, str], came: Mapping[int, str]) -> Tuple[str, ...]:
    """The node of every process, by its index; empty where that is not known.

    It is taken as known only where everyone who came is where this says: another distribution of tasks,
    names that Slurm has and the machines have not, or a rendezvous that deals ranks as it likes are not.

    Args:
        launch: of this process.
        environ: its environment.
        came: the nodes of those who are there, by index.
    """
    text = environ.get("SLURM_STEP_NODELIST", "")
    if launch.launcher not in _LAUNCHERS or not text:
        return ()
    try:
        nodes = expand(text)
    except UsageError:
        return ()
    dealt = [node for node, count in zip(nodes, _counts(launch, environ, len(nodes))) for _ in range(count)]
    if len(dealt) != launch.count or any(dealt[index] != node for index, node in came.items()):
        return ()
    return tuple(dealt)


def _counts(launch: InBand, environ: Mapping[str, str], nodes: int) -> Sequence[int]:
    """How many processes of the launch each node has."""
    if launch.launcher == "srun":
        return tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    # Each task of the step is a torchrun that starts as many ranks as the others.
    return [launch.count // nodes] * nodes if nodes and launch.count % nodes == 0 else ()


def missing_of(
    absent: Sequence[int], names: Sequence[str], came: Mapping[int, str], where: str
) -> Dict[str, Missing]:
    """Those who never came, under the names of their nodes, or as `rank3` where there is none.

    Args:
        absent: their indices.
        names: from `nodes_by_index`.
        came: the nodes of those who are there, by index.
        where: and how long they were waited for: `10.0.0.1:29501 in 60 s`.
    """
    there = set(came.values())
    shown = sorted(there, key=natural_key)
    others = f"; there were {', '.join(shown[:8])}{' and others' if len(shown) > 8 else ''}"
    by_label: Dict[str, List[int]] = {}
    of_node: Dict[str, str] = {}
    for index in absent:
        node = names[index] if names else ""
        # A node of which another process came has answered.
        label = node if node and node not in there else f"rank{index}"
        by_label.setdefault(label, []).append(index)
        of_node[label] = f" of {node}" if node and label != node else ""
    return {
        label: Missing(
            "unreachable",
            (
                f"it{of_node[label]} never came"
                if len(indices) == 1
                else f"none of its {len(indices)} processes came"
            )
            + f" to {where}{others}",
        )
        for label, indices in by_label.items()
    }
