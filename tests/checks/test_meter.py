"""Figures of the cards, from a driver that is written down here: no card is needed to read them right."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from envaudit.checks.cards import Card, Cards, Reading, throttle_names
from envaudit.checks.meter import Meter, summed_up


class Driver:
    """As much of pynvml as is asked; what a test leaves out raises, as an older driver does."""

    def __init__(self, uuids: List[str], **answers: Any) -> None:
        self._uuids = uuids
        self._answers: Dict[str, Any] = answers

    def __getattr__(self, name: str) -> Any:
        known = {
            "nvmlDeviceGetCount": lambda: len(self._uuids),
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda index: self._uuids[index].encode(),
            "nvmlDeviceGetPciInfo": lambda index: SimpleNamespace(busId=f"0000:{9 - index}0:00.0".encode()),
            "nvmlDeviceGetName": lambda index: b"NVIDIA H200",
            "nvmlSystemGetDriverVersion": lambda: b"570.124.06",
            **self._answers,
        }
        if name not in known:
            raise AttributeError(name)
        return known[name]


def test_cards_are_in_the_order_of_their_bus() -> None:
    """As CUDA counts them under CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    cards = Cards(Driver(["GPU-a", "GPU-b"]))
    visible = cards.visible({})
    assert visible is not None
    assert ["GPU-b", "GPU-a"] == [card.uuid for card in visible]
    assert "570.124.06" == cards.driver


@pytest.mark.parametrize(("second", "known"), [(b"NVIDIA H200", True), (b"NVIDIA T400", False)])
def test_unlike_cards_in_another_order_are_not_known(second: bytes, known: bool) -> None:
    """Which of them is the fastest is CUDA's to say."""
    names = [b"NVIDIA H200", second]
    driver = Driver(["GPU-a", "GPU-b"], nvmlDeviceGetName=lambda index: names[index])
    assert known == (Cards(driver).visible({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}) is not None)
    assert Cards(driver).visible({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) is not None


@pytest.mark.parametrize(
    ("named", "uuids"),
    [
        ("1", ["GPU-a1"]),
        ("1,0", ["GPU-a1", "GPU-b2"]),
        ("GPU-a", ["GPU-a1"]),
        ("0,-1,1", ["GPU-b2"]),
        ("", []),
        ("MIG-1", None),
    ],
)
def test_visible_cards_follow_the_variable(named: str, uuids: Any) -> None:
    """By number, by the beginning of a UUID, up to the first that is none; MIG instances are not known."""
    visible = Cards(Driver(["GPU-a1", "GPU-b2"])).visible({"CUDA_VISIBLE_DEVICES": named})
    assert uuids == (None if visible is None else [card.uuid for card in visible])


def test_process_of_somebody_else_makes_a_card_busy_and_one_above_does_not() -> None:
    """A launcher holds its own job's cards."""
    running = [
        SimpleNamespace(pid=os.getppid(), usedGpuMemory=1),
        SimpleNamespace(pid=2**22 + 1, usedGpuMemory=3 << 20),
    ]
    cards = Cards(Driver(["GPU-a"], nvmlDeviceGetComputeRunningProcesses=lambda handle: running))
    assert f"process {2**22 + 1} (of another namespace, 3 MiB)" == cards.busy(cards.cards[0])


def test_driver_that_does_not_tell_leaves_figures_out() -> None:
    """None where nothing is known, and no exception."""
    cards = Cards(Driver(["GPU-a"]))
    assert Reading(None, None, None, None) == cards.read(cards.cards[0])
    assert {"corrected": None, "uncorrected": None} == cards.ecc(cards.cards[0])


def test_meter_reads_until_it_is_stopped() -> None:
    """Medians and extremes, all throttle reasons of the run, ECC on both sides."""
    errors = iter([0, 0, 0, 2])
    cards = Cards(
        Driver(
            ["GPU-a"],
            nvmlDeviceGetClockInfo=lambda handle, kind: 1980,
            nvmlDeviceGetPowerUsage=lambda handle: 700_000,
            nvmlDeviceGetTemperature=lambda handle, kind: 61,
            nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x4,
            nvmlDeviceGetTotalEccErrors=lambda handle, kind, counter: next(errors),
        )
    )
    meter = Meter(cards, cards.cards)
    meter.start()
    time.sleep(0.35)
    (row,) = meter.stop()
    assert row["readings"] >= 1
    assert {"median": 1980, "least": 1980, "most": 1980} == row["sm_clock_mhz"]
    assert ["sw_power_cap"] == row["throttle"]
    assert {"before": 0, "after": 2} == row["ecc_uncorrected"]


def test_meter_of_a_card_that_hangs_is_not_waited_for() -> None:
    """A driver call may last for as long as the card is away."""
    cards = Cards(Driver(["GPU-a"], nvmlDeviceGetClockInfo=lambda handle, kind: time.sleep(5)))
    meter = Meter(cards, cards.cards)
    meter.start()
    time.sleep(0.2)
    began = time.monotonic()
    (row,) = meter.stop()
    assert 2 > time.monotonic() - began
    assert 0 == row["readings"]


def test_figures_are_integers_and_null_where_nothing_was_read() -> None:
    """A median is one of the values."""
    readings = [Reading(1000, None, 50, 0), Reading(1500, None, 60, 0x48), Reading(1200, None, None, None)]
    row = summed_up(readings, {}, {})
    assert {"median": 1200, "least": 1000, "most": 1500} == row["sm_clock_mhz"]
    assert row["power_mw"] is None
    assert ["hw_slowdown", "hw_thermal_slowdown"] == row["throttle"] == throttle_names(0x48)
    assert Card(0, "GPU-a", "", "").uuid == "GPU-a"
