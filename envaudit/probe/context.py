"""How a section reads its node: files under a root, programs with a deadline.

The same section reads a live machine (root `/`) and a fake node: a folder with `root/` and a
`node.json` that stands for the environment, the interpreter's own words and what programs say.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple, Union

from envaudit.probe import child, program
from envaudit.probe.answer import Answer
from envaudit.probe.child import ChildFailed
from envaudit.probe.program import ProgramFailed, ProgramMissing, ProgramTimeout, Ran

__all__ = [
    "Answer",
    "ChildFailed",
    "Context",
    "InterpreterUnknown",
    "ProgramFailed",
    "ProgramMissing",
    "ProgramTimeout",
    "Ran",
]

_TEXT_LIMIT_BYTES = 1 << 20


class InterpreterUnknown(Exception):
    """The interpreter, started as its user starts it, did not describe itself."""


class Context:
    """One node as a section sees it.

    Attributes:
        root: `/`, or the folder that stands for the root of a fake node.
        environ: the environment the node's work runs in.
        workdir: the folder whose repository and environment are meant.
        launch: how the node was reached: local, ssh, slurm, exec, inband or prolog.
        asked: the interpreter as it was asked for, `python3` or a path; empty where nobody chose.
        live: whether this is the machine itself; only then may a section touch it other than
            through the methods here (ctypes, NVML, sockets).
        static: the prefix of which nothing may be executed, no program and no library; empty where
            the environment is asked by starting its interpreter.
        options: what the sections that are read on request are told, `{"integrity": "size"}`.
        node: the node.json of a fake node, for what only system calls tell; empty on a live one.
    """

    def __init__(
        self,
        *,
        root: str = "/",
        environ: Mapping[str, str],
        workdir: str,
        launch: str,
        asked: str = "",
        interpreter: Union[Mapping[str, Any], Callable[[], Mapping[str, Any]]],
        options: Optional[Mapping[str, Any]] = None,
        static: str = "",
        node: Optional[Mapping[str, Any]] = None,
    ) -> None:
        self.root = root
        self.environ = environ
        self.workdir = workdir
        self.launch = launch
        self.asked = asked
        self.live = os.path.normpath(root) == "/"
        self._interpreter: Union[Mapping[str, Any], Callable[[], Mapping[str, Any]], InterpreterUnknown] = (
            interpreter
        )
        self.options = options or {}
        self.static = static
        self.node = node or {}
        self._commands: Mapping[str, Mapping[str, Any]] = self.node.get("commands", {})
        self._denied: Tuple[str, ...] = tuple(self.node.get("denied", ()))
        self._answers: Dict[str, Answer] = {}

    @classmethod
    def of_fixture(cls, folder: str) -> Context:
        """A fake node from `folder/node.json` and `folder/root`."""
        with open(os.path.join(folder, "node.json"), encoding="utf-8") as file:
            node = json.load(file)
        return cls(
            root=os.path.join(folder, "root"),
            environ=node.get("environ", {}),
            workdir=node.get("workdir", "/"),
            launch=node.get("launch", "ssh"),
            asked=node.get("asked", "python3"),
            interpreter=node.get("interpreter", {}),
            options=node.get("options", {}),
            node=node,
        )

    @property
    def interpreter(self) -> Mapping[str, Any]:
        """What the interpreter says of itself without `-I`; its keys are those of `interpreter.ASK`.

        Raises:
            InterpreterUnknown: it said nothing usable; the text says why.
        """
        if callable(self._interpreter):
            tell = self._interpreter
            try:
                self._interpreter = tell()
            except InterpreterUnknown as error:
                self._interpreter = error
        if isinstance(self._interpreter, InterpreterUnknown):
            raise self._interpreter
        return self._interpreter

    def await_interpreter(self, tell: Callable[[], Mapping[str, Any]]) -> None:
        """Say where the interpreter's words come from once a section asks for them."""
        self._interpreter = tell

    def section(self, name: str) -> Answer:
        """What another section says of this node; it is read once in this process.

        Raises:
            ImportError: there is none of that name.
            Exception: whatever that section raises.
        """
        if name not in self._answers:
            from envaudit.probe import registry  # it lists this folder, which few sections need

            self._answers[name] = registry.load_section(name).read(self)
        return self._answers[name]

    def real(self, path: str) -> str:
        """Where an absolute path of the node lies on this machine."""
        return path if self.live else os.path.join(self.root, path.lstrip("/"))

    def read_text(self, path: str, limit_bytes: int = _TEXT_LIMIT_BYTES) -> str:
        """A file's text; bytes that are not UTF-8 become lone surrogates.

        Raises:
            OSError: absent, unreadable, no regular file, or longer than `limit_bytes`.
        """
        return self.read_bytes(path, limit_bytes).decode("utf-8", "surrogateescape")

    def peek(self, path: str) -> Optional[str]:
        """A small file's text without the white space around it, None where it is not to be had."""
        try:
            return self.read_text(path).strip()
        except OSError:
            return None

    def read_bytes(self, path: str, limit_bytes: int = _TEXT_LIMIT_BYTES) -> bytes:
        """A file's bytes.

        Raises:
            OSError: absent, unreadable, no regular file, or longer than `limit_bytes`.
        """
        text = self.read_head(path, limit_bytes + 1)
        if len(text) > limit_bytes:
            raise OSError(errno.EFBIG, f"Longer than {limit_bytes} bytes", path)
        return text

    def read_head(self, path: str, size_bytes: int) -> bytes:
        """The first bytes of a file, all of it when it is shorter.

        Raises:
            OSError: absent, unreadable, or no regular file.
        """
        # Opening a FIFO blocks without O_NONBLOCK, and reading a device or a socket has effects.
        fd = os.open(self._checked(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            seen = os.fstat(fd)
            if stat.S_ISDIR(seen.st_mode):
                _refuse(errno.EISDIR, path)
            if not stat.S_ISREG(seen.st_mode):
                raise OSError(errno.EINVAL, "Not a regular file", path)
            # One read takes all of a plain file; files of /proc say size 0 and come in pieces.
            text = os.read(fd, min(size_bytes, seen.st_size + 1 if seen.st_size else 1 << 16))
            part = text
            while part and len(text) < size_bytes and len(text) != seen.st_size:
                part = os.read(fd, min(1 << 20, size_bytes - len(text)))
                text += part
            return text
        finally:
            os.close(fd)

    def read_at(self, path: str, offset: int, size_bytes: int) -> bytes:
        """So many bytes of a file from an offset; fewer, or none, where it is shorter.

        Raises:
            OSError: absent, unreadable, or no regular file.
        """
        fd = os.open(self._checked(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "Not a regular file", path)
            return os.pread(fd, size_bytes, offset)
        finally:
            os.close(fd)

    def list_dir(self, path: str) -> List[str]:
        """The names in a folder, sorted.

        Raises:
            OSError: absent, unreadable or no folder.
        """
        return sorted(os.listdir(self._checked(path)))

    def exists(self, path: str) -> bool:
        """Whether something is there; False where that may not be seen."""
        try:
            os.stat(self._checked(path))
        except OSError:
            return False
        return True

    def is_dir(self, path: str) -> bool:
        """Whether a folder is there; False where that may not be seen."""
        try:
            return stat.S_ISDIR(os.stat(self._checked(path)).st_mode)
        except OSError:
            return False

    def readlink(self, path: str) -> str:
        """Where a symbolic link points, as it is written.

        Raises:
            OSError: absent or no link.
        """
        return os.readlink(self._checked(path))

    def space(self, path: str) -> Tuple[int, int]:
        """Size and free space, in bytes, of the file system that holds `path`.

        Raises:
            OSError: absent or unreadable.
        """
        if not self.live:
            size, free = self.node.get("space", {}).get(path) or _refuse(errno.ENOENT, path)
            return int(size), int(free)
        seen = os.statvfs(path)
        return seen.f_frsize * seen.f_blocks, seen.f_frsize * seen.f_bavail

    def run(self, argv: Sequence[str], timeout_s: float = 3.0, limit_bytes: int = _TEXT_LIMIT_BYTES) -> Ran:
        """What a program says, without a shell, without standard input, with LC_ALL=C.

        A fake node answers from `commands` of its node.json, by the words joined with spaces.

        Raises:
            ProgramMissing: it is not installed.
            ProgramTimeout: it was ended, with all below it, after `timeout_s`.
            ProgramFailed: it said more than `limit_bytes`, or may not be executed.
        """
        if self.live:
            environ = program.outside(self.static, argv, self.environ) if self.static else self.environ
            return program.run(argv, environ, timeout_s, limit_bytes=limit_bytes)
        told = self._commands.get(" ".join(argv))
        if told is None:
            raise ProgramMissing(f"{argv[0]}: not found")
        if told.get("hang"):
            raise ProgramTimeout(f"{argv[0]}: no answer within {timeout_s:g} s")
        return Ran(told.get("rc", 0), told.get("stdout", ""), told.get("stderr", ""))

    def call(self, function: Callable[[], Any], timeout_s: float) -> Any:
        """What `function()` returns, from a child of its own: it may crash or never return.

        Raises:
            ChildFailed: it did, or it raised.
        """
        return child.call(function, timeout_s)

    def _checked(self, path: str) -> str:
        if "\0" in path:
            _refuse(errno.EINVAL, path)
        if self._denied and _below(path, self._denied):
            _refuse(errno.EACCES, path)
        return self.real(path)


def _below(path: str, folders: Tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _refuse(number: int, path: str) -> NoReturn:
    raise OSError(number, os.strerror(number), path)
