"""EA230 to EA236: the libraries that the loader takes for torch, against what torch was built with."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import pytest

from envaudit.diff import compare
from envaudit.model import Finding, Fingerprint
from envaudit.rules import Evidence, Policy, judge
from envaudit.rules.policy import Waiver
from tests.diff.nodes import fingerprint

SITE = "{site}/nvidia"
SYSTEM = "/usr/lib/x86_64-linux-gnu"
DEFAULT = Policy()


def libraries(
    nccl: Optional[Dict[str, Any]] = None, cudnn: Optional[Dict[str, Any]] = None, **facts: Any
) -> Dict[str, Any]:
    """Facts of a CUDA 13 stack whose NCCL and cuDNN are the environment's, but for what a test changes."""
    return {
        "torch": {
            "library": "{site}/torch/lib/libtorch_cuda.so",
            "glibc": "2.28",
            "built_with": {"cudnn": "9.24.0", "nccl": "2.30.7"},
        },
        "nccl": {
            "path": f"{SITE}/nccl/lib/libnccl.so.2",
            "version": "2.30.7",
            "origin": "environment",
            "via": "RPATH",
            "cuda": "13.0",
            **(nccl or {}),
        },
        "cudnn": {
            "path": f"{SITE}/cudnn/lib/libcudnn.so.9",
            "version": "9.24.0",
            "origin": "environment",
            "via": "RPATH",
            "parts": {"graph": "beside", "ops": "beside"},
            **(cudnn or {}),
        },
        "missing": [],
        "copies": {},
        **facts,
    }


def node(name: str = "node01", prefix: str = "/opt/env", **sections: Any) -> Fingerprint:
    """A healthy node, but for the sections that a test gives."""
    whole: Dict[str, Any] = {
        "python": {"version": "3.11.8", "prefix": prefix},
        "torch": {"version": "2.14.0+cu130", "cuda": "13.0", "hip": None, "packaging": "wheel"},
        "libraries": libraries(),
        "gpu": {"platform": "linux", "driver": "580.65.06", "cuda": "13.0", "count": 8},
        **sections,
    }
    return fingerprint(name, **{key: facts for key, facts in whole.items() if facts is not None})


def findings(*nodes: Fingerprint, policy: Policy = DEFAULT) -> List[Finding]:
    """What the rules of this subject say of nodes that are not compared."""
    found = judge(Evidence(tuple(nodes), comparing=False), policy)
    return [finding for finding in found if finding.rule.startswith("EA23")]


def only(*nodes: Fingerprint) -> Tuple[str, str, str, Tuple[str, ...]]:
    """Rule, severity, message and nodes of the one finding."""
    (finding,) = findings(*nodes)
    return finding.rule, finding.severity, finding.message, finding.nodes


def test_libraries_as_torch_asks_for_raise_nothing() -> None:
    """A whole stack of wheels."""
    assert [] == findings(node("a"), node("b"))


@pytest.mark.parametrize(
    ("loaded", "built", "fits"),
    [
        ("9.24.0", "9.24.0", True),
        ("9.25.1", "9.24.0", True),
        ("9.24.9", "9.24.0", True),
        ("9.23.2", "9.24.0", False),
        ("8.9.7", "9.1.0", False),
        ("9.1.0", "8.9.2", False),
        ("9.10.2", "9.9.0", True),
        (None, "9.24.0", True),
        ("9.24.0", None, True),
    ],
)
def test_cudnn_must_have_the_built_major_and_no_older_minor(
    loaded: Optional[str], built: Optional[str], fits: bool
) -> None:
    """As torch itself holds them against each other; what is not known is no misfit."""
    facts = libraries(cudnn={"version": loaded})
    facts["torch"]["built_with"] = {"cudnn": built} if built else {}
    expected = [] if fits else [f"cuDNN {loaded} is loaded, and torch was built with {built}"]
    assert expected == [each.message for each in findings(node(libraries=facts))]


def test_cudnn_that_does_not_fit_says_where_it_is_from() -> None:
    """Both nodes that have it, its path and the step that led there."""
    facts = libraries(cudnn={"version": "9.1.0", "path": f"{SYSTEM}/libcudnn.so.9", "via": "LD_LIBRARY_PATH"})
    (finding,) = findings(node("a", libraries=facts), node("b", libraries=facts), node("c"))
    assert ("EA230", "error", ("a", "b")) == (finding.rule, finding.severity, finding.nodes)
    assert (f"loaded from {SYSTEM}/libcudnn.so.9, found by LD_LIBRARY_PATH",) == finding.evidence


