"""`envaudit.toml`: found upward, all faults at once, executing keys only when trusted."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from envaudit.cli import configuration, trusted
from envaudit.cli.configuration import Gate, Lock, Nodes
from envaudit.errors import InputError, UsageError
from envaudit.model.codec import decode_snapshot
from tests.cli.conftest import Folder


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration and state lie in a temporary folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a deeper one in it."""
    (tmp_path / "project" / "deep").mkdir(parents=True)
    return tmp_path / "project"


def test_configuration_nowhere_gives_the_defaults(project: Path) -> None:
    """No file is needed."""
    assert (Nodes(), Gate(), ()) == (
        (loaded := configuration.load(None, str(project))).nodes,
        loaded.gate,
        loaded.files,
    )


def test_configuration_is_found_upward_and_read(project: Path) -> None:
    """Harmless keys are honoured without more ado."""
    (project / "envaudit.toml").write_text(
        '[nodes]\nhosts = "node[1-2]"\ntimeout = 9\n[gate]\nfail-on = "warning"\n'
    )
    loaded = configuration.load(None, str(project / "deep"))
    assert Nodes(hosts="node[1-2]", timeout_s=9) == loaded.nodes
    assert Gate(fail_on="warning") == loaded.gate


@pytest.mark.parametrize("value", ["'/data'", "['data']", "['/a', 7]", "['/a\\u0000']"])
def test_folders_that_are_no_absolute_paths_are_refused(project: Path, value: str) -> None:
    """A node has no folder that they could be relative to."""
    (project / "envaudit.toml").write_text(f"[nodes]\nfolders = {value}\n".replace("'", '"'))
    with pytest.raises(UsageError, match=r"nodes\.folders: expected a list of absolute paths"):
        configuration.load(None, str(project))


def test_folders_of_the_configuration_become_facts(project: Path) -> None:
    """What is on another file system than the rest is told by its path, and in a launch, too."""
    (project / "envaudit.toml").write_text('[nodes]\nfolders = ["/proc"]\n')
    folder = Folder(project)
    assert 0 == folder.run("snapshot", "--section", "storage", "-o", "s.json").code
    (node,) = decode_snapshot((project / "s.json").read_text(), "s.json").fingerprints
    assert "proc" == node.sections["storage"].facts["/proc"]["fstype"]
    launch = dict.fromkeys(("RANK", "LOCAL_RANK"), "0") | dict.fromkeys(
        ("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1"
    )
    there = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    gate = folder.run("gate", "--no-check", "--baseline", "s.json", "--format", "json", **launch, **there)
    assert "EA905" in gate.rules
    assert not any("/~1proc" in finding["message"] for finding in gate.findings)


def test_configuration_in_pyproject_is_found(project: Path) -> None:
    """`[tool.envaudit]` of a pyproject.toml counts; a pyproject without it does not."""
    (project / "deep" / "pyproject.toml").write_text("[tool.other]\n")
    (project / "pyproject.toml").write_text('[tool.envaudit.nodes]\nhosts = "n1"\n')
    assert "n1" == configuration.load(None, str(project / "deep")).nodes.hosts


@pytest.mark.parametrize(
    "text",
    [
        *("[nodes]\ntimeout = " + "9" * 5000, "[nodes]\ntimeout = 0x" + "f" * 5000),
        *("a" + ".a" * 100_000 + " = 1", "[[[" * 100_000, '"' + "x" * 100_000),
    ],
    ids=["endless number", "endless hexadecimal number", "endless key", "brackets", "open text"],
)
def test_configuration_that_is_hostile_is_refused_at_once(project: Path, text: str) -> None:
    """A repository under test must not keep the auditor busy."""
    (project / "envaudit.toml").write_text(text)
    with pytest.raises(UsageError, match="not TOML"):
        configuration.load(None, str(project))


def test_configuration_with_many_faults_names_them_all(project: Path) -> None:
    """Six mistakes, six lines, each with its key path."""
    (project / "envaudit.toml").write_text(
        "[nodes]\nhosts = 7\ntimeot = 3\nfanout = 0\ntransport = 'rsh'\n[gate]\nfail-on = 'never'\n[gates]\n"
    )
    with pytest.raises(UsageError) as caught:
        configuration.load(None, str(project))
    message = str(caught.value)
    for words in (
        "6 faults",
        "nodes.hosts: expected a node set, got 7",
        "nodes.timeot: unknown key, did you mean 'timeout'?",
        "nodes.fanout: expected a number, 1 to 4096, got 0",
        "nodes.transport: expected one of ssh, exec, local, got 'rsh'",
        "gate.fail-on: expected one of error, warning, info, got 'never'",
        "gates: unknown table, did you mean 'gate'?",
    ):
        assert words in message


@pytest.mark.parametrize(
    "line", ["python = '/x/python'", "command = 'x {python}'", "ssh-config = 'c'", "interpreters = {n1='/x'}"]
)
def test_executing_key_in_a_found_file_is_refused_until_trusted(project: Path, line: str) -> None:
    """A repository under test must not run code on the auditor's machine."""
    file = project / "envaudit.toml"
    file.write_text(f"[nodes]\n{line}\n")
    with pytest.raises(UsageError, match="envaudit trust"):
        configuration.load(None, str(project))
    trusted.trust(str(file), file.read_bytes())
    configuration.load(None, str(project))
    file.write_text(file.read_text() + "# changed\n")
    with pytest.raises(UsageError, match="envaudit trust"):
        configuration.load(None, str(project))


def test_executing_key_in_a_named_file_is_honoured(project: Path) -> None:
    """`--config FILE` is the user's own word; ssh-config is relative to the file."""
    file = project / "mine.toml"
    file.write_text("[nodes]\nssh-config = 'lab/ssh_config'\n")
    assert str(project / "lab" / "ssh_config") == configuration.load(str(file), "/").nodes.ssh_config


def test_own_configuration_lies_under_the_project_file(own_folders: Path, project: Path) -> None:
    """The user's own keys hold until a project's file says otherwise."""
    own = own_folders / "config" / "envaudit" / "envaudit.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[nodes]\npython = '~/env/bin/python'\ntimeout = 5\n")
    (project / "envaudit.toml").write_text("[nodes]\ntimeout = 7\n")
    loaded = configuration.load(None, str(project))
    assert ("~/env/bin/python", 7) == (loaded.nodes.python, loaded.nodes.timeout_s)


