"""EA240 to EA243: the build of torch on a node, against its GPUs, its glibc and its compiler."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import pytest

from envaudit.diff import compare
from envaudit.model import Finding, Fingerprint
from envaudit.rules import Evidence, Policy, judge
from envaudit.rules.policy import Waiver
from tests.diff.nodes import fingerprint, package

CPU = {"version": "2.6.0", "cuda": None, "hip": None, "packaging": "wheel"}
CUDA = {"version": "2.9.1+cu128", "cuda": "12.8", "hip": None, "packaging": "wheel"}
A100S = {
    "platform": "linux",
    "driver": "570.124.06",
    "count": 4,
    "visible": {"count": 4, "form": "all"},
    "each": {"product": "NVIDIA A100-SXM4-80GB"},
}


def node(name: str = "node01", **sections: Any) -> Fingerprint:
    """A healthy node, but for the sections that a test gives."""
    host = {"launch": "ssh", "glibc": "2.35"}
    return fingerprint(name, **{"host": host, "torch": CUDA, "gpu": A100S, **sections})


def findings(*nodes: Fingerprint) -> List[Finding]:
    """What the rules of this subject say."""
    found = judge(Evidence(tuple(nodes), comparing=False))
    return [finding for finding in found if finding.rule.startswith("EA24")]


def test_torch_that_fits_its_node_raises_nothing() -> None:
    """Built for CUDA, on nodes with GPUs."""
    assert [] == findings(node("a"), node("b"))


def test_cpu_torch_on_nodes_with_gpus_is_one_error() -> None:
    """conda-forge gave a CPU build; the hint says how to ask for the other."""
    conda = {"packages": {"pytorch": package("2.6.0", "cpu_mkl_py312_h1")}}
    torch = {**CPU, "packaging": "conda"}
    (finding,) = findings(*(node(name, torch=torch, conda=conda) for name in ("a", "b")))
    assert ("EA240", "error", ("a", "b")) == (finding.rule, finding.severity, finding.nodes)
    assert "torch 2.6.0 is a CPU build, and the node has 4 x NVIDIA A100-SXM4-80GB" == finding.message
    assert ("conda build cpu_mkl_py312_h1",) == finding.evidence
    assert "pytorch-gpu" in finding.hint


def test_cpu_torch_on_a_node_with_amd_gpus_names_rocm() -> None:
    """The wheel for CUDA would not help."""
    (finding,) = findings(node(torch=CPU, gpu={"amd": {"count": 8, "each": {"gfx": "gfx942"}}}))
    assert "torch 2.6.0 is a CPU build, and the node has 8 AMD GPUs" == finding.message
    assert "ROCm" in finding.hint


@pytest.mark.parametrize(
    "sections",
    [
        {"gpu": {"platform": "linux", "count": 0}},
        # A step that was given no GPU.
        {"gpu": {**A100S, "visible": {"count": 0, "form": "none"}}},
        # Not read: unknown, not None.
        {"torch": {"version": "2.6.0"}},
        {"torch": {**CPU, "hip": "6.2.41133"}},
        {"gpu": {"count": True}},
    ],
)
def test_cpu_torch_is_told_where_gpus_and_build_are_known_alone(sections: Dict[str, Any]) -> None:
    """A head node, a step without GPUs, a report that does not say."""
    assert [] == findings(node(**{"torch": CPU, **sections}))


@pytest.mark.parametrize(
    ("host", "needed", "expected"),
    [
        ("2.17", "2.28", ["the node has glibc 2.17, and torch 2.9.1+cu128 needs 2.28"]),
        ("2.9", "2.17", ["the node has glibc 2.9, and torch 2.9.1+cu128 needs 2.17"]),
        ("2.28", "2.28", []),
        ("2.35", "2.28", []),
        (None, "2.28", []),
    ],
)
def test_glibc_is_held_against_what_torch_asks_for(
    host: Optional[str], needed: str, expected: List[str]
) -> None:
    """Part by part as numbers: 2.9 is older than 2.17."""
    told = node(host={"launch": "ssh", "glibc": host}, libraries={"torch": {"glibc": needed}})
    assert expected == [each.message for each in findings(told)]


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        (CUDA, ["needed: 2.28, the platform tag of its wheels"]),
        ({**CUDA, "version": "2.9.0"}, ["needed: 2.28, the platform tag of its wheels"]),
        ({**CUDA, "version": "2.4.1"}, []),
        ({**CUDA, "packaging": "conda"}, []),
        ({**CUDA, "version": "2.9.0a0+git1"}, ["needed: 2.28, the platform tag of its wheels"]),
        ({**CUDA, "version": "1.13.1"}, []),
    ],
)
def test_glibc_is_held_against_the_wheels_tag_where_the_files_do_not_say(
    torch: Dict[str, Any], expected: List[str]
) -> None:
    """A report names the release alone; conda's builds bring their own floor."""
    told = node(host={"launch": "ssh", "glibc": "2.17"}, torch=torch)
    assert expected == [line for each in findings(told) for line in each.evidence]


