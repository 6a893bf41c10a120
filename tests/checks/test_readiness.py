"""What is said before anything is launched: of torch, of the driver, of torch's own kernels."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envaudit.checks import readiness
from envaudit.checks.readiness import Unusable


def torch_that_says(**said: Any) -> Any:
    """As much of torch as readiness asks."""
    values = {"available": False, "count": 0, "cuda": "13.0", "driver": 13000, "warning": "", **said}

    def is_available() -> bool:
        if values["warning"]:
            warnings.warn(values["warning"], stacklevel=1)
        return bool(values["available"])

    return SimpleNamespace(
        __version__="2.13.0",
        version=SimpleNamespace(cuda=values["cuda"], hip=None),
        cuda=SimpleNamespace(is_available=is_available, device_count=lambda: values["count"]),
        _C=SimpleNamespace(_cuda_getDriverVersion=lambda: values["driver"]),
    )


def test_machine_without_gpu_is_tried_on_its_cpu() -> None:
    """That is no fault, and is said by the device's name."""
    assert 0 == readiness.device_count(torch_that_says(), 0)


def test_gpus_that_torch_sees_are_counted() -> None:
    """By torch, not by device nodes: variables hide some."""
    assert 3 == readiness.device_count(torch_that_says(available=True, count=3), 8)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"cuda": None}, "torch 2.13.0 is a build for the CPU, and the machine has 8 GPUs"),
        ({"driver": 12040}, "the driver knows CUDA 12.4, torch is built for 13.0"),
        (
            {"warning": "CUDA initialization: CUDA unknown error - this may be due to ..."},
            "torch sees none of the machine's 8 GPUs: CUDA initialization: CUDA unknown error",
        ),
        ({}, "no reason given"),
    ],
)
def test_gpus_that_torch_cannot_use_are_told_with_the_reason(
    said: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of a CUDA error, or of a silent run on the CPU."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(Unusable) as raised:
        readiness.device_count(torch_that_says(**said), 8)
    assert words in str(raised.value)


def test_variable_that_hides_all_gpus_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the commonest reason of all."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(Unusable, match="CUDA_VISIBLE_DEVICES='' hides the machine's 1 GPU"):
        readiness.device_count(torch_that_says(), 1)


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (["sm_80", "sm_90"], (9, 0), True),
        (["sm_80"], (8, 6), True),
        (["sm_86"], (8, 0), False),
        (["sm_80", "sm_90"], (10, 0), False),
        (["sm_80", "compute_90"], (10, 0), True),
        (["sm_90a"], (9, 0), True),
        (["sm_90a"], (10, 0), False),
        (["sm_100f"], (10, 3), True),
        (["sm_100f"], (12, 0), False),
        (["sm_100", "sm_120"], (12, 0), True),
        (["compute_90"], (8, 0), False),
        ([], (9, 0), True),
    ],
)
def test_kernels_for_a_capability(architectures: Any, capability: Any, runs: bool) -> None:
    """Same major and a lower minor, PTX of an older one, letters exactly."""
    assert runs == (readiness.without_kernels(architectures, capability) is None)


@pytest.mark.parametrize("call", ["set_device", "synchronize"])
def test_gpu_that_refuses_its_context_is_told_with_the_reason_alone(call: str) -> None:
    """A card in exclusive mode that has its process: torch's text ends with how to debug a kernel."""

    def refuse(ordinal: int) -> None:
        raise RuntimeError(
            "CUDA error: CUDA-capable device(s) is/are busy or unavailable\n"
            "CUDA kernel errors might be asynchronously reported at some other API call.\n"
            "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
        )

    calls = {"set_device": lambda ordinal: None, "synchronize": lambda ordinal: None, call: refuse}
    cuda = SimpleNamespace(
        get_arch_list=lambda: ["sm_90"], get_device_capability=lambda ordinal: (9, 0), **calls
    )
    with pytest.raises(Unusable) as raised:
        readiness.check_device(SimpleNamespace(version=SimpleNamespace(hip=None), cuda=cuda), 3)
    assert "CUDA error: CUDA-capable device(s) is/are busy or unavailable" == str(raised.value)


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"], 2),
        (["kfd", "dri/renderD128", "dri/renderD129", "dri/card0"], 2),
        (["dri/renderD128"], 0),
        ([], 0),
    ],
)
def test_gpus_of_a_machine_are_counted_by_device_nodes(names: Any, count: int, tmp_path: Path) -> None:
    """A render node without AMD's compute driver is somebody's display."""
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert count == readiness.gpus_of_machine(str(tmp_path))


def test_file_that_others_can_write_is_told(tmp_path: Path) -> None:
    """As root, to import it would be to run their code."""
    path = tmp_path / "torch.py"
    path.touch(mode=0o644)
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
        assert readiness.writable_by_others(str(path)) == f"{path} belongs to user 12345"
    else:
        assert str(readiness.writable_by_others(str(path))).endswith(f"belongs to user {os.geteuid()}")
