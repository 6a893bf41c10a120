"""BOOT under every interpreter and shell: nothing unverified runs, nothing outlives the run."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from envaudit.transport import boot
from envaudit.transport.causes import of_stop
from envaudit.transport.ssh import remote_command
from tests.transport.asking import interpreters, processes_with, wait_for

SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh", "fish")

PROBE = """
import os, subprocess, sys
def answer(header):
    {body}
"""


def zip_with(body: str) -> boot.Payload:
    """A payload whose node side does what `body` says."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("envaudit/__init__.py", "")
        archive.writestr("envaudit/transport/__init__.py", "")
        archive.writestr("envaudit/transport/node.py", PROBE.format(body=body))
    return boot.payload_of(buffer.getvalue())


def header_of(payload: boot.Payload, **changes: Any) -> bytes:
    """A header line, with fields of it replaced."""
    line = boot.header_line(payload, nonce="n", node="node01", deadline_s=20, request={})
    fields: Dict[str, Any] = {**json.loads(line), **changes}
    return json.dumps(fields).encode() + b"\n"


def start(python: str, *environ: Tuple[str, str]) -> subprocess.Popen[bytes]:
    """A node's Python that has been given BOOT."""
    return subprocess.Popen(
        [python, *boot.ARGUMENTS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **dict(environ)},
    )


