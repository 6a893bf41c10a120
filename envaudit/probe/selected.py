"""What NCCL_SOCKET_IFNAME, NCCL_IB_HCA and their like resolve to on this node.

A section `selection` of facts, which follow from the variables of the start:

    NCCL_SOCKET_IFNAME  where it is set, {"matched": 2, "named": ["eth1"], "idle": [], "each":
                        {"kind", "driver", "speed_mbps"}, "devices": {}}: `eth1` that takes eth10 too
                        is matched 2. `named` are the names that the variable says in whole, `idle`
                        what it names and nothing here matches. Of a list that excludes, and where
                        NCCL chooses itself, {"by", "first"}: which of NCCL's steps found something
                        (ib, subnet, other, docker, lo, virbr), and the interface of its bootstrap;
                        how many more there are depends on the containers of the host
    GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME
                        where set: the same; they are whole names, the second one only
    UCX_NET_DEVICES     where set: {"matched", "named", "idle"}; shell patterns
    NCCL_IB_HCA         where there is an HCA: {"matched", "named", "idle", "models": {"MT4129
                        InfiniBand": 8}}: the active ports that NCCL takes. `disabled` is there
                        where NCCL_IB_DISABLE is not 0
    roce_gid            where it takes Ethernet ports: {"by": "NCCL_IB_GID_INDEX" or "own choice",
                        "each": {"roce": 2, "family": "ipv4", "address": true}, "devices": {}}:
                        the GID that is used, and whether an address of this node is behind it

Where the kernel does not tell the addresses, what needs them is left out: unknown. `matched: 0` is what
stops a job: the variable resolves to nothing here.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from envaudit.probe import ncclsettings
from envaudit.probe.context import Context
from envaudit.probe.folding import fold
from envaudit.probe.infiniband import ETHERNET, Port
from envaudit.probe.interfaces import Interfaces, word
from envaudit.probe.ncclnames import MAX_NAMES, NameList, chosen, integer

_FAMILIES = {"AF_INET": "ipv4", "AF_INET6": "ipv6"}
# The names of interfaces have 15 characters, and NCCL takes 32.
_MAX_VALUE = 4096
# Of one thing that a variable names: the facts, and the notes.
Told = Tuple[Dict[str, Any], Dict[str, Any]]


def selection(
    context: Context, links: Interfaces, ports: Sequence[Port]
) -> Tuple[Dict[str, Any], Dict[str, Any], List[str]]:
    """The facts of the selection, its notes (names, GIDs), and what could not be read."""
    effective, _, errors = ncclsettings.in_effect(context)
    settings = {name: value[:_MAX_VALUE] for name, (value, _) in effective.items()}
    told: Dict[str, Told] = {}
    if links.addresses is not None:
        told["NCCL_SOCKET_IFNAME"] = _nccl_sockets(settings, links)
        others = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES")
        gloo, tensorpipe, ucx = (context.environ.get(name, "")[:_MAX_VALUE] for name in others)
        if gloo:
            told["GLOO_SOCKET_IFNAME"] = _whole_names(gloo.split(","), links)
        if tensorpipe:
            told["TP_SOCKET_IFNAME"] = _whole_names([tensorpipe], links)
        if ucx not in ("", "all"):
            told["UCX_NET_DEVICES"] = _ucx(ucx, links, ports)
    if ports:
        taken, told["NCCL_IB_HCA"] = _hcas(settings, ports)
        ethernet = [port for port in taken if port.link_layer == ETHERNET]
        if ethernet:
            told["roce_gid"] = _gids(context, settings, links, ethernet)
    return (
        {name: facts for name, (facts, _) in told.items()},
        {name: notes for name, (_, notes) in told.items() if notes},
        errors,
    )


def _nccl_sockets(settings: Mapping[str, str], links: Interfaces) -> Told:
    family = _FAMILIES.get(settings.get("NCCL_SOCKET_FAMILY", ""), "")
    there = _running(links, family)
    value = settings.get("NCCL_SOCKET_IFNAME", "")
    # ncclFindInterfaces takes a value of one character for none.
    if len(value) < 2:
        by, taken = chosen(there, _near(settings.get("NCCL_COMM_ID", ""), there, links))
        return _first(by, taken, links)
    wanted = NameList.parse(value)
    taken = [name for name in there if wanted.takes(name)]
    if wanted.excludes:
        return _first("NCCL_SOCKET_IFNAME", taken[:MAX_NAMES], links)
    return _listed(taken[:MAX_NAMES], wanted.names, wanted.idle([(name, -1) for name in there]), links)


def _running(links: Interfaces, family: str = "") -> List[str]:
    """The interfaces that run and have an address, in the order in which getifaddrs tells them.

    NCCL passes the loopback's IPv6 address over.
    """
    told = [row for row in links.addresses or () if row[1].text != "::1"]
    owners = [name for name, address in told if family in ("", address.family)]
    return [name for name in dict.fromkeys(owners) if links.up(name)]


def _near(comm_id: str, there: Sequence[str], links: Interfaces) -> List[str]:
    """The interfaces in the subnet of NCCL_COMM_ID, `10.0.0.1:50000`; a host name is not looked up."""
    if not comm_id:
        return []
    import ipaddress  # 5 ms, and nearly nobody sets it

    text = comm_id[1:].partition("]")[0] if comm_id.startswith("[") else comm_id.partition(":")[0]
    try:
        wanted = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return []
    return [
        name
        for name in there
        if any(
            wanted in ipaddress.ip_network(f"{one.text}/{one.prefix}", strict=False)
            for one in links.of(name)
            if (one.family == "ipv4") == (wanted.version == 4)
        )
    ]


def _first(by: str, taken: Sequence[str], links: Interfaces) -> Told:
    first = _facts(taken[0], links) if taken else None
    return {"by": by, "first": first}, {"names": [word(name) for name in taken]}


def _listed(
    taken: Sequence[str], says: Callable[[str], bool], idle: Sequence[str], links: Interfaces
) -> Told:
    each, devices = fold({place: _facts(name, links) for place, name in enumerate(taken)})
    facts = {
        "matched": len(taken),
        "named": [word(name) for name in taken if says(name)],
        "idle": [word(entry) for entry in idle],
        "each": each,
        "devices": devices,
    }
    return facts, {"names": [word(name) for name in taken]}


def _whole_names(names: Sequence[str], links: Interfaces) -> Told:
    """Gloo and TensorPipe take an interface that has an address by its whole name."""
    names = names[:MAX_NAMES]
    there = _running(links)
    taken = [name for name in dict.fromkeys(names) if name in there]
    return _listed(taken, lambda _: True, [name for name in names if name and name not in there], links)


def _facts(name: str, links: Interfaces) -> Dict[str, Any]:
    one = links.look(name)
    return {"kind": one.kind, "driver": one.driver, "speed_mbps": one.speed_mbps}


def _ucx(value: str, links: Interfaces, ports: Sequence[Port]) -> Told:
    """UCX matches names with fnmatch (ucs_config_names_search), an HCA's port as mlx5_0:1."""
    from fnmatch import fnmatchcase

    wanted = [entry for entry in value.split(",") if entry][:MAX_NAMES]
    there = [port.label for port in ports if port.state == "active"] + _running(links)
    taken = [name for name in there if any(fnmatchcase(name, entry) for entry in wanted)]
    facts = {
        "matched": len(taken),
        "named": [word(name) for name in taken if name in wanted],
        "idle": [word(entry) for entry in wanted if not any(fnmatchcase(name, entry) for name in there)],
    }
    return facts, {"names": [word(name) for name in taken]}


