"""Section `files`: what lies in an environment other than it was installed."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, Callable, Dict, List

import pytest

from envaudit.probe import files, registry
from envaudit.probe.context import Context

MakeNode = Callable[..., Context]
TOLD = {"prefix": "/env", "base_prefix": "/env", "path": ["/env/lib/python3.11/site-packages"]}
SITE = "/env/lib/python3.11/site-packages"


def sha256(text: str) -> str:
    """The digest of a text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def conda_record(name: str, paths: List[Dict[str, Any]]) -> str:
    """A record of conda-meta with these paths."""
    return json.dumps({"name": name, "version": "1", "paths_data": {"paths": paths, "paths_version": 1}})


def entry(path: str, text: str, **more: Any) -> Dict[str, Any]:
    """A file of a package."""
    return {"_path": path, "path_type": "hardlink", "sha256": sha256(text), **more}


def healthy() -> Dict[str, str]:
    """A small environment: two conda packages and one of pip."""
    row = base64.urlsafe_b64encode(hashlib.sha256(b"tool").digest()).decode().rstrip("=")
    return {
        "/env/conda-meta/a-1-0.json": conda_record(
            "a",
            [
                entry("lib/a.so", "a"),
                entry("etc/a.conf", "as built", sha256_in_prefix=sha256("as installed")),
                entry("lib/a.pyc", "gone"),
                {"_path": "lib/a.so.1", "path_type": "softlink", "sha256": sha256("a")},
            ],
        ),
        "/env/conda-meta/b-1-0.json": conda_record("b", [entry("share/b", "b")]),
        "/env/lib/a.so": "a",
        "/env/lib/a.so.1": "stands for a link",
        "/env/etc/a.conf": "as installed",
        "/env/share/b": "b",
        f"{SITE}/tool.py": "tool",
        f"{SITE}/tool-1.dist-info/INSTALLER": "pip\n",
        f"{SITE}/tool-1.dist-info/METADATA": "Name: tool\nVersion: 1\n",
        f"{SITE}/tool-1.dist-info/RECORD": f"tool.py,sha256={row},4\ntool-1.dist-info/RECORD,,\n",
    }


def test_files_of_a_healthy_environment_are_all_as_installed(make_node: MakeNode) -> None:
    """Also the one that holds the prefix; byte code is not looked at."""
    answer = files.read(make_node(healthy(), interpreter=TOLD))
    assert ("ok", {}, {}) == (answer.status, answer.facts["changed"], answer.facts["missing"])
    assert {"examined": 5} == answer.notes


def test_files_that_changed_are_named_by_package(make_node: MakeNode) -> None:
    """Conda's and pip's, each under its package."""
    changed = {**healthy(), "/env/lib/a.so": "x", f"{SITE}/tool.py": "x"}
    facts = files.read(make_node(changed, interpreter=TOLD)).facts
    assert {
        "a": ["lib/a.so"],
        "pip:tool": ["lib/python3.11/site-packages/tool.py"],
    } == facts["changed"]
    assert {"a": 1, "pip:tool": 1} == facts["counts"]["changed"]


def test_files_that_are_gone_are_missing(make_node: MakeNode) -> None:
    """Files and links alike."""
    left = healthy()
    del left["/env/share/b"], left["/env/lib/a.so.1"]
    assert {"b": ["share/b"], "a": ["lib/a.so.1"]} == files.read(make_node(left, interpreter=TOLD)).facts[
        "missing"
    ]


def test_files_that_two_packages_have_are_as_one_of_them_says(make_node: MakeNode) -> None:
    """Whichever was linked last has won; a third content is a change of both."""
    shared = {
        "/env/conda-meta/a-1-0.json": conda_record("a", [entry("share/x", "of a")]),
        "/env/conda-meta/b-1-0.json": conda_record("b", [entry("share/x", "of b")]),
        "/env/share/x": "of b",
    }
    assert {} == files.read(make_node(shared, interpreter=TOLD)).facts["changed"]
    shared["/env/share/x"] = "of nobody"
    assert {"a", "b"} == set(files.read(make_node(shared, interpreter=TOLD)).facts["changed"])


def test_files_of_a_package_beyond_the_first_twenty_are_counted(make_node: MakeNode) -> None:
    """A wholly replaced package does not fill the report."""
    paths = [entry(f"lib/{number:02d}", "x") for number in range(30)]
    node = make_node({"/env/conda-meta/a-1-0.json": conda_record("a", paths)}, interpreter=TOLD)
    facts = files.read(node).facts
    assert (20, 30) == (len(facts["missing"]["a"]), facts["counts"]["missing"]["a"])


def test_files_without_an_environment_are_none(make_node: MakeNode) -> None:
    """A plain interpreter that nothing was installed for."""
    answer = files.read(make_node({}, interpreter=TOLD))
    assert ("ok", {"examined": 0}) == (answer.status, answer.notes)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"name": "a", "paths_data": 7}', '{"name": "a", "paths_data": {"paths": [{}]}}']
)
def test_files_with_a_garbled_record_are_partial(make_node: MakeNode, text: str) -> None:
    """The record is named, and the rest is read."""
    answer = files.read(make_node({**healthy(), "/env/conda-meta/z.json": text}, interpreter=TOLD))
    assert ("partial", 5) == (answer.status, answer.notes["examined"])
    assert answer.errors[0].startswith("/env/conda-meta/z.json: ")


def test_files_outside_the_prefix_are_not_followed(make_node: MakeNode) -> None:
    """A record that names `../../etc/shadow` reads nothing."""
    paths = [entry("../../etc/shadow", "x"), entry("/etc/shadow", "x")]
    node = make_node({"/env/conda-meta/a-1-0.json": conda_record("a", paths)}, interpreter=TOLD)
    assert {"examined": 0} == files.read(node).notes


def test_files_that_may_not_be_read_are_partial(make_node: MakeNode) -> None:
    """A folder that is denied is evidence that is missing."""
    answer = files.read(make_node(healthy(), interpreter=TOLD, denied=["/env/conda-meta"]))
    assert ("partial", True) == (answer.status, "Permission denied" in answer.errors[0])


def test_files_are_read_only_where_they_are_asked_for() -> None:
    """An ordinary snapshot does not hash gigabytes."""
    assert "files" not in registry.section_names()
    assert files is registry.load_section("files")
