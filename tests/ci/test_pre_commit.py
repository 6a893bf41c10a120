"""The hooks, run by pre-commit in a repository that uses them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
EXAMPLE = PROJECT / "docs" / "ci" / "pre-commit" / ".pre-commit-config.yaml"
CLEAN = "name: x\nchannels: [conda-forge]\nplatforms: [linux-64]\ndependencies:\n  - python=3.11\n"
SECRET = CLEAN + "  - pip\n  - pip:\n    - --index-url https://u:hunter2hunter2@example.org/simple\n"


class Repository:
    """A repository with pre-commit set up for the hooks of this project.

    The environment that pre-commit would build from the package index is the one that runs the tests
    (`language: system`); everything else is as the hooks have it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "user"
        hooks = folder / "hooks"
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PRE_COMMIT_HOME": str(folder / "cache"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@b",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@b",
        }
        for path in (hooks, self.path):
            path.mkdir()
            self.git("init", "-q", cwd=path)
        shutil.copy(PROJECT / ".pre-commit-hooks.yaml", hooks)
        self.git("add", ".", cwd=hooks)
        self.git("commit", "-q", "-m", "hooks", cwd=hooks)
        config = yaml.safe_load(EXAMPLE.read_text())
        (used,) = config["repos"]
        used.update(repo=str(hooks), rev=self.git("rev-parse", "HEAD", cwd=hooks).strip())
        for hook in used["hooks"]:
            hook["language"] = "system"
        (self.path / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))

    def git(self, *words: str, cwd: Path) -> str:
        """Run git."""
        run = subprocess.run(
            ["git", *words],
            cwd=cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return run.stdout

    def commit_of(self, **files: str) -> subprocess.CompletedProcess[str]:
        """What pre-commit says to a commit of some files; `__` in a name is a dot."""
        for name, text in files.items():
            (self.path / name.replace("__", ".")).write_text(text)
        self.git("add", ".", cwd=self.path)
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--color=never", "-v"],
            cwd=self.path,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One without files yet."""
    pytest.importorskip("pre_commit")
    return Repository(tmp_path)


def test_manifest_is_one_that_pre_commit_takes() -> None:
    """By its own check."""
    pytest.importorskip("pre_commit")
    run = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", str(PROJECT / ".pre-commit-hooks.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (0, "") == (run.returncode, run.stdout)


def test_example_uses_every_hook() -> None:
    """And no other."""
    offered = [hook["id"] for hook in yaml.safe_load((PROJECT / ".pre-commit-hooks.yaml").read_text())]
    (used,) = yaml.safe_load(EXAMPLE.read_text())["repos"]
    assert offered == [hook["id"] for hook in used["hooks"]]


def test_commit_of_a_faulty_environment_is_refused(repository: Repository) -> None:
    """With the finding and its line."""
    run = repository.commit_of(environment__yml=SECRET, README__md="x\n")
    assert 1 == run.returncode
    assert "  E EA013  environment.yml:8:7: " in run.stdout
    assert "FAIL EA013 environment.yml:8:7: " in run.stdout


def test_commit_of_other_files_runs_neither(repository: Repository) -> None:
    """Nothing to judge."""
    run = repository.commit_of(README__md="x\n")
    assert (0, 2) == (run.returncode, run.stdout.count("(no files to check)"))


def test_commit_of_an_environment_without_its_lock_is_refused(repository: Repository) -> None:
    """The second hook wants to read it."""
    run = repository.commit_of(environment__yml=CLEAN)
    assert 1 == run.returncode
    assert "PASS environment.yml" in run.stdout
    assert "conda-lock.yml" in run.stdout.partition("envaudit lock --check")[2]
