"""`--redact`: a snapshot for a public bug report, written, shown and compared like any other."""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from envaudit.model import Fingerprint, Section, Snapshot
from envaudit.model.codec import fingerprint_of_answer
from envaudit.model.fingerprint import Missing
from envaudit.model.identities import Pseudonyms, Scrubber
from envaudit.model.redaction import redact
from envaudit.probe.runner import probe
from tests.cli.conftest import Folder
from tests.conftest import PROJECT

NODES = PROJECT / "fixtures" / "nodes"
# What of a fixture's own values tells which cluster, host, user or machine it is.
IDENTITIES = re.compile(
    r"cluster\.example|corp\.example|node0\d|\bbob\b|\balice\b|812044|811993"
    r"|\b10\.\d+\.\d+\.\d+|\b192\.168\.\d+\.\d+|\bfe80:[0-9a-f:]+|GPU-[0-9a-f]{8}"
    r"|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b|\b(?:[0-9a-f]{4}:){3}[0-9a-f]{4}\b"
    r"|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
)


def read(name: str) -> Fingerprint:
    """A fake node as the probe reads it."""
    answer = json.loads(json.dumps(probe({"root": str(NODES / name)})))
    return fingerprint_of_answer(answer, node=name, source="probe", where=name)


def one(section: str, facts: Any = None, notes: Any = None, errors: tuple[str, ...] = ()) -> Section:
    """That section of a snapshot of one node, redacted."""
    row = Section(section, 1, "ok", facts or {}, notes or {}, errors)
    node = Fingerprint("gpu01", "probe", "2026-11-30T10:00:00Z", "0", {section: row})
    return redact(Snapshot((node,))).fingerprints[0].sections[section]


@pytest.mark.parametrize("name", ["twin-a", "twin-b", "pod-a", "healthy-h100", "slurm-a", "roce-h100"])
def test_fake_node_keeps_no_identity_and_all_its_versions(name: str) -> None:
    """Every section, facts and notes; what a bug report is about stays."""
    before = read(name)
    after = redact(Snapshot((before,))).fingerprints[0]
    text = json.dumps([[each.facts, each.notes, each.errors] for each in after.sections.values()])
    assert IDENTITIES.search(json.dumps([[one.facts, one.notes] for one in before.sections.values()]))
    assert [] == IDENTITIES.findall(text)
    for section, table in (("packages", "distributions"), ("conda", "packages")):
        kept = before.sections[section].facts.get(table) or {}
        versions = {package: row["version"] for package, row in kept.items()}  # type: ignore[union-attr]
        shown = after.sections[section].facts.get(table) or {}
        assert versions == {package: row["version"] for package, row in shown.items()}  # type: ignore[union-attr]
    for section in ("limits", "topology", "clock"):
        assert before.sections[section].facts == after.sections[section].facts
    for key in ("kernel", "distribution", "glibc", "cpu", "sysctl"):
        assert before.sections["host"].facts[key] == after.sections["host"].facts[key]


def test_alike_nodes_stay_alike_and_one_drift_stays_one() -> None:
    """The digests of twins are equal under pseudonyms too, section by section."""
    one_twin, other = redact(Snapshot((read("twin-a"), read("twin-b")))).fingerprints
    assert one_twin.digest == other.digest
    strange, usual = redact(Snapshot((read("healthy-h100"), read("twin-b")))).fingerprints
    assert _differing(read("healthy-h100"), read("twin-b")) == _differing(strange, usual)


def _differing(one_node: Fingerprint, other: Fingerprint) -> set[str]:
    """The sections that two nodes do not share."""
    sections = other.sections
    return {name for name in sections if sections[name].digest != one_node.sections[name].digest}


