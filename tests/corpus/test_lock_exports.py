"""Real public locks, exported: against lists that their owners published, and through conda-lock's reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from envaudit.errors import InputError
from envaudit.lock.export import conda_lock, environment_yml, explicit, of_lock, requirements
from envaudit.lock.lockfile import parse_lock, read_lock

pytestmark = pytest.mark.corpus

# Lock to platform to the number of its conda and of its pip packages.
LOCKS = {
    "01-bertchen-linux64-pytorch-cuda.yml": {"linux-64": (218, 7), "osx-arm64": (184, 7), "win-64": (214, 7)},
    "02-bertchen-ppc64le.yml": {"linux-ppc64le": (289, 7)},
    "04-pangeo-pytorch-notebook.yml": {"linux-64": (885, 0)},
    "05-condalock-zlib-multiplatform.yml": {"linux-64": (6, 0), "osx-64": (2, 0), "win-64": (5, 0)},
    "06-condalock-pip-linux64-aarch64.yml": {"linux-64": (24, 4), "linux-aarch64": (23, 4)},
    "08-condalock-categories.yml": {"linux-64": (101, 0)},
    "10-mamba-missing-category.yml": {"linux-64": (0, 0), "osx-64": (0, 0), "win-64": (1, 0)},
}
INVALID = {
    "12-INVALID-missing-package.yml": "package: expected a list, got nothing",
    "14-INVALID-metadata-type.yml": "metadata: expected a mapping, got 'this should be a dict",
}


def urls_of(text: str) -> list[str]:
    """The packages of an explicit list."""
    return sorted(line for line in text.splitlines() if not line.startswith(("#", "@")))


def test_explicit_list_of_pangeo_s_lock_is_the_one_that_pangeo_publishes(corpus: Path) -> None:
    """885 packages, each with its md5, from the lock file of the same commit."""
    lock = read_lock(str(corpus / "locks" / "04-pangeo-pytorch-notebook.yml"))
    published = (corpus / "samples" / "conda" / "pangeo-pytorch-explicit-md5.lock").read_text()
    exported = explicit(of_lock(lock, "linux-64", ("main",)))
    assert (885, urls_of(published)) == (len(urls_of(exported)), urls_of(exported))


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_real_lock_is_exported_in_every_form(corpus: Path, name: str) -> None:
    """No platform and no package is lost on the way; conda-lock reads its own form back."""
    lock = read_lock(str(corpus / "locks" / name))
    found = {}
    for platform in lock.platforms:
        environment = of_lock(lock, platform, lock.categories)
        again = parse_lock(conda_lock(environment).encode(), name)
        assert {(p.name, p.version, p.url) for p in lock.of(platform, None)} == {
            (p.name, p.version, p.url) for p in again.packages
        }
        assert len(environment.conda) == len(urls_of(explicit(environment)))
        lines = environment_yml(environment).splitlines()
        assert len(environment.conda) == sum("=" in line and line.startswith("  - ") for line in lines)
        assert len(environment.pip) == len(urls_of(requirements(environment)))
        found[platform] = (len(environment.conda), len(environment.pip))
    assert LOCKS[name] == found


@pytest.mark.parametrize("name", sorted(INVALID))
def test_lock_that_is_none_is_refused_with_the_key(corpus: Path, name: str) -> None:
    """The key path, and what was expected there."""
    with pytest.raises(InputError, match=INVALID[name]):
        read_lock(str(corpus / "locks" / name))
