"""`envaudit install`: real packages, real faults, and an old environment that stays whole."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from envaudit.errors import NeededError
from envaudit.lock import prefix as prefix_module
from envaudit.lock.install import child_lines
from envaudit.lock.prefix import replacement
from tests.lock.channel import LocalChannel, build_channel, served
from tests.lock.locks import BASE, lock_entry, pip_entry, small_lock, write_lock
from tests.lock.packages import running_python
from tests.lock.wheels_at_hand import write_wheel
from tests.lock.workplace import Workplace, leftovers, tree_of

FAULTY = "openssl-3.2.1-hd590300_1.conda"


@pytest.fixture
def lock(tmp_path: Path, train_channel: LocalChannel) -> Path:
    """A lock of twelve packages."""
    return small_lock(tmp_path / "train.conda-lock.yml", train_channel)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """An environment that is there already."""
    folder = tmp_path / "env"
    (folder / "conda-meta").mkdir(parents=True)
    (folder / "conda-meta" / "history").write_text("")
    (folder / "marker").write_text("old")
    return folder


def test_install_makes_the_environment_of_the_lock(workplace: Workplace, lock: Path) -> None:
    """Files, links, entry points, records that name the canonical channel; the prefix is its own."""
    ended = workplace.run("install", lock.name, "--prefix", "env")
    assert (0, "") == (ended.code, ended.err)
    env = workplace.folder / "env"
    assert f"installed 12 conda packages into {env}" in ended.out
    assert f".include {env}/ssl/cacert.pem" in (env / "ssl/openssl.cnf").read_text()
    assert "libz.so.1.2.13" == os.readlink(env / "lib/libz.so.1")
    assert (env / "bin/pip").read_text().startswith(f"#!{env}/bin/python3.10\n")
    record = json.loads((env / "conda-meta/openssl-3.2.1-hd590300_1.json").read_text())
    assert (BASE, f"{BASE}/linux-64/{FAULTY}") == (record["channel"], record["url"])
    assert [] == leftovers(workplace.folder)
    texts = b"".join(tree_of(env).values())
    assert b".envaudit-" not in texts


def test_install_of_a_lock_without_packages_leaves_the_old_environment(
    workplace: Workplace, old: Path
) -> None:
    """What a merge may leave: an empty environment is not what anybody wants in the place of theirs."""
    write_lock(workplace.folder / "empty.yml", [])
    ended = workplace.run("install", "empty.yml", "--prefix", "env")
    assert (2, True) == (ended.code, "the lock has no packages for linux-64" in ended.err), ended.err
    assert "old" == (old / "marker").read_text()


def test_install_over_an_environment_replaces_it_whole(workplace: Workplace, lock: Path, old: Path) -> None:
    """Nothing of the old one is left, neither inside nor beside it."""
    assert 0 == workplace.run("install", lock.name, "--prefix", "env").code
    assert not (old / "marker").exists()
    assert [] == leftovers(workplace.folder)


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("404", 5, "HTTP 404"),
        ("500", 5, "HTTP 500"),
        ("html", 4, "a web page came instead of openssl"),
        ("half", 5, "ended before its announced length"),
        ("other bytes", 4, "is not the file that the lock means"),
        ("drop", 5, "cannot be fetched"),
    ],
)
def test_install_from_a_faulty_channel_leaves_the_old_environment(
    workplace: Workplace, lock: Path, old: Path, channels_root: Path, fault: str, code: int, words: str
) -> None:
    """The fault is named with its package, and the old environment is as it was."""
    before = tree_of(old)
    with served(channels_root, {FAULTY: fault}) as server:
        workplace.mirror({BASE: f"{server.url}/train"})
        ended = workplace.run("install", lock.name, "--prefix", "env")
    assert (code, True) == (ended.code, words in ended.err), ended.err
    assert "openssl-3.2.1" in ended.err
    assert "Traceback" not in ended.err
    assert before == tree_of(old)
    assert [] == leftovers(workplace.folder)


def test_install_with_a_channel_that_is_down_names_it(workplace: Workplace, lock: Path) -> None:
    """Nobody listens there."""
    workplace.mirror({BASE: "http://127.0.0.1:9/train"})
    ended = workplace.run("install", lock.name, "--prefix", "env")
    assert (5, True) == (ended.code, "127.0.0.1:9" in ended.err), ended.err
    assert not (workplace.folder / "env").exists()


@pytest.mark.parametrize("folder", ["https://a..b/linux-64", "//h/linux-64", "file:///a%00b/linux-64"])
def test_install_from_an_address_that_is_none_names_the_package(
    workplace: Workplace, train_channel: LocalChannel, folder: str
) -> None:
    """A lock comes from a repository: what urllib cannot even ask for is no fault of this program."""
    entry = lock_entry(train_channel, "openssl-3.2.1-hd590300_1", url=f"{folder}/{FAULTY}")
    write_lock(workplace.folder / "odd.yml", [entry])
    ended = workplace.run("install", "odd.yml", "--prefix", "env")
    assert (5, True) == (ended.code, f"{FAULTY} cannot be" in ended.err), ended.err


def test_install_takes_the_second_mirror_when_the_first_lacks_a_package(
    workplace: Workplace, lock: Path, channels_root: Path, train_channel: LocalChannel
) -> None:
    """Mirrors are tried in their order."""
    with served(channels_root, {FAULTY: "404"}) as server:
        document = {
            "mirrored_channels": {BASE: [f"{server.url}/train", train_channel.url]},
            "remote_max_retries": 0,
        }
        workplace.condarc.write_text(json.dumps(document))
        assert 0 == workplace.run("install", lock.name, "--prefix", "env").code


def test_install_checks_packages_of_a_file_channel_by_hash(
    workplace: Workplace, lock: Path, channels_root: Path, tmp_path: Path
) -> None:
    """Of itself rattler does not hash those; we do."""
    shutil.copytree(channels_root / "train", tmp_path / "spoiled")
    package = tmp_path / "spoiled" / "linux-64" / FAULTY
    package.write_bytes(package.read_bytes() + b"x")
    workplace.mirror({BASE: (tmp_path / "spoiled").as_uri()})
    ended = workplace.run("install", lock.name, "--prefix", "env")
    assert (4, True) == (ended.code, f"{FAULTY} is not the file that the lock means" in ended.err)
    assert not (workplace.folder / "env").exists()


def test_install_finds_out_a_spoiled_cache(workplace: Workplace, lock: Path, channels_root: Path) -> None:
    """An archive in the cache that somebody changed is fetched anew."""
    with served(channels_root) as server:
        workplace.mirror({BASE: f"{server.url}/train"})
        assert 0 == workplace.run("install", lock.name, "--prefix", "env").code
        (cached,) = (workplace.folder / "cache").rglob(FAULTY)
        cached.write_bytes(b"spoiled")
        server.requests.clear()
        assert 0 == workplace.run("install", lock.name, "--prefix", "env").code
        assert [f"/train/linux-64/{FAULTY}"] == server.requests
    assert (workplace.folder / "env/ssl/openssl.cnf").exists()


def test_install_offline_takes_what_the_cache_has(
    workplace: Workplace, lock: Path, channels_root: Path
) -> None:
    """After one install the second needs no network; without one, the missing package is named."""
    with served(channels_root) as server:
        workplace.mirror({BASE: f"{server.url}/train"})
        ended = workplace.run("install", lock.name, "--prefix", "env", "--offline")
        assert (5, True) == (ended.code, "--offline forbids to fetch it" in ended.err)
        assert 0 == workplace.run("install", lock.name, "--prefix", "env").code
        server.requests.clear()
        assert 0 == workplace.run("install", lock.name, "--prefix", "env", "--offline").code
        assert [] == server.requests


def test_install_that_was_killed_leaves_the_old_environment(
    workplace: Workplace, lock: Path, old: Path, channels_root: Path
) -> None:
    """SIGKILL in the middle: the old one is as it was, and the next install clears up."""
    before = tree_of(old)
    with served(channels_root, {FAULTY: "wait"}) as server:
        workplace.mirror({BASE: f"{server.url}/train"})
        process = subprocess.Popen(
            workplace.argv(["install", lock.name, "--prefix", "env"]),
            cwd=workplace.folder,
            env=workplace.environment,
        )
        until = time.monotonic() + 30
        while f"/train/linux-64/{FAULTY}" not in server.requests and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert before == tree_of(old)
        assert [] != leftovers(workplace.folder)
        server.faults.clear()
        assert 0 == workplace.run("install", lock.name, "--prefix", "env").code
    assert [] == leftovers(workplace.folder)
    assert not (old / "marker").exists()


def test_install_that_is_interrupted_clears_up(
    workplace: Workplace, lock: Path, old: Path, channels_root: Path
) -> None:
    """Ctrl-C while a server keeps it waiting: exit 130 at once, the old environment, nothing left over."""
    before = tree_of(old)
    with served(channels_root, {FAULTY: "wait"}) as server:
        workplace.mirror({BASE: f"{server.url}/train"})
        process = subprocess.Popen(
            workplace.argv(["install", lock.name, "--prefix", "env"]),
            cwd=workplace.folder,
            env=workplace.environment,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 30
        while f"/train/linux-64/{FAULTY}" not in server.requests and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(timeout=10)
    assert before == tree_of(old)
    assert [] == list((workplace.folder / "cache").rglob(".part-*"))
    assert [] == leftovers(workplace.folder)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: (folder / "thesis.txt").write_text("x"), "no conda environment and is not empty"),
        (
            lambda folder: [(folder / name).mkdir() for name in ("conda-meta", "condabin")],
            "base environment of a conda installation",
        ),
    ],
)
def test_install_refuses_a_folder_that_is_not_to_be_replaced(
    workplace: Workplace, lock: Path, make: object, words: str
) -> None:
    """A home folder or a base environment given by mistake stays as it is."""
    (workplace.folder / "env").mkdir()
    make(workplace.folder / "env")  # type: ignore[operator]
    ended = workplace.run("install", lock.name, "--prefix", "env")
    assert (2, True) == (ended.code, words in ended.err)


def test_install_of_a_platform_that_the_lock_lacks_says_which_it_has(
    workplace: Workplace, lock: Path
) -> None:
    """With the command that adds it."""
    ended = workplace.run("install", lock.name, "--prefix", "env", "--platform", "linux-aarch64")
    assert (2, True) == (ended.code, "It has linux-64." in ended.err)


def test_install_of_a_package_without_hash_is_refused(
    workplace: Workplace, train_channel: LocalChannel
) -> None:
    """What cannot be checked is not installed."""
    entry = lock_entry(train_channel, "tzdata-2024a", hash={})
    write_lock(workplace.folder / "bare.conda-lock.yml", [entry])
    ended = workplace.run("install", "bare.conda-lock.yml", "--prefix", "env")
    assert (4, True) == (ended.code, "no hash for tzdata" in ended.err)


def test_install_of_an_archive_that_holds_another_package_is_refused(
    workplace: Workplace, train_channel: LocalChannel
) -> None:
    """The hash fits, the name does not: the lock contradicts itself."""
    entry = lock_entry(train_channel, "tzdata-2024a", name="openssl")
    write_lock(workplace.folder / "odd.conda-lock.yml", [entry])
    ended = workplace.run("install", "odd.conda-lock.yml", "--prefix", "env")
    assert (4, True) == (ended.code, "is tzdata-2024a" in ended.err), ended.err
    assert not (workplace.folder / "env").exists()


@pytest.mark.parametrize("end", ["/linux-64/", "/linux-64/..", "/linux-64/a%00.conda", "/linux-64/.conda"])
def test_install_of_a_url_without_a_file_name_is_refused(
    workplace: Workplace, train_channel: LocalChannel, end: str
) -> None:
    """Part of it would become a path."""
    entry = lock_entry(train_channel, "tzdata-2024a", url=BASE + end)
    write_lock(workplace.folder / "odd.conda-lock.yml", [entry])
    for words in (
        ("install", "odd.conda-lock.yml", "--prefix", "env"),
        ("mirror", "odd.conda-lock.yml", "--to", "m"),
    ):
        ended = workplace.run(*words)
        assert (4, True) == (ended.code, "no name of a package file" in ended.err), ended.err


def test_install_does_not_run_link_scripts(workplace: Workplace, tmp_path: Path) -> None:
    """They are strangers' code; whose were left out is said."""
    script = f"#!/bin/sh\ntouch {tmp_path}/ran\n"
    recipe = {
        "version": "1.0",
        "build": "0",
        "number": 0,
        "subdir": "noarch",
        "format": "conda",
        "depends": [],
        "noarch": "generic",
        "files": {"bin/.eager-post-link.sh": script},
        "executables": ["bin/.eager-post-link.sh"],
    }
    channel = build_channel(tmp_path / "eager", more=[("eager", recipe)], recipes=False)
    workplace.mirror({BASE: channel.url})
    write_lock(workplace.folder / "eager.conda-lock.yml", [lock_entry(channel, "eager-1.0")])
    ended = workplace.run("install", "eager.conda-lock.yml", "--prefix", "env")
    assert (0, True) == (ended.code, "post-link scripts were not run: eager" in ended.out), ended.err
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def running(workplace: Workplace, tmp_path: Path) -> LocalChannel:
    """A channel with a python that runs."""
    channel = build_channel(tmp_path / "running", more=[running_python()], recipes=False)
    workplace.mirror({BASE: channel.url})
    return channel