def test_compiler_of_another_cuda_is_told_as_information() -> None:
    """Nothing is wrong at run time: torch brings its own CUDA."""
    cuda = {"nvcc": {"path": "/usr/local/cuda/bin/nvcc", "version": "12.6.85"}, "home": None, "toolkits": {}}
    (finding,) = findings(node(torch={**CUDA, "version": "2.3.1+cu118", "cuda": "11.8"}, cuda=cuda))
    assert ("EA242", "info", "cuda/nvcc") == (finding.rule, finding.severity, finding.path)
    assert (
        "/usr/local/cuda/bin/nvcc is of CUDA 12.6, and torch was built for 11.8: that matters when an "
        "extension is built" == finding.message
    )


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        # CUDA_HOME comes first, then the compiler on PATH, then the default toolkit.
        (
            {
                "home": {"variable": "CUDA_HOME", "path": "/opt/cuda", "version": "11.8.0"},
                "nvcc": {"path": "/n", "version": "12.8.93"},
            },
            ["cuda/home"],
        ),
        (
            {
                "home": {"variable": "CUDA_HOME", "path": "/opt/cuda", "version": "12.8.1"},
                "nvcc": {"path": "/n", "version": "11.8.89"},
            },
            [],
        ),
        (
            {"default": "/usr/local/cuda-11.8", "toolkits": {"/usr/local/cuda-11.8": "11.8.0"}},
            ["cuda/default"],
        ),
        ({"default": "/usr/local/cuda-12.1", "toolkits": {"/usr/local/cuda-12.1": "12.1.1"}}, []),
        ({"default": "/usr/local/cuda-11.8", "toolkits": {"/usr/local/cuda-11.8": None}}, []),
        ({"home": {"variable": "CUDA_HOME", "path": "/opt/cuda", "version": None}}, []),
        ({"libcuda": {"version": "570.26"}}, []),
        ({"nvcc": "x", "home": 3, "toolkits": []}, []),
    ],
)
def test_compiler_is_the_one_that_an_extension_is_built_with(
    cuda: Dict[str, Any], expected: List[str]
) -> None:
    """Another minor version builds; torch's builder refuses another major one."""
    assert expected == [each.path for each in findings(node(cuda=cuda))]


def with_glibc(name: str, version: str) -> Fingerprint:
    """A node whose torch asks for glibc 2.28."""
    return node(name, host={"launch": "ssh", "glibc": version}, libraries={"torch": {"glibc": "2.28"}})


def judged(nodes: List[Fingerprint], policy: Policy) -> List[Finding]:
    """What all rules say of these nodes and their differences."""
    found = judge(Evidence(tuple(nodes), drifts=compare(nodes)), policy)
    return [finding for finding in found if finding.severity != "incomplete"]


@pytest.mark.parametrize("others", ["b", "bcd"])
def test_glibc_too_old_on_one_node_takes_the_difference_along(others: str) -> None:
    """Also of two nodes, of which no majority says which is right."""
    nodes = [with_glibc("a", "2.17"), *(with_glibc(name, "2.35") for name in others)]
    (finding,) = judged(nodes, Policy())
    assert ("EA241", ("a",)) == (finding.rule, finding.nodes)
    assert ["host/glibc"] == [drift.path for drift in finding.following]


def test_glibc_that_another_node_has_besides_is_told() -> None:
    """It fits torch, and is neither that of the others nor too old."""
    nodes = [with_glibc("a", "2.17"), with_glibc("b", "2.31"), *(with_glibc(name, "2.35") for name in "cde")]
    found = [(one.rule, one.path) for one in judged(nodes, Policy())]
    assert [("EA241", "host/glibc"), ("EA299", "host/glibc")] == found


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(levels={"EA241": "info"}), [("EA299", "warning"), ("EA241", "info")]),
        (Policy(levels={"EA241": "off"}), [("EA299", "warning")]),
        (
            Policy(waivers=(Waiver("EA241", "2027-01-31", "a wrapper", "ops"),), today="2026-11-30"),
            [("EA299", "warning")],
        ),
    ],
)
def test_glibc_that_differs_is_told_where_its_cause_is_accepted(
    policy: Policy, expected: List[Tuple[str, str]]
) -> None:
    """Whoever accepts that torch is too new for a node has not accepted that the nodes differ."""
    nodes = [with_glibc("a", "2.17"), *(with_glibc(name, "2.35") for name in "bcd")]
    assert expected == [(one.rule, one.severity) for one in judged(nodes, policy)]


@pytest.mark.parametrize(
    ("variables", "severity", "message"),
    [({"CUDA_HOME": "/opt/cuda"}, "warning", "CUDA_HOME differs"), ({}, "info", "toolkits of CUDA differ")],
)
def test_toolkit_of_one_node_alone_is_one_finding(
    variables: Dict[str, str], severity: str, message: str
) -> None:
    """The variable and what it leads to; without one a toolkit more is only told."""
    home = {"variable": "CUDA_HOME", "path": "/opt/cuda", "version": "12.8.1"} if variables else None
    others = [
        node(name, cuda={"home": None, "toolkits": {}}, env={"variables": {}, "nccl": {}}) for name in "ab"
    ]
    cuda = {"home": home, "toolkits": {"/opt/cuda": "12.8.1"}}
    nodes = [*others, node("c", cuda=cuda, env={"variables": variables, "nccl": {}})]
    evidence = Evidence(tuple(nodes), drifts=compare(nodes), comparing=True)
    (finding,) = [each for each in judge(evidence) if each.rule in ("EA243", "EA299")]
    assert ("EA243", severity, ("c",), message) == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )
