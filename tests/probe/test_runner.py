"""The runner: what happens to one section happens to that section alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from envaudit.model.codec import fingerprint_of_answer
from envaudit.probe import Refused, interpreter, registry, sections
from envaudit.probe.runner import probe
from tests.conftest import PACKAGE_HOME
from tests.probe.processes import is_gone

AddSection = Callable[..., None]


@pytest.fixture
def add_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddSection:
    """Add a section by its file alone, as a new subject is added."""
    folder = tmp_path / "sections"
    folder.mkdir()
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(folder)])

    def add(name: str, body: str, head: str = "SCHEMA = 7\n") -> None:
        # The runner loads sections in its own process, which all tests share.
        sys.modules.pop(f"{sections.__name__}.{name}", None)
        imports = "import os, time, signal\nfrom envaudit.probe.context import Answer\n"
        (folder / f"{name}.py").write_text(f"{imports}{head}\ndef read(context):\n    {body}\n")

    return add


def rows(answer: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """The rows of an answer by name."""
    return {row["name"]: row for row in answer["sections"]}


def read(*names: str, **request: object) -> Dict[str, Dict[str, Any]]:
    """The rows of these sections on this machine."""
    return rows(probe({"launch": "local", "sections": list(names), **request}))


def test_section_that_is_a_file_is_registered(add_section: AddSection) -> None:
    """A file among the sections is all that a new subject needs."""
    add_section("zoo", 'return Answer("ok", {"animals": 3}, {"keeper": "x"})')
    assert "zoo" in registry.section_names()
    expected = {
        "name": "zoo",
        "schema": 7,
        "status": "ok",
        "facts": {"animals": 3},
        "notes": {"keeper": "x"},
        "errors": [],
    }
    assert expected == read("zoo")["zoo"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
        ("os._exit(4)", "ended with exit status 4 and no answer"),
        ("raise RuntimeError('broken')", "RuntimeError: broken"),
        ("raise SystemExit(3)", "ended with exit status 0 and no answer"),
        ('return Answer("ok", {"x": 1.5})', "ValueError: facts.x: float is no fact"),
        ('return Answer("ok", {"x": {"y": [1, {3: 4}]}})', "ValueError: facts.x.y[1]: key of type int"),
        ('return Answer("ok", {"x": "y" * 70000})', "ValueError: facts.x: text of 70000 characters"),
        ('return Answer("ok", {"x": ["y" * 60000] * 100})', "more than 4 MiB of facts"),
        ('x = "y" * (3 << 30); return Answer("ok", {})', "MemoryError: "),
        ("return None", "AttributeError: 'NoneType' object has no attribute 'facts'"),
    ],
    ids=["crash", "exit", "exception", "system-exit", "float", "key", "text", "flood", "memory", "none"],
)
def test_section_that_fails_is_an_error_with_its_cause(add_section: AddSection, body: str, why: str) -> None:
    """A section that fails in any way is an error row; its neighbour is read."""
    add_section("bad", body)
    add_section("good", 'return Answer("ok", {"x": 1})')
    got = read("bad", "good")
    assert ("error", {}, [why]) == (got["bad"]["status"], got["bad"]["facts"], got["bad"]["errors"])
    assert 7 == got["bad"]["schema"]
    assert "ok" == got["good"]["status"]


def test_section_that_does_not_import_is_an_error(add_section: AddSection) -> None:
    """A module that this Python cannot even load costs its own section."""
    add_section("bad", "return None", head="import no_such_module\n")
    row = read("bad")["bad"]
    assert ("error", ["ModuleNotFoundError: No module named 'no_such_module'"]) == (
        row["status"],
        row["errors"],
    )


def test_section_that_hangs_is_ended_with_all_below_it(add_section: AddSection, tmp_path: Path) -> None:
    """At its own deadline a section is ended, and the program that it waits for as well."""
    note = tmp_path / "pid"
    body = f"context.run(['sh', '-c', 'echo $$ > {note}; exec sleep 60'], timeout_s=50)"
    add_section("slow", body, head="SCHEMA = 2\nDEADLINE_S = 0.6\n")
    add_section("good", 'return Answer("ok", {})')
    started = time.monotonic()
    got = read("slow", "good")
    assert time.monotonic() - started < 4
    assert ("error", 2, ["not read within 0.6 s"]) == (
        got["slow"]["status"],
        got["slow"]["schema"],
        got["slow"]["errors"],
    )
    assert "ok" == got["good"]["status"]
    assert is_gone(int(note.read_text()))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("time.sleep(60)", "not read within 0.4 s"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
        ("raise RuntimeError('broken')", "RuntimeError: broken"),
    ],
    ids=["hang", "crash", "error"],
)
def test_sections_behind_one_that_fails_are_read_by_another_child(
    add_section: AddSection, body: str, why: str
) -> None:
    """There are fewer children than sections: what waits behind a failure is not lost with it."""
    others = [f"good{number}" for number in range(11)]
    add_section("bad", body, head="SCHEMA = 1\nDEADLINE_S = 0.4\n")  # the least patient is read first
    for name in others:
        add_section(name, 'return Answer("ok", {"pid": os.getpid()})')
    got = read("bad", *others)
    assert [why] == got["bad"]["errors"]
    assert {"ok"} == {got[name]["status"] for name in others}
    pids = {got[name]["facts"]["pid"] for name in others}
    assert 3 + 2 == len(pids)  # the chain of three lost its first, and each of its others got a child


def test_section_with_a_longer_deadline_gets_it(add_section: AddSection) -> None:
    """A section's DEADLINE_S replaces the default, in both directions."""
    add_section("long", 'time.sleep(0.4); return Answer("ok", {})', head="SCHEMA = 1\nDEADLINE_S = 30\n")
    assert "ok" == read("long")["long"]["status"]


