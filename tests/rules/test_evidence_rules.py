"""EA9xx: evidence that is not there is never a pass, and healthy nodes never raise an alarm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Sequence, Tuple

import pytest

from envaudit.diff import compare
from envaudit.model import Finding, Fingerprint, Missing, Section, Verdict
from envaudit.model.fingerprint import MISSING_KINDS
from envaudit.rules import Evidence, Policy, judge
from tests.diff.nodes import fingerprint, package, training_node
from tests.rules.fleets import edited, node_of

DEFAULT = Policy()
PAIR = (training_node("node01"), training_node("node02"))


def findings(nodes: Sequence[Fingerprint], policy: Policy = DEFAULT, **more: Any) -> List[Finding]:
    """What all rules say of these nodes, compared with each other."""
    return list(judge(Evidence(tuple(nodes), drifts=compare(nodes), **more), policy))


def brief(found: Sequence[Finding]) -> List[Tuple[str, str, Tuple[str, ...]]]:
    """Rule, message and nodes of each."""
    return [(each.rule, each.message, each.nodes) for each in found]


@pytest.mark.parametrize("kind", MISSING_KINDS)
def test_node_without_answer_is_incomplete_with_cause_and_next_step(kind: str) -> None:
    """Whatever kept it away, a node that did not answer is no pass."""
    gone = Missing(kind, "no route to host (ssh)", "Check that 'ssh node03 true' works.")
    (finding,) = findings(PAIR, missing={"node03": gone})
    assert ("EA901", "incomplete", ("node03",)) == (finding.rule, finding.severity, finding.nodes)
    assert "no evidence" == finding.message
    assert (f"{kind}: no route to host (ssh)",) == finding.evidence
    assert "Check that 'ssh node03 true' works." == finding.hint
    assert "INCOMPLETE" == Verdict.of([finding]).name


def test_nodes_without_answer_stand_together_by_cause() -> None:
    """One switch that is down is one finding."""
    missing = {f"n{number}": Missing("unreachable", "no route to host") for number in (10, 9, 8)}
    missing["n7"] = Missing("timeout", "no answer in 30 s")
    found = findings(PAIR, missing=missing)
    assert [("n7",), ("n8", "n9", "n10")] == [each.nodes for each in found]


@pytest.mark.parametrize(
    ("nodes", "missing", "expected"),
    [
        (PAIR, 1, "info"),
        (PAIR, 2, "incomplete"),
        ((), 1, "incomplete"),
        ((replace(PAIR[0], node=""),), 1, "incomplete"),
    ],
    ids=["allowed", "too-many", "nobody-answered", "only-the-lock"],
)
def test_missing_node_is_allowed_where_others_answered(
    nodes: Sequence[Fingerprint], missing: int, expected: str
) -> None:
    """As many as the user says; and never all there are."""
    gone = {f"n{number}": Missing("unreachable", "no route to host") for number in range(missing)}
    found = judge(Evidence(tuple(nodes), gone, comparing=False, allowed_missing=1), DEFAULT)
    assert [expected] == [each.severity for each in found if each.rule == "EA901"]


@pytest.mark.parametrize("name", ["gpu", "env", "conda"])
def test_section_in_error_is_incomplete(name: str) -> None:
    """Nothing of it was compared on that node."""
    broken: Dict[str, Any] = {name: Section(name, 1, "error", errors=("deadline passed",))}
    (finding,) = findings([*PAIR, training_node("node03", **broken)])
    assert [("EA902", f"{name} could not be read", ("node03",))] == brief([finding])
    assert ("deadline passed",) == finding.evidence
    assert "incomplete" == finding.severity


def test_sections_that_one_error_hides_are_one_finding() -> None:
    """An interpreter that does not start tells of no package; what has its own cause stands alone."""
    told = {"torch": "no start", "packages": "no start", "gpu": "hung"}
    odd = training_node("c", **{name: Section(name, 1, "error", errors=(why,)) for name, why in told.items()})
    expected = [
        ("EA902", "packages, torch could not be read", ("c",)),
        ("EA902", "gpu could not be read", ("c",)),
    ]
    assert sorted(expected) == sorted(brief(findings([*PAIR, odd])))


def test_section_in_error_everywhere_is_incomplete() -> None:
    """Equal ignorance is no agreement."""
    broken = Section("gpu", 1, "error", errors=("hung",))
    nodes = [training_node(node, gpu=broken) for node in ("a", "b")]
    assert [("EA902", "gpu could not be read", ("a", "b"))] == brief(findings(nodes))


@pytest.mark.parametrize("name", Policy().require)
def test_required_section_that_is_not_there_is_incomplete(name: str) -> None:
    """Nobody looked; and what EA902 reports, EA905 does not report again."""
    bare = training_node("node03")
    without = {key: section for key, section in bare.sections.items() if key != name}
    odd = fingerprint("node03", **without)
    assert [("EA902", f"{name} could not be read", ("node03",))] == brief(findings([*PAIR, odd]))


def test_required_section_that_is_absent_is_evidence() -> None:
    """A head node without a GPU was looked at: it has none."""
    nodes = [training_node(node, gpu=Section("gpu", 1, "absent")) for node in ("a", "b")]
    assert [] == findings(nodes)


def test_section_that_the_user_named_has_to_be_there() -> None:
    """Who requires a GPU expects one; a run that does not look for it says nothing."""
    policy = Policy(named=("gpu",))
    nodes = [training_node("a"), training_node("b", gpu=Section("gpu", 1, "absent"))]
    (found,) = [each for each in findings(nodes, policy) if each.rule == "EA902"]
    assert ("incomplete", ("b",)) == (found.severity, found.nodes)
    assert "gpu is required, and there is none" == found.message
    assert [] == [each for each in findings(nodes, policy, sections=("host",)) if each.rule == "EA902"]


def test_required_section_that_was_not_asked_for_is_not_missed() -> None:
    """`--section host` needs no GPU evidence."""
    nodes = [fingerprint(node, host={"launch": "ssh"}) for node in ("a", "b")]
    assert [] == findings(nodes, sections=("host",))


def test_required_section_of_a_lock_is_not_missed() -> None:
    """A lock file says what it says; it never looked at a GPU."""
    node, lock = training_node("a"), fingerprint("a@lock", source="lock", conda={})
    assert () == judge(Evidence((node,), references=(lock,)))


def test_policy_chooses_the_required_sections() -> None:
    """What the user requires is what is missed."""
    nodes = [fingerprint(node, host={"launch": "ssh"}) for node in ("a", "b")]
    assert [] == findings(nodes, Policy(require=()))
    assert ["EA902"] == [each.rule for each in findings(nodes, Policy(require=("clock",)))]


def test_section_in_part_is_incomplete_and_says_what() -> None:
    """What was read is compared, the rest is named."""
    part = Section("torch", 1, "partial", {"version": "2.4.1"}, errors=("cuda: permission denied",))
    (finding,) = findings([*PAIR, training_node("node03", torch=part)])
    assert [("EA903", "torch was read in part", ("node03",))] == brief([finding])
    assert ("cuda: permission denied",) == finding.evidence


def test_section_of_a_report_is_in_part_by_nature() -> None:
    """A foreign report never says everything: only what could not be read of it is told."""
    part = Section("torch", 1, "partial", {"version": "2.4.1"})
    spoilt = Section("torch", 1, "partial", {"version": "2.4.1"}, errors=("line 3: pins nothing",))
    for source in ("import", "lock"):
        assert [] == findings([*PAIR, replace(training_node("r", torch=part), source=source)])
        (finding,) = findings([*PAIR, replace(training_node("r", torch=spoilt), source=source)])
        assert [("EA903", "torch was read in part", ("r",))] == brief([finding])


def test_list_with_a_checkout_without_a_name_does_not_pass_for_what_it_lacks() -> None:
    """Two lists, each with such a line: only a checkout of the other may be it."""
    common = {"torch": {"version": "2.4.1"}, "pip": None}
    unnamed = Section("packages", 1, "partial", {"distributions": common}, {"unnamed": 1})
    lists = [fingerprint("a", source="import", packages=unnamed)]
    for others, rules in (
        ({"numpy": {"version": "1.26"}}, ["EA903"]),
        ({"own": {"editable": True}, "pip": {"version": "24.0"}, "wheel": None}, []),
    ):
        other = replace(unnamed, facts={"distributions": {**common, **others}})
        found = findings([*lists, fingerprint("b", source="import", packages=other)])
        assert rules == [each.rule for each in found], others
        assert not found or ("not told whether it has numpy", ("a",)) == (found[0].message, found[0].nodes)


def test_reference_in_error_is_incomplete_too() -> None:
    """A baseline whose GPU could not be read proves nothing about the GPU."""
    good = training_node("node01@good", gpu=Section("gpu", 1, "error"))
    found = judge(Evidence((training_node("node01"),), references=(good,)))
    assert [("EA902", "gpu could not be read", ("node01@good",))] == brief(found)


def test_one_node_alone_has_nothing_to_compare_with() -> None:
    """A comparison with oneself is no pass."""
    (finding,) = findings(PAIR[:1])
    assert [("EA904", "nothing to compare with", ("node01",))] == brief([finding])
    assert finding.hint.startswith("Name two nodes")
    assert ["EA904"] == [each.rule for each in findings([])]


def test_one_node_beside_missing_ones_is_told_by_their_cause() -> None:
    """Two were asked, one came: that the other did not is the cause."""
    assert ["EA901"] == [each.rule for each in findings(PAIR[:1], missing={"b": Missing("timeout", "30 s")})]


def test_one_node_is_enough_where_nothing_is_compared() -> None:
    """`snapshot` of one machine is whole."""
    assert () == judge(Evidence(PAIR[:1], comparing=False))


def test_one_node_with_its_reference_is_a_comparison() -> None:
    """node01@good against node01."""
    assert () == judge(Evidence(PAIR[:1], references=(training_node("node01@good"),)))


def test_pattern_that_no_fact_answers_to_is_incomplete() -> None:
    """`--only gpu/drvier` compares nothing, and that is no pass."""
    (finding,) = findings(PAIR, unmatched=("gpu/drvier",))
    assert ("EA904", "incomplete") == (finding.rule, finding.severity)
    assert "nothing to compare: no fact is called gpu/drvier" == finding.message


def test_report_that_shares_no_subject_with_another_is_no_pass() -> None:
    """A list of packages beside a list of GPUs: nothing was compared, and nothing differs."""
    freeze = fingerprint("freeze", "import", packages={"distributions": {}})
    smi = fingerprint("smi", "import", gpu={"count": 1})
    (found,) = [each for each in findings([freeze, smi]) if each.rule == "EA904"]
    assert ("incomplete", ("freeze", "smi")) == (found.severity, found.nodes)
    assert ("freeze tells of packages", "smi tells of gpu") == found.evidence
    other = fingerprint("other", "import", packages={"distributions": {}})
    (found,) = [each for each in findings([freeze, other, smi]) if each.rule == "EA904"]
    assert ("smi",) == found.nodes
    fresh = fingerprint("", "lock", freshness={"changes": []})
    assert [] == [each for each in findings([freeze, other, fresh]) if each.rule == "EA904"]


def test_node_beside_its_own_past_shares_all_subjects() -> None:
    """The reference has the same name as the node that is held against it."""
    now, then = training_node("node01"), training_node("node01")
    found = judge(Evidence((now,), references=(then,)))
    assert [] == [each for each in found if each.rule == "EA904"]
    past = fingerprint("node01", "import", packages={"distributions": {}})
    smi = fingerprint("node01", "import", gpu={"count": 1})
    (alone,) = [each for each in judge(Evidence((smi,), references=(past,))) if each.rule == "EA904"]
    assert ("node01",) == alone.nodes


def test_other_launch_is_info_and_names_the_smaller_side() -> None:
    """Facts of a launch are not held against another one; that is said once, and is no fault."""
    nodes = [*PAIR, training_node("node03", launch="slurm", algo="Tree", libraries={})]
    (finding,) = findings(nodes)
    assert ("EA905", "info", ("node03",)) == (finding.rule, finding.severity, finding.nodes)
    assert "not compared, other launch (slurm, ssh): env, libraries" == finding.message
    assert "PASS" == Verdict.of([finding]).name


def test_what_nvidia_smi_does_not_tell_is_no_other_gpu() -> None:
    """It stands in where NVML cannot be loaded; the rest of the card is compared as ever."""
    card = {"product": "NVIDIA H100", "ecc": "enabled"}
    told = {"each": {**card, "compute_capability": "9.0", "nvlinks": 18}, "nvml": "as driver"}
    untold = {"each": {**card, "ecc": "disabled"}, "source": "nvidia-smi"}
    nodes = [fingerprint("a", gpu=told), fingerprint("b", gpu=told), fingerprint("c", gpu=untold)]
    drifts = compare(nodes)
    assert ["gpu/each/ecc"] == [drift.path for drift in drifts if drift.kind != "unknown"]
    (said,) = (one for one in judge(Evidence(tuple(nodes), drifts=drifts)) if one.rule == "EA905")
    assert ("info", ("c",)) == (said.severity, said.nodes)
    paths = "gpu/each/compute_capability, gpu/each/nvlinks, gpu/nvml"
    assert f"not compared, other source (NVML, nvidia-smi): {paths}" == said.message


def test_older_schema_is_info() -> None:
    """An older probe's node is not blamed for what was not asked then."""
    newer, older = Section("x", 2, "ok", {"new": 1}), Section("x", 1, "ok", {})
    nodes = [training_node("a", x=newer), training_node("b", x=newer), training_node("c", x=older)]
    (finding,) = findings(nodes)
    assert [("EA905", "not compared, older schema 1: x/new", ("c",))] == brief([finding])
    assert "x/new" == finding.path


