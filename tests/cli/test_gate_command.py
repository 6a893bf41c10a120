"""`envaudit gate` from outside, over three nodes of the exec transport; nothing is run on them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from tests.cli.conftest import OF_THE_MACHINE, Ended, Folder

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"
NODES = ("--nodes", "n[1-3]")
# What may be so on the machine of the tests, and is about nothing that they test.
ASIDE = "".join(f'[rules.{rule}]\nseverity = "off"\n' for rule in (*OF_THE_MACHINE, "EA155"))


def gate(folder: Folder, *words: str) -> Ended:
    """One run over the three nodes, in JSON."""
    return folder.ask("gate", *NODES, "--no-check", "--format", "json", *words)


def stages(ended: Ended, name: str) -> list[str]:
    """The texts of the stages of one name."""
    return [stage["text"] for stage in ended.json["stages"] if stage["name"] == name]


def policy(folder: Folder, text: str) -> str:
    """A policy file; its name."""
    (folder.path / "policy.toml").write_text(ASIDE + text)
    return "policy.toml"


def test_equal_nodes_pass_and_the_last_line_says_what_was_looked_at(folder: Folder) -> None:
    """No lock, no baseline: each against the others."""
    ended = folder.ask("gate", *NODES, "--no-check")
    assert (0, True) == (ended.code, ended.verdict.startswith("PASS 3 nodes, alike, no numbers checked"))


def test_this_machine_alone_has_nothing_to_be_compared_with_and_passes(folder: Folder) -> None:
    """Without nodes it is this machine, which no other is held against."""
    ended = folder.run("gate", "--no-check", "--format", "json")
    assert 0 == ended.code, ended.err
    assert "EA904" not in ended.rules


def test_latest_is_a_baseline_without_a_tag_in_both_forms(folder: Folder) -> None:
    """Each node's newest snapshot; what has none is named, and the one-file form takes it along."""
    assert 0 == folder.ask("snapshot", "--nodes", "n[1-2]").code
    folder.set_node("n2", NCCL_ALGO="Tree")
    ended = gate(folder, "--baseline", "latest", "--policy", policy(folder, ""))
    assert (1, ["EA451", "EA906"]) == (ended.code, sorted(ended.rules))
    assert [["n2"], ["n3"]] == [each["nodes"] for each in ended.json["findings"]]
    bundled = folder.run("bundle", "--baseline", "latest", "-o", "envaudit.pyz")
    assert (0, True) == (bundled.code, "baseline latest" in bundled.out), bundled.err


def test_named_policy_is_the_only_one(folder: Folder) -> None:
    """What a file of the repository under test says of its own verdict does not count."""
    folder.set_node("n3", NCCL_ALGO="Tree")
    folder.configuration.write_text(folder.configuration.read_text() + '[rules.EA451]\nseverity = "off"\n')
    assert 0 == gate(folder).code
    named = gate(folder, "--policy", policy(folder, ""))
    assert (1, ["EA451"]) == (named.code, named.rules)
    (line,) = stages(named, "policy")
    name, digest = line.split()[0], line.split("sha256:")[1].split(":")[0]
    assert ("policy.toml", 64) == (name, len(digest))


def test_named_policy_chooses_no_nodes(folder: Folder) -> None:
    """A policy is no configuration: its `[nodes]` are nobody's."""
    text = '[nodes]\nhosts = "n9"\n[gate]\nfail-on = "warning"\n'
    ended = gate(folder, "--policy", policy(folder, text))
    assert (0, {}) == (ended.code, ended.json["missing"])


def test_policy_that_cannot_be_read_ends_before_any_node_is_asked(folder: Folder) -> None:
    """The file is named, so its absence is no default."""
    ended = gate(folder, "--policy", "none.toml")
    assert (4, True) == (ended.code, "none.toml" in ended.err)


def test_faults_of_the_gate_table_are_told_all_at_once(folder: Folder) -> None:
    """Each with its key."""
    text = '[gate]\nmax-bad-fraction = 1.5\nprolog = ["EA352", "EA999", "EA901"]\n'
    ended = gate(folder, "--policy", policy(folder, text))
    assert 2 == ended.code
    for words in ("gate.max-bad-fraction: expected a part", "gate.prolog[1]: no rule", "gate.prolog[2]:"):
        assert words in ended.err


def test_finding_on_the_whole_fleet_leaves_nobody_good_or_bad(folder: Folder) -> None:
    """All three are not what the baseline says: rather that than three broken nodes."""
    assert 0 == folder.ask("snapshot", *NODES, "--tag", "good").code
    for node in ("n1", "n2", "n3"):
        folder.set_node(node, NCCL_ALGO="Tree")
    files = ("--good-nodes", "good", "--bad-nodes", "bad", "--suggest", "slurm")
    ended = gate(folder, "--baseline", "good", *files)
    assert (1, ["EA451"]) == (ended.code, [rule for rule in ended.rules if rule == "EA451"])
    assert [b"", b""] == [(folder.path / name).read_bytes() for name in ("good", "bad")]
    (line,) = stages(ended, "good")
    assert line.endswith("EA451 on 3 of 3 nodes is fleet-wide: baseline or policy?")
    assert "suggestions" not in ended.json
    wide = "[gate]\nmax-bad-fraction = 1\n"
    ended = gate(folder, "--baseline", "good", *files, "--policy", policy(folder, wide))
    assert [b"", b"n[1-3]\n"] == [(folder.path / name).read_bytes() for name in ("good", "bad")]


