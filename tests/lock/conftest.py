"""The local channels, built once for all tests of the lock room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lock.channel import LocalChannel, build_channel
from tests.lock.locks import BASE
from tests.lock.network import certificates, https_channel
from tests.lock.workplace import Workplace

__all__ = ["certificates", "channels_root", "https_channel", "train_channel", "workplace"]


@pytest.fixture(scope="session")
def channels_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the channels `train` and `extra`: what `served` takes. Not to be written to."""
    root = tmp_path_factory.mktemp("channels")
    for name in ("train", "extra"):
        build_channel(root / name, name)
    return root


@pytest.fixture(scope="session")
def train_channel(channels_root: Path) -> LocalChannel:
    """The channel `train`."""
    return LocalChannel(channels_root / "train")


@pytest.fixture
def workplace(tmp_path: Path, train_channel: LocalChannel) -> Workplace:
    """A user whose settings send https://conda.example/train to the local channel."""
    place = Workplace(tmp_path)
    place.mirror({BASE: train_channel.url})
    return place
