"""What ends a run before any worker is started; no torch is needed for it, and none is imported."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import envaudit
from tests.checks.collectives_session.launch_of import Launch

JOIN_S = 1.5


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Launch]:
    """Four supervisors of one rank each, which wait for each other for a moment only."""
    with Launch(tmp_path, 4, limits={"join_s": JOIN_S}) as launch:
        yield launch


def test_rank_that_never_starts_is_missing_by_number_and_name(four: Launch) -> None:
    """With those who came, and after the time to join."""
    began = time.monotonic()
    for index in (0, 1, 3):
        four.start(index, layout={"names": ["a", "b", "c", "d"]})
    result = four.result(0)
    assert JOIN_S < time.monotonic() - began < JOIN_S + 3
    ended = result["ended"]
    assert ("missing", [2], ["c"]) == (ended["kind"], ended["ranks"], ended["nodes"])
    assert "3 of 4 came to the hub (node00, node01, node03); missing: c" == ended["text"]
    assert result == four.result(1) == four.result(3)
    assert [] == four.left_after()


def test_first_node_that_never_starts_is_a_hub_that_is_unreachable(four: Launch) -> None:
    """Each of the others says so, with the address."""
    began = time.monotonic()
    for index in (1, 2, 3):
        four.start(index)
    for index in (1, 2, 3):
        result = four.result(index)
        assert "unreachable" == result["ended"]["kind"]
        assert f"127.0.0.1:{four.port}" in result["ended"]["text"]
    assert time.monotonic() - began < JOIN_S + 4


def planted_torch(folder: Path, version: str) -> str:
    """A torch whose import would be seen; its version as it is read without importing it."""
    package = folder / "torch"
    package.mkdir(parents=True)
    (package / "version.py").write_text(f"__version__ = '{version}'\n")
    (package / "__init__.py").write_text(f"open({str(folder / 'imported')!r}, 'w')\nraise ImportError\n")
    (line,) = ast.parse((package / "version.py").read_text()).body
    assert isinstance(line, ast.Assign)
    return str(ast.literal_eval(line.value))


def test_other_torch_on_one_node_is_named_before_torch_is_imported(tmp_path: Path) -> None:
    """Each node reads torch/version.py; no worker is started for that."""
    with Launch(tmp_path, 3) as launch:
        places = [tmp_path / f"site{index}" for index in range(3)]
        for index, version in enumerate(("2.9.0", "2.9.0", "2.8.0")):
            torch = planted_torch(places[index], version)
            launch.start(index, facts={"torch": torch}, environ={"PYTHONPATH": str(places[index])})
        result = launch.result(0)
        assert ("mismatch", ["node02"]) == (result["ended"]["kind"], result["ended"]["nodes"])
        (row,) = result["mismatches"]
        assert ("torch", "error") == (row["what"], row["severity"])
        assert {"2.9.0": ["node00", "node01"], "2.8.0": ["node02"]} == row["values"]
        assert result["took_ms"]["compare"] < 1000
        assert "collectives" not in result["took_ms"]
        assert [] == [str(place) for place in places if (place / "imported").exists()]
        assert result == launch.result(1) == launch.result(2)


def test_node_on_a_loopback_interface_among_others_is_a_mismatch(tmp_path: Path) -> None:
    """What GLOO_SOCKET_IFNAME=lo does on one node: no other node reaches it."""
    with Launch(tmp_path, 3) as launch:
        for index in range(3):
            address = {"name": "eth0", "address": f"192.0.2.{index}"}
            facts = {"interface": address if index != 1 else {"name": "lo", "address": "127.0.0.1"}}
            launch.start(index, facts=facts)
        result = launch.result(0)
        assert ("mismatch", ["node01"]) == (result["ended"]["kind"], result["ended"]["nodes"])
        assert "interface" == result["mismatches"][0]["what"]


def test_node_whose_port_cannot_be_reached_is_named_before_torch_is_imported(tmp_path: Path) -> None:
    """It says that it is at an address where nobody answers: as behind a firewall."""
    own = own_address()
    with Launch(tmp_path, 3, limits={"door_s": 0.5}) as launch:
        for index in range(3):
            address = own if index != 1 else "192.0.2.7"
            launch.start(index, facts={"interface": {"name": None, "address": address}})
        result = launch.result(0)
        ended = result["ended"]
        assert ("unreachable", [1], ["node01"]) == (ended["kind"], ended["ranks"], ended["nodes"])
        assert "node00 cannot reach node01 at 192.0.2.7" in ended["text"]
        assert "collectives" not in result["took_ms"]
        assert result == launch.result(1) == launch.result(2)


def own_address() -> str:
    """An address of this machine that is none of its loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            trial.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return str(trial.getsockname()[0])


def test_one_rank_alone_is_not_tested(tmp_path: Path) -> None:
    """Nothing is started for it."""
    with Launch(tmp_path, 1) as launch:
        launch.start(0)
        result = launch.result(0)
        assert "not_tested" == result["ended"]["kind"]
        assert 1 == result["world"]


def test_launcher_that_gives_one_rank_twice_is_a_mismatch(tmp_path: Path) -> None:
    """The process group would hang."""
    with Launch(tmp_path, 2) as launch:
        for index in range(2):
            launch.start(index, layout={"local_ranks": 1, "ranks": [0], "world": 2})
        result = launch.result(1)
        assert "mismatch" == result["ended"]["kind"]
        assert {"rank 0": ["node00", "node01"]} == result["mismatches"][0]["values"]


def test_failure_of_what_comes_before_is_that_process_s_own(tmp_path: Path) -> None:
    """Its supervisor raises it; to the others it is lost."""
    with Launch(tmp_path, 2) as launch:
        launch.start(0)
        launch.start(1, before_s=-1.0)
        assert "lost" == launch.result(0)["ended"]["kind"]
        _, err = launch.processes[1].communicate(timeout=10)
        assert "sleep length must be non-negative" in err


def test_stranger_at_the_hub_s_port_delays_nobody(tmp_path: Path) -> None:
    """A port scanner and a browser come first."""
    with Launch(tmp_path, 2) as launch:
        launch.start(0, layout={"local_ranks": 1, "ranks": [0], "world": 2})
        ends = time.monotonic() + 10
        strangers = []
        while not strangers:
            assert time.monotonic() < ends
            try:
                strangers.append(socket.create_connection(("127.0.0.1", launch.port), timeout=1))
            except OSError:
                time.sleep(0.02)
        with strangers[0] as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            launch.start(1, layout={"local_ranks": 1, "ranks": [0], "world": 2})
            assert "mismatch" == launch.result(0)["ended"]["kind"]


def test_supervisor_imports_neither_torch_nor_what_is_not_the_library_s() -> None:
    """It must run where torch is what is broken."""
    code = (
        "import sys, envaudit.checks.collectives.session; "
        "print(*(n for n, m in sys.modules.items() if 'site-packages' in str(getattr(m, '__file__', ''))))"
    )
    environ = {"PYTHONPATH": str(Path(next(iter(envaudit.__path__))).parent)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=environ
    )
    assert [] == done.stdout.split()
