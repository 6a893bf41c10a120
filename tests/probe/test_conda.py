"""The conda environment, from records as conda, micromamba and rattler write them."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.sections import conda

MakeNode = Callable[..., Context]
_SHA = "ab" * 32


def record(**changes: Any) -> Dict[str, Any]:
    """A record of conda-meta; its file lists make it large enough to be cut."""
    files = [f"lib/python3.11/site-packages/numpy/module_{number}.py" for number in range(400)]
    files[7] = "share/doc/a] b}\n,.txt"
    plain = {
        "build": "py311_0",
        "channel": "https://conda.anaconda.org/conda-forge/linux-64",
        "depends": ["python >=3.11"],
        "files": files,
        "link": {"source": "/pkgs", "type": 1},
        "md5": "cd" * 16,
        "name": "numpy",
        "paths_data": {
            "paths": [{"_path": file, "name": "other", "version": "0", "sha256": "no"} for file in files],
            "paths_version": 1,
        },
        "sha256": _SHA,
        "url": "https://conda.anaconda.org/conda-forge/linux-64/numpy-1.26.4-py311_0.conda",
        "version": "1.26.4",
    }
    plain.update(changes)
    return plain


def read(make_node: MakeNode, files: Dict[str, str], **interpreter: str) -> Answer:
    """The section of a node whose environment is /env."""
    told = interpreter or {"prefix": "/env", "base_prefix": "/env"}
    return conda.read(
        make_node({f"/env/conda-meta/{name}": text for name, text in files.items()}, interpreter=told)
    )


_NUMPY = {
    "version": "1.26.4",
    "build": "py311_0",
    "channel": "conda-forge",
    "md5": "cd" * 16,
    "sha256": _SHA,
}


def _rattler_order(plain: Dict[str, Any]) -> Dict[str, Any]:
    first = ("build", "md5", "name", "sha256", "version", "url", "channel", "files", "paths_data")
    return {key: plain[key] for key in (*first, *sorted(set(plain) - set(first)))}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(record(), indent=2, sort_keys=True),
        json.dumps(record(), indent=4, sort_keys=True),
        json.dumps(_rattler_order(record()), indent=2),
        json.dumps(record()),
        json.dumps(record(), indent=1, separators=(" , ", " : ")),
        json.dumps(record(), indent="\t"),
        json.dumps(record(), indent=2).replace("\n", "\r\n"),
        json.dumps(record(files=[], paths_data={"paths": [], "paths_version": 1}), indent=2),
        json.dumps({"files": record()["files"], "name": "numpy", **record()}, indent=2),
    ],
    ids=["conda", "micromamba", "rattler", "compact", "odd", "tabs", "crlf", "empty", "files-first"],
)
def test_record_in_any_layout_is_read_alike(make_node: MakeNode, text: str) -> None:
    """However a record is laid out, what is read of it is what json would read."""
    answer = read(make_node, {"numpy.json": text})
    assert ("ok", {"numpy": _NUMPY}) == (answer.status, answer.facts["packages"])


@pytest.mark.parametrize("cut_at", [1, 50, 9000, 40000, -2])
def test_truncated_record_is_named(make_node: MakeNode, cut_at: int) -> None:
    """A half-written record is an error with its path; the others are read."""
    whole = json.dumps(record(), indent=2, sort_keys=True)
    answer = read(make_node, {"half.json": whole[:cut_at], "whole.json": whole})
    assert ("partial", ["numpy"]) == (answer.status, sorted(answer.facts["packages"]))
    assert ["/env/conda-meta/half.json: not a record of a package (JSONDecodeError)"] == list(answer.errors)


def test_two_records_of_one_package_are_both_shown(make_node: MakeNode) -> None:
    """An interrupted update leaves two records; neither is hidden."""
    old = json.dumps(record(version="1.25.0"))
    answer = read(make_node, {"numpy-1.25.0.json": old, "numpy-1.26.4.json": json.dumps(record())})
    versions = [package["version"] for package in answer.facts["duplicates"]["numpy"]]
    assert ["1.25.0", "1.26.4"] == versions


def test_record_without_a_channel_takes_it_from_its_url(make_node: MakeNode) -> None:
    """An explicit install states `<unknown>` as the channel."""
    text = json.dumps(record(channel="<unknown>"))
    assert "conda-forge" == read(make_node, {"n.json": text}).facts["packages"]["numpy"]["channel"]


def test_record_without_hashes_has_null(make_node: MakeNode) -> None:
    """What an old record does not state is null, not an empty text."""
    plain = record(md5=None)
    del plain["sha256"]
    package = read(make_node, {"n.json": json.dumps(plain)}).facts["packages"]["numpy"]
    assert (None, None) == (package["md5"], package["sha256"])


def test_environment_without_conda_is_absent(make_node: MakeNode) -> None:
    """A wheel environment has no conda part."""
    assert "absent" == conda.read(make_node({"/usr/bin/python3": ""}, interpreter={"prefix": "/usr"})).status


def test_virtual_environment_over_conda_belongs_to_it(make_node: MakeNode) -> None:
    """A venv of a conda Python loads that environment's libraries."""
    answer = read(make_node, {"n.json": json.dumps(record())}, prefix="/home/a/venv", base_prefix="/env")
    assert ("ok", "/env") == (answer.status, answer.facts["prefix"])


