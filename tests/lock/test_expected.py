"""What a lock asks of the machine itself."""

from __future__ import annotations

import pytest

from envaudit.lock.expected import needed_virtual_packages
from envaudit.lock.lockfile import Lock, LockedPackage
from envaudit.model.locked import platform_of
from tests.diff.nodes import fingerprint

SOLVED = {
    "envaudit_channels": "[]",
    "envaudit_virtual_packages_linux-64": "__cuda=12.4 __glibc=2.28 __archspec=1=x86_64",
}


def lock_with(dependencies: dict[str, str], custom: dict[str, str]) -> Lock:
    """A lock of one package with these dependencies."""
    package = LockedPackage("a", "1", "conda", "linux-64", "https://c/linux-64/a-1-0.conda", dependencies)
    return Lock("lock.yml", {}, (), ("linux-64",), (), (package,), custom)


@pytest.mark.parametrize(
    ("dependencies", "custom", "expected"),
    [
        ({"__glibc": ">=2.17,<3.0.a0"}, SOLVED, {"__glibc": "2.17"}),
        ({"__cuda": ">=11.8"}, SOLVED, {"__cuda": "11.8"}),
        ({"__cuda": f">={'9' * 5000}"}, SOLVED, {"__cuda": "9" * 9}),
        ({"__cuda": "*"}, SOLVED, {"__cuda": "12.4"}),
        ({"__cuda": ""}, {}, {}),
        ({"numpy": "*"}, SOLVED, {}),
        ({"numpy": "*"}, {**SOLVED, "envaudit_cuda": "12.4"}, {"__cuda": "12.4"}),
        ({"numpy": "*"}, {**SOLVED, "envaudit_cuda": "none"}, {}),
    ],
)
def test_needed_virtual_packages_are_what_packages_and_user_asked_for(
    dependencies: dict[str, str], custom: dict[str, str], expected: dict[str, str]
) -> None:
    """A default that nobody asked for makes no demand on a node."""
    assert expected == needed_virtual_packages(lock_with(dependencies, custom), "linux-64", ("main",))


@pytest.mark.parametrize(
    ("machine", "expected"), [("x86_64", "linux-64"), ("aarch64", "linux-aarch64"), ("riscv64", "default")]
)
def test_platform_of_a_node_follows_its_machine(machine: str, expected: str) -> None:
    """By `uname -m`."""
    node = fingerprint("a", host={"architecture": machine})
    assert expected == platform_of(node, "default")
    assert "default" == platform_of(fingerprint("a"), "default")
