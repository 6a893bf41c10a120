"""The loader's answer without the loader, for an environment of which nothing may be executed.

`ld.so --list` runs no code of an ordinary library. A hostile one can make it: DT_DEPAUDIT of a
program names a module that the loader loads and calls, and PT_INTERP of a program names any file
as its loader. So the rules are followed here, need by need, as the loader does: breadth first.
"""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Sequence

from envaudit.probe.loader import LoaderRules

# torch with all of CUDA needs some sixty; a forged chain of needs must end.
_MOST = 2000


def walk(rules: LoaderRules, program: str, libraries: Sequence[str]) -> Dict[str, Optional[str]]:
    """The file behind every soname once `program` has loaded `libraries` one after the other.

    A soname that is not found maps to None.
    """
    found: Dict[str, Optional[str]] = {}
    # Of every loaded file those that led to it: itself, who needed it, who needed that one.
    chains: Dict[str, List[str]] = {}
    for preloaded in rules.preloaded():
        _load(rules, preloaded.path, [], found, chains)
    _load(rules, program, [], {}, chains)
    for library in libraries:
        _load(rules, library, [], found, chains)
    ahead = list(chains)
    for path in ahead:
        for need in rules.needs(path):
            if need in found or len(found) > _MOST:
                continue
            taken = rules.find(need, chains[path])
            if taken is None:
                found[need] = None
            elif _load(rules, taken.path, chains[path], found, chains, need):
                ahead.append(taken.path)
    return found


def _load(
    rules: LoaderRules,
    path: str,
    askers: Sequence[str],
    found: Dict[str, Optional[str]],
    chains: Dict[str, List[str]],
    soname: str = "",
) -> bool:
    """Take a file as loaded; False where it was loaded already."""
    found.setdefault(soname or rules.soname(path) or os.path.basename(path), path)
    if path in chains:
        return False
    chains[path] = [path, *askers]
    return True
