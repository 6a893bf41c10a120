"""Which copy of a shared library a process takes: asked of the loader itself, or its rules followed.

The order (ld.so(8)): LD_PRELOAD and /etc/ld.so.preload; what is loaded already under that soname;
DT_RPATH of the library that asks, of those that loaded it, and of the program, unless the asking
library has DT_RUNPATH; LD_LIBRARY_PATH; DT_RUNPATH of the asking library; /etc/ld.so.cache; the
default folders. So a folder first on LD_LIBRARY_PATH wins over RUNPATH and loses to RPATH.

For libraries that are needed, `ask` lets the loader answer: `ld.so --list` maps the files as a
start would and prints them, without running any code of theirs. For those that are opened by name
at run time (cuDNN's parts, NCCL's plugin, MPI), `LoaderRules.find` follows the order above.
"""

from __future__ import annotations

import os
import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from envaudit.probe.context import Context, ProgramFailed, Ran
from envaudit.probe.elf import Elf, NotElf, read_elf
from envaudit.probe.program import run

_TIMEOUT_S = 5.0
_PRELOAD = "/etc/ld.so.preload"
_CACHE = "/etc/ld.so.cache"
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_LIMIT_BYTES = 1 << 24
# FLAG_X8664_LIB64 and FLAG_AARCH64_LIB64 of glibc's ldconfig.h, by e_machine.
_CACHE_FLAGS = {62: 0x0300, 183: 0x0A00}
_TRIPLETS = {62: "x86_64-linux-gnu", 183: "aarch64-linux-gnu"}
_LINKS_FOLLOWED = 40


class LoaderUnknown(Exception):
    """The loader gave no answer; the text says why."""


class Taken(NamedTuple):
    """A library that was found: where, and by which step of the order."""

    path: str
    via: str


def ask(context: Context, program: str, libraries: Sequence[str]) -> Dict[str, Optional[str]]:
    """The file behind every soname once `program` has loaded `libraries` one after the other.

    The program counts: its own needed libraries come first, and its DT_RPATH (conda's python has
    one) is searched for all. A soname that is not found maps to None.

    Raises:
        LoaderUnknown: no loader, or none of its forms of call was understood.
    """
    # The kernel starts the file behind the links: $ORIGIN is that file's folder, not the venv's bin.
    program = resolve_links(context, program)
    try:
        interpreter = read_elf(context.real(program)).interpreter
    except OSError as error:
        raise LoaderUnknown(f"{program}: {error.strerror}") from error
    except NotElf as error:
        raise LoaderUnknown(f"{program}: {error}") from error
    if interpreter is None:
        raise LoaderUnknown(f"{program}: asks for no loader (static, or a script)")
    argvs = [[interpreter, "--list", libraries[-1]]]
    # --preload takes a list that no quoting protects, and came with glibc 2.30.
    if not any(sign in path for path in libraries for sign in " :"):
        argvs.insert(0, [interpreter, "--preload", ":".join(libraries), "--list", program])
    said = ""
    for argv in argvs:
        try:
            ran = _list(context, argv)
        except ProgramFailed as error:
            said = str(error)
            continue
        found = _listed(context, ran.stdout)
        # What it cannot preload it leaves out, with a warning.
        if found and ("--preload" not in argv or _soname(context, libraries[-1]) in found):
            return found
        ended = f"ended by signal {-ran.rc}" if ran.rc < 0 else f"exit status {ran.rc}"
        said = ran.stderr.strip() or ended
    raise LoaderUnknown(f"{interpreter} --list, for {libraries[-1]}: {said}")


def _list(context: Context, argv: Sequence[str]) -> Ran:
    """What the loader lists; where a needed library is missing, in the way of ldd, which goes on."""
    ran = context.run(argv, timeout_s=_TIMEOUT_S)
    if ran.rc == 0 or "error while loading shared libraries" not in ran.stderr or not context.live:
        return ran
    # glibc's --list stops at the first that is missing. This text is glibc's: musl runs the program.
    tracing = dict(context.environ, LD_TRACE_LOADED_OBJECTS="1")
    return run([word for word in argv if word != "--list"], tracing, _TIMEOUT_S)


