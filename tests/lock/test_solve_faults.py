"""A channel that fails: which channel, how, and what to do, whatever the library says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envaudit.errors import EnvauditError, InputError, NeededError
from envaudit.lock.channels import Channel
from envaudit.lock.condarc import Settings
from envaudit.lock.faults import channel_error
from envaudit.lock.network import client_settings, environment
from envaudit.lock.solve import start_solving
from envaudit.lock.spec import channels_for, spec_of
from envaudit.lock.virtual import virtual_packages
from tests.lock.channel import served

SETTINGS = Settings(remote_max_retries=0)


def _fail(name: str, folder: Path) -> EnvauditError:
    specs = [spec_of("numpy")]
    channels, _ = channels_for([name], specs, SETTINGS)
    solving = start_solving(
        {"linux-64": specs}, channels, SETTINGS, virtual_packages(), cache_dir=str(folder)
    )
    with solving, pytest.raises(EnvauditError) as caught:
        solving.result()
    return caught.value


@pytest.mark.parametrize(
    ("fault", "kind", "what"),
    [
        ("404", NeededError, "there is no such channel"),
        ("500", NeededError, "is out of order (HTTP 500)"),
        ("html", InputError, "answered with something that is no channel index"),
        ("half", NeededError, "broke off in the middle of its answer"),
        ("other bytes", InputError, "answered with something that is no channel index"),
        ("drop", NeededError, "broke off in the middle of its answer"),
    ],
)
def test_channel_that_answers_wrongly_is_named_with_what_it_did(
    channels_root: Path, tmp_path: Path, fault: str, kind: type[EnvauditError], what: str
) -> None:
    """Each way in which servers and networks fail has words of its own."""
    with served(channels_root, {"repodata.json": fault}) as server:
        error = _fail(f"{server.url}/train", tmp_path)
    assert (type(error), error.what) == (kind, what)
    assert error.where == f"channel {server.url}/train"
    assert error.next_step


def test_channel_that_refuses_names_the_ways_to_give_a_password(channels_root: Path, tmp_path: Path) -> None:
    """401 is no missing channel."""
    with served(channels_root, password="me:pw") as server:
        error = _fail(f"{server.url}/train", tmp_path)
    assert (type(error), error.what) == (NeededError, "refuses this user")
    assert "netrc" in error.next_step


def test_channel_with_a_wrong_token_does_not_tell_it(
    channels_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own words have the address with all that is in it."""
    monkeypatch.setenv("CHANNEL_TOKEN", "tk-0815")
    with served(channels_root, token="tk-4711") as server:
        error = _fail(f"{server.url}/t/${{CHANNEL_TOKEN}}/train", tmp_path)
    assert error.what == "refuses this user"
    assert "tk-0815" not in str(error)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("http://127.0.0.1:1/train", "cannot be reached"),
        ("file:///nowhere/train", "there is no such channel"),
    ],
)
def test_channel_that_is_not_there_is_told_from_one_that_is_down(
    tmp_path: Path, name: str, what: str
) -> None:
    """Nobody listens, or no such folder."""
    assert _fail(name, tmp_path).what == what


def test_channel_whose_index_cannot_be_kept_points_to_the_cache(channels_root: Path, tmp_path: Path) -> None:
    """A full disk, or a home folder that is not there: the channel is not at fault."""
    (tmp_path / "file").write_text("")
    with served(channels_root) as server:
        error = _fail(f"{server.url}/train", tmp_path / "file" / "cache")
    assert (type(error), error.what) == (NeededError, "its index cannot be kept in the cache")
    assert "XDG_CACHE_HOME" in error.next_step


def test_channel_whose_certificate_nobody_knows_points_to_ssl_verify() -> None:
    """A company's proxy signs everything anew."""
    channel = Channel("train", "https://a.example/train", ("https://a.example/train",))
    error = channel_error(channel, ["error sending request: invalid peer certificate: UnknownIssuer"])
    assert error.what == "its certificate is not trusted"
    assert "ssl_verify" in error.next_step


def test_channel_with_mirrors_names_them_all_without_passwords() -> None:
    """The user looks for the fault where the request went."""
    urls = ("https://me:pw@m.example/train", "https://n.example/t/tk-1/train")
    channel = Channel("train", "https://a.example/train", urls)
    error = channel_error(channel, ["x"])
    assert error.where == "channel train at https://m.example/train, https://n.example/t/<token>/train"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(), ""),
        (Settings(ssl_verify=False), "tls-no-verify = true"),
        (Settings(ssl_verify="truststore"), 'tls-root-certs = "system"'),
        (
            Settings(proxy_servers={"https": 'http://a"b:1', "ftp": "x"}),
            '[proxy-config]\nhttps = "http://a\\"b:1"',
        ),
    ],
)
def test_client_settings_are_what_the_conda_settings_say(settings: Settings, expected: str) -> None:
    """In the library's own configuration, quoted."""
    assert client_settings(settings) == expected


def test_environment_of_the_solver_has_the_users_certificates() -> None:
    """The system's store is told by SSL_CERT_FILE where the bundle is."""
    assert environment(Settings(ssl_verify="~/ca.pem"), {"A": "1"}) == {
        "A": "1",
        "SSL_CERT_FILE": os.path.expanduser("~/ca.pem"),
    }
    assert environment(Settings(ssl_verify="truststore"), {"A": "1"}) == {"A": "1"}


def test_solver_that_is_killed_is_no_empty_solution(channels_root: Path, tmp_path: Path) -> None:
    """Out of memory ends it without a word."""
    specs = [spec_of("numpy")]
    channels, _ = channels_for([(channels_root / "train").as_uri()], specs, SETTINGS)
    with start_solving(
        {"linux-64": specs}, channels, SETTINGS, virtual_packages(), cache_dir=str(tmp_path)
    ) as solving:
        solving._process.kill()
        with pytest.raises(NeededError, match=r"ended without an answer \(exit code -9"):
            solving.result()
