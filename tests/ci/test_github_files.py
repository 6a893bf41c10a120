"""The composite action and the workflow: valid for GitHub, and executed as its runner would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.report.schemas import published
from tests.report.test_github import read_by_a_runner

FILES = Path(__file__).resolve().parents[2] / "docs" / "ci" / "github"
ACTION = yaml.safe_load((FILES / "action.yml").read_text())
# YAML 1.1 reads the key `on` as true.
WORKFLOW = {
    "on" if key is True else key: value
    for key, value in yaml.safe_load((FILES / "workflow.yml").read_text()).items()
}
CLEAN = "name: x\nchannels: [conda-forge]\ndependencies:\n  - python=3.11\n"
SECRET = CLEAN + "  - pip\n  - pip:\n    - --index-url https://u:hunter2hunter2@example.org/simple\n"
HIDE = "[rules.EA013]\nseverity = 'off'\n"


class Stepped(NamedTuple):
    """What a step of the action left."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str


def run_step(step: dict[str, Any], inputs: dict[str, str], workspace: Path) -> Stepped:
    """A `run` step as the runner starts it: expressions in `env` alone, bash with -e and pipefail."""
    values = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
    values.update(inputs)

    def evaluated(text: str) -> str:
        return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: values[match[1]], text)

    variables = {name: evaluated(text) for name, text in step["env"].items()}
    files = {"GITHUB_OUTPUT": workspace / ".output", "GITHUB_STEP_SUMMARY": workspace / ".summary"}
    for path in files.values():
        path.write_text("")
    run = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=workspace,
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(workspace),
            "GITHUB_ACTIONS": "true",
            "CI": "true",
            # Whatever is missing is not to be fetched by a test.
            "PIP_NO_INDEX": "1",
            **{name: str(path) for name, path in files.items()},
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return Stepped(run.returncode, run.stdout + run.stderr, outputs, files["GITHUB_STEP_SUMMARY"].read_text())


def audit(inputs: dict[str, str], workspace: Path) -> Stepped:
    """The step that runs envaudit."""
    return run_step(ACTION["runs"]["steps"][1], inputs, workspace)


def step_called(name: str) -> dict[str, Any]:
    """A step of the workflow."""
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    (found,) = [step for step in steps if step.get("name") == name]
    return dict(found)


@pytest.fixture
def change(tmp_path: Path) -> Path:
    """A checked-out change whose own configuration hides what is wrong with it, beside the base branch."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "envaudit.toml").write_text("[gate]\nfail-on = 'error'\n")
    (tmp_path / "base" / "environment.yml").write_text(CLEAN)
    (tmp_path / "envaudit.toml").write_text(HIDE)
    (tmp_path / "environment.yml").write_text(SECRET)
    return tmp_path


@pytest.mark.parametrize(
    ("document", "schema"), [(ACTION, "github-action.json"), (WORKFLOW, "github-workflow.json")]
)
def test_file_follows_the_published_schema(document: Any, schema: str) -> None:
    """What GitHub's own editor would mark."""
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(json.loads(json.dumps(document)), published(schema))


def test_schema_refuses_a_step_without_a_shell() -> None:
    """A composite action must name one."""
    jsonschema = pytest.importorskip("jsonschema")
    broken = json.loads(json.dumps(ACTION))
    del broken["runs"]["steps"][1]["shell"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, published("github-action.json"))


def test_no_script_holds_an_expression() -> None:
    """What is put into a script is run by it: a branch may be called `$(curl ...)`."""
    steps = [*ACTION["runs"]["steps"], *(each for job in WORKFLOW["jobs"].values() for each in job["steps"])]
    scripts = [step["run"] for step in steps if "run" in step]
    assert (2, []) == (len(scripts), [script for script in scripts if "${{" in script])


