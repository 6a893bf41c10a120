"""EA200 to EA209: nodes against a lock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import pytest

from envaudit.diff import compare_to_reference
from envaudit.model import Finding, Fingerprint, Section
from envaudit.model.pathpattern import PathPattern
from envaudit.rules import Evidence, Policy, judge
from envaudit.rules.lock import FOLD_FROM
from envaudit.rules.policy import Waiver
from tests.diff.nodes import fingerprint, package

SUFFIX = "@train.conda-lock.yml"
NUMPY = package("1.26.4")
LOCKED = {"numpy": NUMPY, "pytorch": package("2.4.1")}


def node(
    name: str,
    packages: Optional[Dict[str, Dict[str, str]]] = None,
    distributions: Optional[Dict[str, Dict[str, Any]]] = None,
    **sections: Union[Dict[str, Any], Section],
) -> Fingerprint:
    """A node with these packages; by default those of the lock."""
    whole: Dict[str, Union[Dict[str, Any], Section]] = {
        "conda": {"packages": LOCKED if packages is None else packages},
        "packages": {"distributions": distributions or {}},
        **sections,
    }
    return fingerprint(name, **whole)


def lock_of(name: str, virtual: Optional[Dict[str, str]] = None, platform: str = "linux-64") -> Fingerprint:
    """What the lock expects of a node."""
    about = {"platform": platform, "platforms": ["linux-64"], "virtual_packages": virtual or {}}
    return replace(node(name, lock=about), source="lock")


def findings(
    nodes: Sequence[Fingerprint],
    *waivers: Waiver,
    paths: Sequence[Tuple[PathPattern, str]] = (),
    **about: Any,
) -> List[Finding]:
    """What all rules say of nodes that were held against the lock, under waivers and levels of paths."""
    expected = {each.node: lock_of(each.node, **about) for each in nodes}
    current = {each.node: each for each in nodes}
    drifts = compare_to_reference(_conda(expected), _conda(current), basis="lock", suffix=SUFFIX)
    references = tuple(replace(each, node=f"{name}{SUFFIX}") for name, each in expected.items())
    sections = ("conda", "packages", "integrity", "lock")
    evidence = Evidence(tuple(nodes), drifts=drifts, references=references, sections=sections)
    return list(judge(evidence, Policy(waivers=waivers, paths=tuple(paths))))


def test_lock_rules_are_silent_where_all_is_as_locked() -> None:
    """Two nodes like the lock."""
    assert [] == findings([node("a"), node("b")])


@pytest.mark.parametrize(
    ("packages", "rule", "path"),
    [
        ({"numpy": NUMPY}, "EA200", "conda/packages/pytorch"),
        ({**LOCKED, "scipy": package("1")}, "EA201", "conda/packages/scipy"),
        ({**LOCKED, "numpy": package("2.0.1")}, "EA202", "conda/packages/numpy/version"),
        ({**LOCKED, "numpy": package("1.26.4", "py311_1")}, "EA203", "conda/packages/numpy/build"),
        (
            {**LOCKED, "numpy": {**NUMPY, "channel": "pkgs/main"}},
            "EA204",
            "conda/packages/numpy/channel",
        ),
        ({**LOCKED, "numpy": {**NUMPY, "md5": "0" * 32}}, "EA205", "conda/packages/numpy/md5"),
    ],
)
def test_lock_rule_names_the_difference_and_the_node(
    packages: Dict[str, Dict[str, str]], rule: str, path: str
) -> None:
    """One rule for each way to differ; the healthy node is not named."""
    (finding,) = findings([node("a"), node("b", packages)])
    assert (rule, "error", path, ("b",)) == (finding.rule, finding.severity, finding.path, finding.nodes)


def test_lock_rule_of_a_local_tag_is_that_of_the_version() -> None:
    """`2.4.1+cu121` for `2.4.1`: another torch."""
    (finding,) = findings([node("a", {**LOCKED, "pytorch": package("2.4.1+cu121")})])
    assert ("EA202", "conda/packages/pytorch/local") == (finding.rule, finding.path)


def test_lock_rule_folds_what_is_missing_in_the_same_way() -> None:
    """Half an environment is one cause, not forty."""
    more = {f"p{number}": package("1") for number in range(FOLD_FROM)}
    (finding,) = findings([node("a", {**LOCKED, **more})])
    assert ("EA201", f"{FOLD_FROM} packages are not in the lock") == (finding.rule, finding.message)
    assert FOLD_FROM == len(finding.drifts)


def test_waiver_of_one_package_of_many_leaves_the_others() -> None:
    """Those that it means are told apart, and so can be waived."""
    more = {f"p{number}": package("1") for number in range(FOLD_FROM + 1)}
    waiver = Waiver("EA201", "2027-01-31", path=PathPattern.parse("conda/packages/p0", ""))
    (finding,) = findings([node("a", {**LOCKED, **more})], waiver)
    assert ("EA201", f"{FOLD_FROM} packages are not in the lock") == (finding.rule, finding.message)


def test_level_of_one_package_of_many_holds_for_that_one() -> None:
    """What is off is in no finding, and what is a remark is one of its own, however many there are."""
    more = {f"p{number}": package("1") for number in range(2 * FOLD_FROM + 1)}
    levels = [("p0", "off"), *((f"p{number}", "info") for number in range(1, FOLD_FROM + 1))]
    paths = [(PathPattern.parse(f"conda/packages/{name}", ""), level) for name, level in levels]
    found = findings([node("a", {**LOCKED, **more})], paths=paths)
    message = f"{FOLD_FROM} packages are not in the lock"
    assert [("error", message), ("info", message)] == [(each.severity, each.message) for each in found]


def test_lock_rule_folds_nodes_that_differ_alike() -> None:
    """Three nodes with one other version: one finding."""
    other = {**LOCKED, "numpy": package("2.0.1")}
    (finding,) = findings([node("a"), node("b", other), node("c", other), node("d", other)])
    assert ("b", "c", "d") == finding.nodes


def _conda(sides: Mapping[str, Fingerprint]) -> Dict[str, Fingerprint]:
    """What is compared here."""
    return {name: replace(each, sections={"conda": each.sections["conda"]}) for name, each in sides.items()}


def test_second_record_of_a_package_is_named_with_both() -> None:
    """What an interrupted update leaves; the one that is imported may be either."""
    twice = {"packages": LOCKED, "duplicates": {"numpy": [NUMPY, package("1.26.3")]}}
    (finding,) = [each for each in findings([node("a"), node("b", conda=twice)]) if each.hint]
    assert ("EA201", ("b",)) == (finding.rule, finding.nodes)
    assert "numpy is recorded twice: 1.26.4 py311_0, 1.26.3 py311_0" == finding.message


def files(changed: Dict[str, List[str]], missing: Optional[Dict[str, List[str]]] = None) -> Dict[str, Any]:
    """A section `integrity`."""
    states: Dict[str, Dict[str, List[str]]] = {"changed": changed, "missing": missing or {}}
    counts = {state: {package: len(paths) for package, paths in of.items()} for state, of in states.items()}
    return {**states, "counts": counts}


def test_changed_files_are_one_finding_a_package() -> None:
    """With the paths, and which of them are gone."""
    section = files({"numpy": ["lib/a.py", "lib/b.py"]}, {"numpy": ["lib/c.py"]})
    (finding,) = findings([node("a"), node("b", integrity=section)])
    assert ("EA206", ("b",)) == (finding.rule, finding.nodes)
    assert "numpy: 3 files changed on disk since the install" == finding.message
    assert ("lib/a.py", "lib/b.py", "lib/c.py is missing") == finding.evidence


def test_changed_files_stay_silent_where_nothing_changed() -> None:
    """Every file hashed as it was installed."""
    assert [] == findings([node("a", integrity=files({}))])


def test_pip_over_conda_is_a_warning_on_that_node() -> None:
    """And the files that pip replaced are not told a second time."""
    over = {"numpy": {"version": "1.26.4", "installer": "pip"}}
    beside = files({"numpy": ["lib/a.py"]})
    (finding,) = findings([node("a"), node("b", distributions=over, integrity=beside)])
    assert ("EA207", "warning", ("b",)) == (finding.rule, finding.severity, finding.nodes[-1:])


@pytest.mark.parametrize(
    "facts",
    [
        {"version": "1.26.4", "installer": "conda"},
        {"version": "1.26.4", "installer": None},
        {"version": "1.26.4", "installer": "pip", "user_site": True},
    ],
)
def test_pip_over_conda_stays_silent(facts: Dict[str, Any]) -> None:
    """Conda's own metadata, none, or a copy that lies elsewhere."""
    rules = [finding.rule for finding in findings([node("a", distributions={"numpy": facts})])]
    assert "EA207" not in rules