def test_cudnn_of_the_system_that_nobody_loads_raises_nothing() -> None:
    """Reports list the toolkit's files; torch says 9.1.0 of itself, and that is the truth."""
    facts = libraries(cudnn={"version": "9.1.0"}, copies={"cudnn": {f"{SYSTEM}/libcudnn.so.8": "8.9.7"}})
    facts["torch"]["built_with"] = {"cudnn": "9.1.0"}
    deep = {"import": "ok", "torch": {"version": "2.14.0+cu130", "cudnn": "9.1.0"}}
    assert [] == findings(node(libraries=facts, deep=deep))


def test_cudnn_parts_from_another_folder_are_an_error() -> None:
    """All version numbers look right: the folders are two."""
    stray = {"path": f"{SYSTEM}/libcudnn_engines_tensor_ir.so.9", "version": "9.24.0"}
    facts = libraries(cudnn={"parts": {"graph": "beside", "ops": "beside", "engines_tensor_ir": stray}})
    (finding,) = findings(node("a", libraries=facts), node("b", libraries=facts))
    assert ("EA231", "error", ("a", "b")) == (finding.rule, finding.severity, finding.nodes)
    assert "cuDNN 9.24.0 comes from 2 folders" == finding.message
    assert (
        f"{SITE}/cudnn/lib/libcudnn.so.9 (9.24.0): the library",
        f"{SYSTEM}/libcudnn_engines_tensor_ir.so.9 (9.24.0): engines_tensor_ir",
    ) == finding.evidence


def test_cudnn_part_of_another_version_beside_it_is_an_error() -> None:
    """One folder, two releases."""
    stray = {"path": f"{SITE}/cudnn/lib/libcudnn_ops.so.9", "version": "9.1.0"}
    facts = libraries(cudnn={"parts": {"graph": "beside", "ops": stray}})
    assert ("EA231", "error", "cuDNN 9.24.0 has parts of another version", ("node01",)) == only(
        node(libraries=facts)
    )


def test_cudnn_in_one_folder_by_two_names_raises_nothing() -> None:
    """/lib is a link to /usr/lib."""
    part = {"path": "/lib/x86_64-linux-gnu/libcudnn_ops.so.9", "version": "9.24.0"}
    cudnn = {"path": f"{SYSTEM}/libcudnn.so.9", "parts": {"graph": "beside", "ops": part, "adv": None}}
    assert [] == findings(node(libraries=libraries(cudnn=cudnn)))


def test_cudnn_parts_that_a_running_torch_has_from_elsewhere_are_an_error() -> None:
    """Only the process tells, where the files were not read."""
    row = {
        "path": f"{SITE}/cudnn/lib/libcudnn.so.9",
        "version": "9.24.0",
        "parts": {"graph": "beside", "ops": f"{SYSTEM}/libcudnn_ops.so.9"},
    }
    told = node(libraries=None, deep={"import": "ok", "libraries": {"cudnn": row}})
    assert ["EA231"] == [finding.rule for finding in findings(told)]


def test_nccl_older_than_torch_was_built_for_is_an_error_alone() -> None:
    """That it is the system's as well follows from the same variable."""
    old = {"version": "2.18.5", "origin": "system", "path": f"{SYSTEM}/libnccl.so.2", "via": "ld.so.cache"}
    assert ("EA232", "error", "NCCL 2.18.5 is loaded, and torch was built with 2.30.7", ("node01",)) == only(
        node(libraries=libraries(old))
    )


@pytest.mark.parametrize(
    "nccl",
    [
        {"version": "2.31.1"},
        {"version": None},
        {"version": "2.20.5", "origin": "static", "via": "static"},
    ],
)
def test_nccl_that_is_newer_unknown_or_linked_in_raises_nothing(nccl: Dict[str, Any]) -> None:
    """A newer one has all functions, and one inside torch is the one that torch was built with."""
    assert [] == findings(node(libraries=libraries(nccl)))


def test_nccl_from_outside_is_a_warning_with_both_copies() -> None:
    """The one that is taken, and the environment's own that is not."""
    own = f"{SITE}/nccl/lib/libnccl.so.2"
    outside = {"origin": "system", "path": f"{SYSTEM}/libnccl.so.2", "via": "LD_LIBRARY_PATH"}
    (finding,) = findings(node(libraries=libraries(outside, copies={"nccl": {own: "2.30.7"}})))
    assert ("EA233", "warning") == (finding.rule, finding.severity)
    assert "NCCL 2.30.7 is loaded from the system, not the environment" == finding.message
    assert (
        f"loaded from {SYSTEM}/libnccl.so.2, found by LD_LIBRARY_PATH",
        f"not taken: {own} (2.30.7)",
    ) == finding.evidence
    assert finding.hint.startswith("Take its folder out of LD_LIBRARY_PATH")


