"""What a lock was made for, kept in it, and what has changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from envaudit.lock.entries import Located
from envaudit.lock.freshness import changes_between, freshness_section
from envaudit.lock.inputs import Inputs, inputs_of
from envaudit.lock.lockfile import Lock, LockedPackage
from envaudit.lock.virtual import virtual_packages
from tests.lock.sources import source_of

LINUX = ["linux-64"]


def package(name: str, dependencies: Mapping[str, str] = MappingProxyType({})) -> LockedPackage:
    """One of a lock for linux-64."""
    url = f"https://conda.example/train/linux-64/{name}-1.0-0.conda"
    return LockedPackage(name, "1.0", "conda", "linux-64", url, dependencies)


def test_inputs_survive_the_metadata_of_a_lock(tmp_path: Path) -> None:
    """Text to text and back."""
    source = source_of(tmp_path, "python=3.10", "numpy >=1.20", pip=["tqdm"])
    source = replace(source, platforms=(Located("linux-64", 1, 1),))
    inputs = inputs_of([source], LINUX, virtual_packages(cuda="12.4"), "strict")
    assert inputs == Inputs.from_custom(inputs.to_custom())


def test_inputs_of_another_tool_are_none() -> None:
    """And damaged ones too: the content hash decides then."""
    assert Inputs.from_custom({}) is None
    assert Inputs.from_custom({"envaudit_channels": "["}) is None
    assert Inputs.from_custom({"envaudit_channels": "[1]"}) is None
    assert Inputs.from_custom({"envaudit_channels": "[" * 100_000}) is None
    whole = {"envaudit_channels": "[]", "envaudit_virtual_packages_linux-64": "__cuda=12.4 __glibc"}
    assert Inputs.from_custom(whole) is None


def test_inputs_do_not_hold_a_credential(tmp_path: Path) -> None:
    """A lock is committed: a literal password is cut out of what it keeps."""
    source = source_of(tmp_path, "python", pip=["x @ https://u:hunter2@host.example/x.whl"])
    text = str(inputs_of([source], LINUX).to_custom())
    assert ("hunter2" in text, "host.example/x.whl" in text) == (False, True)


def test_changes_do_not_print_the_credential_of_a_lock(tmp_path: Path) -> None:
    """One that somebody wrote into its channels by hand."""
    source = source_of(tmp_path, "python")
    recorded = inputs_of([source], LINUX).to_custom()
    recorded["envaudit_channels"] = '["https://u:hunter2@host.example/c"]'
    section = freshness_section(Lock("lock.yml", {}, (), ("linux-64",), (), (), recorded), [source])
    told = str(section.facts["changes"])
    assert ("hunter2" in told, "-https://<secret>@host.example/c" in told) == (False, True)


def test_distribution_that_is_gone_from_the_lock_is_a_change(tmp_path: Path) -> None:
    """Unless conda brings it, its marker may not hold, or the lock never has what it is."""
    lines = ["tqdm", "Wandb[media]>=0.16", "numpy"]
    others = ["triton; os_name=='nt'", "a @ https://h.example/a.whl", "-e ."]
    source = source_of(tmp_path, "python", "numpy", pip=[*lines, *others])
    recorded = inputs_of([source], LINUX).to_custom()
    numpy = package("numpy", {"python": ""})
    tqdm, wandb = (replace(package(name), manager="pip") for name in ("tqdm", "wandb"))
    lock = Lock("lock.yml", {}, (), ("linux-64",), (), (package("python"), numpy, tqdm, wandb), recorded)
    assert freshness_section(lock, [source]).facts["changes"] == []
    less = replace(lock, packages=(package("python"), numpy, tqdm))
    told = freshness_section(less, [source]).facts["changes"]
    assert ["pip wandb: gone from the lock for linux-64"] == told


def test_version_that_is_not_its_file_s_is_a_change(tmp_path: Path) -> None:
    """A merge may take one line of a package from each side, and both sides met the source."""
    source = source_of(tmp_path, "numpy>=1")
    recorded = inputs_of([source], LINUX).to_custom()
    lock = Lock("lock.yml", {}, (), ("linux-64",), (), (package("numpy"),), recorded)
    assert freshness_section(lock, [source]).facts["changes"] == []
    merged = replace(lock, packages=(replace(package("numpy"), version="1.1"),))
    assert freshness_section(merged, [source]).facts["changes"] == [
        "numpy: 1.1 in the lock for linux-64, and its file is numpy-1.0-0.conda"
    ]


def test_package_that_is_gone_from_the_lock_is_a_change(tmp_path: Path) -> None:
    """A merge or a hand may take out what the lock was made for, or what another package needs."""
    source = source_of(tmp_path, "python", "conda-forge::numpy>=1", "__glibc>=2.17")
    recorded = inputs_of([source], LINUX).to_custom()
    python = package("python", {"openssl": ">=3", "__glibc": ">=2.17"})
    lock = Lock(
        "lock.yml", {}, (), ("linux-64",), (), (python, package("numpy"), package("openssl")), recorded
    )
    assert freshness_section(lock, [source]).facts["changes"] == []
    less = replace(lock, packages=(python,))
    assert freshness_section(less, [source]).facts["changes"] == [
        "numpy: gone from the lock for linux-64",
        "openssl: gone from the lock for linux-64, and python needs it",
    ]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (("numpy >=1.20",), ("numpy>=1.20",)),
        (("numpy", "python"), ("python", "numpy")),
        (("numpy  # needed",), ("numpy",)),
    ],
)
def test_spelling_is_no_change(tmp_path: Path, before: tuple[str, ...], now: tuple[str, ...]) -> None:
    """Spaces, comments and the order of dependencies."""
    old = inputs_of([source_of(tmp_path, *before)], LINUX)
    assert [] == changes_between(old, inputs_of([source_of(tmp_path, *now)], LINUX))


def test_changes_are_named_one_by_one(tmp_path: Path) -> None:
    """Channels, packages of conda, packages of pip, each with its sign."""
    old = source_of(tmp_path, "numpy>=1.20", "scipy", pip=["tqdm==4.66.1"], channels=["conda-forge"])
    new = source_of(
        tmp_path, "numpy>=1.26", "jinja2=3.1", pip=["tqdm", "wandb"], channels=["conda-forge", "pytorch"]
    )
    expected = [
        "channels: +pytorch",
        "conda: +jinja2 =3.1",
        "numpy: >=1.20 → >=1.26",
        "conda: -scipy",
        "pip tqdm: ==4.66.1 → any",
        "pip: +wandb",
    ]
    assert expected == changes_between(inputs_of([old], LINUX), inputs_of([new], LINUX))


def test_order_of_channels_is_a_change(tmp_path: Path) -> None:
    """It is their priority."""
    old = inputs_of([source_of(tmp_path, "a", channels=["x", "y"])], LINUX)
    new = inputs_of([source_of(tmp_path, "a", channels=["y", "x"])], LINUX)
    assert ["channels: order is now y, x"] == changes_between(old, new)


def test_change_of_one_platform_names_it(tmp_path: Path) -> None:
    """A selector has the line count there alone."""
    both = ["linux-64", "osx-arm64"]
    old = inputs_of([source_of(tmp_path, "numpy")], both)
    new = inputs_of([source_of(tmp_path, "numpy", "jinja2  # [linux]")], both)
    assert ["conda: +jinja2 (linux-64)"] == changes_between(old, new)


def test_change_of_a_category_is_told_with_it(tmp_path: Path) -> None:
    """`category: dev` of the source."""
    old = inputs_of([source_of(tmp_path, "numpy", more="category: dev")], LINUX)
    new = inputs_of([source_of(tmp_path, "numpy=2", pip=["tqdm"], more="category: dev")], LINUX)
    assert ["dev conda numpy: any → =2", "dev pip: +tqdm"] == changes_between(old, new)


def test_virtual_packages_count_where_somebody_chose_them(tmp_path: Path) -> None:
    """`--check --cuda 12.4` against a lock for 11.4; without a choice those of the lock stand."""
    source = source_of(tmp_path, "numpy")
    old = inputs_of([source], LINUX, virtual_packages())
    assert ["__cuda: 11.4 → 12.4"] == changes_between(
        old, inputs_of([source], LINUX, virtual_packages(cuda="12.4"))
    )
    assert [] == changes_between(old, inputs_of([source], LINUX))


def test_constraints_file_that_changes_is_a_change(tmp_path: Path) -> None:
    """Its lines are no entries, but they decide what is locked."""
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("tqdm<5\n")
    source = source_of(tmp_path, "python", pip=["-c constraints.txt", "tqdm"])
    old = inputs_of([source], LINUX)
    assert [] == changes_between(old, inputs_of([source], LINUX))
    constraints.write_text("tqdm<4\n")
    expected = "pip -c: constraints.txt sha256:63046e500387 → constraints.txt sha256:0ef59d82e5e7"
    assert [expected] == changes_between(old, inputs_of([source], LINUX))
