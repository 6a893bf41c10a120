"""Lines of the pip section, as pip reads them."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.requirements import Requirement

from envaudit.lock.entries import Entry, Located
from envaudit.lock.requirement import BadRequirement, parse_line

COMMIT = "4b41059694619831a7db195b7e0988fc4ff3a307"


def parsed(text: str) -> tuple[Entry, ...]:
    """The entries of a line."""
    return parse_line(Located(text, 7, 3, "environment.yml"), block=0)


def said(entry: Entry) -> dict[str, Any]:
    """What an entry says beyond its place."""
    bare = Entry(entry.text, 7, 3, "environment.yml", entry.kind, block=0)
    return {
        name: value for name, value in vars(entry).items() if value != getattr(bare, name) or name == "kind"
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("requests", {"kind": "pip", "name": "requests", "key": "requests"}),
        ("Django==1.11.29", {"kind": "pip", "name": "Django", "key": "django", "version": "==1.11.29"}),
        ("flask_cors==3.0.10", {"kind": "pip", "name": "flask_cors", "key": "flask-cors",
                                "version": "==3.0.10"}),
        ("ray[default, tune]==2.2.0", {"kind": "pip", "name": "ray", "key": "ray", "version": "==2.2.0",
                                       "extras": ("default", "tune")}),
        ("wavio >=0.0.5", {"kind": "pip", "name": "wavio", "key": "wavio", "version": ">=0.0.5"}),
        ("gradio==3.50.*", {"kind": "pip", "name": "gradio", "key": "gradio", "version": "==3.50.*"}),
        ("torch==1.13.1+cu117  # GPU", {"kind": "pip", "name": "torch", "key": "torch",
                                        "version": "==1.13.1+cu117"}),
        ("triton ; sys_platform == 'linux'", {"kind": "pip", "name": "triton", "key": "triton",
                                              "marker": 'sys_platform == "linux"'}),
        ("a==1 --hash=sha256:ab --hash=sha256:cd", {"kind": "pip", "name": "a", "key": "a",
                                                    "version": "==1", "hashes": ("sha256:ab", "sha256:cd")}),
        (f"openfold @ git+https://h/openfold.git@{COMMIT}",
         {"kind": "pip_git", "name": "openfold", "key": "openfold", "url": "https://h/openfold.git",
          "ref": COMMIT}),
        ("git+https://h/repo.git#subdirectory=python",
         {"kind": "pip_git", "url": "https://h/repo.git", "subdirectory": "python"}),
        ("-e git+https://h/CLIP.git@main#egg=clip",
         {"kind": "pip_git", "name": "clip", "key": "clip", "url": "https://h/CLIP.git", "ref": "main",
          "editable": True}),
        ("git+ssh://git@h/x.git@v1#egg=X[a]&subdirectory=y",
         {"kind": "pip_git", "name": "X", "key": "x", "url": "ssh://git@h/x.git", "ref": "v1",
          "subdirectory": "y"}),
        ("git+ssh://git@h/x.git", {"kind": "pip_git", "url": "ssh://git@h/x.git"}),
        ("requests @ https://h/requests-2.31.0-py3-none-any.whl#sha256=AB",
         {"kind": "pip_url", "name": "requests", "key": "requests", "version": "==2.31.0",
          "url": "https://h/requests-2.31.0-py3-none-any.whl", "hashes": ("sha256:ab",)}),
        ("https://h/joblib/archive/master.zip", {"kind": "pip_url",
                                                 "url": "https://h/joblib/archive/master.zip"}),
        ("-e .", {"kind": "pip_path", "value": ".", "editable": True}),
        ("-e .[dev,test]", {"kind": "pip_path", "value": ".", "editable": True, "extras": ("dev", "test")}),
        ("submodules/simple-knn", {"kind": "pip_path", "value": "submodules/simple-knn"}),
        ("file:///srv/my%20wheels/x.whl", {"kind": "pip_path", "value": "/srv/my wheels/x.whl"}),
        ("C:\\wheels\\x.whl", {"kind": "pip_path", "value": "C:\\wheels\\x.whl"}),
        ("--pre", {"kind": "pip_option", "option": "--pre"}),
        ("-f https://h/list.html", {"kind": "pip_option", "option": "--find-links",
                                    "value": "https://h/list.html"}),
        ("--extra-index https://h/simple", {"kind": "pip_option", "option": "--extra-index-url",
                                            "value": "https://h/simple"}),
        ("--find-links=x", {"kind": "pip_option", "option": "--find-links", "value": "x"}),
        ("-rdocs/requirements.txt", {"kind": "pip_include", "option": "--requirement",
                                     "value": "docs/requirements.txt"}),
        ("-c constraints.txt", {"kind": "pip_constraint", "option": "--constraint",
                                "value": "constraints.txt"}),
    ],
)  # fmt: skip
def test_line_becomes_a_typed_entry(text: str, expected: dict[str, Any]) -> None:
    """What pip would make of it, with the parts that matter to a lock."""
    (entry,) = parsed(text)
    assert expected == said(entry)


@pytest.mark.parametrize("text", ["", "   ", "# only a comment"])
def test_line_without_content_is_none(text: str) -> None:
    """Blank lines and comments are dropped, as pip drops them."""
    assert () == parsed(text)


def test_options_on_one_line_are_entries_of_their_own() -> None:
    """`pip` takes several options in one line."""
    assert [("--index-url", "a"), ("--pre", "")] == [
        (entry.option, entry.value) for entry in parsed("-i a --pre")
    ]


@pytest.mark.parametrize(
    ("text", "complaint", "advice"),
    [
        ("foo=1.0", "'foo=1.0' is no requirement", "pip pins with '=='"),
        ("foo bar", "'foo bar' is no requirement", "A line is a requirement"),
        ("foo>=1.*", r"can only be used with", "A line is a requirement"),
        ("--no-deps", "'--no-deps' is no option of a requirements file", "A line is"),
        ("--no", "'--no' is no option of a requirements file", "A line is"),
        ("-r", "--requirement lacks its value", "A line is"),
        ("--pre=yes", "--pre takes no value", "A line is"),
        ("--hash=sha256:00", "'--hash' is no option", "A line is"),
        ("--index-url 'x", "a quote has no partner", "A line is"),
        ("-r a\0.txt", "a NUL character", "A line is"),
        ("-c a\0.txt", "a NUL character", "A line is"),
        ("./a\0.whl", "a NUL character", "A line is"),
    ],
)
def test_line_that_pip_refuses_is_refused_with_advice(text: str, complaint: str, advice: str) -> None:
    """The complaint names the line, the advice says how it is written."""
    with pytest.raises(BadRequirement, match=complaint) as refused:
        parsed(text)
    assert refused.value.next_step.startswith(advice)


@pytest.mark.parametrize(
    "text", ["a", "A.b_c[x]>=1,<2", "a~=1.0", "a==1.0rc1+cu117", "a !=1.*", "a>=1.post2", "a (>=1)"]
)
def test_plain_line_is_read_as_packaging_reads_it(text: str) -> None:
    """The short way past `packaging` must not disagree with it."""
    (entry,) = parsed(text)
    requirement = Requirement(text)
    assert (requirement.name, requirement.specifier, requirement.extras) == (
        entry.name,
        Requirement(f"x{entry.version}").specifier,
        set(entry.extras),
    )
