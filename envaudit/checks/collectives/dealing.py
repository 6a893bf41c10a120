"""Which rank is whose, on which device, and at which address a node is reached by the others."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from envaudit.checks.collectives import sound
from envaudit.checks.collectives.comparing import Claim, is_loopback
from envaudit.checks.collectives.layout import Layout

NCCL = "nccl"
GLOO = "gloo"
_LOCAL = "127.0.0.1"


class Place(NamedTuple):
    """One rank: which member's it is, and what it runs on."""

    rank: int
    owner: int
    node: str
    local_rank: int
    device: str


class Here(NamedTuple):
    """What a member said first.

    Attributes:
        layout: its ranks.
        facts: what is compared.
        before_s: how long its own work before the collectives may take.
        own: the address of its end of its connection to the hub.
        hub: the address of the hub's end, as it reaches it.
    """

    layout: Layout
    facts: Mapping[str, Any]
    before_s: int
    own: str
    hub: str

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Here:
        """Raises KeyError, TypeError, ValueError where a message is none."""
        before_s = min(max(0, int(row["before_s"])), 24 * 3600)
        return cls(
            Layout.from_json(row["layout"]),
            sound.facts(row["facts"]),
            before_s,
            sound.address(row["own"]),
            sound.address(row["hub"]),
        )

    def claim(self, node: str) -> Claim:
        """The same as it is compared."""
        layout = self.layout
        return Claim(node, self.facts, layout.ranks, layout.local_ranks, layout.world, layout.devices)


def deal(here: Mapping[int, Here], nodes: Mapping[int, str]) -> List[Place]:
    """All ranks in order; the launcher's numbers where it gave any, else in order of index.

    Numbers of a launcher are those that `comparing.compare` found sound.
    """
    places: List[Place] = []
    for index in sorted(here):
        layout = here[index].layout
        ranks = layout.ranks or tuple(range(len(places), len(places) + layout.local_ranks))
        devices = layout.devices or ("cpu",) * layout.local_ranks
        for offset, (rank, device) in enumerate(zip(ranks, devices)):
            places.append(Place(rank, index, nodes[index], layout.local_rank + offset, device))
    return sorted(places)


def backend_of(places: List[Place]) -> str:
    """NCCL where every rank has a GPU, else gloo."""
    return NCCL if places and all(place.device.startswith("cuda") for place in places) else GLOO


def addresses(here: Mapping[int, Here], nodes: Mapping[int, str]) -> Dict[int, str]:
    """Where each member's node is reached by the others.

    The interface that the work will use comes first, then the address by which the member came to the hub.
    The hub's own node may come by loopback: others know it by the hub's address.
    """
    # Machines that are all called localhost are several still.
    if len(set(nodes.values())) == len({each.own for each in here.values()}) == 1:
        return dict.fromkeys(here, _LOCAL)
    from_outside = [each.hub for each in here.values() if not is_loopback(each.own)]
    found = {}
    for index, each in here.items():
        interface = each.facts.get("interface")
        named = str(interface.get("address") or "") if isinstance(interface, dict) else ""
        candidates = [named, each.own, *from_outside[:1]]
        found[index] = next((text for text in candidates if text and not is_loopback(text)), each.own)
    return found


def interface_of(here: Here, alone: bool) -> str:
    """The interface for the process group, "" where the library is to choose."""
    interface = here.facts.get("interface")
    if isinstance(interface, dict) and interface.get("name"):
        return str(interface["name"])
    return "lo" if alone else ""


def task_of(
    place: Place, world: int, rank: int, store: Tuple[str, int], common: Mapping[str, Any], interface: str
) -> Dict[str, Any]:
    """One line for a worker (`rank.py`): `rank` of `world` in its group, whatever its place in the launch."""
    return {
        **common,
        "rank": rank,
        "world": world,
        "local_rank": place.local_rank,
        "device": place.device,
        "store": [store[0], store[1]],
        "interface": interface,
    }
