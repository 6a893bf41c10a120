"""References: what `node01@good`, `node[01-16]`, `a.json` mean, and the snapshots behind them.

The grammar: a reference is a path if and only if it ends like a report file, or contains `/` other
than as the step of a range, `node[1-9/2]`.
Otherwise the last `@` that is not at the start and does not follow `,` `!` `&` `^` splits the node
set from the tag, so that `@gpu` stays a group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Optional, Tuple

from envaudit.errors import EnvauditError, UsageError
from envaudit.model import nodeset
from envaudit.model.codec import NODE_NAME

PATH_ENDINGS = (".json", ".json.gz", ".yml", ".yaml", ".toml", ".txt", ".xml", ".lock")

_MAX_NODES = 1_000_000
_MAX_DIGITS = 18
# Each may be a process: these take seconds.
_MAX_GROUPS = 4096
_STEP = re.compile(r"(?<=\d)-\d+/\d+(?=[],])")
_NODE_NAME = "It is letters, digits, '.', '_', ':' and '-', and begins with a letter, a digit or '_'."
_SSH_USER = "The user of a node is User in your ssh configuration; NODE@TAG is no live node."
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]*\Z")
# What a shell takes for one word, and no program for an option.
_GROUP = re.compile(r"[\w.:=+/%@][\w.:=+/%@-]*\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?Z?)?\Z")


@dataclass(frozen=True)
class Reference:
    """One parsed reference: a file, or nodes, live or as stored under a tag or time.

    Attributes:
        text: as the user wrote it.
        path: the file, or None.
        nodes: the node names, empty for a file.
        when: a tag, `latest` or a time; None for live nodes and files.
    """

    text: str
    path: Optional[str] = None
    nodes: Tuple[str, ...] = ()
    when: Optional[str] = None


def parse(text: str) -> Reference:
    """Read one reference.

    Raises:
        UsageError: an empty node set, an unknown group, a tag or node name of another form.
    """
    if "/" in _STEP.sub("", text) or text.endswith(PATH_ENDINGS):
        return Reference(text, path=text)
    at = _split_at(text)
    if at is None:
        return Reference(text, nodes=expand(text))
    nodes, when = text[:at], text[at + 1 :]
    if not _TAG.match(when) and not _TIME.match(when):
        raise UsageError(
            f"'{when}' is no tag and no time",
            where=text,
            next_step="A tag is a letter, then letters, digits, '.', '_' or '-'; "
            "a time is 2026-11-30T10:00, local unless it ends in Z.",
        )
    return Reference(text, nodes=expand(nodes), when=when)


def expand(text: str) -> Tuple[str, ...]:
    """The node names of a node set, sorted, each of a form that is safe to hand on.

    ClusterShell reads the node set where it is installed (groups, set operators); the one-file
    form knows plain folded names.

    Raises:
        UsageError: not a node set, no node in it, an unknown group or an unsafe name.
    """
    counted = 0
    for inside in re.findall(r"\[([^\[\]]*)\]", text):
        for first, last in re.findall(r"(\d+)-(\d+)", inside):
            if max(len(first), len(last)) > _MAX_DIGITS:
                raise _too_many(text)
            counted += max(0, int(last) - int(first)) + 1
    # ClusterShell keeps each number of each range.
    if counted > _MAX_NODES:
        raise _too_many(text)
    names = _expand(text)
    if not names:
        raise UsageError(f"node set '{text}' is empty", next_step="Name at least one node.")
    for name in names:
        if not NODE_NAME.match(name):
            raise UsageError(
                f"{name[:80]!r} is not a node name",
                next_step=_SSH_USER if "@" in name else _NODE_NAME,
            )
    return names


def _split_at(text: str) -> Optional[int]:
    for index in range(len(text) - 1, 0, -1):
        if text[index] == "@" and text[index - 1] not in ",!&^":
            return index
    return None


def _expand(text: str) -> Tuple[str, ...]:
    import configparser  # which ClusterShell imports as well

    try:
        from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException, std_group_resolver
        from ClusterShell.NodeUtils import GroupResolverError, GroupSourceError
    except ImportError:
        return nodeset.expand(text)
    except (configparser.Error, ValueError) as error:
        raise _bad_configuration(error) from None
    groups = re.findall(r"(?:^|[,!&^])\s*@([^,!&^\[\]]+)", text)
    try:
        named = NodeSet(text, resolver=_Groups(std_group_resolver()) if groups else RESOLVER_NOGROUP)
    except GroupResolverError as error:
        # No groups.conf at all, or one that cannot be read or has no such source.
        raise _bad_node_set(text, f"no source of groups: {error}", groups) from None
    except (NodeSetException, GroupSourceError, AssertionError) as error:
        raise _bad_node_set(text, str(error), groups) from None
    except (configparser.Error, ValueError) as error:
        raise _bad_configuration(error) from None
    if not named and groups:
        raise _bad_node_set(text, "unknown or empty group", groups)
    # Two ranges in one name multiply; counted before any name is made.
    if len(named) > _MAX_NODES:
        raise _too_many(text)
    return tuple(sorted(named, key=nodeset.natural_key))


class _Groups:
    """The user's groups, asked for no name that is more than a word.

    A source of groups may be a line for the shell with the name put into it; the file that pip brings is.
    """

    def __init__(self, resolver: Any) -> None:
        self._resolver = resolver
        self._asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._resolver, name)

    def group_nodes(self, group: str, namespace: Optional[str] = None) -> Any:
        """The nodes of a group, as the resolver tells them.

        Raises:
            UsageError: the name could be more than a word to a shell, or there are too many of them.
        """
        self._asked += 1
        if self._asked > _MAX_GROUPS:
            raise UsageError(f"more than {_MAX_GROUPS} groups are named in one node set")
        if not _GROUP.match(group):
            raise UsageError(
                f"{group[:80]!r} is not the name of a group",
                next_step="It is letters, digits and '.', '_', ':', '=', '+', '/', '%' and '-'.",
            )
        return self._resolver.group_nodes(group, namespace)


def _too_many(text: str) -> EnvauditError:
    return UsageError(f"'{text}' names more than {_MAX_NODES} nodes")


def _bad_configuration(error: Exception) -> EnvauditError:
    return UsageError(
        "ClusterShell's configuration cannot be used",
        why=" ".join(str(error).split()),
        next_step="See its defaults.conf and groups.conf, in /etc/clustershell or ~/.config/clustershell.",
    )


def _bad_node_set(text: str, why: str, groups: list[str]) -> EnvauditError:
    if not groups:
        return UsageError(f"'{text}' is not a node set", why=why)
    return UsageError(
        f"'{text}' is not a node set",
        why=why,
        next_step=_group_suggestion(groups[0])
        + "Groups come from ClusterShell's groups.conf; see 'cluset -l'.",
    )


def _group_suggestion(group: str) -> str:
    import difflib

    from ClusterShell.NodeSet import grouplist

    try:
        known = list(grouplist())
    except Exception:  # any fault of the user's group source: only the suggestion is lost
        return ""
    close = difflib.get_close_matches(group, known, n=1)
    return f"Did you mean '@{close[0]}'? " if close else ""
