"""Bytes to text: whatever an editor or a shell saved an environment file as."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envaudit.errors import InputError
from envaudit.lock.sourcetext import MAX_BYTES, Decoded, decode, read_text

TEXT = "name: übung\ndependencies: [python]\n"


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff"),
     ("utf-32-le", b"\xff\xfe\0\0"), ("utf-32-be", b"\0\0\xfe\xff")],
)  # fmt: skip
def test_text_with_a_byte_order_mark_is_decoded_by_it(encoding: str, mark: bytes) -> None:
    """PowerShell's `>` writes the second."""
    assert Decoded(TEXT, encoding, True) == decode(mark + TEXT.encode(encoding), "e.yml")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_text_without_a_mark_is_decoded_by_its_zeros(encoding: str) -> None:
    """Text begins with ASCII; UTF-16 then has a zero in every second byte."""
    assert Decoded(TEXT, encoding, False) == decode(TEXT.encode(encoding), "e.yml")


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_line_ends_of_all_systems_are_one(end: str) -> None:
    """Columns and selectors must not see a carriage return."""
    assert "a\nb\n" == decode(f"a{end}b{end}".encode(), "e.yml").text


def test_bytes_of_another_encoding_are_refused_with_line_and_byte() -> None:
    """Latin-1 has no mark; to guess it would change names in silence."""
    with pytest.raises(
        InputError, match=r"^e\.yml:2: is not UTF-8 \(byte 0xe9 at offset 6\)\. Save it as UTF-8\.$"
    ):
        decode(b"a: b\nc\xe9", "e.yml")


def test_text_with_a_nul_is_refused() -> None:
    """No YAML has one; what has is another kind of file."""
    with pytest.raises(InputError, match=r"^e\.yml:2: is not text"):
        decode(b"ab\ncd\0ef", "e.yml")


def test_file_that_is_not_there_is_named() -> None:
    """With the system's own words."""
    with pytest.raises(InputError, match=r"^nowhere/e\.yml: cannot be read \(No such file or directory\)\.$"):
        read_text("nowhere/e.yml")


def test_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    """Nobody writes a megabyte of packages."""
    path = tmp_path / "e.yml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(InputError, match="is larger than 1024 KiB"):
        read_text(str(path))


def test_endless_file_is_read_to_the_limit_only() -> None:
    """`lint /dev/zero` ends at once."""
    if not os.path.exists("/dev/zero"):
        pytest.skip("no /dev/zero")
    with pytest.raises(InputError, match="is larger than"):
        read_text("/dev/zero")
