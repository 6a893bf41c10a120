"""How near GPUs and NICs are, on PCI buses of many shapes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Tuple

import pytest

from envaudit.probe import pcitree
from envaudit.probe.context import Answer, Context
from envaudit.probe.pcitree import Device, link_class
from envaudit.probe.runner import probe
from envaudit.probe.sections import topology
from tests.probe.pcibus import AMD, NVIDIA, PciBus, acs_of

MakeNode = Callable[..., Context]

# One board with four switches, each with two GPUs and an HCA on it, two to a processor; the switches
# of a processor hang on host bridges of their own. Each host bridge and its NUMA node:
_SWITCHES = (("15", 0), ("37", 0), ("97", 1), ("b7", 1))
_OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (x@y)\n"
_CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Mar  5 22:23:56 UTC 2024\n"


def below(host: str, port: str, device: str) -> str:
    """The way to a device on a downstream port of the switch on a host bridge."""
    bus = int(host, 16)
    return f"pci0000:{host}/0000:{host}:01.0/0000:{bus + 1:02x}:00.0/0000:{bus + 2:02x}:{port}.0/{device}"


def board(context: Context, shift: int = 0, group: int | None = None) -> PciBus:
    """A node with eight GPUs and four HCAs; `shift` numbers its buses otherwise."""
    bus = PciBus(context.root)
    for number, (host, numa) in enumerate(_SWITCHES):
        host = f"{int(host, 16) + shift:02x}"
        first = int(host, 16) + 3
        bus.add(below(host, "00", f"0000:{first:02x}:00.0"), NVIDIA, numa=numa, group=group)
        bus.add(below(host, "01", f"0000:{first + 1:02x}:00.0"), NVIDIA, numa=numa, group=group)
        bus.hca(f"mlx5_{number}", below(host, "02", f"0000:{first + 2:02x}:00.0"), numa=numa, group=group)
    return bus


def read(context: Context) -> Answer:
    """The section, with statuses that must hold."""
    answer = topology.read(context)
    assert () == tuple(answer.errors)
    return answer


def test_board_with_switches_is_told_as_its_vendor_would(make_node: MakeNode) -> None:
    """Within a switch PIX, within a processor NODE, beyond SYS."""
    context = make_node()
    board(context)
    rows = read(context).facts["gpus"]
    assert {"numa": 0, "gpus": "X PIX NODE NODE SYS SYS SYS SYS", "nics": "PIX NODE SYS SYS"} == rows[0]
    assert {"numa": 1, "gpus": "SYS SYS SYS SYS NODE NODE PIX X", "nics": "SYS SYS NODE PIX"} == rows[7]
    assert [{"kind": "hca", "numa": numa, "pcie": "x16 32 GT/s"} for numa in (0, 0, 1, 1)] == read(
        context
    ).facts["nics"]


def test_board_whose_buses_are_numbered_otherwise_has_equal_facts(
    make_node: MakeNode, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bus numbers follow from what else is plugged in: they are notes."""
    one = make_node()
    other = Context(
        root=str(tmp_path_factory.mktemp("other")), environ={}, workdir="/", launch="ssh", interpreter={}
    )
    board(one)
    board(other, shift=8)
    assert read(one).facts == read(other).facts
    assert read(one).notes["gpus"] != read(other).notes["gpus"]


