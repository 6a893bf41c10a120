"""The network of nodes healthy and broken: interfaces, HCAs, and what the variables name there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest

from envaudit.diff import compare
from envaudit.model import Fingerprint, Section
from envaudit.probe.answer import row_of
from envaudit.probe.context import Answer, Context
from envaudit.probe.interfaces import number, prefixes
from envaudit.probe.netlink import Address
from envaudit.probe.sections import network

FakeNode = Callable[[str], Context]
MakeNode = Callable[..., Context]
NET = "sys/class/net"


class Node:
    """A copy of a fake node, to be changed.

    Attributes:
        root: what stands for its root folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"

    def write(self, path: str, text: str) -> None:
        """Another text in one file."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n", encoding="utf-8")

    def tell(self, **keys: Any) -> None:
        """Keys of node.json; of a map, only the given entries are new."""
        path = self.folder / "node.json"
        node = json.loads(path.read_text(encoding="utf-8"))
        for key, value in keys.items():
            node[key] = {**node.get(key, {}), **value} if isinstance(value, dict) else value
        path.write_text(json.dumps(node), encoding="utf-8")

    def read(self, **environ: str) -> Answer:
        """The section's answer, with these variables besides its own; an empty one is not set."""
        context = Context.of_fixture(str(self.folder))
        context.environ = {name: text for name, text in {**context.environ, **environ}.items() if text}
        answer = network.read(context)
        row_of("network", network.SCHEMA, answer)
        return answer


@pytest.fixture
def copy_of(node_folder: Callable[[str], str], tmp_path: Path) -> Callable[[str], Node]:
    """A node of fixtures/nodes as one's own."""
    unread = shutil.ignore_patterns("opt", "srv", "kernel")

    def copy(name: str) -> Node:
        source, target = node_folder(name), tmp_path / name
        return Node(Path(shutil.copytree(source, target, symlinks=True, ignore=unread)))

    return copy


def drifts(one: Answer, other: Answer) -> List[str]:
    """The paths at which two nodes that were started alike differ."""
    fingerprints = [
        Fingerprint(
            name,
            "probe",
            "2026-11-30T10:00:00Z",
            "1",
            {
                "host": Section("host", 1, "ok", {"launch": "ssh"}),
                "network": Section("network", network.SCHEMA, answer.status, answer.facts),
            },
        )
        for name, answer in (("node1", one), ("node2", other))
    ]
    return [drift.path for drift in compare(fingerprints)]


def test_healthy_node_shows_interfaces_cards_and_selection(fake_node: FakeNode) -> None:
    """Eight InfiniBand cards, a bond of two ports, one port for management; MTU and speed of each."""
    answer = network.read(fake_node("healthy-h100"))
    assert ("ok", []) == (answer.status, answer.errors)
    assert {
        "physical": {
            "igb": {
                "count": 1,
                "each": {"mtu": 1500, "prefixes": "ipv4/24", "speed_mbps": 1000},
                "devices": {},
            },
            "mlx5_core": {
                "count": 2,
                "each": {"mtu": 9000, "prefixes": "", "speed_mbps": 100000},
                "devices": {},
            },
        },
        "infiniband": {
            "mlx5_core": {
                "count": 8,
                "each": {"mtu": 4092, "prefixes": "", "speed_mbps": 400000},
                "devices": {},
            }
        },
        "bond": {
            "mlx5_core": {
                "count": 1,
                "each": {
                    "hash_policy": "layer3+4",
                    "lacp_rate": "fast",
                    "members": 2,
                    "members_up": 2,
                    "mode": "802.3ad",
                    "mtu": 9000,
                    "prefixes": "ipv4/22 ipv6/64",
                    "speed_mbps": 200000,
                },
                "devices": {},
            }
        },
    } == answer.facts["interfaces"]
    assert ["MT4125 Ethernet", "MT4129 InfiniBand"] == sorted(answer.facts["hcas"])
    assert answer.facts["verbs"] is True
    assert {"igb": None, "mlx5_core": "24.04-0.7.0"} == {
        name: version for name, version in answer.facts["modules"].items() if name in ("igb", "mlx5_core")
    }
    assert "OFED-internal-24.04-0.7.0" == answer.facts["ofed"]
    assert {
        "NCCL_SOCKET_IFNAME": {
            "matched": 1,
            "named": ["bond0"],
            "idle": [],
            "each": {"driver": "mlx5_core", "kind": "bond", "speed_mbps": 200000},
            "devices": {},
        },
        "NCCL_IB_HCA": {
            "matched": 9,
            "models": {"MT4129 InfiniBand": 8, "MT4125 Ethernet": 1},
            "named": [],
            "idle": [],
        },
        "roce_gid": {
            "by": "own choice",
            "each": {"address": True, "family": "ipv4", "roce": 2},
            "devices": {},
        },
    } == answer.facts["selection"]


