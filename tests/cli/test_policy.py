"""The policy's tables of envaudit.toml: all faults at once, and what each of them does."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest

from envaudit.cli import configuration, policyfile
from envaudit.errors import UsageError
from envaudit.rules import Policy
from envaudit.rules.policy import MUST_MATCH

SIX_MISTAKES = """
[gate]
profile = "stricter"
[rules.EA214]
severity = "fatal"
[rules.EA998]
severity = "error"
[paths]
"gpu/a~b" = "warning"
[roles.head]
hosts = ""
[[waivers]]
rule = "EA214"
reason = "known"
owner = "ada"
"""

WHOLE = """
[gate]
fail-on = "warning"
profile = "strict"
must-match = ["default", "My.Package"]
[rules.EA216]
severity = "off"
[paths]
"gpu/devices/3/**" = "info"
[roles.head]
hosts = "head[01-02]"
[[waivers]]
rule = "EA214"
nodes = "node[07-08]"
path = "libraries/nccl/**"
reason = "known"
owner = "ada"
expires = 2027-01-31
[[waivers]]
rule = "EA216"
reason = "known"
owner = "ada"
expires = "2027-02-28"
"""


def loaded(folder: Path, text: str) -> Policy:
    """The policy of a configuration file."""
    file = folder / "envaudit.toml"
    file.write_text(text, encoding="utf-8")
    settings = configuration.load(str(file), str(folder))
    return policyfile.policy_of(settings.policy, today="2026-11-30", fail_on=settings.gate.fail_on)


def faults(folder: Path, text: str) -> List[str]:
    """What is wrong with a configuration file, without the file's name."""
    with pytest.raises(UsageError) as caught:
        loaded(folder, text)
    head, *lines = str(caught.value).rstrip(".").splitlines()
    assert head.endswith("in the configuration:")
    return [line.partition("envaudit.toml: ")[2] for line in lines]


def test_rule_that_a_prolog_cannot_judge_is_refused_there(tmp_path: Path) -> None:
    """It would be taken for held, and drain nobody."""
    assert [
        "gate.prolog[1]: EA214 compares nodes, and a prolog sees one",
        "gate.prolog[2]: a prolog does not read what EA500 judges",
        "gate.prolog[3]: evidence that is missing drains no node",
    ] == faults(tmp_path, '[gate]\nprolog = ["EA352", "EA214", "EA500", "EA901"]\n')


def test_policy_with_six_mistakes_lists_six(tmp_path: Path) -> None:
    """Each with the key path that leads to it."""
    assert [
        "rules.EA214.severity: expected one of error, warning, info, off, got 'fatal'",
        "rules.EA998: no rule has this id, did you mean EA299?",
        "paths.\"gpu/a~b\": 'gpu/a~b' has a lone '~'",
        "waivers[0].expires: is required: whoever reads it must know who accepted what",
        "roles.head.hosts: expected a node set, got ''",
        "gate.profile: expected one of lenient, default, strict, got 'stricter'",
    ] == faults(tmp_path, SIX_MISTAKES)


def test_policy_is_what_the_file_says(tmp_path: Path) -> None:
    """Levels, paths, packages, roles and waivers, each in its place."""
    policy = loaded(tmp_path, WHOLE)
    assert ("warning", "strict", {"EA216": "off"}) == (policy.fail_on, policy.profile, policy.levels)
    assert (*MUST_MATCH, "my-package") == policy.must_match
    assert "info" == policy.level_of_path("gpu/devices/3/ecc")
    assert None is policy.level_of_path("gpu/devices/4/ecc")
    assert {"head01": "head", "head02": "head"} == policy.roles
    first, second = policy.waivers
    assert (("node07", "node08"), "2027-01-31", "ada") == (first.nodes, first.expires, first.owner)
    assert first.path is not None
    assert first.path.matches("libraries/nccl/version")
    assert first.where.endswith("envaudit.toml: waivers[0]")
    assert ((), None, "2027-02-28") == (second.nodes, second.path, second.expires)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("rules = 3", "rules: expected a table, got int"),
        ("waivers = 3", "waivers: expected a list of tables, got int"),
        ("waivers = [3]", "waivers[0]: expected a table, got 3"),
        ("[rules]\nEA214 = 3", "rules.EA214: expected a table, got 3"),
        ("[rules.EA214]\nseverty = 'off'", "rules.EA214.severty: unknown key, did you mean 'severity'?"),
        *(
            (
                f"[rules.EA150]\noffset-s = {value}",
                "rules.EA150.offset-s: expected a number in s, from 0 to 10",
            )
            for value in ("-1", "nan", "inf", "true", "1e300", "1" + "0" * 400)
        ),
        ("[paths]\n'gpu' = 3", 'paths."gpu": expected one of error, warning, info, off, got 3'),
        (
            "[paths]\ngpu.driver = 'off'",
            'paths."gpu": expected a level, got a table; a path is one text: "gpu/driver"',
        ),
        (
            "[paths]\n'hots/kernel' = 'error'",
            "paths.\"hots/kernel\": no section is called 'hots', did you",
        ),
        (
            "[paths]\n'host/**' = 'off'\n'host/kernel' = 'error'",
            'paths."host/kernel": is never reached, for the first that matches decides: "host/**"',
        ),
        ("[roles.head]\nhosts = '[1-'", "roles.head.hosts: "),
        ("[roles.'a b']\nhosts = 'x'", "roles.a b: a role's name is letters"),
        ("[gate]\nprofile = []", "gate.profile: expected one of lenient, default, strict, got []"),
        ("[gate]\nmust-match = [3]", "gate.must-match: expected a list of package names, got [3]"),
        (
            "[rules.EA901]\nseverity = 'off'",
            "rules.EA901.severity: missing evidence is never a pass",
        ),
    ],
)
def test_policy_with_one_mistake_names_its_key(tmp_path: Path, text: str, fault: str) -> None:
    """Of the wrong type, misspelt, or about what no policy may decide."""
    (told,) = faults(tmp_path, text)
    assert told.startswith(fault)


