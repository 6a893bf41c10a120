"""`snapshot`, `diff` and `gate` as calls: values back, nothing printed, errors raised."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import envaudit
from envaudit import api
from envaudit.errors import InputError, UsageError
from envaudit.model import Missing, Snapshot
from envaudit.store import write_snapshot_file
from tests.diff.nodes import CAPTURED_AT, TOOL, training_node

HEALTHY = Snapshot((training_node("node01"), training_node("node02")))
DRIFTED = Snapshot((training_node("node01"), training_node("node02", nccl="2.20.5")))


def test_import_of_the_package_alone_loads_no_room() -> None:
    """Every command and every node pays for what this import costs."""
    code = "import sys, envaudit; print(sorted(name for name in sys.modules if name.startswith('envaudit')))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "['envaudit', 'envaudit._version']\n" == said


@pytest.mark.parametrize("before", ["", "import envaudit.diff;", "from envaudit.diff import compare;"])
def test_diff_can_be_called_whatever_was_imported_before(before: str) -> None:
    """The call and the room of differences have one name."""
    code = f"import envaudit; {before} print(callable(envaudit.diff), envaudit.diff.compare.__name__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "True compare\n" == said


def test_unknown_name_is_an_attribute_error() -> None:
    """`hasattr` and tab completion go by it."""
    with pytest.raises(AttributeError, match="no attribute 'audit'"):
        envaudit.audit  # noqa: B018


def test_diff_of_two_snapshots_goes_node_by_node() -> None:
    """The first one is the reference, under labels of its own."""
    result = envaudit.diff(HEALTHY, DRIFTED)
    assert ("FAIL", 1) == (result.verdict.name, result.exit_code)
    assert [("EA214", ("node02",))] == [(each.rule, each.nodes) for each in result.findings]
    assert ["baseline"] == sorted({drift.basis for drift in result.drifts})
    assert ("node02@a",) in [drift.reference for drift in result.drifts]


def test_diff_of_one_snapshot_holds_its_nodes_against_each_other() -> None:
    """As `envaudit diff a.json` does."""
    result = envaudit.diff(DRIFTED)
    assert ["EA214"] == [each.rule for each in result.findings]


def test_diff_of_a_file_and_a_snapshot_keeps_their_order(own_folder: Path) -> None:
    """References and values may stand side by side."""
    write_snapshot_file("a.json", HEALTHY, captured_at=CAPTURED_AT, tool=TOOL)
    result = envaudit.diff("a.json", DRIFTED)
    assert "a.json" == result.reference
    assert ("node02@a.json",) in [drift.reference for drift in result.drifts]
    assert ("node02@a",) in [drift.reference for drift in envaudit.diff(DRIFTED, "a.json").drifts]


def test_paths_stand_for_their_names(own_folder: Path) -> None:
    """As a reference, and as an option."""
    write_snapshot_file("a.json", HEALTHY, captured_at=CAPTURED_AT, tool=TOOL)
    (own_folder / "envaudit.toml").write_text("[gate]\n")
    assert "a.json" == envaudit.diff(Path("a.json"), DRIFTED, config=own_folder / "envaudit.toml").reference
    Path("a.json").rename("node07")
    assert "node07" == envaudit.diff(Path("node07"), DRIFTED).reference


def test_diff_takes_the_options_of_the_command() -> None:
    """By the same words, with the same meaning."""
    assert "PASS" == envaudit.diff(HEALTHY, DRIFTED, only=["torch/*"]).verdict.name
    warned = training_node("node01", driver="550.54.14"), training_node("node02")
    assert 1 == envaudit.diff(*warned, fail_on="info").exit_code


def test_several_words_of_one_option_all_count() -> None:
    """Of an option that a command line repeats, and of one that lists them there."""
    asked = api._options(
        "gate", only=["kernels", "memory"], sizes=[3, 5], ops=["gemm/*", "sum/*"], require=[]
    )
    assert (("kernels", "memory"), (3, 5)) == (asked.only, asked.sizes)
    assert [("gemm/*",), ("sum/*",)] == asked.ops
    assert [] == asked.require


def test_missing_node_makes_the_result_incomplete() -> None:
    """No evidence is no good evidence, in Python too."""
    gone = Snapshot((training_node("node01"),), {"node02": Missing("unreachable", "no route to host (ssh)")})
    result = envaudit.diff(gone)
    assert ("INCOMPLETE", 3) == (result.verdict.name, result.exit_code)


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither of what was found nor of what went wrong."""
    envaudit.diff(HEALTHY, DRIFTED)
    with pytest.raises(InputError):
        envaudit.diff("none.json")
    with pytest.raises(UsageError):
        envaudit.diff(HEALTHY, HEALTHY, colour="red")
    assert ("", "") == capfd.readouterr()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: envaudit.diff(HEALTHY, HEALTHY, colour="red"), "--colour"),
        (lambda: envaudit.diff(HEALTHY, HEALTHY, format="json"), "'format' is for the command line"),
        (lambda: envaudit.diff(7), "not int"),
        (lambda: envaudit.diff(), "nothing to be compared with"),
        (lambda: envaudit.snapshot("node[01-"), "node set"),
        (lambda: envaudit.snapshot(tags="no tag"), "tag"),
        (lambda: envaudit.snapshot(timeout="soon"), "--timeout"),
        (lambda: envaudit.snapshot(timeout=2.5), "--timeout"),
        (lambda: envaudit.snapshot(timeout=object()), "'timeout' takes a text"),
        (lambda: envaudit.gate(help=True), "'help' is for the command line"),
        (lambda: envaudit.gate(prolog=True), "takes no 'prolog'"),
    ],
)
def test_wrong_call_raises_a_usage_error(call: object, said: str) -> None:
    """Never an exit, which would end a notebook's kernel or a training script."""
    with pytest.raises(UsageError) as caught:
        call()  # type: ignore[operator]
    assert said in str(caught.value)