def talk(process: subprocess.Popen[bytes], said: bytes) -> Tuple[int, bytes]:
    """Say something, keep standard input open until the process has ended; its status and output."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(said)
        process.stdin.flush()
    except BrokenPipeError:
        pass
    output = process.stdout.read()
    process.stdout.close()
    process.stderr.close()
    rc = process.wait(timeout=20)
    try:
        process.stdin.close()
    except BrokenPipeError:
        pass
    return rc, output


@pytest.mark.parametrize("python", interpreters("3.8"), ids=lambda python: python.split("/")[-3])
def test_boot_good_payload_runs_under_every_supported_python(python: str) -> None:
    """From 3.8 on the payload runs, from a file descriptor, without its file being on any disk."""
    payload = zip_with("sys.stdout.write(__file__ + ' ' + header['node'])")
    rc, output = talk(start(python), header_of(payload) + payload.zip_bytes)
    assert (0, "node01") == (rc, output.decode().split()[1])
    assert output.startswith(b"/proc/self/fd/")


@pytest.mark.parametrize("python", interpreters("3.4", "3.7"), ids=lambda python: python.split("/")[-3])
def test_boot_old_python_says_so(python: str) -> None:
    """A Python that is too old names its version in a line that the controller knows."""
    payload = zip_with("pass")
    rc, output = talk(start(python), header_of(payload))
    word, text = boot.stop_of(output.strip())
    assert (3, "python", python.split("/")[-3]) == (rc, word, text)
    assert "too old" in of_stop(word, text, python).why


@pytest.mark.parametrize(
    ("changes", "damage", "word"),
    [
        ({}, lambda data: data[:-1] + b"X", "digest"),
        ({"sha256": hashlib.sha256(b"").hexdigest()}, bytes, "digest"),
        ({"sha256": None}, bytes, "digest"),
        ({"size": boot.MAX_PAYLOAD_BYTES + 1}, bytes, "size"),
        ({"size": 0}, bytes, "size"),
        ({"size": -5}, bytes, "size"),
        ({"size": "many"}, bytes, "header"),
        ({"deadline_s": None}, bytes, "header"),
        ({"filler": "x" * boot.MAX_HEADER_BYTES}, bytes, "header"),
    ],
)
def test_boot_unverified_payload_never_runs(
    changes: Dict[str, Any], damage: Any, word: str, tmp_path: Path
) -> None:
    """What is damaged, too large or announced wrongly is refused with the reason before any of it runs."""
    trace = tmp_path / "ran"
    payload = zip_with(f"open({str(trace)!r}, 'w')")
    rc, output = talk(start(sys.executable), header_of(payload, **changes) + damage(payload.zip_bytes))
    assert (3, word) == (rc, boot.stop_of(output.strip())[0])
    assert not trace.exists()


def test_boot_garbage_instead_of_a_header_is_refused() -> None:
    """A first line that is no JSON is named."""
    rc, output = talk(start(sys.executable), b"\xff\x00 hello\n")
    assert (3, "header") == (rc, boot.stop_of(output.strip())[0])


def test_boot_short_payload_ends_quietly(tmp_path: Path) -> None:
    """Standard input that closes too early ends it, and nothing of the payload runs."""
    trace = tmp_path / "ran"
    payload = zip_with(f"open({str(trace)!r}, 'w')")
    done = subprocess.run(
        [sys.executable, *boot.ARGUMENTS],
        input=header_of(payload) + payload.zip_bytes[:-1],
        capture_output=True,
        check=False,
    )
    assert (4, b"") == (done.returncode, done.stdout)
    assert not trace.exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_remote_command_is_read_alike_by_every_login_shell(shell: str, tmp_path: Path) -> None:
    """A path with blanks and a home-relative one both reach the right interpreter, BOOT unharmed."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    folder = tmp_path / "a b$HOME`w"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    payload = zip_with("sys.stdout.write('here')")
    for python in (str(folder / "python"), "~/python"):
        process = subprocess.Popen(
            [shell, "-c", remote_command(python)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "HOME": str(folder)},
        )
        assert (0, b"here") == talk(process, header_of(payload) + payload.zip_bytes)


@pytest.fixture
def crippled(tmp_path: Path) -> Any:
    """A virtual environment whose start-up code takes something away from Python."""

    def make(code: str) -> str:
        folder = tmp_path / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        (folder / "lib" / version / "site-packages" / "sitecustomize.py").write_text(code)
        return str(folder / "bin" / "python")

    return make


def test_boot_without_memfd_uses_a_file_that_is_gone_at_once(crippled: Any, tmp_path: Path) -> None:
    """Where memfd is refused a temporary file serves, and no trace of it stays."""
    python = crippled("import os\ndel os.memfd_create\n")
    temp = tmp_path / "temp"
    temp.mkdir()
    payload = zip_with("sys.stdout.write(str(len(os.listdir(os.environ['TMPDIR']))))")
    assert (0, b"0") == talk(start(python, ("TMPDIR", str(temp))), header_of(payload) + payload.zip_bytes)


def test_boot_without_memfd_and_proc_uses_a_file_and_removes_it(crippled: Any, tmp_path: Path) -> None:
    """Where /proc is not there either the file stays for the run and is removed after it."""
    python = crippled("import os\ndel os.memfd_create\nold = os.access\nos.access = lambda *a: False\n")
    temp = tmp_path / "temp"
    temp.mkdir()
    payload = zip_with("sys.stdout.write(os.listdir(os.environ['TMPDIR'])[0][:9])")
    assert (0, b"envaudit-") == talk(
        start(python, ("TMPDIR", str(temp))), header_of(payload) + payload.zip_bytes
    )
    assert [] == list(temp.iterdir())


def test_boot_without_any_place_says_so(crippled: Any, tmp_path: Path) -> None:
    """Neither memfd nor a folder that can be written: the reason is told."""
    python = crippled(f"import os, tempfile\ndel os.memfd_create\ntempfile.tempdir = '{tmp_path}/none'\n")
    payload = zip_with("pass")
    rc, output = talk(start(python), header_of(payload) + payload.zip_bytes)
    word, text = boot.stop_of(output.strip())
    assert (3, "place") == (rc, word)
    assert "No such file or directory" in of_stop(word, text, python).why


def test_boot_in_a_virtual_environment_reports_its_own_prefix(crippled: Any) -> None:
    """The environment's site packages are there: -S is not passed."""
    python = crippled("import os\nos.environ['SEEN'] = 'yes'\n")
    payload = zip_with("sys.stdout.write(sys.prefix + ' ' + os.environ['SEEN'])")
    rc, output = talk(start(python), header_of(payload) + payload.zip_bytes)
    assert (0, f"{Path(python).parents[1]} yes") == (rc, output.decode())


HANG = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); os.write(1, b'up'); "
    "__import__('time').sleep(600)"
)


@pytest.mark.parametrize(
    "how", ["stdin closes", "SIGTERM", "SIGHUP", "SIGINT", "deadline", "payload crashes"]
)
def test_boot_ends_its_whole_group(how: str) -> None:
    """Whatever ends the run ends all of its processes, also those that ignore SIGTERM."""
    mark = uuid.uuid4().hex
    crash = "os.write(1, b'up'); raise RuntimeError('oh')"
    payload = zip_with(crash if how == "payload crashes" else HANG)
    process = start(sys.executable, ("MARK", mark))
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    deadline_s = 1 if how == "deadline" else 30
    process.stdin.write(header_of(payload, deadline_s=deadline_s) + payload.zip_bytes)
    process.stdin.flush()
    assert b"up" == process.stdout.read(2)
    if how != "payload crashes":
        # While a process takes on its program, nothing is to be read of it.
        assert wait_for(lambda: len(processes_with(mark)) >= 3, 2)
    if how == "stdin closes":
        process.stdin.close()
    elif how.startswith("SIG"):
        process.send_signal(signal.Signals[how])
    process.wait(timeout=5)
    assert wait_for(lambda: not processes_with(mark), 2)
    if how == "payload crashes":
        assert b"RuntimeError: oh" in process.stderr.read()
        assert 1 == process.returncode
    if how != "stdin closes":
        process.stdin.close()
    process.stdout.close()
    process.stderr.close()


def test_header_line_beyond_the_limit_raises() -> None:
    """What BOOT would refuse is not sent."""
    with pytest.raises(ValueError, match="header"):
        boot.header_line(
            zip_with("pass"),
            nonce="n",
            node="a",
            deadline_s=1,
            request={"sections": ["x" * boot.MAX_HEADER_BYTES]},
        )


@pytest.mark.parametrize("size", [0, boot.MAX_PAYLOAD_BYTES + 1])
def test_payload_of_impossible_size_raises(size: int) -> None:
    """Nor is a payload that BOOT would refuse."""
    with pytest.raises(ValueError, match="payload"):
        boot.payload_of(bytes(size))


@pytest.mark.parametrize(
    "line", [b"", b"hello", b"@envaudit-stop", b"@envaudit-stop unknown word", b"@envaudit n n 0/1 A"]
)
def test_stop_of_another_line_is_nothing(line: bytes) -> None:
    """Only BOOT's own words count."""
    assert ("", "") == boot.stop_of(line)