def test_one_gpu_in_another_slot_is_one_fact(
    make_node: MakeNode, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All links of a node are one list: what deviates is one difference."""
    facts = []
    for third in ("02", "03"):
        context = Context(
            root=str(tmp_path_factory.mktemp("n")), environ={}, workdir="/", launch="ssh", interpreter={}
        )
        bus = PciBus(context.root)
        bus.add(below("15", "00", "0000:20:00.0"), NVIDIA)
        bus.hca("mlx5_0", below("15" if third == "02" else "37", third, "0000:40:00.0"))
        facts.append(read(context).facts)
    assert ["gpus"] == [name for name in facts[0] if facts[0][name] != facts[1][name]]
    assert ("PIX", "NODE") == (facts[0]["gpus"][0]["nics"], facts[1]["gpus"][0]["nics"])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # Two levels of switches below one root port.
        (
            ("pci0:0", "r", "up", "d0", "up0", "e0"),
            ("pci0:0", "r", "up", "d1", "up1", "e1"),
            "PXB",
        ),
        # A device on the upper switch, the other on one below it.
        (("pci0:0", "r", "up", "d0"), ("pci0:0", "r", "up", "d1", "up1", "e1"), "PXB"),
        (("pci0:0", "r", "up", "d0"), ("pci0:0", "r", "up", "d1"), "PIX"),
        # Two functions of one adapter.
        (("pci0:0", "r"), ("pci0:0", "r"), "PIX"),
        # Two root ports of one host bridge.
        (("pci0:0", "r0"), ("pci0:0", "r1"), "PHB"),
        # A virtual machine: all on the host bridge itself.
        (("pci0:0",), ("pci0:0",), "PHB"),
        (("pci0:0", "r0"), ("pci0:1", "r0"), "NODE"),
    ],
)
def test_link_is_classed_by_what_lies_between(
    one: Tuple[str, ...], other: Tuple[str, ...], expected: str
) -> None:
    """From the host bridge down to the device; both ways alike."""
    devices = [Device(f"0000:0{number}:00.0", way[0], way[1:], 0) for number, way in enumerate((one, other))]
    assert [expected] * 2 == [link_class(*devices), link_class(*devices[::-1])]


@pytest.mark.parametrize(
    ("numas", "expected"), [((0, 1), "SYS"), ((1, None), "SYS"), ((None, None), "NODE"), ((1, 1), "NODE")]
)
def test_host_bridges_are_apart_by_their_numa_node(
    numas: Tuple[int | None, int | None], expected: str
) -> None:
    """A firmware that tells no node at all has one."""
    devices = [Device(f"000{n}:00:00.0", f"pci000{n}:00", (), numa) for n, numa in enumerate(numas)]
    assert expected == link_class(*devices)


def test_functions_of_one_adapter_on_the_host_bridge_are_near() -> None:
    """Both ports of an adapter, in a virtual machine."""
    ports = [Device(f"0000:00:05.{n}", "pci0000:00", (), 0) for n in (0, 1)]
    assert "PIX" == link_class(*ports)


def test_device_whose_tree_is_not_shown_has_unknown_links(make_node: MakeNode) -> None:
    """A sandbox that lists devices without their way down."""
    folder = "/sys/bus/pci/devices/0000:0{}:00.0"
    files = {f"{folder.format(n)}/{name}": text for n in (1, 2) for name, text in (("vendor", "0x10de"),)}
    files.update({f"{folder.format(n)}/class": "0x030200" for n in (1, 2)})
    facts = read(make_node(files)).facts
    assert (["X ?", "? X"], None) == ([row["gpus"] for row in facts["gpus"]], facts["acs"])


def test_host_bridge_below_another_keeps_the_first(make_node: MakeNode) -> None:
    """Intel's VMD opens a PCI domain of its own inside the tree, Hyper-V puts each device into one."""
    context = make_node()
    bus = PciBus(context.root)
    bus.add("pci0000:97/0000:97:00.5/pci10000:80/10000:80:02.0/10000:81:00.0", NVIDIA)
    device = pcitree.device(context, "10000:81:00.0")
    assert ("pci0000:97", ("0000:97:00.5", "10000:80:02.0")) == (device.host_bridge, device.bridges)


def test_gpus_are_those_of_two_vendors(make_node: MakeNode) -> None:
    """Not the console's chip, not NVIDIA's sound function or NVSwitch."""
    context = make_node()
    bus = PciBus(context.root)
    bus.add("pci0000:00/0000:00:01.0/0000:01:00.0", NVIDIA)
    bus.add("pci0000:00/0000:00:01.0/0000:01:00.1", ("0x10de", "0x040300"))
    bus.add("pci0000:00/0000:00:02.0/0000:02:00.0", ("0x10de", "0x068000"))
    bus.add("pci0000:00/0000:00:03.0/0000:03:00.0", ("0x1a03", "0x030000"))
    bus.add("pci0000:00/0000:00:04.0/0000:04:00.0", AMD)
    assert ["0000:01:00.0", "0000:04:00.0"] == read(context).notes["gpus"]


def test_ethernet_counts_where_no_hca_is(make_node: MakeNode) -> None:
    """A node whose fabric is plain Ethernet; virtual interfaces are none."""
    context = make_node({"/sys/class/net/lo/mtu": "65536"})
    bus = PciBus(context.root)
    bus.add("pci0000:00/0000:00:01.0/0000:01:00.0", NVIDIA)
    bus.ethernet("eth0", "pci0000:00/0000:00:02.0/0000:02:00.0")
    with_hca = read(context).facts["nics"], read(context).facts["gdr"]
    assert ([{"kind": "ethernet", "numa": 0, "pcie": "x16 32 GT/s"}], None) == with_hca
    bus.hca("mlx5_0", "pci0000:00/0000:00:03.0/0000:03:00.0")
    assert ["mlx5_0"] == [nic["name"] for nic in read(context).notes["nics"]]


def test_virtual_functions_are_no_nics_beside_their_physical_one(make_node: MakeNode) -> None:
    """How many a host has follows from who uses it; a guest that sees one alone has one."""
    context = make_node()
    bus = PciBus(context.root)
    bus.hca("mlx5_0", "pci0000:00/0000:00:03.0/0000:03:00.0")
    virtual = bus.hca("mlx5_1", "pci0000:00/0000:00:03.0/0000:03:00.2")
    assert 2 == len(read(context).facts["nics"])
    (Path(context.root) / f"sys/bus/pci/devices/{virtual}/physfn").symlink_to("../0000:03:00.0")
    assert ["mlx5_0"] == [nic["name"] for nic in read(context).notes["nics"]]


@pytest.mark.parametrize(
    ("width", "speed", "expected"),
    [
        ("16", "16 GT/s", "x16 16 GT/s"),
        ("16", "16.0 GT/s PCIe", "x16 16 GT/s"),
        ("8", "2.5 GT/s PCIe", "x8 2.5 GT/s"),
        ("0", "Unknown", None),
        ("63", "Unknown speed", None),
        ("", "32.0 GT/s PCIe", None),
        ("16\x00", "\udcff", None),
    ],
)
def test_link_of_a_nic_reads_alike_on_all_kernels(
    make_node: MakeNode, width: str, speed: str, expected: str | None
) -> None:
    """The unit is written in two ways; a virtual function has no link of its own."""
    folder = f"{pcitree.DEVICES}/0000:01:00.0"
    context = make_node({f"{folder}/current_link_width": width, f"{folder}/current_link_speed": speed})
    assert expected == pcitree.link_width(context, "0000:01:00.0")


@pytest.mark.parametrize(
    ("version", "kernel", "modules", "expected"),
    [
        (_OPEN.format("550.54.15"), "5.15.0-97-generic", (), "dmabuf"),
        (_OPEN.format("550.54.15"), "5.15.0", ("nvidia_peermem",), "dmabuf+peermem"),
        (_OPEN.format("550.54.15"), "5.4.0-150-generic", (), "none"),
        (_OPEN.format("510.47.03"), "6.8.0", (), "none"),
        (_CLOSED.format("550.54.15"), "6.8.0", (), "none"),
        (_CLOSED.format("470.57.02"), "5.4.0", ("nv_peer_mem",), "peermem"),
        (None, "6.8.0", (), None),
        (None, "6.8.0", ("nvidia_peermem",), "peermem"),
        (_OPEN.format("550.54.15"), "garbled", (), None),
        ("NVRM version: \x00\n", "6.8.0", (), None),
    ],
)
def test_way_of_gpudirect_is_told_by_its_evidence(
    make_node: MakeNode, version: str | None, kernel: str, modules: Tuple[str, ...], expected: str | None
) -> None:
    """A module that is not to be seen proves nothing."""
    files = {"/proc/sys/kernel/osrelease": kernel, **{f"/sys/module/{name}/refcnt": "0" for name in modules}}
    if version:
        files["/proc/driver/nvidia/version"] = version
    context = make_node(files)
    bus = PciBus(context.root)
    bus.add("pci0000:00/0000:00:01.0/0000:01:00.0", NVIDIA)
    bus.hca("mlx5_0", "pci0000:00/0000:00:03.0/0000:03:00.0")
    assert expected == read(context).facts["gdr"]


def test_amd_gpus_reach_an_hca_as_memory_peers(make_node: MakeNode) -> None:
    """The client that amdkfd registers with the kernel's memory peers."""
    context = make_node({"/sys/kernel/mm/memory_peers/amdkfd/version": "1.0\n"})
    bus = PciBus(context.root)
    bus.add("pci0000:00/0000:00:01.0/0000:01:00.0", AMD)
    bus.hca("mlx5_0", "pci0000:00/0000:00:03.0/0000:03:00.0")
    assert "peermem" == read(context).facts["gdr"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/sys/module/gdrdrv/refcnt": "0", "/dev/gdrdrv": ""}, "loaded"),
        ({"/sys/module/gdrdrv/refcnt": "0"}, "loaded, no /dev/gdrdrv"),
        ({"/sys/module/ext4/refcnt": "1"}, "none"),
        ({}, None),
    ],
)
def test_gdrcopy_is_its_module_and_its_device(
    make_node: MakeNode, files: dict[str, str], expected: str | None
) -> None:
    """A kernel whose modules are not to be seen proves nothing."""
    context = make_node(files)
    board(context)
    assert expected == read(context).facts["gdrcopy"]


