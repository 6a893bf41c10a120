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

import fnmatch
import os
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from envaudit.probe import torchfiles
from envaudit.probe.context import Answer, Context
from envaudit.probe.elf import NotElf
from envaudit.probe.families import Family, family_of, loaded_version, told_version
from envaudit.probe.interpreter import writer_of
from envaudit.probe.loader import LoaderRules, LoaderUnknown, Taken, ask, resolve_links
from envaudit.probe.places import Places

SCHEMA = 1
# A cold prefix on a network filesystem: the loader maps some thirty files, then three are loaded.
DEADLINE_S = 15.0

_CORES = ("libtorch_cuda.so", "libtorch_hip.so", "libtorch_cpu.so")
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
    core = next((libraries[name] for name in _CORES if name in libraries), None)
    if core is None:
        return Answer("error", {}, {}, (f"{package.folder}/lib: none of {', '.join(_CORES)}",))
    return _Reading(context, package, libraries, core).answer()


class _Reading:
    """One pass over the libraries of one torch."""

    def __init__(
        self, context: Context, package: torchfiles.Package, libraries: Dict[str, str], core: str
    ) -> None:
        self.context = context
        self.package = package
        self.libraries = libraries
        self.core = core
        self.places = Places(context.interpreter)
        self.program = context.interpreter["executable"]
        self.rules = LoaderRules(context, self.program)
        self.errors: List[str] = []
        self.notes: Dict[str, Any] = {"places": dict(self.places.names)}
        self.site_names = self._list(package.entry)

    def answer(self) -> Answer:
        tag, _ = self.rules.search_folders(self.core)
        facts: Dict[str, Any] = {"torch": {"library": self.places.show(self.core), "search": tag}}
        try:
            resolved, by_torch = self._resolve()
        except LoaderUnknown as error:
            self.errors.append(str(error))
            facts["copies"] = self._copies(())
            return Answer("partial", facts, self.notes, self.errors)
        taken = self._taken(resolved, by_torch)
        facts.update({family.name: self._row(family, found) for family, found in taken.items()})
        facts["missing"] = sorted(name for name, path in resolved.items() if path is None)
        self._add_static_nccl(facts)
        facts["copies"] = self._copies([found.path for found in taken.values()])
        return Answer("partial" if self.errors else "ok", facts, self.notes, self.errors)

    def _resolve(self) -> Tuple[Dict[str, Optional[str]], Tuple[str, ...]]:
        """The loader's answer, and the files that torch itself loads before the core library.

        `import torch` first loads libtorch_global_deps.so, then what it loads by path, then the
        rest. When the first fails for want of a library, it loads those of the wheels by path.
        """
        entry = [self.libraries[name] for name in ("libtorch_global_deps.so",) if name in self.libraries]
        held = {name for path in entry for name in self.rules.needs(path)}
        cuda = os.path.basename(self.core) == "libtorch_cuda.so"
        patterns = torchfiles.preloads_of(self.context, self.package) if cuda else []
        by_torch = tuple(path for path in self._wheel_files(patterns) if os.path.basename(path) not in held)
        resolved = ask(self.context, self.program, [*entry, *by_torch, self.core])
        lost = {name for name, path in resolved.items() if path is None}
        if lost & held:
            rescued = tuple(path for path in self._wheel_files([("*", name) for name in sorted(lost)]))
            if rescued:
                by_torch += rescued
                resolved = ask(self.context, self.program, [*rescued, *entry, *by_torch, self.core])
        return resolved, by_torch

    def _wheel_files(self, patterns: List[Tuple[str, str]]) -> Iterator[str]:
        """The first file of each (wheel folder, name pattern), as torch searches sys.path."""
        for folder, pattern in patterns:
            for entry in self.context.interpreter.get("path", ()):
                wheels = os.path.join(entry, "nvidia")
                inside = self._list(wheels) if folder == "*" else [folder, *self._major_folders(wheels)]
                found = [
                    os.path.join(wheels, one, "lib", name)
                    for one in inside
                    for name in fnmatch.filter(self._list(os.path.join(wheels, one, "lib")), pattern)
                ]
                if found:
                    yield found[0]
                    break

    def _major_folders(self, wheels: str) -> List[str]:
        return [name for name in self._list(wheels) if re.fullmatch(r"cu\d+", name)]

    def _taken(self, resolved: Dict[str, Optional[str]], by_torch: Tuple[str, ...]) -> Dict[Family, Taken]:
        """The loaded copy of every family, first come first taken; then those opened by name."""
        torch_loads = {resolve_links(self.context, path) for path in by_torch}
        taken: Dict[Family, Taken] = {}
        for name, path in resolved.items():
            family = family_of(name)
            if family is None or path is None or family in taken:
                continue
            if resolve_links(self.context, path) in torch_loads:
                taken[family] = Taken(path, "torch")
            else:
                taken[family] = Taken(path, self.rules.via(path, self._askers(name, resolved)))
        for family, found in self._opened_by_name(taken):
            taken[family] = found
        return taken

    def _askers(self, name: str, resolved: Dict[str, Optional[str]]) -> List[str]:
        """Who needed a library first, and the core that loaded that one."""
        for path in (self.core, *(path for path in resolved.values() if path)):
            if name in self.rules.needs(path):
                return [path] if path == self.core else [path, self.core]
        return [self.core]

    def _opened_by_name(self, taken: Dict[Family, Taken]) -> Iterator[Tuple[Family, Taken]]:
        """NCCL's network plugin, which NCCL opens at run time (NCCL_NET_PLUGIN names another)."""
        nccl = next((found for family, found in taken.items() if family.name in ("nccl", "rccl")), None)
        plugin = self.context.environ.get("NCCL_NET_PLUGIN", "")
        if plugin.lower() == "none":
            return
        names = [plugin] if ".so" in plugin else [f"libnccl-net-{plugin}.so"] if plugin else []
        askers = [nccl.path, self.core] if nccl else [self.core]
        for name in [*names, "libnccl-net.so"]:
            found = Taken(name, "NCCL_NET_PLUGIN") if name.startswith("/") else self.rules.find(name, askers)
            family = family_of("libnccl-net.so")
            if found and family:
                yield family, found
                return

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
            found = self.rules.find(f"libcudnn_{part}.so.{major}", [path, self.core])
            if found is None:
                parts[part] = None
            elif os.path.dirname(found.path) == folder:
                parts[part] = "beside"
            else:
                parts[part] = self.places.show(found.path)
        return parts

    def _add_static_nccl(self, facts: Dict[str, Any]) -> None:
        if "nccl" in facts or "rccl" in facts or os.path.basename(self.core) != "libtorch_cuda.so":
            return
        try:
            version = torchfiles.static_nccl(self.context, self.core)
        except (OSError, NotElf) as error:
            self.errors.append(f"{self.core}: {error}")
            return
        if version:
            path = self.places.show(self.core)
            facts["nccl"] = {"path": path, "version": version, "origin": "static", "via": "static"}

    def _copies(self, taken: Any) -> Dict[str, Dict[str, Optional[str]]]:
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
        folders = [*self.rules.library_path(), *self.rules.search_folders(self.core)[1]]
        for site in self.places.sites:
            wheels = os.path.join(site, "nvidia")
            folders += [os.path.join(wheels, name, "lib") for name in self._list(wheels)]
        folders.append(os.path.dirname(self.core))
        if self.places.prefix:
            folders.append(os.path.join(self.places.prefix, "lib"))
        for folder in dict.fromkeys(os.path.normpath(folder) for folder in folders):
            # The name with one number is the soname, under which the loader would find it.
            for name in sorted(
                self._list(folder), key=lambda name: (not re.search(r"\.so\.\d+$", name), name)
            ):
                if ".so" in name:
                    yield os.path.join(folder, name)
        for name in sorted(self.rules.cache(), key=_soname_first):
            if family_of(name):
                yield from self.rules.cached(name)

    def _list(self, folder: str) -> List[str]:
        try:
            return self.context.list_dir(folder)
        except OSError:
            return []


def _soname_first(name: str) -> Tuple[bool, str]:
    """Sorts libnccl.so.2, under which the loader finds a library, before its other names."""
    return not re.search(r"\.so\.\d+$", name), name
