"""A lock file: fresh, whole, true to its sources, pinned to the byte, free of secrets."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Tuple

from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule

Facts = Dict[str, Any]


@rule(
    "EA060",
    severity="error",
    scope="node",
    needs=("freshness",),
    title="lock is stale",
    why="What is installed from it is not what the source asks for.",
    how_to_fix="Run 'envaudit lock' and commit the result.",
)
def stale_lock(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The lock was made for other sources; the message says what changed."""
    for fingerprint in evidence.fingerprints:
        if "freshness" in fingerprint.sections:
            facts: Facts = fingerprint.sections["freshness"].facts
            if facts["changes"]:
                yield Found(f"stale: {'; '.join(facts['changes'])}", path=facts["path"])


@rule(
    "EA061",
    severity="error",
    scope="node",
    needs=("lockfile",),
    title="lock does not satisfy a spec",
    why="The environment that is installed from the lock is not the one that was asked for.",
    how_to_fix="Run 'envaudit lock' again; where that changes nothing, please report it.",
)
def unsatisfied_spec(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """An entry of the source that the locked version does not meet, or that is not locked at all."""
    for _, spec, platforms in _alike(evidence, "unsatisfied"):
        locked = f"has {spec['locked']}" if spec["locked"] else "does not have it"
        other_file = "sha256" in locked
        yield Found(
            f"lock does not satisfy spec {spec['text']}: it {locked} on {platforms}",
            path=f"{spec['path']}:{spec['line']}:{spec['column']}",
            hint="Name the hash of that file if it is the one you mean; else ask who put it there."
            if other_file
            else "",
        )


@rule(
    "EA062",
    severity="error",
    scope="node",
    needs=("lockfile",),
    title="lock is not closed",
    why="An installer that takes the lock as it is leaves out, or gets wrong, what a package needs to run.",
    how_to_fix="Make the lock again; a lock must not be edited by hand.",
)
def open_lock(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A dependency of a locked package that the lock does not have, or has in a version that does not fit."""
    for path, gap, platforms in _alike(evidence, "open"):
        locked = f"{gap['locked']} is locked" if gap["locked"] else "which is not locked"
        yield Found(f"{gap['package']} needs {gap['needs']}, {locked} ({platforms})", path=path)


@rule(
    "EA063",
    severity="error",
    scope="node",
    needs=("lockfile",),
    title="locked package without a hash",
    why="Nobody can tell whether what is installed later is what was locked.",
    how_to_fix="Lock a file that has a hash, or a repository at a commit of 40 hex digits.",
)
def without_hash(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Neither an md5 nor a sha256, and no commit."""
    for path, package, platforms in _alike(evidence, "without_hash"):
        yield Found(f"{package['name']} {package['version']} has no hash ({platforms})", path=path)


@rule(
    "EA064",
    severity="error",
    scope="node",
    needs=("lockfile",),
    title="credential in a lock",
    why="A lock is committed and copied: whoever reads it has the credential.",
    how_to_fix="Write ${VARIABLE} in its place in the source, set that variable, lock again, and revoke it.",
)
def credential_in_lock(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A literal token, password or user name in a channel's or a package's URL; never shown."""
    for facts in _locks(evidence):
        for found in facts["credentials"]:
            hint = (
                "Keep it in a netrc file, or give it as the password of the index: https://USER:TOKEN@HOST."
                if found["kind"].endswith("index")
                else ""
            )
            yield Found(f"{found['kind']} in {found['where']}", path=facts["path"], hint=hint)


@rule(
    "EA065",
    severity="error",
    scope="node",
    needs=("lockfile",),
    title="build for another platform",
    why="It cannot run there.",
    how_to_fix="Make the lock again.",
)
def foreign_build(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A package of another platform's folder than the one it is locked for."""
    for path, package, platforms in _alike(evidence, "foreign"):
        yield Found(
            f"{package['name']} is a build for {package['subdir']}, locked for {platforms}", path=path
        )


@rule(
    "EA066",
    severity="error",
    scope="node",
    needs=("lockfile",),
    title="two versions of a distribution",
    why="pip installs over conda's files, and the environment has some of each.",
    how_to_fix="Ask for it from one of the two.",
)
def two_versions(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Both conda and pip lock different versions of the same distribution."""
    for path, both, platforms in _alike(evidence, "both"):
        if both["conda"] != both["pip"]:
            yield Found(_of_both(both, platforms), path=path)


@rule(
    "EA067",
    severity="warning",
    scope="node",
    needs=("lockfile",),
    title="one distribution locked twice",
    why="pip installs over conda's files; what is removed or updated later breaks the other.",
    how_to_fix="Ask for it from one of the two.",
)
def locked_twice(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Both conda and pip lock the same version of the same distribution."""
    for path, both, platforms in _alike(evidence, "both"):
        if both["conda"] == both["pip"]:
            yield Found(_of_both(both, platforms), path=path)


def _of_both(both: Facts, platforms: str) -> str:
    return f"{both['distribution']}: {both['conda']} from conda, {both['pip']} from pip ({platforms})"


def _locks(evidence: Evidence) -> Iterator[Facts]:
    for fingerprint in evidence.fingerprints:
        if "lockfile" in fingerprint.sections:
            yield fingerprint.sections["lockfile"].facts


def _alike(
    evidence: Evidence, key: str, fold: Callable[[Facts], str] = repr
) -> Iterator[Tuple[str, Facts, str]]:
    """The lock's path, each fact under `key` once, and the platforms that have it."""
    for facts in _locks(evidence):
        found: Dict[str, Tuple[Facts, List[str]]] = {}
        for platform, each in facts["platforms"].items():
            for fact in each[key]:
                found.setdefault(fold(fact), (fact, []))[1].append(platform)
        for fact, platforms in found.values():
            yield facts["path"], fact, ", ".join(platforms)
