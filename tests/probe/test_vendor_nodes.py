"""Two ways in which torch's libraries are not the environment's own, and nothing is wrong with that."""

from __future__ import annotations

from typing import Any, Callable, Dict

from envaudit.probe import deep
from envaudit.probe.context import Context
from envaudit.probe.sections import cuda, libraries

Fake = Callable[[str], Context]


def facts(context: Context) -> Dict[str, Any]:
    """The facts of `libraries`, which must be whole."""
    answer = libraries.read(context)
    assert ("ok", []) == (answer.status, list(answer.errors))
    return answer.facts


def test_conda_build_with_static_nccl_names_it_and_the_system_copy_apart(fake_node: Fake) -> None:
    """NCCL is inside libtorch_cuda.so; the administrator's libnccl is a copy that nobody takes."""
    found = facts(fake_node("conda-static-nccl"))
    assert {
        "path": "{site}/torch/lib/libtorch_cuda.so",
        "version": "2.20.5",
        "origin": "static",
        "via": "static",
        "cuda": "12.1",
    } == found["nccl"]
    assert {"nccl": {"/usr/lib/x86_64-linux-gnu/libnccl.so.2": "2.18.5"}} == found["copies"]
    assert [] == found["missing"]


def test_conda_build_tells_which_cudnn_it_was_built_with(fake_node: Fake) -> None:
    """The file beside torch carries no version in its name; the name of conda's build does."""
    found = facts(fake_node("conda-static-nccl"))
    assert ({"cudnn": "8.9.2"}, None) == (found["torch"]["built_with"], found["cudnn"]["version"])
    assert {"beside"} == set(found["cudnn"]["parts"].values())
    assert "2.14" == found["torch"]["glibc"]


def test_vendor_image_takes_the_libraries_of_its_system(fake_node: Fake) -> None:
    """NCCL and cuDNN of the system, the CUDA runtime of the toolkit: told by origin, none is missing."""
    found = facts(fake_node("ngc-cuda-compat"))
    assert {
        "nccl": ("2.21.5", "system", "ld.so.cache"),
        "cudnn": ("9.1.0", "system", "ld.so.cache"),
        "cudart": ("12.4.127", "toolkit", "RUNPATH"),
    } == {
        name: tuple(found[name][key] for key in ("version", "origin", "via"))
        for name in ("nccl", "cudnn", "cudart")
    }
    assert {"beside"} == set(found["cudnn"]["parts"].values())
    assert {} == found["copies"]


def test_vendor_image_brings_a_network_plugin_and_mpi(fake_node: Fake) -> None:
    """What NCCL opens at run time, the UCX that this plugin needs, and the MPI of the same kit."""
    found = facts(fake_node("ngc-cuda-compat"))
    assert "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so" == found["nccl_net"]["path"]
    assert ("/opt/hpcx/ucx/lib/libucp.so.0", "RUNPATH") == (found["ucx"]["path"], found["ucx"]["via"])
    assert ("/usr/local/mpi/lib/libmpi.so.40", "4.1.7") == (found["mpi"]["path"], found["mpi"]["version"])


def test_vendor_image_runs_on_cuda_compat(fake_node: Fake) -> None:
    """The driver library of the image comes before that of the node, and is newer."""
    found = cuda.read(fake_node("ngc-cuda-compat")).facts
    assert (True, "cuda-compat", "550.54.15") == (
        found["compat"],
        found["libcuda"]["origin"],
        found["libcuda"]["version"],
    )


def test_deep_runs_nothing_in_the_folder_of_a_fake_node(fake_node: Fake) -> None:
    """A folder that stands for a node has no process: that nobody looked is no evidence of absence."""
    answer = deep.read(fake_node("conda-static-nccl"))
    assert ("error", {}) == (answer.status, answer.facts)
    assert "torch was not imported" in answer.errors[0]
