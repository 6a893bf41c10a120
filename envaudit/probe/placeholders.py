"""What differs from user to user, host to host and job to job inside a value, by its name instead.

`/home/alice/.cache` on one node and `/home/bob/.cache` on another are `$HOME/.cache` on both.
"""

from __future__ import annotations

import re
from typing import Iterable, List, Mapping, Tuple

_JOB_VARIABLES = (
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_ARRAY_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "JOB_ID",
)
# As a temporary folder these are no one's own: a node that sets TMPDIR=/tmp equals one that does not.
_COMMON_FOLDERS = ("/", "/tmp", "/var/tmp", "/dev/shm", "/root")
_SHORTEST_NAME = 3
_SHORTEST_JOB = 4


class Placeholders:
    """The replacements of one node, longest text first."""

    def __init__(self, environ: Mapping[str, str], host_names: Iterable[str]) -> None:
        found: List[Tuple[str, str, str]] = []
        home = environ.get("HOME", "").rstrip("/")
        if len(home) > 1:
            found.append((home, _path(home), "$HOME"))
        temporary = environ.get("TMPDIR", "").rstrip("/")
        if temporary and temporary not in _COMMON_FOLDERS:
            found.append((temporary, _path(temporary), "$TMPDIR"))
        for user in {environ.get("USER", ""), environ.get("LOGNAME", "")}:
            # root is a word of many values, and the same user everywhere.
            if len(user) >= _SHORTEST_NAME and user != "root":
                found.append((user, _word(user), "$USER"))
        for name in host_names:
            if len(name) >= _SHORTEST_NAME and name != "localhost":
                found.append((name, _word(name), "$HOSTNAME"))
        for job in {environ.get(variable, "") for variable in _JOB_VARIABLES} - {""}:
            found.append((job, _job(job), "$JOB_ID"))
        found.sort(key=lambda one: (-len(one[0]), one))
        self._replacements = found

    def put(self, value: str) -> str:
        """The value with placeholders."""
        for text, pattern, name in self._replacements:
            # Compiling the patterns costs more than most sections; few values hold any of the texts.
            if text in value:
                value = re.sub(pattern, lambda _, name=name: name, value)  # type: ignore[misc]
        return value


def _path(path: str) -> str:
    # A path ends where a component ends: /home/al is no part of /home/alice.
    return rf"(?<![\w.-]){re.escape(path)}(?![\w.-])"


def _word(word: str) -> str:
    return rf"(?<![A-Za-z0-9$]){re.escape(word)}(?![A-Za-z0-9])"


def _job(job: str) -> str:
    if job.isdigit() and len(job) < _SHORTEST_JOB:
        # The 8 of job 8 is also the 8 of cuda-12.8: only next to its own word.
        return rf"(?<=job[._-]){job}(?!\d)|(?<=job){job}(?!\d)|(?<=slurm[._-]){job}(?!\d)"
    return rf"(?<![A-Za-z0-9]){re.escape(job)}(?![A-Za-z0-9])"
