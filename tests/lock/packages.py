"""Small conda packages from the recipes under fixtures/channel/, whose bytes never change.

Both formats are archives that the standard library writes. What a compressor of another version
would pack otherwise is stored as it is, so that a lock made of these packages keeps its hashes.
"""

from __future__ import annotations

import base64
import bz2
import hashlib
import io
import json
import os
import struct
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Mapping

RECIPES = Path(__file__).resolve().parents[2] / "fixtures" / "channel"

Recipe = Mapping[str, Any]
# Path in the package to what lies there: content and mode, or the target of a link.
Tree = dict[str, "tuple[bytes, int] | str"]

_TIMESTAMP_MS = 1_714_521_600_000  # 2024-05-01
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 * 1024


def recipes_of(channel: str) -> list[tuple[str, Recipe]]:
    """Package name and variant of all recipes of a channel, sorted by file."""
    return [
        (path.stem, variant)
        for path in sorted((RECIPES / channel).glob("*.json"))
        for variant in json.loads(path.read_text("utf-8"))["variants"]
    ]


def build_package(name: str, recipe: Recipe, channel: Path) -> Path:
    """Write one package into its platform folder of `channel`.

    A recipe has version, build, number, subdir, format (`conda` or `tar.bz2`), depends, and may
    have constrains, noarch, `files` (path to text), `executables`, `links`, `placeholder` (the
    text that an install replaces by its prefix), `python` (`3.10`: where modules go), `modules`,
    `distribution` with `distribution_version`, `entry_points`, `index` (more keys of index.json).
    """
    stem = f"{name}-{recipe['version']}-{recipe['build']}"
    contents = _tree(name, recipe)
    info = {f"info/{path}": (text, 0o644) for path, text in _info(name, recipe, contents).items()}
    path = channel / recipe["subdir"] / f"{stem}.{recipe['format']}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if recipe["format"] == "tar.bz2":
        path.write_bytes(bz2.compress(_tar({**info, **contents})))
    else:
        path.write_bytes(_conda(stem, _tar(info), _tar(contents)))
    return path


def running_python() -> tuple[str, Recipe]:
    """A python package that runs: the interpreter of the tests, made to take the prefix as its own."""
    version = ".".join(map(str, sys.version_info[:3]))
    short = f"{sys.version_info[0]}.{sys.version_info[1]}"
    home = "home = {}\ninclude-system-site-packages = false\nversion = {}\n"
    executable = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    return "python", {
        "version": version,
        "build": "0_running",
        "number": 0,
        "subdir": "linux-64",
        "format": "conda",
        "depends": [],
        "files": {
            "pyvenv.cfg": home.format(os.path.dirname(executable), version),
            f"lib/python{short}/site-packages/README.txt": "Packages lie here.\n",
        },
        "links": {"bin/python": executable, "bin/python3": "python", f"bin/python{short}": "python"},
    }


def _tree(name: str, recipe: Recipe) -> Tree:
    executables = recipe.get("executables", ())
    tree: Tree = {
        path: (text.encode("utf-8"), 0o755 if path in executables else 0o644)
        for path, text in recipe.get("files", {}).items()
    }
    site = f"lib/python{recipe['python']}/site-packages" if "python" in recipe else "site-packages"
    modules = {path: text.encode("utf-8") for path, text in recipe.get("modules", {}).items()}
    if "distribution" in recipe:
        modules.update(_metadata(recipe, modules))
    tree.update({f"{site}/{path}": (text, 0o644) for path, text in modules.items()})
    tree.update(recipe.get("links", {}))
    return tree


def _metadata(recipe: Recipe, modules: Mapping[str, bytes]) -> dict[str, bytes]:
    name = recipe["distribution"]
    version = recipe.get("distribution_version", recipe["version"])
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        **modules,
        f"{folder}/INSTALLER": b"conda\n",
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
    }
    lines = [f"{path},sha256={_record_hash(text)},{len(text)}" for path, text in sorted(files.items())]
    record = "\n".join([*lines, f"{folder}/RECORD,,", ""])
    return {**files, f"{folder}/RECORD": record.encode()}


def _record_hash(text: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip("=")


def _info(name: str, recipe: Recipe, contents: Tree) -> dict[str, bytes]:
    index: dict[str, Any] = {
        "arch": None if recipe["subdir"] == "noarch" else recipe["subdir"].partition("-")[2],
        "build": recipe["build"],
        "build_number": recipe["number"],
        "constrains": list(recipe.get("constrains", ())),
        "depends": list(recipe["depends"]),
        "license": "Apache-2.0",
        "name": name,
        "platform": None if recipe["subdir"] == "noarch" else recipe["subdir"].partition("-")[0],
        "subdir": recipe["subdir"],
        "timestamp": _TIMESTAMP_MS,
        "version": recipe["version"],
        **recipe.get("index", {}),
    }
    if "noarch" in recipe:
        index["noarch"] = recipe["noarch"]
    paths = [
        _path_entry(path, what, recipe.get("placeholder", "")) for path, what in sorted(contents.items())
    ]
    documents = {"index.json": index, "paths.json": {"paths": paths, "paths_version": 1}}
    if recipe.get("noarch") == "python":
        noarch = {"type": "python", "entry_points": list(recipe.get("entry_points", ()))}
        documents["link.json"] = {"noarch": noarch, "package_metadata_version": 1}
    info = {path: json.dumps(document, indent=2).encode() for path, document in documents.items()}
    info["files"] = "".join(f"{path}\n" for path in sorted(contents)).encode()
    return info


def _path_entry(path: str, what: tuple[bytes, int] | str, placeholder: str) -> dict[str, Any]:
    if isinstance(what, str):
        return {"_path": path, "path_type": "softlink"}
    entry: dict[str, Any] = {
        "_path": path,
        "path_type": "hardlink",
        "sha256": hashlib.sha256(what[0]).hexdigest(),
        "size_in_bytes": len(what[0]),
    }
    if placeholder and placeholder.encode() in what[0]:
        entry.update(file_mode="text", prefix_placeholder=placeholder)
    return entry


def _tar(tree: Mapping[str, tuple[bytes, int] | str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, what in sorted(tree.items()):
            member = tarfile.TarInfo(path)
            if isinstance(what, str):
                member.type, member.linkname = tarfile.SYMTYPE, what
                archive.addfile(member)
            else:
                member.size, member.mode = len(what[0]), what[1]
                archive.addfile(member, io.BytesIO(what[0]))
    return packed.getvalue()


def _conda(stem: str, info: bytes, contents: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, text in (
            ("metadata.json", b'{"conda_pkg_format_version": 2}'),
            (f"pkg-{stem}.tar.zst", _zstd_stored(contents)),
            (f"info-{stem}.tar.zst", _zstd_stored(info)),
        ):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text)
    return packed.getvalue()


def _zstd_stored(text: bytes) -> bytes:
    """A Zstandard frame of raw blocks (RFC 8878, 3.1.1): single segment, size in four bytes."""
    frame = [struct.pack("<IBI", _ZSTD_MAGIC, 0b1010_0000, len(text))]
    for start in range(0, max(len(text), 1), _ZSTD_BLOCK_BYTES):
        block = text[start : start + _ZSTD_BLOCK_BYTES]
        last = start + _ZSTD_BLOCK_BYTES >= len(text)
        frame += [struct.pack("<I", len(block) << 3 | last)[:3], block]
    return b"".join(frame)
