"""The network interfaces of this namespace: /sys/class/net, and their addresses from the kernel.

Names, MACs and addresses are nobody's facts: eth0 here is ens5 on the next, equal node. What counts
is how many there are of which kind and driver, and how they are set.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from envaudit.probe import netlink
from envaudit.probe.context import Context
from envaudit.probe.folding import fold
from envaudit.probe.netlink import Address

NET = "/sys/class/net"
# Made for containers: how many there are depends on what runs, not on what the node is.
_FOR_CONTAINERS = ("veth", "cali", "br-", "docker", "cni")
# DEVTYPE in uevent, as the kernel's drivers set it with SET_NETDEV_DEVTYPE.
_STACKED = ("bond", "vlan", "bridge")
_HARDWARE = ("physical", "virtual function", "infiniband")
# net_device.flags IFF_UP (linux/if.h); ARPHRD_INFINIBAND (linux/if_arp.h).
_IFF_UP = 1
_INFINIBAND = "32"
# No machine has more of one kind; a file that says so lies.
_MAX_INTERFACES = 4096
_MAX_DEPTH = 8
# SPEED_UNKNOWN is -1, or the same as an unsigned number (linux/ethtool.h).
_UNKNOWN_SPEEDS = (-1, 0, 0xFFFF, 0xFFFFFFFF)


class Interface(NamedTuple):
    """One interface as sysfs shows it.

    Attributes:
        kind: physical, virtual function, infiniband (IP over InfiniBand), bond, vlan, bridge, or
            virtual, which is everything else.
        driver: of its device; of a stacked one, of what lies below, names joined with `+`.
        speed_mbps: None where the driver does not know it, as virtio does not.
        up: whether it is switched on and has a carrier.
        configured: whether somebody uses it: it has an address, or a bond or bridge stands on it.
        below: what a bond, VLAN or bridge stands on, by name.
        bus_id: of its device.
    """

    name: str
    kind: str
    driver: Optional[str]
    speed_mbps: Optional[int]
    mtu: Optional[int]
    up: bool
    configured: bool
    below: Tuple[str, ...]
    bus_id: Optional[str]


class Interfaces:
    """All interfaces of a node, each looked at when it is asked for: a host of pods has hundreds.

    Attributes:
        names: in the kernel's order.
        addresses: (name, address) in the order of the kernel's dump; None where it does not tell.

        unseen: whether there is no sysfs here that shows interfaces.

    Raises:
        PermissionError: the interfaces may not be looked at.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kinds: Dict[str, Tuple[str, Tuple[str, ...]]] = {}
        self._foreign: Set[str] = set()
        self.addresses: Optional[List[Tuple[str, Address]]] = None
        self.names: List[str] = []
        self.unseen = False
        try:
            listed = context.list_dir(NET)[:_MAX_INTERFACES]
            if context.live:
                self._ask_kernel()
            else:
                # bonding_masters is a file among the interfaces.
                by_index = sorted((self._index(name), name) for name in listed)
                self.names = [name for _, name in by_index if name != "bonding_masters"]
                self.addresses = _of_fixture(context.node.get("addresses"), self.names)
        except PermissionError:
            raise
        except OSError:
            self.unseen = True
        self._of: Dict[str, List[Address]] = {}
        for name, address in self.addresses or ():
            self._of.setdefault(name, []).append(address)

    def _ask_kernel(self) -> None:
        by_index = dict(netlink.names()[:_MAX_INTERFACES])
        self.names = list(by_index.values())
        # A container may see the host's sysfs: the same name is then another interface.
        self._foreign = {name for index, name in by_index.items() if self._index(name) != index}
        try:
            dump = netlink.addresses()
        except OSError:
            return
        self.addresses = [(by_index[index], one) for index, one in dump if index in by_index]

    def of(self, name: str) -> List[Address]:
        """The addresses of one interface."""
        return self._of.get(name, [])

    def up(self, name: str) -> bool:
        """Whether it is running: what NCCL looks for, IFF_RUNNING, is up or unknown (RFC 2863)."""
        if name in self._foreign:
            return True
        if self._text(name, "operstate") not in ("up", "unknown"):
            return False
        try:
            return bool(int(self._text(name, "flags") or "", 16) & _IFF_UP)
        except ValueError:
            return True

    def mac(self, name: str) -> Optional[str]:
        """Its hardware address."""
        return None if name in self._foreign else word(self._text(name, "address") or "")

    def counted(self, of_hcas: Sequence[str]) -> List[Interface]:
        """The interfaces that are facts: hardware that is used, and what is stacked on it.

        Where the namespace was given no hardware, as that of a pod, the virtual ones with an
        address stand in.

        Args:
            of_hcas: names of interfaces that belong to an HCA: used without an address too.
        """
        names = [name for name in self.names if name != "lo" and not name.startswith(_FOR_CONTAINERS)]
        real = [self.look(name) for name in names if self.kind(name)[0] != "virtual"]
        if not real:
            return [self.look(name) for name in names if self._is_addressed(name)]
        return [one for one in real if one.configured or (one.up and one.name in of_hcas)]

    def look(self, name: str) -> Interface:
        """One interface."""
        kind, below = self.kind(name)
        if name in self._foreign:
            return Interface(name, kind, None, None, None, True, self._is_addressed(name), (), None)
        inside = self._list(name)
        up = self.up(name)
        stacked_on = "master" in inside or any(entry.startswith("upper_") for entry in inside)
        return Interface(
            name=name,
            kind=kind,
            driver=self._driver(name),
            speed_mbps=self._speed(name) if up else None,
            mtu=self._number(name, "mtu"),
            up=up,
            configured=stacked_on or self._is_addressed(name),
            below=below,
            bus_id=self._link(name, "device") if kind in _HARDWARE else None,
        )

    def kind(self, name: str, depth: int = 0) -> Tuple[str, Tuple[str, ...]]:
        """What an interface is, and the names of what it stands on; see `Interface`."""
        if name not in self._kinds:
            self._kinds[name] = "virtual", ()
            if name not in self._foreign and depth < _MAX_DEPTH:
                self._kinds[name] = self._kind(name, depth)
        return self._kinds[name]

    def _kind(self, name: str, depth: int) -> Tuple[str, Tuple[str, ...]]:
        if self._context.exists(f"{NET}/{name}/device"):
            if self._text(name, "type") == _INFINIBAND:
                return "infiniband", ()
            has_parent = self._context.exists(f"{NET}/{name}/device/physfn")
            return "virtual function" if has_parent else "physical", ()
        words = (self._text(name, "uevent") or "").split()
        kind = next((one for one in _STACKED if f"DEVTYPE={one}" in words), None)
        if kind:
            lower = {entry[len("lower_") :] for entry in self._list(name) if entry.startswith("lower_")}
            real = [one for one in self.names if one in lower and self.kind(one, depth + 1)[0] != "virtual"]
            if real:
                return kind, tuple(real)
        return "virtual", ()

    def _driver(self, name: str) -> Optional[str]:
        kind, below = self.kind(name)
        if kind in _HARDWARE:
            return self._link(name, "device/driver")
        return "+".join(sorted({self._driver(lower) or "unknown" for lower in below})) or None

    def _is_addressed(self, name: str) -> bool:
        return any(not one.is_link_local for one in self.of(name))

    def _index(self, name: str) -> int:
        return self._number(name, "ifindex") or 0

    def _speed(self, name: str) -> Optional[int]:
        speed = self._number(name, "speed")
        return None if speed in _UNKNOWN_SPEEDS else speed

    def _number(self, name: str, file: str) -> Optional[int]:
        return number(self._text(name, file))

    def _text(self, name: str, file: str) -> Optional[str]:
        return self._context.peek(f"{NET}/{name}/{file}")

    def _link(self, name: str, link: str) -> Optional[str]:
        try:
            return word(self._context.readlink(f"{NET}/{name}/{link}").rpartition("/")[2])
        except OSError:
            return None

    def _list(self, name: str) -> List[str]:
        try:
            return self._context.list_dir(f"{NET}/{name}")
        except OSError:
            return []

    def bonding(self, bond: Interface) -> Dict[str, Any]:
        """How a bond is set, and how many of its members carry (Documentation/networking/bonding.rst)."""
        told = set((self._text(bond.name, "bonding/slaves") or "").split())
        members = [name for name in self.names if name in told]
        states = [self._text(member, "bonding_slave/mii_status") for member in members]
        facts: Dict[str, Any] = {"members": len(members), "members_up": states.count("up")}
        for fact, file in (("mode", "mode"), ("hash_policy", "xmit_hash_policy"), ("lacp_rate", "lacp_rate")):
            # `802.3ad 4`: the name, then its number.
            facts[fact] = word((self._text(bond.name, f"bonding/{file}") or "").partition(" ")[0])
        return facts


