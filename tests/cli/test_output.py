"""Where reports go: every format from every command, whole or not at all, and nothing asked in vain."""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from envaudit.cli.main import COMMANDS, parser_of
from envaudit.cli.output import FORMATS, render
from envaudit.transport import bundle
from tests.cli.conftest import Folder
from tests.report.ci_cases import CI_CASES
from tests.report.test_github import read_by_a_runner

PROJECT = Path(__file__).resolve().parents[2]
FAULTY = "name: x\nchannels: [conda-forge]\ndependencies:\n  - python=3.11\n  - numpy\n  - numpy=1.2\n"
# Beside `--format`, these have a `--report` as well; `baseline` has it below its own actions.
REPORTING = [name for name in COMMANDS if "--report" in parser_of(name).format_help()]


@pytest.fixture
def linting(folder: Folder) -> Folder:
    """A folder with an environment.yml that has a warning."""
    (folder.path / "environment.yml").write_text(FAULTY)
    return folder


def test_reporting_commands_are_those_that_judge() -> None:
    """A command that reports takes them all."""
    assert {"snapshot", "diff", "show", "clock", "check", "log", "lint", "lock", "verify"} <= set(REPORTING)


@pytest.mark.parametrize("command", REPORTING)
def test_command_takes_every_format(command: str) -> None:
    """As its standard output."""
    (action,) = [each for each in parser_of(command)._actions if each.dest == "format"]
    assert FORMATS == action.choices


def test_run_writes_all_formats_at_once(linting: Folder) -> None:
    """And ends as it would without them."""
    reports = [word for name in FORMATS for word in ("--report", f"{name}=report.{name}")]
    ended = linting.run("lint", *reports)
    assert (0, "") == (ended.code, ended.err)
    texts = {name: (linting.path / f"report.{name}").read_text() for name in FORMATS}
    assert all("EA010" in text for text in texts.values())
    assert "PASS" == json.loads(texts["json"])["verdict"]
    assert "environment.yml" == ET.fromstring(texts["junit"])[0][1].attrib["classname"]
    assert os.uname().nodename == ET.fromstring(texts["junit"])[0].attrib["hostname"]
    assert "package named twice" in texts["sarif"]
    assert abs(time.time() - float(texts["prometheus"].split("_timestamp_seconds ")[-1].split()[0])) < 60


@pytest.mark.parametrize("name", FORMATS)
def test_format_ends_with_the_code_of_the_verdict(linting: Folder, name: str) -> None:
    """Whatever is printed."""
    ended = linting.run("lint", "--fail-on", "warning", "--format", name)
    assert (1, "", True) == (ended.code, ended.err, "EA010" in ended.out)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("none/report", "is no folder that can be written"),
        ("n1/report", "is no folder that can be written"),
        ("taken", "is a folder, expected a file to write"),
    ],
)
def test_report_that_cannot_be_written_is_told_before_any_node_is_asked(
    folder: Folder, name: str, place: str, words: str
) -> None:
    """A gate of twenty minutes must not end without its report."""
    (folder.path / "taken").mkdir()
    folder.set_node("n2", script=f'touch {folder.path}/asked; exec "$@"')
    ended = folder.ask("diff", "n[2-3]", "--report", f"{name}={place}")
    assert (5, "", True) == (ended.code, ended.out, words in ended.err)
    assert not (folder.path / "asked").exists()


def test_node_is_asked_where_the_report_can_be_written(folder: Folder) -> None:
    """The trap of the test above works."""
    folder.set_node("n2", script=f'touch {folder.path}/asked; exec "$@"', NCCL_ALGO="Ring")
    assert 0 == folder.ask("diff", "n[2-3]", "--report", "junit=report.xml", "--section", "env").code
    assert (folder.path / "asked").exists()


def test_step_summary_that_cannot_be_written_is_told_first(linting: Folder) -> None:
    """Like any other report."""
    ended = linting.run("lint", "--format", "github", GITHUB_STEP_SUMMARY="none/summary")
    assert (5, "", True) == (ended.code, ended.out, "none: is no folder that can be written" in ended.err)


