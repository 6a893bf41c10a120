"""EA260 to EA269: installed files against what their packages recorded; EA206 is told from here too."""

from __future__ import annotations

from typing import AbstractSet, Dict, Iterator, List, Mapping, Sequence, Tuple

from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule

# From so many on, packages that are at fault on the same nodes are one finding with a line each.
FOLD_FROM = 4

# What a node has of one package: the lines to show, and how many files there are.
_Told = Tuple[Tuple[str, ...], int]


@rule(
    "EA260",
    severity="warning",
    scope="node",
    title="files in a package's folder that no package installed",
    why="Python imports them like the package's own, and no lock brings them to another node.",
    needs=("integrity",),
    how_to_fix="Remove them, or make a package of them.",
)
def files_extra(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Files that lie among those of a package and stand in no record."""
    yield from told_of_files(evidence, ("extra",), "that no package installed")


def told_of_files(
    evidence: Evidence,
    states: Sequence[str],
    words: str,
    left_out: AbstractSet[Tuple[str, str]] = frozenset(),
) -> Iterator[Found]:
    """One finding for each package, over all nodes on which the same of its files are at fault.

    Args:
        evidence: whose section `integrity` is read.
        states: of that section.
        words: what the files are, `changed on disk since the install`.
        left_out: node and package of what another rule tells.
    """
    alike: Dict[Tuple[str, _Told], List[str]] = {}
    for fingerprint in evidence.fingerprints:
        for package, told in _of_node(fingerprint, states).items():
            if (fingerprint.node, package) not in left_out:
                alike.setdefault((package, told), []).append(fingerprint.node)
    by_nodes: Dict[Tuple[str, ...], List[Tuple[str, _Told]]] = {}
    for (package, told), names in sorted(alike.items()):
        by_nodes.setdefault(tuple(names), []).append((package, told))
    for nodes, packages in by_nodes.items():
        path = f"integrity/{states[0]}"
        if len(packages) >= FOLD_FROM:
            total = sum(count for _, (_, count) in packages)
            lines = tuple(_line(package, *told) for package, told in packages)
            yield Found(f"{len(packages)} packages: {_files(total)} {words}", nodes, path, lines)
        else:
            for package, (lines, count) in packages:
                yield Found(f"{package}: {_files(count)} {words}", nodes, path, lines)


def _of_node(fingerprint: Fingerprint, states: Sequence[str]) -> Dict[str, _Told]:
    section = fingerprint.sections.get("integrity")
    facts = section.facts if section is not None else {}
    counts = _mapping(facts.get("counts"))
    found: Dict[str, _Told] = {}
    for state in states:
        for package, paths in _mapping(facts.get(state)).items():
            listed = [str(path) for path in paths] if isinstance(paths, list) else []
            count = _mapping(counts.get(state)).get(package)
            lines, before = found.get(package, ((), 0))
            suffix = " is missing" if state == "missing" else ""
            found[package] = (
                (*lines, *(f"{path}{suffix}" for path in listed)),
                before + (count if isinstance(count, int) else len(listed)),
            )
    return found


def _line(package: str, lines: Tuple[str, ...], count: int) -> str:
    """A package's line where many are told at once: its first file stands for them."""
    return f"{package}: {_files(count)}, {lines[0]}" if lines else f"{package}: {_files(count)}"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
