"""Channel names: what the lock calls them and where this user fetches them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envaudit.errors import UsageError
from envaudit.lock.channels import Channel, fetch_urls, resolve_channels
from envaudit.lock.condarc import DEFAULT_ALIAS, DEFAULTS_HOST, Settings, read_settings

MIRROR = "https://mirrors.example/anaconda"
BEHIND_A_MIRROR = Settings(
    default_channels=(f"{MIRROR}/pkgs/main", f"{MIRROR}/pkgs/r"),
    custom_channels={"conda-forge": f"{MIRROR}/cloud", "pytorch": f"{MIRROR}/cloud"},
)


def _one(name: str, settings: Settings | None = None) -> Channel:
    (channel,) = resolve_channels([name], settings or Settings())
    return channel


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conda-forge", f"{DEFAULT_ALIAS}/conda-forge"),
        ("nvidia/label/cuda-11.7.0", f"{DEFAULT_ALIAS}/nvidia/label/cuda-11.7.0"),
        ("pkgs/main", f"{DEFAULTS_HOST}/pkgs/main"),
    ],
)
def test_channel_of_a_bare_name_stands_under_the_alias(name: str, expected: str) -> None:
    """Names keep their label, and `pkgs/` has a place of its own."""
    assert _one(name) == Channel(name, expected, (expected,))


@pytest.mark.parametrize(
    "written",
    [f"{DEFAULT_ALIAS}/conda-forge", f"{DEFAULT_ALIAS}/conda-forge/", f"{DEFAULT_ALIAS}/conda-forge/noarch"],
)
def test_channel_of_a_known_url_has_its_name(written: str) -> None:
    """One channel has one name, however it is written; a platform folder is not part of it."""
    assert _one(written) == _one("conda-forge")


def test_channel_of_a_private_url_is_that_url() -> None:
    """Nobody else's settings can turn it into anything."""
    url = "https://conda.corp.example/train"
    assert _one(url) == Channel(url, url, (url,))


def test_defaults_are_expanded_and_share_a_group() -> None:
    """`defaults` is no channel for the solver."""
    found = resolve_channels(["defaults", "nodefaults"], Settings())
    assert [(channel.canonical, channel.group) for channel in found] == [
        ("pkgs/main", "defaults"),
        ("pkgs/r", "defaults"),
    ]


def test_no_channels_at_all_are_the_users_or_defaults() -> None:
    """A file without `channels:` means what conda would use."""
    assert [channel.canonical for channel in resolve_channels([], Settings(channels=("bioconda",)))] == [
        "bioconda"
    ]
    assert [channel.canonical for channel in resolve_channels(["nodefaults"], Settings())] == [
        "pkgs/main",
        "pkgs/r",
    ]


@pytest.mark.parametrize(
    ("name", "base", "url"),
    [
        ("conda-forge", f"{DEFAULT_ALIAS}/conda-forge", f"{MIRROR}/cloud/conda-forge"),
        ("pytorch/label/lts", f"{DEFAULT_ALIAS}/pytorch/label/lts", f"{MIRROR}/cloud/pytorch/label/lts"),
        (f"{MIRROR}/cloud/conda-forge", f"{DEFAULT_ALIAS}/conda-forge", f"{MIRROR}/cloud/conda-forge"),
        (f"{MIRROR}/pkgs/main", f"{DEFAULTS_HOST}/pkgs/main", f"{MIRROR}/pkgs/main"),
        ("pkgs/r", f"{DEFAULTS_HOST}/pkgs/r", f"{MIRROR}/pkgs/r"),
        ("nvidia", f"{DEFAULT_ALIAS}/nvidia", f"{DEFAULT_ALIAS}/nvidia"),
    ],
)
def test_channel_behind_a_mirror_keeps_its_canonical_name(name: str, base: str, url: str) -> None:
    """The settings of the mirror guides: fetched there, named as everyone knows it."""
    channel = _one(name, BEHIND_A_MIRROR)
    assert (channel.base, channel.url, channel.is_mirrored) == (base, url, base != url)


def test_channel_alias_of_a_mirror_moves_the_fetching_only() -> None:
    """The lock of a user with another alias reads the same everywhere."""
    channel = _one("conda-forge", Settings(channel_alias=MIRROR))
    assert (channel.base, channel.url) == (f"{DEFAULT_ALIAS}/conda-forge", f"{MIRROR}/conda-forge")


def test_mirrored_channels_take_names_and_urls_and_keep_their_order() -> None:
    """Several mirrors are tried in turn."""
    settings = Settings(
        mirrored_channels={
            "conda-forge": ("file:///a/conda-forge", "https://b.example/conda-forge"),
            "https://conda.example": ("file:///mirror",),
        }
    )
    assert _one("conda-forge", settings).urls == ("file:///a/conda-forge", "https://b.example/conda-forge")
    train = _one("https://conda.example/train", settings)
    assert (train.canonical, train.urls) == ("https://conda.example/train", ("file:///mirror/train",))


def test_mirrored_channel_may_be_keyed_by_the_url_that_an_alias_makes_of_its_name() -> None:
    """That is its address for this user; written out, it is the same channel."""
    url = "https://corp.example/conda/train"
    settings = Settings(
        channel_alias="https://corp.example/conda", mirrored_channels={url: ("file:///mirror/train",)}
    )
    expected = Channel("train", f"{DEFAULT_ALIAS}/train", ("file:///mirror/train",))
    assert expected == _one("train", settings) == _one(url, settings)


def test_multichannels_may_hold_a_channel_of_their_own_name() -> None:
    """`conda-forge: [corp, conda-forge]` is how people put a private channel in front."""
    settings = Settings(custom_multichannels={"conda-forge": ("https://corp.example/x", "conda-forge")})
    found = resolve_channels(["conda-forge"], settings)
    assert [(channel.canonical, channel.group) for channel in found] == [
        ("https://corp.example/x", "conda-forge"),
        ("conda-forge", "conda-forge"),
    ]


