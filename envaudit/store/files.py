"""How the store touches the disk: whole files or none, with many writers, on NFS too.

A file is written under a temporary name in its folder, synced, given its final name, and the
folder is synced. No locks: those are what fails on a network file system. A writer that was killed
leaves its temporary file, and the next writer in that folder removes it (`temporaries`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from typing import Iterator, Optional, Sequence

from envaudit.errors import InputError, NeededError
from envaudit.store.temporaries import remove_abandoned, temporary_name

_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
# The last one: a folder that may be written but not listed.
_CANNOT_SYNC_FOLDERS = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)
_MAX_NAMESAKES = 1000
_CHUNK_BYTES = 1 << 20

_NEXT_STEPS = {
    errno.ENOSPC: "Free space on that file system, or choose another place.",
    errno.EDQUOT: "The quota is used up: free space there, or choose another place.",
    errno.EROFS: "That file system is read-only: choose another place.",
    errno.EACCES: "Make that folder writable for this user, or choose another place.",
    errno.EPERM: "Make that folder writable for this user, or choose another place.",
    errno.EISDIR: "A folder stands where a file should: move it away, or choose another name.",
    errno.ENOTDIR: "A file stands where a folder should: move it away, or choose another place.",
    errno.ENOENT: "Create that folder, or choose another place.",
}


def atomic_write(path: str, data: bytes, mode: Optional[int] = None) -> None:
    """Put `data` under `path`, replacing what is there; readers see the old or the new file whole.

    A symbolic link is followed, and what is no regular file (`/dev/stdout`, a pipe) is written to as it
    is. The file has the permissions `mode` whatever the umask; without it an existing file keeps its own.

    Raises:
        NeededError: disk full, no permission, no such folder; `path` is as it was before.
    """
    try:
        present = _mode_of(path)
        if _is_device(path, present):
            with open(path, "wb") as stream:
                stream.write(data)
            return
        target = os.path.realpath(path)
        folder = os.path.dirname(target)
        remove_abandoned(folder)
        with _temporary(folder, data, present if mode is None else mode) as temporary:
            os.replace(temporary, target)
        sync_folder(folder)
    except OSError as error:
        raise write_failure(path, error) from error


def discard(path: str) -> None:
    """Remove the file that an earlier run has left under `path`, before a run that will write it.

    A run that is killed then leaves no older answer in the place of its own. What is no regular file stays.

    Raises:
        NeededError: it may not be removed.
    """
    try:
        if not _is_device(path, _mode_of(path)):
            os.unlink(os.path.realpath(path))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise write_failure(path, error) from error


def publish(folder: str, stem: str, extension: str, data: bytes) -> str:
    """Write `data` as a new file of `folder` and return its name; nothing is ever replaced.

    The name is stem + extension, or stem-2, stem-3 and so on where that is taken by other data.
    Where the same data has the name already, there is nothing to do: this also answers an NFS
    server that made the link but whose reply was lost, so that the repeated call says "exists".

    Raises:
        NeededError: disk full, no permission; nothing has a new name.
    """
    try:
        remove_abandoned(folder)
        with _temporary(folder, data) as temporary:
            name = _link_new(temporary, folder, stem, extension, data)
        sync_folder(folder)
        return name
    except OSError as error:
        raise write_failure(folder, error) from error


def replace(folder: str, names: Sequence[str], data: bytes, *, temporaries: str) -> None:
    """Put the same small `data` under each of `names`, one atomic rename each.

    All are written and synced before the first is renamed: where the disk is full, nothing has
    changed. The caller syncs the folder.

    Raises:
        OSError: disk full, no permission.
    """
    with contextlib.ExitStack() as stack:
        written = [stack.enter_context(_temporary(temporaries, data)) for _ in names]
        for name, temporary in zip(names, written):
            os.replace(temporary, os.path.join(folder, name))


def hide(path: str) -> str:
    """Rename a file to a temporary name of this process and return the new path.

    Raises:
        OSError: it is gone, or may not be renamed.
    """
    aside = os.path.join(os.path.dirname(path), temporary_name())
    os.rename(path, aside)
    return aside


def restore(aside: str, path: str) -> None:
    """Give a hidden file its name back, unless somebody has written it anew.

    Raises:
        OSError: it may not be renamed.
    """
    try:
        os.link(aside, path)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        os.rename(aside, path)
        return
    os.unlink(aside)


def make_folder(path: str) -> None:
    """Create a folder and its parents durably; an existing one is fine.

    Raises:
        NeededError: no permission, disk full, or a file stands in the way.
    """
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        make_folder(parent)
    try:
        os.mkdir(path)
        sync_folder(parent)
    except FileExistsError:
        if not os.path.isdir(path):
            raise write_failure(path, NotADirectoryError(errno.ENOTDIR, "Not a directory")) from None
    except OSError as error:
        raise write_failure(path, error) from error


def sync_folder(folder: str) -> None:
    """Make the names of a folder durable, where its file system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_FOLDERS:
            raise


