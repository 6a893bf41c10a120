"""The place of a process in a launch, from the variables that launchers set."""

from __future__ import annotations

import argparse
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict

import pytest

from envaudit.cli.checkoptions import asked_by
from envaudit.cli.inbandcheck import _Part
from envaudit.cli.main import parser_of
from envaudit.cli.seat import DEFAULT_PORT, InBand, first_of, hub_address, local_ranks, seat_of_environment
from envaudit.cli.thisnode import this_node
from envaudit.errors import UsageError

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node01",
    "MASTER_PORT": "29400",
}
SRUN = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_STEP_NODELIST": "node[01-02]",
    "SLURM_JOB_ID": "7",
    "SLURM_LOCALID": "0",
    "SLURMD_NODENAME": "node02",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def seat(environ: Dict[str, str], **options: Any) -> Any:
    """What these variables and options mean."""
    return seat_of_environment(environ, argparse.Namespace(**options))


def test_process_that_was_started_alone_has_no_seat() -> None:
    """Nor has a batch script that sets what all of its ranks have alike."""
    assert None is seat({})
    assert None is seat({"WORLD_SIZE": "4", "MASTER_ADDR": "node01"})


def test_rank_that_does_not_know_of_how_many_is_refused() -> None:
    """As torch refuses it; alone each of them would pass."""
    with pytest.raises(UsageError, match="RANK is set, and WORLD_SIZE is not"):
        seat({"RANK": "0", "MASTER_ADDR": "node01"})
    assert "srun" == seat({**SRUN, "RANK": "1"}).launcher


def test_torchrun_gives_rank_and_a_hub_beside_its_rendezvous() -> None:
    """The port after MASTER_PORT."""
    expected = InBand("torchrun", 3, 4, this_node(), "node01", 29401, rank=3, local_rank=1)
    assert expected == seat(TORCHRUN)


def test_one_process_a_node_complains_where_the_first_one_is_gone() -> None:
    """On the first one's own node it is the second."""
    places = [{"RANK": str(rank), "LOCAL_RANK": str(rank % 4)} for rank in range(8)]
    assert [0, 1, 4] == [
        place.index
        for place in (seat({**TORCHRUN, "WORLD_SIZE": "8", **each}) for each in places)
        if place.complains
    ]


