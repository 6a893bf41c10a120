"""`envaudit mirror`: a channel that needs no network."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest

from envaudit.lock.mirror import MARKER
from envaudit.lock.prefix import held
from tests.lock.channel import LocalChannel, build_channel, served
from tests.lock.locks import BASE, SMALL, lock_entry, pip_entry, small_lock, write_lock
from tests.lock.packages import running_python
from tests.lock.wheels_at_hand import write_wheel
from tests.lock.workplace import Workplace, tree_of

LOCK = "train.conda-lock.yml"


@pytest.fixture
def mirrored(workplace: Workplace, train_channel: LocalChannel) -> Path:
    """A mirror of a lock; afterwards no channel is reachable, and no cache is left."""
    small_lock(workplace.folder / LOCK, train_channel)
    assert 0 == workplace.run("mirror", LOCK, "--to", "mirror").code
    workplace.mirror({BASE: "http://127.0.0.1:9/train"})
    workplace.environment["XDG_CACHE_HOME"] = str(workplace.folder / "another")
    return workplace.folder / "mirror"


def test_mirror_installs_without_a_network(workplace: Workplace, mirrored: Path) -> None:
    """The canonical channel stands in the records, wherever the files came from."""
    ended = workplace.run("install", LOCK, "--prefix", "env", "--offline", "--mirror", "mirror")
    assert 0 == ended.code, ended.err
    assert 0 == workplace.run("verify", LOCK, "--prefix", "env").code


def test_mirror_needs_none_of_the_channel_s_credentials(
    workplace: Workplace, train_channel: LocalChannel
) -> None:
    """A lock with a variable in its channel: mirrored where it is set, installed where it is not."""
    secret = "https://${TRAIN_TOKEN}@conda.example/train"
    entries = [lock_entry(train_channel, package, base=secret) for package in SMALL]
    write_lock(workplace.folder / LOCK, entries, channels=(secret,))
    workplace.mirror({})
    ended = workplace.run("mirror", LOCK, "--to", "mirror")
    assert (2, True) == (ended.code, "TRAIN_TOKEN is not set" in ended.err), ended.err
    workplace.mirror({secret: train_channel.url})
    workplace.environment["TRAIN_TOKEN"] = "tok-en"
    ended = workplace.run("mirror", LOCK, "--to", "mirror")
    assert 0 == ended.code, ended.err
    assert "tok-en" not in "".join(map(str, workplace.folder.rglob("*")))
    del workplace.environment["TRAIN_TOKEN"]
    ended = workplace.run("install", LOCK, "--prefix", "env", "--offline", "--mirror", "mirror")
    assert 0 == ended.code, ended.err
    workplace.condarc.write_text((workplace.folder / "mirror" / "condarc").read_text())
    ended = workplace.run("install", LOCK, "--prefix", "env", "--offline")
    assert 0 == ended.code, ended.err


def test_mirror_is_a_channel_for_every_conda_program(workplace: Workplace, mirrored: Path) -> None:
    """It has an index, and settings that send the lock's channel to it."""
    place = mirrored / "conda.example" / "train"
    names = [
        name
        for folder in ("linux-64", "noarch")
        for kind in ("packages", "packages.conda")
        for name in json.loads((place / folder / "repodata.json").read_text())[kind]
    ]
    assert len(SMALL) == len(names)
    workplace.condarc.write_text((mirrored / "condarc").read_text())
    assert 0 == workplace.run("install", LOCK, "--prefix", "env", "--offline").code


def test_mirror_that_exists_gets_only_what_is_new(
    workplace: Workplace, train_channel: LocalChannel, channels_root: Path
) -> None:
    """A second lock adds; a spoiled file is replaced."""
    small_lock(workplace.folder / LOCK, train_channel)
    assert 0 == workplace.run("mirror", LOCK, "--to", "mirror").code
    entries = [lock_entry(train_channel, package) for package in (*SMALL, "psutil-5.9.8-py310h2372a71")]
    write_lock(workplace.folder / LOCK, entries)
    (spoiled,) = (workplace.folder / "mirror").rglob("numpy-*.conda")
    spoiled.write_bytes(b"spoiled")
    left = spoiled.with_name(f"{spoiled.name}.part-{2**22 + 1}")
    left.write_bytes(b"of a run that was killed")
    workplace.environment["XDG_CACHE_HOME"] = str(workplace.folder / "another")
    with served(channels_root) as server:
        workplace.mirror({BASE: f"{server.url}/train"})
        ended = workplace.run("mirror", LOCK, "--to", "mirror")
        assert (0, True) == (ended.code, "holds 13 conda packages" in ended.out)
        asked = sorted(path.rsplit("/", 1)[1].partition("-")[0] for path in server.requests)
    assert ["numpy", "psutil"] == asked
    assert not left.exists()


