"""Patterns of --section, --only and --ignore."""

from __future__ import annotations

from typing import Tuple

import pytest

from envaudit.diff import PathFilter, compare
from envaudit.errors import UsageError
from envaudit.model import Section
from tests.diff.nodes import fingerprint, training_node


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("conda/packages/numpy", "conda/packages/numpy", True),
        ("conda/packages/numpy", "conda/packages/numpy/version", True),
        ("conda/packages/numpy", "conda/packages/numpy-base", False),
        ("conda/packages/numpy", "conda/packages", False),
        ("conda", "conda/packages/numpy/version", True),
        ("conda/packages/*", "conda/packages/numpy/version", True),
        ("conda/*", "conda", False),
        ("conda/packages/py*", "conda/packages/pytorch", True),
        ("conda/packages/py*", "conda/packages/numpy/py", False),
        ("conda/packages/*/build", "conda/packages/numpy/build", True),
        ("conda/packages/*/build", "conda/packages/numpy/version", False),
        ("conda/packages/num?y", "conda/packages/numpy", True),
        ("conda/packages/num?y", "conda/packages/numppy", False),
        ("**/version", "conda/packages/numpy/version", True),
        ("**/version", "torch/version", True),
        ("**/version", "torch/versions", False),
        ("conda/**/version", "conda/version", True),
        ("conda/**/version", "conda/packages/numpy/version", True),
        ("conda/**", "conda", True),
        ("**", "anything/at/all", True),
        ("gpu/a~1b", "gpu/a~1b/c", True),
        ("gpu/a?b", "gpu/a~1b", True),
        ("gpu/*", "gpu/a~1b~0", True),
        ("gpu/a.b", "gpu/axb", False),
        ("env/X[1]", "env/X[1]", True),
        ("/gpu/driver/", "gpu/driver", True),
    ],
)
def test_ignore_pattern_matches_by_segments(pattern: str, path: str, expected: bool) -> None:
    """A pattern matches a path or any path above it; wildcards stay within a segment."""
    assert expected == PathFilter.of(ignore=[pattern]).ignores(path)


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [("cond/packages", "Did you mean 'conda'?"), ("gp", "Did you mean 'gpu'?"), ("qqq/*", "Sections: ")],
)
def test_pattern_of_a_section_that_cannot_exist_is_a_usage_error(pattern: str, advice: str) -> None:
    """A typing error must not turn into an empty pass; the nearest name is suggested."""
    with pytest.raises(UsageError) as caught:
        PathFilter.of(only=[pattern])
    assert caught.value.next_step.startswith(advice)
    assert f"--only {pattern}" == caught.value.where


def test_section_that_cannot_exist_is_a_usage_error() -> None:
    """The option itself has to name a section."""
    with pytest.raises(UsageError, match=r"no section is called 'gpus'.*Did you mean 'gpu'"):
        PathFilter.of(sections=["gpus"])


def test_section_that_only_the_fingerprints_know_is_taken() -> None:
    """A newer probe's section can be named where it is at hand."""
    assert ("storage",) == PathFilter.of(sections=["storage"], known=["storage"]).sections


@pytest.mark.parametrize("pattern", ["", "/", "//"])
def test_pattern_that_is_empty_is_a_usage_error(pattern: str) -> None:
    """An unset shell variable must not leave everything out."""
    with pytest.raises(UsageError, match="an empty pattern"):
        PathFilter.of(ignore=[pattern])


def test_pattern_with_a_lone_tilde_is_a_usage_error() -> None:
    """It could never match; the error says how to write it."""
    with pytest.raises(UsageError, match="Write ~0 for '~'"):
        PathFilter.of(ignore=["env/~home"])


