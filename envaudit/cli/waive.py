"""`envaudit waive`: accept a finding for some nodes until a day, in writing."""

from __future__ import annotations

import argparse
import fcntl
import getpass
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from envaudit.cli import configuration, policyfile, trusted
from envaudit.cli.stdout import write
from envaudit.errors import EXIT_PASS, UsageError
from envaudit.report.screen import printable
from envaudit.store import atomic_write


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `envaudit waive`."""
    parser.add_argument("rule", metavar="ID", help="the rule whose findings are accepted, EA331")
    parser.add_argument("--nodes", metavar="NODESET", help="on these nodes alone; default: on all")
    parser.add_argument("--path", metavar="GLOB", help="for these fact paths alone, 'gpu/devices/3/**'")
    parser.add_argument("--until", required=True, metavar="DAY", help="its last day, 2027-01-31")
    parser.add_argument("--reason", required=True, help="why it is accepted")
    parser.add_argument("--owner", help="who accepts it; default: your user name")
    parser.add_argument("--config", metavar="FILE", help="append to this file; default: the one found upward")


def execute(options: argparse.Namespace) -> int:
    """Append one waiver to the configuration, which is read back before it replaces the file.

    Raises:
        UsageError: a fault in the waiver, or in the file that it would stand in.
    """
    path = options.config or configuration.discover(os.getcwd()) or configuration.FILE_NAME
    day = policyfile.day_of(options.until)
    if day is None:
        raise UsageError(f"expected a day such as 2027-01-31, got '{options.until}'", where="--until")
    if day < time.strftime("%Y-%m-%d", time.gmtime()):
        raise UsageError(f"{day} is over", where="--until", next_step="Name a day to come.")
    row = {
        "rule": options.rule.upper(),
        "path": options.path,
        "nodes": options.nodes,
        "reason": options.reason,
        "owner": options.owner or getpass.getuser(),
    }
    with _alone(path):
        _append(path, row, day)
    nodes = f" on {options.nodes}" if options.nodes else ""
    write(f"{printable(path)}: {row['rule']}{printable(nodes)} is waived until {day}\n")
    return EXIT_PASS


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """One writer at a time: two that append at once would each replace the other's waiver."""
    handle = -1
    with suppress(OSError):  # a file system without locks; no such folder, as the write will tell
        handle = os.open(os.path.dirname(os.path.realpath(path)), os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def _append(path: str, row: Mapping[str, str | None], day: str) -> None:
    before = configuration.read_bytes(path) if os.path.exists(path) else b""
    configuration.parse_table(path, before)  # a file that is none is told as it is
    text = f"[[{_head(path)}]]\n" + "".join(
        f"{key} = {_quoted(value)}\n" for key, value in row.items() if value
    )
    separator = "" if not before else "\n" if before.endswith(b"\n") else "\n\n"
    addition = f"{separator}{text}expires = {day}\n"
    # A file of Windows keeps one kind of line end.
    after = before + (addition.replace("\n", "\r\n") if b"\r\n" in before else addition).encode()
    try:
        complaints = policyfile.faults(configuration.parse_table(path, after))
    except UsageError as error:
        raise UsageError(
            "a waiver cannot be appended",
            where=path,
            why=error.why,
            next_step=f"Write each waiver there as a table of its own: [[{_head(path)}]].",
        ) from None
    if complaints:
        told = "\n".join(printable(f"{path}: {each.key}: {each.text}") for each in complaints)
        raise UsageError(f"the waiver is not written:\n{told}")
    was_trusted = bool(before) and trusted.is_trusted(path, before)
    atomic_write(path, after)
    if was_trusted:
        trusted.trust(path, after)


def _head(path: str) -> str:
    return "tool.envaudit.waivers" if os.path.basename(path) == "pyproject.toml" else "waivers"


def _quoted(text: str) -> str:
    """A basic string of TOML: the escapes of JSON, and DEL, which JSON leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