def test_healthy_node_notes_what_differs_by_nature(fake_node: FakeNode) -> None:
    """Addresses, MACs, GUIDs, places on the bus, the gateway, what is unused; and what nobody told."""
    notes = network.read(fake_node("healthy-h100")).notes
    assert "172.16.1.1" == notes["gateway"]
    assert ["eno2"] == notes["unused"]
    assert ["10.20.1.11/22", "fd00:20::1:b/64", "fe80::1:a1ff:fe00:110/64"] == notes["interfaces"]["bond0"][
        "addresses"
    ]
    assert {
        "name": "mlx5_2:1",
        "bus_id": "0000:3a:00.0",
        "guid": "5c25:7301:0002:0a11",
        "netdev": "ib2",
        "link_downed": 1,
    } == notes["hcas"]["MT4129 InfiniBand"]["2"]
    assert {"mlx5_bond_0:1": {"index": 3, "address": "10.20.1.11"}} == notes["selection"]["roce_gid"]
    assert ["active MTU of InfiniBand ports"] == list(notes["not_examined"])


@pytest.mark.parametrize(
    ("one", "twin"),
    [("healthy-h100", "twin-a"), ("healthy-h100", "twin-b"), ("pod-a", "pod-b"), ("slurm-a", "slurm-b")],
)
def test_twins_have_equal_facts_and_other_notes(fake_node: FakeNode, one: str, twin: str) -> None:
    """Other names, order, MACs, GUIDs, bus ids and subnets; containers on one of the hosts."""
    first, second = network.read(fake_node(one)), network.read(fake_node(twin))
    assert [] == drifts(first, second)
    assert first.facts == second.facts
    for subject in ("interfaces", "gateway") if one == "pod-a" else ("interfaces", "hcas"):
        if first.notes[subject] != second.notes[subject]:
            break
    else:
        pytest.fail("the twin is a copy")


def test_adapter_without_verbs_beside_others_that_have_them_is_counted(
    copy_of: Callable[[str], Node],
) -> None:
    """A container that was given eight devices of nine; on a whole node there is nothing to count."""
    node = copy_of("healthy-h100")
    assert "verbs_lacking" not in node.read().facts
    (node.root / "dev/infiniband/uverbs5").unlink()
    facts = node.read().facts
    assert (True, 1) == (facts["verbs"], facts["verbs_lacking"])


def test_pod_shows_its_one_virtual_interface(fake_node: FakeNode) -> None:
    """Without hardware in its namespace a pod still has an MTU, a prefix length and a selection."""
    answer = network.read(fake_node("pod-a"))
    each = {"mtu": 8951, "prefixes": "ipv4/32", "speed_mbps": 10000}
    assert {"virtual": {"none": {"count": 1, "each": each, "devices": {}}}} == answer.facts["interfaces"]
    assert ({}, None) == (answer.facts["hcas"], answer.facts["verbs"])
    assert 1 == answer.facts["selection"]["NCCL_SOCKET_IFNAME"]["matched"]


def test_virtual_machine_has_a_card_of_unknown_speed(fake_node: FakeNode) -> None:
    """Virtio says -1: unknown, and no fact; a cloud's MTU is one."""
    answer = network.read(fake_node("cpu-only"))
    each = {"mtu": 1450, "prefixes": "ipv4/24"}
    assert {"physical": {"virtio_net": {"count": 1, "each": each, "devices": {}}}} == answer.facts[
        "interfaces"
    ]
    assert {
        "by": "other",
        "first": {"kind": "physical", "driver": "virtio_net", "speed_mbps": None},
    } == answer.facts["selection"]["NCCL_SOCKET_IFNAME"]
    assert {"virtio_net": None} == answer.facts["modules"]