def test_redacted_snapshot_of_this_machine_names_nobody(folder: Folder) -> None:
    """The file, its name aside, and what is printed."""
    folder.set_node(
        "n2", NCCL_ALGO="Tree", NCCL_SOCKET_IFNAME="eth0", HF_HOME="/home/quentin/secretproject/hf"
    )
    ended = folder.ask("snapshot", "--nodes", "n[1-2]", "--redact", "-o", "bug.json")
    text = (folder.path / "bug.json").read_text()
    told = [*_of_this_machine(), "quentin", "secretproject", str(folder.path)]
    assert [] == [name for name in told if name in text]
    assert [] == [name for name in told if name in ended.out]
    assert "n1" not in json.loads(text.splitlines()[0][len('{"head":') : -1])["nodes"]
    compared = folder.run("diff", "./bug.json", "--format", "json").json
    assert {"env/nccl/NCCL_ALGO/value", "env/variables/HF_HOME"} <= {
        row["path"] for row in compared["drifts"]
    }
    (row,) = (row for row in compared["drifts"] if row["path"] == "env/nccl/NCCL_ALGO/value")
    assert {"Ring", "Tree"} == {group["value"] for group in row["groups"]}
    assert 0 == folder.run("show", "./bug.json", "-v").code


def _of_this_machine() -> list[str]:
    names = [socket.gethostname(), pwd.getpwuid(os.getuid()).pw_name]
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        if os.path.exists(path):
            names.append(Path(path).read_text().strip())
    # Two letters are in every text, and root is everywhere root.
    return [name for name in names if len(name) > 3 and name != "root"]


def test_stored_snapshot_is_redacted_when_it_is_shown(folder: Folder) -> None:
    """To the terminal and to a file, which holds the sections that were shown."""
    folder.ask("snapshot", "--nodes", "n[1-2]", "--tag", "kept")
    words = ("show", "n[1-2]@kept", "--redact", "--section", "python", "-o", "python.json")
    ended = folder.run(*words)
    assert 0 == ended.code
    assert "node-1" in ended.out
    assert "n1" not in re.findall(r"\w+", ended.out)
    shown = folder.run("show", "./python.json", "--format", "json").json
    assert {"python"} == {section for node in shown["facts"].values() for section in node["sections"]}
    assert ["node-1", "node-2"] == sorted(shown["facts"])


def test_revision_that_a_package_was_asked_for_is_a_branch_where_it_is_no_commit_or_version() -> None:
    """A direct URL of a branch says who works on what; a tag and a commit say what is installed."""
    asked = {"a": "alice/fix-optimizer", "b": "v2.1.0", "c": "0" * 39 + "a", "d": "9f1c2ab", "e": "main"}
    rows = {name: {"version": "1", "direct_url": {"revision": text}} for name, text in asked.items()}
    kept: Any = one("packages", {"distributions": rows}).facts["distributions"]
    shown = {name: row["direct_url"]["revision"] for name, row in kept.items()}
    assert {**asked, "a": "branch-1"} == shown


@pytest.mark.parametrize("form", ["html", "junit", "sarif", "prometheus"])
def test_report_of_a_redacted_run_does_not_name_its_host(folder: Folder, form: str) -> None:
    """Those formats tell where a command ran, and that is often the machine it looked at."""
    folder.ask("snapshot", "--nodes", "n[1-2]", "--tag", "kept")
    words = ("show", "n[1-2]@kept", "--section", "python", "--format", form)
    told = re.compile(rf"(?<![\w-]){re.escape(os.uname().nodename)}(?![\w-])")
    assert told.search(folder.run(*words).out)
    assert not told.search(folder.run(*words, "--redact").out)


def test_redact_into_the_store_is_refused(folder: Folder) -> None:
    """A node's history must not go on under another name."""
    ended = folder.run("snapshot", "--redact")
    assert 2 == ended.code
    assert "--redact needs --output" in ended.err


def test_cache_in_a_home_of_that_name_is_no_user() -> None:
    """In a container HOME may be /home: `ld.so.cache` is no text about somebody."""
    env = Section("env", 1, "ok", {"variables": {"HF_HOME": "/home/.cache/huggingface"}})
    libraries = Section("libraries", 1, "ok", {"nccl": {"via": "ld.so.cache"}})
    sections = {"env": env, "libraries": libraries}
    node = Fingerprint("gpu01", "probe", "2026-11-30T10:00:00Z", "0", sections)
    (redacted,) = redact(Snapshot((node,), {})).fingerprints
    assert {"nccl": {"via": "ld.so.cache"}} == redacted.sections["libraries"].facts


