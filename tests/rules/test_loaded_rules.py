"""EA250 and EA251: what a running torch has loaded, against what the files say, and whether it worked."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import pytest

from envaudit.diff import compare
from envaudit.model import Finding, Fingerprint
from envaudit.rules import Evidence, judge
from tests.diff.nodes import fingerprint

SITE = "{site}/nvidia/nccl/lib/libnccl.so.2"
SYSTEM = "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
CUDNN = "{site}/nvidia/cudnn/lib/libcudnn.so.9"


def node(name: str = "node01", torch: Optional[Dict[str, Any]] = None, **deep: Any) -> Fingerprint:
    """A node on which both say the same, but for what a test changes."""
    static = {
        "torch": {"library": "{site}/torch/lib/libtorch_cuda.so"},
        "nccl": {"path": SITE, "version": "2.30.7"},
        "cudart": {"path": "{site}/nvidia/cu13/lib/libcudart.so.13", "version": "13.0.96"},
        "nvrtc": {"path": "{site}/nvidia/cu13/lib/libnvrtc.so.13", "version": "13.0.88"},
        "cudnn": {"path": CUDNN, "version": "9.24.0", "parts": {"graph": "beside", "ops": "beside"}},
    }
    loaded = {
        "nccl": {"path": SITE, "version": "2.30.7", "others": []},
        "cudart": {"path": "{site}/nvidia/cu13/lib/libcudart.so.13", "version": "13.0", "others": []},
        "cudnn": {"path": CUDNN, "version": "9.24.0", "others": [], "parts": {"graph": "beside"}},
    }
    facts = {
        "import": "ok",
        "torch": {"version": "2.14.1", "cuda": "13.0", "cudnn": "9.24.0", "architectures": ["sm_90"]},
        "device": "cuda",
        "convolution": "ok",
        "collective": {"backend": "nccl", "outcome": "ok"},
        "libraries": loaded,
        **deep,
    }
    return fingerprint(
        name,
        torch=torch or {"version": "2.14.1", "cuda": "13.0", "architectures": ["sm_90"]},
        libraries=static,
        deep=facts,
    )


def node_that_loaded(name: str, libraries: Dict[str, Any]) -> Fingerprint:
    """A node whose torch has loaded these copies, whatever the files say."""
    return node(name, libraries={**node(name).sections["deep"].facts["libraries"], **libraries})


def findings(*nodes: Fingerprint) -> List[Finding]:
    """What the rules of this subject say; EA902 and others about the sections left out here are not it."""
    found = judge(Evidence(tuple(nodes), comparing=False))
    return [finding for finding in found if finding.rule in ("EA250", "EA251")]


def test_loaded_as_the_files_say_raises_nothing() -> None:
    """The same paths, versions as far as both go; nvrtc, opened late, is not loaded yet."""
    assert [] == findings(node())


def test_loaded_nccl_from_elsewhere_is_an_error_with_both() -> None:
    """The node, the family, both paths and both versions."""
    other = {"nccl": {"path": SYSTEM, "version": "2.18.5", "others": [SITE]}}
    (finding,) = findings(node("node01"), node_that_loaded("node02", other))
    assert ("EA250", "error", ("node02",)) == (finding.rule, finding.severity, finding.nodes)
    assert "nccl is not the one that the files say" == finding.message
    assert (f"files:  2.30.7, {SITE}", f"loaded: 2.18.5, {SYSTEM}") == finding.evidence
    assert "deep/libraries/nccl" == finding.path


def test_loaded_nccl_of_another_version_is_an_error() -> None:
    """The file is the same by name, and says another version of itself."""
    (finding,) = findings(node_that_loaded("n", {"nccl": {"path": SITE, "version": "2.29.0"}}))
    assert f"loaded: 2.29.0, {SITE}" == finding.evidence[1]


def test_loaded_nccl_that_the_files_do_not_tell_is_an_error() -> None:
    """A library that torch cannot do without was not found in the files."""
    one = node("n")
    static = {name: row for name, row in one.sections["libraries"].facts.items() if name != "nccl"}
    (finding,) = findings(fingerprint("n", libraries=static, deep=dict(one.sections["deep"].facts)))
    assert "files:  none" == finding.evidence[0]


def test_loaded_family_that_torch_opens_late_raises_nothing() -> None:
    """What a start-up file or a plugin opened is no contradiction: nobody said that it is not there."""
    mpi = {"path": "/usr/lib/libmpi.so.40", "version": "4.1.5"}
    assert [] == findings(node_that_loaded("n", {"mpi": mpi}))


def test_loaded_cudnn_part_from_elsewhere_is_an_error() -> None:
    """The library agrees, one of its parts does not."""
    stray = "/usr/lib/x86_64-linux-gnu/libcudnn_graph.so.9"
    row = {"path": CUDNN, "version": "9.24.0", "parts": {"graph": stray}}
    (finding,) = findings(node_that_loaded("n", {"cudnn": row}))
    assert ("deep/libraries/cudnn/parts/graph", ("files:  beside", f"loaded: {stray}")) == (
        finding.path,
        finding.evidence,
    )


def test_loaded_cudnn_part_that_the_files_name_elsewhere_too_raises_nothing() -> None:
    """Both name the same other copy: that is for another rule."""
    stray = "/usr/lib/x86_64-linux-gnu/libcudnn_graph.so.9"
    one = node_that_loaded("n", {"cudnn": {"path": CUDNN, "version": "9.24.0", "parts": {"graph": stray}}})
    static = dict(one.sections["libraries"].facts)
    static["cudnn"] = {**static["cudnn"], "parts": {"graph": {"path": stray, "version": "9.1.0"}}}
    assert [] == findings(fingerprint("n", libraries=static, deep=dict(one.sections["deep"].facts)))


@pytest.mark.parametrize(
    ("key", "installed"), [("version", "2.13.0"), ("cuda", "12.8"), ("architectures", ["sm_80", "sm_90"])]
)
def test_torch_that_says_other_than_its_files_is_an_error(key: str, installed: object) -> None:
    """Another torch is imported than the one that was read."""
    torch = {"version": "2.14.1", "cuda": "13.0", "architectures": ["sm_90"], key: installed}
    assert [f"deep/torch/{key}"] == [finding.path for finding in findings(node(torch=torch))]


def test_cudnn_that_torch_names_otherwise_is_an_error() -> None:
    """What torch.backends.cudnn says is what the library says, or something stands between."""
    one = node()
    deep = dict(one.sections["deep"].facts)
    deep["torch"] = {**deep["torch"], "cudnn": "9.10.2"}
    one = fingerprint("n", libraries=dict(one.sections["libraries"].facts), deep=deep)
    assert ["deep/torch/cudnn"] == [finding.path for finding in findings(one)]


@pytest.mark.parametrize(
    ("facts", "path", "message"),
    [
        ({"import": "OSError: libcudart.so.13: cannot open"}, "deep/import", "import torch fails"),
        (
            {"convolution": "RuntimeError: no kernel image"},
            "deep/convolution",
            "a convolution on the GPU fails",
        ),
        (
            {"collective": {"backend": "nccl", "outcome": "DistBackendError: unhandled"}},
            "deep/collective",
            "a collective of one rank with nccl fails",
        ),
    ],
)
def test_torch_that_fails_is_an_error_with_its_words(facts: Dict[str, Any], path: str, message: str) -> None:
    """Alike on two nodes is one finding, and what follows from the first failure is not told again."""
    (finding,) = findings(node("node01", **facts), node("node02", **facts))
    assert ("EA251", "error", ("node01", "node02")) == (finding.rule, finding.severity, finding.nodes)
    assert (path, message) == (finding.path, finding.message)


@pytest.mark.parametrize(
    "deep",
    [
        {"import": "ok", "libraries": [1], "torch": "x", "collective": 3},
        {"libraries": {"nccl": "x", "cudnn": {"parts": 4, "version": 5, "path": None}}},
    ],
)
def test_loaded_rules_take_any_shape(deep: Dict[str, Any]) -> None:
    """A node that answers nonsense ends no run."""
    one = node("n")
    static = dict(one.sections["libraries"].facts)
    assert all(finding.rule for finding in findings(fingerprint("n", libraries=static, deep=deep)))


def compared(*nodes: Fingerprint) -> List[Tuple[str, Tuple[str, ...]]]:
    """What is said of nodes that differ: rule and nodes."""
    found = judge(Evidence(nodes, drifts=compare(nodes)))
    return [(each.rule, each.nodes) for each in found if not each.rule.startswith(("EA1", "EA9"))]


def test_gpu_that_torch_sees_on_some_nodes_only_is_an_error() -> None:
    """The files are the same, and is_available says no on one node."""
    seen = [node(name, available=True) for name in ("a", "b")]
    assert [] == compared(*seen)
    assert [("EA252", ("c",))] == compared(*seen, node("c", available=False))


def test_import_that_fails_on_one_node_is_told_once() -> None:
    """What a node without torch in memory does not tell is no difference of its own."""
    seen = [node(name, available=True) for name in ("a", "b")]
    failed = fingerprint(
        "c",
        torch=dict(seen[0].sections["torch"].facts),
        libraries=dict(seen[0].sections["libraries"].facts),
        deep={"import": "ImportError: libcudnn.so.9"},
    )
    assert [("EA251", ("c",))] == compared(*seen, failed)


def test_library_that_is_loaded_otherwise_on_one_node_is_told_once() -> None:
    """By what contradicts the files there."""
    other = {"nccl": {"path": SYSTEM, "version": "2.18.5", "others": [SITE]}}
    assert [("EA250", ("c",))] == compared(node("a"), node("b"), node_that_loaded("c", other))
