"""The mounts that the work lives on: what two alike nodes share, and mounts that do not answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from envaudit.probe.context import Answer, Context, InterpreterUnknown
from envaudit.probe.runner import probe
from envaudit.probe.sections import storage
from tests.conftest import PROJECT

MakeNode = Callable[..., Context]

_ROOT = "20 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro,stripe=32"
_SHM = "21 20 0:24 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw,size=1056768000k,nr_inodes=9,inode64"
_HOME = (
    "22 20 0:60 / /home rw,noatime - nfs4 nas{0}:/home rw,vers=4.2,rsize=1048576,namlen=255,hard,proto=tcp,"
    "nconnect=8,timeo=600,sec=sys,clientaddr=10.0.0.{0},local_lock=none,addr=10.0.9.{0}"
)


def read(make_node: MakeNode, *lines: str, **node: Any) -> Answer:
    """The section of a node with these mounts."""
    plain: dict[str, Any] = {
        "environ": {"HOME": "/home/alice"},
        "workdir": "/srv/train",
        "interpreter": {"prefix": "/opt/env"},
    }
    return storage.read(
        make_node({"/proc/self/mountinfo": "".join(f"{line}\n" for line in lines)}, **{**plain, **node})
    )


def test_folders_on_one_mount_say_so(make_node: MakeNode) -> None:
    """A mount that deviates is one difference, not one for each folder on it."""
    facts = read(make_node, _ROOT, _SHM, _HOME.format(1)).facts
    assert {
        "fstype": "ext4",
        "network": False,
        "access": "rw",
        "options": {"atime": "relatime", "errors": "remount-ro"},
    } == facts["root"]
    assert ["as root"] * 3 == [facts[name] for name in ("prefix", "workdir", "tmp")]
    assert {"atime": "strictatime", "nosuid": True, "nodev": True, "inode64": True} == facts["shm"]["options"]


def test_network_mount_has_its_options_without_addresses(make_node: MakeNode) -> None:
    """How it was mounted is a fact; from where, and by whom, is a note."""
    answer = read(make_node, _ROOT, _SHM, _HOME.format(7))
    expected = {
        "fstype": "nfs4",
        "network": True,
        "access": "rw",
        "options": {
            "atime": "noatime",
            "vers": "4.2",
            "rsize": "1048576",
            "recovery": "hard",
            "proto": "tcp",
            "nconnect": "8",
            "timeo": "600",
            "sec": "sys",
            "local_lock": "none",
        },
    }
    assert expected == answer.facts["hf_home"]
    note = answer.notes["hf_home"]
    assert ("/home", "nas7:/home", "10.0.0.7") == (
        note["mount_point"],
        note["source"],
        note["options"]["clientaddr"],
    )


def test_nodes_that_are_mounted_alike_have_equal_facts(make_node: MakeNode) -> None:
    """Other devices, addresses, pages of memory, layers of an image."""
    one = read(make_node, _ROOT, _SHM, _HOME.format(1))
    other = read(
        make_node,
        _ROOT.replace("nvme0n1p2", "sdb7").replace("stripe=32", "stripe=64").replace("259:2", "8:23"),
        _SHM.replace("1056768000k", "1056767996k").replace("nr_inodes=9", "nr_inodes=8"),
        _HOME.format(2),
        environ={"HOME": "/home/bob"},
    )
    assert one.facts == other.facts
    assert one.notes["hf_home"] != other.notes["hf_home"]


def test_layers_of_a_container_are_no_facts(make_node: MakeNode) -> None:
    """Two pods of one image have folders of their own under the runtime."""
    layers = "lowerdir=/a/{0}:/b,upperdir=/c/{0},workdir=/d/{0}"
    line = f"20 1 0:99 / / rw,relatime - overlay overlay rw,{layers},xino=off"
    one, other = (read(make_node, line.format(number)) for number in (11, 12))
    assert {"atime": "relatime", "xino": "off"} == one.facts["root"]["options"]
    assert one.facts == other.facts


def test_disk_that_was_not_mounted_is_one_difference(make_node: MakeNode) -> None:
    """The folder is there all the same, on the root file system, and fills it."""
    disk = "30 20 259:9 / /srv rw,noatime - xfs /dev/nvme1n1 rw,inode64,sunit=256,swidth=512"
    with_disk, without = read(make_node, _ROOT, _SHM, disk), read(make_node, _ROOT, _SHM)
    differing = [name for name in without.facts if with_disk.facts[name] != without.facts[name]]
    assert (["workdir"], "as root") == (differing, without.facts["workdir"])


def test_folders_that_are_named_are_looked_at_too(make_node: MakeNode) -> None:
    """Data that only some nodes have mounted; a path that leads nowhere from the root is no folder."""
    data = "31 20 0:71 / /data rw,noatime - lustre 10.4.0.1@o2ib:/data rw,flock"
    asked = {"folders": ["/data", "/scratch", "data"]}
    facts = read(make_node, _ROOT, _SHM, data, options=asked).facts
    assert ("lustre", "as root", False) == (facts["/data"]["fstype"], facts["/scratch"], "data" in facts)
    assert "as root" == read(make_node, _ROOT, _SHM, options=asked).facts["/data"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/home/alice"}, "/home/alice/.cache/huggingface"),
        ({"HOME": "/home/alice", "XDG_CACHE_HOME": "/scratch/c"}, "/scratch/c/huggingface"),
        ({"HOME": "/home/alice", "HF_HOME": "/data/hf"}, "/data/hf"),
        ({"HOME": "/home/alice", "HF_HOME": "~/hf"}, "/home/alice/hf"),
        ({"HF_HOME": "hf"}, "/srv/train/hf"),
        ({}, None),
        ({"HF_HOME": "~/hf"}, None),
    ],
)
def test_hub_cache_is_where_the_hub_looks(
    make_node: MakeNode, environ: dict[str, str], expected: str | None
) -> None:
    """HF_HOME, the cache folder of the user, or nothing that can be known."""
    answer = read(make_node, _ROOT, environ=environ)
    assert expected == answer.notes.get("hf_home", {}).get("path")
    assert ("as root" if expected else None) == answer.facts["hf_home"]


def test_link_leads_to_the_mount_that_is_meant(make_node: MakeNode) -> None:
    """~/.cache is often a link to a scratch disk."""
    context = make_node()
    os.makedirs(context.real("/data/alice"))
    os.symlink("/scratch/alice", context.real("/data/alice/.cache"))
    scratch = "30 20 259:9 / /scratch rw,noatime - xfs /dev/nvme1n1 rw"
    answer = read(make_node, _ROOT, scratch, environ={"HOME": "/data/alice"})
    assert ("xfs", "/scratch") == (
        answer.facts["hf_home"]["fstype"],
        answer.notes["hf_home"]["mount_point"],
    )


def test_credentials_in_a_source_or_an_option_stay_on_the_node(make_node: MakeNode) -> None:
    """As with every text that leaves it."""
    share = "30 20 0:70 / /opt rw - cifs //al:hunter2@nas/x rw,username=al,password=hunter2,soft,vers=3.1.1"
    bucket = "31 20 0:71 / /srv rw - fuse.rclone https://al:hunter2@store/b rw,token=hf_aaaaaaaaaaaa"
    answer = read(make_node, _ROOT, share, bucket)
    assert [] == [word for word in ("hunter2", "hf_aaaa") if word in str(answer)]
    assert ("//nas/x", "al") == (
        answer.notes["prefix"]["source"],
        answer.notes["prefix"]["options"]["username"],
    )


def test_automounter_that_mounts_nothing_is_told_as_such(make_node: MakeNode) -> None:
    """The look that would have mounted a home found none there."""
    line = "40 20 0:30 / /home rw,relatime - autofs /etc/auto.home rw,fd=7,pgrp=801,pipe_ino=12,indirect"
    answer = read(make_node, _ROOT, line)
    assert ("ok", "autofs", {"atime": "relatime", "indirect": True}) == (
        answer.status,
        answer.facts["hf_home"]["fstype"],
        answer.facts["hf_home"]["options"],
    )


def test_mounts_of_a_chroot_leave_its_root_unknown(make_node: MakeNode) -> None:
    """The kernel lists what is mounted in it, and not what it stands on."""
    answer = read(make_node, _SHM)
    assert ("ok", None, "tmpfs") == (answer.status, answer.facts["root"], answer.facts["shm"]["fstype"])


def test_mounts_that_may_not_be_read_are_an_error(make_node: MakeNode) -> None:
    """Nothing is known then."""
    answer = read(make_node, _ROOT, denied=["/proc/self"])
    assert ("error", {}) == (answer.status, answer.facts)


def test_interpreter_that_does_not_describe_itself_costs_its_prefix(tmp_path: Path) -> None:
    """The other folders do not depend on it."""

    def nothing() -> dict[str, Any]:
        raise InterpreterUnknown("it said nothing")

    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(_ROOT + "\n")
    context = Context(root=str(tmp_path), environ={}, workdir="/", launch="ssh", interpreter=nothing)
    answer = storage.read(context)
    assert ("partial", None, "as root") == (answer.status, answer.facts["prefix"], answer.facts["tmp"])


@pytest.mark.parametrize("count", [70, 5000])
def test_options_without_end_are_cut(make_node: MakeNode, count: int) -> None:
    """What a file system says of itself is bounded."""
    options = ",".join(f"o{number},p{number}={'x' * 300}" for number in range(count))
    answer = read(make_node, f"20 1 0:9 / / rw - ext4 /dev/sda {options}")
    others = answer.notes["root"]["options"]
    assert 64 == len(answer.facts["root"]["options"]) - len(["atime"]) + len(others) + len(["rw"])
    assert {200} == {len(f"{name}={value}") for name, value in others.items()}


def test_file_system_that_is_no_word_is_unknown(make_node: MakeNode) -> None:
    """Control characters and bytes that are no text reach no terminal and no digest."""
    answer = read(make_node, "20 1 0:9 / / rw - \x1b[31m s rw,\udcff=1,\udcff,ok")
    assert ("partial", None, {"atime": "strictatime", "ok": True}) == (
        answer.status,
        answer.facts["root"]["fstype"],
        answer.facts["root"]["options"],
    )
    assert ["/proc/self/mountinfo: the file system of root is no word"] == answer.errors


def test_this_machine_has_the_space_that_statvfs_tells() -> None:
    """The section on the machine that runs the tests, through the runner."""
    (row,) = probe({"sections": ["storage"]})["sections"]
    seen = os.statvfs("/")
    assert ("ok", seen.f_frsize * seen.f_blocks) == (row["status"], row["notes"]["root"]["size_bytes"])
    assert seen.f_files == row["notes"]["root"]["inodes"]


_IN_A_NAMESPACE = """
import json, os, subprocess, sys, time
from envaudit.probe.context import Context
from envaudit.probe.sections import storage

