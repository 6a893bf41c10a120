"""Where torch is and what its files say, without importing it.

Importing torch takes two to three seconds and may touch the GPU; `torch/version.py`, the folder
names and a text in libtorch_python.so say the same in milliseconds.
"""

from __future__ import annotations

import ast
import os
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from envaudit.probe.context import Context
from envaudit.probe.elf import texts

_VERSION_LIMIT_BYTES = 1 << 16
_INIT_LIMIT_BYTES = 1 << 20
# torch._C._cuda_getArchFlags() returns this text; `gfx` names are AMD's.
_CUDA_FLAGS = re.compile(r"(?:(?:sm|compute)_\d+[a-z]?(?:[ ;,]+|$))+")
_HIP_FLAGS = re.compile(r"(?:gfx[0-9a-f]+(?::[a-z]+[+-])*(?:[ ;,]+|$))+")


class Package(NamedTuple):
    """A package as the interpreter would import it.

    Attributes:
        folder: the package's own folder.
        entry: the entry of sys.path that it lies in.
    """

    folder: str
    entry: str


def find_package(context: Context, name: str) -> Optional[Package]:
    """The first folder of sys.path with a package of that name, as `import` would take it.

    Raises:
        PermissionError: it is nowhere to be seen, and one of the folders may not be read.
    """
    entries = context.interpreter.get("path", ())
    for entry in entries:
        folder = os.path.join(entry, name)
        if context.exists(os.path.join(folder, "__init__.py")):
            return Package(folder, entry)
    for entry in entries:
        try:
            context.list_dir(entry)
        except PermissionError:
            raise
        except OSError:
            continue  # sys.path names folders and zips that need not exist
    return None


def read_version(context: Context, package: Package) -> Dict[str, object]:
    """The constants of the package's version.py, plain (`a = 1`) and annotated (`a: int = 1`).

    Raises:
        OSError: version.py is absent or unreadable.
        ValueError: it is no Python, or defines no version.
    """
    text = context.read_text(os.path.join(package.folder, "version.py"), _VERSION_LIMIT_BYTES)
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{package.folder}/version.py: {error}") from error
    constants: Dict[str, object] = {}
    for statement in statements:
        targets: List[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, (str, bool, int, type(None))):
            constants.update({target.id: value.value for target in targets if isinstance(target, ast.Name)})
    if not isinstance(constants.get("__version__"), str):
        raise ValueError(f"{package.folder}/version.py: defines no __version__")
    return constants


def libraries_of(context: Context, package: Package) -> Dict[str, str]:
    """The paths of torch's own libraries, by file name: torch/lib, then the environment's lib.

    conda-forge keeps them in the latter.

    Raises:
        OSError: a folder is there and cannot be read.
    """
    prefix = context.interpreter.get("prefix", "")
    found: Dict[str, str] = {}
    for folder in (os.path.join(package.folder, "lib"), os.path.join(prefix, "lib")):
        try:
            names = context.list_dir(folder)
        except FileNotFoundError:
            continue
        for name in names:
            if name.startswith(("libtorch", "libc10")) and name.endswith(".so"):
                found.setdefault(name, os.path.join(folder, name))
    return found


def packaging_of(context: Context, package: Package) -> str:
    """How torch came here: `conda`, `wheel`, or `source` (a checkout on sys.path, no record)."""
    try:
        names = context.list_dir(package.entry)
    except OSError:
        names = []
    for name in names:
        if re.fullmatch(r"torch-[^-]+\.dist-info", name):
            try:
                installer = context.read_text(os.path.join(package.entry, name, "INSTALLER"), 1024).strip()
            except OSError:
                installer = ""
            return "conda" if installer == "conda" else "wheel"
    return "conda" if _conda_record(context) else "source"


def _conda_record(context: Context) -> bool:
    folder = os.path.join(context.interpreter.get("prefix", ""), "conda-meta")
    try:
        return any(
            name.startswith("pytorch-") and name.endswith(".json") for name in context.list_dir(folder)
        )
    except OSError:
        return False


def architectures_of(context: Context, libraries: Dict[str, str], *, hip: bool) -> Optional[List[str]]:
    """The GPU architectures torch was built for, such as `["sm_80", "sm_90", "compute_90"]`.

    None where no library holds the list. It is the text that torch.cuda.get_arch_list() splits.

    Raises:
        OSError, NotElf: libtorch_python.so cannot be read.
    """
    needle, form = (b"gfx", _HIP_FLAGS) if hip else (b"sm_", _CUDA_FLAGS)
    for name in ("libtorch_python.so", "libtorch_hip.so" if hip else "libtorch_cuda.so"):
        if name in libraries:
            for text in texts(context.real(libraries[name]), needle):
                if form.fullmatch(text.strip()):
                    return [part for part in re.split(r"[ ;,]+", text.strip()) if part]
    return None


def static_nccl(context: Context, library: str) -> Optional[str]:
    """The version of an NCCL that is linked into `library`, None where there is none.

    Builds of conda's pytorch channel do that: no libnccl is needed or shipped, and the text
    `NCCL version 2.20.5+cuda12.4` stands in libtorch_cuda.so.

    Raises:
        OSError, NotElf: it cannot be read.
    """
    for text in texts(context.real(library), b"NCCL version "):
        version = nccl_version_in(text)
        if version:
            return version
    return None


def nccl_version_in(text: str) -> Optional[str]:
    """The X.Y.Z of a text `NCCL version X.Y.Z+cudaA.B` that NCCL was built with, else None."""
    match = re.match(r"NCCL version (\d+\.\d+\.\d+)(?:\+(?:cuda|hip|rocm)[\d.]+)?\s*$", text)
    return match.group(1) if match else None


def preloads_of(context: Context, package: Package) -> List[Tuple[str, str]]:
    """What `import torch` loads by path before libtorch_cuda.so: (wheel folder, pattern) pairs.

    From 2.5 on torch loads some or all libraries of the nvidia-* wheels itself, whatever
    LD_LIBRARY_PATH says. Its __init__.py shows which: a call of `_preload_cuda_lib` names one, a
    call of `_preload_cuda_deps` inside `_load_global_deps`, before its `except`, means all.
    """
    try:
        text = context.read_text(os.path.join(package.folder, "__init__.py"), _INIT_LIMIT_BYTES)
    except OSError:
        return []
    body = text.partition("\ndef _load_global_deps(")[2].partition("except OSError")[0]
    named = re.findall(r'_preload_cuda_lib\(\s*"(\w+)",\s*"([\w.*\[\]-]+)"', body)
    if "_preload_cuda_deps(" in body:
        table = text.partition("\ndef _preload_cuda_deps(")[2].partition("\n    ]\n")[0]
        named = re.findall(r'\(?\s*"(\w+)",\s*"(lib[\w.*\[\]-]+)"', table)
    return named
