"""Section `deep`: torch imported and used once, and what its process then has loaded. On request only.

The section `libraries` says from the files which copies the loader takes. This one starts the
audited interpreter as its user does, without `-I` and in the working directory, lets it import
torch, run one convolution and one sum over one rank, and asks that process. It takes as long as the
import, seconds, and a GPU's memory while it lasts where torch sees one. Nothing is left behind: no
byte code, no process, and no port but on the loopback interface.

Facts:

    import       "ok", or the last line of why torch cannot be imported
    torch        {"version": "2.14.1+cu130", "cuda": "13.0", "cudnn": "9.24.0", "nccl": "2.30.7",
                  "architectures": ["sm_80", ...]}: what torch says; `nccl` is what it was built with
    available    whether torch sees a GPU
    device       cuda or cpu: where both were run
    convolution  "ok", or what went wrong
    collective   {"backend": "nccl" or "gloo", "outcome": "ok"}; the backend is null without any
    libraries    {"nccl": {"path": "{site}/nvidia/nccl/lib/libnccl.so.2", "version": "2.30.7",
                  "others": []}, ...}: the file that torch's calls reach, what it says of itself, and
                 further copies that are loaded; cuDNN also has `parts` as in `libraries`, of those
                 that were loaded

Paths are written as `libraries` writes them. A family that is not there was not loaded, which for
those that torch opens late says nothing. `convolution` and what follows it are not there when the
import failed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from envaudit.probe import child, deepchild, program, torchfiles
from envaudit.probe.answer import Answer
from envaudit.probe.context import Context, ProgramFailed
from envaudit.probe.families import BY_NAME, FAMILIES, cudnn_version
from envaudit.probe.hostname import host_names
from envaudit.probe.interpreter import writer_of
from envaudit.probe.placeholders import Placeholders
from envaudit.probe.places import Places
from envaudit.probe.secrets import clean
from envaudit.probe.sections import libraries

SCHEMA = 1
DEADLINE_S = 100.0

CHILD_TIMEOUT_S = 80.0
_TELLING_S = 1.0
# torch and what it loads may print a lot; more than this is no answer.
_LIMIT_BYTES = 4 << 20
_TEXT_MAX = 300
# `-c` puts the working directory first on sys.path, where a file may be called torch.py.
_LEAVE_WORKDIR = """import sys
if sys.path and sys.path[0] == "" and not getattr(sys.flags, "safe_path", False):
    del sys.path[0]
