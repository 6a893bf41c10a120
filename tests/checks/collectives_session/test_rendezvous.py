"""Ports tried before workers meet at them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

from envaudit.checks.collectives.rendezvous import Door, free_ports, reach


def test_door_lets_itself_be_reached_again_and_again() -> None:
    """Its owner closes what comes."""
    door = Door()
    try:
        for _ in range(3):
            assert {} == reach({"a": ("127.0.0.1", door.port), "b": ("127.0.0.1", door.port)}, 1.0)
            door.greet()
    finally:
        door.close()


def test_port_where_nobody_listens_is_refused_at_once() -> None:
    """Others of the same trial are reached."""
    door = Door("127.0.0.1")
    (free,) = free_ports(1, "127.0.0.1")
    try:
        began = time.monotonic()
        failed = reach({0: ("127.0.0.1", door.port), 1: ("127.0.0.1", free)}, 5.0)
        assert {1: "connection refused"} == failed
        assert time.monotonic() - began < 1
    finally:
        door.close()


def test_name_instead_of_an_address_is_a_failure_and_no_exception() -> None:
    """Addresses come from members, who may say anything."""
    failed = reach({0: ("no such host", 1), 1: ("127.0.0.1", 0), 2: ("", 1)}, 0.5)
    assert {0, 1} <= set(failed)


def test_door_of_a_stopped_process_can_be_reached() -> None:
    """That is what tells it from a node that is cut off."""
    code = "import time; from envaudit.checks.collectives.rendezvous import Door\n"
    code += "door = Door(); print(door.port, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGSTOP)
            assert {} == reach({0: ("127.0.0.1", port)}, 1.0)
        finally:
            process.kill()


def test_ports_that_are_free_are_different_ones() -> None:
    """Each pair of ranks of one node has its own."""
    ports = free_ports(8)
    assert 8 == len(set(ports))
    with socket.create_server(("", ports[3])):
        pass
