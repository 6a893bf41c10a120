"""On which file systems the work lives, and how they are mounted.

Facts, for each of

    root       /
    tmp        /tmp
    shm        /dev/shm
    prefix     the environment
    workdir    the working directory
    hf_home    HF_HOME, or ~/.cache/huggingface, whether it exists yet or not
    /data ...  folders that the option `folders` names, by their paths

null where the mounts do not show it; "as root", "as prefix" ... where it lies on the mount of one above,
so that a mount that deviates is one difference, and a disk that was not mounted is one; or

    fstype     ext4, nfs4, overlay, fuse.sshfs ...
    network    whether several nodes may share it (NFS, Lustre, GPFS, BeeGFS, Ceph, WekaFS ...)
    access     "rw" or "ro"
    options    {"noexec": true, "vers": "4.2", ...}: flags, and those values that are the same on two
               nodes that are mounted alike. Where the kernel writes one of several words, that is a
               value: `atime` (relatime, noatime, strictatime), `recovery` (hard, soft), `flock`

A mount over another, a bind mount and links are followed as the kernel does. A file system that may
block, because a server or an automounter is behind it, is looked at in a child with a deadline: a dead
one costs its use and an error, and the facts stay. `prefix`, `workdir` and `hf_home` follow from how the
probe was started, and are compared between equal starts.

Notes: path, mount point, source, space and inodes, the values of other options (addresses, sizes, ids).
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from envaudit.probe.context import Answer, ChildFailed, Context, InterpreterUnknown
from envaudit.probe.mounts import Mount, MountTable, mounts, real_path
from envaudit.probe.secrets import SECRET, clean, is_secret_name

SCHEMA = 1
DEADLINE_S = 15.0
MOUNT_TIMEOUT_S = 2.0

_MAX_OPTIONS = 64
_MAX_TEXT = 200
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,63}\Z")
# mount(8), nfs(5), mount.cifs(8), mount.ceph(8), mount.lustre(8), tmpfs(5) and overlayfs.rst name them:
# values that whoever mounts chooses, or that an equal server grants. `size` of a tmpfs follows the memory
# to the page, stripes the disks, and the rest names addresses, users and numbers of this node.
_VALUES = frozenset(
    (
        *("vers", "nfsvers", "minorversion", "proto", "nconnect", "max_connect", "rsize", "wsize", "bsize"),
        *("timeo", "retrans", "sec", "xprtsec", "lookupcache", "local_lock", "write", "cache", "actimeo"),
        *("acregmin", "acregmax", "acdirmin", "acdirmax", "acl", "rasize", "caps_max", "recover_session"),
        *("errors", "data", "commit", "barrier", "allocsize", "logbufs", "logbsize", "compress", "mode"),
        *("compress-force", "huge", "mpol", "index", "xino", "metacopy", "redirect_dir", "max_read"),
        *("readahead_kb", "checksum", "user_xattr", "umask", "fmask", "dmask", "file_mode", "dir_mode"),
    )
)
_CHOICES = {
    **dict.fromkeys(("relatime", "noatime", "strictatime"), "atime"),
    **dict.fromkeys(("hard", "soft", "softerr"), "recovery"),
    **dict.fromkeys(("flock", "noflock", "localflock"), "flock"),
}


def read(context: Context) -> Answer:
    """The mounts of the folders that work uses; partial where one does not answer."""
    errors: List[str] = []
    paths = _paths(context, errors)
    try:
        table = MountTable(mounts(context))
    except OSError as error:
        return Answer("error", {}, {}, [f"/proc/self/mountinfo: {error.strerror}"])
    looked = _look(context, table, paths, errors)
    if any(mount.fstype == "autofs" for _, mount in _held(table, looked)):
        table = MountTable(mounts(context))  # a look has mounted what the automounter holds ready
    facts: Dict[str, Any] = dict.fromkeys(paths)
    notes: Dict[str, Any] = {}
    rows: Dict[int, str] = {}
    for name, mount in _held(table, looked):
        path, use = looked[name]
        notes[name] = {"path": path[:_MAX_TEXT]}
        if mount.id in rows:
            facts[name] = f"as {rows[mount.id]}"
            continue
        rows[mount.id] = name
        options, others = sorted_out(mount.options)
        is_word = _WORD.match(mount.fstype)
        if not is_word:
            errors.append(f"/proc/self/mountinfo: the file system of {name} is no word")
        facts[name] = {
            "fstype": mount.fstype if is_word else None,
            "network": mount.network,
            "access": "ro" if "ro" in mount.options else "rw",
            "options": options,
        }
        notes[name].update(
            mount_point=mount.point[:_MAX_TEXT],
            source=_source(mount.source[:_MAX_TEXT]),
            options=others,
            **use,
        )
    return Answer("partial" if errors else "ok", facts, notes, errors)


def sorted_out(options: Tuple[str, ...]) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """A mount's options as facts, and those that differ between nodes mounted alike."""
    facts: Dict[str, Any] = {}
    others: Dict[str, str] = {}
    for option in options[:_MAX_OPTIONS]:
        name, equals, value = option[:_MAX_TEXT].partition("=")
        if name in ("rw", "ro") or not _WORD.match(name):
            continue
        if not equals:
            if name in _CHOICES:
                facts[_CHOICES[name]] = name
            else:
                facts[name] = True
        elif name in _VALUES:
            facts[name] = value
        else:
            others[name] = SECRET if is_secret_name(name) else clean(value)
    facts.setdefault("atime", "strictatime")  # what the kernel has no word for
    return facts, others


