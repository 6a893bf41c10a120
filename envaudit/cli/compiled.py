"""What `envaudit bundle` compiled into the one-file form: what to expect, the baseline, the policy.

The node side reads no TOML and no YAML. These are JSON files beside the code in the same zip; whoever
can change them can change the code. Each carries a digest of its content, so that a change by hand, which
no longer is what the stated file says, or half a copy is refused. Where there is no zip, or nothing was
compiled, there is nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from envaudit.errors import InputError
from envaudit.model import Fingerprint, Section
from envaudit.model.codec import decode_snapshot
from envaudit.model.locked import held_against, platform_of
from envaudit.model.pathpattern import PathPattern
from envaudit.rules.policy import Policy, Waiver

# Names inside the zip, beside the package's modules.
EXPECTED, BASELINE, POLICY = "compiled/expected.json", "compiled/baseline.json", "compiled/policy.json"

# The section that says whether a lock is fresh.
FRESHNESS = "freshness"

# The key of the digest inside each of them.
SEAL = "content_sha256"

_DIGEST_CHARACTERS = 12
_USUAL_PLATFORM = "linux-64"


class Expected(NamedTuple):
    """A lock as what nodes must have.

    Attributes:
        path: of the lock, as it was named.
        sha256: of its bytes, hexadecimal.
        by_platform: `linux-64` to its fingerprint.
        distributions: conda package to its index names, where they are not its own name.
        freshness: what had changed since it was made when it was compiled in; None where that is not known.
        unknown: why it is not.
        sources: what it was made from, relative, to the sha256 of its bytes.
    """

    path: str
    sha256: str
    by_platform: Mapping[str, Fingerprint]
    distributions: Mapping[str, Tuple[str, ...]]
    freshness: Optional[Section] = None
    unknown: str = ""
    sources: Mapping[str, str] = MappingProxyType({})

    def of_node(self, found: Fingerprint) -> Fingerprint:
        """What this node must have, under its name; a platform that is not in it has no packages."""
        platform = platform_of(found, _USUAL_PLATFORM)
        held = self.by_platform.get(platform)
        if held is None:
            held = next(iter(self.by_platform.values()))
            held = replace(held, sections={"lock": held.sections["lock"]})
        return replace(held, node=found.node)

    def changed_sources(self, folder: str) -> List[str]:
        """Those that are in a folder and are no longer what was compiled in."""
        from envaudit.store.files import sha256_of

        changed = []
        for path, was in self.sources.items():
            now = sha256_of(os.path.join(folder, path))
            if now not in ("", was):  # a node need not have them
                changed.append(path)
        return changed

    def cut(self, expected: Fingerprint, found: Fingerprint) -> Tuple[Fingerprint, Fingerprint]:
        """Both sides cut down to what can be compared; see `model.locked`."""
        return held_against(expected, found, lambda name: self.distributions.get(name, (name,)))


class Baseline(NamedTuple):
    """What nodes were.

    Attributes:
        reference: as it was named, `good`.
        sha256: of the fingerprints' digests, hexadecimal.
        by_node: a node's name to what it was.
        for_all: whether one node stands for all.
    """

    reference: str
    sha256: str
    by_node: Mapping[str, Fingerprint]
    for_all: bool

    def of_node(self, node: str) -> Optional[Fingerprint]:
        """What this node is held against, under its name; None where the baseline has nothing of it."""
        held = next(iter(self.by_node.values())) if self.for_all else self.by_node.get(node)
        return None if held is None else replace(held, node=node)


class CompiledPolicy(NamedTuple):
    """A policy file, resolved.

    Attributes:
        path: as it was named.
        sha256: of its bytes, hexadecimal.
        lines: what it changes, for the report.
        policy: without a day.
        max_bad_fraction: beyond which one finding says more of the baseline than of the nodes.
        prolog: rules of which an error ends a prolog with 1; None where the file does not say.
    """

    path: str
    sha256: str
    lines: Tuple[str, ...]
    policy: Policy
    max_bad_fraction: float
    prolog: Optional[Tuple[str, ...]]


@lru_cache(maxsize=None)
def expected() -> Optional[Expected]:
    """The lock that was compiled in.

    Raises:
        InputError: it is there and cannot be read.
    """
    data = _document(EXPECTED)
    return None if data is None else expected_of(data)


def expected_of(data: Mapping[str, Any]) -> Expected:
    """A compiled lock as it is read.

    Raises:
        InputError: it is none.
    """
    snapshot = decode_snapshot(data["snapshot"], EXPECTED)
    names = {name: tuple(of) for name, of in data["distributions"].items()}
    known = data["freshness"]
    facts = known.get("facts")
    return Expected(
        data["path"],
        data["sha256"],
        snapshot.by_node,
        names,
        None if facts is None else Section(FRESHNESS, 1, "ok", facts),
        known.get("why", ""),
        known.get("sources", {}),
    )


@lru_cache(maxsize=None)
def baseline() -> Optional[Baseline]:
    """The baseline that was compiled in.

    Raises:
        InputError: it is there and cannot be read.
    """
    data = _document(BASELINE)
    return None if data is None else baseline_of(data)


def baseline_of(data: Mapping[str, Any]) -> Baseline:
    """A compiled baseline as it is read.

    Raises:
        InputError: it is none.
    """
    snapshot = decode_snapshot(data["snapshot"], BASELINE)
    return Baseline(data["reference"], data["sha256"], snapshot.by_node, data["for_all"])


@lru_cache(maxsize=None)
def policy() -> Optional[CompiledPolicy]:
    """The policy that was compiled in.

    Raises:
        InputError: it is there and cannot be read.
    """
    data = _document(POLICY)
    if data is None:
        return None
    prolog = data["prolog"]
    try:
        made = _policy_of(data["policy"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("not a policy of this version", where=POLICY, why=str(error)) from None
    return CompiledPolicy(
        data["path"],
        data["sha256"],
        tuple(data["lines"]),
        made,
        data["max_bad_fraction"],
        None if prolog is None else tuple(prolog),
    )


def description() -> Tuple[str, ...]:
    """A line for each part: `lock train.conda-lock.yml sha256:0123456789ab`."""
    lines = []
    lock, before, judged_by = expected(), baseline(), policy()
    if lock is not None:
        lines.append(f"lock {lock.path} {_digest(lock.sha256)}")
    if before is not None:
        count = len(before.by_node)
        nodes = "1 node for all" if before.for_all else f"{count} node{'' if count == 1 else 's'}"
        lines.append(f"baseline {before.reference} {_digest(before.sha256)}, {nodes}")
    if judged_by is not None:
        lines.append(f"policy {judged_by.path} {_digest(judged_by.sha256)}")
    return tuple(lines)


def to_json(policy: Policy) -> Dict[str, Any]:
    """A policy as JSON; the day and whether a run is full are the run's own."""
    return {
        "fail_on": policy.fail_on,
        "require": list(policy.require),
        "named": list(policy.named),
        "profile": policy.profile,
        "levels": dict(policy.levels),
        "paths": [[pattern.text, level] for pattern, level in policy.paths],
        "thresholds": {rule: dict(values) for rule, values in policy.thresholds.items()},
        "must_match": list(policy.must_match),
        "roles": dict(policy.roles),
        "waivers": [
            {**vars(waiver), "path": waiver.path.text if waiver.path else None, "nodes": list(waiver.nodes)}
            for waiver in policy.waivers
        ],
    }


