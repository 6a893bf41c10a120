"""Which nodes the options choose, and the interpreter of each."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from envaudit.cli import selection
from envaudit.cli.configuration import Configuration, Nodes
from envaudit.errors import InputError, NeededError, UsageError
from envaudit.model.codec import NODE_NAME


def options(*words: str) -> argparse.Namespace:
    """Parsed node options."""
    parser = argparse.ArgumentParser()
    selection.add_node_options(parser)
    return parser.parse_args(words)


def test_selection_without_options_means_this_machine() -> None:
    """No node is named, and this machine has a name that is safe."""
    assert () == selection.selected_nodes(options(), Configuration())
    assert NODE_NAME.match(selection.this_node())


def test_selection_by_two_ways_is_a_usage_error() -> None:
    """`--nodes` beside `--all` has no obvious meaning."""
    with pytest.raises(UsageError, match="--nodes and --all"):
        selection.selected_nodes(options("--nodes", "n1", "--all"), Configuration())


@pytest.mark.parametrize(
    "text",
    [
        "node01\nnode02\n",
        "node01:8\nnode02:8\n",
        "node01 slots=8 max_slots=9\nnode02 slots=8\n",
        "# head\n\nnode01  # first\nnode02\n",
        "node01\nnode01\nnode02\nnode02\n",
    ],
)
def test_hostfile_of_mpi_or_deepspeed_is_read(tmp_path: Path, text: str) -> None:
    """Slots and comments are dropped; a host that is named per slot counts once."""
    (tmp_path / "hosts").write_text(text)
    assert ("node01", "node02") == selection.read_hostfile(str(tmp_path / "hosts"))


def test_hostfile_of_a_large_job_is_read_to_its_end(tmp_path: Path) -> None:
    """A node that is left out in silence would pass unseen: PBS writes a line for each slot."""
    nodes = tuple(f"node{number:04}.cluster" for number in range(600))
    (tmp_path / "hosts").write_text("".join(f"{node}\n" * 128 for node in nodes))
    assert nodes == selection.read_hostfile(str(tmp_path / "hosts"))


def test_hostfile_without_end_is_an_input_error() -> None:
    """Refused, not cut: the last name of a part may be another node's."""
    with pytest.raises(InputError, match="larger than"):
        selection.read_hostfile("/dev/zero")


def test_hostfile_that_is_empty_is_a_usage_error(tmp_path: Path) -> None:
    """Nobody is no pass."""
    (tmp_path / "hosts").write_text("# none\n")
    with pytest.raises(UsageError, match="names no host"):
        selection.read_hostfile(str(tmp_path / "hosts"))


def test_hostfile_with_an_option_for_ssh_is_a_usage_error(tmp_path: Path) -> None:
    """A host file is input: no line of it becomes an option."""
    (tmp_path / "hosts").write_text("-oProxyCommand=reboot\n")
    with pytest.raises(UsageError, match="not a node name"):
        selection.read_hostfile(str(tmp_path / "hosts"))


def test_hostfile_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    """The file is named."""
    with pytest.raises(InputError, match="nowhere"):
        selection.read_hostfile(str(tmp_path / "nowhere"))


def test_all_takes_configuration_then_slurm_then_pbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In that order, and without any of them it is an error."""
    (tmp_path / "pbs").write_text("p1\n")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "pbs"))
    monkeypatch.setenv("SLURM_JOB_NODELIST", "s[1-2]")
    chosen = options("--all")
    assert ("c1",) == selection.selected_nodes(chosen, Configuration(nodes=Nodes(hosts="c1")))
    assert ("s1", "s2") == selection.selected_nodes(chosen, Configuration())
    monkeypatch.delenv("SLURM_JOB_NODELIST")
    assert ("p1",) == selection.selected_nodes(chosen, Configuration())
    monkeypatch.delenv("PBS_NODEFILE")
    with pytest.raises(UsageError, match="finds no nodes"):
        selection.selected_nodes(chosen, Configuration())


def test_interpreter_is_the_option_then_the_nodes_own_then_the_common_one() -> None:
    """The nearer word wins."""
    nodes = Nodes(python="/common", interpreters={"n[1-2]": "/own", "n2": "/nearer"})
    settings = Configuration(nodes=nodes)
    plain = selection.choose_targets(options(), settings, ["n1", "n2", "n3"], "ssh")
    assert ["/own", "/nearer", "/common"] == [target.python for target in plain]
    named = selection.choose_targets(options("--python", "/opt"), settings, ["n1", "n3"], "ssh")
    assert ["/opt", "/opt"] == [target.python for target in named]


def test_interpreter_that_this_machine_does_not_have_is_told() -> None:
    """Before anything is started."""
    with pytest.raises(NeededError, match="no interpreter '/nowhere/python'"):
        selection.choose_targets(options("--python", "/nowhere/python"), Configuration(), ["n1"], "local")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\ufeffnode01\r\nnode02:4\r\n", ("node01", "node02")),
        ("fe80::1\n", ("fe80::1",)),
        ("2001:db8::10 slots=8\n", ("2001:db8::10",)),
        ("[2001:db8::10]:8\n", ("2001:db8::10",)),
        ("Node01.Example.ORG:8\n", ("Node01.Example.ORG",)),
    ],
)
def test_hostfile_of_another_editor_or_address_family_is_read(
    tmp_path: Path, text: str, expected: tuple[str, ...]
) -> None:
    """A byte order mark is no part of a name, and the end of an IPv6 address is no slot count."""
    (tmp_path / "hosts").write_text(text, encoding="utf-8", newline="")
    assert expected == selection.read_hostfile(str(tmp_path / "hosts"))


def test_nodes_given_twice_means_both() -> None:
    """The last one alone would leave nodes out without a word."""
    chosen = options("--nodes", "n[1-2]", "--nodes", "n4")
    assert ("n1", "n2", "n4") == selection.selected_nodes(chosen, Configuration())


def test_exec_command_without_node_asks_no_interpreter_twice() -> None:
    """Two names for one machine and one interpreter are always alike: a pass that says nothing."""
    shared = Configuration(nodes=Nodes(command="env {python}", python="/opt/a/bin/python"))
    with pytest.raises(UsageError, match="n1 and n2 would be the same"):
        selection.choose_targets(options(), shared, ("n1", "n2"), "exec")
    own = Configuration(nodes=Nodes(command="{python}", interpreters={"n1": "/a/python", "n2": "/b/python"}))
    targets = selection.choose_targets(options(), own, ("n1", "n2"), "exec")
    assert ["/a/python", "/b/python"] == [target.python for target in targets]


def test_local_transport_under_another_name_is_a_usage_error() -> None:
    """This machine's facts must not be kept as those of another node."""
    local = options("--transport", "local")
    with pytest.raises(UsageError, match="this machine only"):
        selection.choose_transport(local, Configuration(), ("elsewhere01",))
    own = selection.this_node()
    assert "local" == selection.choose_transport(local, Configuration(), (own,)).launch
