"""Recorded XML and link states of nvidia-smi, and a kernel's log with Xids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envaudit.probe.nvidia_smi_xml import read_report
from envaudit.probe.nvlink_status import read_link_status
from envaudit.probe.xid import xids_in

pytestmark = pytest.mark.corpus

# Sample, what it says of the driver, facts and notes of its one GPU; `...` stands for "left out".
XMLS: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        "telegraf-a100-sxm4-v12.xml",
        {"driver": "535.54.03", "cuda": "12.2", "count": 4},
        {
            "product": "NVIDIA A100-SXM4-80GB",
            "memory_bytes": 81920 << 20,
            "vbios": "92.00.36.00.02",
            "inforom": "G506.0212.00.01",
            "gsp_firmware": "535.54.03",
            "virtualization": "none",
            "addressing": "none",
            "ecc": "enabled",
            "ecc_pending": "enabled",
            "mig": "enabled",
            "mig_pending": "enabled",
            "mig_instances": {"1g.20gb": 4},
            "persistence": "disabled",
            "compute_mode": "default",
            "power_limit_mw": 500000,
            "power_limit_default_mw": 500000,
            "power_limit_min_mw": 100000,
            "power_limit_max_mw": 500000,
            "clock_max_graphics_mhz": 1410,
            "clock_max_sm_mhz": 1410,
            "clock_max_memory_mhz": 1593,
            "clock_application_graphics_mhz": 1275,
            "clock_application_memory_mhz": 1593,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "pcie_generation_max": 4,
            "remapped_pending": None,
            "remapped_failure": None,
            "retired_pending": None,
            "recovery_action": "none",
            "fabric_state": None,
            "fabric_status": None,
        },
        {"bus_id": "00000000:01:00.0", "throttle_reasons": [], "memory_hidden_bytes": 50 << 20},
    ),
    (
        "telegraf-a10g.xml",
        {"driver": "515.105.01", "cuda": "11.7", "count": 1},
        {
            "product": "NVIDIA A10G",
            "memory_bytes": 23028 << 20,
            "vbios": "94.02.75.00.01",
            "inforom": "G133.0210.00.04",
            "gsp_firmware": "515.105.01",
            "virtualization": "passthrough",
            "ecc": "enabled",
            "ecc_pending": "enabled",
            "mig": None,
            "mig_pending": None,
            "mig_instances": None,
            "persistence": "disabled",
            "compute_mode": "default",
            "power_limit_mw": 300000,
            "power_limit_default_mw": 300000,
            "power_limit_min_mw": 100000,
            "power_limit_max_mw": 300000,
            "clock_max_graphics_mhz": 1710,
            "clock_max_sm_mhz": 1710,
            "clock_max_memory_mhz": 6251,
            "clock_application_graphics_mhz": 1710,
            "clock_application_memory_mhz": 6251,
            "pcie_width": 8,
            "pcie_width_max": 16,
            "pcie_generation_max": 4,
            "remapped_pending": False,
            "remapped_failure": False,
            "retired_pending": None,
        },
        {"temperature_c": 17, "throttle_reasons": ["gpu_idle"], "ecc_uncorrected": 0},
    ),
    (
        "telegraf-gtx-1070-ti.xml",
        {"count": 1},
        {
            "product": "GeForce GTX 1070 Ti",
            "memory_bytes": 4096 << 20,
            "compute_mode": "default",
            "pcie_width": 16,
        },
        {"bus_id": "00000000:01:00.0", "pcie_generation": 1, "memory_used_bytes": 42 << 20},
    ),
    (
        "telegraf-rtx-4000-sff-ada-v13.xml",
        {"driver": "595.84", "cuda": "13.2", "count": 1},
        {
            "product": "NVIDIA RTX 4000 SFF Ada Generation",
            "memory_bytes": 20475 << 20,
            "vbios": "95.04.53.00.01",
            "inforom": "G192.0550.00.02",
            "gsp_firmware": "595.84",
            "virtualization": "none",
            "addressing": "hmm",
            "ecc": "disabled",
            "ecc_pending": "disabled",
            "mig": None,
            "mig_pending": None,
            "mig_instances": None,
            "persistence": "enabled",
            "compute_mode": "default",
            "power_limit_mw": 70000,
            "power_limit_default_mw": 70000,
            "power_limit_min_mw": 30000,
            "power_limit_max_mw": 70000,
            "clock_max_graphics_mhz": 3105,
            "clock_max_sm_mhz": 3105,
            "clock_max_memory_mhz": 7001,
            "clock_application_graphics_mhz": None,
            "clock_application_memory_mhz": None,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "pcie_generation_max": 4,
            "remapped_pending": False,
            "remapped_failure": False,
            "retired_pending": None,
            "sram_threshold_exceeded": None,
            "recovery_action": "none",
            "fabric_state": None,
            "fabric_status": None,
            "fabric_health": None,
        },
        {
            "processes": [
                {"pid": 1842, "kind": "graphics", "name": "cosmic-comp", "memory_bytes": 410 << 20},
                {"pid": 3190, "kind": "graphics", "name": "code", "memory_bytes": 451 << 20},
                {"pid": 4937, "kind": "compute", "name": "python", "memory_bytes": 160 << 20},
                {"pid": 34626, "kind": "compute+graphics", "name": "chromium", "memory_bytes": 183 << 20},
            ],
            "memory_hidden_bytes": (3534 - 410 - 451 - 160 - 183) << 20,
            "remapped_correctable": 0,
        },
    ),
    (
        "telegraf-tesla-t4.xml",
        {"driver": "515.105.01", "cuda": "11.7", "count": 1},
        {
            "product": "Tesla T4",
            "memory_bytes": 15360 << 20,
            "vbios": "90.04.84.00.06",
            "inforom": "G183.0200.00.02",
            "gsp_firmware": "515.105.01",
            "virtualization": "passthrough",
            "ecc": "enabled",
            "ecc_pending": "enabled",
            "mig": None,
            "mig_pending": None,
            "mig_instances": None,
            "persistence": "disabled",
            "compute_mode": "default",
            "power_limit_mw": 70000,
            "power_limit_default_mw": 70000,
            "power_limit_min_mw": 60000,
            "power_limit_max_mw": 70000,
            "clock_max_graphics_mhz": 1590,
            "clock_max_sm_mhz": 1590,
            "clock_max_memory_mhz": 5001,
            "clock_application_graphics_mhz": 585,
            "clock_application_memory_mhz": 5001,
            "pcie_width": 8,
            "pcie_width_max": 16,
            "pcie_generation_max": 3,
            "remapped_pending": None,
            "remapped_failure": None,
            "retired_pending": False,
        },
        {"retired_pages_single_bit": 0, "retired_pages_double_bit": 0, "memory_hidden_bytes": 5 << 20},
    ),
]


@pytest.mark.parametrize(("name", "values", "facts", "notes"), XMLS, ids=[row[0] for row in XMLS])
def test_recorded_xml_reads_right(
    corpus: Path, name: str, values: dict[str, Any], facts: dict[str, Any], notes: dict[str, Any]
) -> None:
    """All facts of the card, and no error; what the cut-down report lacks is left out."""
    told = read_report((corpus / "samples" / "nvidia_smi_xml" / name).read_text("utf-8"))
    (row,) = told.devices
    assert (values, facts) == (told.values, row["facts"])
    assert notes == {key: row["notes"][key] for key in notes}
    assert ([], {}) == (row["errors"], row["not_examined"])


def test_every_recorded_xml_is_held(corpus: Path) -> None:
    """A sample that is added is read, or this says that it is not."""
    assert [row[0] for row in XMLS] == sorted(
        path.name for path in (corpus / "samples" / "nvidia_smi_xml").glob("*.xml")
    )


A100_LINKS = {"nvlinks": 12, "nvlinks_up": 12, "nvlink_mbps": 25000}


@pytest.mark.parametrize("name", ["nvlink/gpud-a100x8-nvlink-status.txt", "topo/gpud-nvlink-status-a100.txt"])
def test_recorded_links_of_eight_cards_are_up(corpus: Path, name: str) -> None:
    """Twelve links of 25 GB/s on each."""
    told = read_link_status((corpus / "samples" / name).read_text("utf-8"))
    assert {ordinal: (A100_LINKS, []) for ordinal in range(8)} == told


def test_recorded_links_that_are_down_are_none_up(corpus: Path) -> None:
    """One card of two states: all up, and a sentence in the place of its links."""
    folder = corpus / "samples" / "nvlink"
    assert {7: (A100_LINKS, [])} == read_link_status((folder / "azure-good.txt").read_text("utf-8"))
    bad = read_link_status((folder / "azure-bad.txt").read_text("utf-8"))
    assert {6: ({"nvlinks_up": 0, "nvlink_mbps": None}, [])} == bad


def test_recorded_kernel_log_has_its_xids(corpus: Path) -> None:
    """Five timeouts of one card's firmware among its dumps and call traces."""
    text = (corpus / "samples" / "kmsg" / "gpud-dmesg-xid119.log").read_text("utf-8")
    assert ({"0000:9b:00": {"119": text.count("): 119,")}}, {}) == xids_in(text)[:2]


def test_recorded_kernel_log_without_xids_has_none(corpus: Path) -> None:
    """What peermem complains of is no Xid; the log tells how old its first line is."""
    text = (corpus / "samples" / "kmsg" / "gpud-kmsg-peermem.log").read_text("utf-8")
    assert ({}, {}, 227) == xids_in(text)
