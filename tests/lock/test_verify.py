"""`envaudit verify`: a real environment against its lock, whole, tampered with, and on nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ended
from tests.lock.channel import LocalChannel, build_channel
from tests.lock.locks import BASE, lock_entry, pip_entry, small_lock, write_lock
from tests.lock.packages import running_python
from tests.lock.wheels_at_hand import write_wheel
from tests.lock.workplace import Workplace

LOCK = "train.conda-lock.yml"
SITE = "lib/python3.10/site-packages"
NUMPY_RECORD = "conda-meta/numpy-1.26.4-py310hb13e2d6_0.json"


@pytest.fixture
def env(workplace: Workplace, train_channel: LocalChannel) -> Path:
    """An environment as its lock says."""
    small_lock(workplace.folder / LOCK, train_channel)
    assert 0 == workplace.run("install", LOCK, "--prefix", "env").code
    return workplace.folder / "env"


def change_record(path: Path, **changes: object) -> None:
    """Write other values into a record of conda-meta; None takes a key away."""
    record = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in record.items() if value is not None}))


def test_verify_of_a_fresh_install_passes(workplace: Workplace, env: Path) -> None:
    """Every package, and every file hashed."""
    ended = workplace.run("verify", LOCK, "--prefix", "env")
    assert (0, True) == (ended.code, ended.verdict.startswith("PASS 1 node as locked, 12 packages"))
    assert "hashed" in ended.out


def test_verify_reads_a_prefix_without_running_anything_of_it(workplace: Workplace, env: Path) -> None:
    """A python that would leave a trace, and a .pth file that would, are not started."""
    python = env / "bin/python3.10"
    python.write_text(f"#!/bin/sh\ntouch {workplace.folder}/ran\n")
    (env / SITE / "evil.pth").write_text(f"import os; os.system('touch {workplace.folder}/ran')\n")
    assert 0 == workplace.run("verify", LOCK, "--prefix", "env", "--integrity", "none").code
    assert not (workplace.folder / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "rule", "path"),
    [
        ({"version": "1.26.3"}, "EA202", "conda/packages/numpy/version"),
        ({"build": "py310_other"}, "EA203", "conda/packages/numpy/build"),
        (
            {"channel": "https://conda.anaconda.org/conda-forge", "md5": None, "sha256": None},
            "EA204",
            "conda/packages/numpy/channel",
        ),
        ({"sha256": "0" * 64, "md5": "0" * 32}, "EA205", "conda/packages/numpy/sha256"),
    ],
)
def test_verify_of_another_record_names_what_differs(
    workplace: Workplace, env: Path, changes: dict[str, object], rule: str, path: str
) -> None:
    """One cause, one finding: version before build before channel before hash."""
    change_record(env / NUMPY_RECORD, **changes)
    ended = workplace.run("verify", LOCK, "--prefix", "env", "--format", "json")
    assert (1, [rule]) == (ended.code, ended.rules)
    (finding,) = ended.json["findings"]
    assert path == finding["path"]
    assert "lock" == ended.json["drifts"][0]["basis"]


def test_verify_takes_the_same_file_from_another_channel_for_the_same(
    workplace: Workplace, env: Path
) -> None:
    """The hash is that of the lock: through which mirror it came is no difference."""
    change_record(env / NUMPY_RECORD, channel="https://mirror.corp.example/whatever")
    assert 0 == workplace.run("verify", LOCK, "--prefix", "env").code


def test_verify_without_hashes_in_old_records_still_compares_the_rest(
    workplace: Workplace, env: Path
) -> None:
    """Old conda wrote no sha256: what a record lacks is no difference."""
    change_record(env / NUMPY_RECORD, sha256=None)
    assert 0 == workplace.run("verify", LOCK, "--prefix", "env").code
    change_record(env / NUMPY_RECORD, build="other")
    assert 1 == workplace.run("verify", LOCK, "--prefix", "env").code


def test_verify_names_missing_and_extra_packages(workplace: Workplace, env: Path) -> None:
    """A removed package, and one that somebody added."""
    (env / "conda-meta/wheel-0.43.0-pyhd8ed1ab_1.json").unlink()
    record = json.loads((env / NUMPY_RECORD).read_text())
    (env / "conda-meta/scipy-1.13.0-0.json").write_text(json.dumps({**record, "name": "scipy", "files": []}))
    ended = workplace.run("verify", LOCK, "--prefix", "env", "--integrity", "none", "--format", "json")
    assert (1, ["EA200", "EA201"]) == (ended.code, ended.rules)
    paths = [finding["path"] for finding in ended.json["findings"]]
    assert ["conda/packages/wheel", "conda/packages/scipy"] == paths


def test_verify_names_the_file_that_was_changed_on_disk(workplace: Workplace, env: Path) -> None:
    """The records say what was installed; the file says something else."""
    module = env / SITE / "numpy/__init__.py"
    module.write_text(module.read_text().replace("1.26.4", "1.26.3"))
    (env / SITE / "jinja2/__init__.py").unlink()
    ended = workplace.run("verify", LOCK, "--prefix", "env")
    assert 1 == ended.code
    assert "EA206  numpy: 1 file changed on disk since the install" in ended.out
    assert f"{SITE}/numpy/__init__.py" in ended.out
    assert f"{SITE}/jinja2/__init__.py is missing" in ended.out


def test_verify_by_size_reads_no_file_and_sees_no_edit_of_the_same_size(
    workplace: Workplace, env: Path
) -> None:
    """One flipped byte is for `hash`; what lies beside a package's files is seen either way."""
    module = env / SITE / "numpy/__init__.py"
    module.write_bytes(module.read_bytes()[:-1] + b" ")
    by_size = workplace.run("verify", LOCK, "--prefix", "env", "--integrity", "size")
    assert (0, True) == (by_size.code, "of the size recorded" in by_size.out), by_size.out
    assert 1 == workplace.run("verify", LOCK, "--prefix", "env").code
    (module.parent / "patch.py").write_text("import os\n")
    ended = workplace.run("verify", LOCK, "--prefix", "env", "--integrity", "size", "--format", "json")
    assert (0, ["EA260"]) == (ended.code, ended.rules)
    assert [f"{SITE}/numpy/patch.py"] == ended.json["findings"][0]["evidence"]


