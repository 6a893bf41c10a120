"""Which copy of NCCL, cuDNN and the like the loader takes for torch, and every other copy on its way.

Facts:

    torch      {"library": "{site}/torch/lib/libtorch_cuda.so", "search": "RPATH", "glibc": "2.28",
                "built_with": {"cudnn": "9.24.0", "nccl": "2.30.7"}}: the library whose needs were
               resolved; RPATH wins over LD_LIBRARY_PATH, RUNPATH loses to it, or "none"; the oldest
               glibc it can be loaded with; what its own package says it was built with
    nccl       {"path": "{site}/nvidia/nccl/lib/libnccl.so.2", "version": "2.30.7",
                "origin": "environment", "via": "RPATH", "cuda": "13.3"}: the copy that is taken;
               `cuda`, of NCCL alone, is what it was built for, which need not be torch's
    cudnn, cudart, cublas, ...    likewise, the families of `envaudit.probe.families`
    nccl_net, mpi, ucx, libfabric    likewise, what is opened by its name at run time: torch seldom
               needs them itself, NCCL's network plugin and a launcher do
    missing    sonames that nothing on the way provides
    copies     {"nccl": {"/usr/lib/x86_64-linux-gnu/libnccl.so.2": "2.18.5"}, ...}: not taken

`origin` says where the copy lives: environment, toolkit (/usr/local/cuda, CUDA_HOME), cuda-compat,
system, static (linked into libtorch_cuda.so: `path` is that file) or other. `via` says which step
of the loader's order led to it: LD_PRELOAD, /etc/ld.so.preload, RPATH, LD_LIBRARY_PATH, RUNPATH,
ld.so.cache, default; NCCL_NET_PLUGIN where that is a path; or torch, which loads the libraries of
some wheels by path before its own. cuDNN also has `parts`, its sublibraries: `beside` it, the path
and version of another copy, or null where none is found.

A CPU-only torch has no libtorch_cuda.so: the library is libtorch_cpu.so, and most families are
not there.
Notes: what the placeholders stand for, sizes and times of the loaded files.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from envaudit.probe import torchfiles
from envaudit.probe.context import Answer, Context
from envaudit.probe.cudnnparts import parts_of
from envaudit.probe.elf import NotElf, needed_glibc
from envaudit.probe.families import BY_NAME, Family, family_of, loaded_version, nccl_in, told_version
from envaudit.probe.hostname import host_names
from envaudit.probe.interpreter import writer_of
from envaudit.probe.loader import LoaderUnknown, Taken, resolve_links
from envaudit.probe.opened import opened
from envaudit.probe.placeholders import Placeholders
from envaudit.probe.places import Places
from envaudit.probe.torchloading import CORES, TorchLoading

SCHEMA = 1
# A cold prefix on a network filesystem: the loader maps some thirty files, then three are loaded.
DEADLINE_S = 15.0

# Torch's libraries that may ask for a newer glibc than the others.
_TORCH_LIBRARIES = ("libtorch_cuda.so", "libtorch_hip.so", "libtorch_cpu.so", "libtorch_python.so")


def read(context: Context) -> Answer:
    """What the loader takes for this interpreter's torch; absent where there is no torch."""
    try:
        package = torchfiles.find_package(context, "torch")
    except PermissionError as error:
        return Answer("error", {}, {}, (str(error),))
    if package is None:
        return Answer("absent", {})
    try:
        libraries = torchfiles.libraries_of(context, package)
    except OSError as error:
        return Answer("error", {}, {}, (str(error),))
    core = next((libraries[name] for name in CORES if name in libraries), None)
    if core is None:
        return Answer("error", {}, {}, (f"{package.folder}/lib: none of {', '.join(CORES)}",))
    return _Reading(context, package, TorchLoading(context, package, libraries, core)).answer()


