"""Recorded networks: trees of sysfs, `ip -json`, ibstat, laid out as a node's /sys and read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Mapping

import pytest

from envaudit.diff import compare
from envaudit.model import Fingerprint, Section
from envaudit.probe import infiniband
from envaudit.probe.context import Answer, Context
from envaudit.probe.sections import network

pytestmark = pytest.mark.corpus

LEARNED = {
    "cards": 8,
    "ports": 8,
    "active": 8,
    "each": {"board": "board_id", "firmware": "20.31.2354", "rate": "200 Gb/sec (4X HDR)"},
    "devices": {},
}


class Tree:
    """A root folder that a sample is laid out in."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, path: str, text: str) -> None:
        """One file."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def files(self, files: Mapping[str, str]) -> None:
        """Path → text; what stands below a PCI device is linked from its class, as the kernel does."""
        for path, text in files.items():
            self.put(path, text)
            match = re.fullmatch(r"(/sys/bus/pci/devices/([^/]+)/(infiniband|net)/([^/]+))/.*", path)
            if match:
                folder, device, subject, name = match.groups()
                entry = self.root / "sys/class" / subject / name
                entry.parent.mkdir(parents=True, exist_ok=True)
                if not entry.is_symlink():
                    entry.symlink_to(f"../../..{folder}")
                    (self.root / folder.lstrip("/") / "device").symlink_to(f"../../../{device}")

    def context(self, environ: Mapping[str, str] | None = None, **node: object) -> Context:
        """The node that the tree stands for."""
        root = str(self.root)
        return Context(root=root, environ=environ or {}, workdir="/", launch="ssh", interpreter={}, node=node)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty root folder."""
    return Tree(tmp_path / "root")


def sample(corpus: Path, name: str) -> Any:
    """One of the JSON samples."""
    return json.loads((corpus / "samples/sysfs_json" / name).read_text(encoding="utf-8"))


def drifts(one: Answer, other: Answer) -> list[str]:
    """The paths at which two nodes differ."""
    return [
        drift.path
        for drift in compare(
            [
                Fingerprint(
                    name,
                    "probe",
                    "2026-11-30T10:00:00Z",
                    "1",
                    {"network": Section("network", 1, answer.status, answer.facts)},
                )
                for name, answer in (("node1", one), ("node2", other))
            ]
        )
    ]


# InfiniBand nodes of one site: what was learned as good, and what its checks are to find


def learned(corpus: Path, folder: Path, name: str, environ: Mapping[str, str] | None = None) -> Answer:
    """The section's answer from one of the recorded trees of /sys."""
    tree = Tree(folder / name)
    tree.files(sample(corpus, name))
    return network.read(tree.context(environ, addresses={}))


def test_good_node_has_eight_cards_alike(corpus: Path, tmp_path: Path) -> None:
    """200 Gb/sec, one firmware, eight interfaces of IP over InfiniBand; placeholders stay what they are."""
    answer = learned(corpus, tmp_path, "gcm-learn_good.json")
    assert "ok" == answer.status
    assert {"hca_type InfiniBand": LEARNED} == answer.facts["hcas"]
    each = {"mtu": 2044, "prefixes": "", "speed_mbps": 200000}
    assert {"infiniband": {"unknown": {"count": 8, "each": each, "devices": {}}}} == answer.facts[
        "interfaces"
    ]
    places = {row["name"]: row["bus_id"] for row in answer.notes["hcas"]["hca_type InfiniBand"].values()}
    assert ("0000:0c:00.0", "0000:cc:00.0") == (places["mlx5_0:1"], places["mlx5_9:1"])


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        (
            "gcm-learn_ib_intf_bad_rate.json",
            [
                "network/hcas/hca_type InfiniBand/each/firmware",
                "network/hcas/hca_type InfiniBand/each/rate",
            ],
        ),
        (
            "gcm-learn_ib_intf_operstate_down.json",
            [
                "network/hcas/hca_type InfiniBand/each/firmware",
                "network/interfaces/infiniband/unknown/count",
            ],
        ),
        ("gcm-learn_ib_misbound_if.json", ["network/hcas/hca_type InfiniBand/each/firmware"]),
    ],
)
def test_bad_node_differs_where_it_is_bad(corpus: Path, tmp_path: Path, name: str, paths: list[str]) -> None:
    """All at half the rate; one without a carrier; other names. Firmware is a placeholder there."""
    good = learned(corpus, tmp_path, "gcm-learn_good.json")
    assert paths == drifts(good, learned(corpus, tmp_path, name))