def multiset(interfaces: Interfaces, counted: Sequence[Interface]) -> Dict[str, Dict[str, Any]]:
    """Kind → driver → {"count", "each", "devices"}; the ordinals follow the values, not the names."""
    groups: Dict[str, Dict[str, List[Dict[str, Any]]]] = {}
    for one in counted:
        of_kind = groups.setdefault(one.kind, {})
        driver = one.driver or ("none" if one.kind == "virtual" else "unknown")
        of_kind.setdefault(driver, []).append(facts_of(interfaces, one))
    return {
        kind: {driver: _folded(members) for driver, members in drivers.items()}
        for kind, drivers in groups.items()
    }


def facts_of(interfaces: Interfaces, one: Interface) -> Dict[str, Any]:
    """What two healthy equal nodes share of an interface; what is down has no speed."""
    facts: Dict[str, Any] = {"mtu": one.mtu}
    if interfaces.addresses is not None:
        facts["prefixes"] = prefixes(interfaces.of(one.name))
    if one.kind == "bond":
        facts.update(interfaces.bonding(one))
    if not one.up:
        facts["state"] = "down"
    elif facts.get("members") == facts.get("members_up"):
        # A bond is as fast as those of its members that carry.
        facts["speed_mbps"] = one.speed_mbps
    return facts


