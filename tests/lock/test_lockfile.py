"""Reading a conda-lock.yml without conda-lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.errors import InputError, UsageError
from envaudit.lock.lockfile import LockedChannel, parse_lock, read_lock

HEAD = """version: 1
metadata:
  content_hash:
    linux-64: aa
  channels:
  - url: conda-forge
    used_env_vars: []
  platforms:
  - linux-64
  sources:
  - ../environment.yml
"""
ZLIB = """- name: zlib
  version: 1.10
  manager: conda
  platform: linux-64
  dependencies:
    libgcc-ng: '>=12'
  url: https://conda.example/train/linux-64/zlib-1.10-hd590300_5.conda
  hash:
    md5: d7c89558ba9fa0495403155b64376d81
    sha256: fe51de6107f9edc7aa4f786a70f4a883943bc9d39b3bb7307c04c41410990726
  category: {category}
  optional: false
"""
MAIN = ZLIB.format(category="main")


def lock_of(*packages: str) -> bytes:
    """The bytes of a lock with these packages."""
    return (HEAD + "package:\n" + "".join(packages)).encode()


def test_package_of_conda_is_read_with_what_its_url_says() -> None:
    """Build, folder and channel stand in the URL; a version that looks like a number stays a text."""
    lock = parse_lock(lock_of(MAIN), "conda-lock.yml")
    (zlib,) = lock.packages
    expected = ("1.10", "hd590300_5", "linux-64", "https://conda.example/train", "zlib-1.10-hd590300_5.conda")
    assert expected == (zlib.version, zlib.build, zlib.subdir, zlib.channel, zlib.file_name)
    assert (LockedChannel("conda-forge"),) == lock.channels
    assert {"libgcc-ng": ">=12"} == zlib.dependencies


def test_package_of_two_categories_is_one_entry() -> None:
    """Version 1 of the format repeats a package for each category."""
    lock = parse_lock(lock_of(ZLIB.format(category="dev"), ZLIB.format(category="test")), "x")
    assert [frozenset({"dev", "test"})] == [package.categories for package in lock.packages]
    assert ((), 1) == (lock.of("linux-64"), len(lock.of("linux-64", ["dev"])))
    assert ("dev", "test") == lock.categories


def test_package_that_is_there_twice_and_not_the_same_is_refused() -> None:
    """A merge of two branches may keep both sides; which one is meant nobody can tell."""
    other = MAIN.replace("1.10", "1.11").replace("d7c8", "d7c9")
    with pytest.raises(InputError) as raised:
        parse_lock(lock_of(MAIN, other), "x")
    assert str(raised.value) == (
        "x: package[1]: zlib is there twice for linux-64 (1.10 hd590300_5 and 1.11 hd590300_5). "
        "Make the lock again with 'envaudit lock'."
    )
    other_hash = MAIN.replace("sha256: fe51", "sha256: fe52")
    with pytest.raises(InputError):
        parse_lock(lock_of(MAIN, other_hash), "x")


@pytest.mark.parametrize(
    ("packages", "categories", "message"),
    [
        (
            ZLIB.format(category="dev"),
            ("main",),
            "x: the lock has no package of category main for linux-64. It has dev: name one with --category.",
        ),
        (MAIN, ("main", "dve"), "x: the lock has no category 'dve'. It has main: name one with --category."),
    ],
)
def test_categories_that_leave_nothing_of_a_lock_are_refused(
    packages: str, categories: tuple[str, ...], message: str
) -> None:
    """Every environment would be as locked."""
    lock = parse_lock(lock_of(packages), "x")
    with pytest.raises(UsageError) as raised:
        lock.check_has("linux-64", categories)
    assert message == str(raised.value)
    parse_lock(lock_of(MAIN), "x").check_has("linux-64", ("main",))


def test_package_without_a_category_is_of_main() -> None:
    """Locks of micromamba are locks without it."""
    lock = parse_lock(lock_of(MAIN.replace("  category: main\n", "")), "x")
    assert frozenset({"main"}) == lock.packages[0].categories


def test_repository_has_no_sha256_although_its_commit_stands_there() -> None:
    """conda-lock keeps the commit in the place of the hash."""
    commit = "0123456789" * 4
    text = f"""- name: apex
  version: '0.1'
  manager: pip
  platform: linux-64
  url: git+https://git.example/apex.git@{commit}
  hash:
    sha256: {commit}
  source:
    type: url
    url: git+https://git.example/apex.git@{commit}
