"""Ports of HCAs as sysfs shows them, and the GID that NCCL speaks with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envaudit.probe import gids, infiniband
from envaudit.probe.context import Context
from envaudit.probe.gids import Gid, Wish

FakeNode = Callable[[str], Context]
MakeNode = Callable[..., Context]
CLASS = "/sys/class/infiniband"
IPV4 = "0000:0000:0000:0000:0000:ffff:0a1f:0009"
OTHER_IPV4 = "0000:0000:0000:0000:0000:ffff:ac10:0009"
IPV6 = "fd00:0000:0000:0000:0000:0000:0000:0009"
LINK_LOCAL = "fe80:0000:0000:0000:0009:00ff:fe00:0100"
EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"


@pytest.fixture
def h100(node_folder: Callable[[str], str], tmp_path: Path) -> Path:
    """A copy of the healthy H100 node, to be changed."""
    return Path(shutil.copytree(node_folder("healthy-h100"), tmp_path / "node", symlinks=True))


def groups_of(folder: Path) -> Dict[str, Dict[str, Any]]:
    """The folded ports of a fake node."""
    return infiniband.groups(infiniband.ports(Context.of_fixture(str(folder))))


def test_ports_that_are_alike_take_one_row_per_model_and_link_layer(fake_node: FakeNode) -> None:
    """Eight InfiniBand cards, and the Ethernet bond beside them in a group of its own."""
    assert {
        "MT4129 InfiniBand": {
            "cards": 8,
            "ports": 8,
            "active": 8,
            "each": {
                "board": "MT_0000000838",
                "driver": "mlx5_core",
                "firmware": "28.39.2048",
                "rate": "400 Gb/sec (4X NDR)",
            },
            "devices": {},
        },
        "MT4125 Ethernet": {
            "cards": 1,
            "ports": 1,
            "active": 1,
            "each": {
                "active_mtu": 4096,
                "board": "MT_0000000359",
                "driver": "mlx5_core",
                "firmware": "22.39.2048",
                "rate": "100 Gb/sec (4X EDR)",
            },
            "devices": {},
        },
    } == infiniband.groups(infiniband.ports(fake_node("healthy-h100")))


def test_ports_stand_in_the_order_of_the_bus(make_node: MakeNode) -> None:
    """A card's name says nothing of its place: mlx5_10 may be the first."""
    context = make_node(
        {
            **{f"{CLASS}/{name}/ports/1/state": "4: ACTIVE\n" for name in ("mlx5_0", "mlx5_2", "mlx5_10")},
            **{f"/sys/bus/{bus}/vendor": "0x15b3\n" for bus in ("0000:1a:00.0", "0000:0a:00.0")},
        }
    )
    for name, bus in (("mlx5_0", "0000:1a:00.0"), ("mlx5_10", "0000:0a:00.0")):
        Path(context.real(f"{CLASS}/{name}/device")).symlink_to(f"../../../bus/{bus}")
    assert ["mlx5_10", "mlx5_0", "mlx5_2"] == [port.hca for port in infiniband.ports(context)]


@pytest.mark.parametrize(
    ("files", "devices"),
    [
        ({"ports/1/rate": "200 Gb/sec (2X NDR)"}, {"3": {"rate": "200 Gb/sec (2X NDR)"}}),
        ({"fw_ver": "28.36.1010"}, {"3": {"firmware": "28.36.1010"}}),
        (
            {"ports/1/state": "1: DOWN", "ports/1/phys_state": "3: Disabled", "ports/1/rate": "10 Gb/sec"},
            {"3": {"state": "down, disabled"}},
        ),
        (
            {"ports/1/state": "2: INIT", "ports/1/phys_state": "5: LinkUp"},
            {"3": {"state": "init, linkup"}},
        ),
    ],
)
def test_port_that_deviates_is_one_difference(
    h100: Path, files: Dict[str, str], devices: Dict[str, Any]
) -> None:
    """Half the rate, other firmware, down or without a subnet manager: said by its place on the bus."""
    for file, text in files.items():
        (h100 / "root" / CLASS[1:] / "mlx5_3" / file).write_text(text + "\n")
    group = groups_of(h100)["MT4129 InfiniBand"]
    assert devices == group["devices"]
    assert 8 - ("state" in devices["3"]) == group["active"]
    assert "400 Gb/sec (4X NDR)" == group["each"]["rate"]