def test_install_puts_the_pip_part_beside_conda_s(
    workplace: Workplace, running: LocalChannel, tmp_path: Path
) -> None:
    """A wheel by its hash, without an index; its script runs where the environment ends up."""
    wheel, sha256 = write_wheel(tmp_path, "tiny-tool", "1.2.3")
    entries = [lock_entry(running, "python-"), pip_entry(wheel, "tiny-tool", "1.2.3", sha256)]
    write_lock(workplace.folder / "pip.conda-lock.yml", entries)
    ended = workplace.run("install", "pip.conda-lock.yml", "--prefix", "env")
    assert (0, True) == (ended.code, "1 conda and 1 pip packages" in ended.out), ended.err
    script = workplace.folder / "env/bin/tiny-tool"
    ran = subprocess.run([script], capture_output=True, text=True, env={}, check=True)
    assert "tiny-tool 1.2.3\n" == ran.stdout
    verified = workplace.run("verify", "pip.conda-lock.yml", "--prefix", "env")
    assert 0 == verified.code, verified.out


def test_install_takes_a_wheel_from_the_user_s_index_when_its_address_is_gone(
    workplace: Workplace, running: LocalChannel, tmp_path: Path
) -> None:
    """The lock's maker used another index: by its hash it is the same file."""
    (tmp_path / "index").mkdir()
    wheel, sha256 = write_wheel(tmp_path / "index", "tiny-tool", "1.2.3")
    gone = {"url": f"http://127.0.0.1:9/{wheel.name}"}
    workplace.environment.update(UV_FIND_LINKS=str(wheel.parent), UV_NO_INDEX="1")
    entries = [lock_entry(running, "python-"), {**pip_entry(wheel, "tiny-tool", "1.2.3", sha256), **gone}]
    write_lock(workplace.folder / "pip.conda-lock.yml", entries)
    ended = workplace.run("install", "pip.conda-lock.yml", "--prefix", "env")
    assert 0 == ended.code, ended.err
    entries[1]["hash"] = {"sha256": "0" * 64}
    write_lock(workplace.folder / "pip.conda-lock.yml", entries)
    ended = workplace.run("install", "pip.conda-lock.yml", "--prefix", "env")
    assert (4, True) == (ended.code, "is not the file that the lock means" in ended.err), ended.err


