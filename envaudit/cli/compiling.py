"""What `envaudit bundle` puts beside the code: lock, baseline and policy as JSON (see `compiled`).

Nothing of it depends on when or by whom it is made: the same parts are the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from dataclasses import replace
from typing import Any

from envaudit._version import __version__
from envaudit.cli import compiled, configuration, policyfile, references
from envaudit.cli.baselines import is_tag
from envaudit.cli.foreign import check_is_lock, read_lock_report, setting_of
from envaudit.cli.loading import load, open_store
from envaudit.cli.policywords import policy_lines
from envaudit.cli.verify import packages_asked
from envaudit.errors import EnvauditError, UsageError
from envaudit.lock.names import distributions_of
from envaudit.model import Fingerprint, Snapshot
from envaudit.model.codec import encode_snapshot
from envaudit.model.locked import PLATFORMS
from envaudit.store.snapshot_file import read_document

# A lock has no time of its own, and that of its file differs in every checkout.
_NO_TIME = "1980-01-01T00:00:00Z"


def compile_lock(path: str, categories: tuple[str, ...], settings: configuration.Lock | None = None) -> bytes:
    """A lock of any kind as what nodes of each platform must have, and whether it is fresh.

    Args:
        path: of the lock.
        categories: of its packages.
        settings: what the configuration says of locks; None for that of the folder this runs in.

    Raises:
        InputError: it cannot be read, or is of no kind that is known.
        UsageError: no environment can be held to it.
    """
    report = read_lock_report(path, categories)
    check_is_lock(report)
    usual = report.expected("lock", setting_of("linux-64"))
    listed = usual.sections["lock"].facts.get("platforms")
    platforms = sorted({*(listed if isinstance(listed, list) else ()), *PLATFORMS.values()})
    made = [
        replace(report.expected(name, setting_of(name)), captured_at=_NO_TIME, tool=__version__)
        for name in map(str, platforms)
    ]
    if not any(map(packages_asked, made)):
        raise UsageError("it names no package", where=path, next_step="Make it again.")
    names = {
        name: distributions_of(name)
        for each in made
        for name in _packages(each)
        if distributions_of(name) != (name,)
    }
    return _json(
        {
            "path": path,
            "sha256": hashlib.sha256(read_document(path, follow=True)).hexdigest(),
            "distributions": names,
            "freshness": _freshness(path, report.kind.KIND, settings),
            "snapshot": encode_snapshot(Snapshot(tuple(made)), captured_at=_NO_TIME, tool=__version__),
        }
    )


def _freshness(path: str, kind: str, settings: configuration.Lock | None) -> dict[str, Any]:
    """What `envaudit lock --check` says now, and the sources that it says it of; else why that is not known.

    A lock whose sources are elsewhere still says what nodes must have.
    """
    if kind != "conda-lock.yml":
        return {"why": f"{kind} does not record what it was made from"}
    from envaudit.cli.lock import freshness_of
    from envaudit.lock.lockfile import read_lock

    try:
        chosen = configuration.load(None, os.getcwd()).lock if settings is None else settings
        facts = dict(freshness_of(path, chosen).facts)
        sources = chosen.sources or read_lock(path).source_paths()
        digests = {
            os.path.relpath(source): hashlib.sha256(read_document(source, follow=True)).hexdigest()
            for source in map(os.path.expanduser, sources)
        }
    except EnvauditError as error:
        return {"why": " ".join(str(error).split())}
    return {"facts": facts, "sources": digests}


def compile_baseline(reference: str, options: argparse.Namespace) -> bytes:
    """What the nodes of a reference were: of a tag alone, all that have it.

    Notes stay behind: serials and addresses are no part of a comparison.

    Raises:
        UsageError: live nodes, an unknown tag, or nothing that a node could be held against.
        InputError: a file or the store cannot be read.
    """
    held, of_tag = _stored(reference, options)
    if not held:
        raise UsageError("holds no node", where=f"--baseline {reference}")
    bare = tuple(
        replace(
            each,
            node=node,
            sections={
                name: section.with_details({}, section.errors) for name, section in each.sections.items()
            },
        )
        for node, each in sorted(held.items())
    )
    captured_at = max(each.captured_at for each in bare)
    digests = json.dumps([[each.node, each.digest] for each in bare])
    return _json(
        {
            "reference": reference,
            "sha256": hashlib.sha256(digests.encode("ascii")).hexdigest(),
            "for_all": len(bare) == 1 and not of_tag,
            "snapshot": encode_snapshot(Snapshot(bare), captured_at=captured_at, tool=__version__),
        }
    )


def compile_policy(path: str) -> bytes:
    """A policy file, resolved; it alone, and nothing that the user's own configuration says.

    Raises:
        InputError: it cannot be read.
        UsageError: its faults, all of them.
    """
    settings = configuration.load(None, os.getcwd(), path)
    chosen: dict[str, Any] = {"fail_on": settings.gate.fail_on}
    if settings.gate.require is not None:
        chosen["require"] = chosen["named"] = settings.gate.require
    policy = policyfile.policy_of(settings.policy, today="", **chosen)
    said = any("prolog" in file.table.get("gate", {}) for file in settings.policy)
    return _json(
        {
            "path": path,
            "sha256": settings.policy[0].sha256,
            "lines": policy_lines(settings.policy),
            "policy": compiled.to_json(policy),
            "max_bad_fraction": settings.gate.max_bad_fraction,
            "prolog": list(settings.gate.prolog) if said else None,
        }
    )


def _stored(wanted: str, options: argparse.Namespace) -> tuple[dict[str, Fingerprint], bool]:
    """By node; and whether the reference is a tag alone, which holds for the nodes that have it."""
    if is_tag(wanted):
        store = open_store(options)
        nodes = sorted(store.nodes_with(wanted))
        # Without a node the store says which tags there are.
        return store.resolve_many(nodes or ["any"], wanted), True
    reference = references.parse(wanted)
    if reference.path is None and reference.when is None:
        raise UsageError(
            f"'{wanted}' names no stored snapshot",
            where="--baseline",
            next_step="Name a tag, stored nodes (node[01-16]@good) or a file (baseline.json).",
        )
    (side,) = load([reference], options)
    return dict(side.fingerprints), False


def _packages(fingerprint: Fingerprint) -> list[str]:
    section = fingerprint.sections.get("conda")
    table = section.facts.get("packages") if section is not None else None
    return list(table) if isinstance(table, dict) else []


def _json(document: dict[str, Any]) -> bytes:
    sealed = {**document, compiled.SEAL: compiled.seal_of(document)}
    return (json.dumps(sealed, sort_keys=True, separators=(",", ":"), ensure_ascii=True) + "\n").encode(
        "ascii"
    )