base = sys.argv[1]

def mount(*words, **more):
    subprocess.run(["mount", *words], check=True, capture_output=True, **more)

def tell(**paths):
    context = Context(
        environ={"HF_HOME": paths["hub"]}, workdir=paths["workdir"], launch="local",
        interpreter={"prefix": paths["prefix"]},
    )
    started = time.monotonic()
    answer = storage.read(context)
    return answer._asdict(), time.monotonic() - started

mount("--make-rprivate", "/")
folders = ("disk", "bound", "low", "up", "work", "over", "dead")
mount("-t", "tmpfs", "-o", "size=1m,noexec", "scratch", base)
for folder in folders:
    os.mkdir(os.path.join(base, folder))
at = lambda name: os.path.join(base, name)
mount("-t", "tmpfs", "-o", "size=2m,noatime,mode=700", "disk one", at("disk"))
os.mkdir(at("disk/sub"))
os.symlink(at("disk/sub"), at("link"))
mount("--bind", at("disk/sub"), at("bound"))
mount("-o", "remount,bind,ro,noexec", at("bound"))
"""


def in_a_namespace(tmp_path: Path, script: str) -> Any:
    """What a script says that mounts what it wants, in a mount namespace of its own."""
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", _IN_A_NAMESPACE + script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=PROJECT,
        check=False,
    )
    if done.returncode and ("Operation not permitted" in done.stderr or "must be superuser" in done.stderr):
        pytest.skip("no mount namespace may be made here")
    assert (0, "") == (done.returncode, done.stderr)
    return json.loads(done.stdout)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="to mount takes root")


@needs_root
def test_real_mounts_are_told_as_they_were_made(tmp_path: Path) -> None:
    """A tmpfs with a space in its source, a read-only bind of a folder of it, a link into it."""
    script = """
