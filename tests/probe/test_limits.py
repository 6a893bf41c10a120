"""Limits as the launched process has them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from typing import Any, Callable, Dict

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.runner import probe
from envaudit.probe.sections import limits

MakeNode = Callable[..., Context]

_ROWS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max cpu time              unlimited            3600                 seconds   \n"
    "Max file size             unlimited            unlimited            bytes     \n"
    "Max data size             unlimited            unlimited            bytes     \n"
    "Max address space         8589934592           unlimited            bytes     \n"
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
        "address_space_bytes": {"soft": 8589934592, "hard": "unlimited"},
        "cpu_s": {"soft": "unlimited", "hard": 3600},
    }
    assert expected == {name: facts[name] for name in expected}


def test_limit_of_processes_that_follows_memory_is_told_by_its_name(make_node: MakeNode) -> None:
    """Two alike nodes differ in the kernel's default by a handful: no drift, the number is a note."""
    answer = read(make_node, {"/proc/sys/kernel/threads-max": "192729\n"})
    assert {"soft": "kernel default", "hard": 200000} == answer.facts["nproc"]
    assert {"soft": 96364, "hard": 200000} == answer.notes["nproc"]


def test_limit_of_processes_handed_on_from_a_node_alike_is_its_default(make_node: MakeNode) -> None:
    """Slurm takes the limits of the submitting shell along, whose node has some pages more."""
    answer = read(make_node, {"/proc/sys/kernel/threads-max": "192700\n"})
    assert {"soft": "kernel default", "hard": 200000} == answer.facts["nproc"]
    assert {"soft": 96364, "hard": 200000} == answer.notes["nproc"]


@pytest.mark.parametrize(
    ("mask", "expected"), [(0, False), (1 << 14, True), (0x1FFFFFFFFFF, True), (1 << 13, False)]
)
def test_right_to_lock_memory_is_one_capability(make_node: MakeNode, mask: int, expected: bool) -> None:
    """With CAP_IPC_LOCK the limit on locked memory does not matter."""
    answer = read(make_node, {"/proc/self/status": _STATUS.format(mask)})
    assert expected is answer.facts["cap_ipc_lock"]


def test_rights_and_processors_are_those_of_the_process(make_node: MakeNode) -> None:
    """Two of the four processors that are online, one of two NUMA nodes; which ones are notes."""
    files: Dict[str, str | bytes] = {
        "/proc/self/status": _STATUS.format(1 << 23)
        + "Umask:\t0027\nSeccomp:\t2\nCpus_allowed_list:\t1,3\nMems_allowed_list:\t1\n",
        "/proc/self/stat": "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 25 5 1 " + "0 " * 20 + "3 0 0\n",
        "/proc/self/numa_maps": "55d0a000 bind=static:1 file=/usr/bin/python3 mapped=2\n",
        "/sys/devices/system/cpu/online": "0-3\n",
        "/sys/devices/system/node/online": "0-3\n",
        "/sys/devices/system/node/has_memory": "0-1\n",
    }
    answer = read(make_node, files)
    expected = {
        "cap_sys_nice": True,
        "seccomp": "filter",
        "umask": "0027",
        "cpus": 2,
        "numa_nodes": 1,
        "memory_policy": "bind",
        "nice": 5,
        "scheduler": "batch",
    }
    assert expected == {name: answer.facts[name] for name in expected}
    assert ("1,3", "1") == (answer.notes["cpus"], answer.notes["numa_nodes"])


@pytest.mark.parametrize(
    ("allowed", "online", "expected"),
    [
        ("0-3", "0-3", "all"),
        # Of processors that may be plugged in later, all are allowed: sched_getaffinity leaves them out.
        ("0-127", "0-3", "all"),
        ("0-7", "0,4-11", 5),
        ("0-7", "", 8),
        ("", "0-3", None),
        ("all", "0-3", None),
    ],
)
def test_share_of_processors_is_counted_among_those_online(
    make_node: MakeNode, allowed: str, online: str, expected: object
) -> None:
    """All is told by its name, so that nodes with other processors differ in these alone."""
    status = _STATUS.format(0) + f"Cpus_allowed_list:\t{allowed}\n"
    files: Dict[str, str | bytes] = {"/proc/self/status": status, "/sys/devices/system/cpu/online": online}
    assert expected == read(make_node, files).facts["cpus"]


def test_what_the_kernel_does_not_tell_is_unknown_and_the_node_not_partial(make_node: MakeNode) -> None:
    """An old kernel, or a container without the files."""
    answer = read(make_node)
    names = ("umask", "seccomp", "cpus", "numa_nodes", "memory_policy", "nice", "scheduler")
    assert ("ok", [None] * 7) == (answer.status, [answer.facts[name] for name in names])
    assert answer.facts["cpu_quota_millicpus"] is None


def test_process_that_was_started_otherwise_says_so() -> None:
    """A mask, a priority and a processor that whoever starts the work has chosen."""
    code = (
        "import json, os; from envaudit.probe.runner import probe; os.umask(0o027); os.nice(3);"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "print(json.dumps(probe({'sections': ['limits']})['sections'][0]['facts']))"
    )
    here = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    facts = json.loads(here.stdout)
    alone = "all" if os.cpu_count() == 1 else 1
    assert ("0027", os.nice(0) + 3, alone) == (facts["umask"], facts["nice"], facts["cpus"])


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
