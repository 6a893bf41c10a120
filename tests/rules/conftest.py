"""What tests of rules share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.gpunodes import Fakes


@pytest.fixture
def fakes(tmp_path: Path) -> Fakes:
    """Makes fake nodes with GPUs."""
    return Fakes(tmp_path / "fakes")
