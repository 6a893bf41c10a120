"""From references to fingerprints: files read, tags resolved, live nodes asked, all at once."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, Sequence, Tuple

from envaudit.cli import asking
from envaudit.cli.references import Reference
from envaudit.errors import InputError, UsageError
from envaudit.model import Fingerprint, Missing, Snapshot
from envaudit.store import Store
from envaudit.store.snapshot_file import decode_document, read_document

# Where a snapshot says what it is; the whole head of many nodes is longer.
_SNAPSHOT = re.compile(rb'\A\s*\{\s*"head"\s*:|"format"\s*:\s*"envaudit\.snapshot"')
_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Loaded:
    """What stands behind one reference, by node name; no node is in both maps."""

    reference: Reference
    fingerprints: Mapping[str, Fingerprint]
    missing: Mapping[str, Missing]

    @property
    def nodes(self) -> Tuple[str, ...]:
        """Every node that the reference names."""
        return (*self.fingerprints, *self.missing)

    @property
    def suffix(self) -> str:
        """What tells this side's nodes from the same nodes elsewhere: `@good`, `@a.json`."""
        if self.reference.path is not None:
            return "@" + os.path.basename(self.reference.path)
        return f"@{self.reference.when}" if self.reference.when else ""


def add_section_option(parser: argparse._ActionsContainer) -> None:
    """`--section NAME`."""
    parser.add_argument(
        "--section", action="append", default=[], metavar="NAME", help="only this section; repeatable"
    )


def add_store_option(parser: argparse._ActionsContainer) -> None:
    """`--store DIR`."""
    parser.add_argument("--store", metavar="DIR", help="default: .envaudit here or above")


def open_store(options: argparse.Namespace) -> Store:
    """The store that `--store` names, or the one found upward."""
    return Store(options.store or Store.find(os.getcwd()))


def load(references: Sequence[Reference], options: argparse.Namespace) -> List[Loaded]:
    """Every reference resolved; live nodes of all of them are asked in one go.

    Raises:
        UsageError: a tag, time or node that the store does not have.
        InputError: a file that is neither a snapshot nor a report that is known.
    """
    stored = getattr(options, "stored", False)
    if stored:
        references = [
            replace(reference, when=reference.when or "latest") if reference.path is None else reference
            for reference in references
        ]
    live = sorted({node for ref in references if ref.path is None and ref.when is None for node in ref.nodes})
    # Files and tags first: a mistyped tag is told before any node is asked.
    loaded: Dict[int, Loaded] = {}
    for index, reference in enumerate(references):
        if reference.path is not None:
            loaded[index] = _of_snapshot(reference, read_file(reference.path))
        elif reference.when is not None:
            found = open_store(options).resolve_many(reference.nodes, reference.when)
            loaded[index] = Loaded(reference, found, {})
    answered = asking.ask(live, options) if live else Snapshot(())
    for index, reference in enumerate(references):
        if index not in loaded:
            wanted = set(reference.nodes)
            loaded[index] = Loaded(
                reference,
                {node: each for node, each in answered.by_node.items() if node in wanted},
                {node: _or_a_file(node, gone) for node, gone in answered.missing.items() if node in wanted},
            )
    return [loaded[index] for index in range(len(references))]


def read_file(path: str) -> Snapshot:
    """A snapshot file, or a foreign report as the snapshot of one node, told by the content.

    Raises:
        InputError: it is neither, or cannot be read.
    """
    document = read_document(path, follow=True)
    if not _SNAPSHOT.search(document[:_HEAD_BYTES]):
        try:
            from envaudit.cli import foreign
        except ImportError:
            raise InputError(
                "not an envaudit snapshot, and this one-file form reads no other report",
                where=path,
                next_step="Where the package is installed: envaudit import FILE -o node.json.",
            ) from None
        return Snapshot((foreign.fingerprint_of_file(path, document),))
    return decode_document(document, path)


def _or_a_file(node: str, gone: Missing) -> Missing:
    """A file without one of the endings, `freeze`, is asked as a node, and nobody knows one of that name."""
    if gone.kind != "unreachable" or not os.path.isfile(node):
        return gone
    return replace(gone, next_step=f"{gone.next_step} For the file of this name write ./{node}.".lstrip())


def _of_snapshot(reference: Reference, snapshot: Snapshot) -> Loaded:
    if not snapshot.fingerprints and not snapshot.missing:
        raise UsageError("names no node", where=reference.text)
    return Loaded(reference, snapshot.by_node, snapshot.missing)
