"""The zips: the same bytes each time, closed under import, runnable on every Python that counts."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from envaudit.transport import bundle
from tests.transport.asking import interpreters

MINORS = interpreters("3.8")
OLDEST = MINORS[0] if MINORS else sys.executable


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one-file form."""
    path = tmp_path_factory.mktemp("bundle") / "envaudit.pyz"
    path.write_bytes(bundle.build_bundle())
    path.chmod(0o755)
    return path


def run(python: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The one-file form under some Python that sees nothing of this project."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        [python, *arguments], capture_output=True, text=True, cwd=cwd, env=environ, timeout=60, check=False
    )


def test_build_bundle_twice_gives_the_same_bytes() -> None:
    """No clock, no order of a folder and no owner enters."""
    first = bundle.build_bundle()
    assert first == bundle.build_bundle()
    entries = zipfile.ZipFile(io.BytesIO(first)).infolist()
    assert {(1980, 1, 1, 0, 0, 0)} == {entry.date_time for entry in entries}
    assert sorted(entry.filename for entry in entries) == [entry.filename for entry in entries]


def test_build_bundle_begins_with_a_shebang(one_file: Path, tmp_path: Path) -> None:
    """The file can be started by itself."""
    assert one_file.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    done = subprocess.run(
        [str(one_file), "--version"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.startswith("envaudit ")


@pytest.mark.parametrize("python", MINORS, ids=lambda python: python.split("/")[-3])
def test_one_file_form_imports_whole_under_every_python(one_file: Path, python: str, tmp_path: Path) -> None:
    """Every module inside imports only what is inside and the standard library."""
    names = [name for name in zipfile.ZipFile(one_file).namelist() if name.startswith("envaudit/")]
    # Triton compiles the source of a module that is imported only where it is.
    names.remove("envaudit/checks/tritonkernels.py")
    modules = [name[:-3].replace("/", ".").replace(".__init__", "") for name in names]
    code = (
        f"import importlib, sys\nsys.path.insert(0, {str(one_file)!r})\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "import pynvml\n"
        "files = [getattr(module, '__file__', None) or '' for module in sys.modules.values()]\n"
        "print([file for file in files if 'site-packages' in file])\n"
    )
    done = run(python, "-I", "-S", "-c", code, cwd=tmp_path)
    assert (0, "[]\n", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("python", sorted({OLDEST, MINORS[-1] if MINORS else sys.executable}))
def test_one_file_form_snapshots_shows_and_diffs(one_file: Path, python: str, tmp_path: Path) -> None:
    """The node side alone takes a snapshot into a store and compares it with itself."""
    assert 0 == run(python, str(one_file), "snapshot", "--tag", "good", cwd=tmp_path).returncode
    node = os.listdir(tmp_path / ".envaudit" / "tags" / "good")[0]
    shown = run(python, str(one_file), "show", f"{node}@good", "--format", "json", cwd=tmp_path)
    assert 0 == shown.returncode, shown.stderr
    assert "python" in json.dumps(json.loads(shown.stdout)["facts"])
    compared = run(python, str(one_file), "diff", f"{node}@good", f"{node}@latest", cwd=tmp_path)
    assert 0 == compared.returncode, compared.stdout + compared.stderr


def test_one_file_form_without_a_command_names_the_package(one_file: Path, tmp_path: Path) -> None:
    """What the zip does not carry says so."""
    done = run(OLDEST, str(one_file), "bundle", cwd=tmp_path)
    assert 2 == done.returncode
    assert "pip install envaudit" in done.stderr


def test_one_file_form_says_where_a_foreign_report_is_read(one_file: Path, tmp_path: Path) -> None:
    """It reads no YAML and no TOML, and snapshots alone."""
    (tmp_path / "freeze.txt").write_text("numpy==1.26.4\n")
    done = run(OLDEST, str(one_file), "show", "freeze.txt", cwd=tmp_path)
    assert 4 == done.returncode
    assert "envaudit import FILE -o node.json" in done.stderr


@pytest.mark.parametrize("python", interpreters("2.7", "3.7"), ids=lambda python: python.split("/")[-3])
def test_one_file_form_on_an_old_python_says_so(one_file: Path, python: str, tmp_path: Path) -> None:
    """One clear line instead of a SyntaxError."""
    done = run(python, str(one_file), "snapshot", cwd=tmp_path)
    expected = f"envaudit: Python {python.split('/')[-3]} is too old, 3.8 or newer is needed\n"
    assert (5, "", expected) == (done.returncode, done.stdout, done.stderr)


def test_wire_payload_carries_the_checks_only_where_they_are_asked_for() -> None:
    """An ordinary snapshot sends no byte more for them."""
    plain, whole = (
        {*zipfile.ZipFile(io.BytesIO(bundle.wire_payload(checks=checks).zip_bytes)).namelist()}
        for checks in (False, True)
    )
    its_own = ("envaudit/checks/", "envaudit/control/", "envaudit/errors.py")
    assert not [name for name in plain if name.startswith(its_own)]
    more = whole - plain
    assert {"envaudit/checks/section.py", "envaudit/checks/operations/gemm.py"} <= more
    assert all(name.startswith(its_own) for name in more)


@pytest.mark.parametrize("checks", [False, True])
def test_wire_payload_is_closed_under_import(checks: bool) -> None:
    """What the probe and the frames import of the house travels with them; pynvml does too."""
    archive = zipfile.ZipFile(io.BytesIO(bundle.wire_payload(checks=checks).zip_bytes))
    carried = {name[:-3] for name in archive.namelist() if name.endswith(".py")}
    assert "pynvml" in carried
    for name in archive.namelist():
        if not name.endswith(".py") or not name.startswith("envaudit/"):
            continue
        for node in ast.walk(ast.parse(archive.read(name))):
            for module in _imported(node):
                path = module.replace(".", "/")
                if (
                    "TYPE_CHECKING" in archive.read(name).decode()
                    and name == "envaudit/transport/__init__.py"
                ):
                    continue
                assert {path, f"{path}/__init__"} & carried, f"{name} imports {module}"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.split(".")[0] == "envaudit"]
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "envaudit":
        return [node.module or ""]
    return []


def test_wire_payload_carries_bytecode_that_this_python_takes(tmp_path: Path) -> None:
    """A node with the controller's minor version imports the bytecode, without a look at the source."""
    zipped = tmp_path / "wire.zip"
    zipped.write_bytes(bundle.wire_payload().zip_bytes)
    code = (
        f"import sys; sys.path.insert(0, {str(zipped)!r})\n"
        "import envaudit.probe.runner as runner; print(runner.__cached__)"
    )
    done = run(sys.executable, "-I", "-c", code, cwd=tmp_path)
    assert "envaudit/probe/runner.pyc" in done.stdout, done.stderr


def test_wire_payload_bytecode_follows_an_edited_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is older than its source is not sent."""
    source = tmp_path / "module.py"
    source.write_text("VALUE = 1\n")
    import importlib.util
    import marshal
    import py_compile

    py_compile.compile(str(source))
    assert os.path.exists(importlib.util.cache_from_source(str(source)))

    def value() -> int:
        names: dict[str, int] = {}
        exec(marshal.loads(bundle._bytecode("module.py", str(source))[16:]), names)
        return names["VALUE"]

    assert 1 == value()
    source.write_text("VALUE = 22\n")
    assert 22 == value()


def test_node_side_lists_existing_modules_only() -> None:
    """Every pattern of the list matches something."""
    for pattern in bundle.NODE_SIDE:
        assert bundle.node_side([pattern]), pattern