def test_iommu_that_isolates_nothing_is_off(make_node: MakeNode) -> None:
    """The folder is there and empty where the kernel makes no groups."""
    context = make_node()
    board(context)
    (Path(context.root) / "sys/kernel/iommu_groups").mkdir(parents=True)
    facts = read(context).facts
    assert ("off", None) == (facts["iommu"], facts["one_iommu_group"])


def test_iommu_whose_groups_are_not_shown_is_unknown(make_node: MakeNode) -> None:
    """A container may mask them."""
    context = make_node()
    board(context)
    assert (None, None) == (read(context).facts["iommu"], read(context).facts["one_iommu_group"])


def test_gpu_and_nic_in_one_group_are_told(make_node: MakeNode) -> None:
    """Behind a bridge without ACS all share a group; its type is the kernel's word."""
    context = make_node()
    bus = board(context, group=7)
    assert ("identity", True) == tuple(read(context).facts[name] for name in ("iommu", "one_iommu_group"))
    bus.put("sys/kernel/iommu_groups/7/type", "DMA-FQ\n")
    assert ("DMA-FQ", "7") == (read(context).facts["iommu"], read(context).notes["iommu_groups"]["nic3"])


def test_gpu_and_nic_in_groups_of_their_own_are_apart(make_node: MakeNode) -> None:
    """Several types are told with commas."""
    context = make_node()
    bus = PciBus(context.root)
    bus.add("pci0000:00/0000:00:01.0/0000:01:00.0", NVIDIA, group=1)
    bus.hca("mlx5_0", "pci0000:00/0000:00:03.0/0000:03:00.0", group=2)
    bus.put("sys/kernel/iommu_groups/2/type", "DMA\n")
    facts = read(context).facts
    assert ("DMA,identity", False) == (facts["iommu"], facts["one_iommu_group"])


