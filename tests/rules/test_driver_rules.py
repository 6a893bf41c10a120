"""EA330 to EA342: the driver, cuda-compat, and the GPUs that torch has code for."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from envaudit.rules import Policy
from envaudit.rules.architectures import codes_of, runs_on
from tests.diff.nodes import fingerprint
from tests.rules.gpunodes import ARCHITECTURES, Fakes, brief, found, words

H100: Dict[str, Any] = {"product": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}
COMPAT = {"path": "/usr/local/cuda/compat/libcuda.so.1", "origin": "cuda-compat", "via": "LD_LIBRARY_PATH"}


def node(
    driver: str = "550.54.15",
    cuda: str = "12.4",
    torch: str = "12.4",
    *,
    product: str = "NVIDIA H100 80GB HBM3",
    capability: str = "9.0",
    architectures: Any = ARCHITECTURES,
    compat: str = "",
    platform: str = "linux",
    libcuda: str = "",
) -> Any:
    """A node of which only driver, card and torch are told."""
    each = {"product": product, "compute_capability": capability}
    own = {
        "path": "/usr/lib/libcuda.so.1",
        "version": libcuda or driver,
        "origin": "system",
        "via": "default",
    }
    library = {**COMPAT, "version": compat} if compat else own
    return fingerprint(
        "a",
        gpu={
            "platform": platform,
            "driver": driver,
            "cuda": cuda,
            "count": 8,
            "each": each,
            "devices": {},
            "module": "as driver",
            "nvml": "as driver",
        },
        cuda={"libcuda": library, "compat": bool(compat)},
        torch={"version": "2.4.1", "cuda": torch, "hip": None, "architectures": architectures},
    )


@pytest.mark.parametrize(
    ("driver", "torch", "expected"),
    [
        # By CUDA's major from 11 on.
        ("450.80.02", "11.8", "EA333"),
        ("450.51.06", "11.8", "EA330"),
        ("525.60.13", "12.9", "EA333"),
        ("525.53", "12.1", "EA330"),
        ("520.61.05", "12.1", "EA330"),
        ("580.65.06", "13.2", "EA333"),
        ("575.57.08", "13.0", "EA330"),
        # By its own floor before.
        ("440.33.01", "10.2", ""),
        ("440.33.01", "10.1", ""),
        ("418.87.00", "10.2", "EA330"),
        # A newer driver is always fine.
        ("580.95.05", "11.8", ""),
        ("610.43.02", "10.2", ""),
        ("550.54.15", "12.4", ""),
        # Nobody has said yet what it needs.
        ("610.43.02", "15.0", ""),
    ],
)
def test_driver_is_held_against_the_floor_of_torch_s_cuda(driver: str, torch: str, expected: str) -> None:
    """Between the floor and the toolkit's own driver it is a remark."""
    rules = [one.rule for one in found([node(driver, "", torch)])]
    assert ([expected] if expected else []) == rules


def test_driver_too_old_is_an_error_with_both_numbers(fakes: Fakes) -> None:
    """On a fake node: what the driver is, what it must be, and what to do."""
    (finding,) = found([fakes.node("a", torch={"cuda": "13.0"})], beside=["EA342"])
    assert ("EA330", "error", "the driver is 550.54.15, and CUDA 13.0 needs 580.65.06 or newer") == words(
        [finding]
    )[0]
    assert "Update the driver, or install a torch built for CUDA 12.4." == finding.hint


def test_driver_under_wsl_is_judged_by_the_cuda_that_it_runs() -> None:
    """Windows numbers its drivers otherwise."""
    assert [] == found([node("531.61", "12.1", "12.4", platform="wsl")])
    (finding,) = found([node("531.61", "12.1", "13.0", platform="wsl")], beside=["EA342"])
    assert ("EA330", "the driver runs CUDA 12.1 at most, and torch is built for 13.0") == (
        finding.rule,
        finding.message,
    )


def test_driver_of_a_jetson_has_no_floor() -> None:
    """Its releases are JetPack's."""
    assert [] == found([node("540.3.0", "12.2", "12.4", platform="tegra", capability="9.0")])


