"""A lock's expectation held against a node: which versions are one."""

from __future__ import annotations

import sys

import pytest

from envaudit.model import Section
from envaudit.model.locked import held_against
from tests.diff.nodes import fingerprint

# What Python refuses to read as a number, from 3.8.14, 3.10.7 and 3.11 on.
ENDLESS = "9" * 5000


@pytest.fixture(params=["packaging", "the standard library"], autouse=True)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions are read by `packaging`, and in the one-file form without it."""
    if request.param != "packaging":
        monkeypatch.setitem(sys.modules, "packaging.version", None)


@pytest.mark.parametrize(
    ("locked", "installed", "same"),
    [
        ("2022.07", "2022.7", True),
        ("v1.0", "1", True),
        ("1.0.post1", "1.0-post1", True),
        ("1.0+cu121", "1.0", False),
        ("1.0", "1.0.1", False),
        ("1.0", ENDLESS, False),
        ("1.0", f"1.{ENDLESS}", False),
        ("1.0", "no version", False),
    ],
)
def test_version_of_a_node_is_that_of_the_lock_as_pep_440_has_it(
    locked: str, installed: str, same: bool
) -> None:
    """What a node says may be no version at all, and must not end the comparison of all others."""
    asked = {"distributions": {"a": {"version": locked}}}
    expected = fingerprint("n1", "lock", packages=asked, lock=Section("lock", 1, "ok", {}))
    found = fingerprint("n1", packages={"distributions": {"a": {"version": installed}}})
    both = held_against(expected, found, lambda name: (name,))
    wanted, there = (each.sections["packages"].facts for each in both)
    assert same == (wanted == there)


@pytest.mark.parametrize("facts", [None, True, "1.0", ["1.0"]])
def test_package_of_a_node_that_is_no_package_stays_what_it_is(facts: object) -> None:
    """Null is unknown to the comparison, and anything else is a difference of that node alone."""
    expected = fingerprint("n1", "lock", conda={"packages": {}}, lock=Section("lock", 1, "ok", {}))
    found = fingerprint("n1", conda={"packages": {"a": facts}})
    _, there = held_against(expected, found, lambda name: (name,))
    assert {"a": facts} == there.sections["conda"].facts["packages"]
