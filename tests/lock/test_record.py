"""From the solver's record to the names that a lock may hold."""

from __future__ import annotations

from typing import Any

import pytest

from envaudit.errors import EnvauditError
from envaudit.lock.channels import Channel, resolve_channels
from envaudit.lock.condarc import DEFAULT_ALIAS, Settings
from envaudit.lock.record import Record, record_of

FILE = "numpy-1.26.4-py310hb13e2d6_0.conda"


def _record(url: str, channel: str, channels: tuple[Channel, ...]) -> Record:
    table: dict[str, Any] = {
        "name": "numpy",
        "version": "1.26.4",
        "build": "py310hb13e2d6_0",
        "build_number": 0,
        "subdir": "linux-64",
        "fn": FILE,
        "url": url,
        "channel": channel,
    }
    return record_of(table, channels)


def test_record_of_a_channel_as_it_is_keeps_its_url() -> None:
    """The ordinary case."""
    channels = resolve_channels(["conda-forge"], Settings())
    url = f"{DEFAULT_ALIAS}/conda-forge/linux-64/{FILE}"
    record = _record(url, f"{DEFAULT_ALIAS}/conda-forge/", channels)
    assert ("conda-forge", url, FILE) == (record.channel, record.url, record.file_name)


def test_record_of_a_mirror_whose_index_points_elsewhere_stays_canonical() -> None:
    """CEP 15 lets an index name another place for its files; the lock names the channel all the same."""
    channels = resolve_channels(["conda-forge"], Settings(channel_alias="https://mirror.example"))
    record = _record(f"https://cdn.example/x/{FILE}", "https://mirror.example/conda-forge/", channels)
    assert record.url == f"{DEFAULT_ALIAS}/conda-forge/linux-64/{FILE}"


def test_record_with_a_credential_that_was_rewritten_never_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library writes the channel with stars, and the URL perhaps in another form than it was given."""
    monkeypatch.setenv("SECRET", "pw")
    channels = resolve_channels(["https://me:${SECRET}@h.example/c".replace("me", "${SECRET}")], Settings())
    record = _record(
        f"https://pw:pw@H.example/c/linux-64/{FILE}", "https://pw:********@h.example/c", channels
    )
    assert record.url == f"https://${{SECRET}}:${{SECRET}}@h.example/c/linux-64/{FILE}"
    assert "pw" not in repr(record)


def test_record_of_two_channels_where_one_is_in_the_other_is_from_the_longer() -> None:
    """`nvidia/label/cuda-12.4.0` lies under `nvidia`."""
    channels = resolve_channels(["nvidia", "nvidia/label/cuda-12.4.0"], Settings())
    place = f"{DEFAULT_ALIAS}/nvidia/label/cuda-12.4.0"
    record = _record(f"{place}/linux-64/{FILE}", place + "/", channels)
    assert record.channel == "nvidia/label/cuda-12.4.0"


def test_record_of_a_channel_that_was_not_given_is_no_part_of_a_lock() -> None:
    """Nothing of unknown origin comes in."""
    channels = resolve_channels(["conda-forge"], Settings())
    with pytest.raises(EnvauditError, match="a channel it was not given"):
        _record(f"https://h.example/c/linux-64/{FILE}", "https://h.example/c/", channels)
