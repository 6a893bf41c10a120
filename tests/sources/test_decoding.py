"""From bytes to text: encodings, line ends, terminal controls, limits."""

from __future__ import annotations

import pytest

from envaudit.errors import InputError
from envaudit.sources.decoding import MAX_BYTES, decoded


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_text_with_a_mark_is_read_in_its_encoding(encoding: str) -> None:
    """PowerShell writes UTF-16."""
    assert "a: ü\nb\n" == decoded("a: ü\r\nb\r".encode(encoding), "x")


def test_terminal_controls_are_left_out() -> None:
    """A recorded terminal has colours; its title and its bells say nothing."""
    data = b"\x1b[1;32mPyTorch\x1b[0m version\x1b]0;title\x07: 2\x07\x08\n\tb"
    assert "PyTorch version: 2\n\tb" == decoded(data, "x")


def test_bytes_of_another_encoding_become_replacement_characters() -> None:
    """One letter of a foreign word costs no report."""
    assert "ar\ufffd" == decoded(b"ar\xe9", "x")


@pytest.mark.parametrize(
    ("data", "words"), [(b"a\0b", "not a text"), (b" " * (MAX_BYTES + 1), f"larger than {MAX_BYTES}")]
)
def test_data_that_is_no_text_is_refused(data: bytes, words: str) -> None:
    """A program, or far too much."""
    with pytest.raises(InputError, match=words):
        decoded(data, "x")
