"""The interpreter as its user starts it, and whether root may start it at all.

The probe itself runs under `python -I`, which drops PYTHONPATH and the user's site folder. What
the interpreter's work would see is asked of a second process of the same executable, started
without `-I`, in the working directory, with the environment as it is.
"""

from __future__ import annotations

import json
import os
import site
import stat
import sys
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional

from envaudit.probe import Refused, child, program

TIMEOUT_S = 4.0
# What a pipe holds without a reader (64 KiB), less some.
LIMIT_BYTES = 60_000
_READ_BYTES = 1 << 16

# ASCII has separators for this: importing json would cost the child 10 to 15 ms.
_FIELD = "\x1e"
_ITEM = "\x1f"
# Around all of it: a wrapper, a `.pth` file or a sitecustomize may print something of its own.
_EDGE = "\x1d"

# `-c` puts the working directory first on sys.path. It is dropped before anything is imported, so
# that no file there runs, and from the record, since it belongs to `-c` and not to the environment.
# Entries that are no texts, such as a Path, are none to Python's import either.
ASK = """
import sys
path = [entry for entry in sys.path if isinstance(entry, str)]
if path and path[0] == "" and not getattr(sys.flags, "safe_path", False):
    del path[0]
    del sys.path[0]
import os, site, _imp, _locale
flags = [n for n in dir(sys.flags) if n[0] != "_" and n not in ("count", "index") and n[:2] != "n_"]
say = {
    "executable": [sys.executable],
    "version": [sys.version.split()[0]],
    "version_info": [str(part) for part in sys.version_info],
    "build": [" ".join(sys.version.split())],
    "implementation": [sys.implementation.name],
    "prefix": [sys.prefix],
    "base_prefix": [sys.base_prefix],
    "exec_prefix": [sys.exec_prefix],
    "platform": [sys.platform],
    "soabi": [(_imp.extension_suffixes() or [""])[0].strip(".").rpartition(".")[0]],
    "flags": ["%s=%d" % (n, int(getattr(sys.flags, n))) for n in flags],
    "path": path,
    "site_packages": site.getsitepackages(),
    "user_site": [site.getusersitepackages()],
    "user_site_enabled": [str(site.ENABLE_USER_SITE)],
    "names_encoding": [sys.getfilesystemencoding()],
    "text_encoding": ["utf-8" if sys.flags.utf8_mode else _locale.nl_langinfo(_locale.CODESET)],
}
text = "\\x1e".join(key + "\\x1f" + "\\x1f".join(items) for key, items in say.items())
os.write(1, b"\\x1d" + os.fsencode(text) + b"\\x1d")
"""

_LISTS = ("path", "site_packages")


def question(executable: str) -> List[str]:
    """The argv that makes an interpreter describe itself; `-B`: it leaves no bytecode behind."""
    return [executable, "-B", "-c", ASK]


def parse(said: bytes, environ: Mapping[str, str]) -> Dict[str, Any]:
    """What the interpreter said, by key.

    `flags` maps names to integers, `version_info` is `[3, 11, 7, "final", 0]`, `path` and
    `site_packages` are lists of folders, `user_site_enabled` is a bool, all others are texts.

    Raises:
        ValueError: it is not what `ASK` prints.
    """
    fields: Dict[str, List[str]] = {}
    for field in os.fsdecode(said).rpartition(_EDGE)[0].rpartition(_EDGE)[2].split(_FIELD):
        key, *items = field.split(_ITEM)
        fields[key] = items
    try:
        told: Dict[str, Any] = {
            key: items if key in _LISTS else items[0]
            for key, items in fields.items()
            if key not in ("version_info", "flags", "user_site_enabled")
        }
        told["version_info"] = [int(item) if item.isdigit() else item for item in fields["version_info"]]
        told["flags"] = {name: int(number) for name, _, number in (f.partition("=") for f in fields["flags"])}
        told["user_site_enabled"] = fields["user_site_enabled"] == ["True"]
        told["path"] = [entry for entry in told["path"] if entry]
        told["prefix"], told["executable"]
    except (KeyError, IndexError, ValueError):
        raise ValueError("the interpreter printed something else than its description") from None
    # The `-B` of the question is not the user's.
    told["flags"]["dont_write_bytecode"] = int(bool(environ.get("PYTHONDONTWRITEBYTECODE")))
    return told