def test_same_identity_has_one_pseudonym_across_sections_and_nodes() -> None:
    """A user in a path is the user of a process; a node in a message is that node."""
    gpu = Section("gpu", 1, "ok", {}, {"processes": [{"user": "zoe", "pid": 7}]})
    env = Section("env", 1, "ok", {"variables": {"HF_HOME": "/home/zoe/hf"}})
    host = Section("host", 1, "ok", {}, {"hostname": "gpu01.den.example"}, ("gpu02: no answer from zoe",))
    nodes = (
        Fingerprint("gpu01", "probe", "2026-11-30T10:00:00Z", "0", {"gpu": gpu, "host": host}),
        Fingerprint("gpu02", "probe", "2026-11-30T10:00:00Z", "0", {"env": env}),
    )
    gone = {"gpu03": Missing("unreachable", "no route to host gpu03.den.example", "ssh gpu[01-03] true")}
    redacted = redact(Snapshot(nodes, gone))
    first, second = redacted.fingerprints
    assert [{"user": "user-1", "pid": 7}] == first.sections["gpu"].notes["processes"]
    assert {"HF_HOME": "/home/user-1/hf"} == second.sections["env"].facts["variables"]
    assert "node-1.domain-1" == first.sections["host"].notes["hostname"]
    assert ("node-2: no answer from user-1",) == first.sections["host"].errors
    assert (
        Missing("unreachable", "no route to host node-3.domain-1", "ssh nodes-1 true")
        == redacted.missing["node-3"]
    )


def test_user_who_cannot_log_in_is_nowhere_named() -> None:
    """Known from the words of ssh alone: before an @ of a node, or by a home."""
    why, how = "zoe@gpu02.den: Permission denied; /home/ian/.ssh/id", "squeue -u zoe; sudo -u ian x; git@x"
    gone = redact(Snapshot((), {"gpu02": Missing("unreachable", why, how)})).missing["node-1"]
    assert not re.search("zoe|ian", gone.why + gone.next_step)
    assert "squeue -u user-2; sudo -u user-1 x; remote-2" == gone.next_step
    assert "remote-1: Permission denied; /home/user-1/dir-1/dir-2" == gone.why