def _source(source: str) -> str:
    # //user:password@server/share of CIFS is a URL without its scheme.
    return clean(f"smb:{source}")[len("smb:") :] if source.startswith("//") else clean(source)


def _paths(context: Context, errors: List[str]) -> Dict[str, Optional[str]]:
    environ = context.environ
    home = environ.get("HOME", "")
    cache = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    # https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    hub = environ.get("HF_HOME") or (f"{cache}/huggingface" if cache else None)
    if hub == "~" or (hub or "").startswith("~/"):
        hub = home + str(hub)[1:] if home else None
    if hub and "://" in hub:
        hub = None  # an address is no folder, and may hold a password
    prefix: Optional[str] = None
    try:
        prefix = str(context.interpreter.get("prefix") or "") or None
    except InterpreterUnknown as error:
        errors.append(f"prefix: the interpreter did not describe itself: {error}")
    more = [str(path) for path in context.options.get("folders", ())]
    return {
        "root": "/",
        "tmp": "/tmp",
        "shm": "/dev/shm",
        "prefix": prefix,
        "workdir": context.workdir,
        "hf_home": os.path.join(context.workdir, hub) if hub else None,
        **{path: path for path in more if path.startswith("/")},
    }


def _look(
    context: Context, table: MountTable, paths: Mapping[str, Optional[str]], errors: List[str]
) -> Dict[str, Tuple[str, Dict[str, int]]]:
    """Each path without links, and the use of its file system; empty where that does not answer."""
    looked: Dict[str, Tuple[str, Dict[str, int]]] = {}
    waiting: Dict[str, List[str]] = {}
    for name, path in paths.items():
        if path is None:
            continue
        real = real_path(context, path, unless=table)
        mount = table.holding(real or path)
        if real is not None and (mount is None or not mount.may_block):
            looked[name] = (real, _use(context, real))
        else:
            looked[name] = (path, {})
            waiting.setdefault(mount.point if mount else path, []).append(name)
    for point, names in waiting.items():
        found, why = _look_in_child(context, {name: looked[name][0] for name in names})
        looked.update(found)
        if why:
            mount = table.holding(point)
            kind = mount.fstype[:_MAX_TEXT] if mount else "mount"
            errors.append(f"{kind} at {point[:_MAX_TEXT]}, {', '.join(names)}: {why}")
    return looked


def _look_in_child(
    context: Context, paths: Mapping[str, str]
) -> Tuple[Dict[str, Tuple[str, Dict[str, int]]], str]:
    def look() -> Dict[str, Any]:
        real = {name: real_path(context, path) or path for name, path in paths.items()}
        return {name: (path, _use(context, path)) for name, path in real.items()}

    try:
        told = context.call(look, MOUNT_TIMEOUT_S)
    except ChildFailed as error:
        return {}, str(error)
    return {name: (path, use) for name, (path, use) in told.items()}, ""


def _use(context: Context, path: str) -> Dict[str, int]:
    """Space and inodes of the file system of a path, or of what there is above it; empty where unread."""
    if not context.live:
        try:
            size, free = context.space(path)
        except OSError:
            return {}
        return {"size_bytes": size, "free_bytes": free}
    while True:
        try:
            seen = os.statvfs(path)
        except OSError:
            above = os.path.dirname(path)
            if above == path:
                return {}
            path = above
            continue
        return {
            "size_bytes": seen.f_frsize * seen.f_blocks,
            "free_bytes": seen.f_frsize * seen.f_bavail,
            "inodes": seen.f_files,
            "free_inodes": seen.f_favail,
        }


def _held(table: MountTable, looked: Mapping[str, Tuple[str, Any]]) -> List[Tuple[str, Mount]]:
    found = [(name, table.holding(path)) for name, (path, _) in looked.items()]
    return [(name, mount) for name, mount in found if mount is not None]