def test_covered_names_the_sections_that_may_be_compared() -> None:
    """What nobody looks at need not be asked, and is not required."""
    names = ["conda", "env", "gpu", "host"]
    assert ("conda", "env", "gpu", "host") == PathFilter().covered(names)
    assert ("gpu",) == PathFilter.of(sections=["gpu"]).covered(names)
    assert ("conda", "gpu") == PathFilter.of(only=["gpu/driver", "c*"]).covered(names)
    assert ("conda", "env", "host") == PathFilter.of(ignore=["gpu/**", "env/NCCL_*"]).covered(names)
    assert tuple(names) == PathFilter.of(only=["**/version"]).covered(names)


def test_compare_ignored_paths_are_no_drift() -> None:
    """The rest is compared as ever."""
    nodes = [training_node("a"), training_node("b", nccl="2.20.5", driver="550.54.14")]
    drifts = compare(nodes, PathFilter.of(ignore=["libraries/nccl"]))
    assert ["gpu/driver"] == [drift.path for drift in drifts]


def test_compare_only_asked_paths_are_drift() -> None:
    """Everything else may differ."""
    nodes = [training_node("a"), training_node("b", nccl="2.20.5", driver="550.54.14")]
    drifts = compare(nodes, PathFilter.of(only=["libraries/*/version", "env"]))
    assert ["libraries/nccl/version"] == [drift.path for drift in drifts]


def test_compare_only_a_fact_inside_a_missing_map_is_drift() -> None:
    """A package that is not there takes the version along that was asked for."""
    nodes = [training_node("a"), training_node("b", libraries={})]
    assert ["libraries/nccl"] == [
        drift.path for drift in compare(nodes, PathFilter.of(only=["libraries/nccl/version"]))
    ]
    assert () == compare(nodes, PathFilter.of(only=["libraries/cudnn/version"]))


def test_compare_only_a_key_with_a_slash_inside_a_missing_map_is_drift() -> None:
    """Keys are escaped on the way down as they are in paths."""
    nodes = [fingerprint("a", gpu={"m": {"x/y": 1}}), fingerprint("b", gpu={})]
    assert 1 == len(compare(nodes, PathFilter.of(only=["gpu/m/x~1y"])))


def test_compare_one_section_leaves_the_others_out() -> None:
    """`--section` is the coarse form of `--only`."""
    nodes = [training_node("a"), training_node("b", nccl="2.20.5", driver="550.54.14")]
    assert ["gpu/driver"] == [drift.path for drift in compare(nodes, PathFilter.of(sections=["gpu"]))]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("gpu/driver", ()),
        ("gpu", ()),
        ("**/version", ()),
        ("conda/packages/numpy/version", ()),
        ("git/commit", ()),
        ("gpu/drvier", ("gpu/drvier",)),
        ("torch/git_version", ("torch/git_version",)),
        ("conda/packages/nunpy", ("conda/packages/nunpy",)),
        ("conda/packages/numpy/local", ()),
        ("conda/packages/nunpy/local", ("conda/packages/nunpy/local",)),
        ("torch/**/nothing", ("torch/**/nothing",)),
    ],
)
def test_unmatched_names_patterns_that_no_fact_answers_to(pattern: str, expected: Tuple[str, ...]) -> None:
    """One node that has the fact is enough; a section that is absent was looked for."""
    nodes = [training_node("a", git=Section("git", 1, "absent")), training_node("b", gpu={})]
    assert expected == PathFilter.of(only=[pattern]).unmatched(nodes)


def test_unmatched_names_sections_that_no_node_has() -> None:
    """Older snapshots without the section leave nothing to compare."""
    paths = PathFilter.of(sections=["clock", "gpu"])
    assert ("clock",) == paths.unmatched([training_node("a"), training_node("b")])


def test_unmatched_names_patterns_of_other_sections_than_those_asked_for() -> None:
    """`--section torch --only gpu/driver` asks for nothing at all."""
    paths = PathFilter.of(sections=["torch"], only=["gpu/driver", "torch/version"])
    assert ("gpu/driver",) == paths.unmatched([training_node("a"), training_node("b")])
