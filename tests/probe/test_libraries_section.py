"""Which copy of a library torch gets: the section's answer against what a process really maps."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Set

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.elf import needed_glibc, read_elf
from envaudit.probe.opened import SONAMES
from envaudit.probe.sections import libraries
from tests.probe import fakelibs
from tests.probe.test_loader import PYTHON, mapped


class Environment:
    """An environment's folders, and the section's answer for it."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.site = str(prefix / "lib" / "python3.11" / "site-packages")
        os.makedirs(self.site)

    def torch(self, name: str) -> str:
        """One of torch's own libraries."""
        return os.path.join(self.site, "torch", "lib", name)

    @property
    def extension(self) -> str:
        """The extension module of torch."""
        return os.path.join(self.site, "torch", f"_C.{sysconfig.get_config_var('SOABI')}.so")

    def context(self, environ: Optional[Dict[str, str]] = None) -> Context:
        """This machine, where the interpreter is of this environment."""
        return Context(
            environ=environ or {},
            workdir="/",
            launch="local",
            interpreter={
                "executable": PYTHON,
                "prefix": str(self.prefix),
                "base_prefix": sys.base_prefix,
                "path": ["/usr/lib/python311.zip", self.site],
                "site_packages": [self.site],
                "user_site": "/home/nobody/.local/lib/python3.11/site-packages",
                "user_site_enabled": False,
                "soabi": sysconfig.get_config_var("SOABI"),
            },
        )

    def read(self, environ: Optional[Dict[str, str]] = None) -> Answer:
        """The section's answer."""
        return libraries.read(self.context(environ))


def of_machine() -> Set[str]:
    """The families that are opened by name and that this machine itself has, by its loader's own list."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=True)
    files = {line.split()[0] for line in listed.stdout.splitlines()[1:] if line.split()}
    return {family for family, sonames in SONAMES.items() if files.intersection(sonames)}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A CUDA 13 stack of wheels, as pip lays it out."""
    environment = Environment(tmp_path_factory.mktemp("wheels"))
    fakelibs.build_stack(environment.site)
    return environment