def _hcas(settings: Mapping[str, str], ports: Sequence[Port]) -> Tuple[List[Port], Told]:
    """The ports that NCCL takes: active, InfiniBand or Ethernet, and matched (ncclIbInit)."""
    disabled = integer(settings.get("NCCL_IB_DISABLE", ""), 0) != 0
    wanted = NameList.parse(settings.get("NCCL_IB_HCA", ""))
    active = [port for port in ports if port.state == "active"]
    taken = [port for port in active if not disabled and wanted.takes(port.hca, port.number)]
    models: Dict[str, int] = {}
    for port in taken:
        models[port.group] = models.get(port.group, 0) + 1
    facts: Dict[str, Any] = {"matched": len(taken), "models": models}
    if wanted.entries and not wanted.excludes:
        facts["named"] = sorted({str(word(port.hca)) for port in taken if wanted.names(port.hca)})
        facts["idle"] = [word(entry) for entry in wanted.idle([(port.hca, port.number) for port in active])]
    if disabled:
        facts["disabled"] = True
    return taken, (facts, {"names": [port.label for port in taken]})


def _gids(context: Context, settings: Mapping[str, str], links: Interfaces, ethernet: Sequence[Port]) -> Told:
    from envaudit.probe import gids  # a node without RoCE does not need it

    wish = gids.Wish.of(settings)
    own = {address.text for _, address in links.addresses or ()}
    rows: Dict[int, Dict[str, Any]] = {}
    notes: Dict[str, Any] = {}
    for place, port in enumerate(ethernet):
        gid = gids.used(context, port, wish)
        if gid is None:
            rows[place] = {"state": "no such GID"}
            continue
        address = gid.address in own if links.addresses is not None else None
        rows[place] = {"roce": gid.roce, "family": gid.family, "address": address}
        notes[port.label] = {"index": gid.place, "address": gid.address}
    each, devices = fold(rows)
    by = "NCCL_IB_GID_INDEX" if wish.place >= 0 else "own choice"
    return {"by": by, "each": each, "devices": devices}, notes