def open_regular(path: str, follow: bool = False) -> int:
    """A descriptor to read a file of a store; never a device or a folder, and no wait on a pipe.

    `follow` allows what a user may name (a symbolic link, a pipe); inside a store they are refused,
    since a store can come from a repository under test.

    Raises:
        InputError: not a file, or a link.
        OSError: gone, no permission.
    """
    flags = os.O_RDONLY if follow else os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError("a symbolic link, expected a file", where=path) from None
        if error.errno == errno.ENXIO:
            raise InputError("a socket, expected a file", where=path) from None
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or (follow and stat.S_ISFIFO(mode)):
        return descriptor
    os.close(descriptor)
    kind = "a folder" if stat.S_ISDIR(mode) else "a device or pipe"
    raise InputError(f"{kind}, expected a file", where=path)


def sha256_of(path: str) -> str:
    """Of a file's bytes, hexadecimal; empty where no regular file is there that can be read.

    A path may come from a repository under test: a pipe would keep its reader, a device fill its memory.
    """
    digest = hashlib.sha256()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            while True:
                chunk = stream.read(_CHUNK_BYTES)
                if not chunk:
                    return digest.hexdigest()
                digest.update(chunk)
    except OSError:
        return ""


def write_failure(path: str, error: OSError) -> NeededError:
    """What the user reads when `path` cannot be written."""
    return NeededError(
        "cannot be written",
        where=path,
        why=error.strerror or str(error),
        next_step=_NEXT_STEPS.get(error.errno or 0, ""),
    )


@contextlib.contextmanager
def _temporary(folder: str, data: bytes, mode: Optional[int] = None) -> Iterator[str]:
    """A synced temporary file with `data`, gone at the end under that name."""
    path = os.path.join(folder, temporary_name())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            if mode is not None:
                os.fchmod(descriptor, stat.S_IMODE(mode))
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left[:_CHUNK_BYTES]) :]
            # The kernel's own stamps are milliseconds apart; two runs of one second are told apart
            # by this one.
            os.utime(descriptor, ns=(time.time_ns(), time.time_ns()))
            # Also the place where NFS reports a full disk.
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield path
    finally:
        try:
            os.unlink(path)
        except OSError:
            pass  # renamed, or it cannot be removed now: the next writer will


def _link_new(temporary: str, folder: str, stem: str, extension: str, data: bytes) -> str:
    for attempt in range(1, _MAX_NAMESAKES):
        name = f"{stem}{extension}" if attempt == 1 else f"{stem}-{attempt}{extension}"
        target = os.path.join(folder, name)
        try:
            os.link(temporary, target)
            return name
        except FileExistsError:
            if _holds(target, data):
                return name
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            # A file system without hard links: the digest in the name keeps two writers apart.
            if not os.path.lexists(target):
                os.rename(temporary, target)
                return name
            if _holds(target, data):
                return name
    raise FileExistsError(errno.EEXIST, f"{_MAX_NAMESAKES} files of that name")


def _holds(path: str, data: bytes) -> bool:
    try:
        with open(open_regular(path), "rb") as stream:
            return stream.read(len(data) + 1) == data
    except (OSError, InputError):
        return False


def _is_device(path: str, mode: Optional[int]) -> bool:
    """Whether a path is something to write to, not a name to give to a file.

    `/dev/stdout` counts even when it was redirected to a file: the shell and this process hold
    that file open, and must not be left with one that has lost its name.
    """
    if mode is not None and not stat.S_ISREG(mode):
        return True
    folder = os.path.dirname(os.path.abspath(path))
    return folder in ("/dev", "/dev/fd") or folder.startswith("/proc/")


def _mode_of(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None