@pytest.fixture(scope="module")
def other_nccl(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of another NCCL, laid out as a system package."""
    folder = str(tmp_path_factory.mktemp("other-nccl"))
    fakelibs.build_nccl(folder, "2.18.5", real_name=True)
    return folder


def test_libraries_of_a_wheel_stack_are_its_own(stack: Environment) -> None:
    """Every copy is the environment's, written relative to it, with the version of its own call."""
    answer = stack.read()
    assert ("ok", []) == (answer.status, list(answer.errors))
    assert {
        "library": "{site}/torch/lib/libtorch_cuda.so",
        "search": "RPATH",
        "glibc": max(needed_glibc(stack.torch(name)) or "" for name in os.listdir(stack.torch(""))),
        "built_with": {"cudnn": "9.24.0", "nccl": "2.30.7"},
    } == answer.facts["torch"]
    assert {
        "path": "{site}/nvidia/nccl/lib/libnccl.so.2",
        "version": "2.30.7",
        "origin": "environment",
        "via": "RPATH",
        "cuda": "13.0",
    } == answer.facts["nccl"]
    own = {name: row for name, row in answer.facts.items() if name not in of_machine()}
    versions = {name: row["version"] for name, row in own.items() if "version" in row}
    assert {
        "cublas": "13.1.1",
        "cublaslt": "13.1.1",
        "cudart": "13.0.96",
        "cudnn": "9.24.0",
        "nccl": "2.30.7",
    } == versions
    assert [] == answer.facts["missing"]
    assert stack.site == answer.notes["places"]["{site}"]


def test_libraries_of_two_equal_environments_are_equal(stack: Environment, tmp_path: Path) -> None:
    """The same stack in another folder has the same facts: only the notes know where it lies."""
    twin = Environment(tmp_path / "twin")
    fakelibs.build_stack(twin.site)
    first, second = stack.read(), twin.read()
    assert first.facts == second.facts
    assert first.notes["places"] != second.notes["places"]


@pytest.mark.parametrize("preload", [False, True], ids=["", "LD_PRELOAD"])
@pytest.mark.parametrize("path", [False, True], ids=["", "LD_LIBRARY_PATH"])
@pytest.mark.parametrize("by_torch", [False, True], ids=["", "torch loads by path"])
@pytest.mark.parametrize("search", ["RPATH", "RUNPATH"])
def test_libraries_taken_are_those_a_process_maps(
    tmp_path: Path, other_nccl: str, search: str, by_torch: bool, path: bool, preload: bool
) -> None:
    """For each build and variable the named NCCL is the one that is mapped after torch's own loading."""
    environment = Environment(tmp_path / "env")
    body = "_preload_cuda_deps(required=False)" if by_torch else ""
    fakelibs.build_stack(environment.site, search=search, torch_options={"preloads": body})
    environ = {"LD_LIBRARY_PATH": other_nccl} if path else {}
    if preload:
        environ["LD_PRELOAD"] = os.path.join(other_nccl, "libnccl.so.2")
    opened = [environment.torch("libtorch_global_deps.so")]
    if by_torch:
        opened.append(os.path.join(environment.site, "nvidia", "nccl", "lib", "libnccl.so.2"))
    opened.append(environment.extension)
    maps = mapped(opened, environ)
    loaded = next(os.path.join(maps[name], name) for name in maps if name.startswith("libnccl.so"))
    nccl = environment.read(environ).facts["nccl"]
    told = nccl["path"].replace("{site}", environment.site)
    if not preload and not by_torch:
        assert loaded == os.path.realpath(told)
    elif preload:
        # Both may be mapped; the preloaded one answers first.
        assert os.path.realpath(told) == os.path.realpath(environ["LD_PRELOAD"])
        assert os.path.basename(os.path.realpath(told)) in maps
    else:
        assert os.path.realpath(told) == os.path.realpath(loaded)
    assert ("2.18.5" if other_nccl in told else "2.30.7") == nccl["version"]


def test_libraries_with_another_nccl_on_a_runpath_build_name_both(tmp_path: Path, other_nccl: str) -> None:
    """LD_LIBRARY_PATH wins over RUNPATH: the other copy is loaded, the environment's is a copy on the way."""
    environment = Environment(tmp_path / "env")
    fakelibs.build_stack(environment.site, search="RUNPATH")
    answer = environment.read({"LD_LIBRARY_PATH": other_nccl})
    assert {
        "path": f"{other_nccl}/libnccl.so.2",
        "version": "2.18.5",
        "origin": "other",
        "via": "LD_LIBRARY_PATH",
        "cuda": "13.0",
    } == answer.facts["nccl"]
    assert {"{site}/nvidia/nccl/lib/libnccl.so.2": "2.30.7"} == answer.facts["copies"]["nccl"]


def test_libraries_with_another_nccl_on_an_rpath_build_stay(stack: Environment, other_nccl: str) -> None:
    """RPATH wins over LD_LIBRARY_PATH: the environment's copy is loaded, the other one only named."""
    answer = stack.read({"LD_LIBRARY_PATH": other_nccl})
    assert "2.30.7" == answer.facts["nccl"]["version"]
    assert {f"{other_nccl}/libnccl.so.2": "2.18.5"} == answer.facts["copies"]["nccl"]


def test_libraries_rescued_by_torch_are_those_of_the_wheels(tmp_path: Path) -> None:
    """A build without search path, as old wheels: torch's first load fails and it loads wheels by path."""
    environment = Environment(tmp_path / "env")
    # A CUDA that no machine has, so that none of this one's own libraries answers first.
    needs = ("libcudart.so.77", "libnccl.so.2")
    fakelibs.build_stack(environment.site, search="none", cudart="77.0", torch_options={"needs": needs})
    answer = environment.read()
    assert ("ok", []) == (answer.status, list(answer.errors))
    assert ("{site}/nvidia/nccl/lib/libnccl.so.2", "torch") == (
        answer.facts["nccl"]["path"],
        answer.facts["nccl"]["via"],
    )


def test_libraries_of_conda_forge_lie_in_the_prefix(tmp_path: Path) -> None:
    """torch/lib holds links to the prefix's lib, where NCCL is a package of its own."""
    environment = Environment(tmp_path / "env")
    lib = str(environment.prefix / "lib")
    fakelibs.build_nccl(lib, "2.27.3", real_name=True)
    fakelibs.build_cudart(lib, "12.9.79", real_name=True)
    needs = ("libcudart.so.12", "libnccl.so.2")
    fakelibs.build_torch(
        environment.site, "2.8.0", cuda="12.9", needs=needs, search_dirs=["$ORIGIN"], libraries_in=lib
    )
    # The links are followed by name, and $ORIGIN is the folder of the name: conda-forge patches it.
    fakelibs.compile_library(
        os.path.join(lib, "libtorch_cuda.so"),
        "int at_cuda;",
        soname="libtorch_cuda.so",
        needs=needs,
        search="RPATH",
        search_dirs=["$ORIGIN", "$ORIGIN/../../../.."],
    )
    answer = environment.read()
    assert ("{prefix}/lib/libnccl.so.2", "2.27.3", "RPATH") == (
        answer.facts["nccl"]["path"],
        answer.facts["nccl"]["version"],
        answer.facts["nccl"]["via"],
    )
    assert f"{lib}/libnccl.so.2.27.3" == os.path.realpath(f"{lib}/libnccl.so.2")
    assert lib == mapped([environment.extension], {})["libnccl.so.2.27.3"]


def test_libraries_that_nothing_provides_are_named(tmp_path: Path) -> None:
    """A needed library that is nowhere is a fact, and the others are still told."""
    environment = Environment(tmp_path / "env")
    fakelibs.build_stack(environment.site)
    os.unlink(os.path.join(environment.site, "nvidia", "nccl", "lib", "libnccl.so.2"))
    answer = environment.read()
    assert ["libnccl.so.2"] == answer.facts["missing"]
    assert "nccl" not in answer.facts
    assert "9.24.0" == answer.facts["cudnn"]["version"]


def test_libraries_with_static_nccl_name_the_library_that_holds_it(tmp_path: Path) -> None:
    """Conda builds of the pytorch channel link NCCL into libtorch_cuda.so: version told, never absent."""
    environment = Environment(tmp_path / "env")
    fakelibs.build_stack(environment.site, torch_options={"static_nccl": "2.20.5"})
    assert {
        "path": "{site}/torch/lib/libtorch_cuda.so",
        "version": "2.20.5",
        "origin": "static",
        "via": "static",
        "cuda": "13.0",
    } == environment.read().facts["nccl"]


def test_libraries_of_a_cpu_torch_are_those_of_libtorch_cpu(tmp_path: Path) -> None:
    """Without libtorch_cuda.so the CPU library's needs are resolved, and no GPU library is claimed."""
    environment = Environment(tmp_path / "env")
    fakelibs.build_torch(environment.site, "2.13.0+cpu", cuda=None)
    answer = environment.read()
    assert ("ok", "{site}/torch/lib/libtorch_cpu.so") == (answer.status, answer.facts["torch"]["library"])
    assert not {"nccl", "cudnn", "cudart"} & set(answer.facts)


def test_libraries_of_a_rocm_torch_are_those_of_amd(tmp_path: Path) -> None:
    """RCCL has NCCL's version call; it is a family of its own, as MIOpen and HIP are."""
    environment = Environment(tmp_path / "env")
    folder = os.path.dirname(environment.torch(""))
    fakelibs.build_torch(environment.site, "2.8.0+rocm6.4", cuda=None)
    code = fakelibs.nccl_code("2.22.3")
    rccl = f"int ncclGetVersion(int *version) {{ *version = {code}; return 0; }}"
    fakelibs.compile_library(f"{folder}/librccl.so.1", rccl, soname="librccl.so.1")
    fakelibs.compile_library(f"{folder}/libMIOpen.so.1", "int miopen;", soname="libMIOpen.so.1")
    needs = {"libtorch_hip.so": ["librccl.so.1", "libMIOpen.so.1"], "libtorch_python.so": ["libtorch_hip.so"]}
    for name, needed in needs.items():
        fakelibs.compile_library(
            f"{folder}/{name}",
            "int at_hip;",
            soname=name,
            needs=needed,
            search="RPATH",
            search_dirs=["$ORIGIN"],
        )
    answer = environment.read()
    assert ("ok", "{site}/torch/lib/libtorch_hip.so") == (answer.status, answer.facts["torch"]["library"])
    rccl_row = {"path": "{site}/torch/lib/librccl.so.1", "version": "2.22.3"}
    assert rccl_row == {key: answer.facts["rccl"][key] for key in rccl_row}
    assert "{site}/torch/lib/libMIOpen.so.1" == answer.facts["miopen"]["path"]
    assert "nccl" not in answer.facts


def test_libraries_without_torch_are_absent(tmp_path: Path) -> None:
    """No torch on sys.path: nothing to resolve, and no error."""
    assert Answer("absent", {}) == Environment(tmp_path / "env").read()


def test_libraries_with_a_damaged_torch_say_why(tmp_path: Path) -> None:
    """A libtorch_cuda.so cut short is partial, with the loader's words; the copies are still told."""
    environment = Environment(tmp_path / "env")
    fakelibs.build_stack(environment.site)
    whole = Path(environment.torch("libtorch_cuda.so")).read_bytes()
    Path(environment.torch("libtorch_cuda.so")).write_bytes(whole[:700])
    answer = environment.read()
    assert "partial" == answer.status
    assert [f"{environment.torch('libtorch_cuda.so')}: table at"] == [
        error.rpartition("table at")[0] + "table at" for error in answer.errors[1:]
    ]
    assert {"{site}/nvidia/nccl/lib/libnccl.so.2": "2.30.7"} == answer.facts["copies"]["nccl"]


def test_libraries_with_an_empty_torch_folder_are_an_error(tmp_path: Path) -> None:
    """A torch package without libraries is broken, not absent."""
    environment = Environment(tmp_path / "env")
    os.makedirs(os.path.join(environment.site, "torch"))
    Path(environment.site, "torch", "__init__.py").touch()
    answer = environment.read()
    assert "error" == answer.status
    assert "none of libtorch_cuda.so" in answer.errors[0]


@pytest.mark.parametrize("behaviour", ["crashes", "hangs"])
def test_libraries_with_a_broken_nccl_keep_the_others(tmp_path: Path, behaviour: str) -> None:
    """An NCCL whose version call crashes or hangs is named by its text, and cuDNN still answers."""
    environment = Environment(tmp_path / "env")
    fakelibs.build_stack(environment.site)
    fakelibs.build_nccl(
        os.path.join(environment.site, "nvidia", "nccl", "lib"), "2.30.7", behaviour=behaviour
    )
    answer = environment.read()
    assert ("partial", "2.30.7", "9.24.0") == (
        answer.status,
        answer.facts["nccl"]["version"],
        answer.facts["cudnn"]["version"],
    )
    assert ["libnccl.so.2: version call" in error for error in answer.errors] == [True]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root refuses to run what others can write")
def test_libraries_that_others_can_write_are_not_run_as_root(tmp_path: Path) -> None:
    """As root a world-writable NCCL is read, not called, and the notes say so."""
    environment = Environment(tmp_path / "env")
    fakelibs.build_stack(environment.site)
    nccl = os.path.join(environment.site, "nvidia", "nccl", "lib", "libnccl.so.2")
    fakelibs.build_nccl(os.path.dirname(nccl), "2.30.7", behaviour="crashes")
    os.chmod(nccl, stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
    answer = environment.read()
    assert ("ok", "2.30.7") == (answer.status, answer.facts["nccl"]["version"])
    assert "can be written by everybody" in answer.notes["not_examined"]["version call of nccl"]


def fake_node(root: Path, commands: Dict[str, Any], denied: Sequence[str] = ()) -> Context:
    """A fake node whose loader is answered from recorded words."""
    site = "/env/lib/python3.11/site-packages"
    return Context(
        root=str(root),
        environ={},
        workdir="/",
        launch="ssh",
        interpreter={
            "executable": "/env/bin/python",
            "prefix": "/env",
            "base_prefix": "/env",
            "path": [site],
            "site_packages": [site],
        },
        node={"commands": commands, "denied": list(denied)},
    )


@pytest.fixture(scope="module")
def node_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a fake node with a stack of wheels and a python that asks for this machine's loader."""
    root = tmp_path_factory.mktemp("node")
    site = root / "env" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    fakelibs.build_stack(str(site))
    (root / "env" / "bin").mkdir()
    (root / "env" / "bin" / "python").write_bytes(Path(PYTHON).read_bytes()[:20000])
    return root


def loader_call() -> str:
    """The call that the section makes on the fake node."""
    libs = "/env/lib/python3.11/site-packages/torch/lib"
    extension = f"{os.path.dirname(libs)}/_C.{sysconfig.get_config_var('SOABI')}.so"
    preload = f"{libs}/libtorch_global_deps.so:{extension}"
    return f"{read_elf(PYTHON).interpreter} --preload {preload} --list /env/bin/python"


LISTED: List[str] = [
    "\tlinux-vdso.so.1 (0x00007f0000000000)",
    f"\t/env/lib/python3.11/site-packages/torch/_C.{sysconfig.get_config_var('SOABI')}.so (0x0)",
    "\tlibtorch_python.so => /env/lib/python3.11/site-packages/torch/lib/libtorch_python.so (0x0)",
    "\tlibtorch_cuda.so => /env/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so (0x0)",
    "\tlibnccl.so.2 => /env/lib/python3.11/site-packages/torch/lib/../../nvidia/nccl/lib/libnccl.so.2 (0x0)",
    "\tlibcudnn.so.9 => not found",
]


def test_libraries_of_a_fake_node_come_from_its_recorded_loader(node_root: Path) -> None:
    """Nothing of a fake node is run: paths from the recorded answer, versions from texts and records."""
    commands = {loader_call(): {"rc": 0, "stdout": "\n".join(LISTED)}}
    answer = libraries.read(fake_node(node_root, commands))
    assert ("ok", ["libcudnn.so.9"]) == (answer.status, answer.facts["missing"])
    assert ("{site}/nvidia/nccl/lib/libnccl.so.2", "2.30.7", "RPATH") == (
        answer.facts["nccl"]["path"],
        answer.facts["nccl"]["version"],
        answer.facts["nccl"]["via"],
    )


def test_libraries_of_a_node_without_a_loader_cache_have_the_system_copies(
    node_root: Path, tmp_path: Path
) -> None:
    """An image in which nobody ran ldconfig: the loader still looks into its default folders."""
    root = tmp_path / "image"
    shutil.copytree(node_root, root, symlinks=True)
    fakelibs.build_nccl(str(root / "usr" / "lib" / "x86_64-linux-gnu"), "2.18.5", real_name=True)
    answer = libraries.read(fake_node(root, {loader_call(): {"rc": 0, "stdout": "\n".join(LISTED)}}))
    assert {"/usr/lib/x86_64-linux-gnu/libnccl.so.2": "2.18.5"} == answer.facts["copies"]["nccl"]


@pytest.mark.parametrize(
    "said",
    [
        {"hang": True},
        {"rc": 1, "stdout": "", "stderr": "killed"},
        {"rc": 0, "stdout": "\x00\xff garbage => "},
    ],
    ids=["hang", "failed", "garbled"],
)
def test_libraries_with_a_loader_that_tells_nothing_are_partial(
    node_root: Path, said: Dict[str, Any]
) -> None:
    """A loader that hangs, fails or talks nonsense leaves what is taken unknown, and says so."""
    answer = libraries.read(fake_node(node_root, {loader_call(): said}))
    assert "partial" == answer.status
    assert "--list" in answer.errors[0]
    assert "nccl" not in answer.facts


def test_libraries_in_a_folder_that_may_not_be_read_are_an_error(node_root: Path) -> None:
    """Permission denied on torch/lib is told from a torch without libraries by its own text."""
    denied = ["/env/lib/python3.11/site-packages/torch/lib"]
    answer = libraries.read(fake_node(node_root, {}, denied))
    assert "error" == answer.status
    assert "Permission denied" in answer.errors[0]
