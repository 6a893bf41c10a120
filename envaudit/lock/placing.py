"""Where packages would put their files: looked at before any of them is linked.

A package says itself what its files are called, and the linker believes it. A path that leaves the
prefix, or that leads through a link of a package, would write over whatever this user may write. What
an environment does once it runs is another matter: an install runs nothing of it.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_META = "conda-meta"
_MAX_LIST_BYTES = 64 << 20


class Misplaced(Exception):
    """A package whose files would not stay in the prefix."""


def check_places(packages: Iterable[tuple[Any, str]]) -> None:
    """Nothing where all files of all packages stay in the prefix.

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
    owners: dict[str, str] = {}
    for record, archive in packages:
        name = record.name.normalized
        for path, is_folder in _paths(name, archive):
            place = _place(path, site) if record.noarch.python else path
            if place.startswith("/") or ".." in place.split("/") or place in written:
                raise Misplaced(f"{name} would put {path!r} where no file of it belongs")
            folders.add(place.rpartition("/")[0])
            if not is_folder:
                owners[place] = name
    _check_folders(folders, owners)


def _check_folders(folders: Iterable[str], owners: dict[str, str]) -> None:
    """No folder, and none above it, is a link or a file of a package."""
    seen = {""}
    for folder in folders:
        while folder not in seen:
            if folder in owners:
                raise Misplaced(
                    f"{owners[folder]} has {folder!r} as a link or a file, and others as a folder"
                )
            seen.add(folder)
            folder = folder.rpartition("/")[0]


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


def _paths(name: str, archive: str) -> Iterator[tuple[str, bool]]:
    """The path of each file in a package, and whether it is a folder."""
    from rattler.exceptions import ExtractError
    from rattler.package import PathsJson

    try:
        entries = PathsJson.from_package_archive(Path(archive)).paths
    except ExtractError:
        # Before conda 4.3 a package had only the names.
        yield from ((path, False) for path in _old_list(name, archive))
        return
    for entry in entries:
        yield str(entry.relative_path), bool(entry.path_type.directory)


def _old_list(name: str, archive: str) -> list[str]:
    if archive.endswith(".tar.bz2"):
        with tarfile.open(archive, "r|bz2") as members:
            for member in members:
                if member.name == "info/files" and member.isfile():
                    file = members.extractfile(member)
                    assert file is not None
                    return file.read(_MAX_LIST_BYTES).decode("utf-8", "surrogateescape").splitlines()
    raise Misplaced(f"{name} does not list its files")
