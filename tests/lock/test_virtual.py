"""Virtual packages: conda-lock's defaults, another CUDA, a table of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.errors import InputError, UsageError
from envaudit.lock.virtual import VirtualPackage, virtual_packages


def _cuda(packages: tuple[VirtualPackage, ...]) -> list[str]:
    return [package.version for package in packages if package.name == "__cuda"]


def test_virtual_packages_by_default_are_those_of_conda_lock() -> None:
    """The content hash of a lock covers them, so that another table would be another hash."""
    found = virtual_packages()
    repodata = found.conda_lock_repodata().all_repodata["linux-64"]["packages"].values()
    assert sorted((package["name"], package["version"], package["build_string"]) for package in repodata) == [
        (package.name, package.version, package.build) for package in found.of("linux-64")
    ]


@pytest.mark.parametrize(("cuda", "expected"), [("12.4", ["12.4"]), ("none", [])])
def test_virtual_packages_with_a_cuda_version_have_it_where_cuda_runs(cuda: str, expected: list[str]) -> None:
    """On macOS there is none, whatever is asked for."""
    found = virtual_packages(cuda=cuda)
    assert _cuda(found.of("linux-64")) == expected
    assert _cuda(found.of("osx-arm64")) == []
    hashed = found.conda_lock_repodata().all_repodata["linux-64"]["packages"].values()
    assert [package["version"] for package in hashed if package["name"] == "__cuda"] == expected


def test_virtual_packages_of_a_file_are_its_own(tmp_path: Path) -> None:
    """conda-lock's format: version, then a build after a space."""
    path = tmp_path / "vp.yml"
    path.write_text(
        'subdirs:\n  linux-64:\n    packages:\n      __glibc: "2.17"\n      __archspec: "1 zen4"\n'
    )
    assert virtual_packages(path=str(path)).of("linux-64") == (
        VirtualPackage("__archspec", "1", "zen4"),
        VirtualPackage("__glibc", "2.17"),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "the file: expected keys and values, got list"),
        ("subdirs: {linux-64: {packages: {__glibc: 2.28}}}", "expected a version in quotes, got 2.28"),
        ("subdirs: {linux-64: {packages: {glibc: '2'}}}", "subdirs.linux-64.packages: 'glibc' is no virtual"),
        ("subdirs: {linux-64: }", "subdirs.linux-64: expected keys and values, got NoneType"),
        ("a: [", "not YAML"),
    ],
)
def test_virtual_packages_of_a_wrong_file_name_the_key(tmp_path: Path, text: str, words: str) -> None:
    """An unquoted 2.30 would be the number 2.3."""
    path = tmp_path / "vp.yml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        virtual_packages(path=str(path))
    assert words in str(caught.value)


def test_virtual_packages_of_an_unknown_platform_suggest_the_nearest() -> None:
    """A typing error in `-p` is no empty solve."""
    with pytest.raises(UsageError, match="Did you mean 'linux-64'"):
        virtual_packages().of("linux64")


@pytest.mark.parametrize(("cuda", "path"), [("12.4", "vp.yml"), ("yes", None), ("", None), ("12.", None)])
def test_virtual_packages_of_a_senseless_choice_are_refused(cuda: str, path: str | None) -> None:
    """Both at once, or what is neither a version nor `none`."""
    with pytest.raises(UsageError, match="--cuda"):
        virtual_packages(cuda=cuda, path=path)
