"""The import table of ARCHITECTURE.md, read from the code with `ast`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "envaudit"

# Room to the rooms it may import. The table of ARCHITECTURE.md is held equal by a test below.
MAY_IMPORT = {
    "errors": (),
    "model": ("errors",),
    "probe": (),
    "store": ("model", "errors"),
    "control": ("model", "errors"),
    "checks": ("model", "errors", "control"),
    "transport": ("model", "errors", "probe", "control"),
    "lock": ("model", "errors"),
    "sources": ("model", "errors"),
    "diff": ("model", "errors"),
    "rules": ("model", "errors"),
    "report": ("model", "errors"),
    "cli": (
        "model",
        "errors",
        "probe",
        "store",
        "control",
        "checks",
        "transport",
        "lock",
        "sources",
        "diff",
        "rules",
        "report",
    ),
    "api": ("model", "errors", "store", "report", "cli"),
    "track": ("model", "errors", "store", "report", "api"),
}
# The version is a constant that every room may carry.
EVERYWHERE = {"envaudit", "_version"}

MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    """The room that a module lives in."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """The rooms that a module imports, anywhere in it."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
            if node.module == "envaudit":
                names = [f"envaudit.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("envaudit.")}
    return rooms


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_module_imports_only_what_its_room_may(path: Path) -> None:
    """No room reaches past the rooms that the table allows it."""
    room = room_of(path)
    if room in {"__init__", "__main__", "_version"}:
        pytest.skip("the doors of the package")
    allowed = {room, *MAY_IMPORT[room]} | EVERYWHERE
    assert sorted(imported_rooms(path) - allowed) == []


def test_table_in_architecture_document_is_this_one() -> None:
    """The document and the test change together."""
    text = (PROJECT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `(\w+)(?:\.py|/)` \|[^|]*\| ([^|]*) \|$", text, re.M)
    documented = {room: tuple(re.findall(r"`(\w+)`", allowed)) for room, allowed in rows}
    assert MAY_IMPORT == documented


def test_modules_stay_short_enough_to_read() -> None:
    """Four hundred lines at most."""
    lengths = {str(path.relative_to(PROJECT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {} == {path: length for path, length in lengths.items() if length > 400}


def test_torch_is_never_imported_at_module_level() -> None:
    """Importing any module of envaudit leaves torch alone."""
    at_fault = [
        str(path.relative_to(PROJECT))
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and re.match(r"torch(\.|$)", getattr(node, "module", None) or getattr(node.names[0], "name", ""))
    ]
    assert at_fault == []


def test_process_exits_are_left_to_the_command_line() -> None:
    """`sys.exit` stands in `cli` alone; a forked child leaves by `os._exit`."""
    at_fault = [
        str(path.relative_to(PROJECT))
        for path in MODULES
        if room_of(path) != "cli"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Attribute, ast.Name)) and ast.unparse(node) in ("sys.exit", "SystemExit")
    ]
    assert [] == at_fault
