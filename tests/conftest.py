"""What all tests share."""

from __future__ import annotations

import signal
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


def pytest_configure() -> None:
    """Signals as a program has them that a terminal starts.

    `nohup` and a shell's `&` let what they start ignore some, and so would all that the tests interrupt.
    """
    for number, action in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, action)


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
