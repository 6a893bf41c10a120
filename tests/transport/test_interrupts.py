"""Ctrl-C at the moments that a test cannot hit by waiting."""

from __future__ import annotations

import signal
import subprocess
import threading
import zipfile
from typing import Any, Optional

import pytest

from envaudit.transport import boot, parcel, program
from envaudit.transport.interrupts import held_interrupts


def test_interrupt_inside_the_block_takes_effect_behind_it() -> None:
    """Nothing of the block is left out, and the interrupt is not lost; also where the block fails."""
    done = []

    def interrupted(fault: Optional[Exception] = None) -> None:
        with held_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("whole")
            if fault is not None:
                raise fault

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(KeyboardInterrupt):
        interrupted(ValueError("of the block"))
    assert ["whole", "whole"] == done
    assert signal.default_int_handler is signal.getsignal(signal.SIGINT)


def test_programs_of_another_thread_go_on() -> None:
    """Two threads that ask at once, as in a service, do not end each other's programs."""
    started: list[program.Program] = []
    asked, through = threading.Event(), threading.Event()

    def ask() -> None:
        started.append(program.Program(["sleep", "300"]))
        asked.set()
        through.wait(30)
        program.end_all()

    other = threading.Thread(target=ask)
    other.start()
    assert asked.wait(30)
    program.end_all()
    assert started[0].poll() is None
    through.set()
    other.join(30)
    assert -signal.SIGTERM == started[0].poll()


def test_interrupts_in_another_thread_are_left_alone() -> None:
    """Only the main thread has handlers; elsewhere the block simply runs."""
    seen: list[Any] = []

    def run() -> None:
        with held_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert [signal.default_int_handler] == seen


def test_interrupt_while_a_program_starts_leaves_it_to_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node's command runs before Popen returns: an interrupt in between must not lose it."""
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def start_and_interrupt(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*arguments, **options))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        program.Program(["sleep", "300"])
    program.end_all()
    alive = started[0].poll() is None
    started[0].kill()
    assert not alive


def test_interrupt_while_the_payload_is_zipped_stays_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Zipfile would answer with an error about its open handle, an internal error to the user."""

    def zip_and_interrupt(*, compressed: bool, checks: bool) -> boot.Payload:
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive, archive.open("a", "w") as file:
            signal.raise_signal(signal.SIGINT)
            file.write(b"a")
        return boot.payload_of((tmp_path / "a.zip").read_bytes())

    monkeypatch.setattr(parcel, "wire_payload", zip_and_interrupt)
    made = parcel.Parcel(compressed=True)
    with pytest.raises(KeyboardInterrupt):
        made.make()
    assert zipfile.is_zipfile(tmp_path / "a.zip")
