"""`envaudit lint` as a user runs it: words, exit codes, formats, and what it leaves alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.cli.conftest import Folder

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
GOOD = "channels: [conda-forge]\ndependencies:\n  - python=3.12\n"
BAD = "channels: [pytorch]\ndependencies:\n  - pytorch=2.0.1\n  - cudatoolkit=11.8\n  - cpuonly\n"


def write(folder: Folder, text: str, name: str = "environment.yml") -> None:
    """A file in the working folder."""
    (folder.path / name).write_text(text)


def test_lint_of_a_file_without_fault_passes(folder: Folder) -> None:
    """One line, exit 0; without a name environment.yml is meant."""
    write(folder, GOOD)
    ended = folder.run("lint")
    assert (0, 1) == (ended.code, len(ended.out.splitlines()))
    assert ended.out.startswith("PASS environment.yml, no findings, 0.")


def test_lint_tells_each_finding_with_its_place_and_advice(folder: Folder) -> None:
    """Worst first; the place as an editor takes it; what to do."""
    write(folder, BAD)
    ended = folder.run("lint", "environment.yml")
    assert 1 == ended.code
    lines = ended.out.splitlines()
    assert [
        "environment.yml",
        "  E EA032  environment.yml:5:5: cpuonly is a CPU build, beside cudatoolkit=11.8",
        "           environment.yml:4:5: cudatoolkit=11.8",
        "           Take out the one that is not meant.",
        "  W EA031  environment.yml:4:5: pytorch=2.0.1 does not use cudatoolkit=11.8: "
        "the CPU build meets both",
        "           environment.yml:3:5: pytorch=2.0.1",
    ] == lines[:6]
    assert lines[-1].startswith("FAIL EA032 environment.yml:5:5: 1 error, 1 warning, 0.")


def test_lint_of_two_files_judges_each_alone(folder: Folder) -> None:
    """The same package in two files is no package named twice; lines are ordered as numbers."""
    write(folder, GOOD, "a.yml")
    write(folder, GOOD + "".join(f"  - p{n}=1\n" for n in range(9)) + "  - cuda\nx: 1\n", "b.yml")
    report = folder.run("lint", "a.yml", "b.yml", "--format", "json").json
    assert [("EA030", "b.yml:13:5"), ("EA004", "b.yml:14:1")] == [
        (finding["rule"], finding["path"]) for finding in report["findings"]
    ]


def test_lint_report_in_json_follows_the_schema(folder: Folder) -> None:
    """CI reads it."""
    write(folder, BAD)
    ended = folder.run("lint", "--format", "json")
    Draft202012Validator(SCHEMA).validate(ended.json)
    assert ("lint", "FAIL", 1) == (ended.json["command"], ended.json["verdict"], ended.code)


@pytest.mark.parametrize(("threshold", "code"), [("error", 0), ("warning", 1), ("info", 1)])
def test_lint_fails_from_the_threshold_on(folder: Folder, threshold: str, code: int) -> None:
    """A warning alone passes by default."""
    write(folder, GOOD + "  - cuda\n")
    assert code == folder.run("lint", "--fail-on", threshold).code


def test_lint_takes_the_threshold_of_the_configuration(folder: Folder) -> None:
    """`[gate] fail-on` holds for every command that judges."""
    write(folder, GOOD + "  - cuda\n")
    (folder.path / "envaudit.toml").write_text('[gate]\nfail-on = "warning"\n')
    assert 1 == folder.run("lint").code


def test_lint_without_a_name_takes_the_sources_of_the_configuration(folder: Folder) -> None:
    """`[lock] sources` counts from its file, and is told as it is seen from here."""
    write(folder, BAD)
    (folder.path / "envs").mkdir()
    write(folder, GOOD, "envs/train.yml")
    (folder.path / "envaudit.toml").write_text('[lock]\nsources = ["envs/train.yml"]\n')
    assert folder.run("lint").out.startswith("PASS envs/train.yml, no findings")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("lint", "no.yml"), "envaudit: no.yml: cannot be read (No such file or directory).\n"),
        (("lint", "."), "envaudit: .: cannot be read (Is a directory).\n"),
    ],
)
def test_lint_of_what_cannot_be_read_ends_with_4(
    folder: Folder, words: tuple[str, ...], complaint: str
) -> None:
    """Named, with the system's words."""
    ended = folder.run(*words)
    assert (4, "", complaint) == (ended.code, ended.out, ended.err)


def test_lint_without_a_file_names_what_is_near(folder: Folder) -> None:
    """A usage error, never an empty pass."""
    write(folder, GOOD, "conda_environment.yaml")
    ended = folder.run("lint")
    assert (2, "envaudit: there is no environment.yml here. There is conda_environment.yaml: name it.\n") == (
        ended.code,
        ended.err,
    )


def test_lint_shows_no_credential_and_no_terminal_control(folder: Folder) -> None:
    """Whatever the file holds, in every format."""
    write(folder, 'channels: ["https://me:hunter2@h/c"]\ndependencies:\n  - "a\\e[31m=>1"\n')
    for name in ("plain", "text", "json"):
        ended = folder.run("lint", "--format", name)
        assert 1 == ended.code
        assert "hunter2" not in ended.out + ended.err
        assert "\x1b[31m=>1" not in ended.out


def test_lint_imports_neither_a_solver_nor_what_it_needs(folder: Folder) -> None:
    """A file is judged in the time that starting a solver takes."""
    write(folder, BAD)
    program = (
        "import sys; from envaudit.cli.main import main; main(['lint']);"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=folder.path, capture_output=True, text=True)
    loaded = set(run.stdout.splitlines()[-1].split())
    assert {"yaml", "envaudit"} <= loaded
    assert set() == loaded & {"conda_lock", "rattler", "pydantic", "packaging", "rich", "ClusterShell"}
