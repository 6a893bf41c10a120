"""Virtual environments against locks of other tools, the same command as for a conda-lock.yml."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Ended
from tests.lock.workplace import Workplace

PINS = {"numpy": "1.26.4", "requests": "2.31.0"}
LOCKS = {
    "requirements.txt": "# via hand\n" + "".join(f"{name}=={version}\n" for name, version in PINS.items()),
    "freeze.txt": "".join(f"{name}=={version}\n" for name, version in PINS.items()),
    "pylock.toml": 'lock-version = "1.0"\ncreated-by = "hand"\n'
    + "".join(f'[[packages]]\nname = "{name}"\nversion = "{version}"\n' for name, version in PINS.items()),
    "uv.lock": 'version = 1\nrequires-python = ">=3.8"\n[[package]]\nname = "own"\nversion = "1"\n'
    'source = { virtual = "." }\ndependencies = [{ name = "numpy" }, { name = "requests" }]\n'
    '[package.dev-dependencies]\ndev = [{ name = "pytest" }]\n'
    + "".join(
        f'[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {{ registry = "https://x" }}\n'
        for name, version in {**PINS, "pytest": "8.0.0"}.items()
    ),
}


@pytest.fixture
def venv(workplace: Workplace) -> Path:
    """A virtual environment with what the locks name, and pip."""
    folder = workplace.folder / "venv"
    (folder / "lib/python3.11/site-packages").mkdir(parents=True)
    configured = "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.7\n"
    (folder / "pyvenv.cfg").write_text(configured)
    for name, version in {**PINS, "pip": "24.0"}.items():
        put(folder, name, version)
    for name, text in LOCKS.items():
        (workplace.folder / name).write_text(text)
    return folder


def put(venv: Path, name: str, version: str) -> None:
    """Install a distribution, or another version of it."""
    site = venv / "lib/python3.11/site-packages"
    for old in site.glob(f"{name}-*.dist-info"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    about = site / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "INSTALLER").write_text("pip\n")
    (about / "RECORD").write_text(f"{about.name}/RECORD,,\n")


def verify(workplace: Workplace, lock: str) -> Ended:
    """The environment against a lock."""
    return workplace.run("verify", lock, "--prefix", "venv", "--format", "json")


@pytest.mark.parametrize("lock", sorted(LOCKS))
def test_verify_of_an_environment_as_locked_passes(workplace: Workplace, venv: Path, lock: str) -> None:
    """Pip itself is nothing beyond the lock."""
    ended = verify(workplace, lock)
    assert (0, []) == (ended.code, ended.rules), ended.out


@pytest.mark.parametrize("lock", sorted(LOCKS))
@pytest.mark.parametrize(
    ("name", "version", "rule", "path"),
    [
        ("numpy", "1.26.3", "EA202", "packages/distributions/numpy/version"),
        ("numpy", "1.26.4+cu1", "EA202", "packages/distributions/numpy/local"),
        ("idna", "3.6", "EA201", "packages/distributions/idna"),
    ],
)
def test_verify_of_another_environment_names_what_differs(
    workplace: Workplace, venv: Path, lock: str, name: str, version: str, rule: str, path: str
) -> None:
    """Another version, another local tag, one too many."""
    put(venv, name, version)
    ended = verify(workplace, lock)
    assert (1, [rule]) == (ended.code, ended.rules), ended.out
    assert [path] == [drift["path"] for drift in ended.json["drifts"]]


@pytest.mark.parametrize("lock", sorted(LOCKS))
def test_verify_names_what_is_missing(workplace: Workplace, venv: Path, lock: str) -> None:
    """As the lock has it."""
    put(venv, "numpy", "0")
    for file in venv.glob("lib/*/*/numpy-0.dist-info/*"):
        file.unlink()
    next(venv.glob("lib/*/*/numpy-0.dist-info")).rmdir()
    ended = verify(workplace, lock)
    assert (1, ["EA200"]) == (ended.code, ended.rules)


def test_remedy_is_none_that_refuses_this_lock(workplace: Workplace, venv: Path) -> None:
    """`envaudit install` takes a conda-lock.yml alone; and one package is counted in the singular."""
    (workplace.folder / "one.txt").write_text("numpy==1.26.3\n")
    ended = verify(workplace, "one.txt")
    (finding,) = [each for each in ended.findings if each["rule"] == "EA202"]
    assert finding["hint"].endswith("any other by its own tool.")
    put(venv, "numpy", "1.26.3")
    (venv / "lib/python3.11/site-packages/requests-2.31.0.dist-info").rename(workplace.folder / "requests")
    verdict = workplace.run("verify", "one.txt", "--prefix", "venv").verdict
    assert verdict.startswith("PASS 1 node as locked, 1 package for linux-64"), verdict


def test_verify_takes_versions_that_are_one_for_one(workplace: Workplace, venv: Path) -> None:
    """`2.31` is `2.31.0`."""
    put(venv, "requests", "2.31")
    assert 0 == verify(workplace, "pylock.toml").code


def test_verify_holds_what_may_be_there_to_its_version(workplace: Workplace, venv: Path) -> None:
    """The group `dev` of a uv project: not missed, not beyond the lock, and still of one version."""
    put(venv, "pytest", "8.0.0")
    assert 0 == verify(workplace, "uv.lock").code
    put(venv, "pytest", "7.0.0")
    assert ["EA202"] == verify(workplace, "uv.lock").rules


@pytest.mark.parametrize(
    ("lock", "text"),
    [
        ("explicit.txt", "# platform: linux-64\n@EXPLICIT\n"),
        ("pylock.toml", 'lock-version = "1.0"\ncreated-by = "hand"\npackages = []\n'),
    ],
)
def test_verify_against_a_lock_of_no_packages_is_no_pass(
    workplace: Workplace, venv: Path, lock: str, text: str
) -> None:
    """A list that was cut off after its head asks for nothing, and everything is as it says."""
    (workplace.folder / lock).write_text(text)
    ended = verify(workplace, lock)
    assert (
        2,
        f"envaudit: {lock}: it names no package for linux-64, so every node would be as it says. ",
    ) == (
        ended.code,
        ended.err[: ended.err.index("Make")],
    )


def test_verify_without_knowing_the_interpreter_is_incomplete(workplace: Workplace, venv: Path) -> None:
    """Whether a marker holds cannot be told, and that is no pass."""
    (venv / "pyvenv.cfg").unlink()
    (workplace.folder / "r.txt").write_text(
        f"{LOCKS['requirements.txt']}tomli==2.0 ; python_version < '3.11'\n"
    )
    ended = verify(workplace, "r.txt")
    assert (3, ["EA903"]) == (ended.code, ended.rules)


def test_verify_of_conda_packages_by_an_explicit_list_says_nothing_of_pip(
    workplace: Workplace, venv: Path
) -> None:
    """The list does not either."""
    (venv / "conda-meta").mkdir()
    record = {"name": "zlib", "version": "1.3", "build": "h1_0", "channel": "conda-forge", "md5": "0" * 32}
    (venv / "conda-meta/zlib-1.3-h1_0.json").write_text(str(record).replace("'", '"'))
    url = "https://conda.anaconda.org/conda-forge/linux-64/zlib-1.3-h1_0.conda"
    (workplace.folder / "explicit.txt").write_text(f"@EXPLICIT\n{url}#{'0' * 32}\n")
    ended = verify(workplace, "explicit.txt")
    assert (0, []) == (ended.code, ended.rules), ended.out
    (workplace.folder / "explicit.txt").write_text(f"@EXPLICIT\n{url.replace('1.3', '1.4')}#{'0' * 32}\n")
    assert ["EA202"] == verify(workplace, "explicit.txt").rules
