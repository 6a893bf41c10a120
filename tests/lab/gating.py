"""`envaudit gate` in the lab: a lock of what the nodes have, and what each format said of one run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from junitparser import Error, Failure, JUnitXml

from envaudit.lock.export import conda_lock, of_fingerprint
from envaudit.lock.inputs import inputs_of
from envaudit.lock.sourcefile import read_source
from envaudit.store import read_snapshot_file
from tests.lab.command import Command, Ended

NODES = "node[01-04]"
LOCK = "conda-lock.yml"
SOURCE = "environment.yml"

# A lab is containers without a time service; torch on a CPU cannot do some operations.
# Eight GPUs are told to a machine that may have two processors.
OF_THE_LAB = ("EA137", "EA154", "EA155", "EA505")
_SOURCE_TEXT = "name: train\nchannels: [conda-forge]\ndependencies: [numpy, python=3.11, pyyaml]\n"
_LETTERS = {"E": "error", "?": "incomplete", "W": "warning", "I": "info"}


class Said(NamedTuple):
    """One finding, as every format has it."""

    rule: str
    severity: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Gated:
    """One run of the gate, with what its reports hold."""

    ended: Ended
    envelope: dict[str, Any]
    junit: JUnitXml
    sarif: dict[str, Any]

    @property
    def findings(self) -> list[Said]:
        """Of the JSON report."""
        return [
            Said(each["rule"], each["severity"], tuple(each["nodes"]))
            for each in self.envelope["findings"]
            if each["rule"] not in OF_THE_LAB
        ]

    @property
    def in_text(self) -> list[tuple[str, str]]:
        """Rules and severities of what was printed."""
        lines = re.findall(r"^  ([E?WI]) (EA\d{3})\b", self.ended.stdout, re.MULTILINE)
        return [(rule, _LETTERS[letter]) for letter, rule in lines if rule not in OF_THE_LAB]

    @property
    def in_sarif(self) -> list[Said]:
        """The results of the SARIF log that nobody has set aside."""
        results = self.sarif["runs"][0]["results"]
        return [
            Said(each["ruleId"], each["properties"]["severity"], tuple(each["properties"]["nodes"]))
            for each in results
            if each["ruleId"] not in OF_THE_LAB and not each.get("suppressions")
        ]

    @property
    def in_junit(self) -> set[tuple[str, str, str]]:
        """Rule, place and kind of each test case that is no pass."""
        found = set()
        for suite in self.junit:
            for case in suite:
                rule = case.name.partition(" ")[0].rstrip(":")
                kinds = [type(each) for each in case.result]
                kind = "failure" if Failure in kinds else "error" if Error in kinds else ""
                if kind and rule not in OF_THE_LAB:
                    found.add((rule, str(case.classname), kind))
        return found

    def holds_in_all_formats(self, nodes: tuple[str, ...]) -> None:
        """Text, JUnit and SARIF say what JSON says; `nodes` stand for a finding without any."""
        said = self.findings
        assert sorted((each.rule, each.severity) for each in said) == sorted(self.in_text), self.ended.text
        assert sorted(said) == sorted(self.in_sarif)
        kinds = {"error": "failure", "incomplete": "error"}
        expected = {
            (each.rule, place, kinds[each.severity])
            for each in said
            if each.severity in kinds
            for place in each.nodes or nodes
        }
        assert expected == self.in_junit


def gate(command: Command, *arguments: str, timeout_s: float = 60.0) -> Gated:
    """One run over the four nodes, with a report in each format."""
    reports = {name: command.folder / f"gate.{name}" for name in ("json", "junit", "sarif")}
    options = [word for name, path in reports.items() for word in ("--report", f"{name}={path}")]
    ended = command("gate", "--nodes", NODES, "--format", "plain", *options, *arguments, timeout_s=timeout_s)
    assert all(path.exists() for path in reports.values()), ended.text
    envelope = json.loads(reports["json"].read_text())
    assert ended.code == envelope["exit_code"], ended.text
    return Gated(
        ended,
        envelope,
        JUnitXml.fromfile(str(reports["junit"])),
        json.loads(reports["sarif"].read_text()),
    )


def lock_what_is_there(command: Command) -> None:
    """environment.yml, and a fresh lock of it that holds what node01 has, in the command's folder."""
    snapshot = command.folder / "node01.json"
    ended = command("snapshot", "--nodes", "node01", "-o", str(snapshot))
    assert 0 == ended.code, ended.text
    (fingerprint,) = read_snapshot_file(str(snapshot)).fingerprints
    found = of_fingerprint(fingerprint)
    pip = [replace(each, url=f"https://index.example/{each.name}.whl", sha256="0" * 64) for each in found.pip]
    source = command.folder / SOURCE
    source.write_text(_SOURCE_TEXT, encoding="utf-8")
    document = yaml.safe_load(conda_lock(replace(found, pip=tuple(pip))))
    inputs = inputs_of([read_source(str(source))], document["metadata"]["platforms"])
    document["metadata"].update(sources=[SOURCE], custom_metadata=inputs.to_custom())
    (command.folder / LOCK).write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def policy(folder: Path, text: str) -> str:
    """A policy file of this text; its path."""
    path = folder / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)