@pytest.mark.parametrize(
    ("other", "rule", "message"),
    [("550.54.14", "EA331", "driver differs"), ("570.124.06", "EA332", "driver branch differs")],
)
def test_driver_that_differs_is_one_warning_with_all_that_follows(
    fakes: Fakes, other: str, rule: str, message: str
) -> None:
    """Module, libraries and CUDA are the driver's own."""
    system = {"driver": other, "nvml": f"12.{other}", "cuda": 12080}
    firmware = {"*": {"gsp_firmware": other, "memory_bytes": 85520809985}}
    text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {other}  Tue Mar  5 22:23:56 UTC 2024\n"
    files = {"/proc/driver/nvidia/version": text}
    said = {"/usr/bin/nv-fabricmanager --version": f"Fabric Manager version is : {other}\n"}
    odd = fakes.node("c", system=system, facts=firmware, files=files, commands=said)
    nodes = [*fakes.nodes(["a", "b"]), odd]
    (finding,) = found(nodes, beside=["EA334"])
    assert (rule, "warning", ("c",), message) == (*brief([finding])[0], finding.message)
    assert "gpu/cuda" in [drift.path for drift in finding.following]
    level = {"EA331": "warning", "EA332": "error"}[rule]
    assert [level] == [one.severity for one in found(nodes, Policy(profile="strict"), beside=["EA334"])]
    assert ["info"] == [one.severity for one in found(nodes, Policy(profile="lenient"), beside=["EA334"])]


def test_module_of_another_version_than_the_library_is_an_error_and_not_no_gpu(fakes: Fakes) -> None:
    """After an update: NVML refuses, both versions are known."""
    (finding,) = found(
        [fakes.node("a", system={"init": 18, "nvml": "12.550.90.07", "errors": ["NVML: 18"]})], beside=[]
    )
    assert ("EA334", "error", "kernel module 550.54.15, libnvidia-ml 550.90.07") == words([finding])[0]
    assert finding.hint.startswith("Reboot, or reload the module")


def test_module_of_another_version_on_one_node_is_that_finding_alone(fakes: Fakes) -> None:
    """The library's version beside the others' says nothing more."""
    odd = fakes.node("c", system={"init": 18, "nvml": "12.550.90.07", "errors": ["NVML: 18"]})
    findings = found([*fakes.nodes(["a", "b"]), odd], beside=[])
    assert [("EA334", "error", ("c",))] == brief(findings)


def test_libcuda_of_another_version_than_the_module_is_an_error_unless_it_is_compat() -> None:
    """cuda-compat is meant to be another."""
    findings = found([node(libcuda="550.90.07")])
    assert [("EA334", "error", "kernel module 550.54.15, libcuda 550.90.07")] == words(findings)
    assert "EA334" not in [one.rule for one in found([node(compat="560.35.05")])]


@pytest.mark.parametrize(
    ("product", "rule", "severity"),
    [
        ("NVIDIA H100 80GB HBM3", "EA338", "info"),
        ("NVIDIA A100-SXM4-80GB", "EA338", "info"),
        ("Tesla V100-SXM2-32GB", "EA338", "info"),
        ("NVIDIA L40S", "EA338", "info"),
        ("NVIDIA GeForce RTX 4090", "EA337", "error"),
        ("NVIDIA TITAN RTX", "EA337", "error"),
        ("NVIDIA RTX A6000", "EA337", "warning"),
    ],
)
def test_cuda_compat_is_judged_by_the_card(product: str, rule: str, severity: str) -> None:
    """Data-centre cards support it, GeForce and TITAN never; the finding names the path."""
    (finding,) = found([node("535.129.03", "12.2", "12.4", compat="550.54.15", product=product)])
    assert (rule, severity) == (finding.rule, finding.severity)
    assert COMPAT["path"] in f"{finding.message}{finding.evidence}"


def test_cuda_compat_lets_a_newer_torch_run_on_a_data_centre_card() -> None:
    """The floor is held against the libcuda that is loaded."""
    old = node("470.57.02", "11.4", "12.4")
    assert ["EA330"] == [one.rule for one in found([old])]
    assert ["EA338"] == [one.rule for one in found([node("470.57.02", "11.4", "12.4", compat="550.54.15")])]


