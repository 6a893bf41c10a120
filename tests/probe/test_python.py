"""What is compared of an interpreter."""

from __future__ import annotations

import hashlib
from typing import Any, Callable

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.sections import python

MakeNode = Callable[..., Context]


def read(make_node: MakeNode, **told: Any) -> Answer:
    """The section of a node whose interpreter says this."""
    plain = {
        "version": "3.11.8",
        "executable": "/env/bin/python",
        "prefix": "/env",
        "base_prefix": "/usr",
        "path": ["/env/lib"],
    }
    environ = {"HOME": "/home/alice", "USER": "alice"}
    return python.read(make_node(interpreter={**plain, **told}, environ=environ))


def test_folders_outside_the_prefixes_are_facts(make_node: MakeNode) -> None:
    """PYTHONPATH and .pth files put folders where no environment holds them; their order counts."""
    path = ["/opt/b", "/env/lib", "/usr/lib/python3", "/environment/x", "/opt/a", "/home/alice/src", "/env"]
    expected = ["/opt/b", "/environment/x", "/opt/a", "$HOME/src"]
    assert expected == read(make_node, path=path).facts["path_outside_prefix"]


def test_users_own_site_is_told_without_the_user(make_node: MakeNode) -> None:
    """Two users' nodes with the same state are alike."""
    answer = read(
        make_node, user_site="/home/alice/.local/lib/python3.11/site-packages", user_site_enabled=True
    )
    expected = {"folder": "$HOME/.local/lib/python3.11/site-packages", "enabled": True, "exists": False}
    assert expected == answer.facts["user_site"]


def test_what_runs_at_every_start_is_a_fact(make_node: MakeNode) -> None:
    """The first sitecustomize on the path counts; the user's only where the user's site is in use."""
    files = {
        "/opt/b/sitecustomize.py": "import os\n",
        "/env/lib/sitecustomize.py": "import sys\n",
        "/env/lib/usercustomize/__init__.py": "",
    }
    told = {"path": ["", "lib", "/opt/b", "/env/lib"]}
    node = make_node(files, interpreter={"version": "3.11.8", "executable": "x", "prefix": "/env", **told})
    own = hashlib.sha256(b"import os\n").hexdigest()
    assert {"sitecustomize": own} == python.read(node).facts["customized"]
    node = make_node(interpreter={**node.interpreter, "user_site_enabled": True})
    users = hashlib.sha256(b"").hexdigest()
    assert {"sitecustomize": own, "usercustomize": users} == python.read(node).facts["customized"]
    assert "customized" not in read(make_node, path=["/nowhere"]).facts


def test_encodings_are_facts_and_unknown_where_none_is_told(make_node: MakeNode) -> None:
    """The C library writes their names in capitals."""
    encodings = read(make_node, names_encoding="utf-8", text_encoding="ISO-8859-1").facts["encodings"]
    assert {"names": "utf-8", "text": "iso-8859-1"} == encodings
    assert {"names": None, "text": None} == read(make_node).facts["encodings"]


def test_flags_are_facts(make_node: MakeNode) -> None:
    """-O drops assertions; -X utf8 changes file reading."""
    assert {"optimize": 1} == read(make_node, flags={"optimize": 1}).facts["flags"]


def test_description_without_its_version_is_partial(make_node: MakeNode) -> None:
    """A fact that applies and is not there is an error, not an empty text."""
    answer = read(make_node, version="")
    assert ("partial", ("the interpreter did not say its version",)) == (answer.status, tuple(answer.errors))


@pytest.mark.parametrize("name", ["healthy-h100", "cpu-only", "garbled", "denied-and-hanging"])
def test_fake_node_is_read(fake_node: Callable[[str], Context], name: str) -> None:
    """What the interpreter says of itself does not depend on files that are garbled or denied."""
    assert "ok" == python.read(fake_node(name)).status
