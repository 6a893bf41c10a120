"""`envaudit.toml`: found, trusted, read, later files over earlier ones.

Keys that execute something are honoured only from a file that the user names, that lies in the
user's own configuration folder, or that `envaudit trust` has recorded: a repository under test
must not run code on the auditor's machine.
"""

from __future__ import annotations

import argparse
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from envaudit.cli import trusted
from envaudit.errors import InputError, UsageError

if TYPE_CHECKING:
    from envaudit.cli.configurationkeys import PolicyFile

FILE_NAME = "envaudit.toml"
EXECUTING_KEYS = ("command", "python", "interpreters", "ssh-config")

_MAX_BYTES = 1 << 20


class Nodes(NamedTuple):
    """The `[nodes]` table; times in seconds. Without a transport nodes are reached over ssh."""

    hosts: str = ""
    transport: Optional[str] = None
    workdir: Optional[str] = None
    folders: Tuple[str, ...] = ()
    timeout_s: int = 60
    fanout: int = 64
    python: Optional[str] = None
    command: Optional[str] = None
    ssh_config: Optional[str] = None
    interpreters: Mapping[str, str] = MappingProxyType({})


class Gate(NamedTuple):
    """The `[gate]` table: what fails, which sections must have been read, which rules end a prolog.

    `max_bad_fraction` is the part of the nodes beyond which one finding says more of its baseline or
    policy than of the nodes.
    """

    fail_on: str = "error"
    require: Optional[Tuple[str, ...]] = None
    max_bad_fraction: float = 0.10
    prolog: Tuple[str, ...] = ()


class Lock(NamedTuple):
    """The `[lock]` table: what is locked, for what, and where the lock stands; paths are absolute."""

    sources: Tuple[str, ...] = ()
    output: Optional[str] = None
    platforms: Tuple[str, ...] = ()
    virtual_packages: Optional[str] = None
    channel_priority: Optional[str] = None


class Configuration(NamedTuple):
    """What the files say, later files over earlier ones.

    Attributes:
        files: where it is said.
        policy: the files that say how a run is judged.
    """

    nodes: Nodes = Nodes()
    gate: Gate = Gate()
    lock: Lock = Lock()
    files: Tuple[str, ...] = ()
    policy: Tuple[PolicyFile, ...] = ()


def of(options: argparse.Namespace) -> Configuration:
    """The configuration of one command, read once: what is judged follows what was asked for.

    A file that changes, or loses its trust, while nodes are asked does not change the run.
    """
    if getattr(options, "configuration", None) is None:
        options.configuration = load(options.config, os.getcwd(), getattr(options, "policy", None))
    configuration: Configuration = options.configuration
    return configuration


def load(named: Optional[str], start: str, policy: Optional[str] = None) -> Configuration:
    """The user's own configuration, then `named`, or the file found upward from `start`.

    Where a `policy` is named, it alone says how the run is judged, and it says nothing else: a
    repository under test cannot waive itself, and the policy does not choose the nodes.

    Raises:
        UsageError: any fault in a file, all faults in one message; or executing keys in a
            discovered file that is not trusted.
        InputError: a named file that cannot be read.
    """
    files = _files(named, start)
    named_policy = [_file(policy, read_bytes(policy))] if policy is not None else []
    if not files and not named_policy:
        return Configuration()
    from envaudit.cli.configurationkeys import has_policy

    _check((*files, *named_policy))
    judging = named_policy or [file for file in files if has_policy(file.table) or "gate" in file.table]
    merged_nodes: Dict[str, Any] = {}
    merged_gate: Dict[str, Any] = {}
    merged_lock: Dict[str, Any] = {}
    for path, table, _ in files:
        merged_nodes.update(_resolved(path, table.get("nodes", {})))
        merged_lock.update(_resolved(path, table.get("lock", {})))
    for file in judging:
        merged_gate.update(file.table.get("gate", {}))
    return Configuration(
        nodes=Nodes(**{_FIELDS.get(key, key): value for key, value in merged_nodes.items()}),
        gate=Gate(
            fail_on=merged_gate.get("fail-on", "error"),
            require=tuple(merged_gate["require"]) if "require" in merged_gate else None,
            max_bad_fraction=float(merged_gate.get("max-bad-fraction", Gate().max_bad_fraction)),
            prolog=tuple(merged_gate.get("prolog", ())),
        ),
        lock=Lock(
            sources=tuple(merged_lock.get("sources", ())),
            output=merged_lock.get("output"),
            platforms=tuple(merged_lock.get("platforms", ())),
            virtual_packages=merged_lock.get("virtual-packages"),
            channel_priority=merged_lock.get("channel-priority"),
        ),
        files=tuple(file.path for file in files),
        policy=tuple(judging),
    )


def _files(named: Optional[str], start: str) -> List[PolicyFile]:
    """The files that count, the user's own first; what is found and would execute something is trusted."""
    files: List[PolicyFile] = []
    own = os.path.join(trusted.folder("XDG_CONFIG_HOME", ".config"), FILE_NAME)
    if os.path.exists(own):
        files.append(_file(own, read_bytes(own)))
    if named is not None:
        files.append(_file(named, read_bytes(named)))
    else:
        found = discover(start)
        if found is not None and os.path.realpath(found) != os.path.realpath(own):
            data = read_bytes(found)
            file = _file(found, data)
            _demand_trust(found, data, file.table)
            _demand_output_inside(found, file.table)
            files.append(file)
    return files


