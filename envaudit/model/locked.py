"""A lock's expectation and a node, cut down to what the one can be held against the other.

A lock says nothing of where an environment lies or what else a node is. Both sides then go through
the ordinary comparison, on the controller and in the one-file form alike.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

from envaudit.model.fingerprint import Fingerprint
from envaudit.model.section import Section

# Machine to conda platform, of Linux: `uname -m` as `host` has it.
PLATFORMS = {
    "x86_64": "linux-64",
    "aarch64": "linux-aarch64",
    "ppc64le": "linux-ppc64le",
    "s390x": "linux-s390x",
}

# What a lock and a conda-meta record both say of a package. A hash that one of them lacks is no
# difference, and a file of the same hash is the same file whatever channel it came through.
_HASHES = ("sha256", "md5")

# PEP 440: an epoch, and the numbers of a release.
_RELEASE = re.compile(r"v?(?P<epoch>\d+!)?(?P<release>\d+(?:\.\d+)*)")
_SEPARATORS = re.compile(r"[-_.]+")


def held_against(
    expected: Fingerprint, found: Fingerprint, distributions_of: Callable[[str], Sequence[str]]
) -> Tuple[Fingerprint, Fingerprint]:
    """Both sides cut down to what can be compared, the lock's and the node's.

    A lock may be of any kind: one that has no section `conda` or `packages` says nothing of it.
    Its section `lock` may name distributions that are `optional`, which count where they are
    there, and `unlisted` ones, which are nothing beyond the lock. A null distribution is one of
    which the lock does not say whether this node needs it.

    Args:
        expected: what the lock asks of the node.
        found: what the node is.
        distributions_of: the index names of what a conda package holds, normalised.
    """
    want_conda, want_pip = (
        _table(expected, "conda", "packages"),
        _table(expected, "packages", "distributions"),
    )
    have_conda, have_pip = _table(found, "conda", "packages"), _table(found, "packages", "distributions")
    conda = {
        name: _comparable(facts, have_conda[name]) if name in have_conda else (facts, None)
        for name, facts in want_conda.items()
    }
    own, theirs = _distributions(expected, want_conda, want_pip, have_pip, distributions_of)
    left: Dict[str, Dict[str, Any]] = {"packages": {"distributions": own}}
    right: Dict[str, Dict[str, Any]] = {"packages": {"distributions": theirs}}
    if "conda" in expected.sections:
        left["conda"] = {"packages": {name: pair[0] for name, pair in conda.items()}}
        right["conda"] = {
            "packages": {
                name: conda[name][1] if name in conda else _kept(facts) for name, facts in have_conda.items()
            }
        }
    return _with(expected, left, found), _with(found, right, found)


def _distributions(
    expected: Fingerprint,
    want_conda: Mapping[str, Any],
    want_pip: Mapping[str, Any],
    have_pip: Mapping[str, Any],
    distributions_of: Callable[[str], Sequence[str]],
) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The distributions of both sides; of a version that two texts tell, the lock's text."""
    optional = _table(expected, "lock", "optional")
    own = {
        **{name: facts for name, facts in want_pip.items() if facts is not None},
        **{name: facts for name, facts in optional.items() if name in have_pip},
        **_over_conda(want_conda, want_pip, have_pip, distributions_of),
    }
    about = expected.sections.get("lock")
    unlisted = about.facts.get("unlisted") if about is not None else None
    passed = {
        *(name for name, facts in want_pip.items() if facts is None),
        *(unlisted if isinstance(unlisted, list) else ()),
    }
    theirs: Dict[str, Any] = {}
    for name, facts in have_pip.items():
        if name in own:
            have = _version_alone(facts if isinstance(facts, dict) else {})
            want = _version_alone(own[name])
            same = not want or _is_one_version(want["version"], have.get("version"))
            theirs[name] = want if same else have
        elif "packages" in expected.sections and name not in passed and is_of_pip(facts):
            theirs[name] = {"version": facts.get("version")}
    return {name: _version_alone(facts) for name, facts in own.items()}, theirs


def _version_alone(facts: Mapping[str, Any]) -> Dict[str, Any]:
    return {"version": facts["version"]} if facts.get("version") is not None else {}


