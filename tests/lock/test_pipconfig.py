"""The index of pip, for uv."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.lock.pipconfig import index_of_pip

MIRROR = "https://u:p%40ss@mirror.example/simple"


def user(home: Path, pip: str = "", **more: str) -> dict[str, str]:
    """The environment of a user with this pip.conf."""
    folder = home / ".config" / "pip"
    folder.mkdir(parents=True)
    (folder / "pip.conf").write_text(pip)
    return {"HOME": str(home), "XDG_CONFIG_DIRS": str(home / "xdg"), **more}


def test_index_of_pip_conf_is_found(tmp_path: Path) -> None:
    """With a percent sign in its password."""
    assert MIRROR == index_of_pip(user(tmp_path, f"[global]\nindex-url = {MIRROR}\n"))


def test_index_of_the_environment_comes_first(tmp_path: Path) -> None:
    """As pip has it."""
    environ = user(tmp_path, "[global]\nindex-url = https://other.example\n", PIP_INDEX_URL=MIRROR)
    assert MIRROR == index_of_pip(environ)


def test_higher_file_comes_first(tmp_path: Path) -> None:
    """`PIP_CONFIG_FILE` over the user's, the user's over the machine's."""
    environ = user(tmp_path, "[global]\nindex-url = https://middle.example\n")
    low = tmp_path / "xdg" / "pip"
    low.mkdir(parents=True)
    (low / "pip.conf").write_text("[global]\nindex-url = https://low.example\n")
    assert "https://middle.example" == index_of_pip(environ)
    high = tmp_path / "high.conf"
    high.write_text(f"[global]\nindex-url = {MIRROR}\n")
    assert MIRROR == index_of_pip({**environ, "PIP_CONFIG_FILE": str(high)})


@pytest.mark.parametrize("setting", ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_NO_INDEX", "UV_CONFIG_FILE"])
def test_setting_of_uv_stands(tmp_path: Path, setting: str) -> None:
    """Whoever configured uv is obeyed."""
    assert index_of_pip(user(tmp_path, f"[global]\nindex-url = {MIRROR}\n", **{setting: "x"})) is None


def test_configuration_file_of_uv_stands(tmp_path: Path) -> None:
    """Its content is uv's own matter."""
    environ = user(tmp_path, f"[global]\nindex-url = {MIRROR}\n")
    (tmp_path / ".config" / "uv").mkdir()
    (tmp_path / ".config" / "uv" / "uv.toml").write_text("")
    assert index_of_pip(environ) is None


@pytest.mark.parametrize(
    "text", ["", "[global]\ntimeout = 60\n", "no section\n", "[install]\nindex-url = x\n"]
)
def test_configuration_without_an_index_gives_none(tmp_path: Path, text: str) -> None:
    """Damaged ones too."""
    assert index_of_pip(user(tmp_path, text)) is None
