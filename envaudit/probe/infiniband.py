"""The host channel adapters, from /sys/class/infiniband: no ibstat, no verbs library, no root.

A port is known by the place of its card on the PCI bus. Its name, mlx5_0, its GUIDs and GIDs differ
between healthy equal nodes.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from envaudit.probe.context import Context
from envaudit.probe.folding import fold
from envaudit.probe.interfaces import NET, number, word

_CLASS = "/sys/class/infiniband"
# Virtual functions included, no node has more.
_MAX_HCAS = 512
_MAX_PORTS = 16
# What RoCE adds to an Ethernet frame: GRH, UDP, BTH, XRC and atomic headers, ICRC
# (iboe_get_mtu in the kernel's include/rdma/ib_addr.h).
_ROCE_OVERHEAD_BYTES = 40 + 8 + 12 + 4 + 28 + 4
_INFINIBAND_MTUS = (4096, 2048, 1024, 512, 256)
_COUNTERS = ("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors")
ETHERNET = "Ethernet"


class Port(NamedTuple):
    """One port of an HCA.

    Attributes:
        hca: the name of its card, mlx5_0.
        number: from 1.
        model: MT4129, or where the driver states none, the driver's name.
        link_layer: InfiniBand or Ethernet.
        state: active, down, init, armed; None where it cannot be read.
        netdev: the interface of an Ethernet port, or IP over InfiniBand.
        facts: what two healthy equal nodes share of it.
    """

    hca: str
    number: int
    model: str
    link_layer: Optional[str]
    state: Optional[str]
    netdev: Optional[str]
    driver: Optional[str]
    bus_id: Optional[str]
    facts: Dict[str, Any]

    @property
    def path(self) -> str:
        """Its folder in sysfs."""
        return f"{_CLASS}/{self.hca}/ports/{self.number}"

    @property
    def label(self) -> str:
        """Its name as UCX and people write it, mlx5_0:1."""
        return f"{word(self.hca)}:{self.number}"

    @property
    def group(self) -> str:
        """With which ports it is compared: an Ethernet bond beside eight InfiniBand ports is no outlier."""
        return f"{self.model} {self.link_layer or 'unknown'}"


def ports(context: Context) -> List[Port]:
    """All ports, in the order of the PCI bus; those of virtual functions where there are only such.

    Raises:
        PermissionError: the cards may not be looked at.
    """
    try:
        names = context.list_dir(_CLASS)[:_MAX_HCAS]
    except PermissionError:
        raise
    except OSError:
        return []
    real = [name for name in names if not context.exists(f"{_CLASS}/{name}/device/physfn")]
    cards = [(_link(context, f"{_CLASS}/{name}/device"), name) for name in real or names]
    cards.sort(key=lambda card: (card[0] or "~", _natural(card[1])))
    return [port for bus_id, name in cards for port in _ports_of(context, name, bus_id)]


def _ports_of(context: Context, name: str, bus_id: Optional[str]) -> List[Port]:
    card = f"{_CLASS}/{name}"
    driver = _link(context, f"{card}/device/driver")
    shared = {
        "board": _word(context, f"{card}/board_id"),
        "driver": driver,
        "firmware": _word(context, f"{card}/fw_ver"),
    }
    model = _word(context, f"{card}/hca_type") or driver or "unknown"
    numbers = [int(one) for one in _list(context, f"{card}/ports") if one.isascii() and one.isdigit()]
    netdevs = _list(context, f"{card}/device/net")
    found = []
    for port in sorted(numbers)[:_MAX_PORTS]:
        folder = f"{card}/ports/{port}"
        layer = _word(context, f"{folder}/link_layer")
        netdev = _netdev(context, folder, netdevs, port)
        state = _state(context, f"{folder}/state")
        facts: Dict[str, Any] = dict(shared)
        if state == "active":
            # A port that is down says some rate too, often the slowest.
            facts["rate"] = _word(context, f"{folder}/rate")
            if layer == ETHERNET:
                facts["active_mtu"] = roce_mtu(_number(context, f"{NET}/{netdev}/mtu") if netdev else None)
        else:
            physical = _state(context, f"{folder}/phys_state")
            facts["state"] = f"{state or 'unknown'}, {physical or 'unknown'}"
        found.append(Port(name, port, model, layer, state, netdev, driver, bus_id, facts))
    return found


def groups(found: Sequence[Port]) -> Dict[str, Dict[str, Any]]:
    """Model and link layer → {"cards", "ports", "active", "each", "devices"}."""
    by_group: Dict[str, List[Port]] = {}
    for port in found:
        by_group.setdefault(port.group, []).append(port)
    told = {}
    for group, members in by_group.items():
        each, devices = fold({place: port.facts for place, port in enumerate(members)})
        told[group] = {
            "cards": len({port.hca for port in members}),
            "ports": len(members),
            "active": sum(port.state == "active" for port in members),
            "each": each,
            "devices": devices,
        }
    return told


def notes(context: Context, found: Sequence[Port]) -> Dict[str, Any]:
    """By group and ordinal what differs by nature: names, places, GUIDs, counters that are not 0."""
    told: Dict[str, Any] = {}
    for port in found:
        of_group = told.setdefault(port.group, {})
        row: Dict[str, Any] = {"name": port.label, "bus_id": port.bus_id}
        row["guid"] = _word(context, f"{_CLASS}/{port.hca}/node_guid")
        row["netdev"] = port.netdev
        counted = {name: _number(context, f"{port.path}/counters/{name}") for name in _COUNTERS}
        row.update({name: count for name, count in counted.items() if count})
        of_group[str(len(of_group))] = row
    return told


def roce_mtu(mtu: Optional[int]) -> Optional[int]:
    """The MTU that RoCE has over an Ethernet MTU, as most drivers derive it, in bytes.

    sysfs does not tell the active MTU; `ibv_devinfo` asks the driver, which calls iboe_get_mtu.
    """
    if mtu is None:
        return None
    room = mtu - _ROCE_OVERHEAD_BYTES
    return next((size for size in _INFINIBAND_MTUS if size <= room), 0)


def _netdev(context: Context, folder: str, netdevs: Sequence[str], port: int) -> Optional[str]:
    """The interface of a port: what its first GID belongs to, else the device's own by its dev_port."""
    named = _word(context, f"{folder}/gid_attrs/ndevs/0")
    if named and "/" in named:  # no name of an interface
        return None
    if named or len(netdevs) < 2:
        return named or next(iter(netdevs), None)
    places = {_number(context, f"{NET}/{name}/dev_port"): name for name in netdevs}
    return places.get(port - 1)


def _state(context: Context, path: str) -> Optional[str]:
    """`4: ACTIVE` as `active`, `5: LinkUp` as `linkup`."""
    text = _word(context, path)
    return text.rpartition(":")[2].strip().lower() or None if text else None


def _natural(name: str) -> Tuple[str, int]:
    """mlx5_2 before mlx5_10."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or -1)


def _word(context: Context, path: str) -> Optional[str]:
    return word(context.peek(path) or "")


def _number(context: Context, path: str) -> Optional[int]:
    return number(context.peek(path))


def _link(context: Context, path: str) -> Optional[str]:
    try:
        return word(context.readlink(path).rpartition("/")[2])
    except OSError:
        return None


def _list(context: Context, path: str) -> List[str]:
    try:
        return context.list_dir(path)
    except OSError:
        return []
