"""What a recorded launch was: command, code, job, times; kept with a snapshot, and never drift.

It stands among the notes of the section `host`, for notes are kept and shown and never hashed: two
nodes alike stay alike whatever ran on them. It is the same on all nodes of one snapshot.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from envaudit.model import Fingerprint
from envaudit.model.nodeset import fold

# The section, and the key among its notes.
HOLDER, NOTE = "host", "run"

_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "FLUX_JOB_ID", "K8S_JOB_NAME")
_WORLDS = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_MAX_WORLD = 1 << 20
# Of a command in a line that says what changed.
_SHOWN_CHARACTERS = 160
_NUMBER = re.compile(r"\d{1,9}\Z", re.ASCII)
# Options of launchers that say how many ranks there are; those of torchrun are multiplied.
_NODES, _LOCAL = ("--nnodes",), ("--nproc-per-node", "--nproc_per_node")
_RANKS = ("-np", "-n", "--np", "--ntasks", "--num_processes", "--num-processes")


def with_launch(fingerprint: Fingerprint, record: Mapping[str, Any]) -> Fingerprint:
    """The fingerprint with this record among its notes; unchanged where its host was not read."""
    section = fingerprint.sections.get(HOLDER)
    if section is None:
        return fingerprint
    held = section.with_details({**section.notes, NOTE: dict(record)}, section.errors)
    return replace(fingerprint, sections={**fingerprint.sections, HOLDER: held})


def launch_of(fingerprint: Fingerprint) -> Optional[Mapping[str, Any]]:
    """The record that a snapshot of this node was taken with; None where it was taken without one."""
    section = fingerprint.sections.get(HOLDER)
    record = section.notes.get(NOTE) if section is not None else None
    return record if isinstance(record, dict) else None


def words_of(record: Mapping[str, Any]) -> str:
    """`exit 0, job 81231, torchrun train.py`."""
    job = f", job {record['job']}" if record.get("job") else ""
    return f"exit {record.get('exit_code')}{job}, {record.get('command')}"


def succeeded(record: Optional[Mapping[str, Any]]) -> bool:
    """Whether it ended with 0; a snapshot without a record says nothing of that."""
    return record is not None and record.get("exit_code") == 0


def changes(before: Sequence[Fingerprint], now: Sequence[Fingerprint]) -> List[str]:
    """What differs between the launches of two sides: `command: a.py → b.py`, nodes named if not all."""
    held = {each.node.partition("@")[0]: launch_of(each) for each in before}
    told: Dict[str, List[str]] = {}
    for each in now:
        node = each.node.partition("@")[0]
        was, is_now = held.get(node), launch_of(each)
        if was is None or is_now is None:
            continue
        for line in _differences(was, is_now):
            told.setdefault(line, []).append(node)
    return [
        line if len(nodes) == len(now) else f"{fold(nodes)}: {line}" for line, nodes in sorted(told.items())
    ]


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key, word in (
        ("command", "command"),
        ("exit_code", "exit code"),
        ("world_size", "world size"),
        ("commit", "git commit"),
        ("dirty", "local changes"),
    ):
        if was.get(key) != now.get(key):
            before, after = _value(was.get(key)), _value(now.get(key))
            before, after = _apart(before, after) if key == "command" else (before, after)
            yield f"{word}: {before} → {after}"
    files, later = was.get("files"), now.get("files")
    if isinstance(files, dict) and isinstance(later, dict):
        for name in sorted({*files, *later}):
            if files.get(name) != later.get(name):
                yield f"{name}: {_digest(files.get(name))} → {_digest(later.get(name))}"


def _value(value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _apart(before: str, after: str) -> Tuple[str, str]:
    """Two commands without the words that both begin and end with, where they are long."""
    if len(before) + len(after) <= _SHOWN_CHARACTERS:
        return before, after
    first, second = before.split(" "), after.split(" ")
    alike = 0
    while alike < min(len(first), len(second)) and first[alike] == second[alike]:
        alike += 1
    # The program, and the option of which this is the value, say what the words are.
    begin = max(1, alike - 1)
    end = 0
    while end < min(len(first), len(second)) - begin and first[-1 - end] == second[-1 - end]:
        end += 1
    return _between(first, begin, end), _between(second, begin, end)


def _between(words: Sequence[str], begin: int, end: int) -> str:
    inside = " ".join(words[begin : len(words) - end])
    cut = f"{inside[:_SHOWN_CHARACTERS]}..." if len(inside) > _SHOWN_CHARACTERS else inside
    text = f"{words[0][:_SHOWN_CHARACTERS]}{' ...' if begin > 1 else ''} {cut}".rstrip()
    return f"{text} ..." if end and not cut.endswith("...") else text


def _digest(value: object) -> str:
    return f"sha256:{str(value)[:12]}" if value else "not there"


def job_of(environ: Mapping[str, str]) -> Optional[str]:
    """The scheduler's number of this job; None outside of one."""
    return next((environ[name][:128] for name in _JOBS if environ.get(name)), None)


def world_of(argv: Sequence[str], environ: Mapping[str, str]) -> Optional[int]:
    """How many ranks a command starts, by its launcher's options or its variables; None where nobody says."""
    local, nodes, ranks = _option(argv, _LOCAL), _option(argv, _NODES), _option(argv, _RANKS)
    launcher = os.path.basename(argv[0]) if argv else ""
    if local is not None:
        return _bounded(local * (nodes or 1))
    if ranks is not None and launcher in ("mpirun", "mpiexec", "srun", "accelerate", "prun"):
        return _bounded(ranks)
    told = next((environ[name] for name in _WORLDS if _NUMBER.match(environ.get(name, ""))), None)
    return None if told is None else _bounded(int(told))


def _option(argv: Sequence[str], names: Tuple[str, ...]) -> Optional[int]:
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in names:
            text = value if equals else argv[place + 1] if place + 1 < len(argv) else ""
            return int(text) if _NUMBER.match(text) else None
    return None


def _bounded(number: int) -> Optional[int]:
    return number if 0 < number <= _MAX_WORLD else None