def test_path_before_the_pattern_that_holds_for_the_rest_decides(tmp_path: Path) -> None:
    """What is below a pattern can be told apart, in this order alone."""
    policy = loaded(tmp_path, "[paths]\n'host/kernel' = 'error'\n'host/**' = 'off'\n'**/vbios' = 'info'")
    levels = [policy.level_of_path(path) for path in ("host/kernel", "host/glibc", "gpu/each/vbios")]
    assert ["error", "off", "info"] == levels


@pytest.mark.parametrize("day", ["2027-02-30", "tomorrow", "2027-1-1", "2027-01-31T10:00:00"])
def test_waiver_until_no_day_is_refused(tmp_path: Path, day: str) -> None:
    """A date that is none would never expire."""
    row = f"[[waivers]]\nrule = 'EA214'\nreason = 'r'\nowner = 'o'\nexpires = '{day}'"
    assert [f"waivers[0].expires: expected a day such as 2027-01-31, got '{day}'"] == faults(tmp_path, row)


def test_node_in_two_roles_is_refused(tmp_path: Path) -> None:
    """It would be compared with two references."""
    text = "[roles.a]\nhosts = 'n[1-3]'\n[roles.b]\nhosts = 'n[3-4]'"
    assert ["roles.b.hosts: n3 is in roles.a already"] == faults(tmp_path, text)


@pytest.mark.parametrize(
    ("rows", "key"),
    [
        (
            '[[waivers]]\nrule="EA216"\nreason="r"\nowner="o"\nexpires=2027-01-31\nnodes="n[1-4]"\n',
            "waivers[1].nodes",
        ),
        ('[roles.r{}]\nhosts="n{}[1-4]"\n', "roles.r1.hosts"),
    ],
)
def test_policy_of_more_nodes_than_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str, key: str
) -> None:
    """Each of its node sets is small enough; what a repository says must not fill a controller."""
    monkeypatch.setattr(policyfile, "_MOST_NODES", 6)
    text = "".join(rows.format(place, place) for place in range(200))
    assert [f"{key}: with those before it names more than 6 nodes"] == faults(tmp_path, text)


def test_waiver_of_an_expired_waiver_is_refused(tmp_path: Path) -> None:
    """The next one would hide that the last one is over."""
    row = "[[waivers]]\nrule = 'EA910'\nreason = 'r'\nowner = 'o'\nexpires = 2027-01-31"
    assert ["waivers[0].rule: a waiver that has expired is renewed, not waived"] == faults(tmp_path, row)


@pytest.mark.parametrize(
    "value", ["3", "true", "'x'", "[]", "[[]]", "[{}]", "{}", "{x = []}", "nan", "2027-01-31"]
)
@pytest.mark.parametrize(
    "key",
    [
        *("rules", "paths", "waivers", "roles", "gate", "nodes", "lock"),
        *("rules.EA150", "rules.EA150.severity", "rules.EA150.offset-s", "paths.'a/b'"),
        *("roles.head", "roles.head.hosts"),
        *("gate.fail-on", "gate.profile", "gate.must-match", "gate.require"),
    ],
)
def test_policy_of_any_type_is_read_or_refused_with_its_key(tmp_path: Path, key: str, value: str) -> None:
    """Never an internal error, and never a fault elsewhere."""
    told = ""
    try:
        loaded(tmp_path, f"{key} = {value}")
    except UsageError as error:
        told = str(error)
    named = key.replace("'a/b'", '"a/b"')
    assert [] == [line for line in told.splitlines()[1:] if named not in line]


def test_waiver_of_missing_evidence_is_refused(tmp_path: Path) -> None:
    """Whoever signs for it: a node that did not answer is no pass."""
    row = "[[waivers]]\nrule = 'EA901'\nreason = 'r'\nowner = 'o'\nexpires = 2027-01-31"
    (told,) = faults(tmp_path, row)
    assert told.startswith("waivers[0].rule: missing evidence is never a pass")
