"""The network: interfaces, host channel adapters, and what the settings name on this node.

Facts:

    interfaces  kind → driver → {"count", "each", "devices"}: {"physical": {"mlx5_core": {"count": 2,
                "each": {"mtu": 9000, "prefixes": "ipv4/24", "speed_mbps": 200000}, "devices": {}}}}.
                Kinds: physical, infiniband (IP over it), virtual function, bond, vlan, bridge;
                virtual only where the namespace has no hardware, as that of a pod. A bond has
                mode, hash_policy, lacp_rate, members and members_up too. An interface that is used
                and has no carrier has `state: "down"`. null: there is no sysfs to see them in
    hcas        model and link layer → {"cards", "ports", "active", "each", "devices"}; of a port:
                board, firmware, driver, rate ("400 Gb/sec (4X NDR)", which has the width), for
                Ethernet active_mtu in bytes, and state where it is not active
    verbs       with HCAs, whether /dev/infiniband has a uverbs device: a container that was not given
                one sees the cards and cannot use them
    verbs_lacking   how many HCAs have none where others have; only there if any
    modules     version of the kernel modules behind all these, null for those the kernel brings
    ofed        "MLNX_OFED_LINUX-23.10-1.1.9.0" or "OFED-internal-24.10-0.7.0" (DOCA), or null
    selection   what the settings resolve to here; see `selected`

As with the GPUs, `each` is what most share and `devices` what deviates, by ordinal: HCAs in the
order of the PCI bus, interfaces in that of their values, since their names and places prove nothing.

Notes: names, addresses, MACs, GUIDs, bus ids, the gateway, what is not used, error counters.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from envaudit.probe import infiniband, interfaces, selected
from envaudit.probe.context import Answer, Context
from envaudit.probe.infiniband import Port
from envaudit.probe.interfaces import NET, Interface, Interfaces, word

SCHEMA = 1
# Modules without which an InfiniBand or RoCE card does nothing, besides its own driver.
_COMMON_MODULES = ("ib_core", "mlx5_ib", "mlx_compat")
_MAX_NOTED = 64
_OFED_SCRIPT = "/usr/bin/ofed_info"
_OFED_BYTES = 1 << 16


def read(context: Context) -> Answer:
    """Interfaces, HCAs and the selection; absent where there is nothing but the loopback."""
    try:
        ports = infiniband.ports(context)
        links = Interfaces(context)
    except PermissionError as error:
        return Answer("error", {}, {}, [f"{error.filename or NET}: {error.strerror}"])
    counted = links.counted([port.netdev for port in ports if port.netdev])
    if not (counted or ports or links.unseen) and set(links.names) <= {"lo"}:
        return Answer("absent", {})
    selection, chosen, errors = selected.selection(context, links, ports)
    verbs = _verbs(context)
    lacking = len({port.hca for port in ports}) - verbs
    facts = {
        "interfaces": None if links.unseen else interfaces.multiset(links, counted),
        "hcas": None if links.unseen and not ports else infiniband.groups(ports),
        "verbs": verbs > 0 if ports else None,
        **({"verbs_lacking": lacking} if verbs and lacking > 0 else {}),
        "modules": _modules(context, counted, ports),
        "ofed": _ofed(context),
        "selection": selection,
    }
    notes = {
        "interfaces": _of_interfaces(links, counted),
        "unused": _unused(links, counted),
        "gateway": _gateway(context),
        "hcas": infiniband.notes(context, ports),
        "selection": chosen,
        "not_examined": _not_examined(links, ports),
    }
    return Answer("partial" if errors else "ok", facts, notes, errors)


def _not_examined(links: Interfaces, ports: Sequence[Port]) -> Dict[str, str]:
    told = {}
    if links.unseen:
        told["interfaces"] = f"{NET} is not there"
    elif links.addresses is None:
        told["addresses and prefix lengths"] = "the kernel's netlink socket did not tell them"
    if any(port.link_layer == "InfiniBand" for port in ports):
        told["active MTU of InfiniBand ports"] = "sysfs does not have it; ibv_devinfo asks the driver"
    return told


def _of_interfaces(links: Interfaces, counted: Sequence[Interface]) -> Dict[str, Any]:
    return {
        str(word(one.name)): {
            "kind": one.kind,
            "driver": one.driver,
            "up": one.up,
            "mac": links.mac(one.name),
            "bus_id": one.bus_id,
            "addresses": [f"{each.text}/{each.prefix}" for each in links.of(one.name)][:_MAX_NOTED],
        }
        for one in counted[:_MAX_NOTED]
    }


def _unused(links: Interfaces, counted: Sequence[Interface]) -> List[str]:
    used = {one.name for one in counted} | {"lo"}
    return [str(word(name)) for name in links.names if name not in used][:_MAX_NOTED]


def _gateway(context: Context) -> Optional[str]:
    """The default route's, from /proc/net/route: addresses are hexadecimal, little-endian."""
    for line in (context.peek("/proc/net/route") or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 2 and fields[1] == "00000000" and len(fields[2]) == 8:
            try:
                return ".".join(str(part) for part in reversed(bytes.fromhex(fields[2])))
            except ValueError:
                continue
    return None


def _verbs(context: Context) -> int:
    """The number of uverbs devices, one for each HCA that may be used."""
    try:
        return sum(name.startswith("uverbs") for name in context.list_dir("/dev/infiniband"))
    except OSError:
        return 0


def _modules(context: Context, counted: Sequence[Interface], ports: Sequence[Port]) -> Dict[str, Any]:
    """Versions of the drivers in use; a module that does not state one came with the kernel."""
    drivers: List[Optional[str]] = [port.driver for port in ports]
    for one in counted:
        drivers += (one.driver or "").split("+")
    if ports:
        drivers += _COMMON_MODULES
    told = {}
    for name in sorted({name for name in drivers if name and "/" not in name and name[0] != "."}):
        folder = f"/sys/module/{name.replace('-', '_')}"
        # A driver that is built into the kernel, or is no module of that name, has no folder.
        if context.is_dir(folder):
            told[name] = word(context.peek(f"{folder}/version") or "")
    return told


def _ofed(context: Context) -> Optional[str]:
    """The version in the text of the script ofed_info, which is read, not run."""
    try:
        text = context.read_head(_OFED_SCRIPT, _OFED_BYTES).decode("ascii", "replace")
    except OSError:
        return None
    import re

    match = re.search(r"(?:MLNX_OFED_LINUX|OFED-internal)-[0-9][0-9.-]{1,40}", text)
    return match.group().rstrip(".-") if match else None
