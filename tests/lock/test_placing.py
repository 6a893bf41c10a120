"""Packages that would write outside of the prefix: refused before any file is put in place."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import posixpath
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rattler import RepoDataRecord

from envaudit.lock.placing import check_places
from tests.lock.channel import LocalChannel, build_channel, index_channel
from tests.lock.locks import BASE, lock_entry, pip_entry, write_lock
from tests.lock.packages import Recipe, build_package, running_python
from tests.lock.wheels_at_hand import write_wheel
from tests.lock.workplace import Workplace, tree_of

LOCK = "odd.conda-lock.yml"
PLAIN: Recipe = {
    "version": "1.0",
    "build": "0",
    "number": 0,
    "subdir": "linux-64",
    "format": "conda",
    "depends": [],
}
NOARCH: Recipe = {**PLAIN, "subdir": "noarch", "noarch": "python", "entry_points": ["tool = m:main"]}


def _install(workplace: Workplace, channel: LocalChannel, *names: str) -> tuple[int, str]:
    workplace.mirror({BASE: channel.url})
    write_lock(workplace.folder / LOCK, [lock_entry(channel, f"{name}-") for name in names])
    ended = workplace.run("install", LOCK, "--prefix", "env")
    return ended.code, ended.err


@pytest.mark.parametrize(
    ("python", "other", "words"),
    [
        ({}, {**PLAIN, "files": {"../../outside/file": "x"}}, "other would put '../../outside/file'"),
        ({}, {**PLAIN, "links": {"conda-meta/history": "../x"}}, "other would put 'conda-meta/history'"),
        (
            {"index": {"python_site_packages_path": "../../outside"}},
            {**NOARCH, "modules": {"m.py": "x = 1"}},
            "python would have its packages in '../../outside'",
        ),
        (
            {"links": {"bin": "OUTSIDE"}},
            {**NOARCH, "modules": {"m.py": "x = 1"}},
            "python has 'bin' as a link",
        ),
        (
            {"links": {"share": "OUTSIDE"}},
            {**PLAIN, "files": {"share/a/b": "x"}},
            "python has 'share' as a link",
        ),
    ],
)
def test_install_of_a_package_that_would_leave_the_prefix_is_refused(
    workplace: Workplace, tmp_path: Path, python: Mapping[str, Any], other: Recipe, words: str
) -> None:
    """By its own paths, by where Python's packages go, or through a link: nothing is written anywhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    links = {
        path: target.replace("OUTSIDE", str(outside)) for path, target in python.get("links", {}).items()
    }
    recipe = {**PLAIN, "version": "3.10.0", "files": {"lib/x": "x"}, **python, "links": links}
    channel = build_channel(tmp_path / "odd", more=[("python", recipe), ("other", other)], recipes=False)
    code, said = _install(workplace, channel, "python", "other")
    assert (4, True) == (code, f"would not stay in the environment ({words}" in said), said
    assert {} == tree_of(outside)
    assert not (workplace.folder / "env").exists()


@pytest.mark.parametrize("link", [("lib64", "usr/lib64"), ("usr/lib64", "../lib")], ids=" to ".join)
def test_link_that_stays_inside_may_stand_where_another_package_has_a_folder(
    tmp_path: Path, link: tuple[str, str]
) -> None:
    """Packages of a system's libraries have such; which of the two is there in the end, the linker says."""
    place, target = link
    own = posixpath.normpath(posixpath.join(posixpath.dirname(place), target, "own"))
    first = {**PLAIN, "files": {own: "x"}, "links": {place: target}}
    second = {**PLAIN, "files": {f"{place}/other": "y"}}
    channel = build_channel(tmp_path / "odd", more=[("first", first), ("second", second)], recipes=False)
    archives = sorted((channel.folder / "linux-64").glob("*.conda"))
    records = [asyncio.run(RepoDataRecord.from_package_archive(archive)) for archive in archives]
    assert ["first", "second"] == [record.name.normalized for record in records]
    check_places(zip(records, map(str, archives), strict=True))


@pytest.mark.parametrize(
    "links",
    [
        {"share": "../../outside"},
        {"share": "here", "here": "OUTSIDE"},
        {"share": "deep/../../../outside", "deep": "a/b/c"},
        {"top": ".", "top/share": "../../outside", "share": "top/share"},
    ],
)
def test_install_through_links_that_lead_out_is_refused(
    workplace: Workplace, tmp_path: Path, links: Mapping[str, str]
) -> None:
    """By one step, by two, and by `..` behind a link."""
    outside = tmp_path / "outside"
    outside.mkdir()
    plain = {path: target.replace("OUTSIDE", str(outside)) for path, target in links.items()}
    first = {**PLAIN, "files": {"a/b/c/x": "x"}, "links": plain}
    second = {**PLAIN, "depends": ["first"], "files": {"share/file": "y"}}
    channel = build_channel(tmp_path / "odd", more=[("first", first), ("second", second)], recipes=False)
    code, said = _install(workplace, channel, "first", "second")
    assert 4 == code, said
    assert {} == tree_of(outside)


