"""Locks for several machines, read for one: markers, extras, forks, platforms."""

from __future__ import annotations

import pytest

from envaudit.cli.foreign import setting_of
from envaudit.errors import InputError
from tests.sources.samples import (
    ANY_PYTHON,
    FORGE,
    LINUX,
    MD5,
    PIXI_LOCK,
    PYLOCK,
    REQUIREMENTS,
    SHA256,
    UV_LOCK,
    distributions,
    read,
    said,
)

OLD = setting_of("linux-64", "3.10.4")
WINDOWS = setting_of("win-64", "3.11.7")
MAC = setting_of("osx-arm64", "3.11.7")
SOCKS = {"requests": "2.31.0", "idna": "3.6", "pysocks": "1.7.1"}


@pytest.mark.parametrize(
    ("setting", "more"),
    [(LINUX, {}), (OLD, {"tomli": "2.0.1"}), (WINDOWS, {"pywin32": "306"})],
    ids=["3.11", "3.10", "windows"],
)
def test_requirements_are_those_whose_marker_holds(setting: object, more: dict[str, str]) -> None:
    """A distribution for another platform is not expected."""
    assert {"numpy": "1.26.4", **more} == said(read(REQUIREMENTS, setting))


@pytest.mark.parametrize("text", [REQUIREMENTS, PYLOCK, UV_LOCK], ids=["requirements", "pylock", "uv"])
def test_marker_that_cannot_be_decided_leaves_its_distribution_unknown(text: str) -> None:
    """Not knowing the interpreter, nobody says that tomli must be there, or must not."""
    sections = read(text, ANY_PYTHON)
    assert ("tomli", None) in distributions(sections).items()
    assert "pywin32" not in distributions(sections)
    assert [True] == [
        "whether tomli is needed here is unknown" in each for each in sections["packages"].errors
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torch>=2", "line 9 pins no version"),
        ("numpy==1.25.0", "numpy is pinned twice.*1.26.4 and 1.25.0"),
    ],
)
def test_requirements_that_do_not_pin_one_version_are_refused(line: str, words: str) -> None:
    """Then nothing says what is expected."""
    with pytest.raises(InputError, match=words):
        read(f"{REQUIREMENTS}{line}\n")


@pytest.mark.parametrize("line", ["-r other.txt", "-rother.txt", "--constraint=other.txt", "-c  other.txt"])
def test_requirements_that_include_others_are_not_taken_for_whole(line: str) -> None:
    """What the other file says is not read, and that is told."""
    section = read(f"{REQUIREMENTS}{line}\n")["packages"]
    assert ((), ("line 9: what 'other.txt' says is not read",)) == (section.whole, section.errors)


def test_pylock_expects_neither_extras_nor_groups() -> None:
    """They may be there, in the locked version; the project itself is nothing beyond the lock."""
    sections = read(PYLOCK)
    assert {"numpy": "1.26.4"} == said(sections)
    assert {"url": "https://git.example/repo.git", "commit": "abc"} == sections["packages"].facts[
        "distributions"
    ]["repo"]["direct_url"]
    about = sections["lock"].facts
    assert {"matplotlib": {"version": "3.8.0"}, "pytest": {"version": "8.0.0"}} == about["optional"]
    assert "own-project" in about["unlisted"]


def test_pylock_expects_its_default_groups() -> None:
    """As the file names them."""
    text = PYLOCK.replace("default-groups = []", 'default-groups = ["dev"]')
    assert {"numpy": "1.26.4", "pytest": "8.0.0"} == said(read(text))


def test_pylock_leaves_out_what_needs_another_python() -> None:
    """`requires-python` of a package is a condition too."""
    text = PYLOCK.replace('version = "1.26.4"\n', 'version = "1.26.4"\nrequires-python = ">=3.12"\n')
    assert {} == said(read(text))


@pytest.mark.parametrize(
    ("setting", "more"),
    [
        (LINUX, {"torch": "2.6.0+cu124"}),
        (MAC, {"torch": "2.6.0"}),
        (OLD, {"torch": "2.6.0+cu124", "tomli": "2.0.1"}),
    ],
    ids=["linux", "mac", "3.10"],
)
def test_uv_lock_expects_what_the_project_leads_to(setting: object, more: dict[str, str]) -> None:
    """Through extras, and by the fork of the platform."""
    assert {**SOCKS, **more} == said(read(UV_LOCK, setting))


def test_uv_lock_lets_extras_and_groups_be_there() -> None:
    """Uv installs `dev` unless told otherwise, and the lock does not say what it was told."""
    about = read(UV_LOCK)["lock"].facts
    assert {"matplotlib": {"version": "3.8.0"}, "pytest": {"version": "8.0.0"}} == about["optional"]
    assert "own-project" in about["unlisted"]


