"""The pip section of an environment.yml: what it adds, and whether it says the same tomorrow."""

from __future__ import annotations

import re
import shlex
from typing import Iterator, Tuple

from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule
from envaudit.rules.sourcefacts import (
    Facts,
    at,
    conda_entries,
    may_be_one,
    others,
    overlap,
    pip_entries,
    sources_of,
)

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_INDEXES = ("--index-url", "--pypi-url", "--extra-index-url", "--find-links")
# Options that choose files or change what is found, for all lines of the section.
_SECTION_OPTIONS = ("--pre", "--no-index", "--no-binary", "--trusted-host", "--use-feature")
# An archive that a forge makes of a branch or a tag: host/owner/repository/archive/REF.zip.
_ARCHIVE_REF = re.compile(
    r"/(?:archive|zipball|tarball)/(?:refs/heads/)?(?P<ref>[^/]+?)(?:\.zip|\.tar\.gz)?\Z"
)
_TAG = re.compile(r"v?\d[\w.+-]*\Z|refs/tags/")


@rule(
    "EA020",
    severity="error",
    scope="node",
    needs=("envfile",),
    title="several pip sections",
    why="conda installs the lines of the last one and drops the others without a word.",
    how_to_fix="Join them into one 'pip:' section.",
)
def several_sections(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """At the second one."""
    for source in sources_of(evidence):
        sections = source["pip_sections"]
        if len(sections) > 1:
            dropped = [
                entry for entry in pip_entries(source) if int(entry.get("block", 0)) < len(sections) - 1
            ]
            message = f"{len(sections)} pip sections: conda would drop {_count(len(dropped), 'line')} of them"
            lines = [str(section["line"]) for section in sections]
            yield at(sections[1], message, (f"they begin in lines {', '.join(lines)}",))


@rule(
    "EA021",
    severity="info",
    scope="node",
    needs=("envfile",),
    title="pip is not listed",
    why="conda adds it with a warning, and which pip installs the section is left open.",
    how_to_fix="Add '- pip' to the dependencies.",
)
def pip_not_listed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A pip section beside conda packages without pip."""
    for source in sources_of(evidence):
        if source["pip_sections"] and not conda_entries(source, "pip"):
            yield at(source["pip_sections"][0], "a pip section, but pip is not among the packages")


@rule(
    "EA022",
    severity="error",
    scope="node",
    needs=("envfile",),
    title="included file cannot be read",
    why="pip would end there, or install what somebody put in its place.",
    how_to_fix="Put the file beside this one, or write its lines here.",
)
def unreadable_include(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """`-r`: missing, outside of the folder, on the network, or including itself."""
    for source in sources_of(evidence):
        for fault in source["faults"]:
            if fault["kind"] == "include":
                yield at(fault, str(fault["message"]), hint=str(fault["next_step"]))


@rule(
    "EA023",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="another package index",
    why="What it offers changes, and any package of the section may come from there.",
    how_to_fix="Install from the lock, which holds each file by its hash; keep copies of them.",
)
def another_index(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """`--extra-index-url`, `--index-url`, `--find-links`."""
    for source in sources_of(evidence):
        for entry in pip_entries(source, "pip_option"):
            if entry["option"] in _INDEXES:
                yield at(entry, f"{entry['option']} {entry.get('value', '')}".rstrip())


@rule(
    "EA024",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="floating reference",
    why="A branch or tag is another commit tomorrow, and on another node.",
)
def floating_reference(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A repository without the 40 digits of a commit, an archive of a branch."""
    for source in sources_of(evidence):
        for entry in pip_entries(source, "pip_git"):
            ref = str(entry.get("ref", ""))
            if not _COMMIT.match(ref):
                what = f"'{ref}' may move" if ref else "the default branch moves"
                name = entry["name"] or entry["url"]
                yield at(entry, f"{name}: {what}", hint=_commit_advice(entry, ref))
        for entry in pip_entries(source, "pip_url"):
            branch = _branch_of(str(entry.get("url", "")))
            if branch and not entry.get("hashes"):
                message = f"{entry['name'] or entry['url']}: an archive of '{branch}', which moves"
                yield at(entry, message, hint="Name the archive of a commit.")


@rule(
    "EA025",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="local path",
    why="Other nodes have another file there, or none, and no hash holds it.",
    how_to_fix="Build a wheel and name it with its hash, or install the project after the environment.",
)
def local_path(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """`-e .`, `./submodules/knn`, `file:///srv/x.whl`."""
    for source in sources_of(evidence):
        for entry in pip_entries(source, "pip_path"):
            what = "editable local path" if entry.get("editable") else "local path"
            yield at(entry, f"{what} '{entry.get('value', '')}'")


@rule(
    "EA026",
    severity="info",
    scope="node",
    needs=("envfile",),
    title="URL without a hash",
    why="The server may give another file under the same address.",
    how_to_fix="Install from the lock, which holds the hash, or add #sha256= to the URL.",
)
def url_without_hash(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A direct URL that is not said to move, and has no hash."""
    for source in sources_of(evidence):
        for entry in pip_entries(source, "pip_url"):
            url = str(entry.get("url", ""))
            if not entry.get("hashes") and not _branch_of(url):
                yield at(entry, f"{entry['name'] or url}: a URL without a hash")


@rule(
    "EA027",
    severity="error",
    scope="node",
    needs=("envfile",),
    title="two versions from conda and pip",
    why="pip writes over conda's files; what is left depends on the order, and on what each cleans up.",
    how_to_fix="Keep one of the two lines.",
)
def two_versions(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Both lines name a version, and it is not the same."""
    for conda, pip in _from_both(evidence):
        if not may_be_one(conda["version"], pip["version"]):
            message = f"{pip['name']}: {conda['text']} from conda, {pip['text']} from pip"
            yield at(pip, message, others([conda, pip]))


@rule(
    "EA028",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="one distribution from conda and pip",
    why="pip writes over conda's files as soon as the two versions differ.",
    how_to_fix="Keep one of the two lines.",
)
def from_both(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Both lines could be met by one version."""
    for conda, pip in _from_both(evidence):
        if may_be_one(conda["version"], pip["version"]):
            yield at(pip, f"{pip['name']} is asked for from conda and from pip", others([conda, pip]))


@rule(
    "EA029",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="pip option for the whole section",
    why="It changes what every line of the section may get, and a lock has no place for it.",
    how_to_fix="Pin the packages that need it, and take the option out.",
)
def section_option(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """`--pre` and others that are no index; one finding each."""
    for source in sources_of(evidence):
        for entry in pip_entries(source, "pip_option"):
            if entry["option"] in _SECTION_OPTIONS:
                hint = (
                    "Write the pre-release that is meant: numpy==2.0.0rc1."
                    if entry["option"] == "--pre"
                    else ""
                )
                yield at(entry, f"{entry['option']} counts for all lines of the section", hint=hint)


def _from_both(evidence: Evidence) -> Iterator[Tuple[Facts, Facts]]:
    """The conda and the pip entry of distributions that a source names twice.

    A conda package counts where it has the distribution's own name, or is the usual package of
    it; that a further package holds the distribution as well (dask-core holds dask) is none.
    """
    for source in sources_of(evidence):
        conda = conda_entries(source)
        by_name = {name: entry for entry in conda for name in (entry["key"], _normalised(entry["key"]))}
        for pip in pip_entries(source, "pip", "pip_url", "pip_git", "pip_path"):
            found = by_name.get(pip.get("conda_name", "")) or by_name.get(pip["key"])
            if pip["key"] and found is not None and overlap(found, pip):
                yield found, pip


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _branch_of(url: str) -> str:
    """The branch whose archive a URL is; empty for a commit, a tag of a version, or another file."""
    match = _ARCHIVE_REF.search(url)
    if match is None or _COMMIT.match(match["ref"]) or _TAG.match(match["ref"]):
        return ""
    return match["ref"]


def _commit_advice(entry: Facts, ref: str) -> str:
    url = str(entry["url"])
    if not re.match(r"(?:https?|ssh|git)://", url) or "credential" in entry:
        return "Write @ and the 40 digits of the commit behind the repository."
    command = f"git ls-remote {shlex.quote(url)} {shlex.quote(ref or 'HEAD')}"
    return f"Write @ and the 40 digits that '{command}' gives."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
