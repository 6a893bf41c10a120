"""Laws of channel names: one channel has one name, and a lock's URL always leads back to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from envaudit.lock.channels import fetch_urls, resolve_channels
from envaudit.lock.condarc import Settings

WORD = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True).filter(
    lambda word: word not in ("defaults", "t", "pkgs")
)
HOST = WORD.map(lambda word: f"https://{word}.example")
NAME = st.one_of(WORD, st.builds("{}/label/{}".format, WORD, WORD), st.builds("{}/{}".format, HOST, WORD))
SETTINGS = st.builds(
    Settings,
    channel_alias=HOST,
    custom_channels=st.dictionaries(WORD, HOST, max_size=3),
    mirrored_channels=st.dictionaries(WORD, st.tuples(HOST), max_size=3),
)


@given(NAME, SETTINGS)
def test_channel_by_its_canonical_name_is_itself(name: str, settings: Settings) -> None:
    """What a lock names is read back as the same channel, by the same user."""
    (channel,) = resolve_channels([name], settings)
    assert resolve_channels([channel.canonical], settings) == (channel,)


@given(NAME, SETTINGS, SETTINGS)
def test_channel_has_one_name_whoever_reads_it(name: str, ours: Settings, theirs: Settings) -> None:
    """The canonical side of a bare name or a foreign URL does not depend on the settings."""
    (channel,) = resolve_channels([name], ours)
    (again,) = resolve_channels([channel.canonical], theirs)
    if "://" not in channel.canonical:
        assert (again.canonical, again.base) == (channel.canonical, channel.base)


@given(st.lists(NAME, min_size=1, max_size=4), SETTINGS)
def test_package_of_a_channel_is_fetched_from_one_of_its_places(names: list[str], settings: Settings) -> None:
    """The way back from a lock's URL ends where the channel is fetched."""
    channels = resolve_channels(names, settings)
    for channel in channels:
        found = fetch_urls(f"{channel.base}/noarch/a-1-0.conda", channels)
        assert all(url.endswith("/noarch/a-1-0.conda") for url in found)
        longest = max(
            (c for c in channels if f"{channel.base}/".startswith(f"{c.base}/")), key=lambda c: len(c.base)
        )
        if longest == channel:
            assert found == tuple(f"{url}/noarch/a-1-0.conda" for url in channel.urls)