def test_pip_over_pytorch_is_seen_under_its_other_name() -> None:
    """The distribution of conda's pytorch is torch."""
    over = {"torch": {"version": "2.4.1", "installer": "uv"}}
    evidence = Evidence((node("a", distributions=over),), comparing=False, sections=("conda", "packages"))
    (finding,) = judge(evidence)
    assert ("EA207", "uv torch lies over conda's") == (finding.rule, finding.message)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["1.26.4", "2.0.1"], ["numpy 2.0.1 lies beside conda's 1.26.4"]),
        (["2.0.1", "1.26.4"], ["numpy 2.0.1 lies beside conda's 1.26.4"]),
        (["1.26.4", "1.26.4"], []),
    ],
)
def test_second_metadata_of_a_conda_package_is_told(versions: List[str], expected: List[str]) -> None:
    """As `pip install --ignore-installed` leaves it; the same version twice is no other package."""
    facts = {"distributions": {"numpy": {"version": "1.26.4", "installer": "conda"}}}
    facts["duplicates"] = {"numpy": versions}  # type: ignore[assignment]
    evidence = Evidence(
        (fingerprint("a", conda={"packages": {"numpy": {"version": "1.26.4"}}}, packages=facts),),
        comparing=False,
        sections=("conda", "packages"),
    )
    assert expected == [finding.message for finding in judge(evidence) if finding.rule == "EA207"]


