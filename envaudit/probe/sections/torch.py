"""torch as its files describe it: version, what it was built for, its companions. Never imported.

Facts:

    version, git_version, cuda, hip, debug   the constants of torch/version.py ("2.14.1+cu130", "13.0")
    packaging          "wheel", "conda" or "source"
    place              the package's folder, "{site}/torch"
    architectures      ["sm_80", "sm_90", ...], [] for a CPU build
    torchvision, torchaudio    their versions with local tag, null where not installed

`cuda` and `hip` are null in a CPU-only build.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from envaudit.probe import torchfiles
from envaudit.probe.context import Answer, Context
from envaudit.probe.elf import NotElf
from envaudit.probe.places import Places
from envaudit.probe.torchfiles import Package

SCHEMA = 1


def read(context: Context) -> Answer:
    """What the torch that this interpreter would import says of itself; absent where there is none."""
    try:
        package = torchfiles.find_package(context, "torch")
    except PermissionError as error:
        return Answer("error", {}, {}, (str(error),))
    if package is None:
        return Answer("absent", {}, {"searched": len(context.interpreter.get("path", ()))})
    place = Places(context.interpreter).show(package.folder)
    try:
        constants = torchfiles.read_version(context, package)
    except (OSError, ValueError) as error:
        return Answer("error", {"place": place}, {}, (str(error),))
    errors: List[str] = []
    facts: Dict[str, Any] = {
        "version": constants["__version__"],
        "git_version": constants.get("git_version"),
        "cuda": constants.get("cuda"),
        "hip": constants.get("hip"),
        "debug": bool(constants.get("debug", False)),
        "packaging": torchfiles.packaging_of(context, package),
        "place": place,
    }
    for name in ("torchvision", "torchaudio"):
        facts[name] = _companion(context, name, errors)
    architectures = _architectures(context, package, facts, errors)
    if architectures is not None:
        facts["architectures"] = architectures
    return Answer("partial" if errors else "ok", facts, {}, errors)


def _companion(context: Context, name: str, errors: List[str]) -> Optional[str]:
    """The version of a package beside torch, with its local tag; None where it is not installed."""
    try:
        package = torchfiles.find_package(context, name)
        if package is None:
            return None
        return str(torchfiles.read_version(context, package)["__version__"])
    except (OSError, ValueError) as error:
        errors.append(f"{name}: {error}")
        return None


def _architectures(
    context: Context, package: Package, facts: Dict[str, Any], errors: List[str]
) -> Optional[List[str]]:
    """What the GPU code was built for; None, with an error, where that could not be read."""
    if not facts["cuda"] and not facts["hip"]:
        return []
    try:
        libraries = torchfiles.libraries_of(context, package)
        found = torchfiles.architectures_of(context, libraries, hip=bool(facts["hip"]))
    except (OSError, NotElf) as error:
        errors.append(f"architectures: {error}")
        return None
    if found is None:
        names = ", ".join(sorted(libraries)) or f"no library in {os.path.join(package.folder, 'lib')}"
        errors.append(f"architectures: no list in {names}")
    return found