def test_nccl_of_a_vendor_image_raises_nothing() -> None:
    """The interpreter is the system's, and so is the only NCCL: nothing is outside of anything."""
    outside = {"origin": "system", "path": f"{SYSTEM}/libnccl.so.2", "via": "ld.so.cache"}
    assert [] == findings(node(prefix="/usr", libraries=libraries(outside)))
    assert [] == findings(node(python=None, libraries=libraries(outside)))


def test_nccl_that_an_environment_lacks_names_the_usual_one() -> None:
    """An environment without an NCCL takes whatever the system has."""
    outside = {"origin": "system", "path": f"{SYSTEM}/libnccl.so.2", "via": "ld.so.cache"}
    (finding,) = findings(node(libraries=libraries(outside)))
    assert "torch's usual build comes with 2.30.7" == finding.evidence[-1]


def test_nccl_built_for_a_newer_cuda_than_the_driver_runs_is_an_error() -> None:
    """By NCCL's own suffix: no torch, and nvcc has nothing to do with it."""
    told = fingerprint(
        "node01",
        libraries={"nccl": {"version": "2.8.3", "cuda": "11.0", "path": f"{SYSTEM}/libnccl.so.2"}},
        gpu={"platform": "linux", "driver": "440.33.01", "cuda": "10.2", "count": 4},
        cuda={"nvcc": {"path": "/usr/bin/nvcc", "version": "10.1.243"}},
    )
    (finding,) = findings(told)
    assert ("EA234", "error") == (finding.rule, finding.severity)
    assert (
        "NCCL 2.8.3 was built for CUDA 11.0, and the driver is 440.33.01, which runs CUDA 10.2 at most"
        == finding.message
    )
    assert "Install an NCCL built for CUDA 10.2, or a driver from 450.80.02 on." == finding.hint


@pytest.mark.parametrize(
    ("nccl", "gpu", "cuda"),
    [
        # A minor version is no bar from CUDA 11 on.
        ("13.3", {"driver": "580.65.06", "cuda": "13.0"}, {}),
        ("12.9", {"driver": "535.54.03", "cuda": "12.2"}, {}),
        # An older runtime on a newer driver is fine, always.
        ("11.8", {"driver": "580.65.06", "cuda": "13.0"}, {}),
        (None, {"driver": "440.33.01", "cuda": "10.2"}, {}),
        ("13.0", {}, {}),
        # The Windows driver has another number.
        ("13.0", {"platform": "wsl", "driver": "551.61"}, {}),
        ("13.0", {"platform": "tegra", "cuda": "12.2"}, {}),
        # What runs is the driver of cuda-compat.
        (
            "13.0",
            {"driver": "535.54.03", "cuda": "12.2"},
            {"compat": True, "libcuda": {"version": "580.65.06"}},
        ),
    ],
)
def test_nccl_that_the_driver_runs_raises_nothing(
    nccl: Optional[str], gpu: Dict[str, Any], cuda: Dict[str, Any]
) -> None:
    """No torch here, so that NCCL's own suffix alone decides."""
    told = fingerprint("n", libraries=libraries({"cuda": nccl}), gpu={"platform": "linux", **gpu}, cuda=cuda)
    assert [] == findings(told)


def test_nccl_on_a_driver_that_is_told_by_its_number_alone_is_held_against_the_floor() -> None:
    """A report without the driver's CUDA."""
    told = node(
        torch={"version": "2.9.1+cu128", "cuda": "12.8"},
        gpu={"platform": "linux", "driver": "570.26"},
    )
    assert ["NCCL 2.30.7 was built for CUDA 13.0, and the driver is 570.26"] == [
        each.message for each in findings(told)
    ]


def test_driver_that_torch_itself_needs_newer_is_not_told_of_nccl() -> None:
    """Both are built for CUDA 13: that the driver is too old is one finding, and not this one."""
    old = {"platform": "linux", "driver": "550.54.15", "cuda": "12.4"}
    assert [] == findings(node(gpu=old))


def test_library_that_is_nowhere_is_an_error() -> None:
    """With who needs it."""
    (finding,) = findings(node(libraries=libraries(missing=["libcudnn.so.9", "libcupti.so.13"])))
    assert ("EA235", "error") == (finding.rule, finding.severity)
    assert "libcudnn.so.9, libcupti.so.13 cannot be found for torch" == finding.message
    assert ("needed by {site}/torch/lib/libtorch_cuda.so",) == finding.evidence


