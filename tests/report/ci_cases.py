"""What the formats of CI systems are tried on: reports with the register's words, host and clock given."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict

from envaudit.model import Finding, Verdict
from envaudit.report import Report, RuleText, SetAside, Stage
from envaudit.rules import all_rules
from tests.diff.nodes import TOOL, training_node
from tests.report.cases import CASES, DOWN, HOSTILE, compared, nodes

RULES = {
    rule.id: RuleText(rule.id, rule.severity, rule.title, rule.why, rule.how_to_fix) for rule in all_rules()
}


def told(report: Report, **more: object) -> Report:
    """A report as `emit` hands it to a format."""
    return replace(report, rules=RULES, host="login1", started_at="2026-11-30T10:00:00Z", **more)


def linted(*findings: Finding, fail_on: str = "error", about: str = "environment.yml") -> Report:
    """What `lint` reports."""
    return told(
        Report(
            command="lint",
            tool=TOOL,
            verdict=Verdict.of(findings, fail_on),
            findings=findings,
            sections=("envfile",),
            about=about,
            comparing=False,
            elapsed_s=0.03,
        )
    )


def is_well(report: Report) -> bool:
    """Whether a reader may see green: it passed, it looked at something, and who is missing may be."""
    allowed = {node for finding in report.findings if finding.rule == "EA901" for node in finding.nodes}
    return report.verdict.name == "PASS" and bool(report.nodes) and allowed.issuperset(report.missing)


TWICE = Finding(
    "EA010",
    "warning",
    "numpy is named twice",
    path="environment.yml:6:5",
    evidence=("environment.yml:5:5: numpy",),
    hint="Join the lines into one.",
)
SECRET = Finding(
    "EA013",
    "error",
    "a token stands in the file",
    path="envs/gpu env.yml:3:11",
    hint="Take it out.",
)
STALE = Finding("EA060", "error", "stale: numpy was added", path="conda-lock.yml", hint="Lock again.")
NCCL = Finding("EA214", "error", "NCCL differs", ("node04",), "libraries/nccl/version")
DRIVER = Finding("EA331", "warning", "driver patch differs", ("node05", "node06"), "gpu/driver")

WAIVED = SetAside(NCCL, "waiver", "until 2027-01-31: drained next week (ops)")
OFF = SetAside(DRIVER, "policy", "switched off by the policy")
SEVEN_VALUES = [training_node(f"node{number:02d}", algo=f"A{number}") for number in range(7)]

CI_CASES: Dict[str, Report] = {
    "fifty_healthy_nodes": told(CASES["fifty_healthy_nodes"]),
    "node_missing_and_outlier": told(CASES["node_missing_and_outlier"]),
    "only_missing": told(compared(nodes(1, 2), {"node11": DOWN})),
    "gate": told(CASES["gate"]),
    "gate_with_a_lock": told(
        CASES["node_missing_and_outlier"], command="gate", held_against="lockfiles/train.conda-lock.yml"
    ),
    "hostile": told(CASES["hostile"]),
    "linted": linted(SECRET, STALE, TWICE, about="environment.yml, envs/gpu env.yml"),
    "linted_strictly": linted(TWICE, fail_on="warning"),
    "set_aside": told(
        compared(nodes(1, 6)),
        set_aside=(WAIVED, OFF, SetAside(NCCL, "waiver", HOSTILE)),
        stages=(Stage("waived", "EA214 on node04 until 2027-01-31: drained next week (ops)"),),
    ),
    "seven_values": told(compared(SEVEN_VALUES)),
    "missing_as_allowed": told(
        Report(
            "gate",
            TOOL,
            Verdict.of(()),
            (Finding("EA901", "info", "no evidence, as allowed for up to 2", ("node11",)),),
            missing={"node11": DOWN},
            nodes=("node10",),
        )
    ),
    "nothing_examined": told(Report("diff", TOOL, Verdict.of(()))),
}