def test_what_a_hub_says_of_its_end_has_no_terminal_controls(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a token it may be anybody's."""
    place = seat(TORCHRUN)
    assert place is not None
    options = parser_of("check").parse_args([])
    part = _Part(options, asked_by(options), replace(place, local_rank=0), 0.0)
    assert 3 == part._without_verdict({"kind": "unreachable", "text": "\x1b]0;mine\x07"})
    told = capsys.readouterr().err
    assert "no verdict was told to this process: \\x1b]0;mine\\x07\n" in told


def test_process_that_said_nothing_is_told_with_its_node() -> None:
    """Alone on it under its name, beside others that did speak by its number."""
    place = seat(TORCHRUN)
    assert place is not None
    options = parser_of("check").parse_args([])
    part = _Part(options, asked_by(options), place, 0.0)
    left = {1: "its connection ended", 2: "", 3: ""}
    nodes = {0: "node01", 1: "node01", 2: "node02", 3: "no name"}
    members = {index: SimpleNamespace(node=node, left=left.get(index)) for index, node in nodes.items()}
    hub: Any = SimpleNamespace(members=members, expected=4)
    gone = part._gone(hub, {0: {}})
    assert {
        "rank1": ("crashed", "its process on node01 has gone: its connection ended"),
        "node02": ("timeout", "its process did not say what it found"),
        "rank3": ("timeout", "its process did not say what it found"),
    } == {label: (each.kind, each.why) for label, each in gone.items()}


def test_torchrun_on_one_node_meets_on_the_loopback() -> None:
    """Whatever its name resolves to, and beside its rendezvous."""
    found = seat({**TORCHRUN, "LOCAL_WORLD_SIZE": "4"})
    assert ("127.0.0.1", 29401) == (found.host, found.port)


def test_standalone_torchrun_meets_at_a_port_that_no_client_has() -> None:
    """Its rendezvous is among the ports of clients, and the next one may be anybody's connection."""
    ports = [seat({**TORCHRUN, "LOCAL_WORLD_SIZE": "4", "MASTER_PORT": p}).port for p in ("40001", "40003")]
    assert all(20000 <= port < 30000 for port in ports)
    assert 2 == len(set(ports))
    assert 40002 == seat({**TORCHRUN, "MASTER_PORT": "40001"}).port


def test_srun_with_one_task_a_node_starts_the_ranks_itself() -> None:
    """Under the name that Slurm gives the node, on a port of the job's own."""
    found = seat(SRUN, nproc_per_node=8)
    assert ("srun", 1, 2, "node02", "node01") == (
        found.launcher,
        found.index,
        found.count,
        found.node,
        found.host,
    )
    assert (None, 8) == (found.rank, found.local_ranks)
    assert 20000 <= found.port < 30000
    assert found.port != seat({**SRUN, "SLURM_JOB_ID": "8"}).port


def test_srun_with_one_task_a_gpu_gives_ranks() -> None:
    """As many as a node has tasks."""
    tasks = {"SLURM_STEP_NUM_TASKS": "5", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_PROCID": "3"}
    found = seat({**SRUN, **tasks, "SLURM_LOCALID": "1"})
    assert (3, 5, 3, 1) == (found.index, found.count, found.rank, found.local_rank)


def test_srun_of_one_task_and_a_batch_script_are_no_launch() -> None:
    """`srun --pty bash` is a shell, and a batch script has SLURM_PROCID as well."""
    assert None is seat({**SRUN, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"})
    batch = {name: value for name, value in SRUN.items() if "STEP" not in name}
    assert None is seat(batch)


def test_mpirun_on_one_node_needs_no_hub() -> None:
    """Between nodes it says nothing of the first one."""
    found = seat(MPIRUN)
    assert ("mpirun", 1, "127.0.0.1", DEFAULT_PORT, 1) == (
        found.launcher,
        found.rank,
        found.host,
        found.port,
        found.local_rank,
    )
    apart = {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    with pytest.raises(UsageError, match="--hub HOST:PORT"):
        seat(apart)
    assert ("node01", 29501) == (seat(apart, hub="node01:29501").host, 29501)
    assert "n7" == seat({**apart, "SLURM_JOB_NODELIST": "n[7-8]"}).host


def test_two_launches_of_mpirun_on_one_node_meet_at_ports_of_their_own() -> None:
    """Else a process of one would take a place of the other. Under Slurm a daemon's step tells nothing."""
    first, second = ({**MPIRUN, "PMIX_NAMESPACE": name} for name in ("505151489", "505282561"))
    port = seat(first).port
    assert port == seat({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "3", **first}).port
    assert port == seat({"SLURM_JOB_ID": "7", **first}).port
    assert port != seat(second).port
    assert 29401 == seat({**first, "MASTER_PORT": "29400"}).port


def test_mpirun_inside_slurm_is_mpirun() -> None:
    """Its daemons are tasks of a step of Slurm, whose variables ranks inherit."""
    assert "mpirun" == seat({**SRUN, **MPIRUN}).launcher


def test_hub_option_wins_over_the_environment() -> None:
    """As text, or read already."""
    assert ("head", 4000) == (seat(TORCHRUN, hub="head:4000").host, seat(TORCHRUN, hub=("head", 4000)).port)


@pytest.mark.parametrize(
    "wrong",
    [
        {"RANK": "x"},
        {"RANK": "4"},
        {"WORLD_SIZE": "0"},
        {"MASTER_PORT": "70000"},
        {"MASTER_PORT": "-1"},
        {"MASTER_ADDR": "-oProxyCommand=x"},
    ],
)
def test_variables_that_say_no_place_are_refused(wrong: Dict[str, str]) -> None:
    """By name."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        seat({**TORCHRUN, **wrong})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node[01-04]", "node01"),
        ("rack[1-2]n[03,07],login", "rack1n03"),
        ("a,b[1-2]", "a"),
        ("", ""),
        ("[", ""),
        ("-x", ""),
    ],
)
def test_first_node_of_a_list_of_slurm(nodes: str, first: str) -> None:
    """Also of several dimensions."""
    assert first == first_of(nodes)


@pytest.mark.parametrize(
    "text", ["node01", "node01:0", "node01:70000", ":29501", "[::1:29501", "-x:1", "a b:1"]
)
def test_hub_that_is_no_host_and_port_is_refused(text: str) -> None:
    """Before anybody waits for it."""
    with pytest.raises(argparse.ArgumentTypeError, match="HOST:PORT"):
        hub_address(text)


def test_hub_may_be_an_address_of_ipv6() -> None:
    """In brackets."""
    assert ("fd00::2", 29501) == hub_address("[fd00::2]:29501")


@pytest.mark.parametrize("text", ["0", "-1", "1025", "x", "1.5", "٣"])
def test_number_of_ranks_is_bounded(text: str) -> None:
    """From 1 to 1024."""
    with pytest.raises(argparse.ArgumentTypeError, match="whole number"):
        local_ranks(text)
