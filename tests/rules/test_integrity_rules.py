"""EA206 and EA260: installed files that are not as their packages recorded."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import pytest

from envaudit.diff import compare
from envaudit.model import Finding, Fingerprint
from envaudit.rules import Evidence, judge
from envaudit.rules.integrity import FOLD_FROM
from tests.diff.nodes import fingerprint

EDITED = {"pip:torch": ["lib/python3.11/site-packages/torch/optim/adam.py"]}


def integrity(mode: str = "hash", **states: Dict[str, List[str]]) -> Dict[str, Any]:
    """A section `integrity`."""
    whole = {state: states.get(state, {}) for state in ("changed", "missing", "extra")}
    counts = {state: {package: len(paths) for package, paths in of.items()} for state, of in whole.items()}
    return {**whole, "counts": counts, "mode": mode}


def node(name: str, section: Optional[Dict[str, Any]] = None) -> Fingerprint:
    """A node with that section; without one, nobody looked at its files."""
    if section is None:
        return fingerprint(name, packages={"distributions": {}})
    return fingerprint(name, packages={"distributions": {}}, integrity=section)


def findings(nodes: Sequence[Fingerprint]) -> List[Finding]:
    """What all rules say of nodes that were compared with each other."""
    sections = ("packages", "integrity")
    return list(judge(Evidence(tuple(nodes), drifts=compare(nodes), sections=sections)))


def test_integrity_rules_are_silent_about_whole_environments() -> None:
    """Nothing changed, nothing missing, nothing extra."""
    assert [] == findings([node("a", integrity()), node("b", integrity())])


def test_edited_file_on_one_node_of_a_hundred_is_one_finding() -> None:
    """Package, file and node, and nothing of it a second time as a difference between nodes."""
    nodes = [node(f"node{number:03d}", integrity()) for number in range(1, 101)]
    nodes[41] = node("node042", integrity(changed=EDITED))
    (finding,) = findings(nodes)
    assert ("EA206", "error", ("node042",)) == (finding.rule, finding.severity, finding.nodes)
    assert "pip:torch: 1 file changed on disk since the install" == finding.message
    assert tuple(EDITED["pip:torch"]) == finding.evidence


def test_edited_file_on_all_nodes_is_told_without_a_difference() -> None:
    """They agree with each other, and not with the package."""
    (finding,) = findings([node(name, integrity(changed=EDITED)) for name in "abc"])
    assert ("EA206", ("a", "b", "c")) == (finding.rule, finding.nodes)


def test_other_files_of_one_package_on_other_nodes_are_findings_of_their_own() -> None:
    """Which file is on which node must not be lost."""
    other = {"pip:torch": ["lib/python3.11/site-packages/torch/nn/init.py"]}
    found = findings([node("a", integrity(changed=EDITED)), node("b", integrity(changed=other))])
    assert [("a",), ("b",)] == [finding.nodes for finding in found]


def test_many_packages_changed_on_the_same_nodes_are_one_finding() -> None:
    """A folder that was copied over another is one cause, with a line for each package."""
    changed = {f"p{number}": [f"lib/p{number}.py"] for number in range(FOLD_FROM)}
    (finding,) = findings([node("a", integrity(changed=changed)), node("b", integrity())])
    assert f"{FOLD_FROM} packages: {FOLD_FROM} files changed on disk since the install" == finding.message
    assert "p0: 1 file, lib/p0.py" == finding.evidence[0]


def test_extra_file_is_a_warning_that_names_it() -> None:
    """A module laid into a package."""
    extra = {"pip:torch": ["lib/python3.11/site-packages/torch/patch.py"]}
    (finding,) = findings([node("a", integrity(extra=extra)), node("b", integrity())])
    assert ("EA260", "warning", ("a",)) == (finding.rule, finding.severity, finding.nodes)
    assert "pip:torch: 1 file that no package installed" == finding.message


@pytest.mark.parametrize("other", [integrity("size"), integrity("cached"), None])
def test_nodes_that_were_looked_at_in_other_ways_do_not_differ(other: Optional[Dict[str, Any]]) -> None:
    """Who looked at sizes cannot say that a file is unchanged; that is told, and is no difference."""
    found = findings([node("a", integrity(changed=EDITED)), node("b", other), node("c", other)])
    assert "EA299" not in [finding.rule for finding in found]
    assert ("a",) == next(finding.nodes for finding in found if finding.rule == "EA206")
