"""What `import torch` loads, in its order, resolved by the loader without running any of it.

First libtorch_global_deps.so; then what torch loads by path from the nvidia-* wheels; then its
extension module `_C`, which needs libtorch_python.so, which needs libtorch_cuda.so and so all the
rest. When the first fails for want of a library, torch loads those of the wheels and tries again.
"""

from __future__ import annotations

import fnmatch
import os
import re
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from envaudit.probe import torchfiles
from envaudit.probe.context import Context
from envaudit.probe.elf import NotElf, read_elf
from envaudit.probe.families import Family, family_of
from envaudit.probe.loader import LoaderRules, Taken, ask, resolve_links
from envaudit.probe.loaderwalk import walk

CORES = ("libtorch_cuda.so", "libtorch_hip.so", "libtorch_cpu.so")
_GLOBAL_DEPS = "libtorch_global_deps.so"
# Longer chains of who loaded whom than this do not occur; a loop of needs must end.
_CHAIN_MAX = 8


class TorchLoading:
    """The loader's view of one torch.

    Attributes:
        libraries: the paths of torch's own libraries, by file name.
        core: the library whose needs matter: libtorch_cuda.so, or that of HIP or the CPU build.
        resolved: the file of every soname that is loaded, None where nothing provides it.
        rules: the loader's rules for this interpreter.
    """

    def __init__(
        self, context: Context, package: torchfiles.Package, libraries: Dict[str, str], core: str
    ) -> None:
        self.context = context
        self.core = core
        self.rules = LoaderRules(context, context.interpreter["executable"])
        self.resolved: Dict[str, Optional[str]] = {}
        self._package = package
        self.libraries = libraries
        self._by_torch: Tuple[str, ...] = ()
        self._listed: Dict[str, List[str]] = {}

    def resolve(self) -> None:
        """Ask the loader.

        Raises:
            LoaderUnknown: it gave no answer.
        """
        first = [self.libraries[_GLOBAL_DEPS]] if _GLOBAL_DEPS in self.libraries else []
        held = {name for path in first for name in self.rules.needs(path)}
        last = self._extension() or self.core
        patterns = torchfiles.preloads_of(self.context, self._package)
        self._by_torch = tuple(
            path for path in self._wheel_files(patterns) if os.path.basename(path) not in held
        )
        self._ask([*first, *self._by_torch, last])
        lost = sorted(name for name, path in self.resolved.items() if path is None)
        if held.intersection(lost):
            rescued = tuple(self._wheel_files([("*", name) for name in lost]))
            self._by_torch += rescued
            self._ask([*rescued, *first, *self._by_torch, last])
        self.core = self.resolved.get(os.path.basename(self.core)) or self.core

    def _ask(self, libraries: Sequence[str]) -> None:
        in_order = list(dict.fromkeys(libraries))
        program = self.context.interpreter["executable"]
        if self.context.static:
            self.resolved = walk(self.rules, resolve_links(self.context, program), in_order)
        else:
            self.resolved = ask(self.context, program, in_order)

    def damaged(self) -> List[str]:
        """Which of torch's own libraries are no whole ELF files, and why, for a loader that only crashed."""
        texts = []
        for path in self.libraries.values():
            try:
                read_elf(self.context.real(path))
            except (OSError, NotElf) as error:
                texts.append(f"{path}: {error}")
        return texts

    def _extension(self) -> Optional[str]:
        """The extension module of torch for this interpreter, such as _C.cpython-311-x86_64-linux-gnu.so."""
        soabi = self.context.interpreter.get("soabi") or "*"
        names = fnmatch.filter(self._list(self._package.folder), f"_C.{soabi}.so")
        return os.path.join(self._package.folder, names[0]) if names else None

    def _wheel_files(self, patterns: Sequence[Tuple[str, str]]) -> Iterator[str]:
        """The first file of each (wheel folder, name pattern), as torch searches sys.path."""
        for folder, pattern in patterns:
            for entry in self.context.interpreter.get("path", ()):
                wheels = os.path.join(entry, "nvidia")
                shared = [name for name in self._list(wheels) if re.fullmatch(r"cu\d+", name)]
                inside = self._list(wheels) if folder == "*" else [folder, *shared]
                found = [
                    os.path.join(wheels, one, "lib", name)
                    for one in inside
                    for name in fnmatch.filter(self._list(os.path.join(wheels, one, "lib")), pattern)
                ]
                if found:
                    yield found[0]
                    break

    def taken(self) -> Dict[Family, Taken]:
        """The loaded copy of every family that torch needs: the first that comes is taken."""
        by_torch = {resolve_links(self.context, path) for path in self._by_torch}
        taken: Dict[Family, Taken] = {}
        for name, path in self.resolved.items():
            family = family_of(name)
            if family is None or path is None or family in taken:
                continue
            via = self.rules.via(path, self.askers(name))
            if via != "LD_PRELOAD" and resolve_links(self.context, path) in by_torch:
                via = "torch"
            taken[family] = Taken(path, via)
        return taken

    def askers(self, name: str) -> List[str]:
        """The file that needs a soname first, the file that needs that one, and so on."""
        chain: List[str] = []
        while len(chain) < _CHAIN_MAX:
            asker = next(
                (
                    (soname, path)
                    for soname, path in self.resolved.items()
                    if path and path not in chain and name in self.rules.needs(path)
                ),
                None,
            )
            if asker is None:
                break
            name = asker[0]
            chain.append(asker[1])
        return chain or [self.core]

    def _list(self, folder: str) -> List[str]:
        """A folder's names; each of torch's patterns looks into the same ones."""
        if folder not in self._listed:
            try:
                self._listed[folder] = self.context.list_dir(folder)
            except OSError:
                self._listed[folder] = []
        return self._listed[folder]
