"""The interpreter as its user starts it, and when root does not start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from envaudit.probe import Refused, interpreter, program
from envaudit.probe.runner import probe
from tests.conftest import PACKAGE_HOME

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has somebody else to distrust")
SOMEBODY = 4242


def described(*, cwd: str, **environ: str) -> Dict[str, Any]:
    """What this Python says of itself from a folder, with these variables alone."""
    ran = subprocess.run(
        interpreter.question(sys.executable),
        cwd=cwd,
        env=environ,
        capture_output=True,
        check=True,
        timeout=30,
    )
    return interpreter.parse(ran.stdout, environ)


def test_description_agrees_with_the_interpreter_itself(tmp_path: Path) -> None:
    """Version, prefixes and site folders are those of the running Python."""
    import site

    told = described(cwd=str(tmp_path), HOME="/home/alice")
    assert [*sys.version_info] == told["version_info"]
    assert (sys.prefix, sys.base_prefix) == (told["prefix"], told["base_prefix"])
    assert site.getsitepackages() == told["site_packages"]
    assert told["user_site"].startswith("/home/alice/.local/")
    assert sys.flags.hash_randomization == told["flags"]["hash_randomization"]


def test_description_has_pythonpath_which_the_isolated_probe_drops(tmp_path: Path) -> None:
    """What PYTHONPATH adds is what the user's work sees."""
    (tmp_path / "lib").mkdir()
    told = described(cwd="/", PYTHONPATH=f"{tmp_path}/lib")
    assert f"{tmp_path}/lib" == told["path"][0]


def test_description_ignores_modules_of_the_working_directory(tmp_path: Path) -> None:
    """Nothing that lies in the working directory is run, nor is that folder recorded."""
    for name in ("os", "site", "_imp", "encodings", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')\n")
    told = described(cwd=str(tmp_path))
    assert str(tmp_path) not in told["path"]
    assert "" not in told["path"]


def test_description_tells_the_users_own_bytecode_flag(tmp_path: Path) -> None:
    """The -B of the question is not recorded as the user's."""
    assert 0 == described(cwd=str(tmp_path))["flags"]["dont_write_bytecode"]
    told = described(cwd=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
    assert 1 == told["flags"]["dont_write_bytecode"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PYTHONUTF8": "1"}, ("utf-8", "utf-8")),
        # The C library's name of ASCII, as glibc and musl have it.
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ("ascii", "ANSI_X3.4-1968")),
    ],
)
def test_description_has_the_encodings_of_the_locale(
    environ: Dict[str, str], expected: Tuple[str, str]
) -> None:
    """What text files are read as where no encoding is named."""
    told = described(cwd="/", **environ)
    assert expected == (told["names_encoding"], told["text_encoding"])


def test_description_lacks_entries_that_python_ignores(tmp_path: Path) -> None:
    """A sitecustomize that adds a Path adds nothing: import takes texts alone."""
    added = "import pathlib, sys\nsys.path += [pathlib.Path('/no/text'), b'/bytes', None]\n"
    (tmp_path / "sitecustomize.py").write_text(added)
    told = described(cwd="/", PYTHONPATH=str(tmp_path))
    assert str(tmp_path) == told["path"][0]
    assert not {"/no/text", "/bytes"}.intersection(told["path"])


