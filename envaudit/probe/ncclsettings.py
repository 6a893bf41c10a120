"""The settings that NCCL takes on this node, from the environment and from its files."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Tuple

from envaudit.probe.context import Context


def in_effect(context: Context) -> Tuple[Dict[str, Tuple[str, str]], List[str], List[str]]:
    """What NCCL will see: name → (value, origin), the files read, and what could not be read.

    The order is that of `initEnvFunc` in NCCL's src/misc/param.cc: what is set already wins; then
    the file NCCL_CONF_FILE names or, without it, ~/.nccl.conf; then /etc/nccl.conf.
    """
    settings = {
        name: (value, "environment") for name, value in context.environ.items() if name.startswith("NCCL_")
    }
    named = context.environ.get("NCCL_CONF_FILE", "")
    home = context.environ.get("HOME", "")
    files = []
    if named:
        files.append((named, "NCCL_CONF_FILE"))
    elif home:
        files.append((os.path.join(home, ".nccl.conf"), "~/.nccl.conf"))
    files.append(("/etc/nccl.conf", "/etc/nccl.conf"))
    read_files: List[str] = []
    errors: List[str] = []
    for path, origin in files:
        if not os.path.isabs(path):
            path = os.path.join(context.workdir, path)
        try:
            text = context.read_text(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue  # a container runtime makes a folder where it was to mount a file that is not there
        except OSError as error:
            if isinstance(error, PermissionError) and origin == "~/.nccl.conf":
                continue  # a home that is not this user's, whose NCCL does not get in either
            errors.append(f"{path}: {error.strerror}")
            continue
        read_files.append(origin)
        for name, value in _assignments(text).items():
            settings.setdefault(name, (value, origin))
    return settings, read_files, errors


def _assignments(text: str) -> Mapping[str, str]:
    """The NAME=value lines of an nccl.conf, read as NCCL does: no trimming, the first of a name wins.

    With `NCCL_ALGO = Ring` it sets a variable whose name ends with a space, which nobody reads.
    """
    found: Dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and name.startswith("NCCL_") and not name[-1].isspace():
            found.setdefault(name, value)
    return found