def test_roce_node_tells_version_family_and_address_of_its_gids(fake_node: FakeNode) -> None:
    """NCCL_IB_GID_INDEX=3 is RoCE v2 over IPv4 on all eight ports."""
    answer = network.read(fake_node("roce-h100"))
    assert {
        "by": "NCCL_IB_GID_INDEX",
        "each": {"address": True, "family": "ipv4", "roce": 2},
        "devices": {},
    } == answer.facts["selection"]["roce_gid"]
    assert 4096 == answer.facts["hcas"]["MT4129 Ethernet"]["each"]["active_mtu"]
    assert {} == answer.notes["not_examined"]


BOND_MEMBER = f"{NET}/ens1f1np1"


@pytest.mark.parametrize(
    ("files", "paths"),
    [
        (
            {f"{NET}/bond0/mtu": "1500"},
            [
                "network/hcas/MT4125 Ethernet/each/active_mtu",
                "network/interfaces/bond/mlx5_core/each/mtu",
            ],
        ),
        ({f"{NET}/ib3/mtu": "2044"}, ["network/interfaces/infiniband/mlx5_core/devices/0"]),
        ({f"{NET}/eno1/speed": "100"}, ["network/interfaces/physical/igb/each/speed_mbps"]),
        ({f"{NET}/bond0/bonding/mode": "active-backup 1"}, ["network/interfaces/bond/mlx5_core/each/mode"]),
        (
            {f"{BOND_MEMBER}/operstate": "down", f"{BOND_MEMBER}/bonding_slave/mii_status": "down"},
            [
                "network/interfaces/bond/mlx5_core/each/members_up",
                "network/interfaces/bond/mlx5_core/each/speed_mbps",
                "network/interfaces/physical/mlx5_core/devices/1",
            ],
        ),
        (
            {f"{NET}/eno1/operstate": "down"},
            [
                "network/interfaces/physical/igb/devices/0",
                "network/interfaces/physical/igb/each/speed_mbps",
            ],
        ),
        ({f"{NET}/ib5/operstate": "down"}, ["network/interfaces/infiniband/mlx5_core/count"]),
        (
            {"sys/class/infiniband/mlx5_3/ports/1/rate": "200 Gb/sec (2X NDR)"},
            ["network/hcas/MT4129 InfiniBand/devices/3"],
        ),
        (
            {"sys/class/infiniband/mlx5_3/ports/1/state": "1: DOWN"},
            [
                "network/hcas/MT4129 InfiniBand/active",
                "network/hcas/MT4129 InfiniBand/devices/3",
                "network/selection/NCCL_IB_HCA/matched",
                "network/selection/NCCL_IB_HCA/models/MT4129 InfiniBand",
            ],
        ),
        ({"sys/module/mlx5_core/version": "23.10-1.1.9"}, ["network/modules/mlx5_core"]),
        ({f"{NET}/eno2/operstate": "up", f"{NET}/eno2/mtu": "9000"}, []),
        ({f"{NET}/eno1/address": "02:00:00:00:00:01"}, []),
        ({"sys/class/infiniband/mlx5_0/ports/1/counters/link_downed": "99"}, []),
    ],
)
def test_change_of_one_thing_is_named_and_nothing_else(
    copy_of: Callable[[str], Node], fake_node: FakeNode, files: Dict[str, str], paths: List[str]
) -> None:
    """What one cable, card or setting changes against a healthy twin."""
    node = copy_of("twin-a")
    for path, text in files.items():
        node.write(path, text)
    assert paths == drifts(network.read(fake_node("healthy-h100")), node.read())


