"""Which mount holds a path, and what the table says of it."""

from __future__ import annotations

import os
from typing import Callable, Optional

import pytest

from envaudit.probe import mounts
from envaudit.probe.context import Context
from envaudit.probe.mounts import Mount, MountTable, mount_of, real_path

MakeNode = Callable[..., Context]

_ROOT = "20 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro\n"


def node_with(make_node: MakeNode, *lines: str) -> Context:
    """A fake node whose namespace has these mounts on its root."""
    return make_node({"/proc/self/mountinfo": _ROOT + "".join(line + "\n" for line in lines)})


def held(context: Context, path: str) -> Mount:
    """The mount of a path that has one."""
    mount = mount_of(context, path)
    assert mount is not None
    return mount


def test_path_below_no_mount_is_held_by_the_root(make_node: MakeNode) -> None:
    """`/opt2` is not below a mount at `/opt`."""
    context = node_with(make_node, "30 20 0:5 / /opt rw - xfs /dev/sdb rw")
    assert ("/", "/opt") == (held(context, "/opt2/env").point, held(context, "/opt/env").point)


def test_line_is_read_field_by_field(make_node: MakeNode) -> None:
    """Optional fields of any number, a bind mount's folder, options of the mount and of the file system."""
    line = r"31 20 0:55 /proj\040x /data\040of\011us rw,noatime shared:7 master:3 - nfs4 nas:/e rw,vers=4.2"
    mount = held(node_with(make_node, line), "/data of\tus/env")
    expected = Mount(
        point="/data of\tus",
        source="nas:/e",
        root="/proj x",
        fstype="nfs4",
        options=("rw", "noatime", "vers=4.2"),
        network=True,
        id=31,
        parent=20,
    )
    assert (expected, "/proj x/env") == (mount, mount.place("/data of\tus/env"))


@pytest.mark.parametrize(("own", "shared"), [("ro", "rw"), ("rw", "ro"), ("ro", "ro")])
def test_mount_is_read_only_when_either_side_says_so(make_node: MakeNode, own: str, shared: str) -> None:
    """A read-only bind of a writable file system, and the reverse, refuse a write alike."""
    line = f"31 20 0:55 / /data {own},nosuid - ext4 /dev/sdb {shared}"
    options = held(node_with(make_node, line), "/data").options
    assert ("ro" in options, "rw" in options) == (True, False)


def test_last_of_mounts_over_one_folder_is_the_one(make_node: MakeNode) -> None:
    """A file system mounted over an automounter, and one more over that."""
    context = node_with(
        make_node,
        "40 20 0:30 / /home rw - autofs systemd-1 rw,fd=29",
        "41 40 0:31 / /home rw - nfs4 nas:/home rw",
        "42 41 0:32 / /home rw - tmpfs tmpfs rw",
    )
    assert "tmpfs" == held(context, "/home/alice").fstype


def test_mount_that_another_hides_holds_nothing(make_node: MakeNode) -> None:
    """What was mounted at /a/b before something was mounted at /a cannot be reached any more."""
    context = node_with(
        make_node, "50 20 0:40 / /a/b rw - xfs /dev/sdc rw", "51 20 0:41 / /a rw - tmpfs tmpfs rw"
    )
    assert "tmpfs" == held(context, "/a/b/c").fstype


def test_chroot_below_a_mount_knows_only_what_is_mounted_in_it(make_node: MakeNode) -> None:
    """The kernel then lists no mount for `/`."""
    context = make_node({"/proc/self/mountinfo": "60 20 0:50 / /data rw - nfs nas:/w rw\n"})
    assert (None, "nfs") == (mount_of(context, "/etc"), held(context, "/data/env").fstype)


def test_links_are_followed_to_the_mount(make_node: MakeNode) -> None:
    """Relative, absolute, over `..`: the mount is that of the folder that is meant."""
    context = node_with(make_node, "30 20 0:5 / /scratch rw - xfs /dev/sdb rw")
    os.makedirs(context.real("/home/alice"))
    os.symlink("/scratch/big", context.real("/home/alice/.cache"))
    os.symlink("../alice/.cache", context.real("/home/alice/hf"))
    assert "/scratch/big/x" == real_path(context, "/home/alice/./hf/y/../x")
    assert "/scratch" == held(context, "/home/alice/hf").point