def bridges(bus: PciBus) -> list[str]:
    """The addresses of all bridges of a bus."""
    devices = bus.root / "sys/bus/pci/devices"
    return sorted(one.name for one in devices.iterdir() if (one / "class").read_text() == "0x060400\n")


def test_acs_of_a_board_is_one_word_and_what_deviates(make_node: MakeNode) -> None:
    """A firmware that left one switch's port redirecting costs the devices below that port."""
    context = make_node()
    bus = board(context)
    for bridge in bridges(bus):
        bus.configure(bridge, acs_of(0))
    assert {"each": "off", "devices": {}} == read(context).facts["acs"]
    bus.configure("0000:99:01.0", acs_of(0x1D))
    expected = {"each": "off", "devices": {"gpu5": "SrcValid ReqRedir CmpltRedir UpstreamFwd"}}
    assert expected == read(context).facts["acs"]
    assert "off" == read(context).notes["acs"]["0000:99:00.0"]


def test_acs_without_root_is_not_examined(make_node: MakeNode) -> None:
    """A user reads 64 bytes; that makes no healthy node partial."""
    context = make_node()
    bus = board(context)
    for bridge in bridges(bus):
        bus.configure(bridge, bytes(64))
    answer = read(context)
    assert ("ok", None, ["ACS"]) == (
        answer.status,
        answer.facts["acs"],
        list(answer.notes["not_examined"]),
    )


def test_node_without_gpu_and_hca_has_no_topology(make_node: MakeNode) -> None:
    """A CPU-only node: its Ethernet interfaces are no matter of GPUs."""
    context = make_node()
    PciBus(context.root).ethernet("eth0", "pci0000:00/0000:00:02.0/0000:02:00.0")
    assert ("absent", {}) == (read(context).status, read(context).facts)


def test_machine_without_a_pci_bus_has_no_topology(make_node: MakeNode) -> None:
    """/sys shows its buses, and PCI is none of them."""
    assert "absent" == read(make_node({"/sys/bus/usb/drivers_probe": ""})).status


def test_bus_that_nobody_may_look_at_is_not_absent(make_node: MakeNode) -> None:
    """Without /sys, or with one that is masked, nobody can say that no GPU is there."""
    nothing = topology.read(make_node())
    denied = topology.read(make_node({"/sys/bus/pci/devices/x/vendor": ""}, denied=["/sys/bus"]))
    assert ("error", "error") == (nothing.status, denied.status)


def test_storage_node_with_an_hca_alone_has_a_topology(make_node: MakeNode) -> None:
    """There is no GPU to reach, and the HCA's place is told."""
    context = make_node()
    PciBus(context.root).hca("mlx5_0", "pci0000:00/0000:00:03.0/0000:03:00.0", numa=1)
    facts = read(context).facts
    assert ([], 1, None) == (facts["gpus"], facts["nics"][0]["numa"], facts["gdr"])


