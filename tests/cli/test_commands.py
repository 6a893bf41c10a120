"""The commands over real interpreters: outcomes, exit codes, and words that help."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Folder
from tests.cli.stored import store_snapshot

PROJECT = Path(__file__).resolve().parents[2]


def test_snapshot_of_this_machine_is_stored_and_shown(folder: Folder) -> None:
    """Without any option: this machine, into ./.envaudit."""
    ended = folder.run("snapshot")
    assert (0, True) == (ended.code, ended.verdict.startswith("PASS 1 node"))
    assert 1 == len(list((folder.path / ".envaudit" / "snapshots").iterdir()))


def test_snapshot_of_nodes_tags_them_all(folder: Folder) -> None:
    """Every node gets the tag, and the tag is a reference at once."""
    assert 0 == folder.ask("snapshot", "--all", "--tag", "good").code
    ended = folder.run("diff", "n[1-3]@good")
    assert (0, True) == (ended.code, ended.verdict.startswith("PASS 3 nodes alike"))


def test_diff_of_equal_nodes_passes(folder: Folder) -> None:
    """Healthy nodes raise no alarm."""
    ended = folder.ask("diff", "n[1-3]", "--format", "json")
    assert (0, "PASS", [], []) == (
        ended.code,
        ended.json["verdict"],
        ended.findings,
        ended.json["drifts"],
    )


def test_diff_with_one_outlier_names_it_and_nothing_else(folder: Folder) -> None:
    """One variable on one node: one drift, the majority as basis."""
    folder.set_node("n2", NCCL_ALGO="Tree")
    ended = folder.ask("diff", "n[1-3]", "--format", "json")
    assert 1 == ended.code
    (drift,) = ended.json["drifts"]
    assert ("env/nccl/NCCL_ALGO/value", "majority 2/3") == (drift["path"], drift["basis"])
    (finding,) = ended.findings
    assert ("EA451", ["n2"]) == (finding["rule"], finding["nodes"])


def test_diff_of_two_values_is_a_tie_without_reference(folder: Folder) -> None:
    """Two nodes that differ: neither is called the outlier."""
    folder.set_node("n2", NCCL_ALGO="Tree")
    (drift,) = folder.ask("diff", "n1", "n2", "--format", "json").json["drifts"]
    assert ("none", []) == (drift["basis"], drift["reference"])


def test_diff_against_a_tag_tells_what_changed_since(folder: Folder) -> None:
    """Equal node sets on both sides are compared node by node."""
    folder.ask("snapshot", "--all", "--tag", "good")
    folder.set_node("n3", NCCL_ALGO="Tree")
    ended = folder.ask("diff", "n[1-3]@good", "n[1-3]", "--format", "json")
    assert 1 == ended.code
    (drift,) = ended.json["drifts"]
    assert ("baseline", ["n3@good"]) == (drift["basis"], drift["reference"])


def test_diff_with_ignored_path_passes(folder: Folder) -> None:
    """`--ignore` takes the drift away, `--only` keeps nothing else."""
    folder.set_node("n2", NCCL_ALGO="Tree")
    assert 0 == folder.ask("diff", "n[1-3]", "--ignore", "env/nccl/NCCL_*").code
    assert 0 == folder.ask("diff", "n[1-3]", "--only", "packages").code
    assert 0 == folder.ask("diff", "n[1-3]", "--section", "python").code
    assert 1 == folder.ask("diff", "n[1-3]", "--section", "env").code


def test_diff_with_a_node_that_fails_is_incomplete_and_compares_the_rest(folder: Folder) -> None:
    """The dead node is named with its cause; the others are still compared."""
    folder.set_node("n2", script="echo 'no such pod' >&2; exit 7")
    ended = folder.ask("diff", "n[1-3]")
    assert 3 == ended.code
    assert "2 of 3 nodes answered" in ended.out
    assert "no such pod" in ended.out
    assert ended.verdict.startswith("INCOMPLETE EA901 n2")


def test_diff_with_drift_and_a_dead_node_prints_both_and_fails(folder: Folder) -> None:
    """FAIL wins the exit code, INCOMPLETE is not forgotten."""
    folder.set_node("n2", script="exit 7")
    folder.set_node("n3", NCCL_ALGO="Tree")
    ended = folder.ask("diff", "n[1-3]")
    assert 1 == ended.code
    assert "INCOMPLETE EA901 n2" in ended.out
    assert ended.verdict.startswith("FAIL EA451")


def test_diff_of_files_reads_what_snapshot_wrote(folder: Folder) -> None:
    """`snapshot -o` and `diff a.json b.json` meet."""
    folder.ask("snapshot", "--nodes", "n1", "-o", "a.json")
    folder.ask("snapshot", "--nodes", "n2", "-o", "b.json")
    assert 0 == folder.run("diff", "a.json", "b.json").code
    assert not (folder.path / ".envaudit").exists()


def test_reference_behind_an_option_is_one_like_those_before_it(folder: Folder) -> None:
    """Shells and their users put an option where they are."""
    folder.ask("snapshot", "--nodes", "n1", "-o", "a.json")
    folder.ask("snapshot", "--nodes", "n2", "-o", "b.json")
    ended = folder.run("diff", "a.json", "--section", "host", "b.json")
    assert (0, "") == (ended.code, ended.err)


def test_option_of_the_command_that_runs_stays_its_own(folder: Folder) -> None:
    """Behind its first word nothing is taken for an option of ours; without `--` it is refused."""
    ended = folder.run("run", "--no-check", "echo", "--tag", "x", "y")
    assert (2, "") == (ended.code, ended.out)
    assert "unrecognized arguments: y. What is the command's own stands behind '--'." in ended.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"\x00\xff\xfe garbage", "a.json"),
        (b"[1, 2", "a.json"),
        (b'{"head":{"format":"envaudit.snapshot","schema":99},\n"x":1}', "schema 99 is unknown"),
        (b"[" * 100_000, "a.json"),
    ],
)
def test_diff_of_a_file_that_is_none_is_an_input_error(folder: Folder, content: bytes, words: str) -> None:
    """Exit 4, the file and the fault named."""
    (folder.path / "a.json").write_bytes(content)
    ended = folder.run("diff", "a.json", "a.json")
    assert 4 == ended.code
    assert words in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diff", "n1@goood", "n1"], "good"),
        (["diff", "n9@good", "n1"], "n9"),
        (["diff", "@no-such-group"], "no-such-group"),
        (["diff", "n1"], "one node alone"),
        (["diff", "n1", "n1"], "named twice"),
        (["diff", "n1!n1"], "empty"),
        (["diff", "n1", "n2", "--only", "pakages/numpy"], "packages"),
        (["snapshot", "--nodes", "../../etc/x"], "not a node name"),
        (["snapshot", "--tag", "../up"], "tag"),
        (["snapshot", "--report", "yaml=x"], "FORMAT=PATH"),
        (["snapshto"], "snapshot"),
        (["snapshot", "--nods=n1"], "Did you mean '--nodes'?"),
        (["store", "verify", "--stor", "x"], "unrecognized arguments: --stor"),
        (["diff", "--timeout", "soon", "n1", "n2"], "whole number"),
        ([], ""),
    ],
)
def test_command_that_is_mistyped_is_a_usage_error(folder: Folder, words: list[str], said: str) -> None:
    """Exit 2, never an empty pass; the nearest name is suggested."""
    folder.ask("snapshot", "--nodes", "n1", "--tag", "good")
    ended = folder.run(*words) if not words or words[0] not in ("diff", "snapshot") else folder.ask(*words)
    assert 2 == ended.code
    assert said in ended.err


def test_show_prints_facts_of_one_section(folder: Folder) -> None:
    """`show NODE@TAG --section NAME`; an unknown section is a usage error."""
    folder.ask("snapshot", "--nodes", "n1", "--tag", "good")
    ended = folder.run("show", "n1@good", "--section", "python")
    assert (0, True, False) == (ended.code, "python/version" in ended.out, "packages/" in ended.out)
    assert 2 == folder.run("show", "n1@good", "--section", "pyton").code


def test_log_tells_what_changed_and_when(folder: Folder) -> None:
    """Oldest first, tags beside, the changed path named."""
    folder.ask("snapshot", "--nodes", "n1", "--tag", "good")
    folder.set_node("n1", NCCL_ALGO="Tree")
    folder.ask("snapshot", "--nodes", "n1")
    ended = folder.run("log", "n1")
    assert 0 == ended.code
    assert "good" in ended.out
    assert "env/nccl/NCCL_ALGO" in ended.out


def test_store_verify_finds_a_flipped_byte(folder: Folder) -> None:
    """A damaged file is named and ends with 4; a whole store ends with 0."""
    folder.ask("snapshot", "--nodes", "n1")
    assert 0 == folder.run("store", "verify").code
    (file,) = (folder.path / ".envaudit" / "snapshots").iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(bytes(data))
    ended = folder.run("store", "verify")
    assert (4, True) == (ended.code, file.name in ended.out)


def test_store_verify_tells_of_a_snapshot_that_is_still_to_come(folder: Folder) -> None:
    """It is whole, and whoever asks for the latest should know; the other clock may be the wrong one."""
    name = store_snapshot(folder.path, [], captured_at="2999-01-01T00:00:00Z")
    ended = folder.run("store", "verify")
    told, last = ended.out.splitlines()
    assert (0, True) == (ended.code, last.endswith(": 1 snapshot read, 0 problems"))
    assert told.startswith(f"{name}: it is ")
    assert told.endswith(" here; this is the latest only of nodes without another")


def test_store_prune_keeps_the_newest_and_the_tagged(folder: Folder) -> None:
    """What a tag needs stays."""
    for algo in ("Ring", "Tree", "NVLS"):
        folder.set_node("n1", NCCL_ALGO=algo)
        folder.ask("snapshot", "--nodes", "n1", *(["--tag", "good"] if algo == "Ring" else []))
    ended = folder.run("store", "prune", "--keep", "1")
    assert (0, True) == (ended.code, "1 removed, 2 kept" in ended.out)
    assert 0 == folder.run("show", "n1@good").code


def test_report_files_are_written_beside_the_output(folder: Folder) -> None:
    """Any format to any file, whole or not at all."""
    ended = folder.ask("diff", "n1", "n2", "--report", "json=r.json", "--report", "plain=r.txt")
    assert 0 == ended.code
    assert "PASS" == json.loads((folder.path / "r.json").read_text())["verdict"]
    assert ended.out == (folder.path / "r.txt").read_text()


def test_report_into_no_folder_is_told_before_any_node_is_asked(folder: Folder) -> None:
    """Exit 5, and no snapshot was made."""
    ended = folder.ask("snapshot", "--nodes", "n1", "--report", "json=nowhere/r.json")
    assert 5 == ended.code
    assert not (folder.path / ".envaudit").exists()


def test_trust_honours_the_folders_file_until_it_changes(folder: Folder) -> None:
    """Found and untrusted: exit 2 and the way out; trusted: used."""
    found = folder.path / "envaudit.toml"
    found.write_text(folder.configuration.read_text())
    refused = folder.run("diff", "n1", "n2")
    assert (2, True) == (refused.code, "envaudit trust" in refused.err)
    assert 0 == folder.run("trust").code
    assert 0 == folder.run("diff", "n1", "n2").code
    found.write_text(found.read_text() + "fanout = 2\n")
    assert 2 == folder.run("diff", "n1", "n2").code


def test_bundle_runs_here_and_says_what_it_does_not_carry(folder: Folder) -> None:
    """One file, this machine alone."""
    assert 0 == folder.run("bundle", "-o", "envaudit.pyz").code
    run = subprocess.run(
        [sys.executable, "-I", "envaudit.pyz", "snapshot"], cwd=folder.path, capture_output=True, text=True
    )
    assert (0, "") == (run.returncode, run.stderr)
    lacking = subprocess.run(
        [sys.executable, "-I", "envaudit.pyz", "trust"], cwd=folder.path, capture_output=True, text=True
    )
    assert (2, True) == (lacking.returncode, "pip install envaudit" in lacking.stderr)
    overview = subprocess.run(
        [sys.executable, "-I", "envaudit.pyz", "--help"], cwd=folder.path, capture_output=True, text=True
    ).stdout
    assert ["snapshot", "diff", "show", "check", "gate", "rules", "explain"] == [
        line.split()[0] for line in overview.splitlines() if line[:2] == "  "
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_with_130_and_leaves_nothing_running(folder: Folder, number: signal.Signals) -> None:
    """Ctrl-C while a node hangs; the node's processes end too."""
    folder.set_node("n1", script=f"echo $$ > {folder.path}/pid; exec sleep 300")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "envaudit",
            "snapshot",
            "--nodes",
            "n1",
            "--config",
            str(folder.configuration),
        ],
        cwd=folder.path,
        env=folder.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid_file = folder.path / "pid"
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert (130, True) == (process.returncode, "interrupted" in err)
    assert not os.path.exists(f"/proc/{pid_file.read_text().strip()}")