def _write_old_package(channel: LocalChannel, files: str, links: Mapping[str, str] | None = None) -> None:
    """`old` with the list of its files that packages had before conda 4.3, and `share/old.txt`."""
    index = {"name": "old", "version": "1.0", "build": "0", "build_number": 0, "depends": []}
    members = {
        "info/index.json": json.dumps({**index, "subdir": "linux-64"}),
        "info/files": files,
        "share/old.txt": "x",
    }
    (channel.folder / "linux-64").mkdir(exist_ok=True)
    with tarfile.open(channel.folder / "linux-64" / "old-1.0-0.tar.bz2", "w:bz2") as archive:
        for path, text in members.items():
            member = tarfile.TarInfo(path)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        for path, target in (links or {}).items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    index_channel(channel.folder)


def test_install_of_a_package_with_the_old_list_of_files_goes_on(
    workplace: Workplace, tmp_path: Path
) -> None:
    """Before conda 4.3 there were names alone."""
    channel = build_channel(tmp_path / "old", recipes=False)
    for name, code in (("share/old.txt", 0), ("../../outside", 4)):
        _write_old_package(channel, f"{name}\n")
        found, said = _install(workplace, channel, "old")
        assert code == found, said
    assert "x" == (workplace.folder / "env/share/old.txt").read_text()


def test_install_through_a_link_that_an_old_list_writes_with_a_dot_is_refused(
    workplace: Workplace, tmp_path: Path
) -> None:
    """`./etc` is `etc`."""
    outside = tmp_path / "outside"
    outside.mkdir()
    other = {**PLAIN, "depends": ["old"], "files": {"etc/deep/file": "x"}}
    channel = build_channel(tmp_path / "old", more=[("other", other)], recipes=False)
    _write_old_package(channel, "./etc\n", {"etc": str(outside)})
    code, said = _install(workplace, channel, "old", "other")
    assert 4 == code, said
    assert {} == tree_of(outside)


@pytest.mark.parametrize(
    ("link", "member"),
    [
        ("share", "tiny_tool-1.0.data/data/share/file"),
        ("include", "tiny_tool-1.0.data/headers/file.h"),
        ("include/site/python3.1", "tiny_tool-1.0.data/headers/file.h"),
    ],
)
def test_install_of_a_wheel_that_would_go_through_a_link_is_refused(
    workplace: Workplace, tmp_path: Path, link: str, member: str
) -> None:
    """A conda package has the link, and a wheel the data files."""
    outside = tmp_path / "outside"
    outside.mkdir()
    linking = {**PLAIN, "links": {link: str(outside)}}
    channel = build_channel(tmp_path / "odd", more=[running_python(), ("linking", linking)], recipes=False)
    workplace.mirror({BASE: channel.url})
    wheel, _ = write_wheel(tmp_path, "tiny-tool", "1.0")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(member, "x")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    entries = [lock_entry(channel, f"{name}-") for name in ("python", "linking")]
    write_lock(workplace.folder / LOCK, [*entries, pip_entry(wheel, "tiny-tool", "1.0", digest)])
    ended = workplace.run("install", LOCK, "--prefix", "env")
    assert (4, True) == (ended.code, "has data files for" in ended.err), ended.err
    assert {} == tree_of(outside)


@pytest.mark.parametrize("twice", ["paths", "index"])
def test_install_of_a_package_that_lists_its_files_twice_is_refused(
    workplace: Workplace, tmp_path: Path, twice: str
) -> None:
    """The archive is read to its first list, or what says where they go; the linker goes by the last one."""
    outside = tmp_path / "outside"
    outside.mkdir()
    index = {"name": "first", "version": "1.0", "build": "0", "build_number": 0, "depends": []}
    index.update(arch="x86_64", platform="linux", subdir="linux-64")
    link = {"_path": "share", "path_type": "softlink"}
    documents = [
        ("index", {**index, "noarch": "python"} if twice == "index" else index),
        ("index", index),
        ("paths", {"paths_version": 1, "paths": [] if twice == "paths" else [link]}),
        ("paths", {"paths_version": 1, "paths": [link]}),
    ]
    channel = build_channel(tmp_path / "odd", recipes=False)
    folder = channel.folder / "linux-64"
    folder.mkdir()
    with tarfile.open(folder / "first-1.0-0.tar.bz2", "w:bz2") as archive:
        for name, document in documents:
            member, text = tarfile.TarInfo(f"info/{name}.json"), json.dumps(document).encode()
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
        member = tarfile.TarInfo("share")
        member.type, member.linkname = tarfile.SYMTYPE, str(outside)
        archive.addfile(member)
    if twice == "paths":
        build_package("second", {**PLAIN, "depends": ["first"], "files": {"share/file": "y"}}, channel.folder)
    index_channel(channel.folder)
    code, said = _install(workplace, channel, *(["first", "second"] if twice == "paths" else ["first"]))
    assert (4, True) == (code, "first has two lists of its files" in said), said
    assert {} == tree_of(outside)
