"""Reports of every kind, with the clock and the version given: what the goldens hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping, Sequence

from envaudit.diff import compare, compare_to_reference
from envaudit.model import Finding, Fingerprint, Missing, Section, Verdict
from envaudit.model.checked import checked_devices
from envaudit.report import Clock, Moment, Report, Stage
from envaudit.rules import Evidence, judge
from tests.diff.nodes import TOOL, fingerprint, package, training_node
from tests.report.ranks import RANK_CASES
from tests.rules.checked import MISMATCH, checked, cpu, gpu, outcomes

DOWN = Missing(
    "unreachable",
    "no route to host (ssh)",
    "Check that 'ssh node11 true' works, or leave it out: --nodes 'node[01-10]'.",
)
# Everything a node may try on the reader's screen.
HOSTILE = "\x7f\x1b]0;owned\x07\x1b[2J\r\n\u202egnp.exe\u2066\u200b\u2028\x9b31m[red]no[/red]\udcff::error::"


def nodes(first: int, last: int, **changes: Any) -> List[Fingerprint]:
    """Healthy nodes, or equally changed ones, numbered with two digits."""
    return [training_node(f"node{number:02d}", **changes) for number in range(first, last + 1)]


def compared(fleet: Sequence[Fingerprint], missing: Mapping[str, Missing] = {}, **more: Any) -> Report:
    """What `diff` reports of live nodes."""
    drifts = compare(fleet)
    sections = tuple(sorted({name for one in fleet for name in one.sections}))
    found = judge(Evidence(tuple(fleet), missing, drifts, sections))
    return Report(
        command="diff",
        tool=TOOL,
        verdict=Verdict.of(found),
        findings=found,
        drifts=drifts,
        missing=missing,
        nodes=tuple(one.node for one in fleet),
        sections=sections,
        elapsed_s=0.62,
        **more,
    )


def against_good(good: Sequence[Fingerprint], now: Sequence[Fingerprint]) -> Report:
    """What `diff NODES@good NODES` reports."""
    before, after = {one.node: one for one in good}, {one.node: one for one in now}
    drifts = compare_to_reference(before, after, basis="baseline", suffix="@good")
    labelled = tuple(replace(one, node=f"{one.node}@good") for one in good)
    found = judge(Evidence(tuple(now), {}, drifts, references=labelled))
    return Report(
        command="diff",
        tool=TOOL,
        verdict=Verdict.of(found),
        findings=found,
        drifts=drifts,
        nodes=tuple(after),
        sections=tuple(sorted(good[0].sections)),
        reference="node[01-04]@good",
        elapsed_s=0.31,
    )


def history() -> Report:
    """What `log` reports."""
    steps = [
        training_node("node01"),
        training_node("node01"),
        training_node("node01", nccl="2.22.3", vbios="96.00.99.00.01"),
        training_node("node01", nccl="2.22.3", vbios="96.00.99.00.01", launch="slurm", algo="Tree"),
    ]
    drifts = [
        compare_to_reference({"node01": before}, {"node01": now}, basis="baseline", suffix="@before")
        for before, now in zip(steps, steps[1:])
    ]
    timeline = (
        Moment("node01", "2026-11-28T02:10:00Z", first=True),
        Moment("node01", "2026-11-29T02:10:00Z", ("good",), drifts[0]),
        Moment("node01", "2026-11-30T02:10:00Z", missing=DOWN),
        Moment("node01", "2026-11-30T10:00:00Z", ("after-upgrade",), drifts[1]),
        Moment("node01", "2026-11-30T11:00:00Z", ("latest",), drifts[2]),
    )
    return Report(
        command="log",
        tool=TOOL,
        verdict=Verdict.of(()),
        nodes=("node01",),
        comparing=False,
        outcome="5 snapshots, 1 with changes",
        timeline=timeline,
    )


def shown(verbose: bool) -> Report:
    """What `show` reports, of sections in every state."""
    node = training_node(
        "node01@good",
        clock=Section("clock", 1, "error", errors=("chronyc: deadline of 5 s passed",)),
        limits=Section("limits", 1, "partial", {"nofile": 1048576}, errors=("memlock: permission denied",)),
        git=Section("git", 1, "absent"),
        gpu=Section(
            "gpu",
            1,
            "ok",
            {
                "driver": "550.54.15",
                "cards": [{"memory_bytes": 85520809984, "ecc": True}],
                "nics": [],
                "mig": None,
            },
            {"temperatures_c": [41], "serials": {"0": "1320223000001"}},
        ),
        python={
            "path": ["/opt/envs/train/lib/python3.11", "/opt/envs/train/lib/python3.11/site-packages"] * 2
        },
    )
    found = judge(Evidence((node,), comparing=False))
    return Report(
        command="show",
        tool=TOOL,
        verdict=Verdict.of(()),
        findings=found if verbose else (),
        nodes=(node.node,),
        comparing=False,
        outcome="1 node shown",
        facts=(node,),
        verbose=verbose,
    )


def hostile() -> Report:
    """A node that writes to the screen of whoever reads its facts."""
    bad = fingerprint(
        "node02",
        host={"launch": "ssh"},
        env={"LIST": [HOSTILE], "NCCL_ALGO": HOSTILE, f"X{HOSTILE}": "1"},
        packages=Section("packages", 1, "error", errors=(HOSTILE,)),
        torch=Section("torch", 1, "absent"),
        libraries=Section("libraries", 1, "absent"),
        gpu=Section("gpu", 1, "absent"),
    )
    good = replace(
        bad,
        node="node01",
        sections={
            **bad.sections,
            "env": Section("env", 1, "ok", {"NCCL_ALGO": "Ring"}),
            "packages": Section("packages", 1, "absent"),
        },
    )
    return replace(
        compared([good, bad], {"node03": Missing("corrupt", HOSTILE, HOSTILE)}), facts=(bad,), verbose=True
    )


def gate() -> Report:
    """A command of several steps, with a warning below the threshold."""
    finding = Finding(
        "EA331", "warning", "driver patch differs", ("node02",), "gpu/driver", hint="Upgrade it."
    )
    return Report(
        command="gate",
        tool=TOOL,
        verdict=Verdict.of((finding,)),
        findings=(finding,),
        nodes=("node01", "node02"),
        sections=("gpu", "host"),
        comparing=False,
        elapsed_s=5.5,
        stages=(Stage("nodes", "2 of 2 answered", 5.1), Stage("drift", "none among 2", 0.04)),
    )


WARM = {
    "readings": 250,
    "sm_clock_mhz": {"median": 1905, "least": 1755, "most": 1980},
    "power_mw": {"median": 612_000, "least": 118_000, "most": 698_000},
    "temperature_c": {"median": 52, "least": 34, "most": 61},
    "throttle": ["sw_power_cap"],
}
WRONG = outcomes(status="wrong", reason="1 of 50 repeats differ", wrong_repeats=1, mismatch=MISMATCH)
LEFT = outcomes(status="not_run", reason="the budget of 30 s was over", digest="", milli_tflops=None)


def checks(*fleet: Fingerprint, verbose: bool = False) -> Report:
    """What `check` reports."""
    found = judge(Evidence(tuple(fleet), sections=("checks",), comparing=False))
    return Report(
        command="check",
        tool=TOOL,
        verdict=Verdict.of(found),
        findings=found,
        nodes=tuple(one.node for one in fleet),
        sections=("checks",),
        comparing=False,
        outcome="16 GPUs on 2 nodes, 2 operations right to the bit",
        elapsed_s=27.3,
        verbose=verbose,
        stages=(Stage("heat", "no thermal soak below 60 s"),),
        checks=tuple(checked_devices(fleet)),
    )


def clocks(*more: Clock, verbose: bool = False) -> Report:
    """What `clock` reports: fifteen clocks in step, and some more."""
    offsets = [
        Clock(f"node{number:02d}", "chrony", True, "normal", 1_000 * number, 64_000)
        for number in range(1, 16)
    ]
    found = tuple(
        Finding(
            "EA150",
            "error",
            "clock is off by more than 1 s",
            (each.node,),
            "clock",
            (f"{each.node}: +3.200 s ± 0.100 ms from the median of 16 clocks; chrony, not synchronised",),
            "Let its time service follow the same source as the others'.",
        )
        for each in more
        if each.apart
    )
    return Report(
        command="clock",
        tool=TOOL,
        verdict=Verdict.of(found),
        findings=found,
        nodes=tuple(each.node for each in (*offsets, *more)),
        sections=("clock",),
        comparing=False,
        outcome="15 clocks within 15 µs ± 64 µs",
        elapsed_s=1.42,
        verbose=verbose,
        clocks=(*offsets, *more),
        clock_basis="median",
    )


def ports(*mtus: int) -> Dict[str, Any]:
    """A section that holds a table: one row a port, by its place."""
    return {"ports": [{"driver": "mlx5_core", "mtu": mtu, "speed_mbps": 400000} for mtu in mtus]}


FORTY = {f"p{number:02d}": package("1.0") for number in range(40)}
LONG_PATH = "/opt/envs/train/lib:" * 8

CASES: Dict[str, Report] = {
    "fifty_healthy_nodes": compared(nodes(1, 50)),
    "one_outlier": compared(
        [
            *nodes(1, 7),
            training_node("node08", nccl="2.20.5", driver="550.54.14", algo=None, vbios="96.00.89.00.02"),
        ]
    ),
    "two_nodes": compared([*nodes(1, 1), training_node("node02", nccl="2.20.5", algo="Tree")]),
    "two_nodes_many_packages": compared([*nodes(1, 1), *nodes(2, 2, conda_packages=FORTY)]),
    "tie": compared([*nodes(1, 2), *nodes(3, 4, nccl="2.20.5")]),
    "three_values": compared([*nodes(1, 5), *nodes(6, 7, nccl="2.20.5"), *nodes(8, 8, libraries={})]),
    "two_references": compared(
        [*nodes(1, 3), *nodes(4, 4, nccl="2.20.5"), *nodes(5, 5, driver="550.54.14")],
    ),
    "many_packages": compared([*nodes(1, 4), *nodes(5, 5, conda_packages=FORTY)]),
    "many_packages_verbose": compared([*nodes(1, 4), *nodes(5, 5, conda_packages=FORTY)], verbose=True),
    "long_values": compared(
        [*nodes(1, 2, algo=f"{LONG_PATH}/a:{LONG_PATH}"), *nodes(3, 3, algo=f"{LONG_PATH}/b:{LONG_PATH}")]
    ),
    "table_with_another_cell": compared(
        [*nodes(1, 2, network=ports(9000, 9000, 1500)), *nodes(3, 3, network=ports(1500, 1500, 1500))]
    ),
    "table_of_another_length": compared(
        [*nodes(1, 2, network=ports(9000, 9000)), *nodes(3, 3, network=ports(9000))]
    ),
    "node_missing": compared(nodes(1, 10), {"node11": DOWN}),
    "node_missing_and_outlier": compared([*nodes(1, 9), *nodes(10, 10, nccl="2.20.5")], {"node11": DOWN}),
    "sections_unread": compared(
        [
            *nodes(1, 2),
            training_node(
                "node03",
                gpu=Section("gpu", 1, "error", errors=("deadline of 30 s passed",)),
                torch=Section(
                    "torch", 1, "partial", {"version": "2.4.1"}, errors=("cuda: permission denied",)
                ),
            ),
        ]
    ),
    "other_launch": compared([*nodes(1, 3), training_node("node04", launch="slurm", algo="Tree")]),
    "one_node": compared(nodes(1, 1)),
    "baseline_alike": against_good(nodes(1, 4), nodes(1, 4)),
    "baseline_changed": against_good(nodes(1, 4), [*nodes(1, 2), *nodes(3, 4, nccl="2.20.5")]),
    "show": shown(verbose=False),
    "show_verbose": shown(verbose=True),
    "log": history(),
    "gate": gate(),
    "hostile": hostile(),
    "checked_cpu": checks(checked("login", cpu())),
    "checked_gpus": checks(checked("node01", readings=[WARM] * 8), checked("node02", readings=[WARM] * 8)),
    "checked_gpu_wrong": checks(
        checked("node01"),
        checked("node02", *(gpu(ordinal, WRONG if ordinal == 3 else None) for ordinal in range(8))),
    ),
    "checked_verbose": checks(checked("node01", gpu(0, LEFT)), verbose=True),
    "clocks_in_step": clocks(),
    "clocks_apart": clocks(
        Clock("node16", "chrony", False, "not synchronised", 3_200_001_000, 100_000, apart=True),
        Clock("node17", "", None),
        Clock("node18", HOSTILE, None, HOSTILE, 0, 64_000),
        Clock("node19", "none", False, "", -20_000, 64_000),
    ),
    "clocks_verbose": clocks(verbose=True),
    **RANK_CASES,
}
