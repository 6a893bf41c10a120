"""A file server for tests: a folder of this machine, read-only, behind FUSE in a mount namespace of its own.

`python -m tests.lab.fusefs FOLDER TARGET SOURCE TYPE LOG` mounts FOLDER at TARGET as a file system of
TYPE (`fuse.sshfs`) from SOURCE (`filer:/export`), says `ready`, and serves until its standard input
closes. Who wants to see the mount enters its namespace: `nsenter --mount=/proc/PID/ns/mnt`. Every
request goes into LOG as `operation path`, so that a test can tell what a file server would have had
to answer. The layouts are those of the kernel's include/uapi/linux/fuse.h, version 7.31.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
from typing import Callable, Dict, Optional, TextIO

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_RDONLY, MS_REC, MS_PRIVATE = 2, 4, 1, 0x4000, 1 << 18

_IN_HEADER = struct.Struct("=IIQQIIIHH")
_OUT_HEADER = struct.Struct("=IiQ")
_ATTR = struct.Struct("=QQQQQQIIIIIIIIII")
_BUFFER_BYTES = 1 << 20
_READ = struct.Struct("=QQI")

LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 5, 14, 15, 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS, INTERRUPT, BATCH_FORGET = 25, 26, 27, 28, 29, 34, 36, 42
_NAMES = {LOOKUP: "lookup", GETATTR: "getattr", OPEN: "open", READ: "read", OPENDIR: "opendir"}
_SILENT = (FORGET, INTERRUPT, BATCH_FORGET)


class Server:
    """Answers the kernel's requests about one folder."""

    def __init__(self, folder: str, log: TextIO) -> None:
        self._paths: Dict[int, str] = {1: folder}
        self._numbers: Dict[str, int] = {folder: 1}
        self._log = log
        self._answers: Dict[int, Callable[[str, bytes], bytes]] = {
            LOOKUP: self._lookup,
            GETATTR: lambda path, _: struct.pack("=QII", 1, 0, 0) + _attributes(path),
            READLINK: lambda path, _: os.fsencode(os.readlink(path)),
            OPEN: lambda path, _: struct.pack("=QII", 0, 0, 0),
            OPENDIR: lambda path, _: struct.pack("=QII", 0, 0, 0),
            READ: self._read,
            READDIR: self._readdir,
            STATFS: lambda path, _: struct.pack("=5Q4I24x", 0, 0, 0, 0, 0, 4096, 255, 4096, 0),
            RELEASE: lambda path, _: b"",
            RELEASEDIR: lambda path, _: b"",
            FLUSH: lambda path, _: b"",
            ACCESS: lambda path, _: b"",
            INIT: lambda path, _: struct.pack("=4IHHIIHHI28x", 7, 31, 1 << 17, 0, 12, 9, 4096, 1, 0, 0, 0),
        }

    def answer(self, request: bytes) -> Optional[bytes]:
        """The bytes for the kernel; None for what needs no answer."""
        _, operation, unique, node, *_ = _IN_HEADER.unpack_from(request)
        if operation in _SILENT:
            return None
        path = self._paths.get(node, "")
        body = request[_IN_HEADER.size :]
        if operation in _NAMES:
            name = os.fsdecode(body.rstrip(b"\0")) if operation == LOOKUP else ""
            self._log.write(f"{_NAMES[operation]} {os.path.join(path, name) if name else path}\n")
            self._log.flush()
        try:
            data, code = self._answers[operation](path, body), 0
        except KeyError:
            data, code = b"", errno.ENOSYS
        except OSError as error:
            data, code = b"", error.errno or errno.EIO
        return _OUT_HEADER.pack(_OUT_HEADER.size + len(data), -code, unique) + data

    def _lookup(self, path: str, body: bytes) -> bytes:
        inside = os.path.join(path, os.fsdecode(body.rstrip(b"\0")))
        attributes = _attributes(inside)
        number = self._numbers.setdefault(inside, len(self._numbers) + 1)
        self._paths[number] = inside
        return struct.pack("=QQQQII", number, 0, 1, 1, 0, 0) + attributes

    def _read(self, path: str, body: bytes) -> bytes:
        _, offset, size = _READ.unpack_from(body)
        with open(path, "rb") as file:
            return os.pread(file.fileno(), size, offset)

    def _readdir(self, path: str, body: bytes) -> bytes:
        _, offset, size = _READ.unpack_from(body)
        entries = b""
        for index, name in enumerate(sorted(os.listdir(path))[offset:], offset + 1):
            seen, text = os.lstat(os.path.join(path, name)), os.fsencode(name)
            entry = struct.pack("=QQII", seen.st_ino, index, len(text), seen.st_mode >> 12) + text
            entry += b"\0" * (-len(entry) % 8)
            if len(entries) + len(entry) > size:
                break
            entries += entry
        return entries


def _attributes(path: str) -> bytes:
    seen = os.lstat(path)
    times = (seen.st_atime_ns, seen.st_mtime_ns, seen.st_ctime_ns)
    return _ATTR.pack(
        seen.st_ino,
        seen.st_size,
        seen.st_blocks,
        *(one // 10**9 for one in times),
        *(one % 10**9 for one in times),
        seen.st_mode,
        seen.st_nlink,
        seen.st_uid,
        seen.st_gid,
        0,
        4096,
        0,
    )


def mount_fuse(target: str, source: str, kind: str) -> int:
    """Mounts it in this process' mount namespace; the descriptor on which the kernel asks."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    words = [os.fsencode(word) for word in (source, target, kind)]
    flags = ctypes.c_ulong(MS_RDONLY | MS_NOSUID | MS_NODEV)
    if libc.mount(*words, flags, os.fsencode(options)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)
    return device


def own_namespace() -> None:
    """Gives this process a mount namespace of its own, from which nothing spreads."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(
        b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None
    ):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(folder: str, target: str, source: str, kind: str, log: str) -> None:
    """Serves until standard input closes."""
    own_namespace()
    device = mount_fuse(target, source, kind)
    print("ready", flush=True)
    with open(log, "a", encoding="utf-8", errors="surrogateescape") as stream:
        server = Server(folder, stream)
        while True:
            ready, _, _ = select.select([device, 0], [], [])
            if 0 in ready:
                return
            try:
                answer = server.answer(os.read(device, _BUFFER_BYTES))
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):
                    continue  # the asker has gone away meanwhile
                return  # ENODEV: unmounted
            if answer is not None:
                try:
                    os.write(device, answer)
                except FileNotFoundError:
                    pass


if __name__ == "__main__":
    main(*sys.argv[1:])
