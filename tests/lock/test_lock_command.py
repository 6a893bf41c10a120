"""`envaudit lock` on the local channel, with a conda-free PATH."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from envaudit.errors import UsageError
from envaudit.lock.lockfile import LockedPackage, read_lock
from envaudit.lock.pippart import _refuse_secrets
from envaudit.lock.pylock import PipPackage
from tests.lock.channel import LocalChannel, served
from tests.lock.locks import write_lock
from tests.lock.sources import CHANNEL, source_of
from tests.lock.test_pip import write_wheel
from tests.lock.workplace import Ended, Workplace

GOOD = ("python=3.10", "pytorch=2.0.1", "pytorch-cuda=11.8", "torchvision", "numpy>=1.20", "numpy<2")
LOCK = "conda-lock.yml"


def locked(place: Workplace, path: str = LOCK, platform: str = "linux-64") -> dict[str, LockedPackage]:
    """The packages of a lock by name."""
    lock = read_lock(str(place.folder / path))
    return {package.name: package for package in lock.of(platform, categories=None)}


def lock(place: Workplace, *dependencies: str, options: Sequence[str] = (), **more: object) -> Ended:
    """Write environment.yml and lock it, with a report in JSON."""
    source_of(place.folder, *dependencies, **more)  # type: ignore[arg-type]
    return place.run("lock", "--format", "json", *options)


def paths_of(ended: Ended, rule: str) -> list[str]:
    """Where the findings of a rule are."""
    return [finding["path"] for finding in ended.json["findings"] if finding["rule"] == rule]


def message_of(ended: Ended, rule: str) -> str:
    """The one finding of a rule."""
    (finding,) = (finding for finding in ended.json["findings"] if finding["rule"] == rule)
    return str(finding["message"])


def test_environment_is_locked_with_every_spec_met(workplace: Workplace) -> None:
    """Two specs of one name hold together; every package has its channel's canonical name and hashes."""
    ended = lock(workplace, *GOOD)
    packages = locked(workplace)
    assert (0, []) == (ended.code, [rule for rule in ended.rules if rule > "EA050"])
    assert ("1.26.4", "py3.10_cuda11.8_cudnn8.7.0_0") == (
        packages["numpy"].version,
        packages["pytorch"].build,
    )
    assert {CHANNEL} == {package.channel for package in packages.values()}
    assert all(package.md5 and package.sha256 for package in packages.values())


def test_conda_lock_reads_the_lock_and_agrees_on_the_content_hash(workplace: Workplace) -> None:
    """Its own parser, its own spec of the same file, its own comparison."""
    from conda_lock.content_hash import backwards_compatible_content_hashes
    from conda_lock.lockfile import parse_conda_lock_file
    from conda_lock.src_parser import make_lock_spec
    from conda_lock.virtual_package import default_virtual_package_repodata

    from envaudit.lock.names import TABLE

    lock(workplace, *GOOD)
    content = parse_conda_lock_file(workplace.folder / LOCK)
    spec = make_lock_spec(
        src_files=[workplace.folder / "environment.yml"],
        platform_overrides=["linux-64"],
        mapping_url=f"file://{TABLE}",
    )
    accepted = backwards_compatible_content_hashes(spec, default_virtual_package_repodata(), "linux-64")
    assert content.metadata.content_hash["linux-64"] in accepted
    assert set(locked(workplace)) == {package.name for package in content.package}


def test_same_inputs_give_the_same_bytes(workplace: Workplace) -> None:
    """And the second run says that nothing has changed."""
    lock(workplace, *GOOD)
    before = (workplace.folder / LOCK).read_bytes()
    again = workplace.run("lock")
    assert before == (workplace.folder / LOCK).read_bytes()
    assert again.verdict.startswith("PASS conda-lock.yml is as it was: linux-64 ")


def test_two_platforms_are_locked_at_once(workplace: Workplace) -> None:
    """Each with its own builds."""
    ended = lock(workplace, "python=3.10", "numpy=1.26", options=["-p", "linux-64", "-p", "osx-arm64"])
    builds = [locked(workplace, platform=each)["numpy"].build for each in ("linux-64", "osx-arm64")]
    assert (0, ["py310hb13e2d6_0", "py310hd45542a_0"]) == (ended.code, builds)


