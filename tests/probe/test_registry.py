"""Sections are found by their files, in a folder and inside a zip."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from envaudit.probe import registry, sections
from tests.conftest import PACKAGE_HOME, PROJECT


def test_sections_are_those_that_python_itself_lists() -> None:
    """The registry's own listing agrees with pkgutil's."""
    assert (
        sorted(module.name for module in pkgutil.iter_modules(sections.__path__)) == registry.section_names()
    )


def test_each_section_has_what_the_runner_needs() -> None:
    """A schema from 1, a deadline within that of a run, and `read`."""
    for name in registry.section_names():
        module = registry.load_section(name)
        assert module.SCHEMA >= 1, module.__name__
        assert 0 < getattr(module, "DEADLINE_S", registry.DEFAULT_DEADLINE_S) <= 30, module.__name__
        assert callable(module.read), module.__name__


def test_sections_inside_a_zip_are_the_same(tmp_path: Path) -> None:
    """The zip that is sent to a node has all sections, and no folder or data file counts as one."""
    if PACKAGE_HOME.is_file():
        pytest.skip("the package that is tested is a zip already")
    with zipfile.ZipFile(tmp_path / "e.pyz", "w") as archive:
        for folder, _, names in os.walk(PROJECT / "envaudit" / "probe"):
            for name in names:
                if name.endswith(".py"):
                    path = Path(folder, name)
                    archive.write(path, path.relative_to(PROJECT))
        archive.writestr("envaudit/__init__.py", "")
        archive.writestr("envaudit/probe/sections/sub/module.py", "")
        archive.writestr("envaudit/probe/sections/table.json", "")
    asked = "import sys; sys.path.insert(0, sys.argv[1]); from envaudit.probe import registry as r;"
    asked += "print(','.join(r.section_names())); [r.load_section(n) for n in r.section_names()]"
    ran = subprocess.run(
        [sys.executable, "-I", "-B", "-c", asked, str(tmp_path / "e.pyz")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert registry.section_names() == ran.stdout.strip().split(",")
