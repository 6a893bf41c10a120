"""What the tests of the hub share."""

from __future__ import annotations

from typing import Iterator

import pytest

from tests.control.meeting_place import Stranger


@pytest.fixture(autouse=True)
def no_stranger_stays() -> Iterator[None]:
    """Connections that a test has opened end with it."""
    yield
    while Stranger.opened:
        Stranger.opened.pop().close()
