"""An environment.yml as a file: can it be read as it is meant."""

from __future__ import annotations

from typing import Iterator

from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule
from envaudit.rules.sourcefacts import (
    at,
    place,
    sources_of,
    start_of,
)

_UTF_8 = ("utf-8", "ascii")


def _faults(evidence: Evidence, *kinds: str) -> Iterator[Found]:
    for source in sources_of(evidence):
        for fault in source["faults"]:
            if fault["kind"] in kinds:
                yield at(fault, str(fault["message"]), hint=str(fault["next_step"]))


@rule(
    "EA001",
    severity="error",
    scope="node",
    needs=("envfile",),
    title="not an environment file",
    why="What cannot be read cannot be locked, and other tools may read something else in it.",
    how_to_fix="Correct it as YAML; an environment has the keys name, channels and dependencies.",
)
def not_an_environment(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """YAML that is none, a template that is not filled in, an empty file, keys of the wrong shape."""
    yield from _faults(evidence, "syntax", "template", "empty", "shape")


@rule(
    "EA002",
    severity="error",
    scope="node",
    needs=("envfile",),
    title="key given twice",
    why="Readers of YAML keep the last and drop the first without a word.",
    how_to_fix="Join the two.",
)
def key_twice(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Two `dependencies:` or `channels:`."""
    yield from _faults(evidence, "duplicate")


@rule(
    "EA003",
    severity="error",
    scope="node",
    needs=("envfile",),
    title="line that is no package",
    why="conda or pip ends with an error at it, or takes it for something else.",
    how_to_fix="conda takes name=version=build, numpy=1.26.4; the pip section takes numpy==1.26.4.",
)
def no_package(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A conda spec or a requirement that does not parse."""
    yield from _faults(evidence, "spec", "requirement")


@rule(
    "EA004",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="unknown key",
    why="A misspelt key is read by nobody.",
    how_to_fix="Correct it or take it out.",
)
def unknown_key(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A top-level key that neither conda nor conda-lock knows."""
    yield from _faults(evidence, "key")


@rule(
    "EA005",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="not UTF-8",
    why="conda reads UTF-8 alone; a file that PowerShell wrote with > is UTF-16.",
    how_to_fix="Save it as UTF-8, or write it with 'conda env export --file environment.yml'.",
)
def not_utf8(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Decoded here all the same."""
    for source in sources_of(evidence):
        if source["encoding"] not in _UTF_8:
            yield Found(f"the file is {str(source['encoding']).upper()}", path=start_of(source))


@rule(
    "EA006",
    severity="error",
    scope="node",
    needs=("envfile",),
    title="unknown platform or selector",
    why="No package is for it, so that the line or the whole platform is lost.",
    how_to_fix="Write a platform as channels do, linux-64, and a selector as conda-lock knows it, # [linux].",
)
def unknown_platform(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """`platforms: [linux]`, `# [not win]`."""
    yield from _faults(evidence, "platform", "selector")


@rule(
    "EA007",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="part of a line is dropped",
    why="conda ignores what it does not know in brackets, other solvers refuse it.",
    how_to_fix="conda has no extras: name the packages that the extra stands for.",
)
def dropped_part(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Extras, which pip has and conda has not."""
    yield from _faults(evidence, "ignored")


@rule(
    "EA008",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="nothing to install",
    why="A file without dependencies is one that somebody did not finish.",
    how_to_fix="List the packages below 'dependencies:'.",
)
def nothing_to_install(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """`dependencies:` without an item."""
    yield from _faults(evidence, "nothing")


@rule(
    "EA009",
    severity="info",
    scope="node",
    needs=("envfile",),
    title="comment selectors",
    why="conda and mamba read them as comments: all the lines count there, on every platform.",
    how_to_fix="Install from the lock, which has read them.",
)
def comment_selectors(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """One finding a file, at the first line that has one."""
    for source in sources_of(evidence):
        selected = [entry for entry in source["entries"] if entry.get("platforms") is not None]
        if selected:
            lines = [f"{place(entry)}: {entry['text']}  # [{entry['selector']}]" for entry in selected]
            yield at(selected[0], "selectors are comments to conda and mamba", lines)
