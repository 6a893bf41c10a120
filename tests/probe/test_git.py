"""The repository of the working directory, with real git and without."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.sections import git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

_IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def run_git(folder: Path, *argv: str) -> str:
    """What git says in a folder, without the configuration of this machine."""
    ran = subprocess.run(
        ["git", "-C", str(folder), *argv],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, **_IDENTITY},
    )
    return ran.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit of an environment file."""
    top = tmp_path / "train"
    top.mkdir()
    run_git(top, "init", "-q", "-b", "main")
    (top / "environment.yml").write_text("name: train\n")
    (top / "train.py").write_text("print()\n")
    run_git(top, "add", ".")
    run_git(top, "commit", "-q", "-m", "begin")
    return top


def read(workdir: Path, **environ: str) -> Answer:
    """The section on this machine from that folder."""
    variables = {**os.environ, **_IDENTITY, **environ}
    return git.read(Context(environ=variables, workdir=str(workdir), launch="local", interpreter={}))


def test_clean_repository_has_commit_and_file_digests(repository: Path) -> None:
    """The commit is that of git itself, the digest that of the file's bytes."""
    answer = read(repository)
    expected = {
        "commit": run_git(repository, "rev-parse", "HEAD"),
        "dirty": False,
        "files": {"environment.yml": hashlib.sha256(b"name: train\n").hexdigest()},
    }
    assert ("ok", expected) == (answer.status, answer.facts)
    assert "main" == answer.notes["branch"]


def test_changed_file_makes_the_repository_dirty(repository: Path) -> None:
    """A tracked file that differs from the commit is dirt, in the index or not."""
    (repository / "train.py").write_text("print(1)\n")
    assert read(repository).facts["dirty"] is True
    run_git(repository, "add", "train.py")
    answer = read(repository)
    assert (True, ["train.py"]) == (answer.facts["dirty"], answer.notes["changed"])


def test_untracked_file_is_no_dirt(repository: Path) -> None:
    """Logs and checkpoints lie in every training checkout."""
    (repository / "log.txt").write_text("x")
    assert read(repository).facts["dirty"] is False


def test_folder_below_the_top_finds_the_repository(repository: Path) -> None:
    """As with git itself, any folder of the checkout will do; its own lock is seen too."""
    (repository / "jobs" / "a").mkdir(parents=True)
    (repository / "jobs" / "a" / "gpu.conda-lock.yml").write_text("x")
    answer = read(repository / "jobs" / "a")
    assert ["environment.yml", "jobs/a/gpu.conda-lock.yml"] == sorted(answer.facts["files"])


def test_folder_without_a_repository_is_absent(tmp_path: Path) -> None:
    """No repository is a state, not a fault."""
    assert "absent" == read(tmp_path).status


