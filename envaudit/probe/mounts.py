"""Which mount holds a path, from /proc/self/mountinfo: reading that touches no mount, not even a dead one.

A line of mountinfo, from proc_pid_mountinfo(5), its optional fields ended by `-`:

    36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    id parent dev root point options          type source super options
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from envaudit.probe.context import Context

# A host of hundreds of pods has tens of thousands of mounts, each overlay with a long lowerdir.
_LIMIT_BYTES = 8 << 20
_MAX_LINKS = 40  # MAXSYMLINKS, include/linux/namei.h

# File systems that several nodes may share, as the kernel or, after `fuse.`, their client names them.
_NETWORK = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "coda", "ncpfs", "9p", "virtiofs", "dvs"),
        *("lustre", "gpfs", "beegfs", "fhgfs", "ceph", "ceph-fuse", "wekafs", "panfs", "pvfs2", "orangefs"),
        *("glusterfs", "gfs2", "ocfs2", "quobyte", "curvefs", "juicefs", "lizardfs", "mfs", "moosefs"),
        *("seaweedfs", "dfuse", "daos", "hdfs", "fuse_dfs", "alluxio-fuse", "cvmfs2", "hf3fs", "cubefs"),
        *("sshfs", "s3fs", "goofys", "geesefs", "gcsfuse", "mountpoint-s3", "rclone", "blobfuse"),
        *("cvfs", "blobfuse2", "s3ql", "ossfs", "cosfs", "obsfs", "davfs", "davfs2", "curlftpfs"),
        *("objectivefs",),
    )
)
_OCTAL = re.compile(r"\\([0-3][0-7]{2})")


class Mount(NamedTuple):
    """One mount of this process' mount namespace.

    Attributes:
        point: where it is mounted.
        source: the device, `server:/export`, or what else the file system calls its source.
        root: the folder of that file system that is mounted, other than `/` for a bind mount.
        fstype: ext4, nfs4, overlay, fuse.sshfs ...
        options: those of the mount, then those of the file system; `ro` alone where either says ro.
        network: whether the file system is one that several nodes may share (NFS, Lustre, GPFS ...).
        id: the mount's number, and `parent` the number of the mount that it is mounted on.
        parent: see `id`.
    """

    point: str
    source: str
    root: str
    fstype: str
    options: Tuple[str, ...]
    network: bool
    id: int
    parent: int

    @property
    def may_block(self) -> bool:
        """Whether a look at it may wait for somebody else: a server, a FUSE daemon, an automounter."""
        return self.network or self.fstype == "autofs" or self.fstype.startswith("fuse")

    def place(self, path: str) -> str:
        """Where a path below `point` lies in its file system: with `source` it is the same on all nodes."""
        inside = path[len(self.point.rstrip("/")) :]
        return (self.root.rstrip("/") + inside) or "/"


class MountTable:
    """All mounts of a namespace, and which of them a path leads to.

    Attributes:
        mounts: in the kernel's order.
    """

    def __init__(self, mounts: List[Mount]) -> None:
        self.mounts = mounts
        ids = {mount.id for mount in mounts}
        self._tops = {one.point: one for one in mounts if one.parent == one.id or one.parent not in ids}
        self._over: Dict[Tuple[int, str], Mount] = {
            (one.parent, one.point): one for one in mounts if one.parent != one.id
        }

    def holding(self, path: str) -> Optional[Mount]:
        """The mount that an absolute path without links leads to, None where the table lacks its root.

        As the kernel walks: at each folder on the way it steps onto what is mounted over it, and what
        that hides is not met. In a chroot below a mount, the mount of `/` itself is not listed.
        """
        current: Optional[Mount] = None
        for folder in _ancestors(path):
            current = current or self._tops.get(folder)
            current = self._topmost(current, folder) if current else None
        return current

    def _topmost(self, mount: Mount, folder: str) -> Optional[Mount]:
        """What lies on top at a folder of `mount`; None in a table whose numbers go round in a circle."""
        for _ in range(len(self.mounts) + 1):
            over = self._over.get((mount.id, folder))
            if over is None:
                return mount
            mount = over
        return None


def mounts(context: Context) -> List[Mount]:
    """All mounts that this process sees, in the kernel's order.

    Raises:
        OSError: /proc/self/mountinfo cannot be read.
    """
    text = context.read_text("/proc/self/mountinfo", _LIMIT_BYTES)
    found = (_mount(line) for line in text.split("\n"))
    return [mount for mount in found if mount is not None]


def mount_of(context: Context, path: str) -> Optional[Mount]:
    """The mount that holds an absolute path, links followed; None where the mounts cannot be read.

    Looks at each component of the path: on a dead mount it blocks.
    """
    try:
        table = MountTable(mounts(context))
    except OSError:
        return None
    return table.holding(real_path(context, path) or path)


def real_path(context: Context, path: str, unless: Optional[MountTable] = None) -> Optional[str]:
    """An absolute path without links, `.` and `..`; what does not exist is taken as it is written.

    Args:
        context: the node.
        path: an absolute path.
        unless: gives up, with None, before a look at a mount of this table that may block.
    """
    ahead = path.split("/")[::-1]
    done: List[str] = []
    links = 0
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            del done[-1:]
            continue
        place = "/" + "/".join([*done, name])
        mount = unless.holding(place) if unless else None
        if mount is not None and mount.may_block:
            return None
        try:
            target = context.readlink(place) if links < _MAX_LINKS else None
        except OSError:
            target = None
        if target is None:
            done.append(name)
            continue
        links += 1
        ahead += target.split("/")[::-1]
        if target.startswith("/"):
            done = []
    return "/" + "/".join(done)


def is_network(fstype: str, source: str) -> bool:
    """Whether a file system is one that several nodes may share.

    A FUSE client that gives itself no subtype is known by its source, which is its name (`mountpoint-s3`,
    `mfs#server:9421`) or that of a server (`al@nas:/srv`, `https://cloud/dav`).
    """
    kind, _, subtype = fstype.partition(".")
    if kind in ("fuse", "fuseblk"):
        client = subtype or re.split("[:#@]", source, maxsplit=1)[0]
        return client.lower() in _NETWORK or (not subtype and ":" in source.partition("/")[0])
    return kind in _NETWORK


def _mount(line: str) -> Optional[Mount]:
    fields = line.split(" ")
    try:
        end = fields.index("-", 6)
        number, parent = int(fields[0]), int(fields[1])
        fstype, source = fields[end + 1], _plain(fields[end + 2])
    except (ValueError, IndexError):
        return None
    own = fields[5].split(",")
    shared = fields[end + 3].split(",") if len(fields) > end + 3 else []
    seen = dict.fromkeys(own + shared)
    seen.pop("", None)
    if "ro" in seen:
        seen.pop("rw", None)
    return Mount(
        point=_plain(fields[4]),
        source=source,
        root=_plain(fields[3]),
        fstype=fstype,
        options=tuple(_plain(option) for option in seen),
        network=is_network(fstype, source),
        id=number,
        parent=parent,
    )


def _plain(text: str) -> str:
    # The kernel writes space, tab, newline and backslash in octal (show_mountinfo, fs/proc_namespace.c).
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text) if "\\" in text else text


def _ancestors(path: str) -> List[str]:
    """`/a/b` as `/`, `/a`, `/a/b`."""
    parts = [part for part in path.split("/") if part]
    return ["/", *("/" + "/".join(parts[: count + 1]) for count in range(len(parts)))]
