"""The interpreter that runs the work: version, flags, where it looks for modules."""

from __future__ import annotations

from typing import Any, Dict

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


def read(context: Context) -> Answer:
    """What the interpreter says of itself when it is started as its user starts it."""
    told = context.interpreter
    facts: Dict[str, Any] = {key: told.get(key) for key in _TEXTS}
    # Where the environment lies is compared only between nodes that were asked for the same one.
    facts["asked"] = context.asked or None
    # Of an environment that is not started, what only a start tells is unknown.
    if context.static:
        facts["started"] = "no"
    facts["flags"] = None if context.static else dict(told.get("flags", {}))
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
    missing = [key for key in ("version", "executable", "prefix", "path") if not told.get(key)]
    errors = tuple(f"the interpreter did not say its {key}" for key in missing)
    notes: Dict[str, Any] = {"build": told.get("build"), "path": path}
    if context.static:
        notes["not_examined"] = {"flags, user's site folder, PYTHONPATH": "the interpreter is not started"}
    return Answer("partial" if errors else "ok", facts, notes, errors)
