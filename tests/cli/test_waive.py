"""`envaudit waive`: one accepted finding, in writing, and what becomes of it in a run."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import List

import pytest

from envaudit.cli import configuration
from tests.cases.nodes import USUAL, node
from tests.cli.conftest import Ended, Folder
from tests.cli.stored import write_snapshot

ACCEPTED = (
    "EA214",
    "--nodes",
    "n3",
    "--until",
    "2099-01-31",
    "--reason",
    "updated on Monday",
    "--owner",
    "ada",
)


@pytest.fixture
def drifted(folder: Folder) -> Folder:
    """Three nodes in a file; n3 has another NCCL."""
    nodes = [node(name, USUAL._replace(launch="exec")) for name in ("n1", "n2")]
    odd = node("n3", USUAL._replace(launch="exec"), {"libraries/nccl/version": "2.27.3"})
    write_snapshot(folder.path / "all.json", [*nodes, odd])
    return folder


def compared(folder: Folder, *more: str) -> Ended:
    """The nodes of the file with each other."""
    return folder.run("diff", "all.json", *more, "--format", "json")


def test_waived_finding_is_told_as_waived_and_fails_no_longer(drifted: Folder) -> None:
    """By whom, until when and why: a waiver is never silent."""
    assert 1 == compared(drifted).code
    ended = drifted.run("waive", *ACCEPTED)
    assert (0, True) == (ended.code, "EA214 on n3 is waived until 2099-01-31" in ended.out)
    after = compared(drifted)
    assert (0, []) == (after.code, after.findings)
    assert [{"name": "waived", "text": "EA214 on n3 until 2099-01-31: updated on Monday (ada)"}] == [
        {key: stage[key] for key in ("name", "text")}
        for stage in after.json["stages"]
        if stage["name"] == "waived"
    ]
    assert "waived" in drifted.run("diff", "all.json").out


def test_waiver_is_appended_and_the_rest_of_the_file_stays(drifted: Folder) -> None:
    """Comments and order are the user's; a second waiver follows the first."""
    file = drifted.path / "envaudit.toml"
    file.write_text("# ours\n[gate]\nfail-on = 'warning' # strict")
    before = file.read_text()
    for day in ("2099-01-31", "2099-02-28"):
        assert (
            0
            == drifted.run(
                "waive", "ea214", "--until", day, "--reason", 'a "b" \\ \x7f', "--owner", "ada"
            ).code
        )
    text = file.read_text()
    assert text.startswith(before)
    rows = configuration.parse_table(str(file), text.encode())["waivers"]
    assert [("EA214", 'a "b" \\ \x7f', "ada")] * 2 == [
        (row["rule"], row["reason"], row["owner"]) for row in rows
    ]
    assert ["2099-01-31", "2099-02-28"] == [str(row["expires"]) for row in rows]


def test_waiver_in_a_file_of_windows_has_its_line_ends(folder: Folder) -> None:
    """One kind of line end in one file."""
    path = folder.path / "envaudit.toml"
    path.write_bytes(b"[gate]\r\nfail-on = 'error'")
    assert 0 == folder.run("waive", *ACCEPTED).code
    text = path.read_bytes()
    assert text.startswith(b"[gate]\r\nfail-on = 'error'\r\n\r\n[[waivers]]\r\n")
    assert text.count(b"\n") == text.count(b"\r\n")


def test_waiver_goes_into_the_table_of_a_pyproject(drifted: Folder) -> None:
    """A project that keeps its settings there has them there."""
    file = drifted.path / "pyproject.toml"
    file.write_text('[project]\nname = "train"\n[tool.envaudit.gate]\nfail-on = "error"\n')
    assert 0 == drifted.run("waive", *ACCEPTED).code
    assert "[[tool.envaudit.waivers]]" in file.read_text()
    assert not (drifted.path / "envaudit.toml").exists()
    assert 0 == compared(drifted).code


def test_waiver_in_a_trusted_file_leaves_it_trusted(drifted: Folder) -> None:
    """The user's own command changed it, and not somebody else."""
    file = drifted.path / "envaudit.toml"
    file.write_text(drifted.configuration.read_text())
    assert 2 == compared(drifted).code
    assert 0 == drifted.run("trust").code
    assert 0 == drifted.run("waive", *ACCEPTED).code
    assert 0 == compared(drifted).code


def test_waiver_in_an_untrusted_file_trusts_nothing(drifted: Folder) -> None:
    """Accepting a finding is no consent to run what the file says."""
    file = drifted.path / "envaudit.toml"
    file.write_text(drifted.configuration.read_text())
    drifted.run("waive", *ACCEPTED)
    ended = compared(drifted)
    assert (2, True) == (ended.code, "envaudit trust" in ended.err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("EA998", "--until", "2099-01-31", "--reason", "r"), "no rule has the id 'EA998'"),
        (("EA901", "--until", "2099-01-31", "--reason", "r"), "missing evidence is never a pass"),
        (("EA214", "--until", "2099-02-30", "--reason", "r"), "expected a day"),
        (("EA214", "--until", "soon", "--reason", "r"), "expected a day"),
        (("EA214", "--until", "2020-01-31", "--reason", "r"), "is over"),
        (("EA214", "--until", "2099-01-31", "--reason", " "), "reason"),
        (("EA214", "--until", "2099-01-31", "--reason", "r", "--nodes", "n["), "nodes"),
        (("EA214", "--until", "2099-01-31", "--reason", "r", "--path", "a~b"), "path"),
        (("EA214", "--reason", "r"), "--until"),
        (("EA214", "--until", "2099-01-31"), "--reason"),
    ],
)
def test_waiver_with_a_fault_is_not_written(drifted: Folder, words: List[str], said: str) -> None:
    """2, the fault named, and the file is what it was."""
    file = drifted.path / "envaudit.toml"
    file.write_text("[gate]\n")
    ended = drifted.run("waive", *words)
    assert (2, "[gate]\n") == (ended.code, file.read_text())
    assert said in ended.err