def test_multichannels_in_a_circle_are_refused() -> None:
    """`a` in `b` in `a` would never end."""
    with pytest.raises(UsageError, match="contains itself"):
        resolve_channels(["a"], Settings(custom_multichannels={"a": ("b",), "b": ("a",)}))


def test_channel_with_variables_is_fetched_with_them_and_locked_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The credential is in the address that is fetched, never in the one that is written."""
    monkeypatch.setenv("CHANNEL_TOKEN", "tk-123")
    channel = _one("https://conda.corp.example/t/${CHANNEL_TOKEN}/train")
    assert channel.base == "https://conda.corp.example/t/${CHANNEL_TOKEN}/train"
    assert channel.urls == ("https://conda.corp.example/t/tk-123/train",)
    assert "tk-123" not in repr(channel)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ("custom_multichannels: {{lab: ['{}']}}", "lab"),
        ("default_channels: ['{}']", "defaults"),
        ("channels: ['{}']", "nodefaults"),
    ],
)
def test_channel_with_variables_in_the_users_settings_is_locked_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, name: str
) -> None:
    """The settings are no worse a place for them than the source; what is no secret is filled in."""
    environ = {"CHANNEL_TOKEN": "tk-123", "CHANNEL_HOST": "https://conda.corp.example"}
    monkeypatch.setattr(os, "environ", {**environ, "HOME": str(tmp_path)})
    (tmp_path / ".condarc").write_text(settings.format("${CHANNEL_HOST}/x"), "utf-8")
    plain = _one(name, read_settings(root=str(tmp_path)))
    assert ("https://conda.corp.example/x",) == plain.urls == (plain.base,)
    written = "https://conda.corp.example/t/${CHANNEL_TOKEN}/x"
    (tmp_path / ".condarc").write_text(settings.format(written), "utf-8")
    secret = _one(name, read_settings(root=str(tmp_path)))
    assert (written, written) == (secret.canonical, secret.base)
    assert ("https://conda.corp.example/t/tk-123/x",) == secret.urls


def test_channel_of_defaults_with_variables_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror of `pkgs/main` is fetched with the password, and the lock has neither."""
    monkeypatch.setattr(os, "environ", {"P": "pw", "HOME": str(tmp_path)})
    (tmp_path / ".condarc").write_text("default_channels: ['https://u:${P}@m.example/pkgs/main']", "utf-8")
    (found,) = resolve_channels(["defaults"], read_settings(root=str(tmp_path)))
    assert ("pkgs/main", f"{DEFAULTS_HOST}/pkgs/main") == (found.canonical, found.base)
    assert ("https://u:pw@m.example/pkgs/main",) == found.urls


def test_channel_with_an_unset_variable_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A literal `${TOKEN}` would only be answered with 401."""
    monkeypatch.delenv("CHANNEL_TOKEN", raising=False)
    with pytest.raises(UsageError, match="CHANNEL_TOKEN is not set"):
        _one("https://conda.corp.example/t/${CHANNEL_TOKEN}/train")


@pytest.mark.parametrize(
    "written",
    [
        "https://me:hunter2@conda.corp.example/train",
        "https://hunter2@conda.corp.example/train",
        "https://conda.corp.example/t/hunter2/train",
        "https://conda.corp.example/t/hunter2",
    ],
)
def test_channel_with_a_literal_credential_is_refused_without_telling_it(written: str) -> None:
    """What stands in a source file ends up in the lock."""
    with pytest.raises(UsageError, match="is written out") as caught:
        _one(written)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "two words"])
def test_channel_that_is_no_name_is_refused(name: str) -> None:
    """An empty line of a list, and a comment that lost its sign."""
    with pytest.raises(UsageError, match="is no channel"):
        resolve_channels([name], Settings())


@pytest.mark.parametrize(
    "address",
    ["http://[::1/train", "http://h.example:99999/train", "https://h.example/x?a=1", "https://h.example/x#y"],
)
@pytest.mark.parametrize("mirrored", [False, True])
def test_channel_of_an_address_where_none_can_be_is_refused(address: str, mirrored: bool) -> None:
    """The solver takes some of them for an error of its own, and others for another channel."""
    settings = Settings(mirrored_channels={"train": (address,)}) if mirrored else Settings()
    with pytest.raises(UsageError, match="no channel is at such an address") as caught:
        _one("train" if mirrored else address, settings)
    assert address == caught.value.where


@pytest.mark.parametrize("password", ["p#w", "p?w", "p/w", "12#w", "p]w"])
def test_channel_whose_password_breaks_its_address_is_refused_without_it(
    monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    """The address has no user then, and what looks for passwords finds none in it."""
    monkeypatch.setenv("CHANNEL_PASSWORD", password)
    with pytest.raises(UsageError, match="%23") as caught:
        _one("https://u:${CHANNEL_PASSWORD}@h.example/x", Settings())
    assert "https://<secret>@h.example/x" == caught.value.where


def test_package_urls_of_a_lock_go_through_the_mirror() -> None:
    """The longest channel that fits counts; others stay as they are."""
    channels = resolve_channels(["conda-forge", "pytorch"], BEHIND_A_MIRROR)
    tail = "linux-64/zlib-1.3-0.conda"
    assert fetch_urls(f"{DEFAULT_ALIAS}/conda-forge/{tail}", channels) == (
        f"{MIRROR}/cloud/conda-forge/{tail}",
    )
    assert fetch_urls(f"https://corp.example/{tail}", channels) == (f"https://corp.example/{tail}",)