@pytest.mark.parametrize(
    ("virtual", "has", "words"),
    [
        (
            {"__cuda": "12.4"},
            {"gpu": {"cuda": "12.2"}},
            "CUDA of the driver is 12.2, the lock needs 12.4",
        ),
        ({"__glibc": "2.28"}, {"host": {"glibc": "2.17"}}, "glibc is 2.17, the lock needs 2.28"),
    ],
)
def test_virtual_package_not_met_names_both_versions(
    virtual: Dict[str, str], has: Dict[str, Dict[str, Any]], words: str
) -> None:
    """A node that is older than what was solved for."""
    (finding,) = findings([node("a", **has)], virtual=virtual)
    assert ("EA208", words, ("a",)) == (finding.rule, finding.message, finding.nodes)


@pytest.mark.parametrize(
    "has",
    [
        {"gpu": {"cuda": "12.4"}, "host": {"glibc": "2.28"}},
        {"gpu": {"cuda": "13.0"}, "host": {"glibc": "2.100"}},
        {"gpu": Section("gpu", 1, "absent"), "host": {"glibc": None}},
        {"gpu": {"cuda": "9" * 5000}, "host": {"glibc": "9" * 5000}},
    ],
)
def test_virtual_package_met_or_not_known_is_silent(has: Dict[str, Any]) -> None:
    """Equal, newer by number and not by text, or a node without a GPU."""
    assert [] == findings([node("a", **has)], virtual={"__cuda": "12.4", "__glibc": "2.28"})


def test_other_environment_no_conda_is_one_finding() -> None:
    """Not one finding for each package of the lock."""
    (finding,) = findings([node("a", conda=Section("conda", 1, "absent"))])
    assert ("EA209", ("a",)) == (finding.rule, finding.nodes)


def test_other_environment_platform_names_those_that_there_are() -> None:
    """An ARM node and a lock for x86."""
    found = findings([node("a", {}, host={"architecture": "aarch64"})], platform="linux-aarch64")
    assert "EA209" in [finding.rule for finding in found]
    (finding,) = [each for each in found if each.rule == "EA209"]
    assert ("the lock has no packages for linux-aarch64", ("it has linux-64",)) == (
        finding.message,
        finding.evidence,
    )