def test_waiver_into_a_faulty_file_is_not_written(drifted: Folder) -> None:
    """The fault that is there already is named."""
    file = drifted.path / "envaudit.toml"
    file.write_text("[rules.EA214]\nseverity = 'fatal'\n")
    ended = drifted.run("waive", *ACCEPTED)
    assert (2, True) == (ended.code, "rules.EA214.severity" in ended.err)
    assert "waivers" not in file.read_text()


def written(folder: Folder, *lines: str) -> None:
    """A configuration with one waiver of EA214 by hand."""
    rows = ["[[waivers]]", 'rule = "EA214"', 'reason = "known"', 'owner = "ada"', *lines]
    (folder.path / "envaudit.toml").write_text("\n".join(rows) + "\n")


def test_expired_waiver_waives_nothing_and_is_an_error_of_its_own(drifted: Folder) -> None:
    """Whoever counted on it is told, and so is what it waived."""
    written(drifted, "expires = 2026-01-31")
    ended = compared(drifted)
    assert (1, ["EA214", "EA910"]) == (ended.code, sorted(each["rule"] for each in ended.findings))
    assert [] == [stage for stage in ended.json["stages"] if stage["name"] == "waived"]


def test_waiver_without_a_finding_is_told_as_unused(drifted: Folder) -> None:
    """It may be mistyped; a run that looks at a part of the nodes says nothing about the others."""
    written(drifted, 'nodes = "n2"', "expires = 2099-01-31")
    ended = compared(drifted)
    assert ["EA214", "EA911"] == [each["rule"] for each in ended.findings]
    written(drifted, 'nodes = "n9"', "expires = 2099-01-31")
    assert ["EA214"] == [each["rule"] for each in compared(drifted).findings]


def test_waiver_of_another_path_or_node_leaves_the_finding(drifted: Folder) -> None:
    """What was not accepted still fails."""
    written(drifted, 'path = "libraries/cudnn/**"', "expires = 2099-01-31")
    assert 1 == compared(drifted).code
    written(drifted, 'path = "libraries/nccl/**"', "expires = 2099-01-31")
    assert 0 == compared(drifted).code


_KILLED = """
import os, signal, sys
from envaudit.cli import waive
import envaudit.store.files as files
real = os.replace
def stop(*words):
    sys.stdout.write("about to replace\\n"); sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = os.rename = stop
from envaudit.cli.main import main
sys.exit(main(["waive", "EA214", "--until", "2099-01-31", "--reason", "r", "--owner", "o"]))
"""


def test_killed_writer_leaves_the_file_whole(drifted: Folder) -> None:
    """Killed after the new text is written and before it takes the old one's place."""
    file = drifted.path / "envaudit.toml"
    file.write_text("# whole\n[gate]\n")
    run = subprocess.run(
        [sys.executable, "-c", _KILLED],
        cwd=drifted.path,
        env=drifted.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (-signal.SIGKILL, "about to replace\n") == (run.returncode, run.stdout)
    assert "# whole\n[gate]\n" == file.read_text()
    assert 0 == drifted.run("waive", *ACCEPTED).code
    assert 0 == compared(drifted).code


def test_waivers_that_are_written_at_once_are_all_kept(folder: Folder) -> None:
    """None of them replaces another's, and each that said it was written is there."""
    command = [sys.executable, "-m", "envaudit", "waive", "EA331", "--until", "2099-01-31", "--reason"]
    file = folder.path / "envaudit.toml"
    file.write_text("# ours\n")
    running = [
        subprocess.Popen(
            [*command, f"reason {n}"], cwd=folder.path, env=folder.environment, stdout=subprocess.DEVNULL
        )
        for n in range(6)
    ]
    assert [0] * 6 == [each.wait(timeout=60) for each in running]
    assert {f"reason {n}" for n in range(6)} == set(re.findall(r'reason = "(.*)"', file.read_text()))


def test_waivers_in_one_line_are_left_with_advice(folder: Folder) -> None:
    """TOML knows no table to append to there."""
    (folder.path / "envaudit.toml").write_text("waivers = []\n")
    ended = folder.run("waive", "EA331", "--until", "2099-01-31", "--reason", "r")
    assert (2, True) == (ended.code, "a table of its own: [[waivers]]" in ended.err)
    assert "waivers = []\n" == (folder.path / "envaudit.toml").read_text()
