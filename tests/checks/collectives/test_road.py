"""Which road NCCL took, from lines as it writes them.

PROVENANCE: hand-made after the format strings of NCCL 2.20 to 2.27 (src/init.cc, src/transport/*.cc).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envaudit.checks.collectives.road import NcclLogs, rank_in, road_of, way_of

LEAD = "gpu1:4711:4742 [0] NCCL INFO "
IB = "\n".join(
    [
        f"{LEAD}NCCL version 2.27.5+cuda12.9",
        f"{LEAD}NET/Plugin: Could not find: libnccl-net.so.",
        f"{LEAD}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        f"{LEAD}Initialized NET plugin IB",
        f"{LEAD}Using network IB",
        f"{LEAD}ncclCommInitRank comm 0x55f2a1 rank 0 nranks 4 cudaDev 0 busId 1b000 - Init START",
        f"{LEAD}NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)",
        f"{LEAD}Channel 00/08 : 0 1 2 3",
        f"{LEAD}Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        f"{LEAD}Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        f"{LEAD}Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA",
        f"{LEAD}Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/1(1)/GDRDMA/Shared",
        f"{LEAD}Channel 00/0 : 2[0] -> 3[1] via P2P/CUMEM",
    ]
)
SOCKET = "\n".join(
    [
        f"{LEAD}NCCL version 2.20.5+cuda12.4",
        f"{LEAD}NET/IB : No device found.",
        f"{LEAD}NET/IB : Using [RO]; OOB eth0:10.0.0.2<0>",
        f"{LEAD}NET/Socket : Using [0]eth0:10.0.0.2<0> [1]eth1:fe80::1%eth1<0>",
        f"{LEAD}Using network Socket",
        f"{LEAD}comm 0x55f2a1 rank 2 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0",
        f"{LEAD}NVLS multicast support is not available on dev 0",
        f"{LEAD}Channel 00 : 2[1b000] -> 3[43000] via SHM/direct/direct",
        f"{LEAD}Channel 00 : 2[1b000] -> 0[1b000] [send] via NET/Socket/0",
    ]
)


def test_log_over_infiniband_tells_ways_devices_and_nvls() -> None:
    """Connections of other ranks, and the interface it meets by, are not its road."""
    row = road_of(IB, 0, {0, 1})
    assert {
        "version": "2.27.5+cuda12.9",
        "network": "IB",
        "devices": ["mlx5_0:1/IB", "mlx5_1:1/RoCE"],
        "nvls": True,
        "local": {"P2P/CUMEM": 2},
        "remote": {"NET/IB/GDRDMA": 2},
    } == row


def test_log_over_sockets_tells_the_fall_back() -> None:
    """With the older form of a line, and the bus's number for the GPU."""
    row = road_of(SOCKET, 2, {2, 3})
    assert ("Socket", ["eth0:10.0.0.2", "eth1:fe80::1%eth1"], False) == (
        row["network"],
        row["devices"],
        row["nvls"],
    )
    assert ({"SHM": 1}, {"NET/Socket": 1}) == (row["local"], row["remote"])


def test_rank_is_that_of_the_group_of_all() -> None:
    """A later group of two is another one."""
    assert (0, 2, None) == (rank_in(IB, 4), rank_in(SOCKET, 4), rank_in(IB, 2))


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("P2P/IPC/read", "P2P/IPC"),
        ("P2P/direct", "P2P"),
        ("P2P/indirect/1[1]", "P2P/indirect"),
        ("NET/IBext_v11/0", "NET/IBext_v11"),
        ("NET/AWS", "NET/AWS"),
    ],
)
def test_way_leaves_out_which_adapter(text: str, way: str) -> None:
    """Eight rails are one way."""
    assert way == way_of(text)


@pytest.mark.parametrize(
    "text", ["", "garbage", "NCCL INFO Using network ", f"{LEAD}Channel 00/0 : 0[0] -> x via"]
)
def test_log_that_says_nothing_is_not_known(text: str) -> None:
    """Null, and nothing made up."""
    assert {
        "version": None,
        "network": None,
        "devices": [],
        "nvls": None,
        "local": {},
        "remote": {},
    } == road_of(text, 0, {0})


def test_logs_are_read_by_rank_and_leave_nothing_behind() -> None:
    """Each process writes its own file; what is no file is passed over."""
    with NcclLogs(wanted=True) as logs:
        folder = Path(os.path.dirname(logs.environ["NCCL_DEBUG_FILE"]))
        (folder / "4711").write_text(IB)
        (folder / "4712").write_text(SOCKET)
        (folder / "4713").write_text("nothing")
        os.mkfifo(folder / "4714")
        assert {"0", "2"} == set(logs.read(4, {0, 1}))
    assert not folder.exists()


def test_run_without_a_gpu_makes_no_folder() -> None:
    """So that one that is killed leaves none."""
    with NcclLogs(wanted=False) as logs:
        assert ({}, {}) == (logs.environ, logs.read(2, {0}))
