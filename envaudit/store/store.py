"""The store: snapshots of many runs in one folder, their tags, and the history of a node."""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Sequence, Set

from envaudit.errors import InputError, UsageError
from envaudit.model.codec import encode_snapshot
from envaudit.model.fingerprint import Fingerprint, Snapshot
from envaudit.model.nodeset import fold
from envaudit.store.files import make_folder, publish
from envaudit.store.listing import Entry, Scan, scan
from envaudit.store.references import locate, no_snapshot_of, suggest
from envaudit.store.snapshot_file import (
    EXTENSION,
    advised,
    decode_document,
    in_folder,
    pack,
    parse_name,
    read_document,
    stem_of,
)
from envaudit.store.tags import LATEST, Problem, check_node, check_tag, read_all, write_tags
from envaudit.store.upkeep import prune, verify

FOLDER = ".envaudit"
_MAX_REPUBLISHED = 5


class Store:
    """A folder with `snapshots/` and `tags/`; it need not exist before the first write.

    Args:
        path: the folder itself, usually `.envaudit`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._snapshots = os.path.join(path, "snapshots")
        self._tags = os.path.join(path, "tags")

    @staticmethod
    def find(start: str) -> str:
        """The `.envaudit` folder of `start` or of the nearest folder above it, as git finds `.git`.

        Where there is none, the path in `start` at which a new one goes.
        """
        here = os.path.abspath(start)
        folder = here
        while not os.path.isdir(os.path.join(folder, FOLDER)):
            parent = os.path.dirname(folder)
            if parent == folder:
                return os.path.join(here, FOLDER)
            folder = parent
        return os.path.join(folder, FOLDER)

    def write(
        self, snapshot: Snapshot, *, captured_at: str, tool: str, host: str, tags: Sequence[str] = ()
    ) -> str:
        """Keep a snapshot and tag its nodes; the name of the new file.

        Args:
            snapshot: the fingerprints of a run, and the nodes that gave none.
            captured_at: when the run took place, UTC, `2026-11-30T10:00:00Z`.
            tool: the version of envaudit.
            host: the machine that took the snapshot.
            tags: tags for every node of the snapshot.

        Raises:
            UsageError: a tag or a node name is none; nothing was written.
            NeededError: disk full, no permission: no file is half written, and no tag names a
                snapshot that is not there.
        """
        nodes = [fingerprint.node for fingerprint in snapshot.fingerprints]
        for tag in tags:
            check_tag(tag)
        for node in [*nodes, *snapshot.missing]:
            check_node(node)
        document = encode_snapshot(snapshot, captured_at=captured_at, tool=tool).encode("ascii")
        stem, data = stem_of(captured_at, host, document), pack(document)
        self._prepare()
        name = publish(self._snapshots, stem, EXTENSION, data)
        return self._tag_safely(name, stem, data, nodes, tags) if tags else name

    def scan(self) -> Scan:
        """All entries, newest last, and beside them what cannot be read. Reads heads only.

        Raises:
            InputError: the store's folder cannot be listed.
        """
        return scan(self._snapshots, self._tags)

    def entries(self) -> List[Entry]:
        """All entries that can be read, newest last; `scan` also tells the others."""
        return self.scan().entries

    def load(self, name: str) -> Snapshot:
        """A stored snapshot by its file name, every digest recomputed.

        Raises:
            InputError: no such file, corrupt, or of an unknown schema.
        """
        path = in_folder(self._snapshots, name)
        try:
            return decode_document(read_document(path), path)
        except InputError as error:
            raise advised(error) from None

    def tag(self, tag: str, node: str, name: str) -> None:
        """Let `node@tag` mean the stored snapshot `name`; see `tag_nodes`."""
        self.tag_nodes(tag, [node], name)

    def tag_nodes(self, tag: str, nodes: Sequence[str], name: str) -> None:
        """Let a tag name the stored snapshot `name` for some of its nodes.

        Raises:
            UsageError: not a tag, or a node that the snapshot does not hold.
            InputError: the snapshot does not exist or is not whole.
            NeededError: disk full, no permission.
        """
        check_tag(tag)
        for node in nodes:
            check_node(node)
        path = in_folder(self._snapshots, name)
        document = read_document(path)
        held = decode_document(document, path).by_node
        strangers = [node for node in nodes if node not in held]
        if strangers:
            raise UsageError(
                f"not in the snapshot {name}", where=fold(strangers), next_step=suggest(strangers[0], held)
            )
        match = parse_name(name)
        assert match is not None
        stem = f"{match['stamp']}-{match['host']}-{match['digest']}"
        self._tag_safely(name, stem, pack(document), nodes, [tag])

    def tags(self) -> Dict[str, Dict[str, str]]:
        """All tags that can be read: tag to node to snapshot file name."""
        return read_all(self._tags).tags

    def nodes_with(self, tag: str) -> Set[str]:
        """The nodes that have a tag; `latest` has every node of which there is a snapshot."""
        if tag == LATEST:
            return {node for entry in self.entries() for node in entry.nodes}
        return set(self.tags().get(tag, {}))

    def locate(self, nodes: Sequence[str], reference: str) -> Dict[str, str]:
        """The snapshot file that a tag, a time or `latest` means for each node.

        Raises:
            UsageError: unknown tag, not a time, or a node without a snapshot (of that age); the
                nearest name is suggested.
            InputError: a file or tag that may be the one in question is corrupt.
        """
        return locate(self._snapshots, self._tags, nodes, reference)

    def resolve_many(self, nodes: Sequence[str], reference: str) -> Dict[str, Fingerprint]:
        """The fingerprints that a tag, a time or `latest` means, each file read once.

        Raises:
            UsageError: as `locate`.
            InputError: a file is corrupt, gone, or does not hold its node.
        """
        found = self.locate(nodes, reference)
        fingerprints = {}
        for name in sorted(set(found.values())):
            held = self.load(name).by_node
            for node in (node for node in nodes if found[node] == name):
                if node not in held:
                    raise InputError(
                        f"does not hold {node}",
                        where=os.path.join(self._snapshots, name),
                        next_step=f"Tag {node} again with '{reference}'.",
                    )
                fingerprints[node] = held[node]
        return {node: fingerprints[node] for node in nodes}

    def history(self, node: str) -> List[Entry]:
        """The snapshots that hold a node, oldest first, from their heads.

        `entry.nodes[node]` is the digest and `entry.tags_of(node)` are the tags: only where the
        digest differs from the one before need the snapshots be loaded to see what changed.

        Raises:
            UsageError: the store has none.
        """
        check_node(node)
        entries = self.entries()
        found = [entry for entry in entries if node in entry.nodes]
        if not found:
            no_snapshot_of(self._snapshots, [node], {name for entry in entries for name in entry.nodes})
        return found

    def verify(self) -> List[Problem]:
        """Everything that is wrong after reading all of the store; see `upkeep.verify`."""
        return verify(self._snapshots, self._tags)

    def prune(self, keep: int, now: Optional[str] = None) -> List[str]:
        """Remove what no tag needs and is not among any node's newest `keep`; see `upkeep.prune`."""
        return prune(self._snapshots, self._tags, keep, now)

    def _prepare(self) -> None:
        for folder in (self._snapshots, self._tags):
            make_folder(folder)
            if os.path.islink(folder):
                # It could lead a writer, and prune, into any folder of its maker's choice.
                raise InputError("a symbolic link, expected a folder", where=folder)

    def _tag_safely(
        self, name: str, stem: str, data: bytes, nodes: Sequence[str], tags: Sequence[str]
    ) -> str:
        """Tag a file that is there, and see that it still is afterwards: prune may have met it."""
        for _ in range(_MAX_REPUBLISHED):
            for tag in tags:
                write_tags(self._tags, tag, nodes, name)
            if os.path.lexists(os.path.join(self._snapshots, name)):
                break
            name = publish(self._snapshots, stem, EXTENSION, data)
        return name
