"""Nodes that are changed in one thing each, laid out on disk and read by the probe: one finding each."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest

from envaudit.model import Finding, Fingerprint
from envaudit.model.codec import fingerprint_of_answer
from envaudit.probe.runner import probe
from tests.probe import fakelibs
from tests.probe.conftest import NODES, node_folder
from tests.probe.test_libraries_section import Environment
from tests.rules import laidout

Change = Callable[[Environment, Path], Dict[str, str]]

__all__ = ["node_folder"]

# Other rules speak of what these nodes lack, such as a clock.
OURS = ("EA21", "EA22", "EA23", "EA24", "EA25", "EA299")


def ours(nodes: List[Fingerprint]) -> List[Finding]:
    """The findings of the subjects of this file, and those that no rule has a word for."""
    return [found for found in laidout.judged(nodes) if found.rule.startswith(OURS)]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, List[Fingerprint]]:
    """Three equal nodes, for each of the two ways in which torch's libraries are linked."""
    made = {}
    for search in ("RPATH", "RUNPATH"):
        environment = laidout.lay_out(tmp_path_factory.mktemp(search) / "env", search=search)
        one = laidout.read(environment, "node01")
        made[search] = [laidout.renamed(one, f"node0{number}") for number in (1, 2, 3)]
    return made


def older_cudnn(environment: Environment, tmp_path: Path) -> Dict[str, str]:
    """An install took another cuDNN than torch asks for."""
    return other_cudnn(environment, "9.10.2")


def newer_cudnn(environment: Environment, tmp_path: Path) -> Dict[str, str]:
    """Likewise, but a newer one."""
    return other_cudnn(environment, "9.30.0")


def other_cudnn(environment: Environment, version: str) -> Dict[str, str]:
    """Another wheel of cuDNN."""
    fakelibs.build_cudnn(os.path.join(environment.site, "nvidia", "cudnn", "lib"), version)
    replace_distribution(environment, "nvidia_cudnn_cu13", f"{version}.1")
    return {}


def replace_distribution(environment: Environment, name: str, version: str) -> None:
    """Another version in the records."""
    (old,) = Path(environment.site).glob(f"{name}-*.dist-info")
    shutil.rmtree(old)
    fakelibs.write_dist_info(environment.site, name.replace("_", "-"), version)


def nccl_by_variable(environment: Environment, tmp_path: Path) -> Dict[str, str]:
    """A module of the cluster puts an old NCCL on LD_LIBRARY_PATH."""
    fakelibs.build_nccl(str(tmp_path / "nccl"), "2.18.5", real_name=True)
    return {"LD_LIBRARY_PATH": str(tmp_path / "nccl")}


def same_nccl_by_variable(environment: Environment, tmp_path: Path) -> Dict[str, str]:
    """The same version, but not the environment's copy."""
    fakelibs.build_nccl(str(tmp_path / "nccl"), "2.30.7", real_name=True)
    return {"LD_LIBRARY_PATH": str(tmp_path / "nccl")}


def cpu_torch(environment: Environment, tmp_path: Path) -> Dict[str, str]:
    """The wheel for the CPU, and none of NVIDIA's."""
    shutil.rmtree(environment.site)
    os.makedirs(environment.site)
    fakelibs.build_torch(environment.site, "2.14.1+cpu", cuda=None)
    laidout.add_companion(environment, "torchvision", "0.29.1+cpu")
    for name, version in (("regex", "2026.11.1"), ("numpy", "2.3.1")):
        fakelibs.write_dist_info(environment.site, name, version)
    return {}


def other_tag(environment: Environment, tmp_path: Path) -> Dict[str, str]:
    """Another build of torchvision: only its own file tells."""
    laidout.add_companion(environment, "torchvision", "0.29.1+cu128")
    return {}


def other_package(environment: Environment, tmp_path: Path) -> Dict[str, str]:
    """Another version of a package that nothing is negotiated with."""
    replace_distribution(environment, "regex", "2026.9.1")
    return {}


def other_numpy(environment: Environment, tmp_path: Path) -> Dict[str, str]:
    """Another version of a package that must match."""
    replace_distribution(environment, "numpy", "2.3.0")
    return {}


def other_torch(environment: Environment, tmp_path: Path) -> Dict[str, str]:
    """Another patch of torch with the libraries that it asks for."""
    requires = ("nvidia-cudnn-cu13==9.24.0.43", "nvidia-nccl-cu13==2.30.4")
    fakelibs.build_torch(environment.site, "2.14.0+cu130", git_version="0" * 40, requires=requires)
    fakelibs.build_nccl(os.path.join(environment.site, "nvidia", "nccl", "lib"), "2.30.4")
    replace_distribution(environment, "nvidia_nccl_cu13", "2.30.4")
    return {}


def stray_part(environment: Environment, tmp_path: Path) -> Dict[str, str]:
    """A part of cuDNN comes from another folder."""
    cudnn = os.path.join(environment.site, "nvidia", "cudnn", "lib")
    fakelibs.build_cudnn(cudnn, "9.24.0", search="RUNPATH")
    fakelibs.build_cudnn_part(str(tmp_path / "stray"), "graph", "9.1.0", real_name=True)
    return {"LD_LIBRARY_PATH": str(tmp_path / "stray")}


def no_nccl(environment: Environment, tmp_path: Path) -> Dict[str, str]:
    """Somebody removed a file."""
    os.unlink(os.path.join(environment.site, "nvidia", "nccl", "lib", "libnccl.so.2"))
    return {}


