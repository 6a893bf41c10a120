"""Shows the nodes of a lab the torch of the interpreter that runs the tests."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.lab.cluster import Cluster

TORCH = find_spec("torch")


def show_torch(nodes: Cluster) -> Path:
    """Put torch on the path of the nodes' environment; the site-packages folder of that."""
    assert TORCH is not None
    assert TORCH.origin is not None
    (site,) = Path(nodes.environment_path, "lib").glob("python3*/site-packages")
    (site / "torch.pth").write_text(f"{seen_by_nodes(Path(TORCH.origin).parents[1], Path(nodes.folder))}\n")
    return site


def seen_by_nodes(site: Path, folder: Path) -> Path:
    """Where a node finds a folder of the machine: each has a /tmp of its own."""
    if not site.is_relative_to("/tmp"):
        return site
    linked = folder / "site"
    try:
        shutil.copytree(site, linked, symlinks=True, copy_function=os.link)
    except (OSError, shutil.Error) as error:
        pytest.skip(f"torch lies in /tmp, which is each node's own: {error}"[:300])
    return linked
