"""What `--baseline` names, and what is new against it."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, replace
from typing import Dict, Sequence, Tuple

from envaudit.cli import references
from envaudit.cli.comparing import Comparison, beside_baseline, compare_loaded, labelled
from envaudit.cli.loading import Loaded, load, open_store
from envaudit.cli.policyof import policy_of
from envaudit.cli.since import seen_before, with_since
from envaudit.diff import PathFilter, compare_to_reference
from envaudit.errors import UsageError
from envaudit.model import Finding, Fingerprint, Missing
from envaudit.rules import Evidence, judge

MAJORITY = "majority"

_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]*\Z")


def check_baseline(options: argparse.Namespace) -> None:
    """Tell of a mistyped `--baseline` before any node is asked.

    Raises:
        UsageError: a tag that no node has, or a reference of no form.
    """
    wanted = options.baseline
    if wanted is None or wanted == MAJORITY:
        return
    if is_tag(wanted):
        open_store(options).locate((), wanted)
    else:
        references.parse(wanted)


def compare_with(sides: Sequence[Loaded], options: argparse.Namespace, paths: PathFilter) -> Comparison:
    """Compare as `--baseline` says: by a tag, with one node, or with the majority.

    Raises:
        UsageError: a tag that a node does not have, or a reference that holds several other nodes.
    """
    wanted = options.baseline
    if wanted is None or wanted == MAJORITY:
        return compare_loaded(sides, paths, policy_of(options))
    current, missing = labelled(sides)
    before, gone = _baseline_of(wanted, [each.node for each in current], options)
    suffix = f"@{wanted}"
    now = {each.node: each for each in current}
    drifts = compare_to_reference(before, now, basis="baseline", suffix=suffix, paths=paths)
    drifts = (*drifts, *beside_baseline(before, now, paths, policy_of(options)))
    held = tuple(replace(each, node=f"{node}{suffix}") for node, each in before.items())
    return Comparison(current, {**missing, **gone}, drifts, held, wanted)


def _baseline_of(
    wanted: str, nodes: Sequence[str], options: argparse.Namespace
) -> Tuple[Dict[str, Fingerprint], Dict[str, Missing]]:
    """Node → what it is held against, and the nodes of which the baseline itself has no evidence."""
    if is_tag(wanted):
        twice = [node for node in nodes if "@" in node]
        if twice:
            raise UsageError(
                f"{twice[0].partition('@')[0]} is named twice, and has only one '{wanted}'",
                where=f"--baseline {wanted}",
                next_step="Leave --baseline out: of two references, the second is held against the first.",
            )
        return open_store(options).resolve_many(nodes, wanted), {}
    (side,) = load([references.parse(wanted)], options)
    if len(side.nodes) > 1 and not set(nodes) <= set(side.nodes):
        raise UsageError(
            f"holds {len(side.nodes)} nodes, and not all that are compared",
            where=f"--baseline {wanted}",
            next_step="Name one node, or a tag that each of them has.",
        )
    if len(side.nodes) == 1:
        (name,) = side.nodes
        gone = {f"{name}@{wanted}": why for why in side.missing.values()}
        return {node: each for node in nodes for each in side.fingerprints.values()}, gone
    before = {node: side.fingerprints[node] for node in nodes if node in side.fingerprints}
    return before, {f"{node}@{wanted}": side.missing[node] for node in nodes if node in side.missing}


def is_tag(wanted: str) -> bool:
    """Whether `--baseline` names a tag of the store, which each node has for itself or has not."""
    return bool(_TAG.match(wanted)) and not wanted.endswith(references.PATH_ENDINGS) and wanted != MAJORITY


@dataclass(frozen=True)
class Told:
    """The findings to tell, and how many the baseline had already."""

    findings: Tuple[Finding, ...]
    left_out: int = 0


def told_against_baseline(
    findings: Tuple[Finding, ...], comparison: Comparison, options: argparse.Namespace
) -> Told:
    """Each finding with the time since which it holds; with `--new-only` those alone that are new.

    Raises:
        UsageError: `--new-only` without a baseline.
    """
    if not comparison.references:
        if options.new_only and comparison.current:  # of no node that answered, nothing is old
            raise UsageError(
                "--new-only needs a baseline",
                next_step="Name one with --baseline good, or compare two times: node01@good node01.",
            )
        return Told(findings)
    left_out = 0
    if options.new_only:
        before = judge(Evidence(comparison.references, comparing=False), policy_of(options))
        labels = {each.node.partition("@")[0]: each.node for each in comparison.references}
        fresh, left_out = seen_before(findings, before, labels)
        findings = tuple(fresh)
    return Told(with_since(findings, comparison.current, open_store(options), policy_of(options)), left_out)
