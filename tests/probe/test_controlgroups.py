"""Limits of control groups: the smallest on the way to the root, in v1 and v2, and what cannot be seen."""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from envaudit.probe.context import Context
from envaudit.probe.controlgroups import ControlGroups

MakeNode = Callable[..., Context]
Files = Dict[str, "str | bytes"]

TOP = "/sys/fs/cgroup"
SLURM = "/system.slice/slurmstepd.scope/job_7/step_0"
GIB = 1 << 30


def told(context: Context) -> Dict[str, Any]:
    """All that the groups say."""
    groups = ControlGroups(context)
    return {
        "cpu": groups.cpu_quota_millicpus(),
        "memory": groups.memory_max_bytes(),
        "high": groups.memory_high_bytes(),
        "swap": groups.swap_max_bytes(),
        "pids": groups.pids_max(),
        "cpus": groups.cpus(),
    }


def unified(path: str = SLURM, **files: str) -> Files:
    """A node of cgroup v2 whose process is in one group; files by their path, `__` for a slash."""
    groups = {f"{TOP}/{name.replace('__', '/')}": text for name, text in files.items()}
    return {
        "/proc/self/cgroup": f"0::{path}\n",
        f"{TOP}/cgroup.procs": "",
        f"{TOP}{path.rstrip('/')}/cgroup.procs": "",
        **groups,
    }


def test_limit_of_a_parent_holds_where_it_is_smaller(make_node: MakeNode) -> None:
    """A step that is allowed all is in a job that is not; the root has no files of limits."""
    files = {
        f"{TOP}{SLURM}/memory.max": "max\n",
        f"{TOP}{SLURM}/memory.high": f"{GIB}\n",
        f"{TOP}{SLURM}/cpu.max": "800000 100000\n",
        f"{TOP}{SLURM}/pids.max": "9000\n",
        f"{TOP}/system.slice/slurmstepd.scope/job_7/memory.max": f"{2 * GIB}\n",
        f"{TOP}/system.slice/slurmstepd.scope/memory.max": f"{3 * GIB}\n",
        f"{TOP}/system.slice/memory.swap.max": "0\n",
        f"{TOP}/system.slice/cpu.max": "75000 50000\n",
        f"{TOP}/system.slice/pids.max": "max\n",
        f"{TOP}{SLURM}/cpuset.cpus.effective": "8-15\n",
        f"{TOP}/cpuset.cpus.effective": "0-63\n",
    }
    expected = {"cpu": 1500, "memory": 2 * GIB, "high": GIB, "swap": 0, "pids": 9000, "cpus": 8}
    assert expected == told(make_node({**unified(), **files}))


def test_group_at_the_root_of_its_namespace_has_the_limits_of_the_container(make_node: MakeNode) -> None:
    """A pod: the path is `/`, and the files of its group lie at the top."""
    files = {"/proc/self/cgroup": "0::/\n", f"{TOP}/cgroup.procs": ""}
    files.update({f"{TOP}/memory.max": f"{GIB}\n", f"{TOP}/cpu.max": "400000 100000\n"})
    found = told(make_node(files))
    assert (4000, GIB, "unlimited") == (found["cpu"], found["memory"], found["pids"])


def test_no_limit_anywhere_is_unlimited(make_node: MakeNode) -> None:
    """A workstation: there are groups, and none has a limit."""
    found = told(make_node(unified("/user.slice")))
    assert {"cpu", "memory", "high", "swap", "pids"} == {
        name for name, value in found.items() if value == "unlimited"
    }


def test_hybrid_node_has_each_controller_in_one_of_its_hierarchies(make_node: MakeNode) -> None:
    """`cgroup_no_v1=memory`: threads in v1, memory in v2, which is mounted beside it."""
    files = {
        "/proc/self/cgroup": "2:pids:/jobs\n1:name=systemd:/\n0::/job_7\n",
        f"{TOP}/pids/cgroup.procs": "",
        f"{TOP}/pids/jobs/pids.max": "900\n",
        f"{TOP}/unified/cgroup.procs": "",
        f"{TOP}/unified/job_7/cgroup.procs": "",
        f"{TOP}/unified/job_7/memory.max": f"{GIB}\n",
    }
    found = told(make_node(files))
    assert (GIB, 900, "unlimited") == (found["memory"], found["pids"], found["cpu"])


