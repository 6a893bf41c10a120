"""The grammar of references."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest
from ClusterShell import NodeSet
from ClusterShell.NodeUtils import GroupResolver, UpcallGroupSource

from envaudit.cli.references import Reference, expand, parse
from envaudit.errors import UsageError
from tests.cli.conftest import Folder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node01", Reference("node01", nodes=("node01",))),
        ("node[1-3]", Reference("node[1-3]", nodes=("node1", "node2", "node3"))),
        ("node10,node9", Reference("node10,node9", nodes=("node9", "node10"))),
        ("node[01-02]@good", Reference("node[01-02]@good", nodes=("node01", "node02"), when="good")),
        ("node01@latest", Reference("node01@latest", nodes=("node01",), when="latest")),
        ("n1@2026-11-30T10:00", Reference("n1@2026-11-30T10:00", nodes=("n1",), when="2026-11-30T10:00")),
        (
            "n1@2026-11-30T10:00:09Z",
            Reference("n1@2026-11-30T10:00:09Z", nodes=("n1",), when="2026-11-30T10:00:09Z"),
        ),
        ("a.json", Reference("a.json", path="a.json")),
        ("./node01@good", Reference("./node01@good", path="./node01@good")),
        ("node[1-9/4]@good", Reference("node[1-9/4]@good", nodes=("node1", "node5", "node9"), when="good")),
        ("node[1-9/4]/a", Reference("node[1-9/4]/a", path="node[1-9/4]/a")),
        ("node[1-4]!node2", Reference("node[1-4]!node2", nodes=("node1", "node3", "node4"))),
    ],
)
def test_reference_of_each_form_is_read(text: str, expected: Reference) -> None:
    """Paths, node sets, tags and times are told apart."""
    assert expected == parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "node[", "node[2-1]", "node01@", "node01@9lives", "node01@..", "-oProxyCommand=x", "node01 -v;x"],
)
def test_reference_of_no_form_is_a_usage_error(text: str) -> None:
    """Nothing that is no reference becomes an empty pass or an option of ssh."""
    with pytest.raises(UsageError):
        parse(text)


def test_names_with_numbers_and_dashes_are_no_ranges() -> None:
    """A cloud calls its machines by their addresses."""
    names = [f"ip-10-0-{third}-255" for third in range(200)] + ["a-1-999999", "b-1-999999", "c-1-999999"]
    assert sorted(names) == sorted(expand(",".join(names)))


def test_user_before_a_node_is_said_to_belong_to_ssh() -> None:
    """`--nodes root@node01` is what everybody tries who knows ssh."""
    with pytest.raises(UsageError, match="User in your ssh configuration"):
        expand("root@node01")


def test_group_that_does_not_exist_is_a_usage_error() -> None:
    """An unknown group is no empty node set."""
    with pytest.raises(UsageError, match="no-such-group"):
        parse("@no-such-group")


def test_node_set_that_is_emptied_by_its_operators_is_a_usage_error() -> None:
    """`node1!node1` names nobody, and nobody is no pass."""
    with pytest.raises(UsageError, match="empty"):
        expand("node1!node1")


@pytest.mark.parametrize(
    "text",
    [
        "node[1-99999999999]",
        "rack[0-99999]node[0-99999]",
        ",".join(f"{row}[0-599999]" for row in "ab"),
        pytest.param(f"node[{'9' * 5000}-1]", id="a number without end"),
    ],
)
def test_node_set_of_absurd_size_is_refused_before_it_is_built(text: str) -> None:
    """A mistyped range costs a message, not the memory of the machine."""
    with pytest.raises(UsageError, match="1000000"):
        expand(text)


@pytest.mark.parametrize(
    ("source", "words"),
    [(None, "no source of groups"), (UpcallGroupSource("default", "exit 3", all_upcall="exit 3"), "exit 3")],
    ids=["no groups.conf", "a group source that fails"],
)
def test_group_where_groups_cannot_be_asked_is_a_usage_error(
    source: Optional[UpcallGroupSource], words: str
) -> None:
    """ClusterShell may be installed without its configuration, and a site's own command may fail."""
    before = NodeSet.std_group_resolver()
    NodeSet.set_std_group_resolver(GroupResolver(default_source=source))
    try:
        with pytest.raises(UsageError, match=words):
            parse("@gpu")
    finally:
        NodeSet.set_std_group_resolver(before)