def test_suggested_commands_are_told_and_fit_the_schema(folder: Folder) -> None:
    """For Kubernetes a cordon, and the reason beside it."""
    folder.set_node("n3", NCCL_ALGO="Tree")
    ended = gate(folder, "--suggest", "kubectl")
    jsonschema.validate(ended.json, json.loads(SCHEMA.read_text()))
    cordon, annotate = ended.json["suggestions"]
    assert "kubectl cordon n3" == cordon
    assert annotate.startswith("kubectl annotate --overwrite node n3 'envaudit/reason=EA451 ")


def test_section_that_is_required_and_not_read_is_a_gap(folder: Folder) -> None:
    """Asked for by name; a name that is none is a typing error, and nodes without it do not pass."""
    ended = gate(folder, "--policy", policy(folder, '[gate]\nrequire = ["git"]\n'))
    assert (3, True) == (ended.code, "git is required, and there is none" in ended.out)
    ended = gate(folder, "--require", "checks")
    assert (3, True) == (ended.code, "EA902" in ended.rules)
    ended = gate(folder, "--require", "chekcs")
    assert (2, True) == (ended.code, "chekcs" in ended.err)


def test_stored_nodes_are_judged_without_being_asked(folder: Folder) -> None:
    """The store stands for them, and is named."""
    assert 0 == folder.ask("snapshot", *NODES).code
    folder.set_node("n3", script="exit 1")
    ended = folder.ask("gate", *NODES, "--stored", "--format", "json")
    assert 0 == ended.code, ended.err
    assert ["not run (--stored)"] == stages(ended, "checks")
    assert [".envaudit"] == stages(ended, "store")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--only", "kernels"), 2),
        (("--stored", "--only", "kernels"), 2),
        (("--baseline", "nobody-has-it"), 2),
        (("--lock", "none.yml"), 4),
        (("--lock", "frozen.txt"), 4),
        (("--good-nodes", "x", "--bad-nodes", "x"), 2),
        (("--good-nodes", "x", "--report", "json=x"), 2),
        (("--lock", "frozen.txt", "--good-nodes", "frozen.txt"), 2),
        (("--bad-nodes", "config"), 5),
        (("--verdict-file", "nowhere/verdict"), 5),
        (("--allow-missing", "-1"), 2),
        (("--verdict-file", ""), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_says_so(folder: Folder, words: tuple[str, ...], code: int) -> None:
    """Contradictions, files that are not there, a report that is no lock."""
    (folder.path / "frozen.txt").write_text("numpy==2.3.4\ntorch==2.13.0\n# pip freeze\nrich>=1\n")
    ended = gate(folder, *words)
    assert code == ended.code, ended.err + ended.out


def test_what_an_earlier_gate_said_is_gone_where_this_one_does_not_come_to_an_end(folder: Folder) -> None:
    """A launcher that reads these files must not go on with the nodes of another run."""
    names = ("good", "bad", "verdict")
    files = ("--good-nodes", "good", "--bad-nodes", "bad", "--verdict-file", "verdict")
    assert 0 == gate(folder, *files).code
    assert ["n[1-3]\n", "", "PASS"] == [(folder.path / name).read_text()[:7].rstrip(" 3") for name in names]
    command = [sys.executable, "-m", "envaudit", "gate", *NODES, "--no-check", *files]
    folder.set_node("n3", script="touch started; exec sleep 5")
    process = subprocess.Popen(
        [*command, "--config", str(folder.configuration)], cwd=folder.path, env=folder.environment
    )
    try:
        deadline = time.monotonic() + 20.0
        while not (folder.path / "started").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    assert [] == [name for name in names if (folder.path / name).exists()]


def test_file_that_cannot_be_written_in_the_end_keeps_nobody_from_the_verdict(folder: Folder) -> None:
    """Every other file is written, the report printed, and the run is no pass."""
    folder.set_node("n1", script='mv place gone; exec "$@"', NCCL_ALGO="Ring")
    (folder.path / "place").mkdir()
    ended = gate(folder, "--good-nodes", "good", "--bad-nodes", "place/bad", "--report", "html=gate.html")
    assert (5, "PASS") == (ended.code, ended.json["verdict"]), ended.err
    assert "place/bad: cannot be written" in ended.err
    assert "n[1-3]\n" == (folder.path / "good").read_text()
    assert (folder.path / "gate.html").exists()