@pytest.mark.parametrize(
    ("variables", "coloured"), [({}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)]
)
def test_text_has_no_colours_for_who_cannot_or_will_not_see_them(
    linting: Folder, variables: dict[str, str], coloured: bool
) -> None:
    """A dumb terminal prints the codes themselves."""
    assert coloured == ("\x1b[" in linting.run("lint", "--format", "text", **variables).out)


def test_one_file_cannot_be_two_reports(linting: Folder) -> None:
    """Whatever their formats are."""
    ended = linting.run("lint", "--report", "junit=a", "--report", "sarif=./a")
    assert (2, True) == (ended.code, "would be written twice" in ended.err)


def test_report_for_the_node_exporter_is_readable_by_it(linting: Folder) -> None:
    """It runs as another user than the job, whose umask may forbid others everything."""
    script = (
        f"umask 077; exec {sys.executable} -m envaudit lint --report prometheus=p.prom --report json=p.json"
    )
    subprocess.run(["sh", "-c", script], cwd=linting.path, check=True, capture_output=True, timeout=60)
    modes = [stat.S_IMODE((linting.path / name).stat().st_mode) for name in ("p.prom", "p.json")]
    assert [0o644, 0o600] == modes


def test_report_is_written_through_a_link_and_to_standard_output(linting: Folder) -> None:
    """Neither is replaced by a file."""
    (linting.path / "real").mkdir()
    (linting.path / "link.xml").symlink_to("real/report.xml")
    ended = linting.run("lint", "--report", "junit=link.xml", "--report", "json=/dev/stdout")
    assert 0 == ended.code
    assert (linting.path / "link.xml").is_symlink()
    assert "testsuites" == ET.parse(linting.path / "real" / "report.xml").getroot().tag
    assert ended.out.startswith("{\n")


def test_step_summary_is_appended_where_github_asks_for_it(linting: Folder) -> None:
    """Other commands of the step keep theirs; other formats leave it alone."""
    page = linting.path / "summary.md"
    page.write_text("# mine\n")
    linting.run("lint", "--format", "json", GITHUB_STEP_SUMMARY=str(page))
    assert "# mine\n" == page.read_text()
    linting.run("lint", "--format", "github", GITHUB_STEP_SUMMARY=str(page))
    linting.run("lint", "--report", "github=log", GITHUB_STEP_SUMMARY=str(page))
    text = page.read_text()
    assert (True, 2) == (text.startswith("# mine\n## ✅ envaudit lint"), text.count("## ✅ envaudit lint"))


