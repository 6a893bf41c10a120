"""Node against lock: what is there, what the lock says, and what cannot be as it says."""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from envaudit.model.drift import Drift, split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.integrity import told_of_files
from envaudit.rules.policy import Policy, Waiver
from envaudit.rules.registry import Evidence, Found, rule
from envaudit.rules.yielding import LOCK_RULES, NOTHING, package_of

# From so many on, packages that are at fault in the same way on the same nodes are one finding.
FOLD_FROM = 4

# conda packages whose Python distribution has another name.
_DISTRIBUTIONS = {
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "matplotlib-base": "matplotlib",
    "opencv": "opencv-python",
    "py-opencv": "opencv-python",
    "msgpack-python": "msgpack",
    "dask-core": "dask",
    "nvidia-apex": "apex",
    "ray-core": "ray",
    "ray-default": "ray",
}
_SEPARATORS = re.compile(r"[-_.]+")
_NUMBERS = re.compile(r"\d{1,9}")
_SAME_ENVIRONMENT = (
    "Install the lock anew: envaudit install LOCK --prefix PREFIX for a conda-lock.yml, "
    "any other by its own tool."
)


@rule(
    "EA200",
    severity="error",
    scope="node",
    title="a package of the lock is missing",
    why="What needs it fails at its first import, on this node alone.",
    how_to_fix=_SAME_ENVIRONMENT,
)
def package_missing(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Packages that the lock has and the node has not."""
    yield from _told(
        evidence, policy, "missing", "is missing", "packages of the lock are missing", _is_package
    )


@rule(
    "EA201",
    severity="error",
    scope="node",
    title="a package beyond the lock",
    why="It was not tested with the others, and may shadow one of them.",
    how_to_fix="Remove it, or add it to the environment file and lock again.",
)
def package_extra(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Packages that the node has and the lock has not, and second records of one package."""
    yield from _told(
        evidence, policy, "extra", "is not in the lock", "packages are not in the lock", _is_package
    )
    twice: Dict[Tuple[str, str], List[str]] = {}
    for fingerprint, _ in _locked(evidence):
        for name, records in _mapping(_facts(fingerprint, "conda").get("duplicates")).items():
            listed = records if isinstance(records, list) else []
            versions = ", ".join(_words(record) for record in listed if isinstance(record, dict))
            twice.setdefault((name, versions), []).append(fingerprint.node)
    for (name, versions), nodes in sorted(twice.items()):
        yield Found(
            f"{name} is recorded twice: {versions}",
            tuple(nodes),
            f"conda/duplicates/{name}",
            hint="An interrupted update left it so: install the lock anew.",
        )


@rule(
    "EA202",
    severity="error",
    scope="node",
    title="another version than the lock's",
    why="Ranks that run other software compute other numbers, or wait for each other.",
    how_to_fix=_SAME_ENVIRONMENT,
)
def other_version(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The version, or its local tag alone (`cu121`)."""
    yield from _fields(evidence, policy, ("version", "local"), "version")


@rule(
    "EA203",
    severity="error",
    scope="node",
    title="another build than the lock's",
    why="Builds of one version differ in compiler, CUDA and what they link.",
    how_to_fix=_SAME_ENVIRONMENT,
)
def other_build(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The same version, another build string."""
    yield from _fields(evidence, policy, ("build",), "build")


@rule(
    "EA204",
    severity="error",
    scope="node",
    title="another channel than the lock's",
    why="Channels build the same version against other libraries.",
    how_to_fix=_SAME_ENVIRONMENT,
)
def other_channel(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The same name, version and build from another channel, and not the same file."""
    yield from _fields(evidence, policy, ("channel",), "channel")


@rule(
    "EA205",
    severity="error",
    scope="node",
    title="another file than the lock's",
    why="The channel replaced the package under the same name, or the record was changed by hand.",
    how_to_fix=_SAME_ENVIRONMENT,
)
def other_hash(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Version, build and channel agree, the hash does not."""
    yield from _fields(evidence, policy, ("sha256", "md5"), "file")


@rule(
    "EA206",
    severity="error",
    scope="node",
    title="files changed on disk since their install",
    why="What runs is not what any package holds.",
    needs=("integrity",),
    how_to_fix="Install the package anew, or its lock: envaudit install LOCK --prefix PREFIX.",
)
def files_changed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Files of a package that are gone or other than recorded; what pip replaced is EA207's."""
    over = {
        (fingerprint.node, conda)
        for fingerprint in evidence.fingerprints
        for conda, _, _ in _over_conda(fingerprint)
    }
    yield from told_of_files(evidence, ("changed", "missing"), "changed on disk since the install", over)


@rule(
    "EA207",
    severity="warning",
    scope="node",
    title="pip wrote over a conda package",
    why="conda still believes in its own version, and its next change restores half of it.",
    needs=("conda", "packages"),
    how_to_fix="Take it out of one of the two, and make the environment anew.",
)
def pip_over_conda(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A distribution that pip installed where a conda package holds it too."""
    told = {drift.path for drift in evidence.drifts if drift.basis == "lock"}
    found: Dict[Tuple[str, str], List[str]] = {}
    for fingerprint in evidence.fingerprints:
        words = {name: f"{how} {name} lies over conda's" for _, name, how in _over_conda(fingerprint)}
        for name, text in {**dict(_beside_conda(fingerprint)), **words}.items():
            found.setdefault((name, text), []).append(fingerprint.node)
    for (name, text), nodes in sorted(found.items()):
        if f"packages/distributions/{name}/version" not in told:
            yield Found(text, tuple(nodes), f"packages/distributions/{name}")


@rule(
    "EA208",
    severity="error",
    scope="node",
    title="the node is older than the lock needs",
    why="A package was chosen that needs a newer driver or C library than this node has.",
    how_to_fix="Lock for the oldest node: envaudit lock --cuda VERSION or --virtual-packages FILE.",
)
def virtual_package_not_met(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """`__cuda` of the lock against the driver's CUDA, `__glibc` against the host's."""
    failing: Dict[Tuple[str, str, str], List[str]] = {}
    for fingerprint, lock in _locked(evidence):
        solved = _mapping(_facts(lock, "lock").get("virtual_packages"))
        for name, has in (("__cuda", _cuda(fingerprint)), ("__glibc", _glibc(fingerprint))):
            needed = solved.get(name)
            if isinstance(needed, str) and has and _number(has) < _number(needed):
                failing.setdefault((name, needed, has), []).append(fingerprint.node)
    words = {"__cuda": "CUDA of the driver", "__glibc": "glibc"}
    for (name, needed, has), nodes in sorted(failing.items()):
        yield Found(f"{words[name]} is {has}, the lock needs {needed}", tuple(nodes), "lock")


@rule(
    "EA209",
    severity="error",
    scope="node",
    title="not an environment of this lock at all",
    why="Nothing of the lock could be compared.",
)
def other_environment(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """No conda environment under the interpreter, or a platform that the lock lacks."""
    lacking: Dict[Tuple[str, str], List[str]] = {}
    bare: List[str] = []
    for fingerprint, lock in _locked(evidence):
        about = _facts(lock, "lock")
        platform, platforms = about.get("platform"), about.get("platforms")
        section = fingerprint.sections.get("conda")
        if isinstance(platforms, list) and platform not in platforms:
            lacking.setdefault((str(platform), ", ".join(map(str, platforms))), []).append(fingerprint.node)
        elif section is not None and section.status == "absent" and _facts(lock, "conda").get("packages"):
            bare.append(fingerprint.node)
    for (platform, platforms), nodes in sorted(lacking.items()):
        yield Found(
            f"the lock has no packages for {platform}",
            tuple(nodes),
            evidence=(f"it has {platforms}",),
            hint=f"Lock for it as well: envaudit lock -p {platform}.",
        )
    if bare:
        yield Found(
            "the interpreter is of no conda environment",
            tuple(bare),
            "conda",
            hint="Name the environment's own interpreter with --python, or the environment with --prefix.",
        )


def _told(
    evidence: Evidence,
    policy: Policy,
    kind: str,
    verb: str,
    many: str,
    chosen: Callable[[Sequence[str]], bool],
) -> Iterator[Found]:
    alike: Dict[Tuple[Tuple[str, ...], Tuple[Waiver, ...], str], List[Drift]] = {}
    for drift in evidence.drifts:
        if drift.basis == "lock" and drift.kind == kind and chosen(split_path(drift.path)):
            waived, level = policy.waivers_of(drift, *LOCK_RULES), policy.level_of_path(drift.path) or ""
            alike.setdefault((drift.outliers, waived, level), []).append(drift)
    for (nodes, _, level), drifts in alike.items():
        if len(drifts) >= FOLD_FROM:
            found = Found(
                f"{len(drifts)} {many}", nodes, drifts=tuple(drifts), severity=level, settled=bool(level)
            )
            yield _with_what_follows(found, evidence)
        else:
            for drift in drifts:
                yield _with_what_follows(
                    Found(f"{drift.path} {verb}", nodes, drift.path, drifts=(drift,)), evidence
                )


def _with_what_follows(found: Found, evidence: Evidence) -> Found:
    """The finding, with what differs between the nodes because of these packages."""
    packages = dict.fromkeys(package_of(drift.path) for drift in found.drifts)
    taken = [evidence.taken_by_lock.get(package, NOTHING) for package in packages]
    words = tuple(dict.fromkeys(f"and so {word}" for each in taken for word in each.words))
    claims = [claim for each in taken for _rule_id, claim in each.claims]
    following = tuple(drift for claim in claims for drift in (*claim.drifts, *claim.following))
    return found._replace(evidence=(*found.evidence, *words), following=following)


def _fields(evidence: Evidence, policy: Policy, fields: Sequence[str], noun: str) -> Iterator[Found]:
    """Changed fields; one that only one side states (a local tag) is a change of it."""

    def is_field(segments: Sequence[str]) -> bool:
        return len(segments) == 4 and segments[-1] in fields

    for kind in ("changed", "missing", "extra"):
        verb, many = f"is not the locked {noun}", f"packages are not of the locked {noun}"
        yield from _told(evidence, policy, kind, verb, many, is_field)


def _words(record: Mapping[str, object]) -> str:
    return f"{record.get('version')} {record.get('build')}"


def _is_package(segments: Sequence[str]) -> bool:
    return len(segments) == 3


def _locked(evidence: Evidence) -> Iterator[Tuple[Fingerprint, Fingerprint]]:
    """Each node with the lock that it was held against."""
    own = {fingerprint.node: fingerprint for fingerprint in evidence.fingerprints}
    for reference in evidence.references:
        # A reference is called `node01@train.conda-lock.yml`; no node's name has an `@`.
        node = reference.node.partition("@")[0]
        if reference.source == "lock" and node in own:
            yield own[node], reference


def distribution_of(conda: str) -> str:
    """The name of the distribution that a conda package of Python code is."""
    return _DISTRIBUTIONS.get(conda, _SEPARATORS.sub("-", conda).lower())


def _beside_conda(fingerprint: Fingerprint) -> Iterator[Tuple[str, str]]:
    """Distributions with a second version beside that of conda's record, and what to say.

    `pip install --ignore-installed` leaves conda's metadata where it is: which of the two is found
    depends on the order of a folder.
    """
    facts = _facts(fingerprint, "packages")
    duplicates, distributions = _mapping(facts.get("duplicates")), _mapping(facts.get("distributions"))
    for conda, record in _mapping(_facts(fingerprint, "conda").get("packages")).items():
        name = distribution_of(conda)
        versions, version = duplicates.get(name), _mapping(record).get("version")
        if _is_elsewhere(_mapping(distributions.get(name))):
            continue  # it hides conda's from another folder: EA248
        if isinstance(versions, list) and version in versions:
            others = sorted({str(each) for each in versions if each not in (None, version)})
            if others:
                yield name, f"{name} {', '.join(others)} lies beside conda's {version}"


def _over_conda(fingerprint: Fingerprint) -> Iterator[Tuple[str, str, str]]:
    """Conda package, distribution and installer, where pip wrote over conda."""
    distributions = _mapping(_facts(fingerprint, "packages").get("distributions"))
    for conda in _mapping(_facts(fingerprint, "conda").get("packages")):
        name = distribution_of(conda)
        facts = _mapping(distributions.get(name))
        if facts.get("installer") not in (None, "conda") and not _is_elsewhere(facts):
            yield conda, name, str(facts["installer"])


def _is_elsewhere(facts: Mapping[str, object]) -> bool:
    """Whether it lies beside conda's copy, not over it."""
    return bool(facts.get("user_site") or facts.get("folder"))


def _cuda(fingerprint: Fingerprint) -> Optional[str]:
    """The CUDA that the driver serves; a driver of a virtual package is no such fact."""
    cuda = _facts(fingerprint, "gpu").get("cuda")
    return cuda if isinstance(cuda, str) else None


def _glibc(fingerprint: Fingerprint) -> Optional[str]:
    glibc = _facts(fingerprint, "host").get("glibc")
    return glibc if isinstance(glibc, str) else None


def _number(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in _NUMBERS.findall(version)[:2])


def _facts(fingerprint: Fingerprint, section: str) -> Mapping[str, object]:
    held = fingerprint.sections.get(section)
    return held.facts if held is not None else {}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