def test_cudatoolkit_that_gives_a_cpu_build_fails_and_names_what_solves(workplace: Workplace) -> None:
    """The trap people come for; the good lock that is there stays as it was."""
    lock(workplace, *GOOD)
    before = (workplace.folder / LOCK).read_bytes()
    ended = lock(workplace, "python=3.10", "pytorch=2.0.1", "cudatoolkit=11.8")
    (finding,) = (finding for finding in ended.json["findings"] if finding["rule"] == "EA080")
    assert (1, "environment.yml:6:5") == (ended.code, finding["path"])
    assert "Write pytorch=2.0.1=*cuda*: it solves." == finding["hint"]
    assert "EA082" in ended.rules
    assert before == (workplace.folder / LOCK).read_bytes()


def test_plain_pytorch_that_gives_a_cpu_build_is_a_warning_that_says_what_was_tried(
    workplace: Workplace,
) -> None:
    """The assumed driver is too old for the CUDA build, and the advice says so."""
    ended = lock(workplace, "python=3.10", "pytorch>=2.6")
    (finding,) = (finding for finding in ended.json["findings"] if finding["rule"] == "EA081")
    assert (0, "warning") == (ended.code, finding["severity"])
    assert "pytorch >=2.6 *cuda* and pytorch-gpu were tried and do not solve" in finding["hint"]


@pytest.mark.parametrize(
    ("cuda", "variant"), [("12.6", "cuda126_mkl_py310_h8a6f1c2_300"), ("none", "cpu_mkl_py310_h3d4f5b8_100")]
)
def test_driver_that_is_named_decides_the_build(workplace: Workplace, cuda: str, variant: str) -> None:
    """With `--cuda none` a CPU build is what was asked for."""
    ended = lock(workplace, "python=3.10", "pytorch>=2.6", options=["--cuda", cuda])
    assert (0, variant, False) == (ended.code, locked(workplace)["pytorch"].build, "EA081" in ended.rules)


def test_name_that_no_channel_has_is_told_with_the_nearest(workplace: Workplace) -> None:
    """Exit 1, at the line of the spec, and no lock."""
    ended = lock(workplace, "python=3.10", "openssh-client")
    (finding,) = (finding for finding in ended.json["findings"] if finding["rule"] == "EA050")
    assert (1, "environment.yml:5:5") == (ended.code, finding["path"])
    assert "No channel has 'openssh-client' for linux-64; did you mean 'openssh'?" in finding["hint"]
    assert not (workplace.folder / LOCK).exists()


def test_lock_is_fresh_until_its_source_changes(workplace: Workplace) -> None:
    """Spacing is no change; what did change is named."""
    lock(workplace, "python=3.10", "numpy>=1.20")
    assert "PASS conda-lock.yml is fresh" in workplace.run("lock", "--check").verdict
    source_of(workplace.folder, "numpy >=1.20  # arrays", "python =3.10")
    assert 0 == workplace.run("lock", "--check").code
    source_of(workplace.folder, "python=3.10", "numpy>=1.26", channels=[CHANNEL, "pytorch"])
    ended = workplace.run("lock", "--check", "--format", "json")
    assert (1, "stale: channels: +pytorch; numpy: >=1.20 → >=1.26") == (
        ended.code,
        message_of(ended, "EA060"),
    )


def test_source_that_a_lock_names_is_a_file_and_nothing_to_wait_for(workplace: Workplace) -> None:
    """A pipe is for the user to name: one without a writer would keep a check for ever."""
    write_lock(workplace.folder / LOCK, [])
    source = workplace.folder / "environment.yml"
    os.mkfifo(source)
    ended = workplace.run("lock", "--check")
    assert (4, True) == (ended.code, "a device or a pipe, expected a file" in ended.err), ended.err
    writer = threading.Thread(
        target=source.write_text, args=("channels: [a]\ndependencies: [numpy]\n",), daemon=True
    )
    writer.start()
    assert 0 == workplace.run("lint", "environment.yml").code


def test_platforms_that_were_chosen_by_hand_stay_fresh(workplace: Workplace) -> None:
    """`-p` of the lock needs not be given to `--check`; platforms that change in the source count."""
    for platforms, code in (("linux-64, osx-arm64", 0), ("linux-64, win-64", 1)):
        source_of(workplace.folder, "python=3.10", more=f"platforms: [{platforms}]")
        if code == 0:
            workplace.run("lock", "-p", "linux-64")
        ended = workplace.run("lock", "--check", "--format", "json")
        assert code == ended.code
    assert "stale: platforms: +win-64, -osx-arm64" == message_of(ended, "EA060")
    asked = workplace.run("lock", "--check", "-p", "osx-64", "--format", "json")
    assert "stale: platforms: +osx-64, -linux-64" == message_of(asked, "EA060")