@pytest.mark.parametrize(
    ("addresses", "paths"),
    [
        ({"bond0": ["10.99.9.9/22", "fd00:77::1/64"]}, []),
        ({"bond0": ["10.20.2.11/16", "fd00:20::1/64"]}, ["network/interfaces/bond/mlx5_core/each/prefixes"]),
        ({"bond0": ["10.20.2.11/22", "10.20.2.200/32", "fd00:20::1/64", "fd00:20::77/128"]}, []),
        (
            {"eno2": ["192.0.2.1/24"]},
            ["network/interfaces/physical/igb/count", "network/interfaces/physical/igb/devices/1"],
        ),
    ],
)
def test_addresses_count_by_their_prefix_length(
    copy_of: Callable[[str], Node], fake_node: FakeNode, addresses: Dict[str, List[str]], paths: List[str]
) -> None:
    """Another subnet is no difference, another size of it is; a service's address comes and goes."""
    node = copy_of("twin-a")
    node.tell(addresses=addresses)
    found = drifts(network.read(fake_node("healthy-h100")), node.read())
    assert paths == [path for path in found if "roce_gid" not in path]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (["ipv4 10.0.0.1/32"], "ipv4/32"),
        (["ipv4 10.0.0.1/24", "ipv4 10.0.0.7/32"], "ipv4/24"),
        (["ipv6 fe80::1/64"], ""),
        (["ipv6 fd00::1/64", "ipv6 fd00::2/64", "ipv4 10.0.0.1/8"], "ipv4/8 ipv6/64"),
    ],
)
def test_prefixes_are_told_once_and_in_order(found: List[str], text: str) -> None:
    """Several addresses of one network are one."""
    addresses = []
    for entry in found:
        family, _, rest = entry.partition(" ")
        address, _, prefix = rest.partition("/")
        addresses.append(Address(family, address, int(prefix)))
    assert text == prefixes(addresses)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("9000", 9000), ("-1", -1), ("0", 0), ("9" * 19, int("9" * 19))),
        *((text, None) for text in (None, "", "-", "--5", "1e3", " 5", "0x10", "\u0663", "9" * 20)),
    ],
)
def test_number_of_the_kernel_is_read_or_unknown(text: Optional[str], expected: Optional[int]) -> None:
    """Digits with one sign; what else may stand there is no number."""
    assert expected == number(text)


def test_vlan_and_bridge_count_where_they_stand_on_hardware(make_node: MakeNode) -> None:
    """bond0.12 and br0 are the node's; br-1f, docker0, cali and a bridge of virtual machines are not."""
    files = {f"/{NET}/ens1/device/vendor": "0x8086", f"/{NET}/ens1/master": ""}
    stacked = {
        "ens1.12": ("vlan", "ens1"),
        "br0": ("bridge", "ens1"),
        "br-1f": ("bridge", "ens1"),
        "vmbr": ("bridge", "tap1"),
        "docker0": ("bridge", "veth1"),
        **dict.fromkeys(("cali77", "veth1", "tap1", "lo"), ("", "")),
    }
    for place, (name, (kind, lower)) in enumerate({"ens1": ("", ""), **stacked}.items()):
        files[f"/{NET}/{name}/uevent"] = f"DEVTYPE={kind}\nINTERFACE={name}\n" if kind else ""
        files[f"/{NET}/{name}/ifindex"] = str(place + 1)
        files[f"/{NET}/{name}/operstate"] = "up"
        files[f"/{NET}/{name}/mtu"] = "1500"
        if lower:
            files[f"/{NET}/{name}/lower_{lower}"] = ""
    context = make_node(files, addresses={name: ["10.0.0.1/24"] for name in stacked})
    answer = network.read(context)
    assert {("bridge", "unknown", 1), ("physical", "unknown", 1), ("vlan", "unknown", 1)} == {
        (kind, driver, group["count"])
        for kind, drivers in answer.facts["interfaces"].items()
        for driver, group in drivers.items()
    }


def test_three_hundred_interfaces_of_containers_are_none_of_the_node(
    copy_of: Callable[[str], Node], fake_node: FakeNode
) -> None:
    """What pods bring to a host is no fact, under whatever name their network gives it."""
    node = copy_of("twin-a")
    addresses = {}
    for place in range(300):
        name = ("cali{}", "veth{}", "lxc {}", "eni\u00e9{}")[place % 4].format(place)
        node.write(f"{NET}/{name}/ifindex", str(100 + place))
        node.write(f"{NET}/{name}/operstate", "up")
        addresses[name] = [f"fe80::{place:x}/64"]
    node.tell(addresses=addresses)
    assert [] == drifts(network.read(fake_node("healthy-h100")), node.read())
    without = {"NCCL_SOCKET_IFNAME": "^docker,lo"}
    assert [] == drifts(copy_of("healthy-h100").read(**without), node.read(**without))