def prefixes(found: Sequence[Address]) -> str:
    """The prefix lengths, `ipv4/24 ipv6/64`.

    Link-local addresses, which every interface has, do not count; nor does an address without a
    network (/32, /128) beside one with: a service moves it from node to node.
    """
    said = {(one.family, one.prefix) for one in found if not one.is_link_local}
    whole = {"ipv4": 32, "ipv6": 128}
    wider = {family for family, prefix in said if prefix != whole[family]}
    kept = [(family, prefix) for family, prefix in said if prefix != whole[family] or family not in wider]
    return " ".join(f"{family}/{prefix}" for family, prefix in sorted(kept))


def number(text: Optional[str]) -> Optional[int]:
    """A whole number of the kernel's, of 19 characters at most; None for anything else."""
    if not text or len(text) > 19:
        return None
    digits = text[1:] if text[0] == "-" else text
    return int(text) if digits.isascii() and digits.isdigit() else None


def word(text: str) -> Optional[str]:
    """A text of the kernel as one printable line of at most 64 characters; None for nothing."""
    kept = "".join(letter if letter.isprintable() else "?" for letter in text.strip()[:64])
    return kept or None


def _folded(members: List[Dict[str, Any]]) -> Dict[str, Any]:
    ordered = sorted(members, key=lambda facts: [(key, str(value)) for key, value in sorted(facts.items())])
    each, devices = fold(dict(enumerate(ordered)))
    return {"count": len(members), "each": each, "devices": devices}


def _of_fixture(told: Any, names: Sequence[str]) -> Optional[List[Tuple[str, Address]]]:
    """`addresses` of a node.json, {"eth0": ["10.0.0.1/24"]}, as the kernel would dump them."""
    if told is None:
        return None
    found = []
    for family in ("ipv4", "ipv6"):
        for name in names:
            for text in told.get(name, ()):
                address, _, prefix = text.partition("/")
                if (":" in address) == (family == "ipv6"):
                    found.append((name, Address(family, address, int(prefix))))
    return found
