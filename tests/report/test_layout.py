"""What a report says beyond the goldens: thresholds, notes, folds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Tuple

import pytest

from envaudit.model import Drift, Finding, Group, Verdict
from envaudit.report import Report, plain

NODES = ("node01", "node02", "node03")
DRIFT = Drift(
    "libraries/nccl/version",
    "changed",
    (Group("2.21.5", NODES[:2]), Group("2.20.5", NODES[2:])),
    NODES[:2],
    "majority 2/3",
)
NCCL = Finding(
    "EA214",
    "error",
    "loaded from /usr/lib, before the environment's own copy",
    NODES[2:],
    DRIFT.path,
    evidence=("set in /etc/profile.d/mpi.sh",),
    hint="Remove /usr/lib from LD_LIBRARY_PATH.",
    drifts=(DRIFT,),
)


def lines(*findings: Finding, fail_on: str = "error", verbose: bool = False) -> List[str]:
    """The lines of a plain report of three nodes."""
    report = Report(
        command="diff",
        tool="0.1.0",
        verdict=Verdict.of(findings, fail_on),
        findings=tuple(sorted(findings, key=lambda finding: finding.rank)),
        drifts=tuple({drift.path: drift for finding in findings for drift in finding.drifts}.values()),
        nodes=NODES,
        sections=("gpu", "libraries"),
        verbose=verbose,
        elapsed_s=0.25,
    )
    return plain.render(report).splitlines()


def test_layout_shows_values_then_reason_evidence_and_advice() -> None:
    """Values side by side, where it was read, what to do."""
    assert [
        "node03",
        "  E EA214  libraries/nccl/version  2.21.5  →  2.20.5",
        "           loaded from /usr/lib, before the environment's own copy",
        "           set in /etc/profile.d/mpi.sh",
        "           Remove /usr/lib from LD_LIBRARY_PATH.",
    ] == lines(NCCL)[2:7]


def test_verdict_counts_errors_and_warnings() -> None:
    """The rule is the worst one's, the nodes are those with errors."""
    warning = Finding("EA331", "warning", "driver patch differs", ("node02",))
    assert "FAIL EA214 node03: 1 error on 1 of 3 nodes, 1 warning, 0.2 s" == lines(NCCL, warning)[-1]


def test_verdict_names_beside_a_rule_the_nodes_of_that_rule_alone() -> None:
    """A lock that is stale is no node's; what others are found guilty of is counted behind it."""
    stale = Finding("EA060", "error", "lock is stale", path="train.conda-lock.yml")
    other = Finding("EA330", "error", "driver differs", ("node01",))
    assert "FAIL EA060: 2 errors, 1 of them on 1 of 3 nodes, 0.2 s" == lines(stale, NCCL)[-1]
    assert "FAIL EA214 node03: 2 errors on 2 of 3 nodes, 0.2 s" == lines(NCCL, other)[-1]


@pytest.mark.parametrize(
    ("severity", "fail_on", "expected"),
    [
        ("warning", "error", "PASS 3 nodes, 2 sections, 1 warning, 0.2 s"),
        ("warning", "warning", "FAIL EA331 node02: 1 warning on 1 of 3 nodes, 0.2 s"),
        ("info", "warning", "PASS 3 nodes, 2 sections, 1 remark, 0.2 s"),
        ("info", "info", "FAIL EA331 node02: 1 remark on 1 of 3 nodes, 0.2 s"),
    ],
)
def test_verdict_follows_the_threshold(severity: str, fail_on: str, expected: str) -> None:
    """What fails is named, what does not fail is counted; with a node that is named they are not alike."""
    finding = Finding("EA331", severity, "driver patch differs", ("node02",))
    assert expected == lines(finding, fail_on=fail_on)[-1]


def test_verdict_of_a_finding_about_the_run_names_no_node() -> None:
    """Nothing is said of nodes that are not at fault."""
    assert "FAIL EA001: 1 error, 0.2 s" == lines(Finding("EA001", "error", "lock is stale"))[-1]
    assert "this run" in lines(Finding("EA001", "error", "lock is stale"))


def test_layout_cuts_long_evidence_unless_verbose() -> None:
    """A hundred unreadable files are ten lines and a count."""
    many = Finding("EA903", "incomplete", "x", NODES[:1], evidence=tuple(f"file{n}" for n in range(100)))
    assert "           90 more (--verbose)" in lines(many)
    assert "           file99" not in lines(many)
    assert "           file99" in lines(many, verbose=True)


def test_layout_names_a_basis_that_the_header_does_not() -> None:
    """One reference is told once, on top; several stand with their facts."""
    other = replace(
        DRIFT, path="gpu/driver", groups=(Group("1", NODES[1:]), Group("2", NODES[:1])), reference=NODES[1:]
    )
    both = lines(
        NCCL, Finding("EA299", "error", "gpu/driver differs", NODES[:1], "gpu/driver", drifts=(other,))
    )
    assert "3 nodes, 3 groups. Reference: the majority of each fact." == both[0]
    assert "  E EA299  gpu/driver  1  →  2   majority 2/3" in both
    assert "3 nodes, 2 groups. Reference: majority 2/3, node[01-02]." == lines(NCCL)[0]


def test_label_shows_a_folder_as_it_is_called_and_verbose_as_a_pattern_has_it() -> None:
    """`~1` is what --only and [paths] want, and no word for the eyes."""
    groups = (Group("12.1.1", ("node01", "node02")), Group(None, ("node03",), state="absent"))
    path = "cuda/toolkits/~1usr~1local~1cuda-12.1"
    drift = Drift(path, "missing", groups, ("node01", "node02"), "majority 2/3")
    finding = Finding("EA299", "info", f"{path} is missing", ("node03",), path, drifts=(drift,))
    told = [row for row in lines(finding) if "cuda" in row]
    assert ["  I EA299  cuda/toolkits//usr/local/cuda-12.1  12.1.1  →  absent"] == told
    assert any(path in row for row in lines(finding, verbose=True))


@pytest.mark.parametrize(
    ("path", "values", "shown"),
    [
        ("gpu/each/power_limit_mw", (700000, 650500), "700 W  →  650500 mW"),
        ("gpu/each/memory_bytes", (80 << 30, (80 << 30) - 1), "80 GiB  →  85899345919 bytes"),
        ("limits/dev_shm_gib", (1008, 0), "1008 GiB  →  0 GiB"),
        ("limits/stack_bytes/soft", (8 << 20, "unlimited"), "8 MiB  →  unlimited"),
        ("gpu/count", (8, 7), "8  →  7"),
    ],
)
def test_number_that_differs_has_the_unit_of_its_key(path: str, values: Tuple[Any, Any], shown: str) -> None:
    """700000 of what, the reader would have to look up."""
    groups = (Group(values[0], NODES[:2]), Group(values[1], NODES[2:]))
    drift = Drift(path, "changed", groups, NODES[:2], "majority 2/3")
    finding = Finding("EA299", "warning", "GPU things differ", NODES[2:], path, drifts=(drift,))
    assert f"  W EA299  GPU things  {shown}" in lines(finding)
