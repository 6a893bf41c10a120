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
import zipfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.machinery import SourceFileLoader

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

# What runs on a node's Python 3.8 and is carried in the one-file form.
NODE_SIDE = (
    *WIRE_SIDE,
    "errors.py",
    "model/*.py",
    "store/*.py",
    "diff/*.py",
    "rules/*.py",
    "report/__init__.py",
    "report/plain.py",
    "report/json.py",
    "transport/inband.py",
    "cli/__init__.py",
    "cli/main.py",
)

# Distributions that the one-file form takes along from site-packages, by their top-level module.
CARRIED = ("packaging", "pynvml")
# The probe's way to the GPUs; a node need not have it installed.
WIRE_CARRIED = "pynvml"

# The zip format knows no earlier time.
_TIME = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"
_UNCHECKED_HASH = 0b01

# Read by every Python there is, so that an old one says more than SyntaxError. 5 is the exit code
# of something needed that is absent.
_MAIN = """\
import sys

if sys.version_info < {oldest}:
    sys.stderr.write("envaudit: Python %s is too old, {words} or newer is needed\\n" % sys.version.split()[0])
    sys.exit(5)

from envaudit.cli.main import run

run()
"""


def node_side(patterns: Sequence[str] = NODE_SIDE) -> tuple[str, ...]:
    """The package's modules that match, as sorted paths inside the package: `probe/runner.py`."""
    return tuple(
        path for path in _package_files() if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)
    )


def build_bundle() -> bytes:
    """The one-file form: runs as `python envaudit.pyz snapshot` on every Python from 3.8 on.

    Raises:
        NeededError: `packaging` or `pynvml` is not installed beside envaudit.
    """
    files = {f"{PACKAGE}/{path}": _read(os.path.join(_package_root(), path)) for path in node_side()}
    for module in CARRIED:
        files.update(_carried_files(module))
    words = ".".join(map(str, OLDEST_PYTHON))
    files["__main__.py"] = _MAIN.format(oldest=OLDEST_PYTHON, words=words).encode("ascii")
    return _zip_of(files, prefix=_SHEBANG)


@lru_cache(maxsize=2)
def wire_payload(*, compressed: bool = True) -> Payload:
    """The zip that is piped to every node.

    Beside each source lies its bytecode for this machine's Python: a node with the same minor
    version need not compile (which is a third of the probe's time), any other falls back on the
    source. Compressing pays wherever the zip crosses a network.
    """
    paths = {f"{PACKAGE}/{path}": os.path.join(_package_root(), path) for path in node_side(WIRE_SIDE)}
    paths.update(_carried_paths(WIRE_CARRIED))
    files = {}
    for name, path in paths.items():
        files[name] = _read(path)
        files[f"{name}c"] = _bytecode(name, path)
    return payload_of(_zip_of(files, compressed=compressed))


def _bytecode(name: str, path: str) -> bytes:
    """A .pyc that is taken without a look at its source: both come from here."""
    code = SourceFileLoader(name, path).get_code(name)
    flags = _UNCHECKED_HASH.to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + flags + bytes(8) + marshal.dumps(code)


def _zip_of(files: dict[str, bytes], *, prefix: bytes = b"", compressed: bool = True) -> bytes:
    buffer = io.BytesIO()
    buffer.write(prefix)
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def _package_root() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _package_files() -> Iterator[str]:
    root = _package_root()
    found = []
    for folder, _, names in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names if name.endswith(".py")]
    return iter(sorted(found))


def _carried_files(module: str) -> dict[str, bytes]:
    return {name: _read(path) for name, path in _carried_paths(module).items()}


def _carried_paths(module: str) -> dict[str, str]:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise NeededError(
            f"{module} is not installed beside envaudit",
            next_step="Install envaudit again with its dependencies.",
        )
    if not spec.submodule_search_locations:
        return {f"{module}.py": spec.origin}
    folder = os.path.dirname(spec.origin)
    names = sorted(name for name in os.listdir(folder) if name.endswith(".py"))
    return {f"{module}/{name}": os.path.join(folder, name) for name in names}


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