def test_cuda_compat_older_than_the_driver_is_a_warning() -> None:
    """An old image on an updated host."""
    (finding,) = found([node("580.95.05", "13.0", "12.4", compat="550.54.15")])
    message = "libcuda of cuda-compat is 550.54.15, older than the driver 580.95.05"
    assert ("EA338", "warning", message) == words([finding])[0]


def test_gpus_without_a_driver_are_an_error(fakes: Fakes) -> None:
    """The bus shows them, and no module is loaded; in a container nothing is said."""
    gone = {"/proc/driver/nvidia": None, "/dev/nvidiactl": None, "/dev/nvidia-uvm": None}
    findings = found([fakes.node("a", system={"init": 9}, files=gone)])
    assert [("EA335", "error", "2 GPUs on the PCI bus, and no NVIDIA driver is loaded")] == words(findings)


@pytest.mark.parametrize(
    ("code", "device", "expected"),
    [
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_100f", (10, 3), True),
        ("sm_103f", (10, 0), False),
        ("sm_120", (12, 1), True),
        ("compute_90", (12, 0), True),
        ("compute_90a", (12, 0), False),
        ("compute_100f", (12, 0), False),
        ("compute_120", (9, 0), False),
    ],
)
def test_code_runs_on_what_the_programming_guide_says(code: str, device: Any, expected: bool) -> None:
    """Binaries within a major, PTX upwards, `a` exactly, `f` within the family."""
    assert expected == runs_on(codes_of((code,))[0], device, exact=False)


@pytest.mark.parametrize(("cuda", "expected"), [("12.6", ["EA340"]), ("13.0", [])])
def test_code_for_a_tegra_must_be_its_own_before_cuda_13(cuda: str, expected: List[str]) -> None:
    """sm_86 is no code for an Orin, 8.7."""
    jetson = node("540.3.0", cuda, cuda, platform="tegra", capability="8.7", architectures=["sm_80", "sm_86"])
    assert expected == [one.rule for one in found([jetson])]


def test_gpu_without_code_is_an_error_with_the_build_that_has_it() -> None:
    """An RTX 5090 under a build for CUDA 12.4."""
    blackwell = node(
        "570.124.06",
        "12.8",
        "12.4",
        product="NVIDIA GeForce RTX 5090",
        capability="12.0",
    )
    (finding,) = found([blackwell])
    message = "torch 2.4.1 has no code for NVIDIA GeForce RTX 5090, compute capability 12.0"
    assert ("EA340", "error", message) == words([finding])[0]
    assert (f"built for {' '.join(ARCHITECTURES)}",) == finding.evidence
    assert "Install a torch built for CUDA 12.8 or newer (cu128 and later)." == finding.hint


def test_gpu_with_code_raises_nothing(fakes: Fakes) -> None:
    """Also one of a later minor, and where torch or the card do not tell."""
    assert [] == found([fakes.node("a", torch={})])
    assert [] == found([node(capability="8.9", product="NVIDIA L40S")])
    assert [] == found([node(architectures=None)])
    assert [] == found([node(architectures=[])])
    assert [] == found([node(capability="")])


@pytest.mark.parametrize(
    ("driver_cuda", "expected"), [("12.4", ("EA341", "info")), ("12.2", ("EA342", "error"))]
)
def test_gpu_with_ptx_alone_depends_on_the_driver(driver_cuda: str, expected: Any) -> None:
    """It compiles PTX of its own CUDA or an older one."""
    one = node("550.54.15", driver_cuda, "12.4", architectures=["sm_80", "compute_80"])
    assert [expected] == [(each.rule, each.severity) for each in found([one])]


def test_display_card_without_code_is_a_warning_beside_one_that_runs() -> None:
    """The launch may not use it at all."""
    devices = {"1": {"product": "NVIDIA GeForce GT 710", "compute_capability": "3.5"}}
    one = node()
    gpu = {**one.sections["gpu"].facts, "count": 2, "devices": devices}
    mixed = fingerprint(
        "a", gpu=gpu, cuda=dict(one.sections["cuda"].facts), torch=dict(one.sections["torch"].facts)
    )
    assert [("EA308", "warning"), ("EA340", "warning")] == [
        (each.rule, each.severity) for each in found([mixed])
    ]
