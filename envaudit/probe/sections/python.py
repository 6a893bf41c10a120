"""The interpreter that runs the work: version, flags, where it looks for modules."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, Dict, Mapping, Optional

from envaudit.probe.context import Answer, Context
from envaudit.probe.hostname import host_names
from envaudit.probe.placeholders import Placeholders

SCHEMA = 1

_TEXTS = (
    "version",
    "implementation",
    "executable",
    "prefix",
    "base_prefix",
    "exec_prefix",
    "soabi",
    "platform",
)
# More of a sitecustomize than anybody writes.
_CUSTOM_BYTES = 1 << 20
_INTERPRETER = re.compile(r"(?:python|pypy)(?:3(?:\.\d+)?t?)?\Z")


def read(context: Context) -> Answer:
    """What the interpreter says of itself when it is started as its user starts it.

    A prefix that is not started has none to speak of where it holds no Python at all, as a conda
    environment of compilers does: the section is absent.
    """
    told = context.interpreter
    startable = _startable(context, str(told.get("prefix"))) if context.static else None
    if startable is None and context.static and not told.get("path"):
        return Answer("absent", {}, {})
    facts: Dict[str, Any] = {key: told.get(key) for key in _TEXTS}
    # Where the environment lies is compared only between nodes that were asked for the same one.
    facts["asked"] = context.asked or None
    # Of an environment that is not started, what only a start tells is unknown.
    if context.static:
        facts["started"] = "no"
    facts["flags"] = None if context.static else dict(told.get("flags", {}))
    # As the locale and PYTHONUTF8 have them; UTF-8 unless somebody chose otherwise.
    encodings = {"names": told.get("names_encoding"), "text": told.get("text_encoding")}
    facts["encodings"] = {of: str(name).lower() if name else None for of, name in encodings.items()}
    facts["site_packages"] = list(told.get("site_packages", []))
    put = Placeholders(context.environ, host_names(context)).put
    user_site = str(told.get("user_site") or "")
    facts["user_site"] = {
        "folder": put(user_site) or None,
        "enabled": None if context.static else bool(told.get("user_site_enabled")),
        "exists": None if context.static else bool(user_site) and context.is_dir(user_site),
    }
    # Folders outside come from PYTHONPATH, .pth files and the user's site: where drift hides.
    inside = tuple(
        {f"{told[key].rstrip('/')}/" for key in ("prefix", "base_prefix", "exec_prefix") if told.get(key)}
    )
    path = [entry for entry in told.get("path", []) if entry]
    facts["path_outside_prefix"] = [put(entry) for entry in path if not f"{entry}/".startswith(inside)]
    customized = _customized(context, told)
    if customized:
        facts["customized"] = customized
    missing = [key for key in ("version", "executable", "prefix", "path") if not told.get(key)]
    errors = [f"the interpreter did not say its {key}" for key in missing]
    if context.static and not startable:
        errors.append(f"{told.get('prefix')}/bin: no interpreter that can be started")
    notes: Dict[str, Any] = {"build": told.get("build"), "path": path}
    if context.static:
        notes["not_examined"] = {"flags, user's site folder, PYTHONPATH": "the interpreter is not started"}
    return Answer("partial" if errors else "ok", facts, notes, errors)


def _customized(context: Context, told: Mapping[str, Any]) -> Dict[str, str]:
    """Digests of what runs at every start: the first sitecustomize, and the user's, on the path."""
    names = ["sitecustomize"] + ["usercustomize"] * bool(told.get("user_site_enabled"))
    found: Dict[str, str] = {}
    for folder in told.get("path", []):
        for name in names:
            for file in (f"{name}/__init__.py", f"{name}.py"):
                if name in found or not os.path.isabs(folder):
                    continue
                try:
                    text = context.read_head(os.path.join(folder, file), _CUSTOM_BYTES)
                except OSError:
                    continue
                found[name] = hashlib.sha256(text).hexdigest()
    return found


def _startable(context: Context, prefix: str) -> Optional[bool]:
    """Whether an interpreter of a prefix leads to a file; None where it was seen to have none."""
    folder = os.path.join(prefix, "bin")
    try:
        names = [name for name in context.list_dir(folder) if _INTERPRETER.match(name)]
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError:
        return False
    if not names and not context.exists(os.path.join(prefix, "pyvenv.cfg")):
        return None
    return any(context.exists(os.path.join(folder, name)) for name in names)
