"""Where a token comes from, and that it is told to nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envaudit.control.hub import Hub, listen
from envaudit.control.tokens import VARIABLE, fresh_token, token_of
from envaudit.errors import UsageError

SECRET = "correct horse battery staple"


def test_token_is_the_variables_or_the_files_before_it(tmp_path: Path) -> None:
    """A newline at its end is not of it."""
    file = tmp_path / "token"
    file.write_text(f"{SECRET} file\n")
    file.chmod(0o600)
    assert b"" == token_of({})
    assert SECRET.encode() == token_of({VARIABLE: f"{SECRET}\n"})
    assert f"{SECRET} file".encode() == token_of({VARIABLE: SECRET}, str(file))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666, 0o610])
def test_token_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    """And what to do is said, not what is in it."""
    file = tmp_path / "token"
    file.write_text(SECRET)
    file.chmod(mode)
    with pytest.raises(UsageError, match="chmod 600") as caught:
        token_of({}, str(file))
    assert SECRET not in repr(vars(caught.value))


@pytest.mark.parametrize("token", ["short", "x" * 15, "x" * 5000])
def test_token_that_can_be_guessed_or_is_no_token_is_refused(tmp_path: Path, token: str) -> None:
    """From the variable as from a file."""
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    for environ, path in (({VARIABLE: token}, ""), ({}, str(file))):
        with pytest.raises(UsageError, match="16 to 4096") as caught:
            token_of(environ, path)
        assert token not in str(caught.value)


def test_token_file_that_is_none_is_refused_without_waiting(tmp_path: Path) -> None:
    """A folder, a pipe that nobody writes, nothing at all."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("", "pipe", "absent"):
        with pytest.raises(UsageError):
            token_of({}, str(tmp_path / name))


def test_fresh_token_is_long_and_new() -> None:
    """As good as a user's."""
    assert fresh_token() != fresh_token()
    assert 64 == len(token_of({VARIABLE: fresh_token().decode()}))


def test_hub_and_its_parts_do_not_show_the_token() -> None:
    """In no text that an exception or a log may hold."""
    hub = Hub(listen("127.0.0.1", 0), 1, SECRET.encode())
    assert SECRET not in f"{hub!r} {hub} {hub.refused} {hub.members}"
    hub.close(0)