def test_misbound_names_matter_where_a_variable_says_them(corpus: Path, tmp_path: Path) -> None:
    """mlx5_2 has become mlx5_12: =mlx5_2 finds nothing there."""
    manifest = sample(corpus, "gcm-DGX_A100.json")["ib"]
    names = [interface["mlx"] for interface in manifest["interfaces"].values()]
    environ = {"NCCL_IB_HCA": "=" + ",".join(names)}
    good, misbound = (
        learned(corpus, tmp_path, name, environ).facts["selection"]["NCCL_IB_HCA"]
        for name in ("gcm-learn_good.json", "gcm-learn_ib_misbound_if.json")
    )
    models = "hca_type InfiniBand"
    assert {"matched": 8, "models": {models: 8}, "named": sorted(names), "idle": []} == good
    assert (7, ["mlx5_2"]) == (misbound["matched"], misbound["idle"])


def test_manifest_of_the_site_is_what_the_good_nodes_say(corpus: Path, tmp_path: Path) -> None:
    """Rate, firmware, speeds and MTUs that the site expects of its nodes."""
    manifest = sample(corpus, "gcm-DGX_A100.json")
    answer = learned(corpus, tmp_path, "gcm-learn_good.json")
    each = answer.facts["hcas"]["hca_type InfiniBand"]["each"]
    assert (manifest["ib"]["link_rate"], manifest["ib"]["firmware_version"]) == (
        each["rate"],
        [each["firmware"]],
    )
    expected = manifest["eth"]
    interfaces = ethernet(corpus, tmp_path / "eth", "gcm-eth_learn_good.json").facts["interfaces"]
    (physical,), (bond,) = interfaces["physical"].values(), interfaces["bond"].values()
    for port in ("PCIE_4", "PCIE_5"):
        assert expected[port]["speed"] == physical["each"]["speed_mbps"]
        assert expected[port]["mtu"] == physical["each"]["mtu"]
    assert (expected["front0"]["speed"], expected["front0"]["mtu"]) == (
        bond["each"]["speed_mbps"],
        bond["each"]["mtu"],
    )


# Ethernet nodes of the same site, as `ip -json addr` tells them

SCOPES = {"inet": "10.0.0.1", "inet6 global": "fd00::1", "inet6 link": "fe80::1"}


def ethernet(corpus: Path, folder: Path, name: str) -> Answer:
    """The section's answer from `ip -json` and the speeds beside it, laid out as /sys/class/net."""
    told = sample(corpus, name)
    tree = Tree(folder)
    addresses: dict[str, list[str]] = {}
    for row in told["intf_status"]:
        place = f"/sys/class/net/{row['ifname']}"
        flags = row["flags"]
        tree.put(f"{place}/ifindex", str(row["ifindex"]))
        tree.put(f"{place}/mtu", str(row["mtu"]))
        tree.put(f"{place}/operstate", row["operstate"].lower())
        tree.put(f"{place}/speed", told["link_speed"].get(row["ifname"], "-1"))
        tree.put(f"{place}/type", {"infiniband": "32", "loopback": "772"}.get(row["link_type"], "1"))
        if "main" in row:
            tree.put(f"{place}/master", "")
            tree.put(f"{place}/bonding_slave/mii_status", "up")
        if "MASTER" in flags:
            tree.put(f"{place}/uevent", "DEVTYPE=bond\n")
            members = [one["ifname"] for one in told["intf_status"] if one.get("main") == row["ifname"]]
            tree.put(f"{place}/bonding/slaves", " ".join(members))
            for member in members:
                tree.put(f"{place}/lower_{member}", "")
        elif "LOOPBACK" not in flags:
            tree.put(f"{place}/device/vendor", "0x15b3")
        for info in row["addr_info"]:
            family = info["family"] if info["family"] == "inet" else f"inet6 {info['scope']}"
            address = "::1" if family == "inet6 host" else SCOPES[family]
            addresses.setdefault(row["ifname"], []).append(f"{address}/{info['prefixlen']}")
    return network.read(tree.context(addresses=addresses))


