"""Libraries that are opened by their names at run time: NCCL's network plugin, MPI, UCX, libfabric."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Optional, Tuple

import pytest

from tests.probe import fakelibs
from tests.probe.test_libraries_section import Environment, of_machine


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A CUDA 13 stack of wheels."""
    environment = Environment(tmp_path_factory.mktemp("wheels"))
    fakelibs.build_stack(environment.site)
    return environment


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with two network plugins; the second needs the libfabric beside it."""
    folder = str(tmp_path_factory.mktemp("plugins"))
    fakelibs.compile_library(f"{folder}/libnccl-net.so", "int plugin;", soname="libnccl-net.so")
    fakelibs.compile_library(
        f"{folder}/libnccl-net-ofi.so",
        'const char *says(void) { return "NET/OFI Initializing aws-ofi-nccl 1.9.1-aws"; }',
        soname="libnccl-net-ofi.so",
        needs=["libfabric.so.1"],
        search="RUNPATH",
        search_dirs=["$ORIGIN/fabric"],
    )
    fakelibs.compile_library(
        f"{folder}/fabric/libfabric.so.1",
        "unsigned fi_version(void) { return 1 << 16 | 19; }",
        soname="libfabric.so.1",
    )
    return folder


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        ("", "libnccl-net.so"),
        ("ofi", "libnccl-net-ofi.so"),
        ("libnccl-net-ofi.so", "libnccl-net-ofi.so"),
        ("elsewhere,ofi", "libnccl-net-ofi.so"),
        ("NONE", None),
        ("elsewhere", None),
    ],
)
def test_nccl_plugin_is_the_one_that_nccl_opens(
    stack: Environment, plugins: str, choice: str, taken: Optional[str]
) -> None:
    """Without a choice libnccl-net.so; with one that and nothing else; the folder is on LD_LIBRARY_PATH."""
    facts = stack.read({"LD_LIBRARY_PATH": plugins, "NCCL_NET_PLUGIN": choice}).facts
    assert (f"{plugins}/{taken}" if taken else None) == facts.get("nccl_net", {}).get("path")


def test_nccl_plugin_by_its_path_is_told_so(stack: Environment, plugins: str) -> None:
    """The variable names the file itself; libfabric is the one that this plugin finds."""
    facts = stack.read({"NCCL_NET_PLUGIN": f"{plugins}/libnccl-net-ofi.so"}).facts
    assert {
        "path": f"{plugins}/libnccl-net-ofi.so",
        "version": "1.9.1",
        "origin": "other",
        "via": "NCCL_NET_PLUGIN",
    } == facts["nccl_net"]
    assert {
        "path": f"{plugins}/fabric/libfabric.so.1",
        "version": "1.19",
        "origin": "other",
        "via": "RUNPATH",
    } == facts["libfabric"]


@pytest.mark.parametrize(
    ("texts", "version"),
    [
        (("1.22.0",), "1.22.0"),
        (("1.22.0", "127.0.0.1", "needs 1.9.0"), "1.22.0"),
        (("2.1.0",), "2.1.0"),
        (("1.22.0", "1.9.0"), "1.19"),
        ((), "1.19"),
    ],
)
def test_libfabric_is_loaded_only_where_its_text_does_not_tell(
    stack: Environment, tmp_path: Path, texts: Tuple[str, ...], version: str
) -> None:
    """A load starts all of its providers; of two texts nobody knows which one it is."""
    kept = "".join(
        f'const char *text{number}(void) {{ return "{text}"; }}\n' for number, text in enumerate(texts)
    )
    source = f"""
        #include <fcntl.h>
        #include <unistd.h>
        __attribute__((constructor)) static void begin(void) {{
            close(open("{tmp_path}/loaded", O_CREAT | O_WRONLY, 0600));
        }}
        unsigned fi_version(void) {{ return 1 << 16 | 19; }}
        {kept}
    """
    fakelibs.compile_library(str(tmp_path / "libfabric.so.1"), source, soname="libfabric.so.1")
    facts = stack.read({"LD_LIBRARY_PATH": str(tmp_path)}).facts
    assert (version, version == "1.19") == (facts["libfabric"]["version"], (tmp_path / "loaded").exists())


def test_nccl_plugin_that_a_settings_file_names_is_taken(
    stack: Environment, plugins: str, tmp_path: Path
) -> None:
    """NCCL reads nccl.conf before it opens its plugin."""
    (tmp_path / ".nccl.conf").write_text("NCCL_NET_PLUGIN=ofi\n")
    facts = stack.read({"LD_LIBRARY_PATH": plugins, "HOME": str(tmp_path)}).facts
    assert f"{plugins}/libnccl-net-ofi.so" == facts["nccl_net"]["path"]


def test_nccl_plugin_of_a_static_nccl_is_opened_by_torch(tmp_path: Path, plugins: str) -> None:
    """An NCCL inside libtorch_cuda.so opens its plugin through that library's search path."""
    environment = Environment(tmp_path / "env")
    fakelibs.build_torch(
        environment.site,
        needs=(),
        static_nccl="2.20.5",
        search_dirs=["$ORIGIN", plugins],
    )
    facts = environment.read().facts
    assert "static" == facts["nccl"]["origin"]
    assert (f"{plugins}/libnccl-net.so", "RPATH") == (facts["nccl_net"]["path"], facts["nccl_net"]["via"])