@pytest.mark.parametrize(
    "group",
    [
        "x'; touch {made}; echo '",
        "x$(touch {made})",
        "x`touch {made}`",
        "x\ntouch {made}",
        "x|touch {made}",
        "src:x;touch {made}",
        "x[1-2];touch {made}",
        "-x",
    ],
)
@pytest.mark.parametrize("quoted", ["'", ""], ids=["quoted", "bare"])
def test_name_of_a_group_is_never_more_than_a_word_to_a_shell(
    tmp_path: Path, group: str, quoted: str
) -> None:
    """Node sets stand in the configuration of a repository under test; groups are asked of a shell."""
    asking = f"echo n1 {quoted}$GROUP{quoted}"
    sources = [UpcallGroupSource(name, asking) for name in ("default", "src")]
    before = NodeSet.std_group_resolver()
    resolver = GroupResolver(default_source=sources[0])
    resolver.add_source(sources[1])
    NodeSet.set_std_group_resolver(resolver)
    try:
        with pytest.raises(UsageError, match=r"not the name of a group|not a node set"):
            expand("@" + group.format(made=tmp_path / "made"))
        assert ("n1", "rack-1_a") == expand("@rack-1_a")
    finally:
        NodeSet.set_std_group_resolver(before)
    assert not (tmp_path / "made").exists()


def test_more_groups_than_anybody_has_are_not_all_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range of groups in a repository's configuration would start a process for each."""
    monkeypatch.setattr("envaudit.cli.references._MAX_GROUPS", 3)
    source = UpcallGroupSource("default", f"echo n1; echo >> {tmp_path / 'asked'}")
    before = NodeSet.std_group_resolver()
    NodeSet.set_std_group_resolver(GroupResolver(default_source=source))
    try:
        with pytest.raises(UsageError, match="more than 3 groups"):
            expand("@rack[1-900000]")
    finally:
        NodeSet.set_std_group_resolver(before)
    assert 3 == len((tmp_path / "asked").read_text().splitlines())


@pytest.mark.parametrize("text", ["x[1-2]310102026-11-30", "@gpu,x[1-2]310102026-11-30"])
def test_range_that_clustershell_cannot_hold_is_a_usage_error(text: str) -> None:
    """Digits beside brackets multiply the range."""
    with pytest.raises(UsageError):
        expand(text)


@pytest.mark.parametrize("name", ["defaults.conf", "groups.conf"])
@pytest.mark.parametrize("content", [b"no section\n", b"\xff"], ids=["no section", "no text"])
def test_configuration_of_clustershell_that_is_broken_is_a_usage_error(
    folder: Folder, name: str, content: bytes
) -> None:
    """It is the user's file, and no fault of this program that asks for a report of it."""
    place = folder.path / "config/clustershell" / name
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    ended = folder.run("diff", "--stored", "@gpu", XDG_CONFIG_HOME=str(folder.path / "config"))
    assert (2, "") == (ended.code, ended.out)
    assert ended.err.startswith("envaudit: ClusterShell's configuration cannot be used (")


@pytest.mark.parametrize("content", [b"no section\n", b"\xff"], ids=["no section", "no text"])
def test_topology_of_clustershell_that_is_broken_is_a_usage_error(folder: Folder, content: bytes) -> None:
    """Which gateways lead to a node is not known, so that none is asked."""
    place = folder.path / "config/clustershell/topology.conf"
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    ended = folder.run("snapshot", "--nodes", "n[1-2]", XDG_CONFIG_HOME=str(folder.path / "config"))
    assert (2, "") == (ended.code, ended.out)
    assert ended.err.startswith("envaudit: ClusterShell's topology.conf cannot be used (")
