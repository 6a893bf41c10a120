"""`-r` in the pip section: expanded where it may be, refused by line where not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envaudit.lock.entries import Located
from envaudit.lock.includes import joined_lines
from tests.lock.envfiles import HEAD, written

SECTION = HEAD + "  - pip\n  - pip:\n"


def names_of(folder: Path, *lines: str) -> list[str]:
    """The names that a pip section of these lines has."""
    source = written(folder, SECTION + "".join(f"    - {line}\n" for line in lines))
    assert () == source.faults
    return [entry.name for entry in source.pip if entry.name]


def complaints_of(folder: Path, *lines: str) -> list[tuple[str, int, str]]:
    """File, line and message of each fault."""
    source = written(folder, SECTION + "".join(f"    - {line}\n" for line in lines))
    return [(Path(fault.path).name, fault.line, fault.message) for fault in source.faults]


def test_included_lines_stand_behind_the_option(tmp_path: Path) -> None:
    """Nested files count from the file that names them."""
    (tmp_path / "req").mkdir()
    (tmp_path / "req" / "a.txt").write_text("one\n-r b.txt\n")
    (tmp_path / "req" / "b.txt").write_text("two==1 \\\n   --hash=sha256:ab\n# no\n\n")
    assert ["zero", "one", "two", "three"] == names_of(tmp_path, "zero", "-r req/a.txt", "three")


def test_included_file_twice_is_no_cycle(tmp_path: Path) -> None:
    """Two files may share a third."""
    (tmp_path / "a.txt").write_text("-r c.txt\n")
    (tmp_path / "b.txt").write_text("-r c.txt\n")
    (tmp_path / "c.txt").write_text("one\n")
    assert ["one", "one"] == names_of(tmp_path, "-r a.txt", "-r b.txt")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-r no.txt", "'no.txt' cannot be read (No such file or directory)"),
        ("-c no.txt", "'no.txt' cannot be read (No such file or directory)"),
        ("-r ../up.txt", "'../up.txt' is outside of this folder"),
        ("-r /etc/passwd", "'/etc/passwd' is outside of this folder"),
        ("-r link.txt", "'link.txt' is outside of this folder"),
        ("-r https://h/r.txt", "'https://h/r.txt' is on the network, and may say something else tomorrow"),
        ("-r .", "'.' cannot be read (Is a directory)"),
        ("-r pipe", "'pipe' is a device or a pipe, expected a file"),
    ],
)
def test_include_that_cannot_be_followed_is_a_fault(tmp_path: Path, line: str, message: str) -> None:
    """A file under test does not make its reader open others on the machine."""
    (tmp_path / "project").mkdir()
    (tmp_path / "up.txt").write_text("one\n")
    (tmp_path / "project" / "link.txt").symlink_to(tmp_path / "up.txt")
    os.mkfifo(tmp_path / "project" / "pipe")
    assert [("environment.yml", 5, message)] == complaints_of(tmp_path / "project", line)


def test_include_of_a_name_with_a_nul_is_a_fault(tmp_path: Path) -> None:
    """YAML can write one, and no file can have it in its name."""
    message = "a NUL character, which no name, path or address has"
    assert [("environment.yml", 5, message)] == complaints_of(tmp_path, r'"-r a\0.txt"')


def test_include_of_itself_is_a_fault_where_it_closes(tmp_path: Path) -> None:
    """Told at the line that closes the circle."""
    (tmp_path / "a.txt").write_text("one\n-r b.txt\n")
    (tmp_path / "b.txt").write_text("-r a.txt\n")
    assert [("b.txt", 1, "'a.txt' includes itself")] == complaints_of(tmp_path, "-r a.txt")


def test_fault_in_an_included_file_has_its_own_place(tmp_path: Path) -> None:
    """The line to correct is there, not here."""
    (tmp_path / "a.txt").write_text("one\n\ntwo=2\n")
    assert [("a.txt", 3, "'two=2' is no requirement")] == complaints_of(tmp_path, "-r a.txt")


def test_includes_that_multiply_end(tmp_path: Path) -> None:
    """Each file names the next twice: 2^30 readings."""
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text(f"-r {number + 1}.txt\n" * 2)
    (tmp_path / "30.txt").write_text("one\n")
    messages = {message for _, _, message in complaints_of(tmp_path, "-r 0.txt")}
    assert any("includes go too deep, or are too many" in message for message in messages)


def test_lines_with_a_backslash_are_joined() -> None:
    """They begin where the first begins; a comment's backslash joins nothing."""
    assert [
        Located("a==1 --hash=x --hash=y", 1, 2, "r.txt"),
        Located("# no \\", 4, 1, "r.txt"),
        Located("b", 5, 1, "r.txt"),
        Located("c", 6, 1, "r.txt"),
    ] == joined_lines(" a==1 \\\n  --hash=x \\\n  --hash=y\n# no \\\nb\nc\\", "r.txt")