def test_cached_index_with_the_token_of_its_address_is_the_users_alone(
    workplace: Workplace, channels_root: Path
) -> None:
    """On a cluster others may read what lies in the home folder."""
    workplace.environment["CHANNEL_TOKEN"] = "tok-en"
    with served(channels_root, token="tok-en") as server:
        channel = f"{server.url}/t/${{CHANNEL_TOKEN}}/train"
        assert 0 == lock(workplace, "python=3.10", channels=[channel]).code
    cache = workplace.folder / "cache" / "rattler"
    kept = [path for path in cache.rglob("*") if path.is_file() and b"tok-en" in path.read_bytes()]
    assert kept
    assert [] == [path.name for path in kept if path.stat().st_mode & 0o077]


def test_lock_of_another_tool_is_judged_by_its_content_hash(workplace: Workplace) -> None:
    """Without what envaudit keeps in its metadata, the specs that it does not meet are the cause."""
    lock(workplace, "python=3.10", "numpy=1.24")
    path = workplace.folder / LOCK
    lines = path.read_text().splitlines(keepends=True)
    start = next(place for place, line in enumerate(lines) if line.startswith("  custom_metadata"))
    end = next(place for place, line in enumerate(lines) if line.startswith("package:"))
    path.write_text("".join(lines[:start] + lines[end:]))
    assert 0 == workplace.run("lock", "--check").code
    source_of(workplace.folder, "python=3.10", "numpy=2.0.1", "jinja2")
    ended = workplace.run("lock", "--check", "--format", "json")
    expected = "stale: numpy=2.0.1: the lock has 1.24.4 py310h8deb116_0; jinja2: the lock has none"
    assert (1, expected) == (ended.code, message_of(ended, "EA060"))


def test_package_that_is_asked_for_with_its_hash_is_that_file(
    workplace: Workplace, train_channel: LocalChannel
) -> None:
    """As an explicit list has it, behind the `#`: another file of that name is no solution."""
    path = train_channel.package("psutil-5.9.8-py310h2372")
    digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    for hexadecimal, code in ((digest, 0), ("0" * 32, 1)):
        url = f"{CHANNEL}/linux-64/{path.name}#{hexadecimal}"
        assert code == lock(workplace, "python=3.10", url, options=["-o", f"{code}.yml"]).code
    assert digest == locked(workplace, "0.yml")["psutil"].md5


def test_channels_that_are_fetched_from_one_folder_keep_their_packages_apart(
    workplace: Workplace, train_channel: LocalChannel
) -> None:
    """A server may have several in one: what a spec asks of the second is from the second."""
    workplace.mirror({"first": train_channel.url, "second": train_channel.url})
    ended = lock(workplace, "python=3.10", "second::psutil", channels=["first", "second"])
    assert (0, []) == (ended.code, paths_of(ended, "EA061")), ended.out
    assert "second" == locked(workplace)["psutil"].channel.rpartition("/")[2]


def test_update_moves_what_is_named_and_nothing_else(workplace: Workplace) -> None:
    """Newer versions of the others are there, and stay where they are."""
    lock(workplace, "python=3.10.13", "numpy=1.24.4", "openssl=3.1.4")
    source_of(workplace.folder, "python=3.10", "numpy", "openssl")
    assert 0 == workplace.run("lock", "--update", "numpy").code
    packages = locked(workplace)
    assert ("2.0.1", "3.1.4", "3.10.13") == tuple(
        packages[name].version for name in ("numpy", "openssl", "python")
    )


def test_update_that_finds_nothing_newer_leaves_every_byte(workplace: Workplace) -> None:
    """Names count as the index has them; pip stays a dependency of python."""
    lock(workplace, "python=3.10", "numpy")
    ended = workplace.run("lock", "--update", "NumPy")
    assert (0, "PASS conda-lock.yml is as it was") == (ended.code, ended.verdict[:32])


def test_update_of_a_name_that_is_not_locked_suggests_one(workplace: Workplace) -> None:
    """A typing error must not be a success."""
    lock(workplace, "python=3.10", "numpy")
    ended = workplace.run("lock", "--update", "nunpy")
    assert 2 == ended.code
    assert "the lock has no package 'nunpy'. Did you mean 'numpy'?" in ended.err


def test_update_keeps_what_the_lock_was_made_for(workplace: Workplace) -> None:
    """`--cuda` of the first run needs not be given again."""
    lock(workplace, "python=3.10", "pytorch>=2.6", options=["--cuda", "12.6"])
    assert 0 == workplace.run("lock", "--update", "jinja2").code
    assert locked(workplace)["pytorch"].build.startswith("cuda126")


