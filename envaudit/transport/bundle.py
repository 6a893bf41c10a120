"""The node side as one zip: a small one for the wire, the whole one as `envaudit.pyz`.

The list of node-side modules stands here and nowhere else. The one-file form is the same bytes
whenever its parts are: sorted names, one fixed time.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import io
import marshal
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from types import MappingProxyType

from envaudit.errors import NeededError
from envaudit.transport.boot import OLDEST_PYTHON, Payload, payload_of

PACKAGE = "envaudit"

# What a node needs to answer: the probe, and the frames that the answer travels in. Patterns
# match paths inside the package; `*` also crosses folders.
WIRE_SIDE = (
    "__init__.py",
    "_version.py",
    "probe/*.py",
    "transport/__init__.py",
    "transport/frames.py",
    "transport/node.py",
)

# What it needs besides where its numbers are checked: sent only then.
CHECKS_SIDE = ("checks/*.py", "control/*.py", "errors.py")

# What runs on a node's Python 3.8 and is carried in the one-file form.
NODE_SIDE = (
    *WIRE_SIDE,
    *CHECKS_SIDE,
    "model/*.py",
    "store/*.py",
    "diff/*.py",
    "rules/*.py",
    *(
        f"report/{name}.py"
        for name in (
            "__init__",
            "checks",
            "clocks",
            "collectives",
            "facts",
            "github",
            "json",
            "layout",
            "lines",
            "markdown",
            "notebook",
            "outcomes",
            "places",
            "plain",
            "sarif",
            "screen",
            "summary",
            "timeline",
            "values",
            "wordings",
        )
    ),
    "transport/inband.py",
    "transport/postponed.py",
    *(
        f"cli/{name}.py"
        for name in (
            "__init__",
            "aside",
            "asking",
            "baselines",
            "check",
            "checkoptions",
            "checkwords",
            "comparing",
            "compiled",
            "diff",
            "explain",
            "gate",
            "gatejudging",
            "gatemeeting",
            "inbandcheck",
            "inbandgate",
            "judging",
            "launched",
            "loading",
            "main",
            "meetingplan",
            "output",
            "policyof",
            "progress",
            "prolog",
            "references",
            "rules",
            "seat",
            "selection",
            "show",
            "since",
            "snapshot",
            "stdout",
            "stepnodes",
            "thisnode",
        )
    ),
)

# Taken along from site-packages, by their top-level modules: nothing is installed on a node, and
# the probe reads GPUs with NVML's own bindings. (`packaging`, from 26 on, needs Python 3.10.)
CARRIED = ("pynvml",)

# The zip format knows no earlier time.
_TIME = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"
_UNCHECKED_HASH = 0b01
_WORD = 0xFFFFFFFF

# Read by every Python there is, so that an old one says more than SyntaxError. 5 is the exit code
# of something needed that is absent. A prolog that ends with anything but 0 drains its node, and neither
# an old interpreter nor a damaged file is a fault of the node.
_MAIN = """\
import sys

prolog = "--prolog" in sys.argv

if sys.version_info < {oldest}:
    sys.stderr.write("envaudit: Python %s is too old, {words} or newer is needed\\n" % sys.version.split()[0])
    sys.exit(0 if prolog else 5)

try:
    from envaudit.cli.main import run
except Exception:
    if not prolog:
        raise
    sys.stderr.write("envaudit: not judged: this file is damaged: %s\\n" % (sys.exc_info()[1],))
    sys.exit(0)

run()
"""


def node_side(patterns: Sequence[str] = NODE_SIDE) -> tuple[str, ...]:
    """The package's modules that match, as sorted paths inside the package: `probe/runner.py`."""
    return tuple(
        path for path in _package_files() if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)
    )


def build_bundle(compiled: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """The one-file form: runs as `python envaudit.pyz snapshot` on every Python from 3.8 on.

    Args:
        compiled: further files of the package, by path in it: `compiled/policy.json`.

    Raises:
        NeededError: `pynvml` is not installed beside envaudit.
    """
    files = {name: _read(path) for name, path in _sources(NODE_SIDE, CARRIED).items()}
    files.update({f"{PACKAGE}/{path}": data for path, data in compiled.items()})
    words = ".".join(map(str, OLDEST_PYTHON))
    files["__main__.py"] = _MAIN.format(oldest=OLDEST_PYTHON, words=words).encode("ascii")
    return _zip_of(files, prefix=_SHEBANG, level=9)


@lru_cache(maxsize=2)
def wire_payload(*, compressed: bool = True, checks: bool = False) -> Payload:
    """The zip that is piped to every node.

    Beside each source lies its bytecode for this machine's Python: a node with the same minor
    version need not compile (which is a third of the probe's time), any other falls back on the
    source. Compressing pays wherever the zip crosses a network; the fastest level does, since a
    better one costs the controller more than it saves. `checks` adds what runs kernels.
    """
    files = {}
    for name, path in _sources((*WIRE_SIDE, *(CHECKS_SIDE if checks else ())), CARRIED).items():
        files[name] = _read(path)
        files[f"{name}c"] = _bytecode(name, path)
    return payload_of(_zip_of(files, level=1 if compressed else 0))


def _bytecode(name: str, path: str) -> bytes:
    """A .pyc that is taken without a look at its source: both come from here."""
    head = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH.to_bytes(4, "little") + bytes(8)
    stat = os.stat(path)
    # Python's own cache serves as it is where it is fresh (PEP 552: flags, mtime, size).
    fresh = importlib.util.MAGIC_NUMBER + struct.pack(
        "<3L", 0, int(stat.st_mtime) & _WORD, stat.st_size & _WORD
    )
    try:
        cached = _read(importlib.util.cache_from_source(path))
    except (OSError, NotImplementedError):
        cached = b""
    if cached.startswith(fresh):
        return head + cached[len(fresh) :]
    # As an import would, this leaves the bytecode in the cache for the next run.
    return head + marshal.dumps(SourceFileLoader(name, path).get_code(name))


def _zip_of(files: dict[str, bytes], *, level: int, prefix: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    buffer.write(prefix)
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED if level else zipfile.ZIP_STORED
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, files[name], compresslevel=level)
    return buffer.getvalue()


def _package_root() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _package_files() -> Iterator[str]:
    root = _package_root()
    found = []
    for folder, _, names in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names if name.endswith(".py")]
    return iter(sorted(found))


def _sources(patterns: Sequence[str], carried: Sequence[str]) -> dict[str, str]:
    """Path in the zip to path on this machine."""
    sources = {f"{PACKAGE}/{path}": os.path.join(_package_root(), path) for path in node_side(patterns)}
    for module in carried:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise NeededError(
                f"{module} is not installed beside envaudit",
                next_step="Install envaudit again with its dependencies.",
            )
        if spec.submodule_search_locations:
            folder = os.path.dirname(spec.origin)
            names = sorted(name for name in os.listdir(folder) if name.endswith(".py"))
            sources.update({f"{module}/{name}": os.path.join(folder, name) for name in names})
        else:
            sources[f"{module}.py"] = spec.origin
    return sources


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
