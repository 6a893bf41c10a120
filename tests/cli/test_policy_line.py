"""What a verdict rests on: the files of policy, what they hide, and the waivers, told in every run."""

from __future__ import annotations

import hashlib
from typing import Dict, List

import pytest

from tests.cases.nodes import USUAL, node
from tests.cli.conftest import Ended, Folder
from tests.cli.stored import write_snapshot

OWN = "config/envaudit/envaudit.toml"


@pytest.fixture
def drifted(folder: Folder) -> Folder:
    """Three nodes in a file; n3 has another NCCL. Nobody has a policy of their own."""
    (folder.path / OWN).unlink()
    nodes = [node(name, USUAL._replace(launch="exec")) for name in ("n1", "n2")]
    odd = node("n3", USUAL._replace(launch="exec"), {"libraries/nccl/version": "2.27.3"})
    write_snapshot(folder.path / "all.json", [*nodes, odd])
    return folder


def stages(ended: Ended) -> Dict[str, List[str]]:
    """Stage → its lines."""
    told: Dict[str, List[str]] = {}
    for stage in ended.json["stages"]:
        told.setdefault(stage["name"], []).append(stage["text"])
    return told


def compared(folder: Folder, policy: str) -> Ended:
    """The nodes of the file with each other, under a discovered policy."""
    (folder.path / "envaudit.toml").write_text(policy)
    return folder.run("diff", "all.json", "--format", "json")


def test_policy_that_changes_something_is_told_with_its_digest(drifted: Folder) -> None:
    """Whoever reads the verdict sees which file it rests on, and what that file says."""
    policy = """
[gate]
fail-on = "warning"
profile = "strict"
require = []
[rules.EA331]
severity = "info"
[roles.head]
hosts = "head"
"""
    digest = hashlib.sha256(policy.encode()).hexdigest()[:12]
    told = "fails on warning, profile strict, requires nothing, 1 other setting, 1 role"
    assert {"policy": [f"envaudit.toml sha256:{digest}: {told}"]} == stages(compared(drifted, policy))


def test_configuration_that_changes_no_verdict_is_not_told(drifted: Folder) -> None:
    """Where the nodes are and what the default is anyway."""
    assert {} == stages(compared(drifted, '[nodes]\ntimeout = 30\n[gate]\nfail-on = "error"\n'))


@pytest.mark.parametrize("policy", ['[paths]\n"**" = "off"\n', '[rules.EA214]\nseverity = "off"\n'])
def test_policy_that_hides_a_finding_says_so_in_the_verdict(drifted: Folder, policy: str) -> None:
    """A repository under test may switch everything off; that is no healthy fleet."""
    ended = compared(drifted, policy)
    assert (0, []) == (ended.code, ended.findings)
    assert ["1 finding is switched off by the policy: EA214"] == stages(ended)["hidden"]
    plain = drifted.run("diff", "all.json")
    assert "1 finding is switched off" in plain.verdict


def test_policy_that_hides_a_part_of_a_finding_says_so(folder: Folder) -> None:
    """Of three packages beyond the others' one is off, and the finding of the other two stays."""
    (folder.path / OWN).unlink()
    extra = {f"packages/distributions/{name}": {"version": "1"} for name in ("foo", "bar", "baz")}
    write_snapshot(folder.path / "all.json", [node("n1"), node("n2"), node("n3", facts=extra)])
    ended = compared(folder, "[paths]\n'packages/distributions/foo' = 'off'\n")
    assert ["2 packages are extra"] == [each["message"] for each in ended.findings]
    assert ["1 finding is switched off by the policy: EA216"] == stages(ended)["hidden"]


def test_waiver_that_a_snapshot_uses_is_told(drifted: Folder) -> None:
    """Not only where nodes are compared."""
    odd = node("n1", USUAL._replace(launch="exec"), {"gpu/uvm": False})
    write_snapshot(drifted.path / "one.json", [odd])
    before = drifted.run("show", "one.json", "--section", "gpu", "--format", "json")
    (rule,) = before.rules
    waiver = f"[[waivers]]\nrule = '{rule}'\nreason = 'known'\nowner = 'ada'\nexpires = 2099-01-31\n"
    (drifted.path / "envaudit.toml").write_text(waiver)
    after = drifted.run("show", "one.json", "--section", "gpu", "--format", "json")
    assert [] == after.rules
    assert [f"{rule} on n1 until 2099-01-31: known (ada)"] == stages(after)["waived"]
    assert stages(after)["policy"][0].endswith("1 waiver")


def test_files_that_no_store_knows_are_compared(drifted: Folder) -> None:
    """Since when a difference is there needs a history, and two files need none."""
    write_snapshot(drifted.path / "a.json", [node("n1")])
    write_snapshot(drifted.path / "b.json", [node("n1", facts={"limits/core_bytes/soft": 1})])
    ended = drifted.run("diff", "a.json", "b.json", "--format", "json")
    assert ["EA129"] == ended.rules


def test_worker_that_deviates_does_not_hide_the_head_s_third_version(folder: Folder) -> None:
    """What all roles must share is held against everybody, also where one role is not alike in itself."""
    versions = {"n1": "3.11.7", "n2": "3.11.7", "n4": "3.11.7", "n3": "3.10.4", "head": "3.12.1"}
    nodes = [node(name, facts={"python/version": version}) for name, version in versions.items()]
    write_snapshot(folder.path / "all.json", nodes)
    (folder.path / "envaudit.toml").write_text('[roles.head]\nhosts = "head"\n')
    ended = folder.run("diff", "all.json", "--format", "json")
    assert [("EA211", ["head", "n3"])] == [(each["rule"], each["nodes"]) for each in ended.findings]


def test_roles_are_told_with_who_was_alone(drifted: Folder) -> None:
    """A node that is the only one of its role was compared with nobody of its kind."""
    ended = compared(drifted, '[roles.head]\nhosts = "n3"\n')
    told = "no role n[1-2]; head n3: each within itself (alone, so compared only in what all roles share: n3)"
    assert [told] == stages(ended)["roles"]