def _listed(context: Context, text: str) -> Dict[str, Optional[str]]:
    """The lines `soname => path (0x...)`, `soname => not found` and, for preloaded ones, `path (0x...)`."""
    found: Dict[str, Optional[str]] = {}
    for line in text.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if arrow and rest.startswith("not found"):
            found.setdefault(name, None)
        elif arrow:
            found.setdefault(name, rest.rsplit(" (0x", 1)[0])
        elif name.startswith("/"):
            path = name.rsplit(" (0x", 1)[0]
            found.setdefault(_soname(context, path), path)
    return found


def _soname(context: Context, path: str) -> str:
    try:
        return read_elf(context.real(path)).soname or os.path.basename(path)
    except (OSError, NotElf):
        return os.path.basename(path)


def resolve_links(context: Context, path: str) -> str:
    """The node's own path behind the links in `path`; `path` itself in a loop."""
    if context.live:
        return os.path.realpath(path)
    done, ahead = "/", path.split("/")
    links = 0
    while ahead:
        name = ahead.pop(0)
        if name in ("", "."):
            continue
        here = os.path.dirname(done) if name == ".." else os.path.join(done, name)
        try:
            target = context.readlink(here)
        except OSError:
            done = here
            continue
        links += 1
        if links > _LINKS_FOLLOWED:
            return path
        done = "/" if target.startswith("/") else done
        ahead = [*target.split("/"), *ahead]
    return done


class LoaderRules:
    """The loader's order, followed for libraries that are opened by name at run time."""

    def __init__(self, context: Context, program: str) -> None:
        self._context = context
        self._program = resolve_links(context, program)
        self._elves: Dict[str, Optional[Elf]] = {}
        self._cache: Optional[Dict[str, List[str]]] = None
        self._preloads: Optional[List[Taken]] = None
        own = self._elf(self._program)
        self._kind = (own.bits, own.machine) if own else None

    def find(self, name: str, askers: Sequence[str]) -> Optional[Taken]:
        """The file that dlopen(name) takes, called from askers[0], which askers[1] loaded, and so on.

        A name with a slash is that file.
        """
        if "/" in name:
            path = os.path.join(self._context.workdir, name)
            return Taken(os.path.normpath(path), "path") if self._fits(path) else None
        for via, folder in self._folders(askers):
            path = os.path.join(folder, name)
            if self._fits(path):
                return Taken(os.path.normpath(path), via)
        for path in self.cached(name):
            if self._fits(path):
                return Taken(path, "ld.so.cache")
        for folder in self.default_folders():
            path = os.path.join(folder, name)
            if self._fits(path):
                return Taken(path, "default")
        return None

    def via(self, path: str, askers: Sequence[str]) -> str:
        """By which step of the order the loader came to `path` when askers[0] needed it."""
        resolved = resolve_links(self._context, path)
        for one in self.preloaded():
            if resolve_links(self._context, one.path) == resolved:
                return one.via
        folder = os.path.dirname(os.path.normpath(path))
        for via, searched in self._folders(askers):
            if os.path.normpath(searched) == folder:
                return via
        return "ld.so.cache" if path in self.cached(os.path.basename(path)) else "default"

    def preloaded(self) -> List[Taken]:
        """What is loaded before all else: of LD_PRELOAD, then of /etc/ld.so.preload."""
        if self._preloads is None:
            lists = [("LD_PRELOAD", self._variable("LD_PRELOAD")), (_PRELOAD, self._context.peek(_PRELOAD))]
            self._preloads = []
            for via, text in lists:
                for name in (text or "").replace(":", " ").split():
                    found = Taken(name, via) if "/" in name else self.find(name, [])
                    if found:
                        self._preloads.append(Taken(found.path, via))
        return self._preloads

    def library_path(self) -> List[str]:
        """The folders of LD_LIBRARY_PATH; an empty entry is the working directory."""
        value = self._variable("LD_LIBRARY_PATH")
        entries = value.replace(";", ":").split(":") if value else []
        return [
            os.path.join(self._context.workdir, self._expanded(entry, self._program)) for entry in entries
        ]

    def search_folders(self, path: str) -> Tuple[str, List[str]]:
        """Which of the two tags the file at `path` has (RPATH, RUNPATH, none), and its folders."""
        elf = self._elf(path)
        if elf is None or not (elf.rpath or elf.runpath):
            return "none", []
        tag, folders = ("RUNPATH", elf.runpath) if elf.runpath else ("RPATH", elf.rpath)
        return tag, [self._expanded(folder, path) for folder in folders]

    def soname(self, path: str) -> Optional[str]:
        """The soname that the file at `path` gives itself; None when it has none or cannot be read."""
        elf = self._elf(path)
        return elf.soname if elf else None

    def needs(self, path: str) -> Tuple[str, ...]:
        """The sonames the file at `path` needs; none when it cannot be read."""
        elf = self._elf(path)
        return elf.needed if elf else ()

    def cached(self, name: str) -> List[str]:
        """The paths that /etc/ld.so.cache has for a soname, best first."""
        return self.cache().get(name, [])

    def cache(self) -> Dict[str, List[str]]:
        """All of /etc/ld.so.cache for this architecture; empty where there is none."""
        if self._cache is None:
            try:
                block = self._context.read_bytes(_CACHE, _CACHE_LIMIT_BYTES)
            except OSError:
                block = b""
            self._cache = parse_cache(block, self._kind[1] if self._kind else 0)
        return self._cache

    def _folders(self, askers: Sequence[str]) -> Iterator[Tuple[str, str]]:
        asker = self._elf(askers[0]) if askers else None
        if asker is None or not asker.runpath:
            for one in [*askers, self._program]:
                elf = self._elf(one)
                if elf is not None and not elf.runpath:
                    for folder in elf.rpath:
                        yield "RPATH", self._expanded(folder, one)
        for folder in self.library_path():
            yield "LD_LIBRARY_PATH", folder
        if asker is not None:
            for folder in asker.runpath:
                yield "RUNPATH", self._expanded(folder, askers[0])

    def default_folders(self) -> List[str]:
        """Where the loader looks last; /etc/ld.so.cache has what ldconfig found there."""
        machines = [self._kind[1]] if self._kind else list(_TRIPLETS)
        triplets = [_TRIPLETS[machine] for machine in machines if machine in _TRIPLETS]
        multiarch = [f"{folder}/{triplet}" for triplet in triplets for folder in ("/lib", "/usr/lib")]
        return [*multiarch, "/lib64", "/usr/lib64", "/lib", "/usr/lib"]

    def _expanded(self, folder: str, path: str) -> str:
        origin = os.path.dirname(path)
        for name, value in (("ORIGIN", origin), ("LIB", "lib64"), ("PLATFORM", os.uname().machine)):
            folder = folder.replace("${" + name + "}", value).replace("$" + name, value)
        return folder

    def _fits(self, path: str) -> bool:
        """Whether the loader stops at this file: it passes over those of another architecture."""
        if not self._context.exists(path):
            return False
        elf = self._elf(path)
        return elf is None or self._kind is None or (elf.bits, elf.machine) == self._kind

    def _elf(self, path: str) -> Optional[Elf]:
        if path not in self._elves:
            try:
                self._elves[path] = read_elf(self._context.real(path))
            except (OSError, NotElf):
                self._elves[path] = None
        return self._elves[path]

    def _variable(self, name: str) -> str:
        return self._context.environ.get(name, "")


