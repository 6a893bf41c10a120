"""Evidence that is not there: it is never good evidence, and never a pass."""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterator, List, Mapping, Set, Tuple

from envaudit.model.canonical import Fact
from envaudit.model.drift import Drift, join_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.model.nodeset import natural_key
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule

# Sources that look at a node themselves. A lock or a foreign report says what it says.
_LOOKING = ("probe", "inband")

# How the diff begins to say that two facts follow from how the probe was started.
_OTHER_LAUNCH = "other launch: "
_OTHER_SOURCE = "other source: "
_OTHER_INTERPRETER = "other interpreter: "

# So many nodes are named with what they tell of.
_NODES_TOLD = 8
# From so many paths on, they are counted rather than named; the drifts have them all.
_FOLD_FROM = 4

# A section's name and the errors that its reading ended with.
Cause = Tuple[str, Tuple[str, ...]]


@rule(
    "EA901",
    severity="incomplete",
    scope="node",
    title="no evidence",
    why="A node that did not answer may be the one that is wrong.",
)
def node_without_answer(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a cause; nodes that are gone for the same cause stand together.

    Where the user goes on without so many, that is told, and no more; a run in which nobody answered has
    nothing to go on with.
    """
    # What a baseline has no evidence of is no node that a launch goes on without.
    gone_now = [node for node in evidence.missing if "@" not in node]
    answered = any(fingerprint.node for fingerprint in evidence.fingerprints)
    is_allowed = answered and 0 < len(gone_now) <= evidence.allowed_missing
    causes: Dict[Tuple[str, str], List[str]] = {}
    for node in sorted(evidence.missing, key=natural_key):
        gone = evidence.missing[node]
        causes.setdefault((gone.kind, gone.why), []).append(node)
    for (kind, why), nodes in causes.items():
        passed = is_allowed and not any("@" in node for node in nodes)
        yield Found(
            message=f"no evidence, as allowed for up to {evidence.allowed_missing}"
            if passed
            else "no evidence",
            nodes=tuple(nodes),
            evidence=(f"{kind}: {why}" if why else kind,),
            hint=evidence.missing[nodes[0]].next_step,
            severity="info" if passed else "",
            settled=passed,
        )


@rule(
    "EA902",
    severity="incomplete",
    scope="node",
    title="section could not be read",
    why="Nothing of its subject was compared on these nodes.",
)
def section_without_evidence(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A section whose reading failed, or a required one that is not there at all.

    Sections that end with the same error on the same nodes are one finding: an interpreter that does not
    start tells of none. Whoever names `gpu` expects one: that a node was seen to have none is no pass then.
    """
    together: Dict[Tuple[Tuple[str, ...], Tuple[str, ...]], List[str]] = {}
    for (name, errors), nodes in _unread(evidence, policy).items():
        together.setdefault((errors, tuple(nodes)), []).append(name)
    for (errors, lost), names in together.items():
        path = names[0] if len(names) == 1 else ""
        yield Found(f"{', '.join(names)} could not be read", lost, path, errors)
    for name in policy.named:
        none = tuple(
            each.node
            for each in evidence.everything
            if name in each.sections and each.sections[name].status == "absent" and evidence.covers(name)
        )
        if none:
            hint = f"Leave {name} out of what is required where nodes have none."
            yield Found(f"{name} is required, and there is none", none, name, hint=hint)


@rule(
    "EA903",
    severity="incomplete",
    scope="node",
    title="section read in part",
    why="What could not be read was not compared.",
)
def section_in_part(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A section of which something could not be read; the evidence lines say what.

    A foreign report or lock never says everything: only what could not be read of it counts.
    """
    causes: Dict[Cause, List[str]] = {}
    for fingerprint in evidence.everything:
        for name, section in sorted(fingerprint.sections.items()):
            told_in_part = fingerprint.source not in _LOOKING and not section.errors
            if section.status == "partial" and evidence.covers(name) and not told_in_part:
                causes.setdefault((name, section.errors), []).append(fingerprint.node)
    for (name, errors), nodes in causes.items():
        yield Found(f"{name} was read in part", tuple(nodes), name, errors)
    yield from _unnamed(evidence)


def _unnamed(evidence: Evidence) -> Iterator[Found]:
    """Lists with a checkout that has no name (`-e /home/me/repo`), which lack what others have.

    What is a checkout elsewhere may be the one without a name.
    """
    tables = {each.node: _distributions(each) for each in evidence.everything}
    told = {drift.path for drift in evidence.drifts}
    for fingerprint in evidence.everything:
        section = fingerprint.sections.get("packages")
        if section is None or not section.notes.get("unnamed") or not evidence.covers("packages"):
            continue
        own = tables[fingerprint.node]
        lost = {
            name
            for table in tables.values()
            for name, facts in table.items()
            if name not in own and isinstance(facts, dict) and not facts.get("editable")
        }
        names = sorted(name for name in lost if join_path("packages", "distributions", name) not in told)
        if names:
            more = f" and {len(names) - _FOLD_FROM} more" if len(names) > _FOLD_FROM else ""
            yield Found(
                f"not told whether it has {', '.join(names[:_FOLD_FROM])}{more}",
                (fingerprint.node,),
                "packages/distributions",
                ("a line of its list does not name what it installs: -e PATH",),
                hint="Take the list with 'pip freeze' or 'pip inspect', which name it.",
            )


def _distributions(fingerprint: Fingerprint) -> Mapping[str, Fact]:
    section = fingerprint.sections.get("packages")
    table = section.facts.get("distributions") if section is not None else None
    return table if isinstance(table, dict) else {}


@rule(
    "EA904",
    severity="incomplete",
    scope="cross",
    title="nothing to compare with",
    why="One node is always like itself.",
    how_to_fix="Name two nodes or more, or a reference such as node01@good.",
)
def nothing_to_compare(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Fewer than two fingerprints, one that shares no subject with another, or no fact of what was asked for.

    Nodes that did not answer are a cause that EA901 names.
    """
    sides = len(evidence.fingerprints) + len(evidence.references)
    if evidence.comparing and sides < 2 and not evidence.missing:
        yield Found("nothing to compare with", tuple(one.node for one in evidence.fingerprints))
    elif evidence.comparing and sides > 1:
        alone = _sharing_nothing(evidence)
        if alone:
            lines = tuple(f"{node} tells of {', '.join(names)}" for node, names in alone[:_NODES_TOLD])
            yield Found(
                "nothing to compare with: no other tells of the same subjects",
                tuple(node for node, _ in alone),
                evidence=lines,
                hint="Compare it with a report that tells of the same: envaudit show FILE.",
            )
    for pattern in evidence.unmatched:
        yield Found(
            f"nothing to compare: no fact is called {pattern}",
            hint="See what the facts are called with 'envaudit show'; a typing error must not be a pass.",
        )


@rule(
    "EA905",
    severity="info",
    scope="cross",
    title="facts not comparable",
    why="They belong to another launch or source, or an older probe did not read them.",
)
def not_comparable(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a reason, with all paths that it holds for; EA902 speaks before it."""
    unread: Dict[str, Set[str]] = {}
    for (name, _), nodes in _unread(evidence, policy).items():
        unread.setdefault(name, set()).update(nodes)
    reasons: Dict[Tuple[str, Tuple[str, ...]], List[Drift]] = {}
    for drift in evidence.drifts:
        if drift.kind == "unknown" and not unread.get(drift.path, set()).issuperset(drift.outliers):
            reasons.setdefault((_reason(drift), _odd_ones(drift)), []).append(drift)
    for (reason, odd), drifts in reasons.items():
        yield Found(
            message=f"not compared, {reason}: {_named(drifts)}",
            nodes=odd,
            path=drifts[0].path if len(drifts) == 1 else "",
            drifts=tuple(drifts),
        )


@rule(
    "EA906",
    severity="incomplete",
    scope="node",
    title="no baseline",
    why="Nothing says what this node should be; holding it against the others instead could pass what the "
    "baseline would not.",
    how_to_fix="Accept one: envaudit baseline accept --from NODE@latest --tag TAG.",
)
def node_without_baseline(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Nodes that lack the tag which others have."""
    if evidence.without_baseline:
        yield Found(f"has no baseline '{evidence.baseline}'", evidence.without_baseline)


@rule(
    "EA907",
    severity="incomplete",
    scope="cross",
    needs=("host", "network"),
    title="one machine under several names",
    why="The machine that one of the names should lead to was not read, and may be the one that is wrong.",
    how_to_fix="See where the names lead: 'ssh -G NAME', /etc/hosts, DNS. Name each machine once.",
)
def machine_named_twice(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Names behind which ssh came to one boot, one host name and the same addresses.

    Containers share all of these with others on their host, and a command may lead anywhere on purpose.
    """
    machines: Dict[Tuple[str, ...], List[str]] = {}
    for fingerprint in evidence.fingerprints:
        machine = _machine(fingerprint)
        # Under a name with a tag a machine may be held against its own past.
        if machine and "@" not in fingerprint.node:
            machines.setdefault(machine, []).append(fingerprint.node)
    for (name, *_), nodes in machines.items():
        if len(nodes) > 1:
            yield Found(f"all of these are one machine, {name}", tuple(nodes), "host")


def _machine(fingerprint: Fingerprint) -> Tuple[str, ...]:
    """What two machines never have alike, host name first; empty where that is not known."""
    host, network = (fingerprint.sections.get(name) for name in ("host", "network"))
    if host is None or network is None:
        return ()
    if host.facts.get("launch") != "ssh" or host.facts.get("container") != "none":
        return ()
    marks = (host.notes.get("hostname"), host.notes.get("boot_id"), network.notes.get("interfaces"))
    return tuple(map(str, marks)) if all(marks) else ()


def _sharing_nothing(evidence: Evidence) -> List[Tuple[str, List[str]]]:
    """The nodes none of whose subjects another tells of, each with its own: packages beside GPUs.

    What has no name tells of the run as a whole, such as whether its lock is fresh: nobody is held to it.
    A lock that asks nothing of a node's platform is EA209's.
    """
    if any(set(one.sections) == {"lock"} for one in evidence.references):
        return []
    told = [_subjects(one, evidence) for one in (*evidence.fingerprints, *evidence.references) if one.node]
    times = Counter(name for names in told for name in names)
    alone = []
    # A node may be held against its own past, which has the same name.
    for one in evidence.fingerprints:
        names = _subjects(one, evidence) if one.node else []
        if names and all(times[name] < 2 for name in names):
            alone.append((one.node, names))
    return alone


def _subjects(one: Fingerprint, evidence: Evidence) -> List[str]:
    sections = one.sections.items()
    return sorted(name for name, each in sections if each.status != "error" and evidence.covers(name))


def _reason(drift: Drift) -> str:
    whys = sorted({group.why for group in drift.groups if group.state == "unknown"})
    if any(why.startswith(_OTHER_INTERPRETER) for why in whys):
        return "other interpreter asked for"
    for word in (_OTHER_LAUNCH, _OTHER_SOURCE):
        choices = [why[len(word) :] for why in whys if why.startswith(word)]
        if choices:
            return f"{word[:-2]} ({', '.join(choices)})"
    return ", ".join(whys)


def _named(drifts: List[Drift]) -> str:
    """The paths, or how many of which sections when a line would not hold them."""
    if len(drifts) < _FOLD_FROM:
        return ", ".join(drift.path for drift in drifts)
    sections = sorted({drift.section for drift in drifts})
    return f"{len(drifts)} facts of {', '.join(sections)}"


def _odd_ones(drift: Drift) -> Tuple[str, ...]:
    """The nodes to name: those whose value is not known, without a largest group of them."""
    groups = [group for group in drift.groups if group.state == "unknown"]
    if len(groups) == len(drift.groups) and len(groups[0].nodes) > len(groups[1].nodes):
        groups = groups[1:]
    return tuple(node for group in groups for node in group.nodes)


def _unread(evidence: Evidence, policy: Policy) -> Dict[Cause, List[str]]:
    """The nodes of which a section is not known, by section and errors."""
    causes: Dict[Cause, List[str]] = {}
    for fingerprint in evidence.everything:
        for name, section in sorted(fingerprint.sections.items()):
            if section.status == "error" and evidence.covers(name):
                causes.setdefault((name, section.errors), []).append(fingerprint.node)
        if fingerprint.source in _LOOKING:
            for name in policy.require:
                if name not in fingerprint.sections and evidence.covers(name):
                    causes.setdefault((name, ("not part of the answer",)), []).append(fingerprint.node)
    return causes
