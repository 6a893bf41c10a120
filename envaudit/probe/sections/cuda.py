"""The CUDA that is installed on the node, beside the one torch brings: toolkits, compiler, driver library.

Facts:

    nvcc        {"path": "/usr/local/cuda/bin/nvcc", "version": "13.0.88"}: the one on PATH, or null
    home        {"variable": "CUDA_HOME", "path": "/usr/local/cuda", "version": "13.0.2"}, or null
    default     where /usr/local/cuda points to, or null
    toolkits    {"/usr/local/cuda-13.0": "13.0.2"}; a version is null where the folder tells none
    libcuda     {"path": "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "version": "580.65.06",
                 "origin": "system", "via": "ld.so.cache"}: the driver library the loader takes, or null
    compat      whether that one is cuda-compat, the forward-compatibility driver

torch uses none of the toolkits unless something is compiled; `libcuda` is what it runs on. On WSL
the library carries no version in its name, and `version` is null.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, List, Optional

from envaudit.probe.context import Answer, Context, ProgramFailed
from envaudit.probe.hostname import host_names
from envaudit.probe.loader import LoaderRules, resolve_links
from envaudit.probe.placeholders import Placeholders
from envaudit.probe.places import Places
from envaudit.probe.program import ProgramRefused

SCHEMA = 1

_LOCAL = "/usr/local"
_HEADER = r"#define\s+CUDA_VERSION\s+(\d{4,6})\b"


def read(context: Context) -> Answer:
    """Toolkits, nvcc and libcuda; absent where the node has none of them."""
    errors: List[str] = []
    not_examined: Dict[str, str] = {}
    facts: Dict[str, Any] = {
        "nvcc": _nvcc(context, errors, not_examined),
        "home": _home(context),
        "default": _default(context),
        "toolkits": _toolkits(context),
        "libcuda": _libcuda(context),
    }
    if not any(facts.values()):
        return Answer("absent", {})
    facts["compat"] = bool(facts["libcuda"]) and facts["libcuda"]["origin"] == "cuda-compat"
    notes = {"not_examined": not_examined} if not_examined else {}
    return Answer("partial" if errors else "ok", facts, notes, errors)


def _nvcc(
    context: Context, errors: List[str], not_examined: Dict[str, str]
) -> Optional[Dict[str, Optional[str]]]:
    """The compiler that PATH finds and what it says of itself, else what its toolkit says."""
    for folder in context.environ.get("PATH", "").split(":"):
        path = os.path.join(folder, "nvcc")
        if folder.startswith("/") and context.exists(path):
            break
    else:
        return None
    try:
        said = context.run([path, "--version"]).stdout
        match = re.search(r"release \d+\.\d+, V(\d+(?:\.\d+)+)", said)
        if match:
            return {"path": path, "version": match.group(1)}
        cause, is_refused = "no version in what it printed", False
    except ProgramFailed as error:
        cause, is_refused = str(error), isinstance(error, ProgramRefused)
    toolkit = os.path.dirname(os.path.dirname(resolve_links(context, path)))
    version = _manifest(context, toolkit).get("cuda_nvcc")
    if version is None and is_refused:
        not_examined["version of nvcc"] = cause
    elif version is None:
        errors.append(f"nvcc: {cause}, and {toolkit} has no version.json")
    return {"path": path, "version": version}


def _home(context: Context) -> Optional[Dict[str, Optional[str]]]:
    """The toolkit that a variable names; torch's extension builder takes CUDA_HOME before CUDA_PATH."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        path = context.environ.get(variable)
        if path:
            return {"variable": variable, "path": path, "version": _toolkit_version(context, path)}
    return None


def _default(context: Context) -> Optional[str]:
    path = os.path.join(_LOCAL, "cuda")
    return resolve_links(context, path) if context.exists(path) else None


def _toolkits(context: Context) -> Dict[str, Optional[str]]:
    """The toolkit folders of /usr/local, links followed, each once."""
    try:
        names = context.list_dir(_LOCAL)
    except OSError:
        return {}
    found: Dict[str, Optional[str]] = {}
    for name in names:
        if re.fullmatch(r"cuda(?:-\d+(?:\.\d+)?)?", name):
            folder = resolve_links(context, os.path.join(_LOCAL, name))
            if context.is_dir(folder):
                found[folder] = _toolkit_version(context, folder)
    return found


def _toolkit_version(context: Context, folder: str) -> Optional[str]:
    """12.4.1 from version.json (since 11.1), 10.2.89 from version.txt (before), 13.0 from cuda.h.

    A toolkit put together from conda packages or wheels has only the header.
    """
    version = _manifest(context, folder).get("cuda")
    if version:
        return version
    for name, form in (("version.txt", r"CUDA Version (\d+(?:\.\d+)+)"), ("include/cuda.h", _HEADER)):
        try:
            match = re.search(form, context.read_text(os.path.join(folder, name), 1 << 22))
        except OSError:
            continue
        if match and name == "version.txt":
            return match.group(1)
        if match:
            return f"{int(match.group(1)) // 1000}.{int(match.group(1)) % 1000 // 10}"
    return None


def _manifest(context: Context, folder: str) -> Dict[str, str]:
    """The versions in a toolkit's version.json by component; empty where there is none."""
    try:
        told = json.loads(context.read_text(os.path.join(folder, "version.json")))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(told, dict):
        return {}
    rows = {name: row.get("version") for name, row in told.items() if isinstance(row, dict)}
    return {name: version for name, version in rows.items() if isinstance(version, str)}


def _libcuda(context: Context) -> Optional[Dict[str, Optional[str]]]:
    """The driver library that a process of this interpreter opens as libcuda.so.1."""
    interpreter = context.interpreter
    found = LoaderRules(context, interpreter["executable"]).find("libcuda.so.1", [])
    if found is None:
        return None
    real = resolve_links(context, found.path)
    places = Places(interpreter, Placeholders(context.environ, host_names(context)))
    match = re.fullmatch(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)?)", os.path.basename(real))
    return {
        "path": places.show(found.path),
        "version": match.group(1) if match else None,
        "origin": places.origin(found.path, real, context.environ),
        "via": found.via,
    }
