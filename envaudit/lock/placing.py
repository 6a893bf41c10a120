"""Where packages would put their files: looked at before any of them is linked.

A package says itself what its files are called, and the linker believes it. A path that leaves the
prefix, or that leads through a link of a package to elsewhere, would write over whatever this user may
write. What an environment does once it runs is another matter: an install runs nothing of it.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

_META = "conda-meta"
_MAX_LIST_BYTES = 64 << 20


class Listed(NamedTuple):
    """What a package says of itself.

    Attributes:
        is_python: whether its files are put where the environment's Python has them.
        paths: the path of each file, and whether it is a folder.
    """

    is_python: bool
    paths: tuple[tuple[str, bool], ...]


class Misplaced(Exception):
    """A package whose files would not stay in the prefix."""


def check_places(packages: Iterable[tuple[Any, str]]) -> dict[str, Listed]:
    """What each package lists, where all files of all packages stay in the prefix.

    Args:
        packages: py-rattler's record of each, and the path of its archive.

    Raises:
        Misplaced: names the package and the path.
    """
    packages = list(packages)
    site = next((_site_of(record) for record, _ in packages if record.name.normalized == "python"), "")
    written = {f"{_META}/history", *(_record_of(record) for record, _ in packages)}
    # What no package names: records, scripts of entry points, what pip installs.
    folders = {_META, "bin", site}
    owners: dict[str, tuple[str, str, str]] = {}
    found = {}
    for record, archive in packages:
        name = record.name.normalized
        listed = found[name] = _listed(name, archive, record.noarch.python)
        for path, is_folder in listed.paths:
            place = _place(path, site) if record.noarch.python else path
            if place.startswith("/") or ".." in place.split("/") or place in written:
                raise Misplaced(f"{name} would put {path!r} where no file of it belongs")
            folders.add(place.rpartition("/")[0])
            if not is_folder:
                owners[place] = name, archive, path
    _check_folders(folders, owners)
    return found


def check_extracted(name: str, listed: Listed, folder: str) -> None:
    """Nothing where an extracted package, which is what the linker goes by, lists what its archive did.

    An archive may have a file twice, and who looks for it in there finds the first.

    Raises:
        Misplaced: it lists something else.
    """
    from rattler.package import IndexJson

    is_python = IndexJson.from_package_directory(Path(folder)).noarch.python
    if _listed(name, folder, is_python) != listed:
        raise Misplaced(f"{name} has two lists of its files")


def _check_folders(folders: Iterable[str], owners: Mapping[str, tuple[str, str, str]]) -> None:
    """No folder, and none above it, is a file of a package, or a link out of the prefix."""
    pending, seen = list(folders), {""}
    while pending:
        folder = pending.pop()
        while folder not in seen:
            seen.add(folder)
            if folder in owners:
                pending.append(_led_to(folder, owners))
            folder = folder.rpartition("/")[0]


def _led_to(folder: str, owners: Mapping[str, tuple[str, str, str]]) -> str:
    """Where a link leads that a package has in the place of a folder: `lib64` to `usr/lib64`, say.

    `..` is the folder above only where no link stands before it, which is why such links are refused.
    """
    from rattler.package_streaming import extract

    name, archive, path = owners[folder]
    with TemporaryDirectory() as extracted:
        extract(Path(archive), Path(extracted))
        link = os.path.join(extracted, path)
        target = os.readlink(link) if os.path.islink(link) else ""
    above, _, _ = folder.rpartition("/")
    led_to = os.path.normpath(os.path.join(above, target))
    stays = target and not target.startswith("/") and led_to.split("/")[0] != ".."
    plain = ".." not in target.lstrip("./").split("/") and not any(
        folder.startswith(f"{other}/") for other in owners
    )
    if not (stays and plain):
        raise Misplaced(f"{name} has {folder!r} as a link or a file, and others as a folder")
    return "" if led_to == "." else led_to


def _site_of(python: Any) -> str:
    """The folder of Python packages, as an interpreter's package says (CEP 17) or by its version."""
    said = python.python_site_packages_path
    site = said or "lib/python{}.{}/site-packages".format(*[*str(python.version).split("."), "0"][:2])
    if site.startswith("/") or ".." in site.split("/"):
        raise Misplaced(f"python would have its packages in {site!r}, outside of the environment")
    return str(site).strip("/")


def _record_of(record: Any) -> str:
    return f"{_META}/{record.name.normalized}-{record.version}-{record.build}.json"


def _place(path: str, site: str) -> str:
    """Where a file of a noarch Python package is put."""
    top, _, rest = path.partition("/")
    folder = {"site-packages": site, "python-scripts": "bin"}.get(top)
    return f"{folder}/{rest}" if folder and rest else path


def _listed(name: str, place: str, is_python: bool) -> Listed:
    """What a package lists, as an archive or extracted."""
    from rattler.exceptions import ExtractError, IoError
    from rattler.package import PathsJson

    is_folder = os.path.isdir(place)
    try:
        read = PathsJson.from_package_directory if is_folder else PathsJson.from_package_archive
        entries = read(Path(place)).paths
    except (ExtractError, IoError):
        # Before conda 4.3 a package had only the names.
        lines = _old_list(name, place)
        return Listed(is_python, tuple((str(Path(path)), False) for path in lines))
    return Listed(
        is_python,
        tuple((str(entry.relative_path), bool(entry.path_type.directory)) for entry in entries),
    )


def _old_list(name: str, place: str) -> list[str]:
    data = None
    if os.path.isdir(place):
        data = Path(place, "info", "files").read_bytes()
    elif place.endswith(".tar.bz2"):
        with tarfile.open(place, "r|bz2") as members:
            for member in members:
                if member.name == "info/files" and member.isfile():
                    file = members.extractfile(member)
                    assert file is not None
                    data = file.read(_MAX_LIST_BYTES)
                    break
    if data is None:
        raise Misplaced(f"{name} does not list its files")
    return data.decode("utf-8", "surrogateescape").splitlines()