print(json.dumps(tell(prefix=at("bound/env"), workdir=at("disk"), hub=at("link/hf"))[0]))
"""
    answer = in_a_namespace(tmp_path, script)
    facts, notes = answer["facts"], answer["notes"]
    assert ("ok", "ro", "rw") == (answer["status"], facts["prefix"]["access"], facts["workdir"]["access"])
    assert {"atime": "noatime", "noexec": True} == {
        name: value for name, value in facts["prefix"]["options"].items() if name in ("atime", "noexec")
    }
    assert ("noexec" in facts["workdir"]["options"], "700") == (False, facts["workdir"]["options"]["mode"])
    assert ("as workdir", "disk one") == (facts["hf_home"], notes["workdir"]["source"])
    assert (2 << 20, str(tmp_path / "bound")) == (
        notes["prefix"]["size_bytes"],
        notes["prefix"]["mount_point"],
    )


@needs_root
def test_real_overlay_has_no_layers_in_its_facts(tmp_path: Path) -> None:
    """As the root of a container is."""
    script = """
layers = f"lowerdir={at('low')},upperdir={at('up')},workdir={at('work')}"
try:
    mount("-t", "overlay", "-o", layers, "overlay", at("over"))
except subprocess.CalledProcessError:
    print("null")
else:
    print(json.dumps(tell(prefix=at("over"), workdir=at("over"), hub=at("over"))[0]))
