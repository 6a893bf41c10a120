"""The loader's answer and its rules, held against what a real process maps."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional

import pytest

from envaudit.probe.context import Context
from envaudit.probe.loader import LoaderRules, LoaderUnknown, ask, parse_cache, resolve_links
from tests.probe import fakelibs

PYTHON = os.path.realpath(sys.executable)
OPEN_AND_SHOW = """
import ctypes, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path)
print("".join({line.split(None, 5)[5] for line in open("/proc/self/maps") if ".so" in line}))
"""


def mapped(libraries: List[str], environ: Dict[str, str]) -> Dict[str, str]:
    """Folder by file name of all libraries that a process has after it opened some."""
    ran = subprocess.run(
        [PYTHON, "-I", "-c", OPEN_AND_SHOW, *libraries],
        env={"PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return {os.path.basename(path): os.path.dirname(path) for path in ran.stdout.split()}


def live(environ: Optional[Dict[str, str]] = None) -> Context:
    """This machine with a prepared environment."""
    return Context(environ=environ or {}, workdir="/", launch="local", interpreter={})


class Copies:
    """Four folders with a libneeded.so.1 each, and one library a search tag that needs it."""

    def __init__(self, folder: Path) -> None:
        self.own, self.path, self.preload = (str(folder / name) for name in ("own", "path", "preload"))
        for place in (self.own, self.path, self.preload):
            fakelibs.compile_library(f"{place}/libneeded.so.1", "int needed;", soname="libneeded.so.1")
            fakelibs.compile_library(f"{place}/libopened.so.1", "int opened;", soname="libopened.so.1")
        self.preloaded = f"{self.preload}/libneeded.so.1"
        self.asker = {
            search: fakelibs.compile_library(
                str(folder / search / "libasks.so"),
                '#include <dlfcn.h>\nvoid *opens(void) { return dlopen("libopened.so.1", RTLD_NOW); }',
                soname="libasks.so",
                search=search,
                search_dirs=("$ORIGIN/../own",),
                needs=("libneeded.so.1",),
                flags=("-ldl",),
            )
            for search in ("RPATH", "RUNPATH", "none")
        }


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    """Copies of one library in folders that each step of the loader's order finds."""
    return Copies(tmp_path_factory.mktemp("copies"))


@pytest.mark.parametrize("preload", [False, True], ids=["", "LD_PRELOAD"])
@pytest.mark.parametrize("path", [False, True], ids=["", "LD_LIBRARY_PATH"])
@pytest.mark.parametrize("search", ["RPATH", "RUNPATH", "none"])
def test_loader_answer_is_what_a_process_maps(copies: Copies, search: str, path: bool, preload: bool) -> None:
    """For each search tag and variable, alone and together, the answer is the file a real start takes."""
    environ = {}
    if path:
        environ["LD_LIBRARY_PATH"] = f"/nowhere:{copies.path}"
    if preload:
        environ["LD_PRELOAD"] = copies.preloaded
    asker = copies.asker[search]
    told = ask(live(environ), PYTHON, [asker])["libneeded.so.1"]
    if search == "none" and not path and not preload:
        assert told is None
        with pytest.raises(subprocess.CalledProcessError):
            mapped([asker], environ)
        return
    assert told is not None
    assert mapped([asker], environ)["libneeded.so.1"] == os.path.dirname(os.path.normpath(told))
    expected_via = (
        "LD_PRELOAD" if preload else {"RPATH": "RPATH", "none": "LD_LIBRARY_PATH"}.get(search, search)
    )
    if search == "RUNPATH" and path and not preload:
        expected_via = "LD_LIBRARY_PATH"
    assert expected_via == LoaderRules(live(environ), PYTHON).via(told, [asker])


@pytest.mark.parametrize("path", [False, True], ids=["", "LD_LIBRARY_PATH"])
@pytest.mark.parametrize("search", ["RPATH", "RUNPATH", "none"])
def test_loader_rules_find_what_dlopen_takes(copies: Copies, search: str, path: bool) -> None:
    """A library that another opens by its bare name at run time is found where dlopen finds it."""
    environ = {"LD_LIBRARY_PATH": copies.path, "LD_PRELOAD": ""} if path else {}
    asker = copies.asker[search]
    found = LoaderRules(live(environ), PYTHON).find("libopened.so.1", [asker])
    script = f"import ctypes; lib = ctypes.CDLL({asker!r}); lib.opens(); "
    script += "print([l.split()[-1] for l in open('/proc/self/maps') if 'libopened' in l][:1])"
    environ = {"LD_PRELOAD": copies.preloaded, **environ}
    environ["LD_PRELOAD"] = copies.preloaded  # so that what it needs is there in any case
    command = [PYTHON, "-I", "-c", script]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=30)
    assert str([found.path] if found else []) == ran.stdout.strip()