def test_reader_that_leaves_early_is_no_error_of_ours(folder: Folder) -> None:
    """`| head -1` gets no traceback."""
    run = subprocess.run(
        f"{sys.executable} -m envaudit show --config {folder.configuration} n1 | head -1",
        shell=True,
        cwd=folder.path,
        env=folder.environment,
        capture_output=True,
        text=True,
    )
    assert "" == run.stderr


def test_locale_that_has_no_letters_still_prints(folder: Folder) -> None:
    """An ASCII terminal gets escapes rather than a traceback."""
    folder.set_node("n2", NCCL_ALGO="Bäume→")
    ended = folder.ask("diff", "n1", "n2", LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (1, True) == (ended.code, "B\\xe4ume" in ended.out)


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_version_and_help_wait_for_no_reports_and_no_store(word: str) -> None:
    """They only print: what reports and stores need takes half as long as all the rest."""
    code = "import sys; from envaudit.cli.main import main; main(sys.argv[1:]); print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code, word], capture_output=True, text=True, check=True)
    loaded = {"envaudit.cli.output", "envaudit.store", "dataclasses"} & set(ended.stdout.split())
    assert set() == loaded


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", "Bäume\\udcff.json"), ("ascii", "B\\xe4ume\\udcff.json")]
)
def test_path_of_an_error_is_written_as_its_reader_writes_it(
    folder: Folder, encoding: str, expected: str
) -> None:
    """Only what the terminal lacks is escaped, and what is no letter at all."""
    ended = folder.run("diff", "Bäume\udcff.json", PYTHONUTF8="1", PYTHONIOENCODING=encoding)
    assert (4, True) == (ended.code, ended.err.startswith(f"envaudit: {expected}: cannot be read"))