@pytest.mark.parametrize("search", ["RPATH", "RUNPATH"])
def test_nodes_that_are_alike_raise_nothing(healthy: Dict[str, List[Fingerprint]], search: str) -> None:
    """Three nodes with a whole CUDA stack."""
    assert [] == ours(healthy[search])


@pytest.mark.parametrize(
    ("change", "search", "expected"),
    [
        (older_cudnn, "RPATH", ("EA220", "error", "cudnn differs")),
        (newer_cudnn, "RPATH", ("EA220", "error", "cudnn differs")),
        (nccl_by_variable, "RUNPATH", ("EA214", "error", "NCCL differs")),
        (same_nccl_by_variable, "RUNPATH", ("EA221", "warning", "another copy of nccl is loaded")),
        (cpu_torch, "RPATH", ("EA213", "error", "torch is a CPU build, and the nodes have GPUs")),
        (other_torch, "RPATH", ("EA213", "error", "torch differs")),
        (other_tag, "RPATH", ("EA215", "error", "torchvision differs")),
        (other_numpy, "RPATH", ("EA215", "error", "numpy differs")),
        (other_package, "RPATH", ("EA216", "warning", "regex differs")),
        (stray_part, "RUNPATH", ("EA220", "error", "cuDNN 9.24.0 comes from 2 folders")),
        (no_nccl, "RPATH", ("EA220", "error", "libnccl.so.2 cannot be found for torch")),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_node_that_is_changed_in_one_thing_is_one_finding(
    healthy: Dict[str, List[Fingerprint]],
    tmp_path: Path,
    change: Change,
    search: str,
    expected: Tuple[str, str, str],
) -> None:
    """The cause, on the node at fault; everything else that differs follows from it."""
    environment = laidout.lay_out(tmp_path / "env", search=search)
    odd = laidout.read(environment, "node04", change(environment, tmp_path))
    (finding,) = ours([*healthy[search], odd])
    assert (*expected, ("node04",)) == (finding.rule, finding.severity, finding.message, finding.nodes)


@pytest.mark.parametrize(
    ("change", "search", "expected"),
    [
        (older_cudnn, "RPATH", ("EA230", "cuDNN 9.10.2 is loaded, and torch was built with 9.24.0")),
        (newer_cudnn, "RPATH", None),
        (nccl_by_variable, "RUNPATH", ("EA232", "NCCL 2.18.5 is loaded, and torch was built with 2.30.7")),
        (nccl_by_variable, "RPATH", None),
        (
            same_nccl_by_variable,
            "RUNPATH",
            ("EA233", "NCCL 2.30.7 is loaded from another folder, not the environment"),
        ),
        (
            cpu_torch,
            "RPATH",
            ("EA240", "torch 2.14.1+cpu is a CPU build, and the node has 8 x NVIDIA H100 80GB HBM3"),
        ),
        (other_torch, "RPATH", None),
        (
            other_tag,
            "RPATH",
            ("EA246", "torch 2.14.1+cu130 is built for cu130, and torchvision 0.29.1+cu128 for cu128"),
        ),
        (stray_part, "RUNPATH", ("EA231", "cuDNN 9.24.0 comes from 2 folders")),
        (no_nccl, "RPATH", ("EA235", "libnccl.so.2 cannot be found for torch")),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_nodes_that_are_all_changed_alike_are_told_by_what_does_not_fit(
    tmp_path: Path, change: Change, search: str, expected: Tuple[str, str]
) -> None:
    """No node differs, and what does not go together is still named, once for both."""
    environment = laidout.lay_out(tmp_path / "env", search=search)
    one = laidout.read(environment, "node01", change(environment, tmp_path))
    found = ours([one, laidout.renamed(one, "node02")])
    wanted = [] if expected is None else [(*expected, ("node01", "node02"))]
    assert wanted == [(each.rule, each.message, each.nodes) for each in found]


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"3.11.8": "3.11.9"}, ("EA212", "warning", "Python differs in its patch version")),
        (
            {
                "3.11.8": "3.12.1",
                **{f"{word}311": f"{word}312" for word in ("cpython-", "py", "python")},
                **{f"{word}3.11": f"{word}3.12" for word in ("python", "py")},
            },
            ("EA211", "error", "Python differs in its minor version"),
        ),
        ({"openssl-3.2.1": "openssl-3.3.0", '"3.2.1"': '"3.3.0"'}, ("EA216", "warning", "openssl differs")),
    ],
    ids=["patch", "minor", "package"],
)
def test_conda_node_that_is_changed_in_one_thing_is_one_finding(
    tmp_path: Path, edits: Dict[str, str], expected: Tuple[str, str, str]
) -> None:
    """Another Python brings other builds, folders and tags of all that is compiled."""
    same = laidout.twin(tmp_path, "twin-a", {})
    nodes = [laidout.renamed(same, "node01"), laidout.renamed(same, "node02")]
    (finding,) = ours([*nodes, laidout.twin(tmp_path, "twin-b", edits)])
    assert (*expected, ("twin-b",)) == (finding.rule, finding.severity, finding.message, finding.nodes)


@pytest.mark.parametrize("name", sorted(os.listdir(NODES)))
def test_fake_node_of_any_kind_raises_nothing(node_folder: Callable[[str], str], name: str) -> None:
    """GPUs with and without torch, a vendor image on its own NCCL, an NCCL inside torch, garbage."""
    answer = probe({"root": node_folder(name), "tool": "1"})
    one = fingerprint_of_answer(answer, node=name, source="probe", where="answer")
    assert [] == ours([one, laidout.renamed(one, "node02")])