def test_library_that_a_running_torch_found_raises_nothing() -> None:
    """The import worked: a start-up file loads it."""
    told = node(libraries=libraries(missing=["libcudnn.so.9"]), deep={"import": "ok"})
    assert [] == findings(told)


@pytest.mark.parametrize(("own", "severity"), [("13.1.1", "info"), ("13.0.2", "warning")])
def test_library_that_is_preloaded_is_told_and_worse_where_it_displaces_another(
    own: str, severity: str
) -> None:
    """A cuBLAS by LD_PRELOAD, before the environment's own."""
    row = {"path": "/opt/old/libcublas.so.13", "version": "13.1.1", "origin": "other", "via": "LD_PRELOAD"}
    copies = {"cublas": {f"{SITE}/cu13/lib/libcublas.so.13": own}}
    (finding,) = findings(node(libraries=libraries(cublas=row, copies=copies)))
    assert ("EA236", severity) == (finding.rule, finding.severity)
    assert "cublas 13.1.1 is preloaded by LD_PRELOAD" == finding.message
    assert (
        "/opt/old/libcublas.so.13",
        f"not taken: {SITE}/cu13/lib/libcublas.so.13 ({own})",
    ) == finding.evidence


def test_nccl_that_is_preloaded_from_outside_is_one_finding() -> None:
    """It is outside the environment, whatever led to it."""
    outside = {"origin": "other", "path": "/opt/nccl/libnccl.so.2", "via": "LD_PRELOAD"}
    assert ["EA233"] == [each.rule for each in findings(node(libraries=libraries(outside)))]


def compared(policy: Policy) -> List[str]:
    """The rules that speak of one node of three with an old NCCL."""
    old = {"version": "2.18.5", "origin": "system", "path": f"{SYSTEM}/libnccl.so.2", "via": "ld.so.cache"}
    nodes = [node("a"), node("b"), node("c", libraries=libraries(old))]
    found = judge(Evidence(tuple(nodes), drifts=compare(nodes)), policy)
    return [each.rule for each in found if each.rule.startswith("EA2")]


def test_node_that_differs_from_the_others_is_told_once() -> None:
    """That its NCCL is another than the others' says it all."""
    assert ["EA214"] == compared(DEFAULT)


def test_misfit_is_told_where_the_difference_is_silenced() -> None:
    """Who accepts that NCCL differs has not accepted one that torch cannot use."""
    waiver = Waiver(rule="EA214", expires="2030-01-01")
    assert ["EA232"] == compared(Policy(levels={"EA214": "off"}))
    assert ["EA232"] == compared(Policy(waivers=(waiver,), today="2026-11-30"))


@pytest.mark.parametrize(
    "facts",
    [
        {"nccl": "x", "cudnn": 3, "torch": [], "missing": {}, "copies": []},
        {"nccl": {"version": 5, "origin": "x", "cuda": []}, "cudnn": {"parts": [1], "path": None}},
        {"nccl": {"origin": "system"}, "cudnn": {"parts": {"a": 4, "b": {"path": 1}}, "path": "x"}},
        {"torch": {"built_with": {"nccl": 7, "cudnn": None}}, "missing": [None, 3], "copies": {"nccl": 1}},
    ],
)
def test_rules_of_resolved_libraries_take_any_shape(facts: Dict[str, Any]) -> None:
    """A node that answers nonsense ends no run."""
    assert all(each.rule for each in findings(node(libraries=facts, deep={"libraries": facts})))


def test_cudnn_whose_parts_are_all_elsewhere_is_told_in_few_lines() -> None:
    """Eight parts are named by the first six."""
    parts = {f"part{number}": {"path": f"{SYSTEM}/libcudnn_part{number}.so.9"} for number in range(8)}
    (finding,) = findings(node(libraries=libraries(cudnn={"parts": parts})))
    assert (8, "and 2 more parts") == (len(finding.evidence), finding.evidence[-1])


def test_cudnn_that_is_whole_on_one_node_alone_is_told_of_the_others_too() -> None:
    """The majority is at fault: the one node that differs is right, and the misfit is still named."""
    stray = {"graph": {"path": f"{SYSTEM}/libcudnn_graph.so.9", "version": "9.1.0"}, "ops": "beside"}
    mixed = libraries(cudnn={"parts": stray})
    nodes = [node("a", libraries=mixed), node("b", libraries=mixed), node("c")]
    found = judge(Evidence(tuple(nodes), drifts=compare(nodes)))
    told = [(each.rule, each.nodes, each.message) for each in found if each.rule.startswith("EA2")]
    assert [
        ("EA220", ("c",), "cudnn differs"),
        ("EA231", ("a", "b"), "cuDNN 9.24.0 comes from 2 folders"),
    ] == told