def test_findings_come_worst_first() -> None:
    """Error, incomplete, warning, info."""
    odd = [training_node("node03", nccl="2.20.5"), training_node("node04", launch="slurm", algo="Tree")]
    nodes = [*PAIR, *odd, training_node("node06", conda_packages={"zlib": package("1")})]
    found = findings(nodes, missing={"node05": Missing("timeout", "30 s")})
    assert ["EA214", "EA901", "EA216", "EA905"] == [each.rule for each in found]


def _reached(name: str, fixture: str = "healthy-h100", launch: str = "ssh") -> Fingerprint:
    """A fake node as ssh, or another way, came to it under a name."""
    return edited(node_of(fixture, name), "host/launch", launch)


def test_two_names_of_one_machine_are_incomplete() -> None:
    """A slip in ssh's configuration or in DNS would pass a node that nobody has looked at."""
    nodes = [_reached("n1", "twin-a"), _reached("n2"), _reached("n3"), _reached("n4", "twin-b")]
    (found,) = [each for each in findings(nodes) if each.rule == "EA907"]
    assert ("incomplete", ("n2", "n3")) == (found.severity, found.nodes)
    assert "all of these are one machine, gpu01.cluster.example" == found.message


@pytest.mark.parametrize(
    "pair",
    [
        (_reached("n1", "twin-a"), _reached("n2", "twin-b")),
        (_reached("n1@good"), _reached("n1@failed")),
        (_reached("n1", launch="exec"), _reached("n2", launch="exec")),
        tuple(edited(_reached(name), "host/container", "docker") for name in ("n1", "n2")),
        (
            _reached("n1"),
            edited(_reached("n2"), "network/interfaces/eno1/mac", "02:00:00:00:00:09", notes=True),
        ),
        tuple(edited(_reached(name), "host/boot_id", None, notes=True) for name in ("n1", "n2")),
    ],
    ids=["twins", "its own past", "a command", "containers", "clones", "not known"],
)
def test_what_may_be_two_machines_is_not_called_one(pair: Sequence[Fingerprint]) -> None:
    """Healthy nodes are as alike as can be, and raise no alarm."""
    assert [] == [each for each in findings(pair) if each.rule == "EA907"]
