"""What was seen of the nodes of a launch, held to what was compiled in, and the report of it."""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from envaudit._version import __version__
from envaudit.cli import asking, compiled
from envaudit.cli.comparing import all_with_all, beside_baseline
from envaudit.cli.judging import judged, passed_words
from envaudit.cli.policyof import policy_of
from envaudit.diff import PathFilter, compare_to_reference
from envaudit.errors import UsageError
from envaudit.model import Drift, Fingerprint, Missing, Verdict, split_path
from envaudit.model.checked import checked_devices
from envaudit.model.clockoffset import NOTE as OFFSET
from envaudit.model.clockoffset import SECTION as CLOCK
from envaudit.model.nodeset import fold
from envaudit.model.printing import printable
from envaudit.report import Report, Stage
from envaudit.rules import Evidence, Policy, all_rules, judge

# Of what a process says that it judges by.
_FORM_CHARACTERS = 400


class Held(NamedTuple):
    """What nodes are held to: each part None where there is none."""

    expected: Optional[compiled.Expected]
    baseline: Optional[compiled.Baseline]


class Seen(NamedTuple):
    """What was seen of a launch.

    Attributes:
        nodes: of those that answered.
        missing: why there is nothing of the others.
        stages: what was done, as it was done.
        asked: the sections that the run covers.
        clocks_asked: whether offsets were measured.
    """

    nodes: Tuple[Fingerprint, ...]
    missing: Mapping[str, Missing]
    stages: Tuple[Stage, ...]
    asked: Tuple[str, ...]
    clocks_asked: bool = False


def refuse_others(options: argparse.Namespace) -> None:
    """Refuse what only the form for a controller does, rather than leave it out in silence.

    Raises:
        UsageError: one of those options.
    """
    of_controller = ["good_nodes", "bad_nodes", "suggest", "stored", "mtu_probe"]
    of_controller += ["nodes", "hostfile", "all", "transport", "python"]
    of_controller += ["config"] if asking.is_one_file() else []
    for name in of_controller:
        if getattr(options, name, None):
            raise UsageError(
                f"--{name.replace('_', '-')} is for a controller that asks nodes, not for a launch itself",
                next_step="Leave it out, or run 'envaudit gate' outside of the launch.",
            )


def own_form() -> Dict[str, Any]:
    """What this process judges by, as the others are told it: version, and what was compiled in."""
    return {"tool": __version__, "compiled": list(compiled.description())}


def refuse_other_forms(members: Iterable[Tuple[str, Mapping[str, Any]]]) -> None:
    """Refuse a launch whose processes would be held to different things: one node has an older file.

    Args:
        members: node and hello of each.

    Raises:
        UsageError: naming the nodes whose form is not this process' own.
    """
    own = own_form()
    others: Dict[str, str] = {}
    for node, hello in members:
        said = {key: hello.get(key) for key in own}
        if said != own:
            words = said["compiled"] if isinstance(said["compiled"], list) else []
            parts = "; ".join(map(str, words)) or "nothing compiled in"
            others.setdefault(node, f"version {said['tool']}, {parts}")
    if others:
        ours = f"version {own['tool']}, {'; '.join(own['compiled']) or 'nothing compiled in'}"
        theirs = next(iter(others.values()))[:_FORM_CHARACTERS]
        raise UsageError(
            f"{fold(others)} would judge by something else than the first process",
            why=f"{printable(theirs)}, not {ours}",
            next_step="Put the same one-file form on every node.",
        )


def held_by(options: argparse.Namespace) -> Held:
    """What was compiled in, or, where the package is installed, what the options name.

    Raises:
        UsageError: the one-file form, and an option for what is to be compiled in.
    """
    if asking.is_one_file():
        for name in ("lock", "baseline"):
            if getattr(options, name, None):
                raise UsageError(
                    "this one-file form reads no lock and no store",
                    where=f"--{name}",
                    next_step=f"Compile it in: envaudit bundle --{name} ... -o envaudit.pyz.",
                )
        return Held(compiled.expected(), compiled.baseline())
    from envaudit.cli import compiling, configuration
    from envaudit.cli.locks import categories_of

    expected = baseline = None
    if options.lock:
        made = compiling.compile_lock(options.lock, categories_of(options), configuration.of(options).lock)
        expected = compiled.expected_of(json.loads(made.decode("ascii")))
    if options.baseline:
        made = compiling.compile_baseline(options.baseline, options)
        baseline = compiled.baseline_of(json.loads(made.decode("ascii")))
    return Held(expected, baseline)


def notable(own: Fingerprint, policy: Policy) -> List[str]:
    """The sections of which the rules of one node speak, at a severity that counts.

    What follows from a comparison is not theirs: it is seen where the nodes come together.
    """
    found = judge(Evidence((own,), comparing=False, gate=True), policy)
    needs = {rule.id: rule.needs for rule in all_rules()}
    counted = ("error", "incomplete", "warning", *(("info",) if policy.fail_on == "info" else ()))
    names: List[str] = []
    for finding in found:
        if finding.severity in counted:
            head = split_path(finding.path)[:1] if finding.path else ()
            names += [*head, *needs.get(finding.rule, ())]
    return sorted(set(names).intersection(own.sections))


def with_offset(
    node: Fingerprint, offset_ns: Optional[int], bound_ns: Optional[int], run: str
) -> Fingerprint:
    """A node whose section clock says how far it is from the hub's, as a controller's nodes do."""
    section = node.sections.get(CLOCK)
    if section is None:
        return node
    if offset_ns is None or bound_ns is None:
        note: Dict[str, object] = {"run": run}
    else:
        note = {"run": run, "offset_ns": offset_ns, "bound_ns": bound_ns}
    held = section.with_details({**section.notes, OFFSET: note}, section.errors)
    return replace(node, sections={**node.sections, CLOCK: held})