def test_workflow_takes_policy_store_and_action_from_the_base_branch() -> None:
    """A change must not waive itself."""
    for job in WORKFLOW["jobs"].values():
        used = [step for step in job["steps"] if "envaudit" in step.get("uses", "")]
        assert used
        for step in used:
            assert "./base/.github/actions/envaudit" == step["uses"]
            words = step["with"]["arguments"].split()
            flag = "--policy" if step["with"]["command"] == "gate" else "--config"
            assert "base/envaudit.toml" == words[words.index(flag) + 1]
            assert "--store" not in words or "base/.envaudit" == words[words.index("--store") + 1]
        (base,) = [step for step in job["steps"] if step.get("with", {}).get("path") == "base"]
        assert "head" not in base["with"]["ref"]
    assert all(
        step["with"]["persist-credentials"] is False
        for job in WORKFLOW["jobs"].values()
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/checkout@")
    )


def test_workflow_may_write_nothing_but_alerts() -> None:
    """And a cluster's runner sees no change before it is merged."""
    assert {"contents": "read"} == WORKFLOW["permissions"]
    assert {"contents": "read", "security-events": "write"} == WORKFLOW["jobs"]["files"]["permissions"]
    assert "github.event_name == 'push'" == WORKFLOW["jobs"]["nodes"]["if"]


@pytest.mark.parametrize("name", ["Environment files", "Lock", "Gate"])
def test_arguments_of_the_workflow_are_options_that_there_are(name: str) -> None:
    """As the command's own parser takes them."""
    from envaudit.cli.main import parser_of

    step = step_called(name)
    words = [line for line in step["with"]["arguments"].splitlines() if line]
    assert parser_of(step["with"]["command"]).parse_args(words)


def test_install_step_is_content_with_what_is_installed(tmp_path: Path) -> None:
    """Nothing is fetched where no other version is asked for."""
    step = ACTION["runs"]["steps"][0]
    ended = run_step(step, {}, tmp_path)
    assert (0, True) == (ended.code, "already satisfied: envaudit" in ended.log)
    ended = run_step(step, {"version": "99.0"}, tmp_path)
    assert (1, True) == (ended.code, "envaudit==99.0" in ended.log)


def test_change_that_hides_its_own_fault_fails(change: Path) -> None:
    """The policy of the base branch judges it; reports, annotations and summary are there."""
    ended = audit(step_called("Environment files")["with"], change)
    assert 1 == ended.code
    (error,) = [each for each in read_by_a_runner(ended.log).commands if each.name == "error"]
    assert ("environment.yml", "7") == (error.properties["file"], error.properties["line"])
    assert "## ❌ envaudit lint" in ended.summary
    assert {"sarif", "junit", "html"} == set(ended.outputs)
    assert all((change / path).is_file() for path in ended.outputs.values())
    assert "1" == ET.parse(change / ended.outputs["junit"]).getroot().attrib["failures"]
    sarif = json.loads((change / ended.outputs["sarif"]).read_text())
    assert "EA013" in [result["ruleId"] for result in sarif["runs"][0]["results"]]


def test_same_change_under_its_own_policy_would_pass(change: Path) -> None:
    """The trap of the test above works."""
    assert 0 == audit({"arguments": "environment.yml"}, change).code


def test_change_without_its_lock_cannot_pass(change: Path) -> None:
    """Unreadable input, before anything is judged."""
    ended = audit(step_called("Lock")["with"], change)
    assert (4, True) == (ended.code, "conda-lock.yml" in ended.log)


@pytest.mark.parametrize("command", ["run", "lint; touch owned", "$(touch owned)", ""])
def test_command_that_does_not_report_is_refused(tmp_path: Path, command: str) -> None:
    """No input is a shell's."""
    ended = audit({"command": command}, tmp_path)
    assert (2, False) == (ended.code, (tmp_path / "owned").exists())


def test_arguments_are_words_and_no_script(tmp_path: Path) -> None:
    """Blanks, quotes, globs and substitutions stay in them."""
    (tmp_path / "my env.yml").write_text(CLEAN)
    assert 0 == audit({"arguments": "my env.yml"}, tmp_path).code
    ended = audit({"arguments": "$(touch owned)`touch owned`; touch owned\n*"}, tmp_path)
    assert (True, False) == (ended.code != 0, (tmp_path / "owned").exists())