def test_hierarchies_of_v1_are_read_each_by_its_own_path(make_node: MakeNode) -> None:
    """Memory's "no limit" is a number of v1, and a quota of -1 is none."""
    files: Files = {
        "/proc/self/cgroup": "9:name=systemd:/\n5:memory:/a/b\n4:cpu,cpuacct:/a\n3:pids:/\n2:cpuset:/a\n",
        f"{TOP}/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
        f"{TOP}/memory/a/memory.limit_in_bytes": f"{GIB}\n",
        f"{TOP}/memory/memory.limit_in_bytes": "9223372036854771712\n",
        f"{TOP}/cpu/a/cpu.cfs_quota_us": "250000\n",
        f"{TOP}/cpu/a/cpu.cfs_period_us": "100000\n",
        f"{TOP}/cpu/cpu.cfs_quota_us": "-1\n",
        f"{TOP}/cpu/cpu.cfs_period_us": "100000\n",
        f"{TOP}/cpuset/a/cpuset.cpus": "0,2\n",
        **{f"{TOP}/{name}/cgroup.procs": "" for name in ("memory", "cpu", "pids", "cpuset")},
    }
    expected = {"cpu": 2500, "memory": GIB, "high": None, "swap": None, "pids": "unlimited", "cpus": 2}
    assert expected == told(make_node(files))


def test_container_of_v1_whose_path_is_the_hosts_has_its_limits_at_the_top(make_node: MakeNode) -> None:
    """Docker names the host's path, and mounts the container's own group alone."""
    files: Files = {
        "/proc/self/cgroup": "5:memory:/docker/0123\n",
        f"{TOP}/memory/memory.limit_in_bytes": f"{GIB}\n",
        f"{TOP}/memory/cgroup.procs": "1\n",
    }
    assert GIB == told(make_node(files))["memory"]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"/proc/self/cgroup": f"0::{SLURM}\n"},
        {"/proc/self/cgroup": "0::/../x\n", f"{TOP}/cgroup.procs": "", f"{TOP}/memory.max": "5\n"},
        {"/proc/self/cgroup": f"0::{'/a' * 40}\n", f"{TOP}/cgroup.procs": "", f"{TOP}/memory.max": "5\n"},
        # The group is named and not there, and the top has nothing to say of it.
        {"/proc/self/cgroup": "0::/gone\n", f"{TOP}/cgroup.procs": ""},
        unified("/a", **{"a__memory.max": "a lot\n"}),
        unified("/a", **{"a__memory.max": "9" * 5000}),
        unified("/a", **{"a__memory.max": "-5\n"}),
        # Without cgroup.procs the top is a plain tmpfs: a node of v1 that has v2 beside it.
        {"/proc/self/cgroup": "0::/a\n", f"{TOP}/a/memory.max": "5\n"},
    ],
)
def test_limit_that_cannot_be_told_is_unknown(make_node: MakeNode, files: Files) -> None:
    """Absent, outside of the namespace, too deep, garbled: never unlimited."""
    assert told(make_node(files))["memory"] is None


def test_limit_that_may_not_be_read_is_unknown(make_node: MakeNode) -> None:
    """A smaller one may stand there."""
    files = unified("/a", **{"a__memory.max": "5\n", "memory.max": "9\n"})
    assert told(make_node(files, denied=[f"{TOP}/a/memory.max"]))["memory"] is None


@pytest.mark.parametrize("text", ["max\n", "5\n", "100 0\n", "x 100000\n", "1 2 3\n", ""])
def test_quota_that_is_none_is_unknown(make_node: MakeNode, text: str) -> None:
    """A period is needed, and it is not zero."""
    assert told(make_node(unified("/a", **{"a__cpu.max": text})))["cpu"] is None