@pytest.mark.parametrize(
    ("channels", "options", "why"),
    [
        ([CHANNEL], ["-p", "linux-64"], "(platforms: linux-64, osx-arm64)"),
        ([CHANNEL, "pytorch"], [], "(channels: pytorch)"),
    ],
)
def test_update_does_not_change_what_the_lock_is_for(
    workplace: Workplace, channels: list[str], options: list[str], why: str
) -> None:
    """A platform that nobody names must not vanish, nor a new channel move everything."""
    lock(workplace, "python=3.10", "numpy", options=["-p", "linux-64", "-p", "osx-arm64"])
    source_of(workplace.folder, "python=3.10", "numpy", channels=channels)
    ended = workplace.run("lock", "--update", "numpy", *options)
    assert (2, True) == (ended.code, why in ended.err)


def test_update_of_a_lock_for_virtual_packages_of_a_file_asks_for_them_again(workplace: Workplace) -> None:
    """Another assumption would move what nobody asked to move."""
    table = 'subdirs:\n  linux-64:\n    packages:\n      __glibc: "2.17"\n      __cuda: "12.4"\n'
    (workplace.folder / "vp.yml").write_text(table)
    lock(workplace, "python=3.10", "numpy", options=["--virtual-packages", "vp.yml"])
    ended = workplace.run("lock", "--update", "numpy")
    assert (2, True) == (ended.code, "Give the file again with --virtual-packages" in ended.err)
    assert 0 == workplace.run("lock", "--update", "numpy", "--virtual-packages", "vp.yml").code