def test_port_with_another_link_layer_leaves_its_group(h100: Path) -> None:
    """A card switched to Ethernet is seven of InfiniBand and one of Ethernet."""
    (h100 / "root" / CLASS[1:] / "mlx5_3/ports/1/link_layer").write_text("Ethernet\n")
    groups = groups_of(h100)
    assert (7, 1) == (groups["MT4129 InfiniBand"]["ports"], groups["MT4129 Ethernet"]["ports"])


def test_virtual_functions_count_only_where_there_is_nothing_else(make_node: MakeNode) -> None:
    """A host makes them for its pods; a pod has no other card."""
    files = {
        f"{CLASS}/mlx5_0/ports/1/state": "4: ACTIVE",
        f"{CLASS}/mlx5_8/ports/1/state": "4: ACTIVE",
        f"{CLASS}/mlx5_8/device/physfn/vendor": "0x15b3",
    }
    context = make_node(files)
    assert ["mlx5_0"] == [port.hca for port in infiniband.ports(context)]
    shutil.rmtree(context.real(f"{CLASS}/mlx5_0"))
    assert ["mlx5_8"] == [port.hca for port in infiniband.ports(context)]


def test_card_with_two_ports_has_each_with_its_own_interface(make_node: MakeNode) -> None:
    """An Ethernet port's MTU is that of the interface with its dev_port."""
    files = {}
    for number, mtu in ((1, 9000), (2, 1500)):
        files[f"{CLASS}/mlx4_0/ports/{number}/state"] = "4: ACTIVE"
        files[f"{CLASS}/mlx4_0/ports/{number}/link_layer"] = "Ethernet"
        files[f"{CLASS}/mlx4_0/device/net/en{number}/mtu"] = str(mtu)
        files[f"/sys/class/net/en{number}/mtu"] = str(mtu)
        files[f"/sys/class/net/en{number}/dev_port"] = str(number - 1)
    ports = infiniband.ports(make_node(files))
    assert [("en1", 4096), ("en2", 1024)] == [(port.netdev, port.facts["active_mtu"]) for port in ports]
    assert {"cards": 1, "ports": 2, "active": 2} == {
        key: value
        for key, value in infiniband.groups(ports)["unknown Ethernet"].items()
        if key in ("cards", "ports", "active")
    }


def test_no_class_of_infiniband_is_no_port(make_node: MakeNode) -> None:
    """Most nodes have none; that it may not be looked at is another matter."""
    assert [] == infiniband.ports(make_node({"/sys/class/net/lo/mtu": "65536"}))
    with pytest.raises(PermissionError):
        infiniband.ports(make_node({}, denied=["/sys"]))


@pytest.mark.parametrize(
    ("mtu", "active"), [(9000, 4096), (4192, 4096), (4191, 2048), (1500, 1024), (300, 0), (None, None)]
)
def test_roce_mtu_is_what_the_kernel_derives(mtu: Optional[int], active: Optional[int]) -> None:
    """The largest InfiniBand MTU that fits with 96 bytes of headers."""
    assert active == infiniband.roce_mtu(mtu)


# GIDs


def table(*rows: str) -> List[Gid]:
    """A table from `v1 GID` and `v2 GID`; an empty place has no version."""
    found = []
    for place, row in enumerate(rows):
        version, _, text = row.rpartition(" ")
        raw = bytes.fromhex(text.replace(":", ""))
        found.append(Gid(place, raw, int(version[1:]) if version else None))
    return found


FULL = table(f"v1 {LINK_LOCAL}", f"v2 {LINK_LOCAL}", f"v1 {IPV4}", f"v2 {IPV4}", f"v1 {IPV6}", f"v2 {IPV6}")


@pytest.mark.parametrize(
    ("gids_there", "settings", "place"),
    [
        (FULL, {}, 3),
        (FULL, {"NCCL_IB_ROCE_VERSION_NUM": "1"}, 2),
        (FULL, {"NCCL_IB_ADDR_FAMILY": "AF_INET6"}, 5),
        (FULL, {"NCCL_IB_ADDR_FAMILY": "AF_INET6", "NCCL_IB_ROCE_VERSION_NUM": "1"}, 4),
        (FULL[:2], {}, 0),
        (table(f"v1 {IPV4}", f"v2 {IPV4}"), {}, 1),
        (table(f"v2 {IPV4}", f"v2 {OTHER_IPV4}"), {}, 0),
        (
            table(f"v1 {LINK_LOCAL}", f"v2 {IPV4}", f"v2 {OTHER_IPV4}"),
            {"NCCL_IB_ADDR_RANGE": "172.16.0.0/12"},
            2,
        ),
        (FULL, {"NCCL_IB_ADDR_RANGE": "192.0.2.0/24"}, 0),
        (FULL, {"NCCL_IB_ADDR_RANGE": "no network"}, 3),
        (FULL, {"NCCL_IB_ADDR_RANGE": "10.31.0.0/33"}, 3),
        (
            table(f"v1 {LINK_LOCAL}", f"v2 {IPV6}"),
            {"NCCL_IB_ADDR_FAMILY": "AF_INET6", "NCCL_IB_ADDR_RANGE": "fd00::/8"},
            1,
        ),
        (table(EMPTY, EMPTY, f"v2 {IPV4}"), {}, 2),
    ],
)
def test_gid_is_chosen_as_nccl_chooses(gids_there: List[Gid], settings: Dict[str, str], place: int) -> None:
    """IPv4 and RoCE v2 before all, or what the settings ask for; the first where nothing fits."""
    chosen = gids.choose(gids_there, Wish.of(settings))
    assert chosen is not None
    assert place == chosen.place


