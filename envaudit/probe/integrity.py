"""Section `integrity`: what lies in an environment other than it was installed.

It is read where it is asked for by name, never in an ordinary snapshot: it looks at every file that
conda and pip installed. What it is told:

- `integrity`: `hash` (default) reads every file; `size` looks at kinds and sizes alone, and an edit
  that keeps the size goes unseen;
- `integrity_cache`: a file that keeps the digests of this run, see `envaudit.probe.hashcache`. In
  `size` mode it is believed: what has not been touched since it was hashed is not read again, and
  what was touched is hashed. In `hash` mode nothing of it is believed;
- `integrity_progress`: a file of this machine into which goes how far the work is.
"""

from __future__ import annotations

import gc
import os
import signal
import stat
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from envaudit.probe.context import Answer, Context
from envaudit.probe.hashcache import HashCache
from envaudit.probe.hashing import Looking
from envaudit.probe.recorded import Recorded
from envaudit.probe.screening import Screening
from envaudit.probe.unrecorded import unrecorded

SCHEMA = 1
DEADLINE_S = 900.0

STATES = ("changed", "missing", "extra")
_NAMED_PATHS = 20
_MAX_NAMED = 5000
_MAX_ERRORS = 100

# How many files and bytes are through, and of how many.
Tell = Callable[[int, int, int, int], None]
# Package to the paths of its files.
_ByPackage = Dict[str, List[str]]


def read(context: Context, tell: Optional[Tell] = None) -> Answer:
    """Facts `changed`, `missing` and `extra`: package to the paths, below the prefix, of such files.

    `extra` are files in a package's folder of site-packages that no package recorded. Of a package at
    most 20 paths are named, 5000 in all; `counts` (state to package to number) has them all. A pip
    package is named `pip:NAME`. Byte code is left out, since Python writes it anew by itself. `mode` is
    `size`, `hash`, or `cached` for `size` with a cache.

    Notes: `examined` (files), `read_bytes`, `elapsed_ms`, and where it applies `cache` and
    `outside_prefix`, the entries of records that lead out of the prefix and were not followed.
    """
    # Tens of thousands of small objects that live to the end: collections would only copy pages.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with _progress(str(context.options.get("integrity_progress") or ""), tell) as told:
            return _read(context, told)
    finally:
        if collecting:
            gc.enable()


def _read(context: Context, tell: Optional[Tell]) -> Answer:
    began = time.monotonic()
    options = context.options
    mode = "size" if options.get("integrity") == "size" else "hash"
    cache = HashCache.of(str(options.get("integrity_cache") or ""))
    with Screening(_left_s()) as screening:
        screened = mode == "hash" and cache is None and context.live
        recorded = Recorded(context, screening.offer if screened else None)
        screening.all_offered()
        errors = recorded.errors
        if not recorded.folders and not errors:
            return Answer("absent", {}, {"examined": 0})
        extra = list(unrecorded(context, recorded, errors))
        through = _Through(recorded, tell)
        paths = list(dict.fromkeys(recorded.unoffered + screening.result(through.tell)))
    files = list(map(recorded.file, paths))
    if not context.live:
        files = [file._replace(path=context.real(file.path)) for file in files]
    with Looking(
        files,
        contents=mode == "hash" or cache is not None,
        deadline_s=_left_s(),
        believed=cache.read() if cache and mode == "size" else {},
        remember=cache is not None,
    ) as looking:
        through.go_on()
        found = looking.result(through.tell)
    states: Dict[str, _ByPackage] = {state: {} for state in STATES}
    for state, indices in (("changed", found.changed), ("missing", found.missing)):
        for index in indices:
            for package in recorded.packages(paths[index]):
                states[state].setdefault(package, []).append(recorded.relative(paths[index]))
    for package, path in extra:
        states["extra"].setdefault(package, []).append(recorded.relative(path))
    errors.extend(_unread(paths, found.errors))
    notes: Dict[str, Any] = {
        "examined": len(recorded.claims),
        "read_bytes": screening.passed_bytes + found.read_bytes,
        "elapsed_ms": int((time.monotonic() - began) * 1000),
    }
    if recorded.outside:
        notes["outside_prefix"] = recorded.outside
    unexamined = {
        f"{count} files hashed by {name}": "this Python has no such hash; sizes alone were compared"
        for name, count in sorted(recorded.unknown.items())
    }
    if recorded.undigested:
        what = f"contents of {recorded.undigested} conda packages"
        unexamined[what] = "their records hold no digests; only that the files are there was looked at"
    if unexamined:
        notes["not_examined"] = unexamined
    if cache:
        cache.write(found.known)
        notes["cache"] = cache.said
    facts = {**_named(states), "counts": _counts(states)}
    facts["mode"] = "cached" if cache and mode == "size" else mode
    return Answer("partial" if errors else "ok", facts, notes, errors)


class _Through:
    """How many files and bytes are through, of all that are recorded, in one count over both looks."""

    def __init__(self, recorded: Recorded, tell: Optional[Tell]) -> None:
        self._tell = tell
        self._all = (len(recorded.claims), recorded.size_bytes() if tell else 0)
        self._before = self._now = (0, 0)

    def tell(self, files: int, size_bytes: int) -> None:
        """So many of the present look."""
        self._now = (self._before[0] + files, self._before[1] + size_bytes)
        if self._tell:
            (files, size_bytes), (all_files, all_bytes) = self._now, self._all
            self._tell(min(files, all_files), min(size_bytes, all_bytes), all_files, all_bytes)

    def go_on(self) -> None:
        """The next look begins."""
        self._before = self._now


@contextmanager
def _progress(path: str, tell: Optional[Tell]) -> Iterator[Optional[Tell]]:
    """What to tell how far the work is: who asks, or a file that whoever started the probe has made."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK) if path else -1
    except OSError:
        fd = -1
    if fd < 0 or not stat.S_ISREG(os.fstat(fd).st_mode):
        yield tell
        return

    def written(*numbers: int) -> None:
        try:
            os.pwrite(fd, " ".join(map(str, numbers)).encode("ascii") + b"\n", 0)
        except OSError:
            pass  # a full disk costs the bar alone

    yield written


def _left_s() -> float:
    """Seconds until this process' own alarm, which its children must not outlive."""
    left_s = signal.getitimer(signal.ITIMER_REAL)[0]
    return left_s or DEADLINE_S


def _unread(paths: List[str], errors: Mapping[int, str]) -> List[str]:
    named = sorted(f"{paths[index]}: {why}" for index, why in errors.items())
    if len(named) > _MAX_ERRORS:
        named[_MAX_ERRORS:] = [f"and {len(named) - _MAX_ERRORS} more files"]
    return [os.fsencode(text).decode("utf-8", "backslashreplace") for text in named]


def _named(states: Mapping[str, _ByPackage]) -> Dict[str, Any]:
    left = _MAX_NAMED
    facts: Dict[str, Any] = {}
    for state, packages in states.items():
        facts[state] = {}
        for package, paths in sorted(packages.items()):
            facts[state][package] = sorted(paths)[: min(_NAMED_PATHS, left)]
            left -= len(facts[state][package])
    return facts


def _counts(states: Mapping[str, _ByPackage]) -> Dict[str, Any]:
    return {
        state: {package: len(paths) for package, paths in sorted(packages.items())}
        for state, packages in states.items()
    }
