"""Which distribution of the Python index a conda package holds: the table that ships with envaudit.

`names.json` has the form that conda-lock reads as a name mapping (index name to an entry with
`conda_name` and `pypi_name`), so that the same file serves both and nothing is fetched. It holds
only what differs; every other name is the same on both sides. `also` lists further conda packages
that hold the distribution, as `dask-core` and `dask` both do.

Source: the names and the `source` sections of the packages' public recipes.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from envaudit.errors import InputError

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "names.json")

_SEPARATORS = re.compile(r"[-_.]+")
_MAX_BYTES = 16 << 20


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 compares it: `Ruamel.YAML` is `ruamel-yaml`."""
    return _SEPARATORS.sub("-", name).lower()


def table_path(named: str | None) -> str:
    """The table to use: the user's own, or the one that ships.

    Raises:
        InputError: the user's file is not such a table.
    """
    if named is None:
        return TABLE
    path = os.path.abspath(named)
    _entries(path)
    return path


def distributions_of(conda_name: str, table: str = TABLE) -> tuple[str, ...]:
    """The index names of what a conda package holds, normalised; its own name where none is known."""
    return _by_conda_name(table).get(conda_name, (normalised(conda_name),))


def conda_names_of(distribution: str, table: str = TABLE) -> tuple[str, ...]:
    """The conda packages that hold a distribution, the usual one first."""
    name = normalised(distribution)
    return _entries(table).get(name, (name,))


def provided(conda: Iterable[tuple[str, str, Iterable[str]]], table: str = TABLE) -> dict[str, str]:
    """Distribution to version, for what the conda part of an environment brings to Python.

    Args:
        conda: name, version and the names of the dependencies of each package. One that does not
            depend on Python is a library or a program, whatever its name.
        table: the name table.
    """
    found: dict[str, str] = {}
    exact: set[str] = set()
    for name, version, dependencies in conda:
        if not {"python", "python_abi"} & set(dependencies):
            continue
        for distribution in distributions_of(name, table):
            # `python-xxhash` holds xxhash; a package that is called xxhash is the C library.
            if distribution not in exact:
                found[distribution] = version
            if distribution != normalised(name):
                exact.add(distribution)
    return found


@functools.lru_cache(maxsize=4)
def _entries(table: str) -> Mapping[str, tuple[str, ...]]:
    """Index name to the conda packages that hold it."""
    try:
        with open(table, "rb") as file:
            entries = json.loads(file.read(_MAX_BYTES))
        return {normalised(key): _conda_names(entry) for key, entry in entries.items()}
    except OSError as error:
        raise InputError("cannot be read", where=table, why=error.strerror or str(error)) from None
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            "not a name table",
            where=table,
            why=f"{type(error).__name__}: {error}",
            next_step='An entry is "INDEX-NAME": {"conda_name": "...", "pypi_name": "..."}.',
        ) from None


def _conda_names(entry: Mapping[str, Any]) -> tuple[str, ...]:
    names = (entry["conda_name"], *entry.get("also", ()))
    if not all(isinstance(name, str) for name in (*names, entry["pypi_name"])):
        raise TypeError("a name is a text")
    return names


@functools.lru_cache(maxsize=4)
def _by_conda_name(table: str) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for distribution, names in _entries(table).items():
        for name in names:
            found.setdefault(name, []).append(distribution)
    return {name: tuple(distributions) for name, distributions in found.items()}
