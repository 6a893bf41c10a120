"""`envaudit export`: from a lock or a past snapshot back to something that rebuilds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from envaudit.cli.export import _resolved
from envaudit.errors import InputError, NeededError, UsageError
from envaudit.lock.export import of_fingerprint, requirements, with_files
from envaudit.lock.lockfile import LockedPackage, parse_lock
from envaudit.model import Fingerprint, Section
from tests.lock.channel import LocalChannel, build_channel
from tests.lock.locks import BASE, lock_entry, pip_entry, small_lock, write_lock
from tests.lock.packages import running_python
from tests.lock.wheels_at_hand import write_wheel
from tests.lock.workplace import Workplace

LOCK = "train.conda-lock.yml"
NUMPY_URL = f"{BASE}/linux-64/numpy-1.26.4-py310hb13e2d6_0.conda"


@pytest.fixture
def lock(workplace: Workplace, train_channel: LocalChannel, tmp_path: Path) -> Path:
    """A lock of twelve conda packages and a wheel."""
    path = small_lock(workplace.folder / LOCK, train_channel)
    wheel, sha256 = write_wheel(tmp_path, "tiny-tool", "1.2.3")
    entries = [*yaml.safe_load(path.read_text())["package"], pip_entry(wheel, "tiny-tool", "1.2.3", sha256)]
    return write_lock(path, entries)


def test_export_explicit_has_every_url_with_its_hash(workplace: Workplace, lock: Path) -> None:
    """As conda takes it; the pip part is a comment, since conda's list has no place for it."""
    lines = workplace.run("export", LOCK, "--as", "explicit").out.splitlines()
    assert "@EXPLICIT" in lines
    urls = [line for line in lines if not line.startswith(("#", "@"))]
    assert 12 == len(urls)
    (numpy,) = [line for line in urls if "/numpy-" in line]
    md5 = next(p.md5 for p in parse_lock(lock.read_bytes(), LOCK).packages if p.name == "numpy")
    assert f"{NUMPY_URL}#{md5}" == numpy
    (pip,) = [line for line in lines if line.startswith("# pip ")]
    assert pip.startswith("# pip tiny-tool @ file://")


def test_export_takes_a_lock_under_another_ending(workplace: Workplace, lock: Path) -> None:
    """It is no snapshot that is not JSON."""
    lock.rename(workplace.folder / "train.lock")
    assert 0 == workplace.run("export", "train.lock", "--as", "explicit").code


def test_export_environment_is_an_environment_file_with_builds(workplace: Workplace, lock: Path) -> None:
    """Read back by YAML and by lint."""
    ended = workplace.run("export", LOCK, "--as", "environment", "-o", "environment.yml")
    assert (0, "") == (ended.code, ended.out)
    document = yaml.safe_load((workplace.folder / "environment.yml").read_text())
    assert ("train", [BASE, "nodefaults"]) == (document["name"], document["channels"])
    assert "numpy=1.26.4=py310hb13e2d6_0" in document["dependencies"]
    assert {"pip": ["tiny-tool==1.2.3"]} == document["dependencies"][-1]
    linted = workplace.run("lint", "environment.yml")
    assert 0 == linted.code, linted.out


def test_export_requirements_have_hashes(workplace: Workplace, lock: Path) -> None:
    """The pip part as pip takes it; conda's packages are comments."""
    text = workplace.run("export", LOCK, "--as", "requirements", "-o", "-").out
    (line,) = [line for line in text.splitlines() if not line.startswith("#")]
    assert line.startswith("tiny-tool==1.2.3 --hash=sha256:")
    assert "#   numpy=1.26.4" in text


def test_export_conda_lock_is_read_by_conda_lock_itself(workplace: Workplace, lock: Path) -> None:
    """And holds the same packages as the lock it came from."""
    from conda_lock.lockfile import parse_conda_lock_file

    assert 0 == workplace.run("export", LOCK, "--as", "conda-lock", "-o", "again.yml").code
    again = parse_conda_lock_file(workplace.folder / "again.yml")
    before = parse_conda_lock_file(lock)
    assert sorted(map(str, before.package)) == sorted(map(str, again.package))
    assert before.metadata.content_hash == again.metadata.content_hash


