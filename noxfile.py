"""Every check of the project is a session here; `.ci/run` calls the ones that need no GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True

PROJECT = nox.project.load_toml("pyproject.toml")
GROUPS = {
    name: nox.project.dependency_groups(PROJECT, name)
    for name in ("test", "lint", "types", "node-side", "trackers")
}
DEPENDENCIES = PROJECT["project"]["dependencies"]

# The CUDA build that the static answers are checked against, and the CPU build of the benchmark's
# collect_env. Exact versions: an open range costs gigabytes.
CUDA_TORCH = "torch==2.14.1"
CPU_TORCH = "torch==2.13.0"

# Tests of the node side need no package that Python 3.8 cannot have.
NODE_SIDE_TESTS = [
    *("tests/model", "tests/probe", "tests/store", "tests/diff", "tests/rules", "tests/report"),
    "tests/control",
]


@nox.session
def lint(session: nox.Session) -> None:
    """Style and formatting."""
    session.install(*GROUPS["lint"])
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Strict types, at the oldest Python that mypy knows."""
    session.install("-e", ".", *GROUPS["types"])
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """All the tests but those of `checks`; pytest gets arguments: `nox -s tests -- tests/rules -x`."""
    session.install("-e", ".", *GROUPS["test"])
    if session.posargs:
        session.run("pytest", *session.posargs)
    else:
        session.run("python", "tests/by_folder.py")


@nox.session
def node_side(session: nox.Session) -> None:
    """The node side's tests against the one-file form, on the oldest Python present."""
    python = oldest_python()
    session.log("oldest Python present: %s", python)
    folder = Path(session.virtualenv.location).resolve()
    venv = folder / "oldest"
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    if not (venv / "bin" / "python").exists():
        session.run(python, "-m", "venv", str(venv), external=True)
    session.run(*pip, *GROUPS["node-side"], external=True)
    # The bundle has one package beside the project's own, and making it needs no other.
    session.install("--no-deps", "-e", ".", *(name for name in DEPENDENCIES if "nvidia-ml-py" in name))
    # A tree without the package's sources: what the tests import can only be the bundle.
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ("tests", "fixtures", "docs"):
        shutil.copytree(name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy("pyproject.toml", tree)
    bundle = tree / "envaudit.pyz"
    session.run("envaudit", "bundle", "-o", str(bundle))
    session.chdir(tree)
    session.run(
        str(venv / "bin" / "python"),
        *("-m", "pytest", *NODE_SIDE_TESTS, *session.posargs),
        external=True,
        env={"PYTHONPATH": str(bundle), "ENVAUDIT_TEST_BUNDLE": str(bundle)},
    )


@nox.session
def goldens(session: nox.Session) -> None:
    """Write the expected reports anew; look at the difference before you commit it."""
    session.install("-e", ".", *GROUPS["test"])
    session.run("pytest", "tests/report", "tests/rules", "tests/cli", "--rewrite-goldens", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Branch coverage, the commands included."""
    session.install("-e", ".", *GROUPS["test"], "coverage[toml]>=7.6")
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *session.posargs)
    session.run("coverage", "combine")
    session.run("coverage", "report", "--skip-covered")


@nox.session
def demo(session: nox.Session) -> None:
    """The main job, on this machine alone, from a source file to a gate that names a planted fault."""
    session.install(".", CPU_TORCH)
    session.run("python", "tests/demo/demo.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The speed that is promised, as ratios within one run."""
    # Not editable: as a user has it, with its bytecode compiled.
    session.install(".", *GROUPS["test"], CPU_TORCH)
    session.run("python", "tests/bench/bench.py", *session.posargs)


@nox.session
def checks(session: nox.Session) -> None:
    """The tests of what runs in the audited torch, on the CPU, Triton's kernels under its interpreter.

    And those of the trackers, whose writer is torch's. Without arguments the demo comes first, for torch is
    long to install.
    """
    if not session.posargs:
        demo(session)
    session.install("-e", ".", *GROUPS["test"], *GROUPS["trackers"], CPU_TORCH, "triton==3.9.0", "numpy")
    if session.posargs:
        session.run("pytest", *session.posargs)
    else:
        session.run("python", "tests/by_folder.py", "checks")


@nox.session
def kernels(session: nox.Session) -> None:
    """The campaigns behind docs/measurements.md: 140,000 injected faults, 400 settings, torch.compile."""
    session.install("-e", ".", *GROUPS["test"], CPU_TORCH)
    session.run("pytest", "-m", "kernels", "tests/checks", *session.posargs)


@nox.session
def collectives(session: nox.Session) -> None:
    """The campaign behind docs/measurements.md: faults at one of two to eight ranks, and clean runs."""
    session.install("-e", ".", *GROUPS["test"], CPU_TORCH)
    session.run("pytest", "-m", "collectives", "tests/checks/collectives", "-s", *session.posargs)


@nox.session
def cuda(session: nox.Session) -> None:
    """What is read from the files of a real CUDA build of torch, against torch itself (5 GB)."""
    session.install("-e", ".", *GROUPS["test"], CUDA_TORCH)
    session.run(
        "pytest",
        *("-m", "cuda", "tests/cuda", "-s"),
        *session.posargs,
        env={"ENVAUDIT_CUDA_PYTHON": str(Path(session.bin) / "python")},
    )


def oldest_python() -> str:
    """The oldest interpreter from 3.8 on, on PATH or under pyenv."""
    for minor in range(8, sys.version_info.minor):
        for candidate in (shutil.which(f"python3.{minor}"), *pyenv_pythons(f"3.{minor}.")):
            if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
                return candidate
    return sys.executable


def pyenv_pythons(prefix: str) -> list[str]:
    """Interpreters of one minor version under pyenv, where there is one."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return sorted(str(path / "bin" / "python") for path in versions.glob(f"{prefix}*"))