# The selection


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("eth1", {"matched": 2, "named": ["eth1"], "idle": []}),
        ("=eth1", {"matched": 1, "named": ["eth1"], "idle": []}),
        ("eth", {"matched": 3, "named": [], "idle": []}),
        ("ens5", {"matched": 0, "named": [], "idle": ["ens5"]}),
        ("eth2", {"matched": 0, "named": [], "idle": ["eth2"]}),
        ("eth3", {"matched": 0, "named": [], "idle": ["eth3"]}),
        ("=eth0,ens5", {"matched": 1, "named": ["eth0"], "idle": ["ens5"]}),
    ],
)
def test_socket_variable_tells_what_it_matches(
    make_node: MakeNode, value: str, told: Dict[str, object]
) -> None:
    """A prefix that takes one too many, nothing, an interface without a carrier or without an address."""
    files = {}
    for place, name in enumerate(("eth0", "eth1", "eth10", "eth2", "eth3")):
        files[f"/{NET}/{name}/ifindex"] = str(place + 2)
        files[f"/{NET}/{name}/operstate"] = "down" if name == "eth2" else "up"
        files[f"/{NET}/{name}/device/vendor"] = "0x8086"
    addresses = {name: ["10.0.0.1/24"] for name in ("eth0", "eth1", "eth10", "eth2")}
    context = make_node(files, environ={"NCCL_SOCKET_IFNAME": value}, addresses=addresses)
    found = network.read(context).facts["selection"]["NCCL_SOCKET_IFNAME"]
    assert told == {key: found[key] for key in told}


def test_socket_variable_of_a_settings_file_counts_as_of_the_environment(make_node: MakeNode) -> None:
    """/etc/nccl.conf names eth1; the environment goes before it."""
    files = {"/etc/nccl.conf": "NCCL_SOCKET_IFNAME=eth1\n"}
    for name in ("eth0", "eth1"):
        files[f"/{NET}/{name}/operstate"] = "up"
    addresses = {"eth0": ["10.0.0.1/24"], "eth1": ["10.0.1.1/24"]}
    by_file = network.read(make_node(files, addresses=addresses))
    by_both = network.read(make_node(files, addresses=addresses, environ={"NCCL_SOCKET_IFNAME": "=eth0"}))
    assert [["eth1"], ["eth0"]] == [
        answer.facts["selection"]["NCCL_SOCKET_IFNAME"]["named"] for answer in (by_file, by_both)
    ]


@pytest.mark.parametrize(
    ("environ", "by", "kind"),
    [
        ({}, "other", "physical"),
        ({"NCCL_SOCKET_IFNAME": "x"}, "other", "physical"),
        ({"NCCL_COMM_ID": "10.20.0.9:50000"}, "subnet", "bond"),
        ({"NCCL_COMM_ID": "[fd00:20::9]:50000"}, "subnet", "bond"),
        ({"NCCL_COMM_ID": "head.example:50000"}, "other", "physical"),
        ({"NCCL_SOCKET_IFNAME": "^eno,lo"}, "NCCL_SOCKET_IFNAME", "bond"),
        ({"NCCL_SOCKET_IFNAME": "^eno"}, "NCCL_SOCKET_IFNAME", "virtual"),
        ({"NCCL_SOCKET_IFNAME": "^eno", "NCCL_SOCKET_FAMILY": "AF_INET6"}, "NCCL_SOCKET_IFNAME", "bond"),
        ({"NCCL_SOCKET_IFNAME": "^eno,bond,lo"}, "NCCL_SOCKET_IFNAME", None),
    ],
)
def test_choice_of_nccl_tells_the_first_interface(
    copy_of: Callable[[str], Node], environ: Dict[str, str], by: str, kind: Optional[str]
) -> None:
    """The bootstrap takes the first; `^eno` alone takes the loopback, but for its IPv6 address."""
    answer = copy_of("healthy-h100").read(**{"NCCL_SOCKET_IFNAME": "", **environ})
    found = answer.facts["selection"]["NCCL_SOCKET_IFNAME"]
    assert (by, kind) == (found["by"], found["first"] and found["first"]["kind"])