def test_install_refuses_a_wheel_of_another_hash(
    workplace: Workplace, running: LocalChannel, tmp_path: Path
) -> None:
    """And leaves no environment without its pip part."""
    wheel, _ = write_wheel(tmp_path, "tiny-tool", "1.2.3")
    entries = [lock_entry(running, "python-"), pip_entry(wheel, "tiny-tool", "1.2.3", "0" * 64)]
    write_lock(workplace.folder / "pip.conda-lock.yml", entries)
    ended = workplace.run("install", "pip.conda-lock.yml", "--prefix", "env")
    assert (4, True) == (ended.code, "is not the file that the lock means" in ended.err)
    assert not (workplace.folder / "env").exists()


def test_install_builds_nothing_unless_it_may(
    workplace: Workplace, running: LocalChannel, tmp_path: Path
) -> None:
    """A source archive runs its code when it is built."""
    source = tmp_path / "tiny-tool-1.2.3.tar.gz"
    source.write_bytes(b"")
    entries = [lock_entry(running, "python-"), pip_entry(source, "tiny-tool", "1.2.3", "0" * 64)]
    write_lock(workplace.folder / "pip.conda-lock.yml", entries)
    ended = workplace.run("install", "pip.conda-lock.yml", "--prefix", "env")
    assert (2, True) == (ended.code, "has no wheel in the lock" in ended.err)


