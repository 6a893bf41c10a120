"""The goldens of reports."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the golden of a name; with `--rewrite-goldens` write it first."""
    rewrite = request.config.getoption("--rewrite-goldens")

    def check(name: str, text: str) -> None:
        path = GOLDENS / name
        if rewrite:
            path.write_bytes(text.encode("utf-8"))
        assert path.exists(), f"no golden {name}: nox -s goldens writes it"
        assert path.read_bytes().decode("utf-8") == text

    return check