class _Reading:
    """One pass over the libraries of one torch."""

    def __init__(self, context: Context, package: torchfiles.Package, loading: TorchLoading) -> None:
        self.context = context
        self.package = package
        self.loading = loading
        self.rules = loading.rules
        self.places = Places(context.interpreter, Placeholders(context.environ, host_names(context)))
        self.errors: List[str] = []
        self.notes: Dict[str, Any] = {"places": dict(self.places.names)}
        self.site_names = self._list(package.entry)

    def answer(self) -> Answer:
        facts: Dict[str, Any] = {}
        taken: Dict[Family, Taken] = {}
        try:
            self.loading.resolve()
        except LoaderUnknown as error:
            self.errors += [str(error), *self.loading.damaged()]
        else:
            taken = self.loading.taken()
            facts["missing"] = sorted(name for name, path in self.loading.resolved.items() if path is None)
            facts.update({family.name: self._row(family, found) for family, found in taken.items()})
            self._add_static_nccl(facts)
            by_name = self._opened(taken, facts)
            facts.update(
                {family.name: self._row(family, found, needed=False) for family, found in by_name.items()}
            )
            taken.update(by_name)
        facts["torch"] = self._torch()
        facts["copies"] = self._copies([found.path for found in taken.values()])
        return Answer("partial" if self.errors else "ok", facts, self.notes, self.errors)

    def _torch(self) -> Dict[str, Any]:
        core = self.loading.core
        needs = []
        for name in _TORCH_LIBRARIES:
            path = self.loading.libraries.get(name)
            try:
                needs.append(needed_glibc(self.context.real(path)) if path else None)
            except (OSError, NotElf):
                continue  # the loader has said so already
        newest = max(
            filter(None, needs), key=lambda version: tuple(map(int, version.split("."))), default=None
        )
        return {
            "library": self.places.show(core),
            "search": self.rules.search_folders(core)[0],
            "glibc": newest,
            "built_with": torchfiles.built_with(self.context, self.package, self.site_names),
        }

    def _opened(self, taken: Dict[Family, Taken], facts: Dict[str, Any]) -> Dict[Family, Taken]:
        nccl = next((taken[BY_NAME[name]].path for name in ("nccl", "rccl") if BY_NAME[name] in taken), None)
        if nccl is None and "nccl" in facts:
            nccl = self.loading.core
        askers = list(dict.fromkeys([nccl, self.loading.core])) if nccl else []
        return opened(self.context, self.rules, list(taken), askers, rccl=BY_NAME["rccl"] in taken)

    def _row(self, family: Family, found: Taken, *, needed: bool = True) -> Dict[str, Any]:
        real = resolve_links(self.context, found.path)
        told = told_version(self.context, family, os.path.normpath(found.path), real, self.site_names)
        writer = writer_of(real) if self.context.live and os.geteuid() == 0 else None
        why_not = "nothing is executed" if self.context.static else f"as root: {writer}" if writer else ""
        if why_not:
            self._note_not_examined(f"version call of {family.name}", why_not)
        version, errors = loaded_version(self.context, family, found.path, told, trusted=not why_not)
        if needed:
            self.errors += errors
        elif errors:
            self._note_not_examined(f"version call of {family.name}", errors[0])
        self._note_file(family.name, real)
        row: Dict[str, Any] = {
            "path": self.places.show(found.path),
            "version": version,
            "origin": self.places.origin(found.path, real, self.context.environ),
            "via": found.via,
        }
        if family.name == "nccl":
            row["cuda"] = self._cuda_of_nccl(found.path)
        if family.name == "cudnn":
            askers = self.loading.askers(os.path.basename(found.path))
            row["parts"] = parts_of(self.context, self.rules, self.places, found.path, version, askers)
        return row

    def _cuda_of_nccl(self, path: str) -> Optional[str]:
        try:
            text = nccl_in(self.context, path)
        except (OSError, NotElf):
            return None  # the version call has said so already
        return text[1] if text else None

    def _note_not_examined(self, what: str, why: str) -> None:
        self.notes.setdefault("not_examined", {})[what] = why

    def _note_file(self, name: str, real: str) -> None:
        try:
            seen = os.stat(self.context.real(real))
        except OSError:
            return
        files = self.notes.setdefault("files", {})
        files[name] = {"real_path": real, "size_bytes": seen.st_size, "mtime_s": int(seen.st_mtime)}

    def _add_static_nccl(self, facts: Dict[str, Any]) -> None:
        """Builds of conda's pytorch channel link NCCL into libtorch_cuda.so and ship no libnccl."""
        if "nccl" in facts or "rccl" in facts or os.path.basename(self.loading.core) != "libtorch_cuda.so":
            return
        try:
            found = nccl_in(self.context, self.loading.core)
        except (OSError, NotElf) as error:
            self.errors.append(f"{self.loading.core}: {error}")
            return
        if found:
            path = self.places.show(self.loading.core)
            row = {"path": path, "version": found[0], "origin": "static", "via": "static", "cuda": found[1]}
            facts["nccl"] = row

    def _copies(self, taken: Sequence[str]) -> Dict[str, Dict[str, Optional[str]]]:
        """Every other copy in the folders the loader, or torch, passes on its way."""
        used = {resolve_links(self.context, path) for path in taken}
        seen: Dict[str, Dict[str, Optional[str]]] = {}
        for path in self._on_the_way():
            family = family_of(os.path.basename(path))
            real = resolve_links(self.context, path)
            if family is None or real in used:
                continue
            used.add(real)
            version = told_version(self.context, family, path, real, self.site_names)
            seen.setdefault(family.name, {})[self.places.show(path)] = version
        return seen

    def _on_the_way(self) -> Iterator[str]:
        yield from (found.path for found in self.rules.preloaded())
        folders = [*self.rules.library_path(), *self.rules.search_folders(self.loading.core)[1]]
        for site in self.places.sites:
            wheels = os.path.join(site, "nvidia")
            folders += [os.path.join(wheels, name, "lib") for name in self._list(wheels)]
        folders.append(os.path.dirname(self.loading.core))
        if self.places.prefix:
            folders.append(os.path.join(self.places.prefix, "lib"))
        if not self.rules.cache():
            folders += self.rules.default_folders()  # an image without ldconfig's work, or another libc
        for folder in dict.fromkeys(os.path.normpath(folder) for folder in folders):
            for name in sorted(filter(family_of, self._list(folder)), key=_soname_first):
                yield os.path.join(folder, name)
        for name in sorted(filter(family_of, self.rules.cache()), key=_soname_first):
            yield from self.rules.cached(name)

    def _list(self, folder: str) -> List[str]:
        try:
            return self.context.list_dir(folder)
        except OSError:
            return []


def _soname_first(name: str) -> Tuple[bool, str]:
    """Sorts libnccl.so.2, under which the loader finds a library, before its other names."""
    return not re.search(r"\.so\.\d+$", name), name
