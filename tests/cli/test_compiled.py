"""`envaudit bundle --lock --baseline --policy`: what the one-file form expects, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from envaudit.cli import compiled
from envaudit.cli.configuration import load
from envaudit.cli.policyfile import policy_of
from envaudit.errors import InputError
from tests.cli.conftest import Folder
from tests.transport.asking import interpreters

_FOUND = interpreters("3.8", "3.13") or [sys.executable]
PYTHONS = sorted({_FOUND[0], _FOUND[-1]})
POLICY = """\
[gate]
fail-on = "warning"
require = ["python"]
profile = "strict"
must-match = ["default", "my_package"]
max-bad-fraction = 0.5
prolog = ["EA352"]
[rules.EA402]
severity = "off"
[rules.EA160]
[paths]
"env/**" = "info"
[[waivers]]
rule = "EA299"
reason = "known"
owner = "ops"
expires = 2999-01-31
nodes = "n[1-2]"
path = "host/*"
[roles.head]
hosts = "n3"
"""
LOCK = """\
absl-py==2.1.0
numpy==1.26.4
"""


@pytest.fixture(scope="module")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a one-file form that has all three parts, and what these were read from."""
    folder = Folder(tmp_path_factory.mktemp("compiled"))
    (folder.path / "policy.toml").write_text(POLICY.replace("[rules.EA160]\n", ""))
    (folder.path / "requirements.lock").write_text(LOCK)
    assert 0 == folder.ask("snapshot", "--nodes", "n[1-3]", "--tag", "good").code
    ended = folder.run(
        *("bundle", "--lock", "requirements.lock", "--baseline", "good", "--policy", "policy.toml"),
        *("-o", "envaudit.pyz"),
    )
    assert 0 == ended.code, ended.err
    assert "lock requirements.lock, baseline good, policy policy.toml" in ended.out
    return folder.path


@pytest.fixture
def one_file(folder: Folder, compiled_folder: Path) -> Path:
    """A one-file form with all three parts, in a folder of the test's own."""
    for name in ("policy.toml", "requirements.lock", "envaudit.pyz"):
        shutil.copy2(compiled_folder / name, folder.path)
    shutil.copytree(compiled_folder / ".envaudit", folder.path / ".envaudit")
    return folder.path / "envaudit.pyz"


def test_bundle_of_the_same_parts_is_the_same_bytes(folder: Folder, one_file: Path) -> None:
    """No time and no order enters, so that its digest can be published."""
    before = one_file.read_bytes()
    (folder.path / "requirements.lock").touch()
    again = folder.run(
        *("bundle", "--lock", "requirements.lock", "--baseline", "good", "--policy", "policy.toml"),
        *("-o", "again.pyz"),
    )
    assert 0 == again.code, again.err
    assert before == (folder.path / "again.pyz").read_bytes()


def test_compiled_baseline_holds_equal_sections_once(one_file: Path) -> None:
    """Three nodes that differ in a variable alone share all other sections, and have no notes."""
    held = json.loads(zipfile.ZipFile(one_file).read(f"envaudit/{compiled.BASELINE}"))
    body = json.loads(held["snapshot"])
    assert ["n1", "n2", "n3"] == sorted(body["fingerprints"])
    assert 1 == len({json.dumps(rows["python"]) for rows in body["fingerprints"].values()})
    assert all({} == detail["notes"] for detail in body["details"].values())


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.split("/")[-3])
def test_compiled_parts_are_read_under_every_python(one_file: Path, python: str) -> None:
    """The node side has all of them back."""
    code = (
        f"import sys; sys.path.insert(0, {str(one_file)!r})\n"
        "from envaudit.cli import compiled\n"
        "print(*compiled.description(), sep='\\n')\n"
        "policy = compiled.policy()\n"
        "print(policy.prolog, policy.max_bad_fraction, policy.policy.waivers[0].nodes)\n"
        "print(sorted(compiled.expected().of_node(compiled.baseline().of_node('n1')).sections))\n"
    )
    done = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert "" == done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" sha256:")[0] for line in lines[:3]] == [
        "lock requirements.lock",
        "baseline good",
        "policy policy.toml",
    ]
    assert "('EA352',) 0.5 ('n1', 'n2')" == lines[3]
    assert "packages" in lines[4]


