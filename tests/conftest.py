"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

import envaudit

# A shared machine is slow at times; how long one example takes says nothing about its outcome.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

PROJECT = Path(__file__).resolve().parents[1]

# What a child needs on its path to import the envaudit that is tested: a folder, or the bundle.
PACKAGE_HOME = Path(envaudit.__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite-goldens`, which `nox -s goldens` gives."""
    parser.addoption(
        "--rewrite-goldens",
        action="store_true",
        help="write expected reports and generated documents anew instead of comparing",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """CUDA tests need a virtual environment of their own, campaigns minutes: both run where asked for."""
    for item in items:
        for campaign in ("kernels", "collectives"):
            if item.get_closest_marker(campaign) and campaign not in (item.config.option.markexpr or ""):
                item.add_marker(pytest.mark.skip(reason=f"a campaign of minutes: nox -s {campaign}"))
        if item.get_closest_marker("cuda") and "cuda" not in (item.config.option.markexpr or ""):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA build of torch: nox -s cuda"))
