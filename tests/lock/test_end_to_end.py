"""The whole way on the local channel, without conda: lock, install, verify, tamper, verify."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.lock.workplace import Workplace

EXAMPLE = Path(__file__).resolve().parents[2] / "lockfiles"
SOURCE, LOCK = "train.environment.yml", "train.conda-lock.yml"
NUMPY = "lib/python3.10/site-packages/numpy/__init__.py"


@pytest.fixture
def example(workplace: Workplace) -> Workplace:
    """A working folder with the files of lockfiles/."""
    for path in EXAMPLE.glob("*.yml"):
        shutil.copy(path, workplace.folder)
    # Its only pip entry exists nowhere: an index without packages says the same.
    workplace.environment.update(UV_NO_INDEX="1", UV_FIND_LINKS=str(workplace.folder / "no-wheels"))
    (workplace.folder / "no-wheels").mkdir()
    return workplace


def test_conda_is_nowhere_on_this_path(workplace: Workplace) -> None:
    """What follows uses no conda, mamba or micromamba."""
    programs = ("conda", "mamba", "micromamba", "pixi")
    found = [shutil.which(program, path=workplace.environment["PATH"]) for program in programs]
    assert [None] * 4 == found


def test_lock_install_verify_tamper_verify(example: Workplace) -> None:
    """The tampered package is named, with the file and both versions where a record tells them."""
    (example.folder / LOCK).unlink()
    assert 0 == example.run("lock", SOURCE, "-o", LOCK).code
    assert 0 == example.run("lock", "--check", SOURCE, "-o", LOCK).code
    installed = example.run("install", LOCK, "--prefix", "env")
    assert (0, "") == (installed.code, installed.err)
    verified = example.run("verify", LOCK, "--prefix", "env", "--format", "json")
    assert (0, []) == (verified.code, verified.rules)

    module = example.folder / "env" / NUMPY
    module.write_text(module.read_text().replace("2.0.1", "2.0.0"))
    tampered = example.run("verify", LOCK, "--prefix", "env", "--format", "json")
    assert (1, ["EA206"]) == (tampered.code, tampered.rules)
    (finding,) = tampered.json["findings"]
    assert "numpy: 1 file changed on disk since the install" == finding["message"]
    assert [NUMPY] == finding["evidence"]

    (record,) = (example.folder / "env/conda-meta").glob("numpy-*.json")
    record.write_text(record.read_text().replace('"version": "2.0.1"', '"version": "2.0.0"'))
    tampered = example.run("verify", LOCK, "--prefix", "env")
    assert 1 == tampered.code
    assert re.search(r"E EA202  conda/packages/numpy/version +2\.0\.1 +→ +2\.0\.0", tampered.out)


def test_lock_of_the_example_is_byte_for_byte_the_committed_one(
    example: Workplace, request: pytest.FixtureRequest
) -> None:
    """The same inputs and the same channel give the same bytes, on every machine."""
    (example.folder / LOCK).unlink()
    assert 0 == example.run("lock", SOURCE, "-o", LOCK).code
    made = (example.folder / LOCK).read_bytes()
    if request.config.getoption("--rewrite-goldens"):
        (EXAMPLE / LOCK).write_bytes(made)
    assert (EXAMPLE / LOCK).read_bytes() == made


def test_lock_of_the_example_is_read_by_conda_lock_which_agrees_on_its_hash(example: Workplace) -> None:
    """By conda-lock's own reader, and its own content hash of the same source."""
    from conda_lock.content_hash import compute_content_hashes
    from conda_lock.lockfile import parse_conda_lock_file
    from conda_lock.src_parser import make_lock_spec
    from conda_lock.virtual_package import default_virtual_package_repodata

    lock = parse_conda_lock_file(example.folder / LOCK)
    (example.folder / "names.json").write_text("{}")
    spec = make_lock_spec(
        src_files=[example.folder / SOURCE], mapping_url=(example.folder / "names.json").as_uri()
    )
    hashes = compute_content_hashes(spec, default_virtual_package_repodata())
    assert hashes == lock.metadata.content_hash
    assert 32 == len(lock.package)


def sessions(text: str) -> list[tuple[str, str]]:
    """Commands of a page's code blocks, each with what the page says that it prints."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"^```\n(\$ .*?)^```$", text, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, said = part.partition("\n")
            found.append((command, said))
    return found


def test_page_of_the_example_says_what_is_said(example: Workplace) -> None:
    """Every command of lockfiles/README.md, in its order, prints what stands below it."""
    program = example.folder / "bin" / "envaudit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(example.argv(()))} "$@"\n')
    program.chmod(0o755)
    environment = {
        **example.environment,
        "PATH": f"{program.parent}{os.pathsep}{example.environment['PATH']}",
    }
    commands = sessions((EXAMPLE / "README.md").read_text("utf-8"))
    assert len(commands) > 8
    for command, said in commands:
        ran = subprocess.run(
            ["sh", "-c", command],
            cwd=example.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert said.rstrip("\n") in ran.stdout, f"{command}\n{ran.stdout}{ran.stderr}"


def test_first_environment_of_the_example_has_its_three_faults_found(example: Workplace) -> None:
    """A cudatoolkit that does nothing, a name of Debian's, a pip package that does not exist."""
    linted = example.run("lint", "first.environment.yml")
    assert "EA031" in linted.out
    locked = example.run("lock", "first.environment.yml", "-o", "first.conda-lock.yml")
    assert (1, True) == (locked.code, "did you mean 'openssh'?" in locked.out)
    source = example.folder / "first.environment.yml"
    source.write_text(source.read_text().replace("openssh-client", "openssh"))
    locked = example.run("lock", "first.environment.yml", "-o", "first.conda-lock.yml")
    assert 1 == locked.code
    assert "torch-distributed-launcher" in locked.out
    assert not (example.folder / "first.conda-lock.yml").exists()
