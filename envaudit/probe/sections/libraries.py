"""Which copy of NCCL, cuDNN and the like the loader takes for torch, and every other copy on its way.

Facts:

    torch      {"library": "{site}/torch/lib/libtorch_cuda.so", "search": "RPATH"}: the library whose
               needs were resolved; RPATH wins over LD_LIBRARY_PATH, RUNPATH loses to it, or "none"
    nccl       {"path": "{site}/nvidia/nccl/lib/libnccl.so.2", "version": "2.30.7",
                "origin": "environment", "via": "RPATH"}: the copy that is taken
    cudnn, cudart, cublas, ...    likewise, the families of `envaudit.probe.families`
    missing    sonames that nothing on the way provides
    copies     {"nccl": {"/usr/lib/x86_64-linux-gnu/libnccl.so.2": "2.18.5"}, ...}: not taken

`origin` says where the copy lives: environment, toolkit (/usr/local/cuda, CUDA_HOME), cuda-compat,
system, static (linked into libtorch_cuda.so: `path` is that file) or other. `via` says which step
of the loader's order led to it: LD_PRELOAD, RPATH, LD_LIBRARY_PATH, RUNPATH, ld.so.cache, default,
or torch, which loads the libraries of some wheels by path before its own. cuDNN also has `parts`,
its sublibraries: `beside` it, the path of another copy, or null where none is found.

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
from envaudit.probe.elf import NotElf
from envaudit.probe.families import Family, family_of, loaded_version, told_version
from envaudit.probe.interpreter import writer_of
from envaudit.probe.loader import LoaderUnknown, Taken, resolve_links
from envaudit.probe.places import Places
from envaudit.probe.torchloading import CORES, TorchLoading

SCHEMA = 1
# A cold prefix on a network filesystem: the loader maps some thirty files, then three are loaded.
DEADLINE_S = 15.0

# The parts that a libcudnn.so.N opens by name; releases add others, which are seen beside it.
_CUDNN_PARTS = {
    "8": ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train"),
    "9": ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled"),
}


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
        self.loading = loading
        self.rules = loading.rules
        self.places = Places(context.interpreter)
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
        core = self.loading.core
        facts["torch"] = {"library": self.places.show(core), "search": self.rules.search_folders(core)[0]}
        facts["copies"] = self._copies([found.path for found in taken.values()])
        return Answer("partial" if self.errors else "ok", facts, self.notes, self.errors)

    def _row(self, family: Family, found: Taken) -> Dict[str, Any]:
        real = resolve_links(self.context, found.path)
        told = told_version(self.context, family, os.path.normpath(found.path), real, self.site_names)
        writer = writer_of(real) if self.context.live and os.geteuid() == 0 else None
        if writer:
            self.notes.setdefault("not_examined", {})[f"version call of {family.name}"] = f"as root: {writer}"
        version, errors = loaded_version(self.context, family, found.path, told, trusted=not writer)
        self.errors += errors
        self._note_file(family.name, real)
        row: Dict[str, Any] = {
            "path": self.places.show(found.path),
            "version": version,
            "origin": self.places.origin(found.path, real, self.context.environ),
            "via": found.via,
        }
        if family.name == "cudnn":
            row["parts"] = self._cudnn_parts(found.path)
        return row

    def _note_file(self, name: str, real: str) -> None:
        try:
            seen = os.stat(self.context.real(real))
        except OSError:
            return
        files = self.notes.setdefault("files", {})
        files[name] = {"real_path": real, "size_bytes": seen.st_size, "mtime_s": int(seen.st_mtime)}

    def _cudnn_parts(self, path: str) -> Dict[str, Optional[str]]:
        """Where each sublibrary is found when libcudnn opens it by its bare name."""
        folder, name = os.path.split(os.path.normpath(path))
        major = name.partition(".so.")[2].split(".")[0]
        form = re.compile(rf"libcudnn_(\w+)\.so\.{re.escape(major)}")
        beside = [match.group(1) for match in map(form.fullmatch, self._list(folder)) if match]
        parts: Dict[str, Optional[str]] = {}
        for part in sorted({*beside, *_CUDNN_PARTS.get(major, ())}):
            found = self.rules.find(f"libcudnn_{part}.so.{major}", [path, *self.loading.askers(name)])
            if found is None:
                parts[part] = None
            elif os.path.dirname(found.path) == folder:
                parts[part] = "beside"
            else:
                parts[part] = self.places.show(found.path)
        return parts

    def _add_static_nccl(self, facts: Dict[str, Any]) -> None:
        if "nccl" in facts or "rccl" in facts or os.path.basename(self.loading.core) != "libtorch_cuda.so":
            return
        try:
            version = torchfiles.static_nccl(self.context, self.loading.core)
        except (OSError, NotElf) as error:
            self.errors.append(f"{self.loading.core}: {error}")
            return
        if version:
            path = self.places.show(self.loading.core)
            facts["nccl"] = {"path": path, "version": version, "origin": "static", "via": "static"}

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
        yield from self.rules.preloaded()
        folders = [*self.rules.library_path(), *self.rules.search_folders(self.loading.core)[1]]
        for site in self.places.sites:
            wheels = os.path.join(site, "nvidia")
            folders += [os.path.join(wheels, name, "lib") for name in self._list(wheels)]
        folders.append(os.path.dirname(self.loading.core))
        if self.places.prefix:
            folders.append(os.path.join(self.places.prefix, "lib"))
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