def test_working_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A node without the working directory is no node without a repository."""
    answer = read(tmp_path / "gone")
    assert ("error", f"{tmp_path}/gone: no such folder") == (answer.status, answer.errors[0])


@pytest.mark.parametrize("packed", [False, True])
def test_worktree_and_packed_references_are_read(repository: Path, packed: bool) -> None:
    """The commit of a worktree is its own, wherever git keeps the reference."""
    run_git(repository, "worktree", "add", "-q", "-b", "side", str(repository.parent / "side"))
    (repository.parent / "side" / "train.py").write_text("2\n")
    run_git(repository.parent / "side", "commit", "-q", "-am", "side")
    if packed:
        run_git(repository, "pack-refs", "--all")
    answer = read(repository.parent / "side")
    assert run_git(repository.parent / "side", "rev-parse", "HEAD") == answer.facts["commit"]
    assert "side" == answer.notes["branch"]


def test_detached_head_has_a_commit_and_no_branch(repository: Path) -> None:
    """A job often checks a commit out by its name."""
    run_git(repository, "checkout", "-q", "--detach")
    answer = read(repository)
    assert run_git(repository, "rev-parse", "HEAD") == answer.facts["commit"]
    assert answer.notes["branch"] is None


def test_repository_without_a_commit_has_none(tmp_path: Path) -> None:
    """A fresh repository is read; there is no commit yet."""
    run_git(tmp_path, "init", "-q")
    answer = read(tmp_path)
    assert ("ok", None) == (answer.status, answer.facts["commit"])


def test_remote_is_noted_without_its_credentials(repository: Path) -> None:
    """A token in the remote's URL stays on the node."""
    run_git(repository, "remote", "add", "origin", "https://alice:ghp_0123456789abcdef@git.example/r.git")
    assert "https://git.example/r.git" == read(repository).notes["origin"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a repository away")
def test_repository_of_another_owner_is_read_without_alarm(repository: Path) -> None:
    """Git refuses to look into it: the commit comes from the files, `dirty` is not examined."""
    for path in [repository, *repository.rglob("*")]:
        os.lchown(path, 4242, 4242)
    answer = read(repository)
    assert ("ok", None) == (answer.status, answer.facts["dirty"])
    assert 40 == len(answer.facts["commit"])
    assert "dubious ownership" in answer.notes["not_examined"]["dirty"]


def test_absent_git_leaves_dirty_unexamined(repository: Path) -> None:
    """Where git is not installed, the files tell the commit."""
    answer = read(repository, PATH="/nowhere")
    assert ("ok", None) == (answer.status, answer.facts["dirty"])
    assert 40 == len(answer.facts["commit"])
    assert {"dirty": "git: not found"} == answer.notes["not_examined"]


def test_program_in_the_repositorys_configuration_is_not_run(repository: Path) -> None:
    """core.fsmonitor of a repository under test names a program; the probe does not run it."""
    ran = repository.parent / "ran"
    hook = repository.parent / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    run_git(repository, "config", "core.fsmonitor", str(hook))
    (repository / "train.py").write_text("changed\n")
    assert read(repository).facts["dirty"] is True
    assert not ran.exists()


def test_hanging_git_makes_the_section_partial(repository: Path) -> None:
    """A dead file system below the repository costs `dirty`, not the commit."""
    folder = repository.parent / "bin"
    folder.mkdir()
    (folder / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (folder / "git").chmod(0o755)
    answer = read(repository, PATH=f"{folder}:{os.environ['PATH']}")
    assert ("partial", ("git: no answer within 3 s",)) == (answer.status, tuple(answer.errors))
    assert 40 == len(answer.facts["commit"])


def test_head_that_leads_out_of_the_repository_is_refused(
    repository: Path, make_node: Callable[..., Context]
) -> None:
    """A crafted HEAD reads no file outside."""
    node = make_node(
        {"/w/.git/HEAD": "ref: refs/../../../etc/shadow\n", "/etc/shadow": "a" * 40}, workdir="/w"
    )
    answer = git.read(node)
    assert "partial" == answer.status
    assert answer.facts["commit"] is None
    assert "leads out of the repository" in answer.errors[0]


@pytest.mark.parametrize(
    ("name", "status", "errors"),
    [
        ("healthy-h100", "ok", []),
        ("cpu-only", "absent", []),
        ("garbled", "partial", ["/srv: /srv/.git/HEAD: neither a commit nor a reference"]),
        (
            "denied-and-hanging",
            "partial",
            [
                "/srv: [Errno 13] Permission denied: '/srv/.git/HEAD'",
                "git: no answer within 3 s",
                "/srv/environment.yml: Permission denied",
            ],
        ),
    ],
)
def test_fake_node_has_its_status(
    fake_node: Callable[[str], Context], name: str, status: str, errors: list[str]
) -> None:
    """Healthy, absent, garbled and denied repositories are told apart."""
    answer = git.read(fake_node(name))
    assert (status, errors) == (answer.status, list(answer.errors))


@pytest.mark.parametrize(
    "place", ["config", "config.worktree", "included"], ids=["checkout", "worktree", "include"]
)
def test_filter_of_the_checkout_is_not_started(repository: Path, place: str) -> None:
    """A checkout under audit runs nothing: where git would start its filter, `dirty` is not known."""
    folder = repository / ".git"
    trace = repository.parent / "started"
    if place == "config.worktree":
        run_git(repository, "config", "core.repositoryFormatVersion", "1")
        run_git(repository, "config", "extensions.worktreeConfig", "true")
    if place == "included":
        run_git(repository, "config", "include.path", "included")
    run_git(repository, "config", "--file", str(folder / place), "filter.x.clean", f"touch {trace}; cat")
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info" / "attributes").write_text("* filter=x\n")
    os.utime(repository / "train.py", (1, 1))
    answer = read(repository)
    assert not trace.exists()
    assert ("ok", None) == (answer.status, answer.facts["dirty"])
    assert "filters" in answer.notes["not_examined"]["dirty"]
    run_git(repository, "status", "--porcelain")
    assert trace.exists(), "git itself no longer starts it: the test shows nothing"