def test_good_ethernet_node_has_a_bond_of_two(corpus: Path, tmp_path: Path) -> None:
    """Two ports of 200 Gb/s under one bond with a /27 and a /64; its link-local address does not count."""
    facts = ethernet(corpus, tmp_path, "gcm-eth_learn_good.json").facts
    assert {
        "physical": {
            "unknown": {
                "count": 2,
                "each": {"mtu": 9192, "prefixes": "", "speed_mbps": 200000},
                "devices": {},
            }
        },
        "bond": {
            "unknown": {
                "count": 1,
                "each": {
                    "members": 2,
                    "members_up": 2,
                    "mtu": 9192,
                    "prefixes": "ipv4/27 ipv6/64",
                    "speed_mbps": 400000,
                },
                "devices": {},
            }
        },
    } == facts["interfaces"]
    assert ("other", "bond") == (
        facts["selection"]["NCCL_SOCKET_IFNAME"]["by"],
        facts["selection"]["NCCL_SOCKET_IFNAME"]["first"]["kind"],
    )


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        (
            "gcm-eth_learn_mtu_bad.json",
            [
                "network/interfaces/bond/unknown/each/mtu",
                "network/interfaces/physical/unknown/each/mtu",
            ],
        ),
        (
            "gcm-eth_learn_down_intf.json",
            [
                "network/interfaces/bond/unknown/each/members",
                "network/interfaces/bond/unknown/each/members_up",
                "network/interfaces/physical/unknown/count",
            ],
        ),
    ],
)
def test_bad_ethernet_node_differs_where_it_is_bad(
    corpus: Path, tmp_path: Path, name: str, paths: list[str]
) -> None:
    """An MTU of 1500, and a port that has left its bond; unused ports and idle ib interfaces do not count."""
    good = ethernet(corpus, tmp_path / "good", "gcm-eth_learn_good.json")
    assert paths == drifts(good, ethernet(corpus, tmp_path / "bad", name))


# A node with eight InfiniBand cards and a bond of a BlueField, and texts of ibstat


def test_bond_beside_eight_cards_is_a_group_of_its_own(corpus: Path, tree: Tree) -> None:
    """Nine HCAs: eight of NDR, and an Ethernet bond at half of that which is no outlier of them."""
    tree.files(sample(corpus, "gpud-h100-9hca-sys-class-infiniband.json"))
    answer = network.read(tree.context(addresses={}))
    hcas = answer.facts["hcas"]
    assert {
        "cards": 8,
        "ports": 8,
        "active": 8,
        "each": {"board": "MT_0000000838", "firmware": "28.41.1000", "rate": "400 Gb/sec (4X NDR)"},
        "devices": {},
    } == hcas["MT4129 InfiniBand"]
    assert (1, "200 Gb/sec (2X NDR)") == (
        hcas["MT41692 Ethernet"]["active"],
        hcas["MT41692 Ethernet"]["each"]["rate"],
    )
    downed = {
        row["name"]: row.get("link_downed") for row in answer.notes["hcas"]["MT4129 InfiniBand"].values()
    }
    assert (255, None) == (downed["mlx5_1:1"], downed["mlx5_0:1"])


STATES = {"Active": "4: ACTIVE", "Down": "1: DOWN"}


