"""Link classes and ACS bits against what tools of the vendors printed on real nodes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from envaudit.probe import acs, pcitree
from envaudit.probe.context import Context
from envaudit.probe.sections import topology
from tests.probe.pcibus import NVIDIA, PciBus, acs_of

_LINKS = ("PIX", "PXB", "PHB", "NODE", "SYS")


def node(root: Path) -> Context:
    """A fake node with an empty PCI bus."""
    return Context(root=str(root), environ={}, workdir="/", launch="ssh", interpreter={})


def printed_table(path: Path) -> tuple[list[list[str]], list[int]]:
    """Of each GPU of a `nvidia-smi topo -m` its links to the NICs, by their numbers, and its NUMA node."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    columns = head.split("\t")
    nics = [place for place, name in enumerate(columns) if re.match(r"NIC\d+\Z", name)]
    numa = columns.index("NUMA Affinity")
    rows = [line.split("\t") for line in lines if line.startswith("GPU")]
    return [[row[place].strip() for place in nics] for row in rows], [int(row[numa]) for row in rows]


def told_table(context: Context) -> list[list[str]]:
    """The same from the section: NICs by the numbers of their names."""
    answer = topology.read(context)
    names = [int(nic["name"].rpartition("_")[2]) for nic in answer.notes["nics"]]
    rows = [row["nics"].split() for row in answer.facts["gpus"]]
    return [[row[names.index(number)] for number in range(len(names))] for row in rows]


def test_board_of_eight_switches_reads_as_its_driver_tells(corpus: Path, tmp_path: Path) -> None:
    """Eight GPUs, each with an HCA on its switch: the HCA that the table has PIX is on that switch."""
    expected, numas = printed_table(corpus / "samples/topo/nvidia-smi-topo-m-8xH200-8nic.txt")
    context = node(tmp_path)
    bus = PciBus(str(tmp_path))
    for number, (row, numa) in enumerate(zip(expected, numas)):
        host = 0x10 + 0x10 * number
        switch = f"pci0000:{host:02x}/0000:{host:02x}:01.0/0000:{host + 1:02x}:00.0/0000:{host + 2:02x}"
        bus.add(f"{switch}:00.0/0000:{host + 3:02x}:00.0", NVIDIA, numa=numa)
        bus.hca(f"mlx5_{row.index('PIX')}", f"{switch}:01.0/0000:{host + 4:02x}:00.0", numa=numa)
    assert {"PIX", "NODE", "SYS"} == {word for row in expected for word in row} & set(_LINKS)
    assert expected == told_table(context)
    assert numas == [row["numa"] for row in topology.read(context).facts["gpus"]]


def test_guest_whose_nic_has_no_numa_node_is_far_from_all(corpus: Path, tmp_path: Path) -> None:
    """Eight GPUs of two NUMA nodes and a NIC of none, as a cloud passes them through."""
    expected, numas = printed_table(corpus / "samples/topo/nvidia-smi-topo-m-8gpu-1nic-all-SYS.txt")
    bus = PciBus(str(tmp_path))
    for number, numa in enumerate(numas):
        bus.add(f"pci000{number + 1}:00/000{number + 1}:00:00.0", NVIDIA, numa=numa)
    bus.hca("mlx5_0", "pci0000:00/0000:00:02.0", numa=-1)
    assert [["SYS"]] * 8 == expected == told_table(node(tmp_path))
    assert numas == [row["numa"] for row in topology.read(node(tmp_path)).facts["gpus"]]


def printed_control(line: str) -> int:
    """The control register of `ACSCtl:	SrcValid+ TransBlk- ...`."""
    words = line.split(":", 1)[1].split()
    assert [word[:-1] for word in words] == list(acs.BITS)
    return sum((word[-1] == "+") << place for place, word in enumerate(words))