def test_interrupted_run_ends_at_once_and_leaves_nothing(workplace: Workplace, tmp_path: Path) -> None:
    """While the index keeps uv waiting; the lock that was there stays."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        source_of(workplace.folder, "python=3.10", "pip", pip=[f"--index-url {address}", "tqdm"])
        process = subprocess.Popen(
            workplace.argv(["lock"]),
            cwd=workplace.folder,
            env=workplace.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        silent.settimeout(30)
        asking, _ = silent.accept()
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        asking.close()
    assert (130, b"envaudit: interrupted.\n") == (process.returncode, err)
    assert time.monotonic() - began < 5
    assert ["condarc", "environment.yml"] == sorted(
        path.name for path in workplace.folder.iterdir() if path.is_file()
    )


def test_solver_of_a_run_that_was_killed_ends_too(workplace: Workplace, channels_root: Path) -> None:
    """SIGKILL while a channel keeps it waiting: nobody is left to end it."""
    source_of(workplace.folder, "python=3.10")
    with served(channels_root, {"repodata.json": "wait"}) as server:
        workplace.mirror({CHANNEL: f"{server.url}/train"})
        process = subprocess.Popen(
            workplace.argv(["lock"]), cwd=workplace.folder, env=workplace.environment, start_new_session=True
        )
        until = time.monotonic() + 30
        while not any("repodata.json" in path for path in server.requests) and time.monotonic() < until:
            time.sleep(0.02)
        process.kill()
        process.wait()
        while _has_members(process.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _has_members(process.pid)


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_packages_of_a_second_file_have_its_category(workplace: Workplace) -> None:
    """What main needs as well is main alone."""
    source_of(workplace.folder, "python=3.10", "jinja2")
    source_of(workplace.folder, "jupyter_server", name="dev.yml", more="category: dev")
    assert 0 == workplace.run("lock", "environment.yml", "dev.yml").code
    packages = locked(workplace)
    categories = {name: set(packages[name].categories) for name in ("jinja2", "jupyter_server", "tornado")}
    assert {"jinja2": {"main"}, "jupyter_server": {"dev"}, "tornado": {"dev"}} == categories


def test_errors_of_the_source_end_the_run_before_the_solve(workplace: Workplace) -> None:
    """A literal password: found with its line, never printed, never in a lock."""
    ended = lock(workplace, "python=3.10", channels=["https://u:hunter2@conda.example/train"])
    assert (1, ["environment.yml:2:5"]) == (ended.code, paths_of(ended, "EA013"))
    assert "hunter2" not in ended.out + ended.err
    assert not (workplace.folder / LOCK).exists()


def test_lock_that_failed_its_audit_is_written_where_that_is_forced(workplace: Workplace) -> None:
    """The exit code stays."""
    ended = lock(workplace, "python=3.10", "pytorch=2.0.1", "cudatoolkit=11.8", options=["--force"])
    assert (1, True) == (ended.code, "cudatoolkit" in locked(workplace))


def test_configuration_says_what_is_locked(workplace: Workplace) -> None:
    """`[lock]`, with paths relative to the file that has it."""
    (workplace.folder / "envs").mkdir()
    source_of(workplace.folder / "envs", "python=3.10", "numpy=1.26", name="train.yml")
    (workplace.folder / "envaudit.toml").write_text(
        '[lock]\nsources = ["envs/train.yml"]\noutput = "envs/train.conda-lock.yml"\n'
        'platforms = ["linux-64", "osx-arm64"]\n'
    )
    assert 0 == workplace.run("lock").code
    made = read_lock(str(workplace.folder / "envs" / "train.conda-lock.yml"))
    assert (("train.yml",), ("linux-64", "osx-arm64")) == (made.sources, made.platforms)
    assert 0 == workplace.run("lock", "--check").code


def test_source_in_utf_16_is_locked(workplace: Workplace) -> None:
    """As PowerShell writes it; conda-lock's own parser could not read it."""
    text = f"channels:\r\n  - {CHANNEL}\r\ndependencies:\r\n  - python=3.10\r\n"
    (workplace.folder / "environment.yml").write_bytes(text.encode("utf-16"))
    assert 0 == workplace.run("lock").code
    assert "3.10.14" == locked(workplace)["python"].version


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["-p", "linux-65"], 2, "unknown platform 'linux-65'. Did you mean 'linux-64'?"),
        (["--check", "--update", "numpy"], 2, "--check writes nothing"),
        (["-o", "gone/conda-lock.yml"], 5, "there is no such folder"),
        (["-o", "."], 5, "cannot be written"),
        (["--cuda", "new"], 2, "expected a version such as 12.4"),
        (["--virtual-packages", "gone.yml"], 4, "gone.yml: cannot be read"),
        (["gone.yml"], 4, "gone.yml"),
        (["-o", "environment.yml"], 2, "the lock would be written over its source"),
        (["--check", "-o", "gone.yml"], 4, "Make one with 'envaudit lock'."),
        (["--names", "environment.yml"], 4, "not a name table"),
    ],
)
def test_run_that_cannot_begin_says_why(
    workplace: Workplace, options: list[str], code: int, text: str
) -> None:
    """One line on standard error, and an exit code that tells usage from input from the machine."""
    source_of(workplace.folder, "python=3.10")
    ended = workplace.run("lock", *options)
    assert (code, True, 1) == (ended.code, text in ended.err, ended.err.count("\n"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_that_may_not_be_written_is_told_before_the_solve(workplace: Workplace) -> None:
    """Not after minutes of solving."""
    source_of(workplace.folder, "python=3.10")
    shut = workplace.folder / "shut"
    shut.mkdir(mode=0o500)
    assert 5 == workplace.run("lock", "-o", "shut/conda-lock.yml").code


def test_pip_part_stands_on_what_conda_provides(workplace: Workplace, tmp_path: Path) -> None:
    """The numpy of conda satisfies the wheel's requirement; the wheel is locked by its hash."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    digest = write_wheel(wheels, "trainer", "1.0", "numpy>=1.20")
    ended = lock(
        workplace,
        "python=3.10",
        "pip=24.0",
        "numpy<2",
        pip=["--no-index", f"--find-links {wheels}", "trainer"],
    )
    packages = locked(workplace)
    assert (0, "1.26.4", "24.0") == (ended.code, packages["numpy"].version, packages["pip"].version)
    assert ("pip", digest, {"numpy": "*"}) == (
        packages["trainer"].manager,
        packages["trainer"].sha256,
        packages["trainer"].dependencies,
    )


def test_lock_by_names_of_the_user_s_own_is_fresh_without_them(workplace: Workplace) -> None:
    """What conda brings to Python, only their table tells, and a gate asks without it."""
    table = {"wheels": {"conda_name": "wheel", "pypi_name": "wheels"}}
    (workplace.folder / "names.json").write_text(json.dumps(table), "utf-8")
    ended = lock(
        workplace,
        "python=3.10",
        "pip",
        "wheel",
        options=["--names", "names.json"],
        pip=["--no-index", "wheels"],
    )
    assert (0, False) == (ended.code, "wheels" in locked(workplace)), ended.err
    for words in ([], ["--names", "names.json"]):
        assert 0 == workplace.run("lock", "--check", *words).code


def test_wheel_that_is_named_by_its_address_alone_is_locked(workplace: Workplace, tmp_path: Path) -> None:
    """As the release pages of CUDA extensions give it; conda-lock itself reads no such line."""
    digest = write_wheel(tmp_path, "trainer", "1.0")
    with served(tmp_path) as server:
        url = f"{server.url}/trainer-1.0-py3-none-any.whl"
        assert 0 == lock(workplace, "python=3.10", "pip", pip=["--no-index", url]).code
    assert ("1.0", digest) == (locked(workplace)["trainer"].version, locked(workplace)["trainer"].sha256)
    assert 0 == workplace.run("lock", "--check").code


def test_pip_part_whose_addresses_have_a_secret_of_a_variable_is_not_locked(
    workplace: Workplace, tmp_path: Path
) -> None:
    """An index with a token in its path gives it to the address of each file; other variables may stand."""
    folder = tmp_path / "s3cr3t-value"
    folder.mkdir()
    write_wheel(folder, "trainer", "1.0")
    for variable, code in (("INDEX_TOKEN", 2), ("VARIANT", 0)):
        workplace.environment[variable] = folder.name
        pip = ["--no-index", f"--find-links file://{tmp_path}/${{{variable}}}", "trainer"]
        ended = lock(workplace, "python=3.10", "pip", pip=pip)
        assert code == ended.code, ended.err
        assert folder.name not in ended.err
        assert (code == 2) == ("the value of INDEX_TOKEN would stand in the address of trainer" in ended.err)
    assert folder.name in locked(workplace)["trainer"].url


@pytest.mark.parametrize(
    ("line", "url", "is_refused"),
    [
        ("--index-url https://ann:${INDEX_PASSWORD}@h/simple", "https://h/simple/a.whl", False),
        ("--index-url https://ann:${INDEX_PASSWORD}@h/simple", "https://ann:simple@h/a.whl", True),
        ("--index-url https://h/${INDEX_PASSWORD}/", "https://h/simple/a.whl", True),
        ("a @ https://${INDEX_PASSWORD}@h/a.whl", "https://simple@h/a.whl", True),
    ],
)
def test_password_that_is_a_word_of_a_path_is_no_secret_in_it(
    monkeypatch: pytest.MonkeyPatch, line: str, url: str, is_refused: bool
) -> None:
    """Of an index with a user and a password, the addresses of files have neither."""
    monkeypatch.setenv("INDEX_PASSWORD", "simple")
    with pytest.raises(UsageError, match="INDEX_PASSWORD") if is_refused else nullcontext():
        _refuse_secrets([PipPackage("a", "1", url, None)], line)


def test_pip_part_without_a_solution_names_the_line(workplace: Workplace) -> None:
    """What conda provides of it is said as well."""
    ended = lock(workplace, "python=3.10", "numpy", "pip", pip=["--no-index", "numpy<1.25"])
    (finding,) = (finding for finding in ended.json["findings"] if finding["rule"] == "EA051")
    assert (1, "environment.yml:9:7") == (ended.code, finding["path"])
    assert "conda provides numpy 2.0.1" in finding["evidence"]


def test_key_with_nothing_below_it_is_no_fault(workplace: Workplace, train_channel: LocalChannel) -> None:
    """`channels:` alone: the channels of the user's settings count, as for conda."""
    settings = {"mirrored_channels": {CHANNEL: [train_channel.url]}, "channels": [CHANNEL]}
    workplace.condarc.write_text(json.dumps(settings))
    ended = lock(workplace, "python=3.10", channels=[])
    assert (0, "3.10.14") == (ended.code, locked(workplace)["python"].version)


def test_source_of_a_pipe_is_locked(workplace: Workplace) -> None:
    """It can be read once: conda-lock's parser would find nothing more in it."""
    text = f"channels: [{CHANNEL}]\ndependencies: [openssl]\n"
    ran = subprocess.run(
        workplace.argv(["lock", "/dev/stdin"]),
        cwd=workplace.folder,
        env=workplace.environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (0, True) == (ran.returncode, "openssl" in locked(workplace)), ran.stderr


def test_lock_to_standard_output_is_written_and_not_waited_for(workplace: Workplace) -> None:
    """What stands at the output is compared only where it is a file."""
    source_of(workplace.folder, "python=3.10")
    ended = workplace.run("lock", "-o", "/dev/stdout")
    assert (0 if os.access("/dev", os.W_OK) else 5) == ended.code
    assert ("\nversion: 1\n" in ended.out) == (ended.code == 0)
