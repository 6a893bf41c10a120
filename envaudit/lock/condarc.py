"""The user's conda settings: found by conda's documented search path, later places over earlier.

Only what decides where packages come from is read. Meaning and names of the keys are those of
conda's documentation ("Using the .condarc conda configuration file", "Settings"); the key
`mirrored_channels` is mamba's. An environment variable `CONDA_<KEY>` counts over every file, as it
does for conda.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from envaudit.errors import InputError, UsageError
from envaudit.lock.credentials import credential_in

DEFAULT_ALIAS = "https://conda.anaconda.org"
"""conda's `channel_alias`, under which a bare channel name stands."""

DEFAULTS_HOST = "https://repo.anaconda.com"
"""Where conda finds `pkgs/main` and its neighbours."""

DEFAULT_CHANNELS = (f"{DEFAULTS_HOST}/pkgs/main", f"{DEFAULTS_HOST}/pkgs/r")
"""What `defaults` stands for on Linux and macOS."""

PRIORITIES = ("strict", "flexible", "disabled")

_SYSTEM_FOLDERS = ("/etc/conda", "/var/lib/conda")
_MAX_BYTES = 1 << 20
# YAML booleans that conda accepts for channel_priority, from its time before 4.6.
_OLD_PRIORITIES = {True: "flexible", False: "disabled"}


@dataclass(frozen=True)
class Settings:
    """What the user's files say about channels; URLs have no slash at their end.

    `ssl_verify` is True, False, `"truststore"`, or the path of a certificate bundle. Values may
    hold credentials of the user's own mirrors: they are never printed nor written into a lock. The
    variables of `channels`, `default_channels` and `custom_multichannels` that keep one stand as written.
    """

    channel_alias: str = field(default=DEFAULT_ALIAS, repr=False)
    channels: tuple[str, ...] = field(default=(), repr=False)
    default_channels: tuple[str, ...] = field(default=DEFAULT_CHANNELS, repr=False)
    custom_channels: Mapping[str, str] = field(default_factory=dict, repr=False)
    custom_multichannels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    mirrored_channels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    channel_priority: str = "flexible"
    ssl_verify: bool | str = True
    proxy_servers: Mapping[str, str] = field(default_factory=dict, repr=False)
    remote_max_retries: int = 3
    add_pip: bool = True
    files: tuple[str, ...] = ()


def read_settings(environ: Mapping[str, str] | None = None, *, root: str = "/") -> Settings:
    """The settings in force, from every file of the search path that exists.

    Args:
        environ: the environment, this process' own by default.
        root: what stands for `/`, so that a test has its own `/etc/conda`.

    Raises:
        InputError: a file that is no YAML mapping or cannot be read.
        UsageError: a key with a value of another shape than conda documents.
    """
    environ = os.environ if environ is None else environ
    merged: dict[str, Any] = {}
    files = []
    for path in _search_path(environ, root):
        table = _load(path)
        files.append(path)
        for key, value in _known(table, path, environ).items():
            merged[key] = _merge(merged.get(key), value)
    merged.update(_known(_from_environment(environ), "the environment", environ))
    return Settings(files=tuple(files), **{_FIELDS.get(key, key): value for key, value in merged.items()})


def _search_path(environ: Mapping[str, str], root: str) -> Iterator[str]:
    """Existing files, least important first; each once, though two names may lead to it."""
    folders = [os.path.join(root, folder.lstrip("/")) for folder in _SYSTEM_FOLDERS]
    home = environ.get("HOME", "")
    for variable, inner in (("CONDA_ROOT", ""), ("XDG_CONFIG_HOME", "conda")):
        if environ.get(variable):
            folders.append(os.path.join(environ[variable], inner))
    if home:
        folders += [os.path.join(home, ".config", "conda"), os.path.join(home, ".conda"), home]
    if environ.get("CONDA_PREFIX"):
        folders.append(environ["CONDA_PREFIX"])
    seen = set()
    for folder in folders:
        for path in _files_of(folder, only_hidden=folder == home):
            if os.path.isfile(path) and os.path.realpath(path) not in seen:
                seen.add(os.path.realpath(path))
                yield path
    named = environ.get("CONDARC", "")
    if named:
        path = os.path.expanduser(named)
        if os.path.isfile(path) and os.path.realpath(path) not in seen:
            yield path


def _files_of(folder: str, *, only_hidden: bool) -> list[str]:
    """The settings files one folder may have; the home folder itself only `.condarc`."""
    if only_hidden:
        return [os.path.join(folder, ".condarc")]
    drop_ins = os.path.join(folder, "condarc.d")
    try:
        names = sorted(name for name in os.listdir(drop_ins) if name.endswith((".yml", ".yaml")))
    except OSError:
        names = []
    return [
        os.path.join(folder, ".condarc"),
        os.path.join(folder, "condarc"),
        *(os.path.join(drop_ins, name) for name in names),
    ]