def test_choice_of_nccl_begins_with_ib(copy_of: Callable[[str], Node]) -> None:
    """One node whose ib0 has an address goes another way than its twin."""
    node = copy_of("twin-a")
    node.tell(addresses={"ib0": ["10.50.0.2/16"]})
    found = node.read(NCCL_SOCKET_IFNAME="").facts["selection"]["NCCL_SOCKET_IFNAME"]
    assert ("ib", "infiniband") == (found["by"], found["first"]["kind"])


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (
            {"NCCL_IB_HCA": "=mlx5_0,mlx5_9"},
            {"matched": 1, "models": {"MT4129 InfiniBand": 1}, "named": ["mlx5_0"], "idle": ["mlx5_9"]},
        ),
        (
            {"NCCL_IB_HCA": "mlx5_"},
            {
                "matched": 9,
                "models": {"MT4129 InfiniBand": 8, "MT4125 Ethernet": 1},
                "named": [],
                "idle": [],
            },
        ),
        ({"NCCL_IB_HCA": "^mlx5_bond"}, {"matched": 8, "models": {"MT4129 InfiniBand": 8}}),
        (
            {"NCCL_IB_DISABLE": "1"},
            {"matched": 0, "models": {}, "disabled": True, "named": [], "idle": []},
        ),
        (
            {"NCCL_IB_HCA": "irdma"},
            {"matched": 0, "models": {}, "named": [], "idle": ["irdma"]},
        ),
    ],
)
def test_hca_variable_tells_what_it_takes(
    copy_of: Callable[[str], Node], environ: Dict[str, str], told: Dict[str, object]
) -> None:
    """By model and link layer; names where the variable, or /etc/nccl.conf, says them."""
    assert told == copy_of("healthy-h100").read(**environ).facts["selection"]["NCCL_IB_HCA"]


def test_roce_gid_follows_the_cards_that_are_taken(copy_of: Callable[[str], Node]) -> None:
    """Without the Ethernet bond there is no RoCE, and so no GID to tell of."""
    selection = copy_of("healthy-h100").read(NCCL_IB_HCA="^mlx5_bond").facts["selection"]
    assert "roce_gid" not in selection


@pytest.mark.parametrize(
    ("files", "environ", "gid"),
    [
        (
            {"gids/3": "0000:0000:0000:0000:0000:ffff:c000:0209"},
            {},
            {"3": {"address": False}},
        ),
        ({"gid_attrs/types/3": "IB/RoCE v1"}, {}, {"3": {"roce": 1}}),
        (
            {"gids/3": "fd00:0000:0000:0000:0000:0000:0000:0009"},
            {},
            {"3": {"address": False, "family": "ipv6"}},
        ),
    ],
)
def test_roce_gid_that_deviates_on_one_rail_is_one_difference(
    copy_of: Callable[[str], Node], files: Dict[str, str], environ: Dict[str, str], gid: Dict[str, Any]
) -> None:
    """No address behind it, RoCE v1, another family: the GID 3 of one card of eight."""
    node = copy_of("roce-h100")
    for path, text in files.items():
        node.write(f"sys/class/infiniband/mlx5_3/ports/1/{path}", text)
    assert gid == node.read(**environ).facts["selection"]["roce_gid"]["devices"]


def test_variables_of_other_libraries_take_whole_names(copy_of: Callable[[str], Node]) -> None:
    """Gloo a list, TensorPipe one name, UCX patterns of cards with their port."""
    answer = copy_of("roce-h100").read(
        GLOO_SOCKET_IFNAME="eth0,rdma",
        TP_SOCKET_IFNAME="eth0,rdma0",
        UCX_NET_DEVICES="mlx5_[01]:1,eth0,x",
    )
    selection = answer.facts["selection"]
    assert (1, ["rdma"]) == tuple(selection["GLOO_SOCKET_IFNAME"][key] for key in ("matched", "idle"))
    assert (0, ["eth0,rdma0"]) == tuple(selection["TP_SOCKET_IFNAME"][key] for key in ("matched", "idle"))
    assert {"matched": 3, "named": ["eth0"], "idle": ["x"]} == selection["UCX_NET_DEVICES"]