def test_snapshot_of_this_machine_is_not_kept_unless_asked(own_folder: Path) -> None:
    """A call that reads leaves nothing behind; with a tag the store has it."""
    found = envaudit.snapshot(section=["host"])
    assert 1 == len(found.fingerprints)
    assert "host" in found.fingerprints[0].sections
    assert [] == list(own_folder.glob(".envaudit*"))
    kept = envaudit.snapshot(section=["host"], tags="good")
    node = kept.fingerprints[0].node
    assert "PASS" == envaudit.diff(f"{node}@good", f"{node}@latest", section=["host"]).verdict.name


def test_gate_says_what_the_command_says(own_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One machine, one verdict, the same findings."""
    result = envaudit.gate(no_check=True)
    assert ("", "") == capfd.readouterr()
    command = [sys.executable, "-m", "envaudit", "gate", "--no-check", "--format", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["verdict"]) == (result.exit_code, result.verdict.name)
    assert [each["rule"] for each in told["findings"]] == [each.rule for each in result.findings]
    assert [each["name"] for each in told["stages"]] == [stage.name for stage in result.stages]


def test_values_show_themselves_in_a_notebook() -> None:
    """IPython calls `_repr_html_` of what a cell ends with."""
    assert "node[01-02]" in HEALTHY._repr_html_()
    shown = envaudit.diff(HEALTHY, DRIFTED)._repr_html_()
    assert shown.startswith('<div class="envaudit"><p><strong>FAIL EA214 node02')


def test_interrupted_call_raises_and_leaves_no_process(own_folder: Path) -> None:
    """Ctrl-C in a notebook's cell: an error of the house, and nothing that runs on."""
    slow = own_folder / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {own_folder}/pid\nexec sleep 60\n")
    slow.chmod(0o755)
    code = (
        "import envaudit, envaudit.errors\n"
        f"try: envaudit.snapshot(python={str(slow)!r})\n"
        "except envaudit.errors.Interrupted as error: print('interrupted', error.exit_code)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    deadline_s = time.monotonic() + 30
    while not (own_folder / "pid").exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert "interrupted 130\n" == process.communicate(timeout=30)[0]
    with pytest.raises(ProcessLookupError):
        os.kill(int((own_folder / "pid").read_text()), 0)