def test_hostile_value_is_shown_and_not_obeyed(folder: Folder) -> None:
    """Terminal controls of a node's value are printed as text."""
    folder.set_node("n2", NCCL_ALGO="\x1b[2J\x1b]0;owned\x07[bold]")
    ended = folder.ask("diff", "n1", "n2")
    assert 1 == ended.code
    assert "\x1b" not in ended.out
    assert "[bold]" in ended.out


def test_secret_of_a_node_leaves_no_trace(folder: Folder) -> None:
    """Neither in the report nor in the store."""
    folder.set_node("n1", NCCL_AUTH_TOKEN="s3cr3t-value-9817263", HF_HOME="https://u:pa55w0rd-1@h/x")
    folder.ask("snapshot", "--nodes", "n1", "-o", "a.json")
    text = (folder.path / "a.json").read_text()
    assert (False, False) == ("s3cr3t-value-9817263" in text, "pa55w0rd-1" in text)


def test_json_of_every_command_fits_the_published_schema(folder: Folder) -> None:
    """docs/report.schema.json holds for what the commands really print."""
    import jsonschema

    schema = json.loads((PROJECT / "docs" / "report.schema.json").read_text())
    folder.set_node("n2", NCCL_ALGO="Tree")
    folder.set_node("n3", script="exit 7")
    outputs = [
        folder.ask("snapshot", "--all", "--tag", "good", "--format", "json"),
        folder.ask("diff", "n[1-3]", "--format", "json"),
        folder.run("diff", "n1@good", "n2@good", "--format", "json"),
        folder.run("show", "n1@good", "--format", "json"),
        folder.run("log", "n1", "--format", "json"),
    ]
    assert [3, 1, 1, 0, 0] == [ended.code for ended in outputs]
    for ended in outputs:
        jsonschema.validate(ended.json, schema)


