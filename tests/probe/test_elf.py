"""ELF files read without loading them: real ones, and all that a disk may hold under that name."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from envaudit.probe.elf import NotElf, needed_glibc, read_elf, texts
from tests.probe import fakelibs


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that has all that is read."""
    return fakelibs.compile_library(
        str(tmp_path_factory.mktemp("elf") / "libasks.so.3"),
        'const char told[] = "NCCL version 2.18.5+cuda12.1";',
        soname="libasks.so.3",
        search="RUNPATH",
        search_dirs=("$ORIGIN/../nccl/lib", "/opt/nccl"),
        needs=("libnccl.so.2", "libcudnn.so.9"),
    )


def test_elf_of_a_library_tells_names_and_search_path(library: str) -> None:
    """The soname, the needed libraries in order and the search path are those the linker was told."""
    elf = read_elf(library)
    assert (64, "libasks.so.3", None) == (elf.bits, elf.soname, elf.interpreter)
    assert ("libnccl.so.2", "libcudnn.so.9") == elf.needed[:2]
    assert ("$ORIGIN/../nccl/lib", "/opt/nccl") == elf.runpath
    assert () == elf.rpath


def test_elf_of_a_program_tells_its_loader() -> None:
    """The interpreter's own file asks for a loader that is there."""
    interpreter = read_elf(os.path.realpath(sys.executable)).interpreter
    assert interpreter is not None
    assert os.path.exists(interpreter)


def test_elf_with_old_dynamic_tags_has_rpath(tmp_path: Path) -> None:
    """DT_RPATH and DT_RUNPATH are told apart: they have opposite ranks against LD_LIBRARY_PATH."""
    path = fakelibs.compile_library(
        str(tmp_path / "libold.so"), "int old;", search="RPATH", search_dirs=("/opt/a", "/opt/b")
    )
    assert (("/opt/a", "/opt/b"), ()) == (read_elf(path).rpath, read_elf(path).runpath)


def test_elf_reader_agrees_with_readelf_on_the_interpreter_libraries() -> None:
    """On every extension module of this Python the needed libraries are those readelf prints."""
    folder = Path(os.__file__).parent / "lib-dynload"
    modules = sorted(folder.glob("*.so"))[:12]
    assert modules
    for module in modules:
        command = ["readelf", "-dW", str(module)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        named = [line.split("[", 1)[1].rstrip("]") for line in printed.splitlines() if "(NEEDED)" in line]
        assert tuple(named) == read_elf(str(module)).needed


def test_needed_glibc_is_the_highest_that_readelf_lists() -> None:
    """The symbol versions of the running Python's own extension modules."""
    modules = sorted((Path(os.__file__).parent / "lib-dynload").glob("*.so"))[:6]
    assert modules
    for module in modules:
        command = ["readelf", "-V", "-W", str(module)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        versions = [(int(a), int(b)) for a, b in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", printed)]
        assert ("{}.{}".format(*max(versions)) if versions else None) == needed_glibc(str(module))


def test_needed_glibc_of_a_library_without_versions_is_none(tmp_path: Path) -> None:
    """A library that needs nothing of the C library names none."""
    path = fakelibs.compile_library(str(tmp_path / "libalone.so"), "int alone;", flags=("-nostdlib",))
    assert needed_glibc(path) is None


def test_needed_glibc_with_a_damaged_table_is_refused_or_told(library: str, tmp_path: Path) -> None:
    """Whatever a byte of the table of needed versions becomes: a version, none, or NotElf."""
    whole = Path(library).read_bytes()
    command = ["readelf", "-S", "-W", library]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    place = re.search(r"\.gnu\.version_r\s+\w+\s+\w+\s+(\w+)\s+(\w+)", printed)
    assert place
    start, size = int(place.group(1), 16), int(place.group(2), 16)
    told = set()
    broken = tmp_path / "libbroken.so"
    for at in range(start, start + size):
        broken.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            told.add(needed_glibc(str(broken)))
        except NotElf:
            told.add("refused")
    assert {"refused", needed_glibc(library)} <= told


@pytest.mark.parametrize("size", [0, 3, 16, 40, 63, 64, 200, 500])
def test_elf_cut_short_is_refused(library: str, tmp_path: Path, size: int) -> None:
    """A file that ends inside its header or tables names that and reads nothing beyond its end."""
    cut = tmp_path / "libcut.so"
    cut.write_bytes(Path(library).read_bytes()[:size])
    with pytest.raises(NotElf, match=r"no ELF file|beyond the end"):
        read_elf(str(cut))


def test_elf_with_any_byte_of_its_head_changed_reads_or_is_refused(library: str, tmp_path: Path) -> None:
    """Whatever one byte of the first 1,024 becomes, the answer is a value or NotElf, and never a hang."""
    whole = Path(library).read_bytes()
    broken = tmp_path / "libbroken.so"
    refused = 0
    for at in range(0, 1024, 3):
        broken.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            read_elf(str(broken))
            list(texts(str(broken), b"NCCL version "))
            needed_glibc(str(broken))
        except NotElf:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize(
    "garbage",
    [b"#!/bin/sh\nexec true\n", b"\x7fELF" + bytes(60), b"\x7fELF\x02\x01\x01" + b"\xff" * 200, b"\0" * 4096],
    ids=["script", "empty header", "all ones", "zeros"],
)
def test_elf_reader_on_garbage_says_so(tmp_path: Path, garbage: bytes) -> None:
    """What is no ELF file is told from one that could not be opened."""
    path = tmp_path / "libgarbage.so"
    path.write_bytes(garbage)
    with pytest.raises(NotElf):
        read_elf(str(path))


def test_elf_of_32_bits_is_read(tmp_path: Path) -> None:
    """A 32-bit big-endian header: other widths, other order, no tables."""
    head = b"\x7fELF\x01\x02\x01" + bytes(9)
    head += struct.pack(">HHIIIIIHHHHHH", 3, 8, 1, 0, 0, 0, 0, 52, 32, 0, 40, 0, 0)
    path = tmp_path / "libmips.so"
    path.write_bytes(head)
    elf = read_elf(str(path))
    assert (32, 8, (), None) == (elf.bits, elf.machine, elf.needed, elf.soname)


def test_elf_reader_opens_no_fifo_and_no_folder(tmp_path: Path) -> None:
    """A FIFO would block for good, and a folder of that name is nothing to read."""
    os.mkfifo(tmp_path / "libfifo.so")
    (tmp_path / "libfolder.so").mkdir()
    for name in ("libfifo.so", "libfolder.so", "libnone.so"):
        with pytest.raises(OSError):  # noqa: PT011  three causes, one class
            read_elf(str(tmp_path / name))


def test_texts_are_found_in_read_only_data(library: str) -> None:
    """The version text is found whole, from NUL to NUL."""
    assert ["NCCL version 2.18.5+cuda12.1"] == list(texts(library, b"NCCL version "))
    assert [] == list(texts(library, b"cuDNN version "))


def test_texts_of_a_stripped_file_are_found_too(library: str, tmp_path: Path) -> None:
    """Without section headers there is no telling where the texts are: all of the file is searched."""
    whole = bytearray(Path(library).read_bytes())
    whole[40:48] = bytes(8)  # e_shoff
    whole[60:64] = bytes(4)  # e_shnum, e_shstrndx
    stripped = tmp_path / "libstripped.so"
    stripped.write_bytes(bytes(whole))
    assert "NCCL version 2.18.5+cuda12.1" in list(texts(str(stripped), b"NCCL version "))