def test_verify_with_a_cache_reads_only_what_was_touched(workplace: Workplace, env: Path) -> None:
    """The second look hashes nothing, an edit of the same size is found, and `none` needs no cache."""
    words = ("verify", LOCK, "--prefix", "env", "--integrity", "size", "--integrity-cache", "digests")
    for _ in range(2):
        ended = workplace.run(*words)
        assert (0, True) == (ended.code, "hashed, now or before" in ended.out), ended.out
    module = env / SITE / "numpy/__init__.py"
    module.write_bytes(module.read_bytes()[:-1] + b" ")
    assert 1 == workplace.run(*words).code
    assert 2 == workplace.run("verify", LOCK, "--integrity", "none", "--integrity-cache", "digests").code


def test_verify_of_a_file_with_the_prefix_in_it_takes_the_installed_hash(
    workplace: Workplace, env: Path
) -> None:
    """openssl.cnf was changed by the install itself: only a later change counts."""
    assert 0 == workplace.run("verify", LOCK, "--prefix", "env").code
    (env / "ssl/openssl.cnf").write_text("changed")
    assert "EA206  openssl" in workplace.run("verify", LOCK, "--prefix", "env").out


def install_by_pip(env: Path, name: str, version: str) -> None:
    """What `pip install NAME==VERSION` leaves: its own metadata instead of conda's."""
    for path in (env / SITE).glob(f"{name}-*.dist-info"):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    about = env / SITE / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "INSTALLER").write_text("pip\n")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "RECORD").write_text(f"{about.name}/RECORD,,\n")


def test_verify_of_pip_over_conda_with_another_version_is_an_error(workplace: Workplace, env: Path) -> None:
    """What is imported is not what was locked, though conda's record still says so."""
    install_by_pip(env, "numpy", "2.1.0")
    ended = workplace.run("verify", LOCK, "--prefix", "env", "--format", "json")
    assert (1, ["EA202"]) == (ended.code, ended.rules)
    assert "packages/distributions/numpy/version" == ended.json["findings"][0]["path"]


def test_verify_of_pip_over_conda_with_the_same_version_is_a_warning(workplace: Workplace, env: Path) -> None:
    """The same numbers come out today; conda's next change takes half of it back."""
    install_by_pip(env, "numpy", "1.26.4")
    ended = workplace.run("verify", LOCK, "--prefix", "env", "--format", "json")
    assert (0, ["EA207"]) == (ended.code, ended.rules)
    assert "pip numpy lies over conda's" == ended.json["findings"][0]["message"]


def test_verify_names_what_pip_brought_beyond_the_lock(workplace: Workplace, env: Path) -> None:
    """A `pip install` after the fact."""
    install_by_pip(env, "wandb", "0.17.0")
    ended = workplace.run("verify", LOCK, "--prefix", "env", "--format", "json")
    assert (1, ["EA201"]) == (ended.code, ended.rules)
    assert "packages/distributions/wandb" == ended.json["findings"][0]["path"]


def test_verify_leaves_development_installs_alone(workplace: Workplace, env: Path) -> None:
    """The user's own checkout is no part of any lock."""
    install_by_pip(env, "training", "0.1")
    origin = {"url": "file:///home/ann/training", "dir_info": {"editable": True}}
    (env / SITE / "training-0.1.dist-info/direct_url.json").write_text(json.dumps(origin))
    assert 0 == workplace.run("verify", LOCK, "--prefix", "env").code