def test_description_writes_nothing(tmp_path: Path) -> None:
    """A sitecustomize that the user has is run, as for the user, but leaves no bytecode."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.path.append('/added/by/site')\n")
    told = described(cwd="/", PYTHONPATH=str(tmp_path))
    assert "/added/by/site" == told["path"][-1]
    assert ["sitecustomize.py"] == os.listdir(tmp_path)


def test_interpreter_that_complains_at_length_is_described(tmp_path: Path) -> None:
    """As LD_DEBUG=all does: what nobody reads fills the pipe, and the interpreter waits."""
    (tmp_path / "sitecustomize.py").write_text("import os; os.write(2, b'noise' * 100_000)\n")
    asked = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); from envaudit.probe.runner import probe;"
        "print(json.dumps(probe({'sections': ['python']})))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-B", "-c", asked, str(PACKAGE_HOME)],
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path)},
    )
    (row,) = json.loads(ran.stdout)["sections"]
    assert ("ok", []) == (row["status"], row["errors"])


@pytest.mark.parametrize(
    "said", [b"", b"hello\n", b"version\x1f3\n", b"\xff\x1e\x1f\x1e", b"path\x1f\x1eflags\x1fx=y"]
)
def test_description_that_is_something_else_is_refused(said: bytes) -> None:
    """A wrapper that prints a banner is no description."""
    with pytest.raises(ValueError, match="something else"):
        interpreter.parse(said, {})


def test_virtual_environment_is_described_as_itself(tmp_path: Path) -> None:
    """Of a virtual environment the prefix is its own, the base prefix that of its Python."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True, timeout=60
    )
    asked = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); from envaudit.probe.runner import probe;"
        "print(json.dumps(probe({'sections': ['python']})))"
    )
    ran = subprocess.run(
        [str(tmp_path / "env/bin/python"), "-I", "-B", "-c", asked, str(PACKAGE_HOME)],
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert f'"prefix": "{tmp_path}/env"' in ran.stdout


@pytest.fixture
def env_of_root(tmp_path: Path) -> Path:
    """An environment below a folder that only root can write."""
    folder = tmp_path / "env"
    site_packages = folder / "lib" / "python3.11" / "site-packages"
    site_packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").write_text("")
    (folder / "bin" / "python").chmod(0o755)
    (folder / "pyvenv.cfg").write_text("")
    (site_packages / "distutils-precedence.pth").write_text("")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    return folder


@needs_root
def test_root_trusts_what_only_root_can_write(env_of_root: Path) -> None:
    """An environment of root's own is started, also below the sticky /tmp."""
    interpreter.check_trust(str(env_of_root / "bin" / "python"))
    interpreter.check_trust(sys.executable)


@needs_root
@pytest.mark.parametrize(
    "place",
    [
        ".",
        "bin",
        "bin/python",
        "pyvenv.cfg",
        "lib/python3.11",
        "lib/python3.11/site-packages",
        "lib/python3.11/site-packages/distutils-precedence.pth",
    ],
)
def test_root_refuses_what_another_user_owns(env_of_root: Path, place: str) -> None:
    """Whoever owns a file that runs at start-up, or a folder above it, would run code as root."""
    os.chown(env_of_root / place, SOMEBODY, 0)
    with pytest.raises(Refused, match=rf"belongs to user {SOMEBODY}, .* Run the audit as that user"):
        interpreter.check_trust(str(env_of_root / "bin" / "python"))


@needs_root
@pytest.mark.parametrize("place", [".", "bin/python", "lib/python3.11/site-packages"])
def test_root_refuses_what_everybody_can_write(env_of_root: Path, place: str) -> None:
    """A world-writable site folder is everybody's way to run code as root."""
    (env_of_root / place).chmod(0o777)
    with pytest.raises(Refused, match="can be written by everybody"):
        interpreter.check_trust(str(env_of_root / "bin" / "python"))


@needs_root
def test_root_trusts_a_group_writable_site_folder(env_of_root: Path) -> None:
    """Debian ships /usr/local writable by its empty group staff."""
    (env_of_root / "lib/python3.11/site-packages").chmod(0o2775)
    interpreter.check_trust(str(env_of_root / "bin" / "python"))


@needs_root
def test_root_refuses_a_link_to_an_interpreter_of_another_user(env_of_root: Path) -> None:
    """A link of root's own leads to somebody else's program."""
    theirs = env_of_root.parent / "theirs"
    theirs.write_text("")
    os.chown(theirs, SOMEBODY, 0)
    (env_of_root / "bin" / "python").unlink()
    (env_of_root / "bin" / "python").symlink_to(theirs)
    with pytest.raises(Refused, match="theirs belongs to user"):
        interpreter.check_trust(str(env_of_root / "bin" / "python"))


@needs_root
def test_other_user_is_free_to_start_what_is_theirs(env_of_root: Path) -> None:
    """An environment in a user's home is fine for that user: the check is root's alone."""
    os.chown(env_of_root, SOMEBODY, 0)
    pid = os.fork()
    if not pid:
        os.setuid(SOMEBODY)
        try:
            interpreter.check_trust(str(env_of_root / "bin" / "python"))
        except Refused:
            os._exit(1)
        os._exit(0)
    assert 0 == os.waitpid(pid, 0)[1]


@needs_root
def test_probe_as_root_refuses_before_it_starts_anything(
    env_of_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal is one of the whole probe."""
    ran = env_of_root / "ran"
    (env_of_root / "bin" / "python").write_text(f"#!/bin/sh\ntouch {ran}\n")
    os.chown(env_of_root / "bin", SOMEBODY, 0)
    monkeypatch.setattr("sys.executable", str(env_of_root / "bin" / "python"))
    with pytest.raises(Refused):
        probe({"sections": ["limits"]})
    assert not ran.exists()


def test_interpreter_that_cannot_start_is_told_with_its_reason() -> None:
    """Python says why before it says in which thread that was."""
    asked = (
        "import os, sys, json; os.environ['PYTHONHOME'] = '/nowhere';"
        f"sys.path.insert(0, {str(PACKAGE_HOME)!r});"
        "from envaudit.probe.runner import probe; print(json.dumps(probe({'sections': ['python']})))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-B", "-c", asked], check=True, timeout=60, capture_output=True, text=True
    )
    (row,) = json.loads(ran.stdout)["sections"]
    assert "error" == row["status"]
    assert "encoding" in row["errors"][0], row


def test_interpreter_that_is_found_without_a_path_describes_itself() -> None:
    """Python knows its own file by PATH; the audit needs no such variable (`env -i`)."""
    asked = (
        f"import sys, json; sys.executable = ''; sys.path.insert(0, {str(PACKAGE_HOME)!r});"
        "from envaudit.probe.runner import probe; print(json.dumps(probe({'sections': ['python']})))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-B", "-c", asked], check=True, timeout=60, capture_output=True, text=True
    )
    (row,) = json.loads(ran.stdout)["sections"]
    assert ("ok", []) == (row["status"], row["errors"])


@needs_root
def test_program_starts_elsewhere_than_in_a_folder_where_its_user_may_not_stand(tmp_path: Path) -> None:
    """`sudo -u` from root's home leaves a user in a folder that is not theirs."""
    tmp_path.chmod(0o700)
    assert str(tmp_path) == program.workplace(str(tmp_path))
    pid = os.fork()
    if not pid:
        os.setuid(SOMEBODY)
        os._exit(program.workplace(str(tmp_path)) != "/")
    assert 0 == os.waitpid(pid, 0)[1]