class Asked:
    """The interpreter that is describing itself, and what it said so far."""

    def __init__(self, workdir: str) -> None:
        self.deadline = time.monotonic() + TIMEOUT_S
        self.said: Dict[int, bytearray] = {}
        self._why = ""
        self._pid = self._complaints = 0
        self._executable = own_executable()
        try:
            argv = question(self._executable)
            cwd = program.workplace(workdir)
            self._pid, out, err = program.start(argv, os.environ, TIMEOUT_S, cwd=cwd)
        except program.ProgramFailed as error:
            self._why = str(error)
        else:
            self.said, self._complaints = {out: bytearray(), err: bytearray()}, err
        self.open = set(self.said)

    def hear(self, fd: int) -> None:
        """Take what it said on one of its two pipes; an end closes it, and too much that of the answer.

        Of complaints the last one is looked at: LD_DEBUG writes half a megabyte of them.
        """
        chunk = os.read(fd, _READ_BYTES)
        self.said[fd] += chunk
        too_much = len(self.said[fd]) > LIMIT_BYTES
        if too_much and fd == self._complaints:
            del self.said[fd][:-LIMIT_BYTES]
        elif too_much or not chunk:
            self.open.discard(fd)

    def late(self) -> None:
        """Give up: the deadline has passed."""
        self._why = f"did not describe itself within {TIMEOUT_S:g} s"
        self.open.clear()

    def line(self) -> bytes:
        """What each section is told: the description, or why there is none. Ends the interpreter."""
        texts = [bytes(text) for text in self.said.values()] or [b"", b""]
        while self.said:  # once, even where the caller is interrupted in the middle and ends everything
            os.close(self.said.popitem()[0])
        status = None
        if self._pid:
            status = child.end(self._pid) if self._why or self.open else child.reap(self._pid)
        # Where Python cannot start, it says why, and then where each thread was.
        text = texts[1].decode("utf-8", "replace").partition("\nCurrent thread ")[0].strip()
        complaint = [line for line in text.splitlines() if not line.startswith("Python runtime state: ")]
        told: Dict[str, Any] = {}
        try:
            told["interpreter"] = parse(texts[0], os.environ)
        except ValueError as error:
            ended = child.how_it_ended(status) if status else str(error)
            told["error"] = f"{self._executable}: {self._why or (complaint[-1] if complaint else ended)}"
        line = json.dumps(told).encode("ascii")
        if len(line) >= LIMIT_BYTES:
            told = {"error": f"{self._executable}: its description is {len(line)} bytes long"}
            line = json.dumps(told).encode("ascii")
        return line + b"\n"


def own_executable() -> str:
    """The file of this Python; one that was started by its bare name without a PATH does not know it."""
    try:
        return sys.executable or os.readlink("/proc/self/exe")
    except OSError:
        return ""


def check_trust(executable: str) -> None:
    """Refuse, as root, an interpreter whose files or site folders somebody else can write.

    Python runs the `.pth` files of its site folders at every start: whoever writes there runs code
    as root. Somebody else is an owner other than root, or anybody where all may write. Group
    permission does not count: Debian ships /usr/local writable by its empty group `staff`. A folder
    with the sticky bit, such as /tmp, is no fault: what root owns inside cannot be replaced.

    Raises:
        Refused: naming the path, who can write it, and what to do.
    """
    if not _is_real_root():
        return
    for path in _runs_at_start(executable):
        writer = writer_of(path)
        if writer is not None:
            raise Refused(
                f"as root, {executable} is not started: {writer}, and Python runs what lies there at "
                "start-up. Run the audit as that user, or with a Python that only root can write."
            )


def _is_real_root() -> bool:
    """Whether this process is root of the machine, not of a user namespace (a rootless container)."""
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            first = file.readline().split()
    except OSError:
        return True
    return first[:2] == ["0", "0"] or len(first) != 3


def _runs_at_start(executable: str) -> Iterator[str]:
    real = os.path.realpath(executable)
    yield real
    prefixes = {os.path.dirname(os.path.dirname(path)) for path in (os.path.abspath(executable), real)}
    if os.path.realpath(sys.executable or "") == real:
        prefixes |= {sys.prefix, sys.base_prefix}
        folders = set(site.getsitepackages())
    else:
        folders = set()
    for prefix in sorted(prefixes):
        yield os.path.join(prefix, "bin")
        yield os.path.join(prefix, "pyvenv.cfg")
        for lib in ("lib", "lib64"):
            standard = _entries(os.path.join(prefix, lib), start="python3")
            folders.update(standard)
            for name in ("site-packages", "dist-packages"):
                folders.update(os.path.join(folder, name) for folder in standard)
    for folder in sorted(folders):
        yield folder
        yield from _entries(folder, end=".pth")


def _entries(folder: str, start: str = "", end: str = "") -> List[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [
        os.path.join(folder, name) for name in sorted(names) if name.startswith(start) and name.endswith(end)
    ]


def writer_of(path: str) -> Optional[str]:
    """Who can change `path` or replace a folder above it, in words; None when only root can."""
    parts: List[str] = []
    for start in (os.path.abspath(path), os.path.realpath(path)):
        here = start
        while here not in parts:
            parts.append(here)
            here = os.path.dirname(here)
    for part in parts:
        try:
            seen = os.lstat(part)
        except OSError:
            continue  # not there: nothing runs
        if seen.st_uid != 0:
            return f"{part} belongs to user {seen.st_uid}"
        open_to_all = seen.st_mode & stat.S_IWOTH and not stat.S_ISLNK(seen.st_mode)
        if open_to_all and not (stat.S_ISDIR(seen.st_mode) and seen.st_mode & stat.S_ISVTX):
            return f"{part} can be written by everybody"
    return None
