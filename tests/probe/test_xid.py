"""Xid lines as kernel logs write them down."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from envaudit.probe.context import Context
from envaudit.probe.xid import normal_bus_id, read_kernel_log, xids_in


@pytest.mark.parametrize(
    ("line", "bus_id", "number"),
    [
        ("NVRM: Xid (PCI:0000:18:00): 79, pid=1234, name=python, GPU has fallen off", "0000:18:00", "79"),
        ("<4>[  812.001] NVRM: Xid (PCI:0000:9b:00): 119, Timeout after 6s", "0000:9b:00", "119"),
        ("4,2,130000000,-;NVRM: Xid (PCI:0000:9B:00): 48, pid='<unknown>'", "0000:9b:00", "48"),
        ("[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0001:00:00): 94, Contained", "0001:00:00", "94"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 31, pid=9, MMU Fault", "0000:01:00", "31"),
        ("NVRM: Xid (0000:03:00): 13, Graphics Exception", "0000:03:00", "13"),
        ("Nov 30 12:00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 095, x", "0000:3b:00", "95"),
    ],
)
def test_xid_line_of_any_form_is_read(line: str, bus_id: str, number: str) -> None:
    """Rings, files, dmesg with and without times, MIG instances and old drivers."""
    assert {bus_id: {number: 1}} == xids_in(f"noise\n{line}\nnoise\n").xids


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
        "NVRM: Xid (PCI:0000:9b:00): none",
        "NVRM: Xid (PCI:9b): 79, GPU has fallen off the bus",
        "mlx5_core 0000:9b:00.0: Port module event",
        "\x00\xff" * 100,
    ],
)
def test_line_that_is_no_xid_is_passed_over(line: str) -> None:
    """Other lines of the driver, cut ones, noise."""
    assert ({}, {}) == xids_in(line)[:2]


@pytest.mark.parametrize(
    ("text", "since_s"),
    [
        ("6,3973,227996636,-;first\n6,3974,999000000,-;second\n", 227),
        ("<6>[  227.996636] first\n", 227),
        ("[    0.000000] Linux version\n", 0),
        ("[Sun Feb 23 16:24:18 2025] first\n", None),
        ("", None),
    ],
)
def test_kernel_log_says_since_when_it_goes(text: str, since_s: int | None) -> None:
    """A ring that has overflowed does not know of what came before its oldest line."""
    assert since_s == xids_in(text).since_s


def test_kernel_log_that_floods_is_bounded() -> None:
    """More cards and numbers than a machine can have are not all told apart."""
    cards = "".join(f"NVRM: Xid (PCI:{number:04x}:00:00): 79, x\n" for number in range(2000))
    numbers = "".join(f"NVRM: Xid (PCI:0000:00:00): {number}, x\n" for number in range(2000))
    xids = xids_in(numbers + cards + cards).xids
    assert (256, 256, 2) == (len(xids), len(xids["0000:00:00"]), xids["0001:00:00"]["79"])


def test_bus_ids_of_nvml_and_of_the_kernel_are_one() -> None:
    """NVML writes eight digits of domain and capitals."""
    assert "0000:9b:00" == normal_bus_id("00000000:9B:00.0") == normal_bus_id("0000:9b:00")
    assert "0001:00:00" == normal_bus_id("00000001:00:00.0")


@pytest.mark.skipif(not shutil.which("dmesg"), reason="dmesg is not here to compare with")
def test_kernel_log_of_this_machine_is_what_dmesg_reads() -> None:
    """The call is made for real: the same lines, or the same refusal."""
    dmesg = subprocess.run(["dmesg", "-S", "-r"], capture_output=True, text=True, errors="replace")
    context = Context(environ={}, workdir="/", launch="local", interpreter={})
    if dmesg.returncode == 0:
        assert xids_in(dmesg.stdout).xids == read_kernel_log(context).xids
    else:
        with pytest.raises(PermissionError):
            read_kernel_log(context)