def _is_one_version(want: object, have: object) -> bool:
    """Whether two texts are one version to PEP 440: `2022.07` is `2022.7`, but a local tag counts."""
    if want == have:
        return True
    try:
        from packaging.version import Version
    except ImportError:  # the one-file form has the standard library alone
        return _plain(str(want)) == _plain(str(have))
    try:
        return Version(str(want)) == Version(str(have))
    except ValueError:  # no version, or one with a number longer than Python reads
        return False


def _plain(version: str) -> Tuple[str, str, str]:
    """Release, what follows it, and local tag, with the spellings that PEP 440 holds equal made one."""
    public, _, local = version.strip().lower().partition("+")
    match = _RELEASE.match(public)
    if match is None:
        return "", public, local
    numbers = [part.lstrip("0") or "0" for part in match["release"].split(".")]
    while len(numbers) > 1 and numbers[-1] == "0":
        numbers.pop()
    rest = _SEPARATORS.sub("", public[match.end() :])
    for word, short in (("alpha", "a"), ("beta", "b"), ("preview", "rc"), ("pre", "rc")):
        rest = rest.replace(word, short)
    epoch = match["epoch"] or "0!"
    return epoch + ".".join(numbers), rest, _SEPARATORS.sub(".", local)


def _comparable(want: Mapping[str, Any], have: Any) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """One package's fields that both sides state."""
    have = have if isinstance(have, dict) else {}
    fields = [key for key in want if want[key] is not None and have.get(key) is not None]
    hashes = [key for key in _HASHES if key in fields]
    if any(want[key] == have[key] for key in hashes) and "channel" in fields:
        fields.remove("channel")
    # One hash is enough to tell.
    for key in hashes[1:]:
        fields.remove(key)
    return {key: want[key] for key in fields}, {key: have[key] for key in fields}


def _kept(facts: Any) -> Any:
    """What is told of a package beyond the lock; what is no package's facts stays what it is."""
    if not isinstance(facts, dict):
        return facts
    return {key: facts[key] for key in ("version", "build", "channel") if key in facts}


def _over_conda(
    want_conda: Mapping[str, Any],
    want_pip: Mapping[str, Any],
    have_pip: Mapping[str, Any],
    distributions_of: Callable[[str], Sequence[str]],
) -> Dict[str, Any]:
    """Distributions that pip put over a locked conda package: the conda version is what is expected."""
    over = {}
    for conda_name, facts in want_conda.items():
        for name in distributions_of(conda_name):
            if name not in want_pip and is_of_pip(have_pip.get(name)):
                over[name] = {"version": facts["version"]}
    return over


def platform_of(fingerprint: Fingerprint, default: str) -> str:
    """The conda platform of a node, by its machine; `default` where its host was not read."""
    host = fingerprint.sections.get("host")
    machine = host.facts.get("architecture") if host is not None else None
    return PLATFORMS.get(str(machine), default)


def is_of_pip(facts: Any) -> bool:
    """Whether a distribution was put there by pip or its like, and is no checkout of the user's own.

    Of a development install the git section and a comparison between nodes speak; a lock cannot.
    """
    if not isinstance(facts, dict) or facts.get("editable"):
        return False
    return facts.get("installer") not in (None, "conda")


def _table(fingerprint: Fingerprint, section: str, key: str) -> Mapping[str, Any]:
    held = fingerprint.sections.get(section)
    table = held.facts.get(key) if held is not None else None
    return table if isinstance(table, dict) else {}


def _with(side: Fingerprint, facts: Mapping[str, Dict[str, Any]], node: Fingerprint) -> Fingerprint:
    """A side with these facts; the layout's number is the node's, and what it could not read stays so."""
    sections = {}
    for name, of_section in facts.items():
        read = node.sections.get(name)
        if read is None:
            continue
        status = read.status if side is node else "ok"
        sections[name] = Section(
            name, read.schema, status, of_section if status in ("ok", "partial") else {}, {}, read.errors
        )
    return Fingerprint(side.node, side.source, side.captured_at, side.tool, sections)