def test_acs_of_each_bridge_reads_as_lspci_prints_it(corpus: Path, tmp_path: Path) -> None:
    """The control registers that lspci printed, laid out as configuration space, come back the same."""
    text = (corpus / "samples/lspci/gpud-lspci-vvv-acs-trimmed.txt").read_text(encoding="utf-8")
    expected: dict[str, list[str]] = {}
    context = node(tmp_path)
    bus = PciBus(str(tmp_path))
    address = ""
    for line in text.splitlines():
        if re.match(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] ", line):
            address = f"0000:{line.split()[0]}"
        elif line.strip().startswith("ACSCtl:"):
            bus.configure(address, acs_of(printed_control(line)))
            expected[address] = [word[:-1] for word in line.split(":", 1)[1].split() if word.endswith("+")]
    assert len(expected) > 40
    assert set(map(tuple, expected.values())) > {(), ("SrcValid",)}
    assert expected == {address: acs.control(context, address) for address in expected}


def test_board_laid_out_after_its_listing_has_each_hca_beside_its_gpu(corpus: Path, tmp_path: Path) -> None:
    """GPUs and HCAs placed by the switches' buses that lspci lists: each GPU's own HCA is PIX, ACS off."""
    text = (corpus / "samples/lspci/gpud-lspci-vvv-acs-trimmed.txt").read_text(encoding="utf-8")
    bus = PciBus(str(tmp_path))
    control: dict[str, int] = {}
    ports: list[str] = []
    behind = numa = 0
    way = ""
    for block in re.split(r"\n(?=[0-9a-f]{2}:)", text):
        address = f"0000:{block.split()[0]}"
        found = re.search(r"NUMA node: (\d)", block)
        numa = int(found[1]) if found else numa
        for line in re.findall(r"ACSCtl:.*", block):
            control[address] = printed_control(line)
        if "Device 352a" in block:  # the root port above a switch
            way = f"pci{address[:7]}/{address}/0000:{int(address[5:7], 16) + 1:02x}:00.0"
            ports, behind = [], 0
        elif "PEX890xx" in block:
            ports.append(address)
        elif "NVIDIA Corporation Device 2330" in block or "MT2910" in block:
            # The first port is the switch's management; a device lies behind each that follows.
            behind += 1
            place = f"{way}/{ports[behind]}/{address}"
            if "NVIDIA" in block:
                bus.add(place, NVIDIA, numa=numa)
            else:
                bus.hca(f"mlx5_{address[5:7]}", place, numa=numa)
    for address in (one.name for one in (tmp_path / "sys/bus/pci/devices").iterdir()):
        bus.configure(address, acs_of(control.get(address, 0)))
    facts = topology.read(node(tmp_path)).facts
    assert (8, 8) == (len(facts["gpus"]), len(facts["nics"]))
    assert ["PIX"] * 8 == [row["nics"].split()[number] for number, row in enumerate(facts["gpus"])]
    assert [0, 0, 0, 0, 1, 1, 1, 1] == [row["numa"] for row in facts["gpus"]]
    assert "X NODE NODE NODE SYS SYS SYS SYS" == facts["gpus"][0]["gpus"]
    assert {"each": "off", "devices": {}} == facts["acs"]


def test_nics_of_a_manifest_have_its_link_on_all_kernels(corpus: Path, tmp_path: Path) -> None:
    """The manifest of an A100 machine has each speed as an older and as a newer kernel writes it."""
    manifest = json.loads((corpus / "samples/sysfs_json/gcm-DGX_A100.json").read_text(encoding="utf-8"))[
        "pci"
    ]
    adapters = {address: entry for address, entry in manifest.items() if entry["type"] in ("ib", "net")}
    for writing in (0, 1):
        root = tmp_path / str(writing)
        bus = PciBus(str(root))
        for address, entry in adapters.items():
            name = entry["dev"].rpartition("/")[2]
            bus.hca(name, f"pci{address[:7]}/{address}")
            bus.put(f"sys/bus/pci/devices/{address}/current_link_speed", entry["link_speed"][writing] + "\n")
            bus.put(f"sys/bus/pci/devices/{address}/current_link_width", entry["link_width"] + "\n")
        answer = topology.read(node(root))
        assert sorted(adapters) == [nic["address"] for nic in answer.notes["nics"]]
        assert {"x16 16 GT/s"} == {nic["pcie"] for nic in answer.facts["nics"]}
        assert pcitree.addresses(node(root)) == sorted(adapters)
