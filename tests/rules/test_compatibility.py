"""Versions by their parts, and the tables of CUDA, drivers and torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import pytest

from envaudit.rules import compatibility
from envaudit.rules.compatibility import driver_floor, is_older, newest_cuda, numbers, toolkit_driver


@pytest.mark.parametrize(
    ("version", "than", "expected"),
    [
        ("570.26", "570.124.06", True),
        ("570.124.06", "570.26", False),
        ("2.9.0", "2.10.0", True),
        ("2.20.5", "2.20.5.1", False),
        ("525", "525.60.13", False),
        ("2.14.1+cu130", "2.14.2", True),
        (None, "1.0", False),
        ("1.0", "unknown", False),
    ],
)
def test_versions_are_compared_part_by_part_as_integers(
    version: Optional[str], than: str, expected: bool
) -> None:
    """As far as both go, and never where one is unknown."""
    assert expected == is_older(version, than)


@pytest.mark.parametrize("version", [None, 12, "", "v2", [], "9" * 40 + "x"])
def test_numbers_of_what_is_no_version_are_bounded(version: object) -> None:
    """No exception, and no number that takes long to make."""
    assert all(part < 10**9 for part in numbers(version))


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        ("10.1", "418.39"),
        ("10.2", "440.33"),
        ("11.8", "450.80.02"),
        ("12.8", "525.60.13"),
        ("13.0", "580.65.06"),
        ("14.0", None),
        ("8.0", None),
        (None, None),
    ],
)
def test_driver_floor_is_that_of_the_cuda_major(cuda: Optional[str], expected: Optional[str]) -> None:
    """Before CUDA 11 each toolkit has its own."""
    assert expected == driver_floor(cuda)


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        ("12.4", "550.54.14"),
        ("12.4.1", "550.54.15"),
        ("12.8.1", "570.124.06"),
        ("12.8.90", "570.26"),
        ("10.2", "440.33"),
        ("12", None),
        ("14.1", None),
    ],
)
def test_toolkit_driver_of_a_minor_is_that_of_its_first_release(cuda: str, expected: Optional[str]) -> None:
    """A release that is not listed is told by its minor."""
    assert expected == toolkit_driver(cuda)


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("440.33.01", "10.2"),
        ("535.154.05", "12.2"),
        ("550.54.15", "12.4"),
        ("570.86.15", "12.8"),
        ("580.65.06", "13.0"),
        ("999.1", "13.3"),
        ("340.1", None),
        (None, None),
    ],
)
def test_newest_cuda_of_a_driver_is_read_from_the_toolkits_drivers(
    driver: Optional[str], expected: Optional[str]
) -> None:
    """The last toolkit whose own driver is not newer."""
    assert expected == newest_cuda(driver)


def test_tables_are_the_reference_ones() -> None:
    """Every row of the reference stands here, and no other of CUDA 11 and newer."""
    folder = Path(__file__).resolve().parents[3] / "shared" / "compat"
    if not folder.is_dir():
        pytest.skip("../shared/compat is not here")

    def read(name: str) -> Any:
        return json.loads((folder / name).read_text())

    drivers, torch = read("cuda_driver.json"), read("torch_defaults.json")["torch"]
    assert drivers["minor_version_floor"] == {str(key): v for key, v in compatibility.MAJOR_FLOORS.items()}
    assert list(drivers["toolkit_driver_linux"].items()) == list(compatibility.TOOLKIT_DRIVERS.items())
    assert torch == {version: row._asdict() for version, row in compatibility.TORCH_DEFAULTS.items()}
