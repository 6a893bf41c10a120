"""Public cases S07, S15, S17 and S18: the driver, the fabric, MIG and forward compatibility."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from tests.cases.nodes import A100, L40S, RTX_4090, USUAL, findings, node, said

OLD_DRIVER = {"gpu/driver": "535.154.05", "gpu/cuda": "12.2", "cuda/libcuda/version": "535.154.05"}


def test_fabric_that_some_gpus_have_not_joined_fails_and_the_driver_does_not() -> None:
    """pytorch/pytorch 150852, NVIDIA/nccl 976: 'invalid argument' in NVLS, and the driver was blamed."""
    shape = USUAL._replace(torch="2.7.1")
    waiting = {"gpu/devices": {"3": {"fabric_state": "in progress"}, "5": {"fabric_state": "in progress"}}}
    failing = [node(f"n{n}", shape, {**OLD_DRIVER, **waiting}) for n in (1, 2, 3)]
    passing = [node(f"n{n}", shape, OLD_DRIVER) for n in (4, 5)]
    found = findings(*failing, *passing)
    assert [("error", "EA345", ("n1", "n2", "n3"))] == [each for each in said(found) if each[0] == "error"]
    assert {"EA345", "EA333"} == {each.rule for each in found}


def test_build_of_a_newer_minor_on_an_older_driver_passes() -> None:
    """The same thread: CUDA 12.6 on driver 535 is what minor-version compatibility is for."""
    assert [("info", "EA333", ("n1",))] == said(findings(node("n1", facts=OLD_DRIVER)))


def test_fabric_manager_of_another_release_than_the_driver_fails() -> None:
    """dstackai/dstack 2348: error 802 on NVSwitch hosts."""
    facts: Dict[str, Any] = {
        "gpu/fabric_manager/version": "535.183.01",
        "gpu/each/fabric_state": "not started",
    }
    found = findings(node("n1", facts=facts))
    assert [("error", "EA347", ("n1",))] == said(found)
    assert "535.183.01" in found[0].message
    assert "570.124.06" in found[0].message


def test_fabric_manager_is_not_asked_for_on_pcie_cards() -> None:
    """wilicc/gpu-burn 92: one driver, HBM3 boards fail and PCIe cards pass: there is no fabric."""
    assert [] == findings(node("n1", USUAL._replace(card=L40S), {"gpu/fabric_manager": None}))


MIG = {"gpu/each/mig": "enabled", "gpu/each/mig_pending": "enabled", "gpu/each/mig_instances": {"3g.40gb": 2}}
ONE_A100 = USUAL._replace(card=A100, gpus=1, fabric="ethernet")


def test_mig_warns_and_its_instances_are_no_gpus() -> None:
    """pytorch/pytorch 130181: one A100 in two slices, and an assertion about the number of devices."""
    one = node("n1", ONE_A100, MIG)
    found = findings(one)
    assert [("warning", "EA325", ("n1",))] == said(found)
    assert 1 == one.sections["gpu"].facts["count"]
    assert "2 x 3g.40gb" in " ".join(found[0].evidence)


def test_mig_on_some_nodes_only_fails() -> None:
    """The same: nodes with and without it."""
    nodes = [node(f"n{n}", ONE_A100) for n in (1, 2)]
    assert [("error", "EA302", ("n3",))] == said(findings(*nodes, node("n3", ONE_A100, MIG)))


COMPAT = "/usr/local/cuda/compat/libcuda.so.1"
CONTAINER = USUAL._replace(container="docker", launch="exec", fabric="ethernet", gpus=2)


@pytest.mark.parametrize(("card", "severity"), [(RTX_4090, "error"), (L40S, "info")])
def test_forward_compatibility_fails_on_gpus_that_do_not_support_it(card: Any, severity: str) -> None:
    """gpustack/gpustack 1254: error 804, a consumer GPU and newer libraries under cuda-compat."""
    facts: Dict[str, Any] = {
        "gpu/driver": "535.129.03",
        "gpu/cuda": "12.2",
        "cuda/compat": True,
        "cuda/libcuda": {
            "path": COMPAT,
            "version": "550.54.15",
            "origin": "cuda-compat",
            "via": "ld.so.conf",
        },
    }
    shape = CONTAINER._replace(card=card, torch="2.5.1")
    found = findings(node("n1", shape, facts))
    assert [severity] == [each.severity for each in found if each.severity != "info" or severity == "info"]
    (finding,) = [each for each in found if each.severity == severity]
    assert COMPAT in " ".join([finding.message, *finding.evidence])