def test_known_host_takes_its_domain_along() -> None:
    """Also one that nobody has told before; what was known of it stays the same everywhere."""
    scrubber = Scrubber({"gpu01": "node-1", "den.example": "domain-7"}, Pseudonyms())
    said = "gpu01.den.example, gpu01.lab.acme.com and zoe@gpu01.lab: no"
    assert "node-1.domain-7, node-1.domain-1 and remote-1: no" == scrubber.text(said)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/opt/conda/envs/acme/lib/python3.11/x.py", "/opt/conda/envs/dir-1/lib/python3.11/x.py"),
        ("/usr/lib/x86_64-linux-gnu/libcudnn.so.9.10.2.21",) * 2,
        ("$HOME/a1/lib:/usr/cuda:/scratch/a1", "$HOME/dir-1/lib:/usr/cuda:/scratch/dir-1"),
        ("/home/zoe/torch/acme/x /srv/nvidia/acme", "/home/user-1/torch/dir-1/dir-2 /srv/nvidia/dir-1"),
        ("torch/lib/x.so site-packages/torch/x.py /opt/nvidia/nsight/x",) * 2,
        ("/dev/nvme0n1p2 /dev/sda1 /dev/mapper/acme-root", "/dev/nvme0n1p2 /dev/sda1 /dev/mapper/dir-1"),
        ("filer01.den.example:/vol/acme on /mnt/acme", "host-1:/dir-1/dir-2 on /mnt/dir-2"),
        ("mon-a,mon-b:6789,mon-c:6789:/acme", "host-1:/dir-1"),
        ("~zoe/ext:../a1:./a1/b1", "dir-1/dir-2:../dir-3:./dir-3/dir-4"),
        ("[Errno 13] '/srv/acme code/x y'", "[Errno 13] '/srv/dir-1/dir-2'"),
        ("'/usr/bin/x of /home/zoe/a1'", "'/usr/bin/x of /home/user-1/dir-1'"),
        ("https://user:pw@git.acme.example/t/x.git", "https://host-1/path-1"),
        ("git@git.acme.example:team/x.git", "remote-1"),
        ("nvidia-cudnn-cu12==9.1.0.70 wanted",) * 2,
        ("connect to 10.1.2.3: refused; 10.1.2.3, 10.1.2.4.", "connect to addr-1: refused; addr-1, addr-2."),
        ("listens on 127.0.0.1, ::1 and 0.0.0.0",) * 2,
        ("gateway fe80::1 dev eth0, 2001:db8::/32", "gateway addr-1 dev eth0, addr-2/32"),
        ("GPU 0000:1b:00.0 of 0000:1B:00.0",) * 2,
        ("at 12:34:56 on 2026-11-30T10:00:00Z",) * 2,
        ("std::vector, sm_90 compute_90",) * 2,
        ("ntp3.acme.example and libfoo.so, torch.cuda, conf.py", "host-1 and libfoo.so, torch.cuda, conf.py"),
        ("mail zoe@acme.example now", "mail remote-1 now"),
        ("535.104.05 550.54.15 12.4.1 2.21.5+cuda12.4",) * 2,
    ],
)  # fmt: skip
def test_text_keeps_what_names_nobody(text: str, shown: str) -> None:
    """Shapes of identities go, shapes of versions and system paths stay."""
    assert shown == Scrubber({}, Pseudonyms()).text(text)


def test_names_that_share_letters_both_go() -> None:
    """A name that is taken first ends within what would have been the next thing to replace."""
    scrub = Scrubber(
        {"rack/slot": "node-1", "marigold": "user-1", "den.example/x": "node-2"}, Pseudonyms()
    ).text
    assert ("node-1@user-1", "node-2") == (scrub("rack/slot@marigold"), scrub("den.example/x"))


def test_unknown_section_keeps_numbers_and_versions_only() -> None:
    """A newer probe's section may hold anything: nobody has looked at what it says."""
    section = one(
        "novelty",
        {"speed_mbps": 100, "version": "1.2.3", "rail": {"gpu07": "zoe", "b": ["zoe", True, None]}},
        {"anything": "zoe"},
        ("zoe was here",),
    )
    assert {"speed_mbps": 100, "version": "1.2.3"}.items() <= section.facts.items()
    text = json.dumps([section.facts, section.notes, section.errors])
    assert [] == re.findall("zoe|gpu07|anything", text)
    assert [True, None] == list(section.facts["rail"].values())[1][1:]  # type: ignore[union-attr]


def test_common_words_are_no_identities() -> None:
    """A user `python` or a node `gpu` would otherwise take these words out of every value."""
    section = one("env", {"variables": {"A": "python gpu root"}}, {"user": "python", "login": "root"})
    assert {"A": "python gpu root"} == section.facts["variables"]


def test_known_names_are_found_in_letters_of_any_case_and_behind_any_sign() -> None:
    """U+0130 is two letters in small; a node's name may begin with a sign."""
    scrub = Scrubber({"_Node-A7": "node-1", "marigold": "user-1"}, Pseudonyms()).text
    assert "\u0130 user-1, _x_user-1; marigolds" == scrub("\u0130 MariGold, _x_marigold; marigolds")
    assert "(node-1)node-1 node-a77" == scrub("(_node-a7)_NODE-A7 node-a77")