def test_trust_record_that_is_damaged_trusts_nothing(own_folders: Path, project: Path) -> None:
    """Half a state file asks the user again."""
    file = project / "envaudit.toml"
    file.write_text("[nodes]\npython = '/x'\n")
    trusted.trust(str(file), file.read_bytes())
    record = own_folders / "state" / "envaudit" / "trusted.json"
    record.write_text(record.read_text()[:20])
    assert trusted.is_trusted(str(file), file.read_bytes()) is False


def test_named_file_that_is_not_there_is_an_input_error(project: Path) -> None:
    """A mistyped `--config` is told, not passed over."""
    with pytest.raises(InputError, match=r"nowhere\.toml"):
        configuration.load(str(project / "nowhere.toml"), str(project))


def test_file_that_is_not_toml_is_a_usage_error_with_its_place(project: Path) -> None:
    """Line and column come from the parser."""
    (project / "envaudit.toml").write_text("[nodes\n")
    with pytest.raises(UsageError, match="line 1"):
        configuration.load(None, str(project))


def test_lock_table_has_paths_relative_to_its_file(project: Path) -> None:
    """Wherever below it the command is started."""
    (project / "envaudit.toml").write_text(
        '[lock]\nsources = ["envs/train.yml"]\noutput = "locks/train.yml"\nplatforms = ["linux-64"]\n'
        'virtual-packages = "vp.yml"\nchannel-priority = "strict"\n'
    )
    expected = Lock(
        sources=(str(project / "envs/train.yml"),),
        output=str(project / "locks/train.yml"),
        platforms=("linux-64",),
        virtual_packages=str(project / "vp.yml"),
        channel_priority="strict",
    )
    assert expected == configuration.load(None, str(project / "deep")).lock


@pytest.mark.parametrize("output", ["../elsewhere.yml", "/etc/elsewhere.yml", "~/elsewhere.yml", "a/../../b"])
def test_output_of_a_discovered_file_stays_inside_its_folder(project: Path, output: str) -> None:
    """A repository under test must not have the auditor's files overwritten; `--config` may."""
    file = project / "envaudit.toml"
    file.write_text(f'[lock]\noutput = "{output}"\n')
    with pytest.raises(UsageError, match="leaves the folder"):
        configuration.load(None, str(project))
    assert configuration.load(str(file), str(project)).lock.output is not None


@pytest.mark.parametrize("line", ['output = "a\\u0000b"', 'sources = ["~\\u0000b"]'])
def test_path_with_a_nul_is_a_fault_of_its_key(project: Path, line: str) -> None:
    """TOML can write one, and no system call takes it."""
    (project / "envaudit.toml").write_text(f"[lock]\n{line}\n")
    with pytest.raises(UsageError, match=rf"lock\.{line.split()[0]}: expected "):
        configuration.load(None, str(project))


def test_lock_table_with_faults_names_them_all(project: Path) -> None:
    """Each with its key path."""
    (project / "envaudit.toml").write_text(
        '[lock]\nsources = "environment.yml"\nchannel-priority = "loose"\nplattforms = []\n'
    )
    with pytest.raises(UsageError) as raised:
        configuration.load(None, str(project))
    text = str(raised.value)
    assert all(
        part in text
        for part in (
            "lock.sources: expected a list of environment files, got 'environment.yml'",
            "lock.channel-priority: expected one of strict, flexible, disabled, got 'loose'",
            "lock.plattforms: unknown key, did you mean 'platforms'?",
        )
    )


def test_configuration_that_requires_no_section_there_is_is_told(project: Path) -> None:
    """A typing error in the policy is the policy's fault, not missing evidence of every node."""
    file = project / "envaudit.toml"
    file.write_text('[gate]\nrequire = ["gpu", "torhc"]\n')
    with pytest.raises(UsageError, match=r"gate\.require: expected a list of sections.*torhc"):
        configuration.load(None, str(project))
    file.write_text('[gate]\nrequire = ["gpu", "torch"]\n')
    assert ("gpu", "torch") == configuration.load(None, str(project)).gate.require


def test_configuration_of_a_command_is_read_once(project: Path) -> None:
    """A file that changes while nodes are asked does not change what they are judged by."""
    file = project / "mine.toml"
    file.write_text("[nodes]\ntimeout = 7\n")
    options = argparse.Namespace(config=str(file))
    assert 7 == configuration.of(options).nodes.timeout_s
    file.write_text("[nodes]\ntimeout = 9\n")
    assert 7 == configuration.of(options).nodes.timeout_s


def test_key_with_a_line_end_makes_no_line_of_its_own(tmp_path: Path) -> None:
    """It would be a command to the runner of a CI."""
    (tmp_path / "envaudit.toml").write_text('"a\\n::stop-commands::x" = 1\n')
    with pytest.raises(UsageError) as caught:
        configuration.load(None, str(tmp_path))
    head, *lines = str(caught.value).splitlines()
    assert "a fault in the configuration:" == head
    assert 1 == len(lines)
    assert r"a\n::stop-commands::x: unknown table" in lines[0]