def test_install_on_a_full_disk_says_so(workplace: Workplace, lock: Path) -> None:
    """A file system of 64 kB: exit 5, and nothing is left on it."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root, for a small file system of its own")
    small = workplace.folder / "small"
    small.mkdir()
    command = f'mount -t tmpfs -o size=64k tmpfs {small} && exec "$@"'
    argv = ["unshare", "-m", "sh", "-c", command, "sh"]
    argv += workplace.argv(["install", lock.name, "--prefix", str(small / "env")])
    ran = subprocess.run(
        argv, cwd=workplace.folder, env=workplace.environment, capture_output=True, text=True
    )
    if "mount:" in ran.stderr:
        pytest.skip("may not mount here")
    assert (5, True) == (ran.returncode, "o space" in ran.stderr), ran.stderr


def test_replacement_without_an_exchange_in_one_step_still_replaces(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS has no such call: two renames do it."""
    monkeypatch.setattr(prefix_module, "_exchanged", lambda one, other: False)
    with replacement(str(old)) as (fresh, _):
        Path(fresh, "new").write_text("")
    assert ["new"] == [path.name for path in old.iterdir()]
    assert [] == leftovers(old.parent)


def test_replacement_that_died_between_two_renames_is_undone_by_the_next(old: Path) -> None:
    """The old prefix lies in the dead one's folder: it gets its name back before anything else."""
    dead = old.parent / ".env.envaudit-dead"
    dead.mkdir()
    old.rename(dead / "old")
    seen = []

    def fail() -> None:
        with replacement(str(old)):
            seen.append((old / "marker").read_text())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert ["old"] == seen
    assert "old" == (old / "marker").read_text()
    assert [] == leftovers(old.parent)