"""
    answer = in_a_namespace(tmp_path, script)
    if answer is None:
        pytest.skip("this kernel mounts no overlay here")
    assert ("overlay", "rw") == (answer["facts"]["prefix"]["fstype"], answer["facts"]["prefix"]["access"])
    assert str(tmp_path) not in str(answer["facts"])
    assert str(tmp_path / "low") == answer["notes"]["prefix"]["options"]["lowerdir"]


@needs_root
def test_real_stack_of_mounts_is_held_as_the_kernel_walks_it(tmp_path: Path) -> None:
    """Mounts over each other, and one that a later mount hides: the device of each path is the kernel's."""
    script = """
from envaudit.probe.mounts import MountTable, mounts

for name in ("a", "a/b", "a", "a/b", "a/b"):
    os.makedirs(at(name), exist_ok=True)
    mount("-t", "tmpfs", "-o", "size=1m", name, at(name))
os.makedirs(at("a/b/c"))
devices = {}
for line in open("/proc/self/mountinfo"):
    words = line.split()
    devices[int(words[0])] = words[2]
context = Context(environ={}, workdir="/", launch="local", interpreter={})
table = MountTable(mounts(context))
told = {}
for name in ("a", "a/b", "a/b/c", "disk", "bound", "low"):
    number = os.stat(at(name)).st_dev
    told[name] = [f"{os.major(number)}:{os.minor(number)}", devices[table.holding(at(name)).id]]
print(json.dumps(told))
"""
    told = in_a_namespace(tmp_path, script)
    assert {name: kernel for name, (kernel, _) in told.items()} == {
        name: ours for name, (_, ours) in told.items()
    }
    assert told["a"] != told["a/b"] == told["a/b/c"]


@needs_root
def test_real_mount_that_never_answers_costs_its_deadline_and_an_error(tmp_path: Path) -> None:
    """A FUSE file system whose server reads no request stands for a dead file server."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("there is no /dev/fuse")
    script = """
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0"
mount("-i", "-t", "fuse", "-o", options, "sshfs", at("dead"), pass_fds=(fuse,))
answer, seconds = tell(prefix=at("disk"), workdir=at("dead/job"), hub=at("dead/hf"))
print(json.dumps([answer, seconds < 4]))
"""
    answer, in_time = in_a_namespace(tmp_path, script)
    assert ("partial", True) == (answer["status"], in_time)
    point = tmp_path / "dead"
    assert [f"fuse at {point}, workdir, hf_home: no answer within 2 s"] == answer["errors"]
    facts = answer["facts"]
    assert ("fuse", True, "as workdir", "tmpfs") == (
        facts["workdir"]["fstype"],
        facts["workdir"]["network"],
        facts["hf_home"],
        facts["prefix"]["fstype"],
    )


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("healthy-h100", "ok"),
        ("pod-a", "ok"),
        ("slurm-a", "ok"),
        ("cpu-only", "ok"),
        ("garbled", "partial"),
        ("denied-and-hanging", "error"),
    ],
)
def test_fake_node_has_its_status(fake_node: Callable[[str], Context], name: str, status: str) -> None:
    """Healthy, other, garbled and denied mounts are told apart."""
    assert status == storage.read(fake_node(name)).status


def test_fake_nodes_live_on_what_their_mounts_say(fake_node: Callable[[str], Context]) -> None:
    """Lustre over a folder of the root, NFS over its automounter, BeeGFS, WekaFS, Ceph."""
    facts = {
        name: storage.read(fake_node(name)).facts
        for name in ("healthy-h100", "slurm-a", "roce-h100", "pod-a")
    }
    assert ("as root", "lustre", "nfs4") == (
        facts["healthy-h100"]["prefix"],
        facts["healthy-h100"]["workdir"]["fstype"],
        facts["healthy-h100"]["hf_home"]["fstype"],
    )
    assert ("beegfs", "as workdir") == (
        facts["slurm-a"]["workdir"]["fstype"],
        facts["slurm-a"]["hf_home"],
    )
    assert ["wekafs", "ceph"] == [facts[name]["workdir"]["fstype"] for name in ("roce-h100", "pod-a")]
    assert [True] * 2 == [facts[name]["workdir"]["network"] for name in ("roce-h100", "pod-a")]
