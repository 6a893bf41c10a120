"""The pip part of a lock: its files checked by hash, installed by uv without an index.

Only what the lock names is installed: no dependencies are looked up, no index is asked, and a
package without a wheel is refused unless builds were allowed, since a build runs its code.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import zipfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from envaudit.errors import InputError, NeededError, UsageError
from envaudit.lock.fetch import copy_file, fetch_all, wanted
from envaudit.lock.lockfile import LockedPackage
from envaudit.lock.pip import MISLEADING, find_uv

if TYPE_CHECKING:
    from envaudit.lock.install import Supply

_TIMEOUT_S = 1800
# Where the first lines of a script are; what is none is read no further.
_HEAD_BYTES = 64 << 10
_HEADERS = "include/site"


def install_distributions(
    packages: Sequence[LockedPackage], fresh: str, target: str, *, supply: Supply, allow_build: bool
) -> None:
    """Install the pip packages into a fresh prefix that will be `target`.

    Raises:
        UsageError: a package has no wheel and builds are not allowed, or there is no python.
        InputError: a file hashes to something else.
        NeededError: uv is missing or failed, or a file cannot be had.
    """
    python = os.path.join(fresh, "bin", "python")
    if not os.path.exists(python):
        raise UsageError(
            "the lock has pip packages but no python", next_step="Add python to the environment file."
        )
    repositories = [package for package in packages if is_repository(package)]
    files = [package for package in packages if package not in repositories]
    built = [*repositories, *(package for package in files if not package.file_name.endswith(".whl"))]
    if built and not allow_build:
        raise UsageError(
            f"{built[0].name} {built[0].version} has no wheel in the lock",
            why="a build runs code of the package",
            next_step="Install with --allow-build if you trust it.",
        )
    folder = os.path.join(os.path.dirname(fresh), "wheels")
    os.mkdir(folder)
    if files:
        lines = [f"{each.name}=={each.version} --hash={_hash_of(each)}" for each in files]
        where = _where(files, folder, supply)
        _check_data(folder, fresh)
        _run_uv(python, lines, [*where, *([] if built else ["--no-build"])], supply.offline)
    if repositories:
        lines = [f"{package.name} @ {package.url}" for package in repositories]
        _run_uv(python, lines, [], supply.offline)
    _move_scripts(fresh, target)


def is_repository(package: LockedPackage) -> bool:
    """Whether a pip package comes from a version control system."""
    return package.url.startswith(("git+", "hg+", "svn+", "bzr+"))


def _where(packages: Sequence[LockedPackage], folder: str, supply: Supply) -> list[str]:
    """Options of uv for where the files are: this folder, or the user's index where they are gone.

    The addresses in a lock are those of the index that its maker used; the same file, by its hash,
    is as good from the mirror that this user has set for uv.
    """
    try:
        _gather(packages, folder, supply)
    except NeededError:
        if supply.offline or any(package.source_url for package in packages):
            raise
        return ["--require-hashes"]
    building = any(not package.file_name.endswith(".whl") for package in packages)
    # A build takes its own tools from the index.
    return ["--require-hashes", "--find-links", folder, *([] if building else ["--no-index"])]


def _gather(packages: Sequence[LockedPackage], folder: str, supply: Supply) -> None:
    """Put the checked files under their names into one folder, which uv takes for an index."""
    files = [wanted(package, supply.addresses(package)) for package in packages]
    paths = fetch_all(files, supply.cache, opener=supply.opener, offline=supply.offline)
    for file in files:
        copy_file(paths[file], os.path.join(folder, file.name))


def _check_data(folder: str, fresh: str) -> None:
    """Nothing where no wheel's data files go through a link of a conda package that leaves the prefix.

    Raises:
        InputError: names the wheel.
    """
    inside = os.path.realpath(fresh)
    for wheel in sorted(name for name in os.listdir(folder) if name.endswith(".whl")):
        try:
            with zipfile.ZipFile(os.path.join(folder, wheel)) as archive:
                names = archive.namelist()
        except (zipfile.BadZipFile, OSError):
            continue  # uv will say so
        for place in sorted(_data_folders(names, inside)):
            target = os.path.realpath(os.path.join(inside, place))
            if target != inside and not target.startswith(inside + os.sep):
                raise InputError(
                    "the files of a package would not stay in the environment",
                    why=f"{wheel} has data files for {place!r}, which is a link to elsewhere",
                    next_step="Do not use it, and tell whoever runs its channel.",
                )


def _data_folders(names: Sequence[str], prefix: str) -> set[str]:
    """Where under the prefix members of a wheel may go that are no module and no script."""
    folders = set()
    for name in names:
        top, _, rest = name.partition("/")
        scheme, _, path = rest.partition("/")
        if top.endswith(".data") and scheme == "data":
            folders.add(os.path.dirname(path))
        elif top.endswith(".data") and scheme == "headers":
            folders.add(_HEADERS)
    if _HEADERS in folders:
        # In a folder of the interpreter's version and of the distribution.
        for above, below, _files in os.walk(os.path.join(prefix, _HEADERS)):
            folders.update(os.path.relpath(os.path.join(above, folder), prefix) for folder in below)
    return folders


def _hash_of(package: LockedPackage) -> str:
    return f"sha256:{package.sha256}" if package.sha256 else f"md5:{package.md5}"


def _run_uv(python: str, lines: Sequence[str], options: Sequence[str], offline: bool) -> None:
    work = os.path.dirname(os.path.dirname(os.path.dirname(python)))
    path = os.path.join(work, "requirements.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
    argv = [
        find_uv(),
        "pip",
        "install",
        "--python",
        python,
        "--no-deps",
        "--link-mode",
        "copy",
    ]
    argv += [
        "--cache-dir",
        os.path.join(work, "uv"),
        "-r",
        path,
        *options,
        *(["--offline"] if offline else []),
    ]
    environ = {"UV_SYSTEM_CERTS": "true", **os.environ}
    environ = {name: value for name, value in environ.items() if name not in MISLEADING}
    try:
        # From here uv finds no configuration of a repository under test.
        ran = subprocess.run(
            argv, env=environ, capture_output=True, text=True, timeout=_TIMEOUT_S, cwd="/", check=False
        )
    except subprocess.TimeoutExpired:
        raise NeededError("uv did not end", why=f"{_TIMEOUT_S} s have passed") from None
    if ran.returncode == 0:
        return
    said = " ".join(ran.stderr.split())[-800:]
    if "ash mismatch" in said:
        raise InputError("a pip package is not the file that the lock means", why=said)
    raise NeededError("uv could not install the pip packages", why=said)


def _move_scripts(fresh: str, target: str) -> None:
    """Let scripts name the interpreter where it will be: uv wrote where it is now."""
    changed = {}
    folder = os.path.join(fresh, "bin")
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        old, new = os.fsencode(fresh), os.fsencode(target)
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
            line, newline, rest = head.partition(b"\n")
            if not line.startswith(b"#!") and b"exec" not in rest[:400]:
                continue
            if old + b"/" not in line + newline + rest[:400]:
                continue
            # All of it: a program may stand behind these lines in a zip.
            text = (head + file.read()).replace(old + b"/", new + b"/")
        with open(path, "wb") as file:
            file.write(text)
        changed[f"bin/{name}"] = text
    if changed:
        _correct_records(fresh, changed)


def _correct_records(fresh: str, changed: dict[str, bytes]) -> None:
    """Bring hash and size of changed scripts in the RECORD files up to date."""
    for folder in _site_packages(fresh):
        for name in sorted(os.listdir(folder)):
            record = os.path.join(folder, name, "RECORD")
            if not name.endswith(".dist-info") or not os.path.isfile(record):
                continue
            with open(record, encoding="utf-8") as file:
                lines = file.read().splitlines()
            fixed = [_record_line(line, folder, fresh, changed) for line in lines]
            if fixed != lines:
                with open(record, "w", encoding="utf-8") as file:
                    file.write("".join(f"{line}\n" for line in fixed))


def _record_line(line: str, folder: str, fresh: str, changed: dict[str, bytes]) -> str:
    path = line.partition(",")[0]
    text = changed.get(os.path.relpath(os.path.normpath(os.path.join(folder, path)), fresh))
    if text is None:
        return line
    digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip("=")
    return f"{path},sha256={digest},{len(text)}"


def _site_packages(prefix: str) -> list[str]:
    library = os.path.join(prefix, "lib")
    return [
        os.path.join(library, name, "site-packages")
        for name in sorted(os.listdir(library))
        if name.startswith("python") and os.path.isdir(os.path.join(library, name, "site-packages"))
    ]