def test_gid_of_the_variable_is_taken_whatever_it_is(fake_node: FakeNode) -> None:
    """NCCL_IB_GID_INDEX=1 is a link-local one of RoCE v2, 9 an empty place, 99 none."""
    context = fake_node("roce-h100")
    port = infiniband.ports(context)[0]
    told = {}
    for index in (0, 1, 3, 9, 99):
        gid = gids.used(context, port, Wish.of({"NCCL_IB_GID_INDEX": str(index)}))
        told[index] = gid and (gid.roce, gid.family, gid.address)
    assert {
        0: (1, "ipv6", "fe80::9:ff:fe00:100"),
        1: (2, "ipv6", "fe80::9:ff:fe00:100"),
        3: (2, "ipv4", "10.31.0.9"),
        9: (None, None, "::"),
        99: None,
    } == told


def test_gid_behind_a_gap_is_found_and_a_long_gap_ends_the_search(make_node: MakeNode) -> None:
    """The kernel fills the lowest free place, so a table is dense."""
    port_files = {f"{CLASS}/mlx5_0/ports/1/{name}": text for name, text in {"state": "4: ACTIVE"}.items()}
    rows = [LINK_LOCAL, EMPTY, EMPTY, IPV4, *[EMPTY] * 20, IPV6]
    files = {f"{CLASS}/mlx5_0/ports/1/gids/{place}": text for place, text in enumerate(rows)}
    types = {f"{CLASS}/mlx5_0/ports/1/gid_attrs/types/{place}": "RoCE v2\n" for place in (0, 3, 24)}
    context = make_node({**port_files, **files, **types})
    (port,) = infiniband.ports(context)
    found = gids.table(context, port)
    assert (2, "ipv4") == (found[3].roce, found[3].family)
    assert 24 not in found
    chosen = gids.used(context, port, Wish.of({}))
    assert chosen is not None
    assert 3 == chosen.place


KNOWN = [bytes.fromhex(text.replace(":", "")) for text in (IPV4, OTHER_IPV4, IPV6, LINK_LOCAL, EMPTY)]
raws = st.one_of(st.sampled_from(KNOWN), st.binary(min_size=16, max_size=16))
tables = st.lists(st.tuples(raws, st.sampled_from([None, 1, 2])), min_size=1, max_size=24).map(
    lambda rows: [Gid(place, raw, version) for place, (raw, version) in enumerate(rows)]
)


@given(gids_there=tables)
def test_gid_with_an_ipv4_address_over_roce_2_is_never_passed_over(gids_there: List[Gid]) -> None:
    """Where the table has what NCCL wants by default, that is what is taken."""
    chosen = gids.choose(gids_there, Wish.of({}))
    wanted = [gid for gid in gids_there[1:] if (gid.roce, gid.family) == (2, "ipv4")]
    assert chosen in gids_there
    if wanted:
        assert chosen is not None
        assert (2, "ipv4") == (chosen.roce, chosen.family)


SETTINGS = ["NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ROCE_VERSION_NUM"]
VALUES = st.sampled_from(["AF_INET6", "::/0", "0.0.0.0/0", "::/128", "1.2.3.4/-1", "-7", "0x3"])


@given(
    settings=st.dictionaries(st.sampled_from(SETTINGS), st.one_of(VALUES, st.text(max_size=20))),
    gids_there=tables,
)
def test_gid_under_any_settings_is_one_of_the_table(settings: Dict[str, str], gids_there: List[Gid]) -> None:
    """Whatever the variables say, nothing is raised and one of the places is taken."""
    assert gids.choose(gids_there, Wish.of(settings)) in gids_there
