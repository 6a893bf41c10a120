"""The pip part by the real uv, from wheels in a folder: no index is asked."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from envaudit.errors import InputError, NeededError
from envaudit.lock.pip import PipConflictError, PipRequest, resolve_pip, uv_platform


def write_wheel(folder: Path, name: str, version: str, *needs: str, tag: str = "py3-none-any") -> str:
    """A wheel with these requirements; gives its sha256."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-{tag}.whl"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Requires-Dist: {need}" for need in needs]
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, and a cache of uv's own."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


def resolve(
    wheels: Path,
    *requirements: str,
    provided: Mapping[str, str] = {},
    locked: Mapping[str, str] = {},
    options: Sequence[str] = (),
    **more: object,
) -> dict[str, str]:
    """Distribution to version, for Python 3.10 on linux-64."""
    request = PipRequest(
        "linux-64",
        "3.10.14",
        requirements,
        options=("--no-index", f"--find-links {wheels}", *options),
        provided=provided,
        virtual={"__glibc": "2.28"},
        locked=locked,
        **more,  # type: ignore[arg-type]
    )
    return {package.name: package.version for package in resolve_pip(request)}


def test_requirement_is_resolved_to_a_file_with_its_hash_and_what_it_needs(wheels: Path) -> None:
    """The entry of a lock: version, URL, sha256, dependencies."""
    digest = write_wheel(wheels, "Lightning.Tool", "1.2", "tqdm>=4")
    write_wheel(wheels, "tqdm", "4.66.1")
    request = PipRequest("linux-64", "3.10.14", ("lightning-tool",), ("--no-index", f"--find-links {wheels}"))
    first, second = resolve_pip(request)
    assert ("lightning-tool", "1.2", digest, ("tqdm",)) == (
        first.name,
        first.version,
        first.sha256,
        first.dependencies,
    )
    assert ("tqdm", "4.66.1", ()) == (second.name, second.version, second.dependencies)
    assert first.url.endswith("/Lightning.Tool-1.2-py3-none-any.whl")


def test_distribution_of_conda_satisfies_a_requirement_and_is_not_locked_again(wheels: Path) -> None:
    """Also one that no index has, and without what its own wheel would need."""
    write_wheel(wheels, "trainer", "1.0", "torch>=2", "adios-db")
    write_wheel(wheels, "torch", "2.5.0", "nvidia-cublas-cu12")
    assert {"trainer": "1.0"} == resolve(wheels, "trainer", provided={"torch": "2.1.0", "adios-db": "1.0"})


def test_distribution_of_conda_in_a_version_that_does_not_fit_is_a_conflict(wheels: Path) -> None:
    """Installing it with pip would replace what conda installed; the lock refuses."""
    write_wheel(wheels, "trainer", "1.0", "torch>=2.5")
    with pytest.raises(PipConflictError) as raised:
        resolve(wheels, "trainer", provided={"torch": "2.1.0"})
    assert "torch>=2.5" in raised.value.explanation


def test_conda_version_that_is_none_of_pep_440_still_provides(wheels: Path) -> None:
    """`2023c` cannot be compared, but the distribution is there."""
    write_wheel(wheels, "trainer", "1.0", "pytz")
    assert {"trainer": "1.0"} == resolve(wheels, "trainer", provided={"pytz": "2023c_1"})


def test_name_that_the_index_lacks_is_a_conflict_that_names_it(wheels: Path) -> None:
    """A typing error in the pip section, or a package of conda."""
    with pytest.raises(PipConflictError) as raised:
        resolve(wheels, "torch-distributed-launcher==0.1.0")
    assert raised.value.explanation.startswith("Because torch-distributed-launcher was not found")


def test_version_that_was_locked_is_kept(wheels: Path) -> None:
    """An update moves what it must; a pin that the requirement forbids moves."""
    for version in ("4.66.1", "4.66.4"):
        write_wheel(wheels, "tqdm", version)
    assert {"tqdm": "4.66.4"} == resolve(wheels, "tqdm")
    assert {"tqdm": "4.66.1"} == resolve(wheels, "tqdm", locked={"tqdm": "4.66.1"})
    assert {"tqdm": "4.66.4"} == resolve(wheels, "tqdm>4.66.1", locked={"tqdm": "4.66.1"})


def test_marker_of_another_system_drops_the_requirement(wheels: Path) -> None:
    """The target counts, not this machine."""
    write_wheel(wheels, "tqdm", "4.66.1")
    assert {"tqdm": "4.66.1"} == resolve(wheels, "tqdm", "pywin32 ; sys_platform == 'win32'")


