"""The sublibraries of cuDNN: each is found on its own, beside the library or elsewhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Tuple

import pytest

from tests.probe import fakelibs
from tests.probe.test_libraries_section import Environment
from tests.probe.test_loader import PYTHON


@pytest.fixture
def environment(tmp_path: Path) -> Tuple[Environment, str]:
    """A stack of wheels whose cuDNN searches with RUNPATH, and the folder of that cuDNN."""
    environment = Environment(tmp_path / "env")
    fakelibs.build_stack(environment.site)
    cudnn = os.path.join(environment.site, "nvidia", "cudnn", "lib")
    fakelibs.build_cudnn(cudnn, "9.24.0", search="RUNPATH")
    return environment, cudnn


def test_cudnn_parts_beside_it_are_told(environment: Tuple[Environment, str]) -> None:
    """All sublibraries lie beside libcudnn, found through its own search path."""
    parts = environment[0].read().facts["cudnn"]["parts"]
    assert dict.fromkeys(fakelibs.CUDNN_PARTS, "beside") == parts


def test_cudnn_parts_from_another_folder_are_named(
    environment: Tuple[Environment, str], tmp_path: Path
) -> None:
    """A libcudnn with RUNPATH takes parts from LD_LIBRARY_PATH first: they are mixed, as dlopen does it."""
    stray, cudnn = str(tmp_path / "stray"), environment[1]
    fakelibs.build_cudnn_part(stray, "graph", "9.1.0", real_name=True)
    environ = {"LD_LIBRARY_PATH": stray}
    parts = environment[0].read(environ).facts["cudnn"]["parts"]
    other = {"path": f"{stray}/libcudnn_graph.so.9", "version": "9.1.0"}
    assert (other, "beside") == (parts["graph"], parts["ops"])
    script = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).cudnnGetVersion(); "
    script += "print(open('/proc/self/maps').read())"
    command = [PYTHON, "-I", "-c", script, os.path.join(cudnn, "libcudnn.so.9")]
    maps = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    assert f"{stray}/libcudnn_graph.so.9.1.0" in maps
    assert f"{cudnn}/libcudnn_graph.so.9" not in maps


def test_cudnn_part_that_is_nowhere_is_null(environment: Tuple[Environment, str]) -> None:
    """A sublibrary that its release has and no folder holds is told as missing."""
    os.unlink(os.path.join(environment[1], "libcudnn_adv.so.9"))
    assert environment[0].read().facts["cudnn"]["parts"]["adv"] is None


def test_cudnn_part_that_its_wheel_lacks_is_named_where_the_system_has_it(
    environment: Tuple[Environment, str], tmp_path: Path
) -> None:
    """A part that only libcudnn_graph names, and only another folder on the way has."""
    fakelibs.compile_library(
        os.path.join(environment[1], "libcudnn_graph.so.9"),
        'const char *opens(void) { return "libcudnn_engines_tensor_ir.so"; }',
        soname="libcudnn_graph.so.9",
    )
    assert "engines_tensor_ir" not in environment[0].read().facts["cudnn"]["parts"]
    system = str(tmp_path / "system")
    fakelibs.build_cudnn_part(system, "engines_tensor_ir", "9.21.0", real_name=True)
    parts = environment[0].read({"LD_LIBRARY_PATH": system}).facts["cudnn"]["parts"]
    assert {
        "path": f"{system}/libcudnn_engines_tensor_ir.so.9",
        "version": "9.21.0",
    } == parts["engines_tensor_ir"]


def test_cudnn_part_of_another_version_beside_it_is_named(environment: Tuple[Environment, str]) -> None:
    """A part that was copied into cuDNN's folder is told by the version in its own name."""
    fakelibs.build_cudnn_part(environment[1], "ops", "9.1.0", real_name=True)
    parts = environment[0].read().facts["cudnn"]["parts"]
    assert {"path": "{site}/nvidia/cudnn/lib/libcudnn_ops.so.9", "version": "9.1.0"} == parts["ops"]
    assert "beside" == parts["cnn"]