@pytest.mark.parametrize("words", [("snapshot", "--all"), ("show", "n1"), ("diff", "n[1-3]")])
def test_section_that_does_not_exist_is_told_before_any_node_is_asked(
    folder: Folder, words: tuple[str, ...]
) -> None:
    """A typing error is the user's, not the nodes': 2, and the nearest name."""
    folder.set_node("n1", script=f"touch {folder.path}/asked; exit 7")
    ended = folder.ask(*words, "--section", "gqu")
    assert (2, "") == (ended.code, ended.out)
    assert "no section is called 'gqu'" in ended.err
    assert "Did you mean 'gpu'?" in ended.err
    assert not (folder.path / "asked").exists()


def test_snapshot_into_a_file_takes_no_tag(folder: Folder) -> None:
    """A tag points into the store: dropping it without a word would lose it."""
    ended = folder.run("snapshot", "-o", "a.json", "--tag", "good")
    assert (2, False) == (ended.code, (folder.path / "a.json").exists())
    assert "--tag and --output exclude each other" in ended.err


@pytest.mark.parametrize(
    "words", [("--report", "plain=./r"), ("-o", "r")], ids=["two reports", "report over the snapshot"]
)
def test_two_outputs_into_one_file_are_a_usage_error(folder: Folder, words: tuple[str, str]) -> None:
    """The one written last would have replaced the other."""
    ended = folder.run("snapshot", "--report", "json=r", *words)
    assert (2, False) == (ended.code, (folder.path / "r").exists())
    assert "would be written twice" in ended.err


