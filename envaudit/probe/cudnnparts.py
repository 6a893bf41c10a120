"""The sublibraries of cuDNN: libcudnn.so.N is a door, and opens the others by their bare names.

So each of them is looked for on its own, through the search path of whoever opens it. A release
that a wheel or a package ships without one of its parts takes that part from wherever the loader
finds it, and then refuses to work (CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH).
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional, Pattern, Sequence

from envaudit.probe.context import Context
from envaudit.probe.elf import NotElf, texts
from envaudit.probe.families import version_in_name
from envaudit.probe.loader import LoaderRules, resolve_links
from envaudit.probe.places import Places

# What every release of a major version has; what its own files name comes on top.
_PARTS = {
    "8": ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train"),
    "9": ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled"),
}
_OPENED_BY_GRAPH = ("engines_", "heuristic")
_NAME = re.compile(r"libcudnn_(\w+)\.so")


def parts_of(
    context: Context,
    rules: LoaderRules,
    places: Places,
    path: str,
    version: Optional[str],
    askers: Sequence[str],
) -> Dict[str, Any]:
    """Where each sublibrary is found when it is opened by its name.

    Args:
        context: the node.
        rules: the loader's rules.
        places: how paths are shown.
        path: the libcudnn.so.N that is taken.
        version: its version.
        askers: who loaded it, and who loaded that.

    Returns:
        `beside` for a part in the same folder whose name tells no other version, `{"path": ...,
        "version": ...}` for another copy, None for one that is nowhere.
    """
    folder, name = os.path.split(os.path.normpath(path))
    major = name.partition(".so.")[2].split(".")[0]
    form = re.compile(rf"libcudnn_(\w+)\.so\.{re.escape(major)}")
    chain = [path, *askers]
    openers = dict.fromkeys(
        (*_PARTS.get(major, ()), *_named_in(context, path), *_in(context, folder, form)), path
    )
    graph = rules.find(f"libcudnn_graph.so.{major}", chain)
    elsewhere = {match.group(1) for match in map(form.fullmatch, rules.cache()) if match}
    for other in [*rules.library_path(), *(one for asker in chain for one in rules.search_folders(asker)[1])]:
        elsewhere.update(_in(context, other, form))
    if graph:
        openers.update((part, graph.path) for part in openers if part.startswith(_OPENED_BY_GRAPH))
    if graph and not elsewhere <= set(openers):
        # Which engines and heuristics it opens is a search of 20 MB, 15 ms: only where it matters.
        openers.update(dict.fromkeys(_named_in(context, graph.path), graph.path))
    parts: Dict[str, Any] = {}
    for part, opener in sorted(openers.items()):
        found = rules.find(f"libcudnn_{part}.so.{major}", [opener, *chain])
        if found is None:
            parts[part] = None
            continue
        own = version_in_name(os.path.basename(resolve_links(context, found.path)))
        if os.path.dirname(found.path) == folder and (own is None or _same(own, version)):
            parts[part] = "beside"
        else:
            parts[part] = {"path": places.show(found.path), "version": own}
    return parts


def _named_in(context: Context, path: str) -> List[str]:
    """The sublibraries whose file names stand as texts in a library of cuDNN."""
    try:
        return [part for text in texts(context.real(path), b"libcudnn_") for part in _NAME.findall(text)]
    except (OSError, NotElf):
        return []


def _same(own: str, version: Optional[str]) -> bool:
    """Whether a name's version is the library's, as far as both go: 9.10.2.21 and 9.10.2."""
    return version is None or all(a == b for a, b in zip(own.split("."), version.split(".")))


def _in(context: Context, folder: str, form: Pattern[str]) -> List[str]:
    """The sublibraries that a folder holds."""
    try:
        return [match.group(1) for match in map(form.fullmatch, context.list_dir(folder)) if match]
    except OSError:
        return []