def test_plain_log_has_no_command_for_githubs_runner(folder: Folder) -> None:
    """What a file says begins a line of the log; the same lines elsewhere stay as they are."""
    (folder.path / "environment.yml").write_text(
        "name: x\nchannels: [conda-forge]\ndependencies:\n  - python\n  - '::error::owned ##[error]owned'\n"
    )
    usual = folder.run("lint").out
    assert "##[error]" in usual
    ended = folder.run("lint", GITHUB_ACTIONS="true")
    log = read_by_a_runner(ended.out)
    assert ([], True) == (log.commands, any("owned" in line for line in log.shown))


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("junit", "junitparser", "junitparser"),
        ("html", "jinja2", "jinja2"),
        ("prometheus", "prometheus_client", "prometheus-client"),
        ("text", "rich", "rich"),
    ],
)
def test_format_without_its_library_names_the_package(
    linting: Folder, name: str, module: str, package: str
) -> None:
    """And is refused before anything is read."""
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        f"sys.argv = ['envaudit', 'lint', 'none.yml', '--report', '{name}=x']\n"
        "from envaudit.cli.main import run; run()"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=linting.path, capture_output=True, text=True, timeout=60
    )
    assert 2 == run.returncode
    assert f"it needs the package {package}" in run.stderr
    assert f"pip install {package}." in run.stderr


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one-file form."""
    path = tmp_path_factory.mktemp("bundle") / "envaudit.pyz"
    path.write_bytes(bundle.build_bundle())
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_one_file_form_writes_a_format_or_says_what_to_install(one_file: Path, name: str) -> None:
    """What needs no library is there."""
    run = subprocess.run(
        [sys.executable, "-I", "-S", str(one_file), "snapshot", "-o", "x.json", "--format", name],
        cwd=one_file.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if name in ("plain", "json", "sarif", "github"):
        assert (0, "") == (run.returncode, run.stderr)
        assert "PASS" in run.stdout
    else:
        assert (2, "") == (run.returncode, run.stdout)
        assert f"format '{name}' is not to be had here" in run.stderr
        assert "pip install " in run.stderr


def test_killed_writer_leaves_whole_reports_alone(tmp_path: Path) -> None:
    """After kill -9 at any moment each file is one of the two reports, letter by letter."""
    import tests.cli.rewriting as rewriting

    chance = random.Random(7)
    whole: dict[str, set[str]] = {name: set() for name in FORMATS if name != "text"}
    for round_number in range(6):
        folder = tmp_path / str(round_number)
        folder.mkdir()
        writer = subprocess.Popen(
            [sys.executable, "-m", rewriting.__name__, str(folder)],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        assert "ready\n" == writer.stdout.readline()
        time.sleep(chance.uniform(0, 0.1))
        writer.kill()
        writer.wait()
        writer.stdout.close()
        for name in whole:
            text = (folder / f"report.{name}").read_text()
            if not whole[name]:
                whole[name] = _both(name)
            assert text in whole[name]


def _both(name: str) -> set[str]:
    """What the process writes in one format."""
    from dataclasses import replace

    from envaudit.cli.output import _rule_texts

    made = set()
    for second, host in enumerate(("first", "second")):
        report = replace(
            CI_CASES["node_missing_and_outlier"], started_at=f"2026-11-30T10:00:0{second}Z", host=host
        )
        made.add(render(replace(report, rules=_rule_texts()), name, color=False))
    return made


def test_waived_finding_is_in_every_report(folder: Folder) -> None:
    """The run passes, and each reader can see on whose word."""
    folder.set_node("n2", NCCL_ALGO="Tree")
    policy = (
        "\n[[waivers]]\nrule = 'EA451'\nreason = 'drained next week'\nowner = 'ops'\nexpires = '2099-01-31'\n"
    )
    with folder.configuration.open("a") as stream:
        stream.write(policy)
    reports = [word for name in FORMATS for word in ("--report", f"{name}=report.{name}")]
    ended = folder.ask("diff", "n[1-3]", "--section", "env", *reports)
    assert 0 == ended.code
    texts = {name: (folder.path / f"report.{name}").read_text() for name in FORMATS}
    assert all("drained next week" in text for name, text in texts.items() if name != "prometheus")
    assert 'envaudit_set_aside_findings{by="waiver"} 1.0' in texts["prometheus"]
    skipped = [
        case.attrib["classname"] for case in ET.fromstring(texts["junit"]).iter("testcase") if len(case)
    ]
    assert ["n2"] == skipped
    (result,) = [each for each in json.loads(texts["sarif"])["runs"][0]["results"] if "suppressions" in each]
    assert ("EA451", "note") == (result["ruleId"], result["level"])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["lint"], ["lint", "--help"], ["--help"], ["--version"]])
def test_standard_output_on_a_full_disk_is_no_fault_of_the_program(linting: Folder, words: list[str]) -> None:
    """`envaudit lint > report.txt`: the message names the cause, and asks for no bug report."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "envaudit", *words],
            cwd=linting.path,
            # A buffer that could not be emptied is flushed once more at the end.
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert 5 == ended.returncode
    assert (
        "envaudit: standard output: cannot be written (No space left on device). "
        "Free space on that file system, or choose another place.\n"
    ) == ended.stderr