def _policy_of(data: Mapping[str, Any]) -> Policy:
    return Policy(
        fail_on=data["fail_on"],
        require=tuple(data["require"]),
        named=tuple(data["named"]),
        profile=data["profile"],
        levels=data["levels"],
        paths=tuple((PathPattern.parse(text, POLICY), level) for text, level in data["paths"]),
        thresholds=data["thresholds"],
        must_match=tuple(data["must_match"]),
        roles=data["roles"],
        waivers=tuple(
            Waiver(
                **{
                    **row,
                    "path": PathPattern.parse(row["path"], POLICY) if row["path"] is not None else None,
                    "nodes": tuple(row["nodes"]),
                }
            )
            for row in data["waivers"]
        ),
    )


def _digest(sha256: str) -> str:
    return f"sha256:{sha256[:_DIGEST_CHARACTERS]}"


def _document(name: str) -> Any:
    """A JSON file beside the package's modules, in a zip or a folder; None where there is none."""
    package = sys.modules["envaudit"]
    loader = getattr(getattr(package, "__spec__", None), "loader", None)
    folder = next(iter(getattr(package, "__path__", ())), None)
    if loader is None or folder is None:
        return None
    try:
        data = loader.get_data(f"{folder}/{name}")
    except OSError:
        return None
    try:
        document = json.loads(data.decode("ascii"))
    except ValueError as error:
        raise InputError("not JSON", where=name, why=str(error)) from None
    if not isinstance(document, dict) or document.pop(SEAL, None) != seal_of(document):
        raise InputError(
            "not what was compiled in",
            where=name,
            why="it was changed or damaged since",
            next_step="Make the one-file form again: envaudit bundle ... -o envaudit.pyz.",
        )
    return document


def seal_of(document: Mapping[str, Any]) -> str:
    """The digest that a compiled document carries, over all else in it."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