def test_roce_gid_at_another_index_is_no_difference(fake_node: FakeNode) -> None:
    """Where NCCL chooses, the index follows the order in which addresses came; it is a note."""
    first, second = network.read(fake_node("twin-a")), network.read(fake_node("twin-b"))
    assert first.facts["selection"]["roce_gid"] == second.facts["selection"]["roce_gid"]
    assert [3, 5] == [
        answer.notes["selection"]["roce_gid"]["mlx5_bond_0:1"]["index"] for answer in (first, second)
    ]


# What is not there, may not be seen, or lies


def test_node_with_nothing_but_the_loopback_has_no_network(make_node: MakeNode) -> None:
    """That was seen: the section is absent."""
    answer = network.read(make_node({f"/{NET}/lo/mtu": "65536"}, addresses={"lo": ["127.0.0.1/8"]}))
    assert ("absent", {}) == (answer.status, answer.facts)


def test_node_without_sysfs_knows_nothing_and_is_not_partial(make_node: MakeNode) -> None:
    """Not seen is null, and the reason is a note."""
    answer = network.read(make_node({"/etc/hosts": ""}))
    assert ("ok", None, None) == (answer.status, answer.facts["interfaces"], answer.facts["hcas"])
    assert {"interfaces": "/sys/class/net is not there"} == answer.notes["not_examined"]


def test_node_whose_kernel_tells_no_address_has_no_prefix_and_no_socket(
    copy_of: Callable[[str], Node],
) -> None:
    """A sandbox without netlink: what needs addresses is unknown, never nothing."""
    node = copy_of("pod-a")
    node.tell(addresses=None)
    answer = node.read()
    assert "ok" == answer.status
    assert {} == answer.facts["selection"]
    assert ["addresses and prefix lengths"] == list(answer.notes["not_examined"])


def test_node_that_denies_its_cards_is_an_error(fake_node: FakeNode) -> None:
    """Whether there is a network is then unknown."""
    answer = network.read(fake_node("denied-and-hanging"))
    assert ("error", {}) == (answer.status, answer.facts)
    assert ["/sys/class/infiniband: Permission denied"] == answer.errors


def test_settings_file_that_may_not_be_read_makes_the_section_partial(make_node: MakeNode) -> None:
    """It may name an interface."""
    context = make_node({f"/{NET}/eth0/operstate": "up", "/etc/nccl.conf": ""}, denied=["/etc/nccl.conf"],
                        addresses={"eth0": ["10.0.0.1/24"]})  # fmt: skip
    answer = network.read(context)
    assert ("partial", ["/etc/nccl.conf: Permission denied"]) == (answer.status, answer.errors)


def test_garbled_node_gives_printable_words_and_no_paths(fake_node: FakeNode) -> None:
    """Control characters, numbers out of range, names that lead elsewhere: what can be told is told."""
    answer = network.read(fake_node("garbled"))
    row_of("network", network.SCHEMA, answer)
    assert "ok" == answer.status
    assert {"unknown": {"count": 1, "each": {"prefixes": "ipv4/24"}, "devices": {}}} == answer.facts[
        "interfaces"
    ]["physical"]
    text = json.dumps([answer.facts, answer.notes], ensure_ascii=False)
    assert text.isprintable()
    assert "passwd" not in text
    assert answer.facts["ofed"] is None


@pytest.mark.parametrize("value", ["^", ",,,", "eth 0,\udcff", "=" * 5000, ":" * 99, "ib0," * 3000, "\u0663"])
def test_variables_of_any_text_are_answered(copy_of: Callable[[str], Node], value: str) -> None:
    """Whatever somebody exported."""
    names = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES",
             "NCCL_IB_GID_INDEX", "NCCL_COMM_ID", "NCCL_IB_ADDR_RANGE")  # fmt: skip
    answer = copy_of("healthy-h100").read(**dict.fromkeys(names, value))
    assert "ok" == answer.status
    assert len(json.dumps(answer.facts)) < 20_000