def test_compiled_policy_is_the_policy_of_its_file(one_file: Path, folder: Folder) -> None:
    """Every field comes back as the controller has it."""
    path = str(folder.path / "policy.toml")
    settings = load(None, "/", path)
    own = policy_of(settings.policy, today="", fail_on="warning", require=("python",), named=("python",))
    data = json.loads(zipfile.ZipFile(one_file).read(f"envaudit/{compiled.POLICY}"))
    back = compiled._policy_of(data["policy"])
    where = own.waivers[0].where
    assert where.endswith("policy.toml: waivers[0]")
    assert compiled.to_json(own) == {
        **compiled.to_json(back),
        "waivers": [{**compiled.to_json(back)["waivers"][0], "where": where}],
    }


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--policy", "gone.toml"], 4),
        (["--lock", "gone.yml"], 4),
        (["--lock", "note.txt"], 4),
        (["--policy", "broken.toml"], 2),
        (["--policy", "unknown.toml"], 2),
        (["--baseline", "gone"], 2),
        (["--baseline", "n1"], 2),
        (["--baseline", "n1@gone"], 2),
        (["--baseline", "gone.json"], 4),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bundle_refuses_what_cannot_be_read_and_writes_nothing(
    folder: Folder, words: list[str], code: int
) -> None:
    """A zip that expects less than was asked for would pass what it should not."""
    (folder.path / "note.txt").write_text("buy milk\n")
    (folder.path / "broken.toml").write_text("[gate\n")
    (folder.path / "unknown.toml").write_text('[gate]\nfail-on = "never"\n[rules.EA000x]\n')
    ended = folder.run("bundle", *words, "-o", "envaudit.pyz")
    assert code == ended.code, ended.err
    assert ended.err.startswith("envaudit: ")
    assert not (folder.path / "envaudit.pyz").exists()


def test_one_file_gate_names_the_compiled_parts_and_judges_by_them(one_file: Path, folder: Folder) -> None:
    """This machine alone: it lacks what the lock asks for, and the policy is the compiled one."""
    done = subprocess.run(
        [PYTHONS[0], str(one_file), "gate", "--no-check", "--format", "json"],
        cwd=folder.path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 1 == done.returncode, done.stderr
    document = json.loads(done.stdout)
    assert "EA200" in [finding["rule"] for finding in document["findings"]]
    stages = [
        stage["text"].split(" sha256:")[0] for stage in document["stages"] if stage["name"] == "compiled"
    ]
    assert ["lock requirements.lock", "baseline good", "policy policy.toml"] == stages


@pytest.mark.parametrize("words", [["--lock", "x.yml"], ["--baseline", "good"], ["--policy", "x.toml"]])
def test_one_file_gate_names_bundle_for_what_is_to_be_compiled_in(
    one_file: Path, folder: Folder, words: list[str]
) -> None:
    """It reads no YAML, no TOML and no store."""
    done = subprocess.run(
        [PYTHONS[0], str(one_file), "gate", *words],
        cwd=folder.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 2 == done.returncode
    assert f"envaudit bundle {words[0]}" in done.stderr


def test_compiled_document_that_is_none_is_refused() -> None:
    """What a bundle of another version has is told, not guessed."""
    with pytest.raises(InputError, match="not an envaudit snapshot"):
        compiled.expected_of({"path": "a", "sha256": "b", "snapshot": "{}", "distributions": {}})


@pytest.mark.parametrize("part", [compiled.POLICY, compiled.EXPECTED, compiled.BASELINE])
@pytest.mark.parametrize("edit", ["a value", "no digest", "half", "a list"])
def test_one_file_gate_refuses_a_compiled_part_that_was_changed_by_hand(
    one_file: Path, part: str, edit: str
) -> None:
    """It would judge by something else than the file whose path and digest it states."""
    with zipfile.ZipFile(one_file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(parts[f"envaudit/{part}"])
    if edit == "a value":
        document["sha256"] = "0" * 64
    elif edit == "no digest":
        del document[compiled.SEAL]
    text = json.dumps([document] if edit == "a list" else document).encode()
    parts[f"envaudit/{part}"] = text[: len(text) // 2] if edit == "half" else text
    with zipfile.ZipFile(one_file, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    done = subprocess.run(
        [sys.executable, str(one_file), "gate", "--no-check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 4 == done.returncode
    assert done.stderr.startswith(f"envaudit: {part}: not ")


def test_bundle_into_a_pipe_leaves_its_permissions_alone(folder: Folder) -> None:
    """Nor those of /dev/null, where root only wants to know whether it works."""
    pipe = folder.path / "pipe"
    os.mkfifo(pipe, 0o600)
    reader = threading.Thread(target=pipe.read_bytes)
    reader.start()
    assert 0 == folder.run("bundle", "-o", "pipe").code
    reader.join(30)
    assert 0o600 == stat.S_IMODE(pipe.stat().st_mode)


def test_bundle_is_a_program_whatever_the_umask(folder: Folder) -> None:
    """Nodes start it as whoever they are."""
    before = os.umask(0o077)
    try:
        assert 0 == folder.run("bundle", "-o", "envaudit.pyz").code
    finally:
        os.umask(before)
    assert 0o755 == stat.S_IMODE((folder.path / "envaudit.pyz").stat().st_mode)
