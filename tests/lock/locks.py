"""Lock files over the local channel, written straight from its index: no solver is needed to install."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.lock.channel import LocalChannel

BASE = "https://conda.example/train"

# A small environment: python and what runs in it, both formats, noarch and not.
SMALL = (
    "ca-certificates-2024.2.2-hbcca054_0",
    "jinja2-3.1.3",
    "libgcc-ng-13.2.0",
    "libzlib-1.2.13-hd590300_5",
    "markupsafe-2.1.5-py310h2372a71_0",
    "numpy-1.26.4-py310hb13e2d6_0",
    "openssl-3.2.1-hd590300_1",
    "pip-24.0",
    "python-3.10.14-hd12c33a_0",
    "setuptools-69.5.1",
    "tzdata-2024a",
    "wheel-0.43.0",
)


def lock_entry(channel: LocalChannel, package: str, *, base: str = BASE, **changes: Any) -> dict[str, Any]:
    """One package of the channel as an entry of a lock for linux-64."""
    path = channel.package(package)
    index = json.loads((path.parent / "repodata.json").read_text("utf-8"))
    record = {**index["packages"], **index["packages.conda"]}[path.name]
    entry = {
        "name": record["name"],
        "version": record["version"],
        "manager": "conda",
        "platform": "linux-64",
        "dependencies": {
            name: rest.strip() or "*"
            for name, _, rest in (depend.partition(" ") for depend in record["depends"])
        },
        "url": f"{base}/{path.parent.name}/{path.name}",
        "hash": {"md5": record["md5"], "sha256": record["sha256"]},
        "category": "main",
        "optional": False,
    }
    return {**entry, **changes}


def pip_entry(path: Path, name: str, version: str, sha256: str) -> dict[str, Any]:
    """A wheel as an entry of a lock for linux-64."""
    return {
        "name": name,
        "version": version,
        "manager": "pip",
        "platform": "linux-64",
        "dependencies": {},
        "url": path.as_uri(),
        "hash": {"sha256": sha256},
        "category": "main",
        "optional": False,
    }


def write_lock(
    path: Path,
    entries: Iterable[Mapping[str, Any]],
    *,
    channels: Sequence[str] = (BASE,),
    custom: Mapping[str, str] | None = None,
) -> Path:
    """A lock file with these entries. JSON is YAML too."""
    metadata: dict[str, Any] = {
        "content_hash": {"linux-64": "0" * 64},
        "channels": [{"url": url, "used_env_vars": []} for url in channels],
        "platforms": ["linux-64"],
        "sources": ["environment.yml"],
    }
    if custom:
        metadata["custom_metadata"] = dict(custom)
    document = {"version": 1, "metadata": metadata, "package": list(entries)}
    path.write_text(json.dumps(document, indent=1), "utf-8")
    return path


def small_lock(
    path: Path, channel: LocalChannel, packages: Sequence[str] = SMALL, *, base: str = BASE
) -> Path:
    """A lock file with some packages of the channel."""
    return write_lock(
        path, [lock_entry(channel, package, base=base) for package in packages], channels=(base,)
    )
