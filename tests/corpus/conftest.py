"""Where the public inputs lie; without them these tests are skipped, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of public inputs beside the project."""
    if not CORPUS.is_dir():
        pytest.skip("../shared/corpus is not here")
    return CORPUS
