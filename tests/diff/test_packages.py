"""Packages pair by name; of a package's differences the cause is told, not what follows from it."""

from __future__ import annotations

from typing import Dict, List, Tuple

from envaudit.diff import PathFilter, compare
from envaudit.model import Group
from tests.diff.nodes import fingerprint, package

EVERYTHING = PathFilter()


def told(*versions: Dict[str, str], paths: PathFilter = EVERYTHING) -> List[Tuple[str, List[object]]]:
    """The fields that tell nodes with these packages apart, with their values."""
    nodes = [
        fingerprint(f"n{place}", conda={"packages": {"numpy": fields}})
        for place, fields in enumerate(versions)
    ]
    return [
        (drift.path.rsplit("/", 1)[1], [group.value for group in drift.groups])
        for drift in compare(nodes, paths)
    ]


def test_package_of_another_version_tells_the_version_alone() -> None:
    """Build and hash follow from the version."""
    assert [("version", ["1.26.4", "2.0.1"])] == told(package("1.26.4", "py0"), package("2.0.1", "py1"))


def test_package_of_another_build_tells_the_build_alone() -> None:
    """The hash follows from the build."""
    assert [("build", ["py0", "py1"])] == told(package("1.26.4", "py0"), package("1.26.4", "py1"))


def test_package_from_another_channel_tells_the_channel_alone() -> None:
    """The same version and build from elsewhere; the hash follows."""
    expected = [("channel", ["conda-forge", "nvidia"])]
    assert expected == told(package("1", md5="0"), package("1", channel="nvidia", md5="1"))


def test_package_of_another_hash_tells_the_hash() -> None:
    """Rebuilt under the same name: nothing else shows it."""
    assert [("md5", ["0", "1"])] == told(package("1", md5="0"), package("1", md5="1"))


def test_package_build_that_splits_nodes_of_one_version_is_told_too() -> None:
    """Two nodes of one version have two builds: the version does not explain that."""
    fields = told(package("1", "a"), package("1", "b"), package("2", "b"))
    assert [("version", ["1", "2"]), ("build", ["b", "a"])] == fields


def test_package_of_another_local_tag_tells_the_tag() -> None:
    """cu118 against cu121 of one release is another variant, not another version."""
    assert [("local", ["cu118", "cu121"])] == told(package("2.4.1+cu118"), package("2.4.1+cu121"))


def test_package_local_tag_that_one_node_lacks_is_absent_there() -> None:
    """A build without a tag is the CPU or the default variant."""
    nodes = [
        fingerprint(node, packages={"distributions": {"torch": {"version": version}}})
        for node, version in (("a", "2.4.1"), ("b", "2.4.1+cu121"))
    ]
    (drift,) = compare(nodes)
    assert "packages/distributions/torch/local" == drift.path
    assert (Group(None, ("a",), "absent"), Group("cu121", ("b",))) == drift.groups


def test_package_whose_version_one_node_does_not_have_tells_the_version() -> None:
    """Neither has a tag, which says nothing of what they have."""
    found = {"a": {"version": "1.26.4", "build": "0"}, "b": {"build": "0"}}
    nodes = [fingerprint(node, conda={"packages": {"numpy": fields}}) for node, fields in found.items()]
    assert ["conda/packages/numpy/version"] == [drift.path for drift in compare(nodes)]


def test_package_of_another_version_and_tag_tells_the_whole_version() -> None:
    """When the release differs too, the tag is part of it."""
    assert [("version", ["2.4.1+cu118", "2.5.0+cu121"])] == told(
        package("2.4.1+cu118"), package("2.5.0+cu121")
    )


def test_package_that_one_node_lacks_is_one_drift_with_its_version() -> None:
    """The value says what is missing."""
    nodes = [
        fingerprint("a", conda={"packages": {"numpy": package("1")}}),
        fingerprint("b", conda={"packages": {}}),
    ]
    (drift,) = compare(nodes)
    assert ("conda/packages/numpy", "missing") == (drift.path, drift.kind)
    assert package("1") == drift.groups[0].value


def test_package_with_maps_inside_is_missing_with_its_version_too() -> None:
    """A direct URL makes it no less a package."""
    fields = {"version": "1", "direct_url": {"url": "https://example.org/x.git", "commit": "1afe8c1a"}}
    nodes = [fingerprint("a", packages={"distributions": {"x": fields}}), fingerprint("b", packages={})]
    assert [None] == [drift.groups[0].value for drift in compare(nodes)]
    nodes[1] = fingerprint("b", packages={"distributions": {}})
    assert [fields] == [drift.groups[0].value for drift in compare(nodes)]


def test_package_that_one_node_lacks_is_compared_on_the_others() -> None:
    """Presence and version are two differences."""
    versions = {"a": {"numpy": package("1")}, "b": {"numpy": package("2")}, "c": {}}
    drifts = compare([fingerprint(node, conda={"packages": each}) for node, each in versions.items()])
    assert ["conda/packages/numpy", "conda/packages/numpy/version"] == [drift.path for drift in drifts]
    assert ["majority 2/3", "none"] == [drift.basis for drift in drifts]


def test_package_with_ignored_version_tells_the_build() -> None:
    """What the user does not look at explains nothing."""
    ignoring = PathFilter.of(ignore=["**/version"])
    assert [("build", ["py0", "py1"])] == told(package("1", "py0"), package("2", "py1"), paths=ignoring)


def test_package_only_versions_asked_for_tells_tags_as_versions() -> None:
    """The tag is part of the version field that was asked for."""
    only = PathFilter.of(only=["conda/packages/*/version"])
    assert [("version", ["2+a", "2+b"])] == told(package("2+a"), package("2+b"), paths=only)


def test_package_only_builds_asked_for_tells_builds_of_other_versions() -> None:
    """A version that is not asked for explains nothing either."""
    only = PathFilter.of(only=["conda/packages/*/build"])
    assert [("build", ["py0", "py1"])] == told(package("1", "py0"), package("2", "py1"), paths=only)


def test_package_field_that_is_not_named_stands_before_hashes() -> None:
    """What another installer brought explains another hash, not the other way round."""
    one, other = ({**package("1", md5=name), "installer": name} for name in ("pip", "uv"))
    assert [("installer", ["pip", "uv"])] == told(one, other)


def test_package_of_another_commit_tells_the_commit_alone() -> None:
    """A checkout's version is made of its commit: two rows for one cause are one too many."""
    rows = {"1": {"version": "0.1.dev1", "commit": "1a", "editable": True}}
    rows["2"] = {"version": "0.1.dev2", "commit": "2b", "editable": True}
    nodes = [fingerprint(name, packages={"distributions": {"x": row}}) for name, row in rows.items()]
    assert ["packages/distributions/x/commit"] == [drift.path for drift in compare(nodes)]