def test_files_of_variables_are_identities_without_a_slash_too() -> None:
    """They may be named from the folder in which the work runs; libraries and addresses are themselves."""
    variables = {
        "PYTHONPATH": "acme:src/acme:{site}",
        "LD_PRELOAD": "libjemalloc.so.2",
        "HF_HOME": "hf://zoe@acme/x",
        "PYTHONSAFEPATH": "1",
        "NCCL_ALGO": "Ring,Tree",
    }
    nccl = {"NCCL_TOPO_FILE": {"value": "acme-rack7.xml", "origin": "environment"}}
    facts = one("env", {"variables": variables, "nccl": nccl}).facts
    shown = {**variables, "PYTHONPATH": "dir-1:src/dir-1:{site}", "HF_HOME": "hf://host-1/path-1"}
    assert shown == facts["variables"]
    assert {"NCCL_TOPO_FILE": {"value": "dir-2", "origin": "environment"}} == facts["nccl"]


def test_process_is_named_by_its_owner() -> None:
    """What everybody runs keeps its name; and how a GPU was asked is a word of this program."""
    names = ["python3.11", "acme_train", "acme_train", None]
    notes = {
        "devices": {"0": {"processes": [{"name": name, "pid": 7} for name in names]}},
        "source": "device tree",
    }
    shown: Any = one("gpu", {}, notes).notes
    found = [row["name"] for row in shown["devices"]["0"]["processes"]]
    assert ["python3.11", "process-1", "process-1", None] == found
    assert "device tree" == shown["source"]


def test_folder_with_a_space_in_its_name_goes_whole() -> None:
    """A text that is nothing but a path is read to its end."""
    assert {"path": ["/srv/dir-1/dir-2"]} == one("python", {}, {"path": ["/srv/acme code/x"]}).notes


def test_file_system_comes_from_a_device_or_from_an_address() -> None:
    """A disk is called as the kernel calls it; a server and its export are somebody's."""
    notes = {"root": {"source": "/dev/vda1"}, "tmp": {"source": "10.1.2.3:/export/acme"}}
    shown = {"root": {"source": "/dev/vda1"}, "tmp": {"source": "addr-1:/export/dir-1"}}
    assert shown == one("storage", {}, notes).notes


def test_number_that_names_one_card_goes_in_any_base() -> None:
    """A card's unique id may be short, and nothing but digits."""
    notes = {"amd": {"devices": {"0": {"unique_id": "17326385432612345678"}, "1": {"unique_id": "f07402a1"}}}}
    shown: Any = one("gpu", {}, notes).notes
    assert {"id-1", "id-2"} == {row["unique_id"] for row in shown["amd"]["devices"].values()}


def test_start_up_file_that_no_package_brought_is_named_by_a_person() -> None:
    """Its digest tells whether two nodes have the same one."""
    assert {"dir-1.pth": "ab12"} == one("packages", {"pth": {"acme.pth": "ab12"}}).facts["pth"]


def test_names_in_the_options_of_a_mount_go() -> None:
    """Clients, domains and shares; numbers, folders and addresses are treated as everywhere."""
    told = {"name": "acme", "domain": "ACME", "unc": "\\\\files\\acme", "uid": "1000", "size": "8G"}
    told.update(upperdir="/var/lib/docker/x", mon_addr="10.1.2.3:6789", index="off")
    notes = {"tmp": {"source": "acme@.store=/vol/acme", "options": told}}
    shown: Any = one("storage", {}, notes).notes["tmp"]
    assert "acme" not in json.dumps(shown).lower()
    assert "remote-1" == shown["source"]
    kept = {"uid": "1000", "size": "8G", "upperdir": "/var/lib/docker/x", "index": "off"}
    assert {**kept, "mon_addr": "addr-1:6789"}.items() <= shown["options"].items()


def test_digests_and_commits_stay() -> None:
    """They tell which public file or commit it is; another long number is an identity."""
    digest = "0e09be56bfb2ab85b213e5edf9af10df"
    conda = one("conda", {"packages": {"numpy": {"md5": digest, "version": "1"}}})
    assert {"numpy": {"md5": digest, "version": "1"}} == conda.facts["packages"]
    assert {"anything": "id-1"} == one("host", {}, {"anything": digest}).notes