def test_export_of_a_lock_of_many_platforms_needs_one(workplace: Workplace, lock: Path) -> None:
    """A platform that it lacks is a usage error with those that it has."""
    ended = workplace.run("export", LOCK, "--as", "explicit", "--platform", "win-64")
    assert (2, True) == (ended.code, "It has linux-64" in ended.err)


@pytest.mark.parametrize("form", ["explicit", "environment", "conda-lock"])
def test_export_of_a_lock_needs_no_value_for_the_variables_of_its_channels(
    workplace: Workplace, train_channel: LocalChannel, form: str
) -> None:
    """Nothing is fetched: who has the lock has not always the credentials."""
    channel = "https://conda.example/t/${TRAIN_TOKEN}/train"
    small_lock(workplace.folder / LOCK, train_channel, base=channel)
    ended = workplace.run("export", LOCK, "--as", form)
    assert (0, True) == (ended.code, channel in ended.out), ended.err


@pytest.fixture
def snapshot(workplace: Workplace, tmp_path: Path) -> str:
    """A stored snapshot, tagged good, of an installed environment."""
    channel = build_channel(tmp_path / "running", more=[running_python()])
    workplace.mirror({BASE: channel.url})
    python = running_python()[1]
    entries = [
        lock_entry(channel, f"python-{python['version']}-0_running"),
        lock_entry(channel, "ca-certificates-2024.2.2-hbcca054_0"),
    ]
    write_lock(tmp_path / LOCK, entries)
    assert 0 == workplace.run("install", LOCK, "--prefix", "env").code
    ended = workplace.run("snapshot", "--python", str(tmp_path / "env/bin/python"), "--tag", "good")
    assert ended.code in (0, 3), ended.err
    (node,) = [path.name for path in (tmp_path / ".envaudit/tags/good").iterdir()]
    return node.removesuffix(".json")


def test_export_of_a_past_snapshot_rebuilds_the_environment(workplace: Workplace, snapshot: str) -> None:
    """Snapshot to lock to a second environment, which verifies against the first lock."""
    ended = workplace.run("export", f"{snapshot}@good", "--as", "conda-lock", "-o", "past.conda-lock.yml")
    assert 0 == ended.code, ended.err
    assert 0 == workplace.run("install", "past.conda-lock.yml", "--prefix", "again").code
    assert 0 == workplace.run("verify", LOCK, "--prefix", "again").code


def test_export_of_a_past_snapshot_as_a_list(workplace: Workplace, snapshot: str) -> None:
    """The canonical addresses with their hashes."""
    text = workplace.run("export", f"{snapshot}@good", "--as", "explicit").out
    assert f"{BASE}/linux-64/ca-certificates-2024.2.2-hbcca054_0.conda#" in text
    ended = workplace.run("export", f"{snapshot}@good", "--as", "explicit", "--platform", "osx-arm64")
    assert (2, "") == (ended.code, ended.out), ended.err


def test_export_of_a_past_snapshot_as_an_environment_file(workplace: Workplace, snapshot: str) -> None:
    """Versions, builds, channels."""
    text = workplace.run("export", f"{snapshot}@good", "--as", "environment").out
    document = yaml.safe_load(text)
    assert "ca-certificates=2024.2.2=hbcca054_0" in document["dependencies"]
    assert [BASE, "nodefaults"] == document["channels"]


def test_export_of_an_environment_without_conda_is_of_requirements() -> None:
    """Its wheels are those of its own Python; a list for conda would leave that Python out."""
    sections = {
        "conda": Section("conda", 1, "absent", {}, {}),
        "packages": Section("packages", 1, "ok", {"distributions": {"attrs": {"version": "24.2.0"}}}, {}),
        "python": Section("python", 1, "ok", {"version": "3.11.7"}, {}),
    }
    environment = of_fingerprint(Fingerprint("n1", "probe", "2026-11-30T10:00:00Z", "1.0", sections))
    asked: list[tuple[tuple[str, ...], str]] = []

    def resolve(lines: Sequence[str], python: str, platform: str) -> Sequence[LockedPackage]:
        asked.append((tuple(lines), python))
        return [replace(package, sha256="00" * 32) for package in environment.pip]

    text = requirements(with_files(environment, resolve, "requirements"))
    assert [(("attrs==24.2.0",), "3.11.7")] == asked
    assert f"attrs==24.2.0 --hash=sha256:{'00' * 32}\n" in text
    for form in ("explicit", "conda-lock"):
        with pytest.raises(UsageError, match=r"of no conda package.*--as requirements"):
            with_files(environment, resolve, form)


