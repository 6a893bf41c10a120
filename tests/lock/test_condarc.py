"""The user's conda settings: found where conda finds them, merged as conda merges them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from envaudit.errors import InputError, UsageError
from envaudit.lock.condarc import DEFAULT_CHANNELS, Settings, read_settings


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_settings_without_any_file_are_condas_defaults(tmp_path: Path) -> None:
    """A machine without conda has no .condarc, and locks all the same."""
    assert read_settings({"HOME": str(tmp_path)}, root=str(tmp_path)) == Settings()


def test_settings_of_later_places_win_and_are_listed(tmp_path: Path) -> None:
    """System, home, prefix, CONDARC: each overrides the one before, lists put theirs first."""
    home, prefix, named = tmp_path / "home", tmp_path / "prefix", tmp_path / "named.yml"
    _write(tmp_path / "etc/conda/.condarc", "channel_alias: https://a.example\nchannels: [one]\n")
    _write(tmp_path / "etc/conda/condarc.d/20.yml", "custom_channels: {x: https://b.example}\n")
    _write(tmp_path / "etc/conda/condarc.d/10.yml", "custom_channels: {x: https://no.example}\n")
    _write(home / ".condarc", "channels: [two]\ncustom_channels: {y: https://c.example/}\n")
    _write(prefix / ".condarc", "channel_alias: https://d.example/\n")
    _write(named, "channel_priority: strict\n")
    environ = {"HOME": str(home), "CONDA_PREFIX": str(prefix), "CONDARC": str(named)}
    settings = read_settings(environ, root=str(tmp_path))
    assert settings.channel_alias == "https://d.example"
    assert settings.channels == ("two", "one")
    assert settings.custom_channels == {"x": "https://b.example", "y": "https://c.example"}
    assert settings.channel_priority == "strict"
    assert [Path(path).name for path in settings.files] == [
        ".condarc",
        "10.yml",
        "20.yml",
        ".condarc",
        ".condarc",
        "named.yml",
    ]


def test_settings_of_the_environment_win_over_files(tmp_path: Path) -> None:
    """`CONDA_<KEY>` is the last word, as for conda; lists are separated by commas."""
    _write(tmp_path / ".condarc", "channel_priority: strict\nssl_verify: true\n")
    environ = {
        "HOME": str(tmp_path),
        "CONDA_CHANNEL_PRIORITY": "disabled",
        "CONDA_SSL_VERIFY": "false",
        "CONDA_DEFAULT_CHANNELS": "https://a.example/pkgs/main, https://a.example/pkgs/r",
    }
    settings = read_settings(environ, root=str(tmp_path))
    assert settings.channel_priority == "disabled"
    assert settings.ssl_verify is False
    assert settings.default_channels == ("https://a.example/pkgs/main", "https://a.example/pkgs/r")


def test_settings_with_variables_are_filled_in(tmp_path: Path) -> None:
    """Passwords stay out of .condarc by way of variables."""
    _write(tmp_path / ".condarc", "custom_channels: {x: 'https://${U}:$P@a.example'}\nproxy_servers: {}\n")
    settings = read_settings({"HOME": str(tmp_path), "U": "me", "P": "pw"}, root=str(tmp_path))
    assert settings.custom_channels == {"x": "https://me:pw@a.example"}
    assert "pw" not in repr(settings)


@pytest.mark.parametrize("text", ["channels: &a [*a]", "custom_channels: &a {x: *a}", "BOMB"])
def test_settings_that_hold_themselves_are_refused(tmp_path: Path, text: str) -> None:
    """YAML says it in a line, and to follow it would take for ever."""
    if text == "BOMB":
        lists = [f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]" for below, name in pairwise("abcdefghi")]
        text = "\n".join(["a: &a [x, x]", *lists, "channels: *i"])
    _write(tmp_path / ".condarc", f"{text}\n")
    with pytest.raises(UsageError, match="expected a"):
        read_settings({"HOME": str(tmp_path)}, root=str(tmp_path))


def test_proxy_without_a_scheme_is_spoken_to_by_http(tmp_path: Path) -> None:
    """As the library that conda uses takes it; the solver's takes none."""
    _write(
        tmp_path / ".condarc", "proxy_servers: {https: 'proxy.example:3128', http: 'http://p.example:1'}\n"
    )
    settings = read_settings({"HOME": str(tmp_path)}, root=str(tmp_path))
    assert {"https": "http://proxy.example:3128", "http": "http://p.example:1"} == settings.proxy_servers


@pytest.mark.parametrize(("text", "expected"), [("true", "flexible"), ("false", "disabled")])
def test_settings_with_an_old_priority_keep_its_meaning(tmp_path: Path, text: str, expected: str) -> None:
    """Before conda 4.6 the priority was a truth value, and old files still say so."""
    _write(tmp_path / ".condarc", f"channel_priority: {text}\n")
    assert read_settings({"HOME": str(tmp_path)}, root=str(tmp_path)).channel_priority == expected


def test_settings_with_unknown_keys_and_nulls_ignore_them(tmp_path: Path) -> None:
    """Other tools' keys and empty values stand in many files."""
    _write(tmp_path / ".condarc", "show_channel_urls: true\nchannels:\ndefault_channels: null\n")
    settings = read_settings({"HOME": str(tmp_path)}, root=str(tmp_path))
    assert (settings.channels, settings.default_channels) == ((), DEFAULT_CHANNELS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("channel_alias: [a]\n", "channel_alias: expected a URL, got list"),
        (
            "channel_priority: sometimes\n",
            "channel_priority: expected one of strict, flexible, disabled, got str",
        ),
        ("custom_channels: [a]\n", "custom_channels: expected a map of name to URL, got list"),
        ("default_channels: {a: b}\n", "default_channels: expected a list of channels, got dict"),
        ("remote_max_retries: -1\n", "remote_max_retries: expected a number, got int"),
    ],
)
def test_settings_of_a_wrong_shape_are_refused_by_key(tmp_path: Path, text: str, words: str) -> None:
    """The file and the key are named: settings are merged from many places."""
    _write(tmp_path / ".condarc", text)
    with pytest.raises(UsageError) as caught:
        read_settings({"HOME": str(tmp_path)}, root=str(tmp_path))
    assert (caught.value.what, caught.value.where) == (words, str(tmp_path / ".condarc"))


def test_settings_of_the_environment_that_are_no_yaml_name_the_variable(tmp_path: Path) -> None:
    """A value is YAML, as in a file."""
    with pytest.raises(UsageError, match=r"^CONDA_SSL_VERIFY: not a value"):
        read_settings({"CONDA_SSL_VERIFY": "[", "HOME": str(tmp_path)}, root=str(tmp_path))


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "a: !!python/object/apply:os.system ['true']\n"])
def test_settings_that_are_no_mapping_are_unreadable(tmp_path: Path, text: str) -> None:
    """A list, half a file, and a YAML tag that would run something."""
    _write(tmp_path / ".condarc", text)
    with pytest.raises(InputError, match=r"\.condarc"):
        read_settings({"HOME": str(tmp_path)}, root=str(tmp_path))
