"""Whether a lock still says what its sources ask for, and if not, what changed.

A lock that envaudit made carries its inputs, and comparing them needs neither conda-lock nor a
solver. A lock of another tool has only conda-lock's content hash: where that differs, the cause is
looked for in what the lock holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from envaudit.lock.credentials import cleaned
from envaudit.lock.inputs import Inputs, inputs_of, platforms_of
from envaudit.lock.lockfile import Lock
from envaudit.lock.names import TABLE, normalised, provided
from envaudit.lock.sourcefile import SourceFile
from envaudit.lock.virtual import NO_CUDA, VirtualPackages, virtual_packages
from envaudit.model.canonical import Fact
from envaudit.model.section import Section

NAME = "freshness"
SCHEMA = 1

_INDEX_NAME = re.compile("[a-z0-9][a-z0-9-]*")  # normalised; no path and no address
_UNKNOWN_CAUSE = (
    "the content hash of {platforms} is another one; every spec is still met, so what changed is a spec "
    "that the locked version meets too, or the virtual packages"
)


class _Line(NamedTuple):
    """One recorded dependency: `dev: pip wandb >=0.16` is dev, pip, wandb, >=0.16."""

    category: str
    manager: str
    name: str
    rest: str


def freshness_section(
    lock: Lock,
    sources: Sequence[SourceFile],
    *,
    platforms: Sequence[str] = (),
    virtual: VirtualPackages | None = None,
    priority: str = "",
    table: str = TABLE,
) -> Section:
    """The facts of a lock's freshness: `changes`, one line each, empty for a fresh lock.

    Args:
        lock: as it is on disk.
        sources: as they are now.
        platforms: what the lock should be for, where somebody says so now; else the platforms of the
            sources must be what they were.
        virtual: the virtual packages, where somebody chose them; else those of the lock stand.
        priority: the channel priority, where somebody chose it.
        table: the name table.

    Raises:
        UsageError: an unknown platform. InputError: a source that conda-lock cannot read.
    """
    recorded = Inputs.from_custom(lock.custom)
    named = platforms or (platforms_of(sources) if recorded is None else ())
    changes = [*_signed("platforms", lock.platforms, named)] if named else []
    common = [platform for platform in lock.platforms if not named or platform in named]
    if recorded is None:
        changes += _by_hash(lock, sources, common, virtual, table)
    else:
        if not named:
            now = platforms_of(sources)
            # Sources that named none were locked for what the lock has.
            before = recorded.platforms or (lock.platforms if now else ())
            changes += _signed("platforms", before, now)
        changes += changes_between(recorded, inputs_of(sources, common, virtual, priority))
        changes += _lost(lock, recorded, common, table)
    changes += _contradictions(lock, common)
    # A lock of another tool may hold a password in a channel's address.
    said: list[Fact] = [cleaned(change) for change in changes]
    facts: dict[str, Fact] = {"path": lock.path, "changes": said, "by_hash": recorded is None}
    return Section(NAME, SCHEMA, "ok", facts)


def changes_between(before: Inputs, now: Inputs) -> list[str]:
    """What differs: `channels: +pytorch`, `numpy: >=1.20 → >=1.26`, `pip: +wandb`.

    Virtual packages and the channel priority count only where both sides have them. A change that not
    all platforms of `now` share is followed by those that have it.
    """
    changes = [*_signed("channels", before.channels, now.channels)]
    if not changes and before.channels != now.channels:
        changes.append(f"channels: order is now {', '.join(now.channels)}")
    if before.priority and now.priority and before.priority != now.priority:
        changes.append(f"channel priority: {before.priority} → {now.priority}")
    per_platform = {
        platform: [
            *_spec_changes(before.specs.get(platform, ()), now.specs[platform]),
            *_virtual_changes(before.virtual.get(platform, ()), now.virtual.get(platform, ())),
        ]
        for platform in now.specs
    }
    seen: dict[str, list[str]] = {}
    for platform, lines in per_platform.items():
        for line in lines:
            seen.setdefault(line, []).append(platform)
    return changes + [
        line if len(where) == len(per_platform) else f"{line} ({', '.join(where)})"
        for line, where in seen.items()
    ]


def _lost(lock: Lock, recorded: Inputs, platforms: Sequence[str], table: str) -> Iterator[str]:
    """The packages that a merge or a hand took out: a spec, or another package, needs them."""
    for platform in platforms:
        packages = lock.of(platform, None, "conda")
        lines = [*map(_parsed, recorded.specs.get(platform, ()))]
        wanted = {name: each.name for each in packages for name in each.dependencies}
        for line in lines:
            if line.manager == "conda" and "/" not in line.name:
                wanted.setdefault(line.name.rpartition("::")[2], "")
        for name in sorted(wanted.keys() - {each.name for each in packages}):
            if not name.startswith("__"):  # a virtual package: a fact of the machine
                needs = f", and {wanted[name]} needs it" if wanted[name] else ""
                yield f"{name}: gone from the lock for {platform}{needs}"
        if recorded.own_names and table == TABLE:
            continue  # what conda brings to Python, only that table tells
        brought = provided(((each.name, each.version, each.dependencies) for each in packages), table)
        brought.update((normalised(each.name), each.version) for each in lock.of(platform, None, "pip"))
        for name in sorted(_named_of_index(lines) - brought.keys()):
            yield f"pip {name}: gone from the lock for {platform}"


def _named_of_index(lines: Iterable[_Line]) -> set[str]:
    """The distributions that the pip section asks for by their names, on every machine."""
    return {
        name
        for line in lines
        for name in (line.name.partition("[")[0],)
        if line.manager == "pip" and _INDEX_NAME.fullmatch(name) and not re.match("@|.*;", line.rest)
    }


def _contradictions(lock: Lock, platforms: Sequence[str]) -> Iterator[str]:
    """The conda packages of which a merge or a hand changed the version, or the file, and not both."""
    for platform in platforms:
        for each in lock.of(platform, None, "conda"):
            file_name = each.file_name
            if not file_name.lower().startswith(f"{each.name}-{each.version}-".lower()):
                yield f"{each.name}: {each.version} in the lock for {platform}, and its file is {file_name}"


def _spec_changes(before: Iterable[str], now: Iterable[str]) -> Iterator[str]:
    old, new = _grouped(before), _grouped(now)
    for key in sorted({**old, **new}, key=lambda key: (key[1], key[2], key[0])):
        category, manager, name = key
        if old.get(key) == new.get(key):
            continue
        group = manager if category == "main" else f"{category} {manager}"
        if key not in old:
            yield f"{group}: +{' '.join([name, *new[key]]).strip()}"
        elif key not in new:
            yield f"{group}: -{name}"
        else:
            prefix = "" if group == "conda" else f"{group} "
            yield f"{prefix}{name}: {_spoken(old[key])} → {_spoken(new[key])}"


def _grouped(lines: Iterable[str]) -> dict[tuple[str, str, str], list[str]]:
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for line in map(_parsed, lines):
        grouped.setdefault((line.category, line.manager, line.name), []).append(line.rest)
    return grouped


def _parsed(text: str) -> _Line:
    category, separator, rest = text.partition(": ")
    # A marker or a URL may hold a colon too; a category is one word.
    if not separator or " " in category:
        category, rest = "main", text
    manager, _, rest = rest.partition(" ")
    name, _, rest = rest.partition(" ")
    return _Line(category, manager, name, rest)


def _spoken(rests: Sequence[str]) -> str:
    return ", ".join(rest or "any" for rest in rests)


def _virtual_changes(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    if not before or not now:
        return
    old = dict(text.split("=", 1) for text in before)
    new = dict(text.split("=", 1) for text in now)
    for name in sorted({**old, **new}):
        if old.get(name) != new.get(name):
            yield f"{name}: {old.get(name, 'none')} → {new.get(name, 'none')}"


def _signed(subject: str, before: Iterable[str], now: Iterable[str]) -> Iterator[str]:
    old, new = list(before), list(now)
    signs = [f"+{each}" for each in new if each not in old] + [f"-{each}" for each in old if each not in new]
    if signs:
        yield f"{subject}: {', '.join(signs)}"


def _by_hash(
    lock: Lock,
    sources: Sequence[SourceFile],
    platforms: Sequence[str],
    virtual: VirtualPackages | None,
    table: str,
) -> list[str]:
    """What a lock of another tool says: nothing where conda-lock would take it for fresh."""
    from envaudit.lock.assemble import accepted_hashes
    from envaudit.lock.audit import lock_section

    # Nobody recorded what was assumed: conda-lock's defaults, and its --without-cuda.
    choices = [virtual] if virtual else [virtual_packages(), virtual_packages(cuda=NO_CUDA)]
    accepted = accepted_hashes(sources, platforms, choices, table)
    stale = [each for each in platforms if lock.content_hash.get(each) not in accepted[each]]
    if not stale:
        return []
    channels = [each.text for source in sources for each in source.channels if each.text != "nodefaults"]
    changes = [*_signed("channels", [each.url for each in lock.channels], dict.fromkeys(channels))]
    facts = lock_section(lock, sources, table=table).facts["platforms"]
    assert isinstance(facts, Mapping)
    lines: dict[str, None] = {}
    for platform in stale:
        for spec in facts[platform]["unsatisfied"]:
            lines[f"{spec['text']}: the lock has {spec['locked'] or 'none'}"] = None
    changes += lines
    return changes or [_UNKNOWN_CAUSE.format(platforms=", ".join(stale))]