def from_ibstat(tree: Tree, text: str) -> dict[str, Any]:
    """The groups of the ports of what ibstat printed, laid out as /sys/class/infiniband."""
    tree.put("/sys/class/infiniband/.keep", "")
    (tree.root / "sys/class/infiniband/.keep").unlink()
    card = place = ""
    for line in text.splitlines():
        key, _, value = line.strip().partition(":")
        value = value.strip()
        if match := re.match(r"CA '(\w+)'", key):
            card = place = f"/sys/class/infiniband/{match.group(1)}"
        elif match := re.fullmatch(r"Port (\d+)", key):
            place = f"{card}/ports/{match.group(1)}"
        elif key in ("CA type", "Firmware version"):
            tree.put(f"{card}/{'hca_type' if key == 'CA type' else 'fw_ver'}", value)
        elif key == "State":
            tree.put(f"{place}/state", STATES[value])
        elif key == "Physical state":
            tree.put(f"{place}/phys_state", f"0: {value}")
        elif key == "Rate":
            tree.put(f"{place}/rate", f"{value} Gb/sec")
        elif key == "Link layer":
            tree.put(f"{place}/link_layer", value)
    return infiniband.groups(infiniband.ports(tree.context()))


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        (
            "ibstat-cx4-two-ca-active.txt",
            {
                "MT4115 InfiniBand": (1, 1, {"firmware": "12.26.4012", "rate": "100 Gb/sec"}, {}),
                # The text ends before the second card's link layer.
                "MT4115 unknown": (1, 1, {"firmware": "12.26.4012", "rate": "100 Gb/sec"}, {}),
            },
        ),
        (
            "ibstat-cx7-down-ethernet.txt",
            {"MT4129 Ethernet": (1, 0, {"firmware": "28.42.1000"}, {"0": {"state": "down, disabled"}})},
        ),
        (
            "ibstat-mlx4-port1-down-port2-up.txt",
            {
                "MT4099 InfiniBand": (1, 0, {"firmware": "2.42.5000"}, {"0": {"state": "down, polling"}}),
                "MT4099 unknown": (1, 1, {"firmware": "2.42.5000", "rate": "56 Gb/sec"}, {}),
            },
        ),
        (
            "ibstat-roce-cx6dx.txt",
            {"MT4125 Ethernet": (2, 2, {"firmware": "22.38.1900", "rate": "100 Gb/sec"}, {})},
        ),
        ("superbench-ibstat.txt", {}),
    ],
)
def test_cards_that_ibstat_printed_are_grouped(
    corpus: Path, tree: Tree, name: str, groups: dict[str, tuple[int, int, object, object]]
) -> None:
    """Two cards alike, a port that is down and says the slowest rate, RoCE, and no text of ibstat."""
    text = (corpus / "samples/ib" / name).read_text(encoding="utf-8")
    assert groups == {
        group: (told["ports"], told["active"], told["each"], told["devices"])
        for group, told in from_ibstat(tree, text).items()
    }


def test_link_that_ethtool_printed_is_read_from_sysfs(corpus: Path, tree: Tree) -> None:
    """1000Mb/s with a carrier is what /sys/class/net says without ethtool."""
    text = (corpus / "samples/net/jc-ethtool-1.txt").read_text(encoding="utf-8")
    name = text.partition("Settings for ")[2].partition(":")[0]
    place = f"/sys/class/net/{name}"
    speed = re.search(r"Speed: (\d+)Mb/s", text)
    assert speed is not None
    tree.put(f"{place}/speed", speed.group(1))
    tree.put(f"{place}/operstate", "up" if "Link detected: yes" in text else "down")
    tree.put(f"{place}/device/vendor", "0x8086")
    answer = network.read(tree.context(addresses={name: ["10.0.2.15/24"]}))
    (physical,) = answer.facts["interfaces"]["physical"].values()
    assert (1, {"prefixes": "ipv4/24", "speed_mbps": 1000}) == (physical["count"], physical["each"])