def test_verify_holds_the_pip_part_too(workplace: Workplace, tmp_path: Path) -> None:
    """Version and files of a wheel that the lock has."""
    channel = build_channel(tmp_path / "running", more=[running_python()], recipes=False)
    workplace.mirror({BASE: channel.url})
    wheel, sha256 = write_wheel(tmp_path, "tiny-tool", "1.2.3")
    entries = [lock_entry(channel, "python-"), pip_entry(wheel, "tiny-tool", "1.2.3", sha256)]
    write_lock(tmp_path / LOCK, entries)
    assert 0 == workplace.run("install", LOCK, "--prefix", "env").code
    (module,) = (tmp_path / "env").rglob("tiny_tool.py")
    module.write_text("changed\n")
    ended = workplace.run("verify", LOCK, "--prefix", "env")
    assert (1, True) == (ended.code, "EA206  pip:tiny-tool: 1 file changed" in ended.out), ended.out
    entries[1]["version"] = "1.2.4"
    write_lock(tmp_path / LOCK, entries)
    ended = workplace.run("verify", LOCK, "--prefix", "env", "--integrity", "none", "--format", "json")
    assert (1, ["EA202"]) == (ended.code, ended.rules)


def test_verify_of_a_prefix_that_is_no_environment_is_no_pass(workplace: Workplace, env: Path) -> None:
    """An empty folder has nothing of the lock."""
    (workplace.folder / "empty").mkdir()
    ended = workplace.run("verify", LOCK, "--prefix", "empty", "--format", "json")
    assert (1, ["EA209"]) == (ended.code, ended.rules)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("verify", LOCK, "--prefix", "nowhere"), 2, "is no folder"),
        (("verify", "nothing.yml", "--prefix", "env"), 4, "nothing.yml"),
        (("verify", LOCK, "--prefix", "env", "--nodes", "n1"), 2, "it takes no nodes"),
        (("verify", LOCK, "--prefix", "env", "--category", "dve"), 2, "has no category 'dve'"),
        (("bundle", "--lock", LOCK, "--category", "dve"), 2, "has no category 'dve'"),
    ],
)
def test_verify_of_what_cannot_be_says_why(
    workplace: Workplace, env: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    """Usage and unreadable input have their own codes."""
    ended = workplace.run(*words)
    assert (code, True) == (ended.code, said in ended.err), ended.err


def test_verify_for_another_platform_than_the_lock_s_is_no_pass(workplace: Workplace, env: Path) -> None:
    """Nothing could be compared, so nothing passes; and nothing is too much there."""
    words = (
        "verify",
        LOCK,
        "--prefix",
        "env",
        "--platform",
        "osx-arm64",
        "--integrity",
        "none",
        "--format",
        "json",
    )
    ended = workplace.run(*words)
    assert (1, ["EA209"]) == (ended.code, ended.rules)


@pytest.fixture
def two_nodes(workplace: Workplace, tmp_path: Path) -> Callable[..., Ended]:
    """Nodes n1 and n2 with an environment each, from one lock; runs a command over them."""
    channel = build_channel(tmp_path / "running", more=[running_python()], recipes=False)
    workplace.mirror({BASE: channel.url})
    write_lock(tmp_path / LOCK, [lock_entry(channel, "python-")])
    for node in ("n1", "n2"):
        assert 0 == workplace.run("install", LOCK, "--prefix", f"env-{node}").code
        (tmp_path / node).write_text('#!/bin/sh\nexec "$@"\n')
        (tmp_path / node).chmod(0o755)
    interpreters = "".join(f'"{node}" = "{tmp_path}/env-{node}/bin/python"\n' for node in ("n1", "n2"))
    (tmp_path / "nodes.toml").write_text(
        f'[nodes]\ntransport = "exec"\ncommand = "{tmp_path}/{{node}} {{python}}"\n'
        f"[nodes.interpreters]\n{interpreters}"
    )
    return lambda *words: workplace.run(*words, "--config", "nodes.toml", "--format", "json")


def test_verify_over_nodes_passes_where_all_are_as_locked(two_nodes: Callable[..., Ended]) -> None:
    """Through the transport, with the interpreter of each node's own environment."""
    ended = two_nodes("verify", LOCK, "--nodes", "n[1-2]")
    assert (0, []) == (ended.code, ended.rules), ended.json["findings"]


def test_verify_over_nodes_names_the_one_that_differs(
    two_nodes: Callable[..., Ended], workplace: Workplace
) -> None:
    """Another record on n2: n2 is named, and nobody else."""
    (record,) = (workplace.folder / "env-n2/conda-meta").glob("python-*.json")
    change_record(record, build="1_other")
    ended = two_nodes("verify", LOCK, "--nodes", "n[1-2]")
    assert (1, ["EA203"]) == (ended.code, ended.rules)
    assert ["n2"] == ended.json["findings"][0]["nodes"]


def test_verify_over_nodes_with_one_silent_is_incomplete(
    two_nodes: Callable[..., Ended], workplace: Workplace
) -> None:
    """No answer is no pass."""
    (workplace.folder / "n2").write_text("#!/bin/sh\nexit 1\n")
    ended = two_nodes("verify", LOCK, "--nodes", "n[1-2]")
    assert (3, ["EA901"]) == (ended.code, ended.rules)
