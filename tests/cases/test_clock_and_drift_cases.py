"""Public cases S01 to S06: clocks that are apart, and packages that are not the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

from envaudit.model import Fingerprint, Section
from envaudit.model.clockoffset import against_median, offset_of
from envaudit.rules import Policy
from tests.cases.nodes import T4, USUAL, findings, node, said, with_note
from tests.cli.conftest import Folder
from tests.cli.stored import write_snapshot

MILLISECOND = 1_000_000


def clock(name: str, offset_ms: int, bound_ms: float = 0.2, **facts: Any) -> Fingerprint:
    """A node whose clock was measured along the way."""
    offset = {"run": "r1", "offset_ns": offset_ms * MILLISECOND, "bound_ns": int(bound_ms * MILLISECOND)}
    made = node(name, facts={f"clock/{key}": value for key, value in facts.items()})
    return with_note(made, "clock", against_controller=offset)


def test_clocks_apart_by_more_than_a_second_fail_and_by_less_warn() -> None:
    """awslabs/awsome-distributed-ai 180: dates of all nodes are to be within a second."""
    found = findings(clock("n1", 0), clock("n2", 400), clock("n3", 1600))
    assert [("error", "EA150", ("n3",)), ("warning", "EA152", ("n1",))] == said(found)
    assert "+1.200 s ± 0.400 ms from the median of 3 clocks" in found[0].evidence[0]


def test_offset_that_may_be_the_measurement_s_own_is_no_failure() -> None:
    """The same thread: asking three nodes for their dates at once is itself a second apart."""
    found = findings(clock("n1", 0, 900), clock("n2", 400, 900), clock("n3", 1600, 900))
    assert [("info", "EA157", ("n1", "n2", "n3"))] == said(found)


def test_clock_threshold_is_the_policy_s() -> None:
    """The same thread: a site that bears two seconds says so."""
    policy = Policy(thresholds={"EA150": {"offset_s": 2}, "EA152": {"offset_s": 1}})
    found = findings(clock("n1", 0), clock("n2", 400), clock("n3", 1600), policy=policy)
    assert [("warning", "EA152", ("n3",))] == said(found)


def test_no_time_service_warns_while_the_clock_is_right() -> None:
    """elasticluster/elasticluster 380: Slurm turned away nodes of a cluster without NTP."""
    free: Dict[str, Any] = {"service": "none", "synchronised": False}
    found = findings(clock("n1", 0, **free), clock("n2", 3, **free), clock("n3", 1, **free))
    assert [("warning", "EA154", ("n1", "n2", "n3"))] == said(found)


def test_no_time_service_fails_once_the_clock_is_off() -> None:
    """The same: the offset that was measured is the error, and the missing service its cause."""
    free: Dict[str, Any] = {"service": "none", "synchronised": False}
    found = findings(clock("n1", 0, **free), clock("n2", 900, **free), clock("n3", 1, **free))
    assert [("error", "EA151", ("n2",)), ("warning", "EA154", ("n1", "n3"))] == said(found)


def test_clocks_that_are_right_pass_whatever_an_application_says() -> None:
    """cBio/cbio-cluster 302: a log spoke of minutes, and every measured offset was of milliseconds."""
    nodes = [clock("gpu-3-7", 0), clock("gpu-3-8", 2), clock("gpu-3-9", 1)]
    assert [] == findings(*nodes)
    measured = {each.node: offset_of(each) for each in nodes}
    told = against_median({name: offset for name, offset in measured.items() if offset is not None})
    assert [-1, 1, 0] == [offset.offset_ns // MILLISECOND for offset in told.values()]


def with_nccl(name: str, version: str) -> Fingerprint:
    """A node of four V100 with a torch of its time, linked with an NCCL of its own."""
    return node(
        name,
        USUAL._replace(
            gpus=4, card=T4._replace(product="Tesla V100-SXM2-32GB", capability="7.0", memory_gib=32)
        ),
        {
            "torch/version": "1.4.0",
            "torch/cuda": "10.1",
            "torch/architectures": ["sm_37", "sm_50", "sm_60", "sm_70"],
            "packages/distributions": {"torch": {"version": "1.4.0", "installer": "pip"}},
            "libraries": {
                "missing": [],
                "copies": {},
                "nccl": {"path": "/opt/nccl/lib/libnccl.so.2", "version": version, "origin": "environment"},
            },
        },
    )


def test_nccl_that_differs_on_one_of_four_nodes_fails_and_names_it() -> None:
    """NVIDIA/nccl 354: four times four V100 hung; whether NCCL was the same was the first question."""
    nodes = [*(with_nccl(f"node{n}", "2.5.6") for n in (1, 2, 3)), with_nccl("node4", "2.5.7")]
    (finding,) = findings(*nodes)
    assert ("error", "EA214", ("node4",)) == said([finding])[0]
    assert [("2.5.6", 3), ("2.5.7", 1)] == [
        (group.value, len(group.nodes)) for group in finding.drifts[0].groups
    ]


def with_package(name: str, package: str, version: str) -> Fingerprint:
    """The usual node with one package more."""
    return node(name, USUAL._replace(packages={package: version}))


def test_package_that_ranks_exchange_with_fails_where_it_differs() -> None:
    """ray-project/ray 1263: cloudpickle 0.5.2 beside 0.2.2, a start without a fault and no worker alive."""
    nodes = [
        *(with_package(f"w{n}", "cloudpickle", "0.5.2") for n in (1, 2)),
        with_package("w3", "cloudpickle", "0.2.2"),
    ]
    assert [("error", "EA215", ("w3",))] == said(findings(*nodes))


def test_package_that_need_not_match_warns_where_it_differs() -> None:
    """The same, of a package that is on no list."""
    nodes = [
        *(with_package(f"w{n}", "einops", "0.8.0") for n in (1, 2)),
        with_package("w3", "einops", "0.7.0"),
    ]
    assert [("warning", "EA216", ("w3",))] == said(findings(*nodes))


def ray_cluster(head: str, workers: str) -> List[Fingerprint]:
    """A head from an image without CUDA, and two workers from another image."""
    plain = USUAL._replace(gpus=0, fabric="ethernet", packages={"ray": head})
    image = USUAL._replace(packages={"ray": workers})
    return [node("head", plain), *(node(f"worker{n}", image) for n in (1, 2))]


ROLES = '[roles.head]\nhosts = "head"\n'


def test_head_of_another_role_misses_no_gpu(tmp_path: Path) -> None:
    """gpustack/gpustack 2691: a head without GPUs is another role."""
    folder = Folder(tmp_path)
    (tmp_path / "envaudit.toml").write_text(ROLES)
    write_snapshot(tmp_path / "all.json", ray_cluster("2.9.0", "2.9.0"))
    ended = folder.run("diff", "all.json", "--format", "json")
    assert (0, "PASS", []) == (ended.code, ended.json["verdict"], ended.json["findings"])


def test_ray_that_differs_between_head_and_workers_fails_across_roles(tmp_path: Path) -> None:
    """The same: two images of two versions, and Python with them; the missing GPU is no part of it."""
    folder = Folder(tmp_path)
    (tmp_path / "envaudit.toml").write_text(ROLES)
    head, *workers = ray_cluster("2.8.1", "2.9.0")
    python = head.sections["python"]
    facts = {**python.facts, "version": "3.10.14", "soabi": "cpython-310-x86_64-linux-gnu"}
    head.sections["python"] = Section("python", 1, "ok", facts)  # type: ignore[index]
    write_snapshot(tmp_path / "all.json", [head, *workers])
    ended = folder.run("diff", "all.json", "--format", "json")
    assert 1 == ended.code
    assert [("error", "EA211", ["head"]), ("error", "EA215", ["head"])] == [
        (each["severity"], each["rule"], each["nodes"]) for each in ended.json["findings"]
    ]