def report_of(seen: Seen, held: Held, options: argparse.Namespace, began: float) -> Report:
    """Compare, judge, and put it into words."""
    policy = policy_of(options)
    evidence, of_lock = _evidence(seen, held, options, policy)
    found = judged(evidence, options, full=False)
    return Report(
        command="gate",
        tool=__version__,
        verdict=Verdict.of(found.findings, policy.fail_on),
        findings=found.findings,
        drifts=evidence.drifts,
        missing=seen.missing,
        nodes=tuple(each.node for each in seen.nodes),
        sections=tuple(name for name in seen.asked if any(name in node.sections for node in seen.nodes)),
        comparing=evidence.comparing,
        reference=evidence.baseline,
        outcome=passed_words(evidence, found, locked=held.expected is not None, like=evidence.baseline),
        elapsed_s=time.monotonic() - began,
        verbose=options.verbose,
        stages=(*seen.stages, *of_lock, *(each for each in found.stages if each.name != "policy")),
        set_aside=found.set_aside,
        checks=tuple(checked_devices(seen.nodes)),
        fingerprints=seen.nodes,
        held_against=held.expected.path if held.expected is not None else "",
    )


def _evidence(
    seen: Seen, held: Held, options: argparse.Namespace, policy: Policy
) -> Tuple[Evidence, List[Stage]]:
    """What is judged, and the stages of a lock."""
    drifts: Tuple[Drift, ...] = ()
    references: Tuple[Fingerprint, ...] = ()
    against_lock: Tuple[Drift, ...] = ()
    without: Tuple[str, ...] = ()
    of_lock: Tuple[Fingerprint, ...] = ()
    stages: List[Stage] = []
    if held.expected is not None:
        stages.append(Stage("lock", _freshness_words(held.expected, options)))
        if held.expected.freshness is not None:
            sections = {compiled.FRESHNESS: held.expected.freshness}
            of_lock = (Fingerprint("", "lock", _now(), __version__, sections),)
        against_lock, references = _to_lock(seen.nodes, held.expected)
        count = len({node for drift in against_lock for node in drift.outliers})
        words = "all as locked" if not count else f"{count} of {len(seen.nodes)} not as locked"
        stages.append(Stage("as locked", f"{words} in {held.expected.path}"))
    if held.baseline is not None:
        drifts, before, without = _to_baseline(seen.nodes, held.baseline, policy)
        references = (*references, *before)
    elif len(seen.nodes) > 1:
        drifts = all_with_all(seen.nodes, PathFilter(), policy)
    evidence = Evidence(
        fingerprints=(*seen.nodes, *of_lock),
        missing=seen.missing,
        drifts=(*against_lock, *drifts),
        sections=(*seen.asked, compiled.FRESHNESS),
        references=references,
        comparing=len(seen.nodes) + len(seen.missing) > 1 or bool(references),
        clocks_asked=seen.clocks_asked,
        gate=True,
        allowed_missing=options.allow_missing,
        without_baseline=without,
        baseline=held.baseline.reference if held.baseline is not None else "",
    )
    return evidence, stages


def _freshness_words(expected: compiled.Expected, options: argparse.Namespace) -> str:
    """`train.conda-lock.yml is fresh`; where it was compiled in, as it was then, for here is no YAML."""
    if expected.freshness is None:
        return f"{expected.path}: whether it is fresh is not known: {expected.unknown}"
    then = asking.is_one_file()
    state = "stale" if expected.freshness.facts["changes"] else "fresh"
    words = f"{expected.path} {'was' if then else 'is'} {state}{' when it was compiled in' if then else ''}"
    changed = expected.changed_sources(options.workdir or os.getcwd())
    if not changed:
        return words
    have = "has" if len(changed) == 1 else "have"
    return f"{words}; {', '.join(changed)} {have} changed since: envaudit lock --check says what that means"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _to_lock(
    nodes: Sequence[Fingerprint], expected: compiled.Expected
) -> Tuple[Tuple[Drift, ...], Tuple[Fingerprint, ...]]:
    suffix = f"@{expected.path.rpartition('/')[2]}"
    wanted = {node.node: expected.of_node(node) for node in nodes}
    pairs = {node.node: expected.cut(wanted[node.node], node) for node in nodes}
    drifts = compare_to_reference(
        {name: pair[0] for name, pair in pairs.items()},
        {name: pair[1] for name, pair in pairs.items()},
        basis="lock",
        suffix=suffix,
    )
    return drifts, tuple(replace(each, node=f"{name}{suffix}") for name, each in wanted.items())


def _to_baseline(
    nodes: Sequence[Fingerprint], baseline: compiled.Baseline, policy: Policy
) -> Tuple[Tuple[Drift, ...], Tuple[Fingerprint, ...], Tuple[str, ...]]:
    before = {node.node: baseline.of_node(node.node) for node in nodes}
    held = {name: each for name, each in before.items() if each is not None}
    suffix = f"@{baseline.reference.rpartition('/')[2].rpartition('@')[2]}"
    current = {node.node: node for node in nodes}
    drifts = compare_to_reference(held, current, basis="baseline", suffix=suffix)
    drifts = (*drifts, *beside_baseline(held, current, PathFilter(), policy))
    without = tuple(name for name, each in before.items() if each is None)
    return drifts, tuple(replace(each, node=f"{name}{suffix}") for name, each in held.items()), without
