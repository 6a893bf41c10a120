"""Who is good and who is bad after a gate, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pytest

from envaudit.cli.goodbad import Sorted, node_set_text, sort_nodes, suggestions
from envaudit.model import Finding

NODES = [f"node{number:02d}" for number in range(1, 21)]


def finding(rule: str, severity: str, *nodes: str) -> Finding:
    """A finding about some nodes."""
    return Finding(rule, severity, "what is wrong", nodes)


def sort(*findings: Finding, missing: Sequence[str] = (), fail_on: str = "error") -> Sorted:
    """Twenty nodes, a tenth of which may be bad alike."""
    answered = [node for node in NODES if node not in missing]
    return sort_nodes(answered, missing, findings, fail_on=fail_on, max_bad_fraction=0.10)


def test_nodes_without_a_finding_are_good() -> None:
    """A warning takes nobody out, where warnings do not fail."""
    assert (tuple(NODES), ()) == sort(finding("EA331", "warning", "node03"))[:2]
    assert ("node03",) == sort(finding("EA331", "warning", "node03"), fail_on="warning").bad


@pytest.mark.parametrize("severity", ["error", "incomplete"])
def test_node_with_a_fault_or_a_gap_is_bad(severity: str) -> None:
    """Evidence that is missing is not good evidence."""
    found = sort(finding("EA902", severity, "node03"))
    assert (("node03",), 19, "") == (found.bad, len(found.good), found.fleet_wide)


def test_missing_node_is_bad_although_it_is_allowed() -> None:
    """An allowed absence is a remark."""
    found = sort(finding("EA901", "info", "node07"), missing=("node07",))
    assert (("node07",), 19) == (found.bad, len(found.good))


def test_label_of_a_baseline_means_its_node() -> None:
    """What could not be read of its baseline leaves a node without one."""
    assert ("node03",) == sort(finding("EA902", "incomplete", "node03@good")).bad


@pytest.mark.parametrize(("count", "is_wide"), [(2, False), (3, True)])
def test_one_finding_on_many_nodes_is_of_the_fleet(count: int, is_wide: bool) -> None:
    """Two of twenty are a tenth, three are more."""
    found = sort(finding("EA213", "error", *NODES[:count]))
    assert is_wide == bool(found.fleet_wide)
    assert is_wide == (found.bad == ())


def test_many_nodes_with_findings_of_their_own_are_no_fleet() -> None:
    """Three causes, three nodes."""
    found = sort(*(finding(rule, "error", node) for rule, node in zip(("EA213", "EA300", "EA451"), NODES)))
    assert (3, "") == (len(found.bad), found.fleet_wide)


def test_two_of_four_nodes_are_never_a_fleet() -> None:
    """Half of them, and less than three."""
    found = sort_nodes(
        NODES[:4], [], [finding("EA213", "error", *NODES[:2])], fail_on="error", max_bad_fraction=0.10
    )
    assert (2, 2, "") == (len(found.good), len(found.bad), found.fleet_wide)


def test_failure_of_the_run_as_a_whole_makes_nobody_good() -> None:
    """A stale lock is no node's."""
    found = sort(finding("EA060", "error"))
    assert ((), (), "EA060 is about the run as a whole") == found


def test_node_sets_are_folded_and_an_empty_one_is_an_empty_file() -> None:
    """`srun -x $(cat FILE)` takes no line for a node."""
    assert (b"node[01-03,05]\n", b"") == (
        node_set_text(["node01", "node02", "node03", "node05"]),
        node_set_text([]),
    )


def test_node_set_for_slurm_has_ranges_at_the_end_of_names_alone() -> None:
    """Of `gpu[1-2]-ib0` Slurm says "Invalid hostlist"."""
    assert b"gpu1-ib0,gpu2-ib0,n[1-2]\n" == node_set_text(["n1", "n2", "gpu1-ib0", "gpu2-ib0"])
    (line,) = suggestions("slurm", ["n1.x", "n2.x"], [finding("EA300", "error", "n1.x", "n2.x")], {})
    assert "NodeName=n1.x,n2.x" in shlex.split(line)


def test_commands_have_the_rules_as_their_reason_and_nothing_of_what_nodes_said() -> None:
    """Alike nodes share a command; the shell reads each as one word."""
    hostile = Finding("EA451", "error", "x'; rm -rf / #", ("node03", "node04"))
    found = [hostile, finding("EA300", "error", "node04"), finding("EA901", "incomplete", "node05")]
    lines = suggestions("slurm", ["node03", "node04", "node05"], found, {"EA451": "NCCL's setting differs"})
    assert [
        [
            "scontrol",
            "update",
            "NodeName=node03",
            "State=DRAIN",
            "Reason=envaudit: EA451 NCCL's setting differs",
        ],
        [
            *("scontrol", "update", "NodeName=node04", "State=DRAIN"),
            "Reason=envaudit: EA451 NCCL's setting differs, EA300",
        ],
        ["scontrol", "update", "NodeName=node05", "State=DRAIN", "Reason=envaudit: EA901"],
    ] == [shlex.split(line) for line in lines]


def test_node_without_a_baseline_is_not_taken_out() -> None:
    """That nobody has accepted one is no fault of the machine."""
    assert () == suggestions("kubectl", ["node03"], [finding("EA906", "incomplete", "node03")], {})
