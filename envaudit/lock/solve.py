"""Solve for several platforms at once, in a child process, without conda on the machine.

    with start_solving({"linux-64": specs}, channels, settings, virtual) as solving:
        solution = solving.result()
    solution.records["linux-64"]        # records by name
    solution.conflicts                  # what cannot be solved, in words

`start_solving` returns at once, so that the caller can import conda-lock while the solver works.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from envaudit.errors import NeededError, UsageError
from envaudit.lock.channels import Channel
from envaudit.lock.condarc import PRIORITIES, Settings
from envaudit.lock.conflict import Conflict, conflict_of
from envaudit.lock.faults import raise_fault
from envaudit.lock.network import client_settings, environment
from envaudit.lock.record import Record, record_of
from envaudit.lock.spec import Spec, tied_to
from envaudit.lock.virtual import VirtualPackages

__all__ = ["Channel", "Conflict", "Record", "Solution", "Solving", "start_solving"]

# -I keeps the working directory, and so a repository under test, out of the child's sys.path.
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from envaudit.lock.child import main; main()"
_MAX_STDERR_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20  # As much as Linux gives to everybody.


class Progress(Protocol):
    """What a solve tells while it works."""

    def phase(self, platform: str, phase: str, detail: str) -> None:
        """`channels` (platform empty, `1/3 conda-forge`), `solve`, or `done` (`76 packages`)."""


@dataclass(frozen=True)
class Solution:
    """What came of each platform: it stands in `records` or in `conflicts`.

    Attributes:
        records: platform to its records, sorted by name.
        conflicts: one for each platform without a solution.
        helped: platforms where, under flexible priority, a lower channel had to help out, with the
            names of the packages it gave; no names where every channel had to count for everything.
    """

    records: Mapping[str, tuple[Record, ...]]
    conflicts: tuple[Conflict, ...] = ()
    helped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def start_solving(
    specs: Mapping[str, Sequence[Spec]],
    channels: Sequence[Channel],
    settings: Settings,
    virtual: VirtualPackages,
    *,
    locked: Mapping[str, Sequence[Any]] | None = None,
    priority: str | None = None,
    offline: bool = False,
    cache_dir: str | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Solving:
    """Start a child process on the question and return at once.

    Args:
        specs: platform to all its specs; several of one name are all satisfied.
        channels: in order of priority, as `channels_for` gives them.
        settings: the user's conda settings: priority, proxies, certificates.
        virtual: what to assume about the machines.
        locked: platform to the packages to stay with where possible; each has `name`, `file_name`,
            `url` and `sha256` (`Record` and `LockedPackage` both do). Leave one out to move it.
        priority: `strict`, `flexible` or `disabled` instead of the settings' own.
        offline: only what the cache of channel indexes has.
        cache_dir: of channel indexes; py-rattler's own by default.
        jobs: platforms solved at a time; the number of processors by default.
        progress: told of every phase.

    Raises:
        UsageError: an unknown platform.
        InputError: a text that is no spec.
    """
    question = {
        "channels": [
            {"canonical": channel.canonical, "urls": channel.urls, "group": channel.group, "place": place}
            for place, channel in enumerate(channels)
        ],
        "platforms": {
            platform: {
                "specs": [_spec(spec, tied_to(spec, channels, settings)) for spec in wanted],
                "virtual": [(item.name, item.version, item.build) for item in virtual.of(platform)],
                "locked": [_locked(item) for item in (locked or {}).get(platform, ())],
            }
            for platform, wanted in specs.items()
        },
        "priority": _checked(priority or settings.channel_priority),
        "client": client_settings(settings),
        "retries": settings.remote_max_retries,
        "cache_action": "force-cache-only" if offline else "cache-or-fetch",
        "cache_dir": cache_dir,
        "add_pip": settings.add_pip,
        "jobs": jobs or os.cpu_count() or 1,
    }
    return Solving(question, specs, channels, virtual, environment(settings), progress)


class Solving:
    """A solve under way; leaving the `with` block ends its process."""

    def __init__(
        self,
        question: Mapping[str, Any],
        specs: Mapping[str, Sequence[Spec]],
        channels: Sequence[Channel],
        virtual: VirtualPackages,
        environ: Mapping[str, str],
        progress: Progress | None,
    ) -> None:
        """Start the process; the question goes over its standard input, never its arguments."""
        import tempfile

        self._specs = specs
        self._channels = channels
        # Of two channels that are fetched from one folder, the one that a spec asks for is meant.
        self._asked = {
            (platform, spec["name"]): channels[spec["tied"]]
            for platform, task in question["platforms"].items()
            for spec in task["specs"]
            if isinstance(spec["tied"], int)
        }
        self._virtual = virtual
        self._progress = progress
        # A file, because nobody reads a pipe of complaints while the answer is awaited.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT, root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=dict(environ),
        )
        _widen(self._process.stdout)
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(question).encode())
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # It ended at once: `result` says why.

    def __enter__(self) -> Solving:
        """Itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End the process, whatever it was doing."""
        self.close()

    def close(self) -> None:
        """End the process; harmless when it has ended."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._complaints.close()

    def result(self) -> Solution:
        """Wait for the answer.

        Raises:
            InputError: a spec that the solver cannot read, or a channel whose index is no index.
            NeededError: a channel that cannot be reached or does not exist, or a solver that died.
        """
        records: dict[str, tuple[Record, ...]] = {}
        conflicts = []
        helped: dict[str, tuple[str, ...]] = {}
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "fault" in answer:
                raise_fault(answer["fault"], self._channels)
            elif "progress" in answer:
                self._tell(*answer["progress"])
            elif "conflict" in answer:
                told = answer["conflict"]
                platform = told["platform"]
                conflicts.append(
                    conflict_of(told, self._specs[platform], self._channels, self._virtual.of(platform))
                )
                self._tell(platform, "done", "no solution")
            else:
                platform = answer["platform"]
                records[platform] = tuple(self._record(platform, table) for table in answer["records"])
                if answer["helped"] is not None:
                    helped[platform] = tuple(answer["helped"])
                self._tell(platform, "done", f"{len(records[platform])} packages")
        code = self._process.wait()
        if len(records) + len(conflicts) < len(self._specs):
            raise NeededError(
                "the solver ended without an answer",
                where="py-rattler",
                why=f"exit code {code}" + self._last_complaint(),
                next_step="Killed by a signal (a negative code) mostly means out of memory.",
            )
        return Solution(
            {platform: records[platform] for platform in self._specs if platform in records},
            tuple(sorted(conflicts, key=lambda conflict: conflict.platform)),
            dict(sorted(helped.items())),
        )

    def _record(self, platform: str, table: Mapping[str, Any]) -> Record:
        asked = self._asked.get((platform, str(table["name"])))
        return record_of(table, self._channels if asked is None else (asked, *self._channels))

    def _tell(self, platform: str, phase: str, detail: str) -> None:
        if self._progress is not None:
            self._progress.phase(platform, phase, detail)

    def _last_complaint(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read(_MAX_STDERR_BYTES).decode(errors="replace").strip().splitlines()
        return f", {lines[-1]}" if lines else ""


def _widen(pipe: IO[bytes] | None) -> None:
    """Room for a whole answer, where the system gives it: a full pipe would hold up other platforms."""
    import fcntl

    if pipe is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
        try:
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # Above what this user may have; slower, not wrong.


def _checked(priority: str) -> str:
    if priority not in PRIORITIES:
        raise UsageError(f"channel priority '{priority}': expected one of {', '.join(PRIORITIES)}")
    return priority


def _spec(spec: Spec, tied: int | str | None) -> dict[str, Any]:
    return {
        "text": spec.text,
        "bare": spec.bare,
        "name": spec.name,
        "where": spec.where,
        "subdir": spec.subdir,
        "tied": tied,
    }


def _locked(item: Any) -> dict[str, Any]:
    folder = item.url.rpartition("/")[0]
    return {
        "name": item.name,
        "file_name": item.file_name,
        "sha256": item.sha256,
        "subdir": folder.rpartition("/")[2],
    }
