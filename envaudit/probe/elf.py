"""What a shared library or program says of itself: an ELF file read without loading it.

Only what the loader's answer depends on is read: the program interpreter, the soname, the needed
libraries, the two search paths, the C library; and texts in the read-only data. The layout is that
of the System V ABI (`man 5 elf`). The file may be garbage: every offset is checked against the
file's size before it is used, every count has a limit.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
import struct
from typing import BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Tuple

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 14, 15, 29
_SHT_NOBITS = 8
# .gnu.version_r: which versions of the symbols of each needed library are used (System V ABI, gABI 13).
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF

_MAX_HEADERS = 4096
_MAX_DYNAMIC_BYTES = 1 << 16
_MAX_NAME_BYTES = 1 << 14
_MAX_SEARCHED_BYTES = 1 << 31
_MAX_TEXT_BYTES = 512
_GLIBC = re.compile(rb"GLIBC_(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})?\0")


class NotElf(Exception):
    """The file is no ELF file, or one whose tables point outside of it; the text says what is wrong."""


class Elf(NamedTuple):
    """One file's own words.

    Attributes:
        bits: 32 or 64.
        machine: the architecture's number (e_machine), 62 is x86-64, 183 is AArch64.
        interpreter: the loader this program asks for (PT_INTERP), None for libraries.
        soname: the name under which others need this library.
        needed: the sonames it needs, in order.
        rpath: folders searched before LD_LIBRARY_PATH, as written, `$ORIGIN` not expanded.
        runpath: folders searched after LD_LIBRARY_PATH; where it is present, `rpath` is ignored.
    """

    bits: int
    machine: int
    interpreter: Optional[str]
    soname: Optional[str]
    needed: Tuple[str, ...]
    rpath: Tuple[str, ...]
    runpath: Tuple[str, ...]


class _Layout(NamedTuple):
    """Where the tables are, from the file header."""

    bits: int
    order: str
    machine: int
    programs: Tuple[int, int, int]
    sections: Tuple[int, int, int]
    section_names: int


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def read_elf(path: str) -> Elf:
    """What the ELF file at `path` says of itself.

    Raises:
        OSError: absent, unreadable or no regular file.
        NotElf: garbage, truncated, or of an unknown kind.
    """
    with _open(path) as file:
        layout = _layout(file)
        segments = _segments(file, layout)
        interpreter = None
        for segment in segments:
            if segment.kind == _PT_INTERP:
                interpreter = _string(_at(file, segment.offset, min(segment.size, 4096)))
        entries = _dynamic(file, layout, segments)
        names = _dynamic_names(file, segments, entries)
    return Elf(
        bits=layout.bits,
        machine=layout.machine,
        interpreter=interpreter,
        soname=names[_DT_SONAME][0] if names[_DT_SONAME] else None,
        needed=tuple(names[_DT_NEEDED]),
        rpath=_folders(names[_DT_RPATH]),
        runpath=_folders(names[_DT_RUNPATH]),
    )


def needed_glibc(path: str) -> Optional[str]:
    """The oldest glibc that the ELF file at `path` can be loaded with: "2.28"; None where it names none.

    It is the highest `GLIBC_x.y` among the symbol versions that the file needs.

    Raises:
        OSError, NotElf: as `read_elf`.
    """
    with _open(path) as file:
        layout = _layout(file)
        segments = _segments(file, layout)
        single = dict(_dynamic(file, layout, segments))
        if _DT_VERNEED not in single or _DT_STRTAB not in single:
            return None
        names_at = _offset_of(segments, single[_DT_STRTAB])
        block = _up_to(file, _offset_of(segments, single[_DT_VERNEED]), _MAX_DYNAMIC_BYTES)
        places = _needed_versions(layout, block, single.get(_DT_VERNEEDNUM, 0))
        if not places or max(places) - min(places) > _MAX_DYNAMIC_BYTES:
            return None
        # The linker puts them next to each other, at the end of a table that may have 20 MB.
        first = min(places)
        names = _up_to(file, names_at + first, max(places) - first + 32)
    found = []
    for place in places:
        match = _GLIBC.match(names, place - first)
        if match:
            found.append((int(match.group(1)), int(match.group(2))))
    return "{}.{}".format(*max(found)) if found else None


def _needed_versions(layout: _Layout, block: bytes, libraries: int) -> List[int]:
    """Where in the string table the names of the needed versions are (Elf64_Verneed, Elf64_Vernaux)."""
    found: List[int] = []
    at = 0
    for _ in range(libraries):
        _, count, _, first, following = _row(layout, "HHIII", block, at)
        inside = at + first
        for _ in range(count):
            _, _, _, name_at, next_inside = _row(layout, "IHHII", block, inside)
            found.append(name_at)
            if len(found) > _MAX_HEADERS:
                raise NotElf(f"more than {_MAX_HEADERS} needed versions")
            inside += next_inside
        if not following:
            break
        at += following
    return found


def _row(layout: _Layout, form: str, block: bytes, at: int) -> Tuple[int, ...]:
    if at + struct.calcsize(layout.order + form) > len(block):
        raise NotElf("table of needed versions is cut short")
    return struct.unpack_from(layout.order + form, block, at)


def texts(path: str, needle: bytes) -> Iterator[str]:
    """The C strings that contain `needle` in the read-only data of an ELF file, each once a hit.

    A whole libnccl.so is 250 MB, nearly all of it device code, its read-only data 0.5 MB: searching
    the former takes half a second, the latter under a millisecond. A file without section headers
    is searched whole, up to 2 GiB, at about 1 GB a second.

    Raises:
        OSError, NotElf: as `read_elf`.
    """
    with _open(path) as file:
        ranges = _read_only_data(file, _layout(file))
        if not ranges:
            ranges = [(0, min(_size(file), _MAX_SEARCHED_BYTES))]
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            for start, end in ranges:
                found = view.find(needle, start, end)
                while found >= 0:
                    text = _c_string(view, found, start, end)
                    yield text
                    found = view.find(needle, found + max(1, len(needle)), end)


def _c_string(view: mmap.mmap, found: int, start: int, end: int) -> str:
    """The text around `found`, from NUL to NUL, at most 512 bytes to either side."""
    first = view.rfind(b"\0", max(start, found - _MAX_TEXT_BYTES), found)
    last = view.find(b"\0", found, min(end, found + _MAX_TEXT_BYTES))
    first = max(start, found - _MAX_TEXT_BYTES) if first < 0 else first + 1
    last = min(end, found + _MAX_TEXT_BYTES) if last < 0 else last
    return view[first:last].decode("ascii", "replace")


def _open(path: str) -> BinaryIO:
    # Opening a FIFO for reading blocks without O_NONBLOCK.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path}: not a regular file")
    return os.fdopen(descriptor, "rb", buffering=0)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _at(file: BinaryIO, offset: int, size: int) -> bytes:
    """Exactly `size` bytes at `offset`, or NotElf."""
    if offset + size > _size(file):
        raise NotElf(f"table at {offset} of {size} bytes lies beyond the end of the file (truncated?)")
    return os.pread(file.fileno(), size, offset)


def _up_to(file: BinaryIO, offset: int, size: int) -> bytes:
    """What there is of `size` bytes at `offset`, or NotElf where the file has ended before."""
    return _at(file, offset, max(0, min(size, _size(file) - offset)))


def _layout(file: BinaryIO) -> _Layout:
    magic = os.pread(file.fileno(), 16, 0)
    if len(magic) < 16 or magic[:4] != b"\x7fELF":
        raise NotElf("no ELF file")
    if magic[4] not in (1, 2) or magic[5] not in (1, 2):
        raise NotElf(f"unknown ELF class {magic[4]} or byte order {magic[5]}")
    bits, order = (32, 64)[magic[4] - 1], "<>"[magic[5] - 1]
    form = order + ("HHIIIIIHHHHHH" if bits == 32 else "HHIQQQIHHHHHH")
    fields = struct.unpack(form, _at(file, 16, struct.calcsize(form)))
    (_, machine, _, _, program_at, section_at, _, _) = fields[:8]
    program_size, program_count, section_size, section_count, section_names = fields[8:]
    return _Layout(
        bits,
        order,
        machine,
        (program_at, program_size, program_count),
        (section_at, section_size, section_count),
        section_names,
    )


def _rows(
    file: BinaryIO, layout: _Layout, table: Tuple[int, int, int], form: str
) -> Iterator[Tuple[int, ...]]:
    offset, size, count = table
    width = struct.calcsize(layout.order + form)
    if not count:
        return
    if count > _MAX_HEADERS or size < width:
        raise NotElf(f"header table of {count} rows of {size} bytes")
    block = _at(file, offset, size * count)
    for index in range(count):
        yield struct.unpack_from(layout.order + form, block, index * size)


def _segments(file: BinaryIO, layout: _Layout) -> List[_Segment]:
    if layout.bits == 32:
        rows = _rows(file, layout, layout.programs, "IIIIIIII")
        return [_Segment(row[0], row[1], row[2], row[4]) for row in rows]
    rows = _rows(file, layout, layout.programs, "IIQQQQQQ")
    return [_Segment(row[0], row[2], row[3], row[5]) for row in rows]


def _dynamic(file: BinaryIO, layout: _Layout, segments: List[_Segment]) -> List[Tuple[int, int]]:
    """The (tag, value) rows of the dynamic section, up to DT_NULL."""
    form = layout.order + ("iI" if layout.bits == 32 else "qQ")
    rows: List[Tuple[int, int]] = []
    for segment in segments:
        if segment.kind != _PT_DYNAMIC:
            continue
        size = min(segment.size, _MAX_DYNAMIC_BYTES)
        block = _at(file, segment.offset, size - size % struct.calcsize(form))
        for tag, value in struct.iter_unpack(form, block):
            if not tag:
                break
            rows.append((tag, value))
    return rows


def _dynamic_names(
    file: BinaryIO, segments: List[_Segment], entries: List[Tuple[int, int]]
) -> Dict[int, List[str]]:
    """The strings of the tags that name something, by tag."""
    names: Dict[int, List[str]] = {_DT_NEEDED: [], _DT_SONAME: [], _DT_RPATH: [], _DT_RUNPATH: []}
    single = dict(entries)
    if _DT_STRTAB not in single:
        return names
    start = _offset_of(segments, single[_DT_STRTAB])
    size = single.get(_DT_STRSZ, 0)
    for tag, value in entries:
        if tag in names:
            if value >= size:
                raise NotElf(f"name at {value} lies beyond the string table of {size} bytes")
            names[tag].append(_string(_at(file, start + value, min(size - value, _MAX_NAME_BYTES))))
    return names


def _offset_of(segments: List[_Segment], address: int) -> int:
    """Where in the file the loader finds what it maps to `address`."""
    for segment in segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
            return segment.offset + address - segment.address
    raise NotElf(f"address {address:#x} is in no segment")


def _read_only_data(file: BinaryIO, layout: _Layout) -> List[Tuple[int, int]]:
    """Where the sections .rodata and .rodata.* lie, as (start, end) in the file."""
    form = "IIIIIIIIII" if layout.bits == 32 else "IIQQQQIIQQ"
    rows = list(_rows(file, layout, layout.sections, form))
    if layout.section_names >= len(rows):
        return []
    names_at, names_size = rows[layout.section_names][4:6]
    names = _at(file, names_at, min(names_size, 1 << 20))
    ranges = []
    for row in rows:
        name = _string(names[row[0] : row[0] + 64])
        if row[1] != _SHT_NOBITS and (name == ".rodata" or name.startswith(".rodata.")):
            ranges.append((row[4], min(row[4] + row[5], _size(file))))
    return ranges


def _string(block: bytes) -> str:
    return block.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _folders(values: List[str]) -> Tuple[str, ...]:
    return tuple(folder for value in values[:1] for folder in value.split(":") if folder)