def test_pinned_file_and_history_are_kept(make_node: MakeNode) -> None:
    """Pins are facts; requests and commands are notes, without secrets."""
    history = (
        "==> now <==\n# cmd: conda install --token abcdef numpy\n+x::numpy-1\n# update specs: ['numpy']\n"
    )
    files = {"n.json": json.dumps(record()), "pinned": "numpy 1.26.*\n\n", "history": history}
    answer = read(make_node, files)
    assert ["numpy 1.26.*"] == answer.facts["pinned"]
    assert ["['numpy']"] == answer.notes["requested"]
    assert ["==> now <==", "# cmd: conda install --token <secret> numpy"] == answer.notes["history"]


@pytest.mark.parametrize(
    ("name", "status", "errors"),
    [
        ("healthy-h100", "ok", 0),
        ("cpu-only", "absent", 0),
        ("garbled", "partial", 6),
        ("denied-and-hanging", "error", 1),
    ],
)
def test_fake_node_has_its_status(
    fake_node: Callable[[str], Context], name: str, status: str, errors: int
) -> None:
    """Healthy, absent, garbled and denied environments are told apart."""
    answer = conda.read(fake_node(name))
    assert (status, errors) == (answer.status, len(answer.errors))


def test_conda_itself_is_named_from_its_own_records(fake_node: Callable[[str], Context]) -> None:
    """Conda's version is known without running conda."""
    answer = conda.read(fake_node("healthy-h100"))
    assert {"executable": "/opt/conda/bin/conda", "version": "24.1.2"} == answer.notes["conda"]
    assert "train" == answer.facts["name"]


def test_addresses_of_packages_are_notes_without_secrets(make_node: MakeNode) -> None:
    """What rebuilds the environment; two mirrors of one channel are no difference."""
    url = "https://ann:secret@host/t/TOKEN/conda-forge/linux-64/numpy-1.26.4-py311_0.conda"
    answer = read(
        make_node, {"n.json": json.dumps(record(url=url)), "b.json": '{"name": "b", "version": "1"}'}
    )
    assert ["numpy"] == list(answer.notes["urls"])
    assert "secret" not in answer.notes["urls"]["numpy"]
    assert "TOKEN" not in answer.notes["urls"]["numpy"]
    assert answer.notes["urls"]["numpy"].endswith("/conda-forge/linux-64/numpy-1.26.4-py311_0.conda")


def test_record_with_an_endless_text_costs_that_record_alone(make_node: MakeNode) -> None:
    """What no answer may hold is left out by name, and the other packages stay."""
    files = {
        "numpy-1.26.4-py311_0.json": json.dumps(record()),
        "odd-1-0.json": json.dumps(record(name="odd", build="0" * 100_000)),
    }
    answer = read(make_node, files)
    assert ("partial", {"numpy": _NUMPY}) == (answer.status, answer.facts["packages"])
    assert ("/env/conda-meta/odd-1-0.json: not a record of a package (ValueError)",) == tuple(answer.errors)