"""


class _Said(NamedTuple):
    """What the child told, key by key; the step that it was at, and why it got no further."""

    told: Dict[str, Any]
    step: str
    failed: str


def read(context: Context) -> Answer:
    """What a process that uses torch has loaded; absent where there is no torch."""
    if context.static or not context.live:
        return Answer("error", {}, {}, ("nothing of this environment is executed: torch was not imported",))
    package = torchfiles.find_package(context, "torch")
    if package is None:
        return Answer("absent", {})
    static = libraries.read(context)
    writer = _writer(package, static) if os.geteuid() == 0 else None
    if writer:
        return Answer("error", {}, {}, (f"as root, torch is not imported: {writer}",))
    began = time.monotonic()
    said = _ask(context)
    notes = {"took_ms": int((time.monotonic() - began) * 1000)}
    facts = _facts(context, said, static)
    errors = [f"{said.step}: {said.failed}"] if said.failed else []
    if facts["import"] != "ok" and not errors:
        errors = [f"import torch: {facts['import']}"]
    return Answer("partial" if errors else "ok", facts, notes, errors)


def _writer(package: torchfiles.Package, static: Answer) -> Optional[str]:
    """Who but root can change what the import would run."""
    for why in static.notes.get("not_examined", {}).values():
        if why.startswith("as root: "):
            return str(why[len("as root: ") :])
    return writer_of(os.path.join(package.folder, "__init__.py"))


def _ask(context: Context) -> _Said:
    """Run the child, whatever becomes of it."""
    nonce = os.urandom(8).hex()
    families = {
        family.name: [
            _pattern(family.stem),
            family.call.symbol if family.call else "",
            family.call.form if family.call else "",
        ]
        for family in FAMILIES
    }
    source = deepchild.__loader__.get_source(deepchild.__name__)  # type: ignore[union-attr]
    argv = [context.interpreter["executable"], "-B", "-c", _LEAVE_WORKDIR + (source or "")]
    environ = dict(context.environ, LC_ALL="C", LANGUAGE="C")
    cwd = program.workplace(context.workdir)
    timeout_s = _timeout_s()
    try:
        pid, out, err = program.start([*argv, nonce, json.dumps(families)], environ, timeout_s, cwd=cwd)
    except ProgramFailed as error:
        return _Said({}, "import", str(error))
    ended = False
    try:
        deadline = time.monotonic() + timeout_s
        (stdout, stderr), late = child.read_until([out, err], deadline, _LIMIT_BYTES)
        too_long = max(len(stdout), len(stderr)) > _LIMIT_BYTES
        ended = not late and not too_long
    finally:
        os.close(out)
        os.close(err)
        status = child.reap(pid) if ended else child.end(pid)
    told, step = _parsed(stdout, nonce)
    if late:
        return _Said(told, step, f"no answer within {timeout_s:.0f} s")
    if too_long:
        return _Said(told, step, f"more than {_LIMIT_BYTES >> 20} MiB of output")
    if status == 0 and ("libraries" in told or told.get("import", "ok") != "ok"):
        return _Said(told, step, "")
    complaint = stderr.decode("utf-8", "replace").strip().splitlines()
    return _Said(told, step, "; ".join([child.how_it_ended(status), *complaint[-1:]]))


def _timeout_s() -> float:
    """What is left of the section's own time, which the run's may have cut short, less some to tell."""
    left_s = signal.getitimer(signal.ITIMER_REAL)[0] - child.GRACE_S - _TELLING_S
    return min(CHILD_TIMEOUT_S, left_s) if left_s > 0 else CHILD_TIMEOUT_S


def _pattern(stem: str) -> str:
    """The file names of a family, as `families.family_of` knows them."""
    if stem == BY_NAME["nccl_net"].stem:
        return r"lib(nccl|rccl)-net(-[\w-]+)?\.so"
    return rf"lib{re.escape(stem)}(-[0-9a-f]{{8}})?\.so(\.|$)"


def _parsed(stdout: bytes, nonce: str) -> Tuple[Dict[str, Any], str]:
    """What stands behind the nonce: what was told, and the last step that began."""
    told: Dict[str, Any] = {}
    step = "start"
    for line in stdout.decode("utf-8", "replace").splitlines():
        _, mark, text = line.rpartition(nonce + " ")
        try:
            row = json.loads(text) if mark else None
        except ValueError:
            continue  # cut short by a crash
        if isinstance(row, dict):
            step = row.get("begins", step)
            told.update(row.get("told", {}))
    return told, step


def _facts(context: Context, said: _Said, static: Answer) -> Dict[str, Any]:
    told = said.told
    facts: Dict[str, Any] = {"import": _text(told.get("import", said.failed))}
    if facts["import"] != "ok":
        return facts
    facts["torch"] = {
        "version": told["version"],
        "cuda": told["cuda"],
        "cudnn": cudnn_version(told["cudnn"]) if told["cudnn"] and not told["hip"] else None,
        "nccl": told["nccl"],
        "architectures": told["architectures"],
    }
    facts["available"] = told["available"]
    if said.step == "convolution" and said.failed:
        facts["convolution"] = _text(said.failed)
    if "convolution" in told:
        facts["device"] = told["device"]
        facts["convolution"] = _text(told["convolution"])
    if said.step == "collective" and said.failed:
        facts["collective"] = {"backend": None, "outcome": _text(said.failed)}
    if "collective" in told:
        facts["collective"] = {"backend": told["backend"], "outcome": _text(told["collective"])}
    if "libraries" in told:
        names = _Names(context, static)
        # RCCL has the symbols of NCCL: torch knows which of the two it was built with.
        foreign = "nccl" if told["hip"] else "rccl"
        facts["libraries"] = {
            name: _row(name, row, names)
            for name, row in told["libraries"].items()
            if name in BY_NAME and name != foreign
        }
        if "cudnn" in facts["libraries"]:
            cudnn = os.path.dirname(told["libraries"]["cudnn"]["path"])
            facts["libraries"]["cudnn"]["parts"] = _parts(cudnn, told["cudnn_parts"], names)
    return facts


class _Names:
    """How files are called: as the section `libraries` calls them where it knows them."""

    def __init__(self, context: Context, static: Answer) -> None:
        self._places = Places(context.interpreter, Placeholders(context.environ, host_names(context)))
        rows = {name: row for name, row in static.facts.items() if name in BY_NAME}
        parts = [part for row in rows.values() for part in row.get("parts", {}).values() if part]
        known = [part["path"] for part in parts if isinstance(part, dict)]
        known += [path for paths in static.facts.get("copies", {}).values() for path in paths]
        self._known = {os.path.realpath(self._expanded(path)): path for path in known}
        files = static.notes.get("files", {})
        self._known.update(
            (files[name]["real_path"], row["path"]) for name, row in rows.items() if name in files
        )

    def of(self, path: str) -> str:
        return self._known.get(os.path.realpath(path)) or self._places.show(path)

    def _expanded(self, path: str) -> str:
        for name, folder in self._places.names.items():
            if path.startswith(name + "/"):
                return folder + path[len(name) :]
        return path


def _row(name: str, row: Dict[str, Any], names: _Names) -> Dict[str, Any]:
    call = BY_NAME[name].call
    others = {names.of(path) for path in row["mapped"]} - {names.of(row["path"])}
    return {
        "path": names.of(row["path"]),
        "version": call.read(row["said"]) if call and row["said"] is not None else None,
        "others": sorted(others),
    }


def _parts(folder: str, paths: List[str], names: _Names) -> Dict[str, str]:
    """The sublibraries of cuDNN that were loaded, `beside` it or where."""
    found = {}
    for path in paths:
        match = re.match(r"libcudnn_(\w+)\.so", os.path.basename(path))
        if match:
            found[match.group(1)] = "beside" if os.path.dirname(path) == folder else names.of(path)
    return found


def _text(said: str) -> str:
    """One short printable line."""
    return clean("".join(sign if sign.isprintable() else " " for sign in said[:_TEXT_MAX]))