@pytest.mark.parametrize(
    ("conda", "pip"),
    [
        ({}, {"a": {"version": "1.0\n--index-url https://h/"}}),
        ({}, {"--index-url=https://h/": {"version": "1.0"}}),
        ({}, {"": {"version": "1.0"}}),
        ({}, {"a": {"version": "1", "direct_url": {"url": "https://h/a.whl\n-e ."}}}),
        ({"a": {"version": "1", "build": "0\nvariables: {PATH: x}", "channel": "c"}}, {}),
        ({"a": {"version": "1", "build": "0", "channel": "c\nvariables: {PATH: x}"}}, {}),
        ({"a": {"version": "1", "build": "0", "channel": "c", "md5": "0" * 32 + "\nhttps://h/x.conda"}}, {}),
    ],
)
def test_export_of_a_node_that_says_more_than_a_word_is_refused(
    conda: dict[str, dict[str, str]], pip: dict[str, dict[str, object]]
) -> None:
    """What rebuilds an environment is run by pip and conda, and a node may have said anything."""
    of_pip = {name: {**facts, "installer": "pip"} for name, facts in pip.items()}
    sections = {
        "conda": Section("conda", 1, "ok", {"packages": {**conda, "b": 5}}),
        "packages": Section("packages", 1, "ok", {"distributions": of_pip}),
    }
    node = Fingerprint("n1", "probe", "2026-11-30T10:00:00Z", "1.0", sections)
    with pytest.raises(InputError, match="so it is not exported"):
        of_fingerprint(node)


def test_export_environment_names_a_folder_with_spaces_as_the_lock_does(
    workplace: Workplace, train_channel: LocalChannel
) -> None:
    """It is one line, and read back by YAML as what it was."""
    folder = f"{workplace.folder}/my: chan #1 \N{LATIN SMALL LETTER U WITH DIAERESIS}"
    entries = [lock_entry(train_channel, "tzdata-2024a", base=Path(folder).as_uri())]
    write_lock(workplace.folder / LOCK, entries, channels=(folder,))
    ended = workplace.run("export", LOCK, "--as", "environment")
    assert 0 == ended.code, ended.err
    assert [folder, "nodefaults"] == yaml.safe_load(ended.out)["channels"]


def test_export_of_a_lock_with_a_line_in_a_source_is_refused(workplace: Workplace, tmp_path: Path) -> None:
    """A lock comes with a repository, and its requirements go to pip."""
    wheel, sha256 = write_wheel(tmp_path, "tiny-tool", "1.2.3")
    source = {"type": "url", "url": f"{wheel.as_uri()}\n--index-url https://h/"}
    entry = {**pip_entry(wheel, "tiny-tool", "1.2.3", sha256), "source": source}
    write_lock(workplace.folder / LOCK, [entry])
    ended = workplace.run("export", LOCK, "--as", "requirements")
    assert (4, "", True) == (ended.code, ended.out, "so it is not exported" in ended.err), ended.err


def test_export_of_a_build_that_the_index_lacks_names_the_variable_for_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A version with a `+` is on no general index."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", tmp_path.as_uri())
    with pytest.raises(NeededError, match="UV_INDEX"):
        _resolved(["torch==2.5.1+cu121"], "3.11.7", "linux-64")
    with pytest.raises(NeededError, match="--as environment"):
        _resolved(["torch==2.5.1"], "3.11.7", "linux-64")


def test_export_of_an_unknown_tag_says_so(workplace: Workplace, snapshot: str) -> None:
    """The nearest tag is named."""
    ended = workplace.run("export", f"{snapshot}@god", "--as", "explicit")
    assert (2, True) == (ended.code, "good" in ended.err), ended.err