def test_replacement_waits_for_nobody_who_holds_the_prefix(old: Path) -> None:
    """Two installs into one prefix: the second is told."""
    descriptor = os.open(old.parent / ".env.envaudit-lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(NeededError, match="another install is at work"), replacement(str(old)):
            pass
    finally:
        os.close(descriptor)


def test_replacement_makes_no_file_where_a_link_beside_it_leads(old: Path, tmp_path: Path) -> None:
    """In a folder like /tmp somebody else may have put it there."""
    elsewhere = tmp_path / "elsewhere"
    (old.parent / ".env.envaudit-lock").symlink_to(elsewhere)
    with pytest.raises(NeededError, match="cannot be installed into"), replacement(str(old)):
        pass
    assert not elsewhere.exists()


def test_replacement_follows_a_link_to_the_prefix(old: Path, tmp_path: Path) -> None:
    """`env` may be a link to the place with the space: what it points to is replaced, the link stays."""
    link = tmp_path / "link"
    link.symlink_to(old)
    with replacement(str(link)) as (fresh, target):
        Path(fresh, "new").write_text("")
    assert (str(old), True) == (target, link.is_symlink())
    assert ["new"] == [path.name for path in old.iterdir()]


@pytest.mark.parametrize("size_bytes", [1, 1 << 20], ids=["job in the pipe", "job larger than a pipe"])
def test_child_that_ends_before_it_has_read_its_job_answers_nothing(size_bytes: int) -> None:
    """One whose library cannot be loaded: "Broken pipe" would be said of the folder to install into."""
    assert [] == list(child_lines("envaudit.lock.no_such_module", "x" * size_bytes))
