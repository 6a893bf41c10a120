"""Paths written so that two environments of one layout say the same.

A path inside the environment becomes relative to a placeholder: `{site}/torch/lib/libtorch_cuda.so`,
`{prefix}/lib/libnccl.so.2`. What the placeholders stand for on this node is a note. A path outside
the environment stays absolute, since there its place is the fact, but for the user's home and
what else differs from user to user and job to job: `$HOME/nccl/lib/libnccl.so.2`.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from envaudit.probe.placeholders import Placeholders

# An interpreter of the system has these as its prefix, and a library there is the system's.
_SYSTEM_PREFIXES = ("/", "/usr", "/usr/local")
_SYSTEM_LIBRARIES = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/local/lib/")


class Places:
    """The environment's folders, and paths relative to them.

    Attributes:
        sites: the folders that hold installed distributions, in the order of sys.path.
        prefix: the environment's root, empty for an interpreter of the system.
    """

    def __init__(self, interpreter: Mapping[str, Any], placeholders: Optional[Placeholders] = None) -> None:
        self._placeholders = placeholders
        path = list(interpreter.get("path", ()))
        known = [*interpreter.get("site_packages", ())]
        if interpreter.get("user_site_enabled") and interpreter.get("user_site"):
            known.append(interpreter["user_site"])
        self.sites: List[str] = [folder for folder in path if folder in known]
        prefix = interpreter.get("prefix", "")
        base = interpreter.get("base_prefix", "")
        self.prefix = "" if prefix in _SYSTEM_PREFIXES else prefix
        names: Dict[str, str] = {}
        for index, folder in enumerate(site for site in self.sites if site != interpreter.get("user_site")):
            names["{site}" if index == 0 else f"{{site{index + 1}}}"] = folder
        if interpreter.get("user_site") in self.sites:
            names["{user_site}"] = interpreter["user_site"]
        if self.prefix:
            names["{prefix}"] = self.prefix
        if base != prefix and base not in _SYSTEM_PREFIXES:
            names["{base_prefix}"] = base
        self.names = names
        self._folders = self._longest_first(names)

    @staticmethod
    def _longest_first(names: Mapping[str, str]) -> List[Tuple[str, str]]:
        pairs: Dict[str, str] = {}
        for name, folder in names.items():
            # A loader answers with links resolved or not, as it came to the file.
            for variant in (folder, os.path.realpath(folder)):
                pairs.setdefault(variant.rstrip("/"), name)
        return sorted(pairs.items(), key=lambda pair: (-len(pair[0]), pair))

    def show(self, path: str) -> str:
        """`path` without `..` and relative to the placeholder of the deepest folder it lies in."""
        path = os.path.normpath(path)
        for folder, name in self._folders:
            if folder and (path == folder or path.startswith(folder + "/")):
                return name + path[len(folder) :]
        return self._placeholders.put(path) if self._placeholders else path

    def inside(self, path: str) -> bool:
        """Whether a path lies in the environment."""
        return self.show(path).startswith("{")

    def origin(self, path: str, real: str, environ: Mapping[str, str]) -> str:
        """Where a library lives: environment, cuda-compat, toolkit, system or other.

        `real` is the file behind `path`. A toolkit is /usr/local/cuda*, CUDA_HOME or CUDA_PATH;
        cuda-compat is the forward-compatibility driver, in its folder or the toolkit's `compat`.
        """
        path = os.path.normpath(path)
        if any(re.search(r"/cuda-compat|/cuda[^/]*/compat/", one) for one in (path, real)):
            return "cuda-compat"
        if self.inside(path):
            return "environment"
        homes = [environ.get(name, "").rstrip("/") + "/" for name in ("CUDA_HOME", "CUDA_PATH")]
        if re.match(r"/usr/local/cuda[^/]*/", real) or any(
            len(home) > 1 and real.startswith(home) for home in homes
        ):
            return "toolkit"
        return "system" if path.startswith(_SYSTEM_LIBRARIES) else "other"
