"""The pip part of an environment, resolved by uv on top of what conda provides.

Every distribution that the conda part brings is given to uv as a small wheel of that name and
version without dependencies, by a constraint with its URL. So a requirement on torch is held to
conda's torch, nothing of torch's own index dependencies enters the lock, and a distribution that
only conda has (an index does not know it) satisfies what asks for it.

uv runs in a folder of its own, where it finds no configuration of the repository under test, and
builds nothing unless the user allows it: a source build runs the code of whoever wrote the file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from envaudit.errors import InputError, NeededError
from envaudit.lock.names import normalised
from envaudit.lock.pipconfig import index_of_pip
from envaudit.lock.pylock import PipPackage, read_edges, read_pins, read_pylock
from envaudit.lock.wheels import DEFAULT_OSX, platform_tags

TIMEOUT_S = 900.0

# The platforms of uv by conda's names; for glibc the newest that is not newer than the target's.
_UV_MACHINES = {"linux-64": "x86_64", "linux-aarch64": "aarch64"}
_UV_GLIBC_MINORS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
_UV_OTHERS = {
    "osx-64": "x86_64-apple-darwin",
    "osx-arm64": "aarch64-apple-darwin",
    "win-64": "x86_64-pc-windows-msvc",
    "win-32": "i686-pc-windows-msvc",
    "win-arm64": "aarch64-pc-windows-msvc",
}
_NO_SOLUTION = "No solution found"
_BUILD_REFUSED = re.compile(
    r"[Bb]uilding source distributions|has no wheels|no usable wheels|no wheels are usable"
)
_CAUSE = re.compile(r"^\s*cause: ", re.MULTILINE)
_USER_INFO = re.compile(r"(\w://)[^/\s@]+@")
# Those that some thread is waiting for.
_RUNNING: set[subprocess.Popen[str]] = set()
_MAX_EXPLANATION = 1200
# Environment variables that would make uv read or write somewhere else than it is told to.
MISLEADING = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "UV_REQUIREMENT", "UV_PROJECT", "VIRTUAL_ENV")


@dataclass(frozen=True)
class PipRequest:
    """What is to be resolved for one platform.

    Attributes:
        platform: a conda platform.
        python: the full version of the interpreter that was solved.
        requirements: lines of a requirements file: PEP 508 texts.
        options: further lines of it: `--extra-index-url URL`, `--find-links URL`, `-c FILE`.
        provided: distribution to version, of the conda part.
        virtual: virtual package to version; `__glibc` and `__osx` count.
        locked: distribution to version of the lock before; kept where nothing else forces a move.
        prerelease: whether pre-releases count everywhere, as pip's `--pre` has it.
        allow_build: whether source builds may run.
        offline: whether what uv has in its cache must do.
        environ: variables of the user's conda settings, such as their certificates and proxies.
    """

    platform: str
    python: str
    requirements: tuple[str, ...]
    options: tuple[str, ...] = ()
    provided: Mapping[str, str] = field(default_factory=dict)
    virtual: Mapping[str, str] = field(default_factory=dict)
    locked: Mapping[str, str] = field(default_factory=dict)
    prerelease: bool = False
    allow_build: bool = False
    offline: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)


class PipConflictError(Exception):
    """There is no set of distributions that satisfies the pip part.

    Attributes:
        explanation: the resolver's words, shortened.
        hint: what to do, a whole sentence; empty where only the requirements can say.
    """

    def __init__(self, explanation: str, hint: str = "") -> None:
        super().__init__(explanation)
        self.explanation = explanation
        self.hint = hint


def resolve_pip(request: PipRequest) -> tuple[PipPackage, ...]:
    """The distributions to install on top of the conda part, by name; none that conda provides.

    Raises:
        PipConflictError: no solution, a name that the index does not have, or a source build that
            was not allowed.
        InputError: a requirement that cannot be read.
        NeededError: uv is absent or failed, or the index does not answer.
    """
    platform = uv_platform(request.platform, request.virtual)
    if platform is None:
        raise NeededError(f"uv does not resolve for {request.platform}")
    tags = platform_tags(request.platform, dict(request.virtual))
    with tempfile.TemporaryDirectory(prefix="envaudit-pip-") as folder:
        provided = _stand_ins(request.provided, folder)
        _write(folder, "requirements.in", (*request.options, *request.requirements))
        _write(folder, "provided.txt", provided)
        # What is there already is what uv prefers to keep.
        _write(folder, "pins.txt", (f"{name}=={version}" for name, version in sorted(request.locked.items())))
        argv = [*_command(request, platform), "requirements.in", "--constraints", "provided.txt"]
        _run([*argv, "--format", "requirements.txt", "-o", "pins.txt"], folder, request)
        pins = _read(folder, "pins.txt")
        _write(folder, "exact.txt", read_pins(pins))
        # Once more for the files behind the pins; the cache has all metadata now.
        _run(
            [*argv, "--constraints", "exact.txt", "--format", "pylock.toml", "-o", "pylock.toml"],
            folder,
            request,
        )
        return read_pylock(
            _read(folder, "pylock.toml"),
            edges=read_edges(pins),
            python=request.python,
            tags=tags,
            without=frozenset(request.provided),
        )


def uv_platform(platform: str, virtual: Mapping[str, str]) -> str | None:
    """The name that uv has for a conda platform with that glibc; None where uv has none."""
    if platform not in _UV_MACHINES:
        return _UV_OTHERS.get(platform)
    glibc = virtual.get("__glibc", "2.28").split(".")
    minor = int(glibc[1]) if len(glibc) > 1 and glibc[1].isdigit() else 0
    supported = [known for known in _UV_GLIBC_MINORS if known <= minor]
    return f"{_UV_MACHINES[platform]}-manylinux_2_{supported[0]}" if supported else None


def end_running() -> None:
    """End every uv that other threads are waiting for: the user has ended the run."""
    for process in list(_RUNNING):
        process.kill()


def find_uv() -> str:
    """The uv that came with envaudit, or the one on PATH.

    Raises:
        NeededError: there is none.
    """
    import shutil

    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise NeededError(
            "uv is not installed", why="it resolves the pip part", next_step="Install it: pip install uv."
        )
    return found


def _command(request: PipRequest, platform: str) -> list[str]:
    build = [] if request.allow_build else ["--no-build"]
    return [
        *(find_uv(), "pip", "compile", "--quiet", "--color", "never", "--no-header"),
        *("--python", sys.executable, "--python-version", request.python, "--python-platform", platform),
        # Which `read_edges` reads, whatever the user's configuration prefers.
        *("--annotate", "--annotation-style", "split"),
        # As pip does: the best version over all indexes that the file names.
        *("--index-strategy", "unsafe-best-match"),
        *build,
        *(["--prerelease", "allow"] if request.prerelease else []),
        *(["--offline"] if request.offline else []),
    ]


def _run(argv: Sequence[str], folder: str, request: PipRequest) -> None:
    # The system's certificates, as pip has them: what a company's proxy signs with is mostly there.
    environ = {"UV_SYSTEM_CERTS": "true", **os.environ, **request.environ}
    index = index_of_pip(environ)
    if index is not None:
        environ["UV_DEFAULT_INDEX"] = index
    environ = {name: value for name, value in environ.items() if name not in MISLEADING}
    environ["MACOSX_DEPLOYMENT_TARGET"] = request.virtual.get("__osx", DEFAULT_OSX)
    try:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise NeededError("uv cannot be started", where=argv[0], why=error.strerror or str(error)) from None
    _RUNNING.add(process)
    try:
        _, complaint = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise NeededError(
            f"uv gave no answer in {TIMEOUT_S:.0f} s", where=f"pip part, {request.platform}"
        ) from None
    finally:
        process.kill()
        process.wait()
        _RUNNING.discard(process)
    if process.returncode != 0:
        raise _failure(complaint, request)


def _failure(stderr: str, request: PipRequest) -> Exception:
    """What uv's message means for the user."""
    text = " ".join(_CAUSE.sub("", _USER_INFO.sub(r"\1", stderr)).replace("error: ", "", 1).split())
    text = text if len(text) <= _MAX_EXPLANATION else text[:_MAX_EXPLANATION] + " ..."
    where = f"pip part, {request.platform}"
    if _BUILD_REFUSED.search(text) and not request.allow_build:
        return PipConflictError(
            text,
            "What has no wheel must be built, which runs its code on this machine: "
            "allow it with --allow-build, or choose a version that has a wheel.",
        )
    if "network was disabled" in text:
        return NeededError(
            "not in uv's cache", where=where, why=text, next_step="Run once without --offline."
        )
    if _NO_SOLUTION in text:
        return PipConflictError(text.replace("No solution found when resolving dependencies", "").strip(" :"))
    if "Couldn't parse" in text or "Failed to parse" in text:
        return InputError("a requirement cannot be read", where=where, why=text)
    return NeededError(
        "uv failed",
        where=where,
        why=text,
        next_step="Check that the package index answers; UV_DEFAULT_INDEX or pip.conf names it.",
    )


def _stand_ins(provided: Mapping[str, str], folder: str) -> list[str]:
    """A wheel without content for each distribution that conda provides, and the constraints on them."""
    from packaging.version import InvalidVersion, Version

    lines = []
    for name, text in sorted(provided.items()):
        try:
            version = str(Version(text))
        except InvalidVersion:
            # `2023c` and the like: what is asked of it cannot be compared, but it is there.
            version = "0"
        stem = f"{normalised(name).replace('-', '_')}-{version}"
        path = os.path.join(folder, f"{stem}-py3-none-any.whl")
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(
                f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
            wheel.writestr(
                f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
        lines.append(f"{name} @ file://{path}")
    return lines


def _write(folder: str, name: str, lines: Iterable[str]) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()