@pytest.mark.parametrize(
    ("devices", "gpus", "nics"),
    [
        ({}, 0, 0),
        ({"/dev/nvidiactl": ""}, 8, 0),
        ({"/dev/infiniband/uverbs0": ""}, 0, 4),
        ({"/dev/nvidiactl": "", "/proc/driver/nvidia/gpus/0000:18:00.0/information": ""}, 1, 0),
    ],
)
def test_container_has_what_it_was_given(
    make_node: MakeNode, devices: dict[str, str], gpus: int, nics: int
) -> None:
    """/sys shows the host's GPUs and HCAs to every container."""
    context = make_node({"/.dockerenv": "", **devices})
    board(context)
    answer = read(context)
    told = (len(answer.facts.get("gpus", [])), len(answer.facts.get("nics", [])))
    assert ((gpus, nics), {"gpus": 8, "hcas": 4}) == (told, answer.notes["host"])
    assert ("ok" if gpus or nics else "absent") == answer.status


def test_bus_with_more_nics_than_a_page_takes_is_cut_and_says_so(make_node: MakeNode) -> None:
    """What lies about its devices costs no more than a page."""
    context = make_node()
    bus = PciBus(context.root)
    for number in range(70):
        bus.hca(f"mlx5_{number}", f"pci0000:00/0000:{number:02x}:00.0")
    answer = read(context)
    assert (64, ["GPUs and NICs"]) == (
        len(answer.facts["nics"]),
        [key for key in answer.notes["not_examined"] if key != "ACS"],
    )


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"/sys/bus/pci/devices/..:..": "", "/sys/bus/pci/devices/\udcff": ""}, "absent"),
        ({"/sys/bus/pci/devices/0000:01:00.0/vendor": "0x8086"}, "absent"),
        ({"/sys/bus/pci/devices/0000:01:00.0": "a file"}, "error"),
        ({"/sys/bus/pci/devices/0000:01:00.0/vendor": "\x00\udcff" * 100}, "error"),
    ],
)
def test_garbled_bus_proves_nothing(make_node: MakeNode, files: dict[str, Any], status: str) -> None:
    """Names that are no addresses are no devices; a device that tells no vendor may be a GPU."""
    assert status == topology.read(make_node(files)).status


def test_links_that_lead_in_circles_are_no_tree(make_node: MakeNode) -> None:
    """A link to itself is read as text and never followed."""
    context = make_node({"/sys/bus/pci/devices/x": ""})
    os.symlink("0000:01:00.0", Path(context.root) / "sys/bus/pci/devices/0000:01:00.0")
    assert "error" == topology.read(context).status


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("healthy-h100", "ok"),
        ("slurm-a", "ok"),
        ("rocm-mi300", "ok"),
        ("a100-mig", "ok"),
        ("container-small-shm", "ok"),
        ("wsl", "absent"),
        ("jetson", "absent"),
        ("cpu-only", "absent"),
        ("pod-a", "absent"),
        ("pod-b", "absent"),
        ("garbled", "error"),
        ("denied-and-hanging", "error"),
    ],
)
def test_fake_node_has_its_status(fake_node: Callable[[str], Context], name: str, status: str) -> None:
    """Healthy, without GPUs, in a container, garbled and denied are told apart."""
    assert status == topology.read(fake_node(name)).status


def test_fake_container_has_the_two_gpus_that_it_was_given(fake_node: Callable[[str], Context]) -> None:
    """Of the host's four."""
    answer = topology.read(fake_node("container-small-shm"))
    assert (["X NODE", "NODE X"], 4) == (
        [row["gpus"] for row in answer.facts["gpus"]],
        answer.notes["host"]["gpus"],
    )


def test_fake_h100_node_has_its_tree(fake_node: Callable[[str], Context]) -> None:
    """GPUs on host bridges of their own, eight HCAs and a bond over two processors."""
    facts = topology.read(fake_node("healthy-h100")).facts
    row = {"numa": 0, "gpus": "X NODE", "nics": "NODE NODE NODE NODE NODE SYS SYS SYS SYS"}
    assert (row, 9, "peermem", "loaded") == (
        facts["gpus"][0],
        len(facts["nics"]),
        facts["gdr"],
        facts["gdrcopy"],
    )
    assert ("identity", False) == (facts["iommu"], facts["one_iommu_group"])


def test_topology_of_this_machine_is_read_or_absent() -> None:
    """The section on the machine that runs the tests, through the runner."""
    (row,) = probe({"sections": ["topology"]})["sections"]
    assert row["status"] in ("ok", "absent")