def test_prerelease_is_taken_where_the_section_says_so(wheels: Path) -> None:
    """As `--pre` of pip has it."""
    write_wheel(wheels, "tqdm", "4.66.1")
    write_wheel(wheels, "tqdm", "5.0rc1")
    assert {"tqdm": "4.66.1"} == resolve(wheels, "tqdm")
    assert {"tqdm": "5.0rc1"} == resolve(wheels, "tqdm", prerelease=True)


def test_constraint_file_of_the_section_holds(wheels: Path, tmp_path: Path) -> None:
    """`-c constraints.txt`."""
    for version in ("4.66.1", "4.66.4"):
        write_wheel(wheels, "tqdm", version)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("tqdm<4.66.4\n")
    assert {"tqdm": "4.66.1"} == resolve(wheels, "tqdm", options=(f"-c {constraints}",))


def repository(folder: Path) -> tuple[str, Path]:
    """A git repository whose setup.py leaves a trace when it runs; its address at a commit, and the trace."""
    trace = folder / "it-ran"
    place = folder / "repository"
    place.mkdir()
    (place / "setup.py").write_text(
        f"import pathlib\npathlib.Path({str(trace)!r}).write_text('x')\n"
        "from setuptools import setup\nsetup(name='evil', version='1')\n"
    )
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(place)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    return f"git+{place.as_uri()}@{commit.strip()}", trace


def test_repository_is_not_built_unless_that_was_allowed(wheels: Path, tmp_path: Path) -> None:
    """A build runs the code of whoever wrote the environment file."""
    address, trace = repository(tmp_path)
    with pytest.raises(PipConflictError) as raised:
        resolve(wheels, f"evil @ {address}")
    assert ("--allow-build" in raised.value.hint, trace.exists()) == (True, False)


def test_requirement_that_cannot_be_read_is_an_input_error(wheels: Path) -> None:
    """Lint tells its line before; this is the last wall."""
    with pytest.raises(InputError) as raised:
        resolve(wheels, "tqdm==")
    assert "a requirement cannot be read" == raised.value.what


def test_index_that_does_not_answer_is_no_conflict(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 5, not 1: nothing is known about the requirements."""
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    request = PipRequest("linux-64", "3.10.14", ("tqdm",), ("--index-url http://127.0.0.1:9/simple",))
    with pytest.raises(NeededError) as raised:
        resolve_pip(request)
    assert ("uv failed", "pip part, linux-64") == (raised.value.what, raised.value.where)


def test_cache_that_lacks_what_is_asked_for_is_no_conflict(wheels: Path) -> None:
    """With `--offline` nothing is known about the index."""
    with pytest.raises(NeededError) as raised:
        resolve_pip(PipRequest("linux-64", "3.10.14", ("tqdm",), offline=True))
    assert "Run once without --offline." == raised.value.next_step


@pytest.mark.parametrize(
    ("platform", "glibc", "expected"),
    [
        ("linux-64", "2.28", "x86_64-manylinux_2_28"),
        ("linux-64", "2.30", "x86_64-manylinux_2_28"),
        ("linux-aarch64", "2.17", "aarch64-manylinux_2_17"),
        ("linux-64", "2.12", None),
        ("osx-arm64", "2.28", "aarch64-apple-darwin"),
        ("linux-ppc64le", "2.28", None),
    ],
)
def test_platform_of_uv_is_not_newer_than_the_target(platform: str, glibc: str, expected: str | None) -> None:
    """A wheel for a newer glibc would not load there."""
    assert expected == uv_platform(platform, {"__glibc": glibc})


def test_index_of_pip_is_asked(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is behind a mirror has its address in a file of pip that uv does not read."""
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/mirror")
    with pytest.raises(NeededError) as raised:
        resolve_pip(PipRequest("linux-64", "3.10.14", ("tqdm",)))
    assert "http://127.0.0.1:9/mirror/tqdm/" in raised.value.why


def test_release_without_a_wheel_is_refused_with_the_way_out(wheels: Path) -> None:
    """Its metadata could only be had by running its setup.py."""
    root = wheels / "old-1.0"
    root.mkdir()
    (root / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: old\nVersion: 1.0\n")
    (root / "setup.py").write_text("from setuptools import setup\nsetup(name='old', version='1.0')\n")
    with tarfile.open(wheels / "old-1.0.tar.gz", "w:gz") as archive:
        archive.add(root, "old-1.0")
    with pytest.raises(PipConflictError) as raised:
        resolve(wheels, "old==1.0")
    assert (True, True) == ("old" in raised.value.explanation, "--allow-build" in raised.value.hint)
