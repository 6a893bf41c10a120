"""The installer's own process: puts checked archives into an empty folder, answers in lines of JSON.

It stands apart from the process that asked for the reason that `envaudit.lock.child` gives, and so
that an interrupted install ends at once: it leaves when its standard input ends. Packages are
extracted anew from their archives, beside the prefix and only for this one install: no folder of
extracted files, which nobody can check by the lock's hashes, is ever trusted. Link scripts of
packages are not run; they are code of strangers, and the lock says nothing of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from envaudit.lock.placing import Listed, check_extracted, check_places

_MAX_TEXT = 2000


def main() -> None:
    """Do what one line on standard input asks; never returns."""
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_with_the_asker, daemon=True).start()
    try:
        asyncio.run(_install(job))
        _say({"done": _name_origins(job)})
    except BaseException as error:
        _leave_with(error)
    os._exit(0)


def _leave_with(error: BaseException) -> NoReturn:
    _say({"fault": f"{type(error).__name__}: {error}"[:_MAX_TEXT]})
    os._exit(1)


def _leave_with_the_asker() -> None:
    while sys.stdin.buffer.read(1 << 16):
        pass
    os._exit(1)


def _say(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class _Reporter:
    """Passes on that a package is put in place; the other calls of rattler's reporter stay silent."""

    def __init__(self, extracted: str, listed: Mapping[str, Listed], folders: Mapping[str, str]) -> None:
        self._extracted, self._listed, self._folders = extracted, listed, folders

    def on_link_start(self, operation: int, package_name: str) -> int:
        """Before the first of its files."""
        try:
            folder = os.path.join(self._extracted, self._folders[package_name])
            check_extracted(package_name, self._listed[package_name], folder)
        except BaseException as error:  # rattler would go on
            _leave_with(error)
        _say({"linked": package_name})
        return operation

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_: 0


async def _install(job: Mapping[str, Any]) -> None:
    from rattler import RepoDataRecord, Subdir, install

    records = []
    for package in job["packages"]:
        record = await RepoDataRecord.from_package_archive(package["path"])
        found = (record.name.source, str(record.version), str(record.build))
        named = (package["name"], package["version"], package["build"])
        if tuple(map(str.lower, found)) != tuple(map(str.lower, named)):
            raise ValueError(f"{package['path']} is {'-'.join(found)}, the lock says {'-'.join(named)}")
        record.url = Path(package["path"]).as_uri()
        records.append(record)
    listed = check_places(zip(records, (package["path"] for package in job["packages"])))
    names = [each.name.normalized for each in records]
    folders = {name: f"{name}-{each.version}-{each.build}" for name, each in zip(names, records)}
    await install(
        records,
        job["prefix"],
        cache_dir=job["extracted"],
        installed_packages=[],
        platform=Subdir(job["platform"]),
        execute_link_scripts=False,
        show_progress=False,
        reporter=_Reporter(job["extracted"], listed, folders),
        alternative_target_prefix=job["final"],
    )


def _name_origins(job: Mapping[str, Any]) -> list[str]:
    """Write into each record of conda-meta where the lock has its package from.

    Returns the packages whose link scripts were not run.
    """
    meta = os.path.join(job["prefix"], "conda-meta")
    for package in job["packages"]:
        path = os.path.join(meta, f"{package['name']}-{package['version']}-{package['build']}.json")
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        record["url"], record["channel"] = package["url"], package["channel"]
        for key in ("md5", "sha256"):
            if package[key]:
                record[key] = package[key]
        # Both speak of the extracted copy, which is gone after the install.
        record.pop("extracted_package_dir", None)
        record.pop("link", None)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=2)
    scripts = Path(job["prefix"], "bin").glob(".*-post-link.sh")
    return sorted(path.name[1 : -len("-post-link.sh")] for path in scripts)


if __name__ == "__main__":
    main()