"""
    (apex,) = parse_lock(lock_of(text), "x").packages
    assert (None, f"git+https://git.example/apex.git@{commit}", "", "") == (
        apex.sha256,
        apex.source_url,
        apex.channel,
        apex.build,
    )


def test_sources_are_paths_from_the_lock(tmp_path: Path) -> None:
    """They are written relative to the lock's folder."""
    path = tmp_path / "locks" / "conda-lock.yml"
    path.parent.mkdir()
    path.write_bytes(lock_of(MAIN))
    assert (str(tmp_path / "environment.yml"),) == read_lock(str(path)).source_paths()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "x: not a conda-lock file. Make one with 'envaudit lock environment.yml'."),
        (b"- a\n", "x: not a conda-lock file. Make one with 'envaudit lock environment.yml'."),
        (
            b"# platform: linux-64\n@EXPLICIT\nhttps://conda.example/train/noarch/pip-24.0-0.conda\n",
            "x: an explicit list, not a conda-lock file. conda and micromamba install from it, and "
            "'envaudit verify' takes it as it is.",
        ),
        (
            b"version: 6\npackages: []\n",
            "x: lock format '6' is not known, only version 1 is. Make the lock again with 'envaudit lock', "
            "or export it to conda-lock version 1.",
        ),
        (b"version: 1\nmetadata: text\n", "x: metadata: expected a mapping, got 'text'."),
        (HEAD.encode(), "x: package: expected a list, got nothing."),
        (
            lock_of(MAIN.replace("platform: linux-64", "platform: ../../etc")),
            "x: package[0].platform: expected a platform, got '../../etc'.",
        ),
        (
            lock_of(MAIN.replace("name: zlib", "name: ../zlib")),
            "x: package[0].name: expected a name, got '../zlib'.",
        ),
        (
            lock_of(MAIN.replace("md5: d7c8", "md5: zzzz")),
            "x: package[0].hash.md5: expected a digest in hex, got 'zzzz9558ba9fa0495403155b64376d81'.",
        ),
        (
            lock_of(
                MAIN.replace("url: https", 'url: "git+https://git.example/x\\n--index-url https"\n  x: https')
            ),
            "x: package[0].url: expected a url, got 'git+https://git.example/x\\n--index-url https'.",
        ),
        (
            lock_of(MAIN.replace("url: https://conda.example", 'url: "https://[h/"\n  x: ')),
            "x: package[0].url: expected a url, got 'https://[h/'.",
        ),
        (
            b"<<<<<<< HEAD\n" + lock_of(MAIN),
            "x:2:8: not YAML (mapping values are not allowed in this context). "
            "Resolve the merge conflict first. Make the lock again.",
        ),
        (
            b"a: " + b"[" * 5000,
            "x:1:1003: not YAML (exceeded maximum nesting depth). Make the lock again.",
        ),
    ],
)
def test_damaged_lock_is_refused_with_its_key_path(data: bytes, message: str) -> None:
    """Never a traceback: what was expected, where, and what is there."""
    with pytest.raises(InputError) as raised:
        parse_lock(data, "x")
    assert message == str(raised.value)


def test_lock_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    """The usual cause is that nobody has locked yet."""
    with pytest.raises(InputError) as raised:
        read_lock(str(tmp_path / "conda-lock.yml"))
    assert "Make one with 'envaudit lock'." == raised.value.next_step
