"""Limits as the launched process has them."""

from __future__ import annotations

import os
import resource
from typing import Any, Callable, Dict

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.runner import probe
from envaudit.probe.sections import limits

MakeNode = Callable[..., Context]

_ROWS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max stack size            8388608              unlimited            bytes     \n"
    "Max core file size        0                    unlimited            bytes     \n"
    "Max processes             96364                200000               processes \n"
    "Max open files            1024                 524288               files     \n"
    "Max locked memory         unlimited            unlimited            bytes     \n"
)
_STATUS = "Name:\tx\nCapEff:\t{:016x}\n"


def read(make_node: MakeNode, files: Dict[str, str | bytes] | None = None, **node: Any) -> Answer:
    """The section of a node with these files."""
    plain: Dict[str, str | bytes] = {"/proc/self/limits": _ROWS, "/proc/self/status": _STATUS.format(0)}
    space = {"/dev/shm": [64 << 20, 1 << 20], "/tmp": [1 << 40, 5]}
    return limits.read(make_node({**plain, **(files or {})}, **{"space": space, **node}))


def test_limits_of_this_process_are_those_of_the_system() -> None:
    """The forked reader has the limits of the process that was launched."""
    (row,) = probe({"sections": ["limits"]})["sections"]
    for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("memlock_bytes", resource.RLIMIT_MEMLOCK)):
        soft, hard = (
            "unlimited" if one == resource.RLIM_INFINITY else one for one in resource.getrlimit(kind)
        )
        assert {"soft": soft, "hard": hard} == row["facts"][name]
    size = os.statvfs("/dev/shm")
    assert size.f_frsize * size.f_blocks == row["notes"]["dev_shm_bytes"]


def test_limits_are_integers_or_unlimited(make_node: MakeNode) -> None:
    """`unlimited` is its own word, not a number."""
    facts = read(make_node).facts
    expected = {
        "memlock_bytes": {"soft": "unlimited", "hard": "unlimited"},
        "nofile": {"soft": 1024, "hard": 524288},
        "nproc": {"soft": 96364, "hard": 200000},
        "stack_bytes": {"soft": 8388608, "hard": "unlimited"},
        "core_bytes": {"soft": 0, "hard": "unlimited"},
    }
    assert expected == {name: facts[name] for name in expected}


def test_limit_of_processes_that_follows_memory_is_told_by_its_name(make_node: MakeNode) -> None:
    """Two alike nodes differ in the kernel's default by a handful: no drift, the number is a note."""
    answer = read(make_node, {"/proc/sys/kernel/threads-max": "192729\n"})
    assert {"soft": "kernel default", "hard": 200000} == answer.facts["nproc"]
    assert {"soft": 96364, "hard": 200000} == answer.notes["nproc"]


@pytest.mark.parametrize(
    ("mask", "expected"), [(0, False), (1 << 14, True), (0x1FFFFFFFFFF, True), (1 << 13, False)]
)
def test_right_to_lock_memory_is_one_capability(make_node: MakeNode, mask: int, expected: bool) -> None:
    """With CAP_IPC_LOCK the limit on locked memory does not matter."""
    answer = read(make_node, {"/proc/self/status": _STATUS.format(mask)})
    assert expected is answer.facts["cap_ipc_lock"]


@pytest.mark.parametrize(
    ("size", "gib"), [(64 << 20, 0), (1 << 30, 1), ((1 << 30) + 123456, 1), (503 << 30, 503)]
)
def test_shared_memory_is_rounded_to_gib_and_noted_in_bytes(make_node: MakeNode, size: int, gib: int) -> None:
    """The kernel's half of memory differs by pages from node to node."""
    answer = read(make_node, space={"/dev/shm": [size, 0]})
    assert (gib, size) == (answer.facts["dev_shm_gib"], answer.notes["dev_shm_bytes"])


def test_node_without_shared_memory_says_so(make_node: MakeNode) -> None:
    """A container without /dev/shm is not examined there, and not partial."""
    answer = read(make_node, space={})
    assert ("ok", None) == (answer.status, answer.facts["dev_shm_gib"])
    assert {"/dev/shm", "/tmp"} == set(answer.notes["not_examined"])


@pytest.mark.parametrize(
    ("name", "status"),
    [("healthy-h100", "ok"), ("cpu-only", "ok"), ("garbled", "partial"), ("denied-and-hanging", "partial")],
)
def test_fake_node_has_its_status(fake_node: Callable[[str], Context], name: str, status: str) -> None:
    """Healthy, other, garbled and denied limits are told apart."""
    assert status == limits.read(fake_node(name)).status
