"""Where torch is and what its files say, without importing it.

Importing torch takes two to three seconds and may touch the GPU; `torch/version.py`, the folder
names and a text in libtorch_python.so say the same in milliseconds.
"""

from __future__ import annotations

import ast
import os
import re
from typing import Dict, List, NamedTuple, Optional, Pattern, Sequence, Tuple

from envaudit.probe.context import Context
from envaudit.probe.elf import texts

_VERSION_LIMIT_BYTES = 1 << 16
_INIT_LIMIT_BYTES = 1 << 20
_RECORD_HEAD_BYTES = 1 << 15
# `pip install -e` of a project whose packages do not lie below one folder writes such a file.
_FINDER = re.compile(r"__editable___.+_finder\.py\Z")
_MAPPING = re.compile(r"^MAPPING[^=\n]*= (\{.*\})$", re.MULTILINE)
_WHEEL_NEEDS = re.compile(r"^Requires-Dist: nvidia-(cudnn|nccl)-cu\d+==(\d+(?:\.\d+)+)", re.MULTILINE)
_CONDA_NEEDS = re.compile(r'"(cudnn|nccl) >=(\d+(?:\.\d+)+)[^"]*"')
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
            names = context.list_dir(entry)
        except PermissionError:
            raise
        except OSError:
            continue  # sys.path names folders and zips that need not exist
        for finder in filter(_FINDER.match, names):
            project = _mapped(context, os.path.join(entry, finder), name)
            if project is not None:
                return Package(project, os.path.dirname(project))
    return None


def _mapped(context: Context, finder: str, name: str) -> Optional[str]:
    """Where setuptools' finder of an editable install has a package; Python asks it last."""
    try:
        table = _MAPPING.search(context.read_text(finder, _INIT_LIMIT_BYTES))
        folder = ast.literal_eval(table.group(1)).get(name) if table else None
    except (OSError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError, AttributeError):
        return None
    is_there = isinstance(folder, str) and context.exists(os.path.join(folder, "__init__.py"))
    return folder if is_there else None


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


def _conda_record(context: Context) -> Optional[str]:
    """The record of conda's package of torch, None where conda did not bring it."""
    folder = os.path.join(context.interpreter.get("prefix", ""), "conda-meta")
    try:
        names = context.list_dir(folder)
    except OSError:
        return None
    # pytorch-cuda and pytorch-mutex are other packages, without a version after the first dash.
    names = [name for name in names if re.fullmatch(r"pytorch-\d[^-]*-[^-]+\.json", name)]
    return os.path.join(folder, names[0]) if names else None


def built_with(context: Context, package: Package, site_names: Sequence[str]) -> Dict[str, str]:
    """The cuDNN and NCCL that torch was built with, as far as its own package says: `{"nccl": "2.30.7"}`.

    A wheel pins the libraries it was built with (`Requires-Dist: nvidia-nccl-cu13==2.30.7`), a conda
    package needs at least those (`nccl >=2.27.3.1,<3.0a0`), and the pytorch channel writes cuDNN's into
    the name of the build (`py3.11_cuda12.1_cudnn8.9.2_0`). What is not said is left out.
    """
    said: List[Tuple[str, str]] = []
    for name in site_names:
        if re.fullmatch(r"torch-[^-]+\.dist-info", name):
            said += _said(context, os.path.join(package.entry, name, "METADATA"), _WHEEL_NEEDS)
    record = _conda_record(context)
    if record:
        said += re.findall(r"_(cudnn)(\d+(?:\.\d+)+)_", os.path.basename(record))
        # The keys of a record are sorted: `depends` stands before the thousands of file names.
        said += _said(context, record, _CONDA_NEEDS)
    found: Dict[str, str] = {}
    for family, version in said:
        found.setdefault(family, ".".join(version.split(".")[:3]))
    return found


def _said(context: Context, path: str, form: Pattern[str]) -> List[Tuple[str, str]]:
    try:
        head = context.read_head(path, _RECORD_HEAD_BYTES)
    except OSError:
        return []
    # A CPU build speaks of neither.
    return form.findall(head.decode("utf-8", "replace")) if b"cudnn" in head or b"nccl" in head else []


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