def test_deadline_of_the_request_caps_that_of_a_section(add_section: AddSection) -> None:
    """The time that is left for the whole answer is no section's to spend."""
    add_section("long", "time.sleep(60)", head="SCHEMA = 1\nDEADLINE_S = 30\n")
    assert ["not read within 0.5 s"] == read("long", deadline_s=0.5)["long"]["errors"]


def test_library_that_prints_does_not_spoil_the_answer(
    add_section: AddSection, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a section's libraries print goes nowhere."""
    add_section("loud", "os.write(1, b'noise'); os.write(2, b'noise'); return Answer('ok', {})")
    assert "ok" == read("loud")["loud"]["status"]
    assert ("", "") == tuple(capfd.readouterr())


def test_long_errors_are_cut_to_what_the_model_takes(add_section: AddSection) -> None:
    """A thousand errors of any length cost no other section, as they would where the model refuses them."""
    add_section("many", 'return Answer("partial", {}, {}, ["e" * 5000] * 1000)')
    answer = probe({"sections": ["many"], "captured_at": "2026-11-30T10:00:00Z", "tool": "1.0"})
    fingerprint = fingerprint_of_answer(answer, node="node01", source="probe", where="answer")
    assert 256 == len(fingerprint.sections["many"].errors)
    assert "and 745 more" == fingerprint.sections["many"].errors[-1]


def test_secret_in_an_error_stays_on_the_node(add_section: AddSection) -> None:
    """What an exception quotes may be a URL with its credentials."""
    add_section("bad", "raise OSError('cannot reach https://alice:hunter2@host/x')")
    assert ["OSError: cannot reach https://host/x"] == read("bad")["bad"]["errors"]


def test_interpreter_that_cannot_start_costs_the_sections_that_ask_for_it(
    add_section: AddSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sections that need the interpreter name the cause; the others are read."""
    monkeypatch.setattr("sys.executable", "/no/such/python")
    add_section("asks", 'return Answer("ok", {"v": context.interpreter["version"]})')
    add_section("good", 'return Answer("ok", {})')
    got = read("asks", "good")
    expected = "the interpreter did not describe itself: /no/such/python: /no/such/python: not found"
    assert [expected] == got["asks"]["errors"]
    assert "ok" == got["good"]["status"]


def test_interpreter_that_prints_something_else_is_an_error(
    add_section: AddSection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of what the interpreter complained of is the cause."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho hello\necho 'Fatal: no module encodings' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    add_section("asks", 'return Answer("ok", {"v": context.interpreter["version"]})')
    (error,) = read("asks")["asks"]["errors"]
    assert error.endswith(f"{python}: Fatal: no module encodings")


def test_interpreter_that_its_variables_keep_from_starting_says_which(
    add_section: AddSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the line behind it, which tells the state that the runtime was in."""
    monkeypatch.setenv("PYTHONHASHSEED", "abc")
    add_section("asks", 'return Answer("ok", {"v": context.interpreter["version"]})')
    (error,) = read("asks")["asks"]["errors"]
    assert "Fatal Python error: " in error
    assert "PYTHONHASHSEED must be" in error


def test_request_for_an_unknown_section_is_refused() -> None:
    """A section that does not exist is no empty answer."""
    with pytest.raises(Refused, match="there is no section 'gpus'"):
        probe({"sections": ["gpus"]})


@pytest.mark.parametrize("descriptors", [8, 10, 12, 14])
def test_node_without_free_descriptors_answers_all_the_same(descriptors: int) -> None:
    """Where neither pipes nor processes are to be had, sections say so, each for itself."""
    asked = (
        "import sys, json, resource; sys.path.insert(0, sys.argv[1]);"
        "from envaudit.probe.runner import probe;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}));"
        "print(json.dumps(probe({})))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-B", "-c", asked, str(PACKAGE_HOME)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    got = rows(json.loads(ran.stdout))
    assert registry.section_names() == sorted(got)
    told = [row for row in got.values() if row["errors"] and "Too many open files" in row["errors"][0]]
    assert told


def test_probe_from_a_removed_folder_is_whole(tmp_path: Path) -> None:
    """The folder that a login or a job starts in may be gone."""
    gone = tmp_path / "gone"
    gone.mkdir()
    asked = (
        "import sys, os, json; sys.path.insert(0, sys.argv[1]); os.rmdir(os.getcwd());"
        "from envaudit.probe.runner import probe; print(json.dumps(probe({'sections': ['python', 'git']})))"
    )
    argv = [sys.executable, "-I", "-B", "-c", asked, str(PACKAGE_HOME)]
    ran = subprocess.run(argv, cwd=gone, capture_output=True, text=True, timeout=60, check=True)
    got = rows(json.loads(ran.stdout))
    assert ("ok", "absent") == (got["python"]["status"], got["git"]["status"])


def test_answer_states_the_time_and_version_that_it_was_given() -> None:
    """Clock and version are the caller's to inject."""
    answer = probe({"sections": ["limits"], "captured_at": "2026-11-30T10:00:00Z", "tool": "1.2.3"})
    assert ("2026-11-30T10:00:00Z", "1.2.3") == (answer["captured_at"], answer["tool"])


def test_probe_leaves_no_child_and_no_descriptor(add_section: AddSection) -> None:
    """Nothing of a probe remains in the process that asked for it."""
    add_section("crash", "os.kill(os.getpid(), signal.SIGKILL)")
    read("crash", "python", "limits")  # what loads once is loaded now
    before = (sorted(os.listdir("/proc/self/fd")), children())
    read("crash", "python", "limits")
    assert before == (sorted(os.listdir("/proc/self/fd")), children())


def test_probe_that_is_interrupted_leaves_no_child(add_section: AddSection) -> None:
    """The signal that ends a run goes to its process alone, where a scheduler or a script sends it."""
    add_section("slow", "time.sleep(60)", head="SCHEMA = 2\nDEADLINE_S = 60\n")
    before = (sorted(os.listdir("/proc/self/fd")), children())
    was = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            read("slow", "python")
    finally:
        signal.signal(signal.SIGALRM, was)
    assert before == (sorted(os.listdir("/proc/self/fd")), children())


def test_probe_that_is_interrupted_while_the_interpreter_ends_says_that(
    add_section: AddSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pipes are closed then, and may be somebody else's files by their numbers."""
    add_section("slow", "time.sleep(60)", head="SCHEMA = 2\nDEADLINE_S = 60\n")
    before = (sorted(os.listdir("/proc/self/fd")), children())

    def interrupted(pid: int) -> None:
        os.waitpid(pid, 0)
        raise KeyboardInterrupt

    monkeypatch.setattr(interpreter.child, "reap", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read("slow", "python")
    assert before == (sorted(os.listdir("/proc/self/fd")), children())


def children() -> List[str]:
    """The process ids of this process' children; a lab may have some of its own running."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_probe_of_this_machine_is_read_by_the_model() -> None:
    """All sections of a live machine are facts as the model has them, twice with the same digests."""
    request = {"launch": "local", "workdir": str(Path(__file__).parent), "tool": "1"}
    answers = [json.loads(json.dumps(probe(request))) for _ in range(2)]
    first, second = (
        fingerprint_of_answer(answer, node="here", source="probe", where="answer") for answer in answers
    )
    assert registry.section_names() == sorted(first.sections)
    differing = [name for name, one in first.sections.items() if one.digest != second.sections[name].digest]
    assert [] == differing


def test_interpreter_is_not_started_for_sections_that_do_not_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is half of what a look at the clocks alone would cost a node."""
    started: List[str] = []

    class Watched(interpreter.Asked):
        def __init__(self, workdir: str) -> None:
            started.append(workdir)
            super().__init__(workdir)

    monkeypatch.setattr(interpreter, "Asked", Watched)
    assert ("ok", []) == (read("clock")["clock"]["status"], started)
    assert "ok" == read("clock", "python")["python"]["status"]
    assert 1 == len(started)