OPEN_MPI = """
    #include <string.h>
    const char *ident(void) { return "Open MPI v4.1.5, package: Open MPI, ident: 4.1.5"; }
"""
MPICH = """
    #include <string.h>
    int MPI_Get_library_version(char *text, int *length) {
        strcpy(text, "MPICH Version:      4.0.2\\nMPICH Release date: 2022");
        *length = strlen(text);
        return 0;
    }
"""
UCX = 'const char *ucp_get_version_string(void) { return "1.15.0"; }'


@pytest.mark.parametrize(
    ("family", "file", "soname", "source", "version"),
    [
        ("mpi", "libmpi.so.40.30.5", "libmpi.so.40", OPEN_MPI, "4.1.5"),
        ("mpi", "libmpi.so.12.2.2", "libmpi.so.12", MPICH, "4.0.2"),
        ("ucx", "libucp.so.0.0.0", "libucp.so.0", UCX, "1.15.0"),
    ],
    ids=["Open MPI", "MPICH", "UCX"],
)
def test_library_that_is_opened_by_name_is_told(
    stack: Environment, tmp_path: Path, family: str, file: str, soname: str, source: str, version: str
) -> None:
    """What the loader gives for the name, and its release: the numbers in these names are no release."""
    fakelibs.compile_library(str(tmp_path / file), source, soname=soname)
    (tmp_path / soname).symlink_to(file)
    answer = stack.read({"LD_LIBRARY_PATH": str(tmp_path)})
    assert ("ok", []) == (answer.status, list(answer.errors))
    assert {
        "path": f"{tmp_path}/{soname}",
        "version": version,
        "origin": "other",
        "via": "LD_LIBRARY_PATH",
    } == answer.facts[family]


def test_library_that_is_opened_by_name_and_does_not_load_is_no_fault(
    stack: Environment, tmp_path: Path
) -> None:
    """A UCX whose own needs are missing is named; its version is unknown, and a note says why."""
    fakelibs.compile_library(
        str(tmp_path / "libucp.so.0"), UCX, soname="libucp.so.0", needs=["libuct-absent.so.0"]
    )
    answer = stack.read({"LD_LIBRARY_PATH": str(tmp_path)})
    assert ("ok", None) == (answer.status, answer.facts["ucx"]["version"])
    assert "libuct-absent.so.0" in answer.notes["not_examined"]["version call of ucx"]


def test_libraries_without_mpi_and_ucx_are_whole(stack: Environment) -> None:
    """Most nodes have neither, and miss nothing."""
    answer = stack.read()
    assert "ok" == answer.status
    assert not {"mpi", "ucx", "libfabric", "nccl_net"} - of_machine() & set(answer.facts)


@pytest.mark.parametrize(
    ("preload", "environ"),
    [("path", {}), ("name", {"LD_LIBRARY_PATH": "{folder}"})],
)
def test_library_preloaded_by_path_or_name_is_taken(
    stack: Environment, tmp_path: Path, preload: str, environ: Dict[str, str]
) -> None:
    """A second NCCL in LD_PRELOAD is taken and the environment's own is named beside it."""
    other = fakelibs.build_nccl(str(tmp_path), "2.18.5")
    filled = {name: value.format(folder=tmp_path) for name, value in environ.items()}
    facts = stack.read({"LD_PRELOAD": other if preload == "path" else "libnccl.so.2", **filled}).facts
    assert (other, "2.18.5", "LD_PRELOAD") == tuple(facts["nccl"][key] for key in ("path", "version", "via"))
    assert {"{site}/nvidia/nccl/lib/libnccl.so.2": "2.30.7"} == facts["copies"]["nccl"]


def test_libraries_in_two_homes_are_alike(stack: Environment, tmp_path: Path) -> None:
    """A second NCCL in each user's own home is the same fact on both nodes."""
    found = []
    for user in ("alice", "bob"):
        home = tmp_path / user
        fakelibs.build_nccl(str(home / "lib"), "2.18.5")
        environ = {"HOME": str(home), "LD_PRELOAD": f"{home}/lib/libnccl.so.2"}
        found.append(stack.read(environ).facts)
    assert "$HOME/lib/libnccl.so.2" == found[0]["nccl"]["path"]
    assert found[0] == found[1]