def parse_cache(block: bytes, machine: int) -> Dict[str, List[str]]:
    """Paths by soname of a ld.so.cache, in its order, for one architecture (all where unknown).

    The layout is glibc's `struct cache_file_new` (elf/dl-cache.h): a header of 48 bytes with the
    magic, the number of entries and the length of the strings; entries of 24 bytes: flags, offset
    of the soname, offset of the path, both from the header's start. An older header may stand
    before it. Anything else gives no entries.
    """
    start = block.find(_CACHE_MAGIC)
    if start < 0 or len(block) < start + 48:
        return {}
    (count,) = struct.unpack_from("=I", block, start + len(_CACHE_MAGIC))
    count = min(count, (len(block) - start - 48) // 24)
    found: Dict[str, List[str]] = {}
    # One character a byte, so that the offsets hold; decoding each text by itself costs twice as much.
    text = block[start:].decode("latin-1")
    wanted = _CACHE_FLAGS.get(machine)
    for flags, name_at, path_at, _, _ in struct.iter_unpack(
        "=iIIIQ", block[start + 48 : start + 48 + 24 * count]
    ):
        if wanted is None or flags & 0xFF00 == wanted:
            path = _text_at(text, path_at)
            if path.startswith("/"):
                found.setdefault(_text_at(text, name_at), []).append(path)
    return found


def _text_at(table: str, at: int) -> str:
    """The C string at an offset, decoded as the names of files are; empty where it does not end."""
    end = table.find("\0", at, at + 4096)
    text = table[at:end] if end >= 0 else ""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "surrogateescape")