@pytest.mark.parametrize("words", [("-o", "-"), ("--report", "json=-")])
def test_dash_in_the_place_of_a_file_is_a_usage_error(folder: Folder, words: tuple[str, str]) -> None:
    """Who means standard output would find a file of that name instead."""
    ended = folder.run("snapshot", *words)
    assert (2, "") == (ended.code, ended.out)
    assert ended.err.startswith("envaudit: '-' is no file, and standard output is taken by --format.")


def test_diff_that_ignores_everything_is_a_usage_error(folder: Folder) -> None:
    """An empty comparison is no pass."""
    folder.run("snapshot", "-o", "a.json")
    for words in (
        ("--ignore", "**"),
        ("--section", "python", "--ignore", "python/**"),
        ("--only", "host/kernel", "--ignore", "host/*"),
    ):
        ended = folder.run("diff", "a.json", "a.json", *words)
        assert (2, "") == (ended.code, ended.out)
        assert "nothing is left to compare" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("gate", "--no-check", "--lock", ""),
        ("bundle", "--lock="),
        ("verify", "uv.lock", "--prefix", ""),
        ("waive", "EA331", "--until", "2099-01-31", "--reason", "why", "--nodes", ""),
        ("store", "verify", "--store", ""),
        ("lint", "--config", "", "environment.yml"),
        ("snapshot", "--section", ""),
    ],
)
def test_option_without_its_value_is_not_one_left_out(folder: Folder, words: tuple[str, ...]) -> None:
    """Where a variable of a CI job is unset, nothing is held to less than what was asked for."""
    ended = folder.run(*words)
    assert (2, "", False) == (ended.code, ended.out, (folder.path / "envaudit.toml").exists())
    assert "is empty; is a variable unset?" in ended.err


def test_log_of_one_snapshot_counts_in_the_singular(folder: Folder) -> None:
    """The first snapshot of a node is no change."""
    folder.ask("snapshot", "--nodes", "n1")
    assert folder.run("log", "n1").verdict.startswith("PASS 1 snapshot, 0 with changes")


@pytest.mark.parametrize("words", [("verify",), ("prune", "--keep", "3")])
def test_store_that_is_not_there_is_a_usage_error(folder: Folder, words: tuple[str, ...]) -> None:
    """A mistyped folder has no problems either, and must not pass for a sound store."""
    ended = folder.run("store", *words, "--store", "stroe")
    assert (2, "") == (ended.code, ended.out)
    assert "there is no store" in ended.err


def test_process_that_may_open_no_more_files_says_so(folder: Folder) -> None:
    """It is not the fault of envaudit, and the limit is to be raised."""
    ended = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -n 8; exec "$0" -m envaudit snapshot', sys.executable],
        cwd=folder.path,
        env=folder.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (5, True) == (ended.returncode, "Raise the limit: ulimit -n." in ended.stderr), ended.stderr


@pytest.mark.parametrize("command", ["trust", "store verify"])
def test_path_that_the_locale_cannot_print_is_escaped(folder: Folder, command: str) -> None:
    """A home of Zoë's below LANG=C is no internal error."""
    place = folder.path / "zoë"
    (place / ".envaudit").mkdir(parents=True)
    (place / "envaudit.toml").write_text('[nodes]\npython = "/home/zoë/bin/python"\n', "utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "envaudit", *command.split()],
        cwd=place,
        env={**folder.environment, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (0, "", True) == (ended.returncode, ended.stderr, "zo\\xeb" in ended.stdout)


def test_working_directory_that_is_gone_is_told(folder: Folder, tmp_path: Path) -> None:
    """A job's scratch folder that was cleared below its shell is no fault of this program."""
    gone = tmp_path / "gone"
    gone.mkdir()
    run = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", sys.executable, "-m", "envaudit", "rules"],
        cwd=gone,
        env=folder.environment,
        capture_output=True,
        text=True,
    )
    assert (5, "") == (run.returncode, run.stdout), run.stderr
    assert "the working directory is gone" in run.stderr


def test_terminal_controls_in_an_argument_are_not_sent_back(folder: Folder) -> None:
    """A name may come from a file that somebody else wrote."""
    ended = folder.run("show", "\x1b[2Jnode")
    assert 2 == ended.code, ended.err
    assert "\x1b" not in ended.err


def test_name_of_a_file_makes_no_line_of_its_own(folder: Folder) -> None:
    """It would be a command to the runner of a CI."""
    ended = folder.run("show", "a\n::stop-commands::x.json")
    assert 4 == ended.code
    assert ended.err.startswith("envaudit: a\\n::stop-commands::x.json: cannot be read")