def test_uv_lock_holds_nobody_to_one_of_the_versions_of_conflicting_extras() -> None:
    """Which of the two was installed is not in the lock."""
    text = UV_LOCK.replace(
        'plot = [{ name = "matplotlib" }]',
        'cpu = [{ name = "jax", version = "1" }]\ngpu = [{ name = "jax", version = "2" }]',
    )
    for version in "12":
        text += f'[[package]]\nname = "jax"\nversion = "{version}"\nsource = {{ registry = "https://x" }}\n'
    about = read(text)["lock"].facts
    assert ["pytest"] == list(about["optional"])
    assert "jax" in about["unlisted"]


def test_uv_lock_follows_a_checkout_but_does_not_hold_it() -> None:
    """Its dependencies count, itself is what stands in the folder."""
    text = UV_LOCK.replace('{ name = "requests", extra', '{ name = "lib" }, { name = "requests", extra')
    text += '[[package]]\nname = "lib"\nversion = "1"\nsource = { editable = "lib" }\n'
    text += 'dependencies = [{ name = "six" }]\n'
    text += '[[package]]\nname = "six"\nversion = "1.16.0"\nsource = { registry = "https://x" }\n'
    sections = read(text)
    assert {**SOCKS, "torch": "2.6.0+cu124", "six": "1.16.0"} == said(sections)
    assert "lib" in sections["lock"].facts["unlisted"]


def test_uv_lock_for_another_python_is_refused() -> None:
    """It says nothing of this interpreter."""
    with pytest.raises(InputError, match=r"the lock is for Python >=3\.10, not 3\.9\.1"):
        read(UV_LOCK, setting_of("linux-64", "3.9.1"))


def test_uv_lock_for_a_python_that_is_no_version_is_read_as_for_any() -> None:
    """What a node says of its interpreter may be anything."""
    assert {"lock", "packages"} == set(read(UV_LOCK, setting_of("linux-64", "9" * 5000)))


def test_uv_lock_of_a_script_has_its_requirements_in_the_manifest() -> None:
    """There is no project."""
    text = UV_LOCK.partition('[[package]]\nname = "own')[0]
    text += '[manifest]\nrequirements = [{ name = "idna", specifier = ">=3" }]\n'
    text += UV_LOCK[UV_LOCK.index('[[package]]\nname = "requests"') :]
    assert {"idna": "3.6"} == said(read(text))


def test_pixi_lock_expects_the_default_environment_of_the_platform() -> None:
    """Its own project is none of its packages."""
    sections = read(PIXI_LOCK)
    zlib = {
        "version": "1.3",
        "build": "h1234567_0",
        "channel": "conda-forge",
        "md5": MD5,
        "sha256": SHA256,
    }
    assert {"zlib": zlib} == sections["conda"].facts["packages"]
    assert {"numpy": "1.26.4"} == said(sections)
    about = sections["lock"].facts
    assert ["linux-64", "osx-arm64"] == about["platforms"]
    assert {"__glibc": "2.17"} == about["virtual_packages"]
    assert "own-project" in about["unlisted"]


def test_pixi_lock_of_the_older_layout_says_the_same() -> None:
    """Versions 4 and 5 have `kind`, and the address as `url`."""
    older = (
        PIXI_LOCK.replace("version: 6", "version: 5")
        .replace(f"\n- conda: {FORGE}", f"\n- kind: conda\n  url: {FORGE}")
        .replace("\n- pypi: http", "\n- kind: pypi\n  url: http")
        .replace("\n- pypi: ./", "\n- kind: pypi\n  path: ./")
    )
    assert read(PIXI_LOCK) == read(older)


def test_pylock_for_another_python_is_refused() -> None:
    """It was not solved for that one; where the interpreter is not known, it may be."""
    with pytest.raises(InputError, match=r"the lock is for Python >=3\.10, not 3\.9\.1"):
        read(PYLOCK, setting_of("linux-64", "3.9.1"))
    assert read(PYLOCK, ANY_PYTHON)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PIXI_LOCK.replace("version: 6", "version: 99"), "version '99' of pixi's lock"),
        (PIXI_LOCK.replace("  default:", "  other:"), "no environment 'default'"),
        (UV_LOCK.replace("version = 1\n", "version = 2\n", 1), "version 2 of uv's lock"),
        (PYLOCK.replace('lock-version = "1.0"', 'lock-version = "2.0"'), "lock-version '2.0'"),
        (UV_LOCK + "[[package]\n", "not TOML"),
        (
            UV_LOCK.replace('name = "idna"\nversion', 'name = "other"\nversion'),
            "idna is needed, and no package",
        ),
        (
            PYLOCK.replace("extras =", "environments = [\"sys_platform == 'win32'\"]\nextras ="),
            "nothing for linux-64 .it is for sys_platform == 'win32'",
        ),
    ],
)
def test_lock_of_another_format_or_target_is_refused(text: str, words: str) -> None:
    """With the version that was found."""
    with pytest.raises(InputError, match=words):
        read(text)
