"""A store in a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store that does not exist yet."""
    return Store(str(tmp_path / ".envaudit"))