def test_mirror_of_another_lock_keeps_the_channels_of_the_first(
    workplace: Workplace, train_channel: LocalChannel
) -> None:
    """Its settings lead to both: what they do not name would be asked of the network."""
    small_lock(workplace.folder / LOCK, train_channel)
    other = "https://conda.example/other"
    entry = lock_entry(train_channel, "psutil-5.9.8-py310h2372a71", base=other)
    write_lock(workplace.folder / "other.conda-lock.yml", [entry], channels=(other,))
    workplace.mirror({BASE: train_channel.url, other: train_channel.url})
    assert 0 == workplace.run("mirror", LOCK, "--to", "mirror").code
    settings = workplace.folder / "mirror" / "condarc"
    first = settings.read_text()
    with settings.open() as reader:
        assert 0 == workplace.run("mirror", "other.conda-lock.yml", "--to", "mirror").code
        assert (first, True) == (reader.read(), first != settings.read_text()), "not replaced as a whole"
    workplace.environment["XDG_CACHE_HOME"] = str(workplace.folder / "another")
    workplace.condarc.write_text(settings.read_text())
    for lock in (LOCK, "other.conda-lock.yml"):
        ended = workplace.run("install", lock, "--prefix", "env", "--offline")
        assert 0 == ended.code, ended.err


def test_mirror_holds_the_pip_part_as_well(workplace: Workplace, tmp_path: Path) -> None:
    """Wheels are taken from it when their own address is gone."""
    channel = build_channel(tmp_path / "running", more=[running_python()], recipes=False)
    workplace.mirror({BASE: channel.url})
    wheel, sha256 = write_wheel(tmp_path, "tiny-tool", "1.2.3")
    entries = [lock_entry(channel, "python-"), pip_entry(wheel, "tiny-tool", "1.2.3", sha256)]
    write_lock(tmp_path / LOCK, entries)
    ended = workplace.run("mirror", LOCK, "--to", "mirror")
    assert (0, True) == (ended.code, "1 conda and 1 pip packages" in ended.out), ended.err
    wheel.unlink()
    workplace.environment["XDG_CACHE_HOME"] = str(workplace.folder / "another")
    ended = workplace.run("install", LOCK, "--prefix", "env", "--offline", "--mirror", "mirror")
    assert 0 == ended.code, ended.err
    assert 0 == workplace.run("verify", LOCK, "--prefix", "env").code


def test_mirror_with_a_spoiled_package_is_not_installed_from(workplace: Workplace, mirrored: Path) -> None:
    """A mirror on a shared disk is checked as a channel is."""
    (package,) = mirrored.rglob("numpy-*.conda")
    package.write_bytes(package.read_bytes() + b"x")
    ended = workplace.run("install", LOCK, "--prefix", "env", "--offline", "--mirror", "mirror")
    assert (4, True) == (ended.code, "is not the file that the lock means" in ended.err)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("mirror", LOCK, "--to", "other"), 2, "is not empty and no mirror"),
        (("mirror", LOCK, "--to", "new", "-p", "win-64"), 2, "no packages for win-64"),
        (("install", LOCK, "--prefix", "env", "--mirror", "other"), 2, "is no mirror"),
    ],
)
def test_mirror_that_cannot_be_says_why(
    workplace: Workplace, train_channel: LocalChannel, words: tuple[str, ...], code: int, said: str
) -> None:
    """And what was there stays."""
    small_lock(workplace.folder / LOCK, train_channel)
    other = workplace.folder / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("x")
    ended = workplace.run(*words)
    assert (code, True) == (ended.code, said in ended.err), ended.err
    assert {"thesis.txt": b"x"} == tree_of(other)


def test_mirror_that_another_run_is_filling_is_left_to_it(
    workplace: Workplace, train_channel: LocalChannel
) -> None:
    """Two at a time have cost one its index, and could cost the other its packages."""
    small_lock(workplace.folder / LOCK, train_channel)
    (workplace.folder / "mirror").mkdir()
    with held(str(workplace.folder / "mirror" / ".envaudit-lock"), "mirror"):
        (workplace.folder / "mirror" / MARKER).write_text("{}")
        ended = workplace.run("mirror", LOCK, "--to", "mirror")
    assert (5, True) == (ended.code, "another mirror is at work there" in ended.err), ended.err
    assert 0 == workplace.run("mirror", LOCK, "--to", "mirror").code
    assert not (workplace.folder / "mirror" / ".envaudit-lock").exists()


def test_work_on_a_file_system_without_locks_goes_on_where_it_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters mount Lustre so, and nobody can mirror into it otherwise."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refused)
    path = str(tmp_path / "lock")
    with held(path, "mirror", needed=False), held(path, "mirror", needed=False):
        pass
    assert {} == tree_of(tmp_path)
    with pytest.raises(OSError, match="not implemented"), held(path, "install"):
        pass


def test_mirror_of_a_faulty_channel_keeps_nothing_wrong(
    workplace: Workplace, train_channel: LocalChannel, channels_root: Path
) -> None:
    """A file that is not the lock's never gets its name in the mirror."""
    small_lock(workplace.folder / LOCK, train_channel)
    with served(channels_root, {"numpy-1.26.4-py310hb13e2d6_0.conda": "other bytes"}) as server:
        workplace.mirror({BASE: f"{server.url}/train"})
        assert 4 == workplace.run("mirror", LOCK, "--to", "mirror").code
    assert [] == list((workplace.folder / "mirror").rglob("numpy-*"))