def test_loader_counts_the_search_path_of_the_program(copies: Copies, tmp_path: Path) -> None:
    """A program with DT_RPATH, as conda's python has, brings its folder to libraries without one."""
    source = tmp_path / "program.c"
    source.write_text(
        "#include <dlfcn.h>\nint main(int n, char **v) { return n > 1 ? !dlopen(v[1], RTLD_NOW) : 0; }"
    )
    program = str(tmp_path / "program")
    tags = ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{copies.path}", "-ldl"]
    subprocess.run(["gcc", str(source), "-o", program, *tags], check=True)
    asker = copies.asker["none"]
    assert 0 == subprocess.run([program, asker], check=False, timeout=10).returncode
    told = ask(live(), program, [asker])["libneeded.so.1"]
    assert f"{copies.path}/libneeded.so.1" == told
    assert "RPATH" == LoaderRules(live(), program).via(told, [asker])


def test_loader_passes_over_another_architecture(copies: Copies, tmp_path: Path) -> None:
    """A 32-bit library of that name on the way is skipped, by the real loader and by the rules."""
    head = (
        b"\x7fELF\x01\x01\x01"
        + bytes(9)
        + struct.pack("<HHIIIIIHHHHHH", 3, 3, 1, 0, 0, 0, 0, 52, 32, 0, 40, 0, 0)
    )
    for name in ("libneeded.so.1", "libopened.so.1"):
        (tmp_path / name).write_bytes(head.ljust(1024, b"\0"))
    environ = {"LD_LIBRARY_PATH": f"{tmp_path}:{copies.path}"}
    asker = copies.asker["none"]
    assert copies.path == mapped([asker], environ)["libneeded.so.1"]
    assert f"{copies.path}/libneeded.so.1" == ask(live(environ), PYTHON, [asker])["libneeded.so.1"]
    found = LoaderRules(live(environ), PYTHON).find("libopened.so.1", [asker])
    assert found is not None
    assert f"{copies.path}/libopened.so.1" == found.path


def test_loader_with_spaces_in_the_path_is_asked_plainly(copies: Copies, tmp_path: Path) -> None:
    """A folder that no preload list can carry is still resolved."""
    folder = tmp_path / "my env"
    path = fakelibs.compile_library(
        str(folder / "libasks.so"),
        "int asks;",
        search="RPATH",
        search_dirs=(copies.own,),
        needs=("libneeded.so.1",),
    )
    assert f"{copies.own}/libneeded.so.1" == ask(live(), PYTHON, [path])["libneeded.so.1"]


@pytest.mark.parametrize("program", ["/etc/hostname", "/no/python", os.path.dirname(PYTHON)])
def test_loader_of_what_is_no_program_is_unknown(copies: Copies, program: str) -> None:
    """A script, nothing and a folder have no loader; the error names them."""
    with pytest.raises(LoaderUnknown, match=program):
        ask(live(), program, [copies.asker["RPATH"]])


def test_loader_on_a_damaged_library_is_unknown(tmp_path: Path) -> None:
    """The loader's own words say what is wrong with the file."""
    damaged = tmp_path / "libtorch_cuda.so"
    damaged.write_bytes(b"\x7fELF" + bytes(30))
    with pytest.raises(LoaderUnknown, match=r"libtorch_cuda\.so"):
        ask(live(), PYTHON, [str(damaged)])


@pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="ldconfig prints another word for each architecture"
)
def test_cache_agrees_with_ldconfig() -> None:
    """Every soname of this machine's ld.so.cache has the path that ldconfig prints first."""
    ran = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    printed: Dict[str, List[str]] = {}
    for line in ran.stdout.splitlines()[1:]:
        name, arrow, path = line.strip().partition(" => ")
        if arrow and "x86-64" in name:
            printed.setdefault(name.split(" (")[0], []).append(path)
    assert printed
    assert printed == LoaderRules(live(), PYTHON).cache()


@pytest.mark.parametrize("size", [0, 10, 30, 48, 60, 100])
def test_cache_cut_short_gives_what_is_whole(size: int) -> None:
    """A truncated or foreign cache gives fewer entries, never an exception."""
    block = Path("/etc/ld.so.cache").read_bytes()
    assert len(parse_cache(block[:size], 62)) <= 2
    assert {} == parse_cache(b"\xff" * 4096, 62)
    assert {} == parse_cache(b"glibc-ld.so.cache1.1" + b"\xff" * 100, 62)


def test_links_in_a_loop_end(tmp_path: Path) -> None:
    """A loop of links resolves to something, live and on a fake node."""
    (tmp_path / "a.so").symlink_to("b.so")
    (tmp_path / "b.so").symlink_to("a.so")
    fake = Context(root=str(tmp_path), environ={}, workdir="/", launch="ssh", interpreter={})
    assert "/a.so" == resolve_links(fake, "/a.so")
    assert resolve_links(live(), str(tmp_path / "a.so")).startswith(str(tmp_path))
    environ = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert LoaderRules(live(environ), PYTHON).find("a.so", []) is None
