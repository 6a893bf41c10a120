"""Section `files`: what lies in an environment other than it was installed.

It is read where it is asked for by name, never in an ordinary snapshot: it hashes every file that
conda and pip installed, which takes seconds per gigabyte.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, NamedTuple, Set, Tuple

from envaudit.probe.context import Answer, Context
from envaudit.probe.distributions import find_in

SCHEMA = 1
DEADLINE_S = 900.0

_AT_ONCE = 8
_CHUNK_BYTES = 1 << 20
_MAX_RECORD_BYTES = 256 << 20
_NAMED_PATHS = 20


class _File(NamedTuple):
    """A file as its package has it; `digest` is empty where only its presence is known."""

    package: str
    path: str
    digest: str


# What any package says that a path holds: where two have the same file, one of them has won.
_Claims = Dict[str, Set[str]]


def read(context: Context) -> Answer:
    """Facts `changed` and `missing`: package to the paths, below the prefix, of such files.

    Of a package at most 20 paths are named; `counts` (package to number) has them all. A pip
    package is named `pip:NAME`. Byte code is left out, since Python writes it anew by itself.
    """
    told = context.interpreter
    prefix = str(told.get("prefix") or "")
    errors: List[str] = []
    conda = next(
        (p for p in (prefix, str(told.get("base_prefix") or "")) if _has_records(context, p)), prefix
    )
    wanted = [*_of_conda(context, conda, errors), *_of_pip(context, prefix, told.get("path", []), errors)]
    claims: _Claims = {}
    for file in wanted:
        claims.setdefault(file.path, set()).add(file.digest.lower())
    states: Dict[str, Dict[str, List[str]]] = {"changed": {}, "missing": {}}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for file, state in zip(wanted, pool.map(lambda file: _state(context, file, claims), wanted)):
            if state in states:
                top = prefix if file.package.startswith("pip:") else conda
                states[state].setdefault(file.package, []).append(os.path.relpath(file.path, top))
            elif state:
                errors.append(f"{file.path}: {state}")
    facts: Dict[str, Any] = {
        state: {package: sorted(paths)[:_NAMED_PATHS] for package, paths in of.items()}
        for state, of in states.items()
    }
    facts["counts"] = {
        state: {package: len(paths) for package, paths in of.items()} for state, of in states.items()
    }
    return Answer("partial" if errors else "ok", facts, {"examined": len(wanted)}, errors[:100])


def _has_records(context: Context, prefix: str) -> bool:
    return bool(prefix) and context.is_dir(os.path.join(prefix, "conda-meta"))


def _of_conda(context: Context, prefix: str, errors: List[str]) -> Iterator[_File]:
    meta = os.path.join(prefix, "conda-meta")
    try:
        names = [name for name in context.list_dir(meta) if name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        errors.append(f"{meta}: {error.strerror}")
        return
    for name in names:
        path = os.path.join(meta, name)
        try:
            record = json.loads(context.read_bytes(path, _MAX_RECORD_BYTES))
            package = str(record["name"])
            listed = [_conda_file(entry) for entry in (record.get("paths_data") or {}).get("paths") or ()]
        except OSError as error:
            errors.append(f"{path}: {error.strerror}")
            continue
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            errors.append(f"{path}: not a record of a package ({type(error).__name__})")
            continue
        for inside, digest in listed:
            if inside and not inside.endswith(".pyc"):
                yield _File(package, os.path.join(prefix, inside), digest)


def _conda_file(entry: Dict[str, Any]) -> Tuple[str, str]:
    """Path and sha256 of an entry of paths_data; links and folders have none."""
    inside = str(entry["_path"])
    if os.path.isabs(inside) or ".." in inside.split("/") or entry.get("path_type") == "directory":
        return "", ""
    if entry.get("path_type", "hardlink") != "hardlink":
        return inside, ""
    return inside, str(entry.get("sha256_in_prefix") or entry.get("sha256") or "")


def _of_pip(context: Context, prefix: str, path: List[str], errors: List[str]) -> Iterator[_File]:
    """The files of distributions that pip or uv installed, by their RECORD."""
    for folder in path:
        if not folder.startswith(prefix.rstrip("/") + "/"):
            continue
        try:
            names = context.list_dir(folder)
        except OSError:
            continue
        for one in find_in(context, folder, names, errors):
            installer = context.peek(os.path.join(one.metadata, "INSTALLER"))
            if not installer or installer.lower() == "conda":
                continue
            try:
                record = context.read_text(os.path.join(one.metadata, "RECORD"), _MAX_RECORD_BYTES)
            except OSError:
                continue  # a development install has none
            for inside, digest in _rows(record):
                if not inside.endswith(".pyc"):
                    place = os.path.normpath(os.path.join(folder, inside))
                    yield _File(f"pip:{one.name}", place, digest)


def _rows(record: str) -> Iterator[Tuple[str, str]]:
    import csv

    for row in csv.reader(record.splitlines()):
        kind, _, encoded = row[1].partition("=") if len(row) > 1 else ("", "", "")
        if row and kind == "sha256":
            padded = encoded + "=" * (-len(encoded) % 4)
            try:
                yield row[0], base64.urlsafe_b64decode(padded).hex()
            except ValueError:
                continue


def _state(context: Context, file: _File, claims: _Claims) -> str:
    """`changed`, `missing`, empty for as it was, or why it could not be read."""
    real = context.real(file.path)
    try:
        if not file.digest:
            return "" if os.path.lexists(real) else "missing"
        digest = hashlib.sha256()
        with open(real, "rb") as stream:
            while True:
                chunk = stream.read(_CHUNK_BYTES)
                if not chunk:
                    break
                digest.update(chunk)
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        return str(error.strerror or error)
    return "" if digest.hexdigest() in claims[file.path] else "changed"