def _check(files: Iterable[PolicyFile]) -> None:
    """Refuse files with faults, all of them in one message."""
    from envaudit.cli.configurationkeys import faults_of, has_policy

    faults: List[str] = []
    for path, table, _ in files:
        faults += [f"{path}: {fault}" for fault in faults_of(table)]
        if has_policy(table):
            from envaudit.cli import policyfile  # all rules are imported to read it

            faults += [f"{path}: {each.key}: {each.text}" for each in policyfile.faults(table)]
    if faults:
        from envaudit.model.printing import printable

        # A key of a repository under test may hold a line of its own, such as a command to a CI runner.
        faults = list(map(printable, faults))
        count = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise UsageError("\n".join([f"{count} in the configuration:", *faults]))


def _file(path: str, data: bytes) -> PolicyFile:
    import hashlib  # 2 ms, where there is a file

    from envaudit.cli.configurationkeys import PolicyFile

    return PolicyFile(path, parse_table(path, data), hashlib.sha256(data).hexdigest())


def discover(start: str) -> Optional[str]:
    """`envaudit.toml`, or a pyproject.toml with `[tool.envaudit]`, upward from `start`."""
    here = os.path.abspath(start)
    while True:
        path = os.path.join(here, FILE_NAME)
        if os.path.isfile(path):
            return path
        project = os.path.join(here, "pyproject.toml")
        if os.path.isfile(project) and _mentions_us(project):
            return project
        parent = os.path.dirname(here)
        if parent == here:
            return None
        here = parent


def read_bytes(path: str) -> bytes:
    """A configuration file as it is now.

    Raises:
        InputError: it cannot be read, or is too large to be one.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError("cannot be read", where=path, why=error.strerror or str(error)) from None
    if len(data) > _MAX_BYTES:
        raise InputError(f"larger than {_MAX_BYTES} bytes", where=path)
    return data


def parse_table(path: str, data: bytes) -> Dict[str, Any]:
    """The envaudit table of a file's content."""
    # Imported where a file is there to be read: a command without one starts 5 ms sooner.
    from envaudit.sources.documents import toml_of

    try:
        table = toml_of(data.decode("utf-8-sig"), path)
    except InputError as error:
        raise UsageError("not TOML", where=path, why=error.why) from None
    except UnicodeDecodeError as error:
        raise UsageError("not TOML", where=path, why=str(error)) from None
    if os.path.basename(path) == "pyproject.toml":
        tool = table.get("tool")
        table = tool.get("envaudit", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError("tool.envaudit: expected a table", where=path)
    return table


def executing_keys(table: Mapping[str, Any]) -> List[str]:
    """The keys of a table that would run something, `nodes.python = ...`."""
    nodes = table.get("nodes")
    if not isinstance(nodes, dict):
        return []
    return [f"nodes.{key} = {nodes[key]!r}" for key in EXECUTING_KEYS if key in nodes]


def _demand_trust(path: str, data: bytes, table: Mapping[str, Any]) -> None:
    keys = executing_keys(table)
    if keys and not trusted.is_trusted(path, data):
        raise UsageError(
            "has keys that execute something: " + ", ".join(key.split(" = ")[0] for key in keys),
            where=path,
            next_step="Read the file; then run 'envaudit trust' to honour it until it changes, "
            "or name it with --config.",
        )


def _demand_output_inside(path: str, table: Mapping[str, Any]) -> None:
    """A discovered file must not have this user write outside of its folder."""
    lock = table.get("lock")
    output = lock.get("output") if isinstance(lock, dict) else None
    if not isinstance(output, str) or "\0" in output:
        return  # no path, which is told with the other faults
    folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    target = os.path.realpath(os.path.join(folder, os.path.expanduser(output)))
    if os.path.commonpath([folder, target]) != folder:
        raise UsageError(
            "lock.output leaves the folder of the file that says it",
            where=path,
            next_step="Give --output yourself, or name the file with --config.",
        )


def _mentions_us(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"tool.envaudit" in file.read(_MAX_BYTES)
    except OSError:
        return False


_FIELDS = {"timeout": "timeout_s", "ssh-config": "ssh_config"}


def _resolved(path: str, table: Mapping[str, Any]) -> Dict[str, Any]:
    """Paths that a file names are relative to that file."""
    folder = os.path.dirname(os.path.abspath(path))
    resolved = dict(table)
    for key in ("ssh-config", "output", "virtual-packages"):
        if key in resolved:
            resolved[key] = os.path.join(folder, os.path.expanduser(resolved[key]))
    if "folders" in resolved:
        resolved["folders"] = tuple(resolved["folders"])
    if "sources" in resolved:
        resolved["sources"] = [os.path.join(folder, os.path.expanduser(each)) for each in resolved["sources"]]
    return resolved
