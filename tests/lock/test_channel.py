"""The local channel itself: packages that conda's own readers take, and bytes that never change."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.lock.channel import FAULTS, LocalChannel, served
from tests.lock.packages import build_package, recipes_of

# Locks of the local channel are committed: these change only with the recipes or the builder.
KNOWN_SHA256 = {
    "numpy-1.26.4-py310hb13e2d6": "afec5f67face17a176cd158e20d429209565d1ccb5c03801aec0c8527afa5e2a",
    "numpy-1.24.4-py310h8deb116": "a429b760f2494f178951030116e03e7bece075c957e7c46177e7ca81dad85e08",
}


@pytest.mark.parametrize("name", KNOWN_SHA256)
def test_channel_package_has_the_bytes_that_committed_locks_name(
    train_channel: LocalChannel, name: str
) -> None:
    """On every machine, with every version of a compressor."""
    assert KNOWN_SHA256[name] == hashlib.sha256(train_channel.package(name).read_bytes()).hexdigest()


def test_channel_index_names_every_package(train_channel: LocalChannel) -> None:
    """The index lists what lies in its folder, with the hashes of the files."""
    for folder in ("noarch", "linux-64", "osx-arm64"):
        index = json.loads((train_channel.folder / folder / "repodata.json").read_text())
        listed = {**index["packages"], **index["packages.conda"]}
        files = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (train_channel.folder / folder).iterdir()
            if path.name.endswith((".conda", ".tar.bz2"))
        }
        assert files == {name: record["sha256"] for name, record in listed.items()}


def test_channel_package_built_again_has_the_same_bytes(train_channel: LocalChannel, tmp_path: Path) -> None:
    """No time, no user and no order of a folder enters a package."""
    for name, recipe in recipes_of("train"):
        again = build_package(name, recipe, tmp_path)
        first = train_channel.folder / recipe["subdir"] / again.name
        assert first.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("name", ["numpy-1.26.4-py310hb13e2d6", "numpy-1.24.4-py310h8deb116"])
def test_channel_package_is_read_by_conda_package_streaming(train_channel: LocalChannel, name: str) -> None:
    """Both formats are what conda's own reader takes."""
    from conda_package_streaming.package_streaming import stream_conda_component

    path = train_channel.package(name)
    names = {
        member.name
        for part in ("info", "pkg")
        for _, member in stream_conda_component(path.name, io.BytesIO(path.read_bytes()), part)
    }
    assert {"info/index.json", "info/paths.json"} < names
    assert "lib/python3.10/site-packages/numpy/__init__.py" in names


def test_served_channel_gives_files_and_remembers_who_asked(channels_root: Path) -> None:
    """Whole without a fault, and 404 for what is not there."""
    with served(channels_root) as server:
        with urllib.request.urlopen(f"{server.url}/train/noarch/repodata.json") as answer:
            assert "packages" in json.loads(answer.read())
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{server.url}/train/../../etc/passwd")
    assert "/train/noarch/repodata.json" == server.requests[0]


@pytest.mark.parametrize("fault", FAULTS)
def test_served_channel_with_a_fault_does_not_give_the_file(channels_root: Path, fault: str) -> None:
    """Each fault reaches the reader, in its own way."""
    whole = (channels_root / "train/noarch/repodata.json").read_bytes()
    with served(channels_root, {"repodata.json": fault}) as server:
        text = b""
        address = f"{server.url}/train/noarch/repodata.json"
        broken = contextlib.suppress(OSError, http.client.IncompleteRead)
        with broken, urllib.request.urlopen(address) as answer:
            text = answer.read()
        assert whole != text


def test_served_channel_with_a_password_asks_for_it(channels_root: Path) -> None:
    """Without it the answer is 401, with it the file."""
    with served(channels_root, password="ann:secret") as server:
        address = f"{server.url}/train/noarch/repodata.json"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(address)
        request = urllib.request.Request(address, headers={"Authorization": "Basic YW5uOnNlY3JldA=="})
        with urllib.request.urlopen(request) as answer:
            assert 200 == answer.status