def _load(path: str) -> dict[str, Any]:
    import yaml

    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise InputError(f"larger than {_MAX_BYTES} bytes", where=path)
        table = yaml.safe_load(data)
    except OSError as error:
        raise InputError("cannot be read", where=path, why=error.strerror or str(error)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError("not YAML", where=path, why=" ".join(str(error).split())[:300]) from None
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise InputError(
            f"expected keys and values, got {type(table).__name__}",
            where=path,
            next_step="See 'conda config --describe' for the keys.",
        )
    return table


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """`CONDA_CHANNEL_ALIAS=...` and so on; lists are separated by commas, as conda does."""
    import yaml

    table: dict[str, Any] = {}
    for key, shape in _SHAPES.items():
        text = environ.get(f"CONDA_{key.upper()}", "")
        if not text or shape in (_maps_to_text, _maps_to_texts, _proxies):
            continue
        if shape is _texts:
            table[key] = [part.strip() for part in text.split(",") if part.strip()]
        else:
            try:
                table[key] = yaml.safe_load(text) if shape is not _address else text
            except (yaml.YAMLError, ValueError):
                raise UsageError("not a value that conda reads", where=f"CONDA_{key.upper()}") from None
    return table


def _known(table: Mapping[str, Any], where: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The keys that count here, checked, with `$VARIABLE` filled in; null means not set."""
    known = {}
    for key, shape in _SHAPES.items():
        value = table.get(_ALIASES.get(key, key), table.get(key))
        if value is None:
            continue
        try:
            known[key] = shape(_expanded(value, environ, locked=key in _LOCKED))
        except ValueError as error:
            raise UsageError(
                f"{key}: expected {error}, got {type(value).__name__}",
                where=where,
                next_step="See 'conda config --describe' for what it takes.",
            ) from None
    return known


def _expanded(value: Any, environ: Mapping[str, str], *, locked: bool) -> Any:
    """`value` with its variables filled in; not where a lock would then hold what they keep secret."""
    from string import Template

    if isinstance(value, str) and "$" in value:
        filled = Template(value).safe_substitute(environ)
        return value if locked and credential_in(filled) else filled
    # No deeper than a value that counts: a list may hold itself.
    if isinstance(value, list):
        return [_expanded(item, environ, locked=locked) if isinstance(item, str) else item for item in value]
    if isinstance(value, dict):
        return {
            key: item if isinstance(item, dict) else _expanded(item, environ, locked=locked)
            for key, item in value.items()
        }
    return value


def _merge(lower: Any, higher: Any) -> Any:
    """Lists: the more important file's entries first; maps: its values win; else it replaces."""
    if isinstance(lower, tuple) and isinstance(higher, tuple):
        return higher + tuple(item for item in lower if item not in higher)
    if isinstance(lower, dict) and isinstance(higher, dict):
        return {**lower, **higher}
    return higher


def _address(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a URL")
    return value.strip().rstrip("/")


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("a list of channels")
    return tuple(item.strip().rstrip("/") for item in value)


def _maps_to_text(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ValueError("a map of name to URL")
    return {str(key).strip().rstrip("/"): item.strip().rstrip("/") for key, item in value.items()}


def _proxies(value: Any) -> dict[str, str]:
    """`host:port` is spoken to by http, as conda's own library has it."""
    found = _maps_to_text(value)
    return {key: text if "://" in text or not text else f"http://{text}" for key, text in found.items()}


def _maps_to_texts(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError("a map of name to a list of channels")
    return {str(key).strip().rstrip("/"): _texts(item) for key, item in value.items()}


def _priority(value: Any) -> str:
    if isinstance(value, bool):
        return _OLD_PRIORITIES[value]
    if value not in PRIORITIES:
        raise ValueError("one of " + ", ".join(PRIORITIES))
    return str(value)


def _verification(value: Any) -> bool | str:
    if not isinstance(value, (bool, str)):
        raise ValueError("true, false, truststore or a certificate bundle")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("a number")
    return value


_SHAPES: Mapping[str, Any] = {
    "channel_alias": _address,
    "channels": _texts,
    "default_channels": _texts,
    "custom_channels": _maps_to_text,
    "custom_multichannels": _maps_to_texts,
    "mirrored_channels": _maps_to_texts,
    "channel_priority": _priority,
    "ssl_verify": _verification,
    "proxy_servers": _proxies,
    "remote_max_retries": _count,
    "add_pip_as_python_dependency": _flag,
}
# A channel of these may stand in a lock as it is written here; of the others it does by its name.
_LOCKED = ("channels", "default_channels", "custom_multichannels")
_ALIASES = {"ssl_verify": "verify_ssl", "add_pip_as_python_dependency": "add_pip"}
_FIELDS = {"add_pip_as_python_dependency": "add_pip"}
