"""Fake nodes for the tests of the probe."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Callable

import pytest

from envaudit.probe.context import Context
from tests.conftest import PROJECT

NODES = PROJECT / "fixtures" / "nodes"


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Where a node of fixtures/nodes lies, by its name.

    git keeps no folder named .git: a fixture's is called dot-git and gets its name here.
    """
    copies = tmp_path_factory.mktemp("nodes")

    def folder(name: str) -> str:
        copy = copies / name
        if not copy.exists():
            shutil.copytree(NODES / name, copy, symlinks=True)
            for dot_git in list(copy.rglob("dot-git")):
                dot_git.rename(dot_git.with_name(".git"))
        return str(copy)

    return folder


@pytest.fixture(scope="session")
def fake_node(node_folder: Callable[[str], str]) -> Callable[[str], Context]:
    """A node of fixtures/nodes as sections see it, by its name."""
    return lambda name: Context.of_fixture(node_folder(name))


@pytest.fixture
def make_node(tmp_path: Path) -> Callable[..., Context]:
    """A fake node made of the files (path → text or bytes) and node.json keys that a test gives."""

    def make(files: dict[str, str | bytes] | None = None, **node: object) -> Context:
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        for path, content in (files or {}).items():
            place = root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else os.fsencode(content))
        return Context(
            root=str(root),
            environ=node.pop("environ", {}),  # type: ignore[arg-type]
            workdir=str(node.pop("workdir", "/")),
            launch=str(node.pop("launch", "ssh")),
            interpreter=node.pop("interpreter", {}),  # type: ignore[arg-type]
            options=node.pop("options", {}),  # type: ignore[arg-type]
            node=node,
        )

    return make