def test_links_that_go_in_a_circle_come_to_an_end(make_node: MakeNode) -> None:
    """As with the kernel, after forty."""
    context = node_with(make_node)
    os.symlink("/b", context.real("/a"))
    os.symlink("/a", context.real("/b"))
    assert real_path(context, "/a") in ("/a", "/b")


def test_mount_that_may_block_is_not_looked_at_when_so_asked(make_node: MakeNode) -> None:
    """The mount point itself neither: the kernel asks the server about it."""
    context = node_with(make_node, "30 20 0:5 / /home rw - nfs4 nas:/home rw")
    table = MountTable(mounts.mounts(context))
    assert (None, None) == (
        real_path(context, "/home", unless=table),
        real_path(context, "/home/a", unless=table),
    )
    assert ("/opt/env", "/home/a") == (
        real_path(context, "/opt/env", unless=table),
        real_path(context, "/home/a"),
    )


@pytest.mark.parametrize(
    ("fstype", "source", "expected"),
    [
        ("nfs4", "nas:/e", True),
        ("lustre", "mgs@o2ib:/fs", True),
        ("gpfs", "gpfs0", True),
        ("beegfs", "beegfs_nodev", True),
        ("ceph", "10.0.0.1:6789:/", True),
        ("wekafs", "weka/default", True),
        ("fuse.ceph-fuse", "ceph-fuse", True),
        ("fuse", "mountpoint-s3", True),
        ("fuse.juicefs", "JuiceFS:models", True),
        ("fuse.daos", "dfuse", True),
        ("fuse.hf3fs", "hf3fs.stage", True),
        ("fuse", "blobfuse2", True),
        ("fuse", "mfs#master:9421", True),
        ("fuse", "al@nas:/srv", True),
        ("fuse", "https://cloud.example/dav", True),
        ("fuse.fuse-overlayfs", "fuse-overlayfs", False),
        ("fuse.squashfuse_ll", "squashfuse_ll", False),
        ("fuse", "/images/train.sif", False),
        ("fuseblk", "/dev/sdb1", False),
        ("ext4", "/dev/nvme0n1", False),
        ("overlay", "overlay", False),
    ],
)
def test_file_systems_that_nodes_share_are_known(fstype: str, source: str, expected: bool) -> None:
    """A FUSE client by its subtype or, without one, by its source."""
    assert expected is mounts.is_network(fstype, source)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "x y z\n",
        "1 2 3:4 / / rw -\n",
        "\x00\udcff 1 / / rw - ext4 s\n",
        "20 1 0:1 / / rw ext4 s rw",
    ],
)
def test_garbled_lines_are_no_mounts(make_node: MakeNode, text: str) -> None:
    """Nothing of them is believed, and nothing is raised."""
    context = make_node({"/proc/self/mountinfo": text})
    assert ([], None) == (mounts.mounts(context), mount_of(context, "/tmp"))


def test_table_whose_numbers_lie_comes_to_an_end(make_node: MakeNode) -> None:
    """Two mounts of one number, each on the other's."""
    context = node_with(
        make_node,
        "30 20 0:5 / /a rw - xfs a rw",
        "31 30 0:6 / /a rw - xfs b rw",
        "30 31 0:7 / /a rw - xfs c rw",
    )
    assert mount_of(context, "/a") is None


def test_node_whose_mounts_may_not_be_read_has_none(make_node: MakeNode) -> None:
    """Not seen is not the same as not mounted."""
    context = make_node({"/proc/self/mountinfo": _ROOT}, denied=["/proc/self"])
    assert mount_of(context, "/") is None


def test_mounts_of_this_machine_hold_their_own_points() -> None:
    """Each mount point that is not hidden is held by a mount of the device that stat tells."""
    context = Context(environ={}, workdir="/", launch="local", interpreter={})
    table = MountTable(mounts.mounts(context))
    device: dict[int, str] = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            words = line.split()
            device[int(words[0])] = words[2]

    def told(path: str) -> Optional[str]:
        mount = table.holding(path)
        return device[mount.id] if mount else None

    points = [mount.point for mount in table.mounts if not mount.may_block]
    seen = {point: os.stat(point).st_dev for point in points if os.access(point, os.R_OK)}
    expected = {point: f"{os.major(number)}:{os.minor(number)}" for point, number in seen.items()}
    assert expected == {point: told(point) for point in expected}
