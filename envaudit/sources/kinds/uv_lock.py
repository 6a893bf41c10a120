"""`uv.lock`: the universal lock of a uv project; for one machine, a part of it.

Expected is what the project's own dependencies lead to on the target, by way of markers, extras and
forks. What only its extras and dependency groups lead to may be there, in the locked version: uv
installs the group `dev` unless told otherwise, and the lock does not say what it was told. Of those
that conflicting extras lock in several versions, none is held to one. The project, the members of
its workspace and what is installed as a checkout are no packages of the lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from envaudit.errors import InputError
from envaudit.model.section import Section
from envaudit.sources.documents import rows_at, table_at, tables_at, text_at, toml_of
from envaudit.sources.setting import Setting
from envaudit.sources.tables import (
    TOOLING,
    is_name,
    is_version,
    lock_section,
    normalised,
    packages_section,
)

KIND = "uv.lock"
IS_LOCK = True

Package = Mapping[str, Any]

_EXTRA = re.compile(r"extra\s*[!=]=\s*'[^']*'")


class _Node(NamedTuple):
    """A package, or one of its extras, on the way through the graph."""

    place: int
    extra: str


def matches(text: str) -> bool:
    """Whether it has uv's head: a number of version, the Python asked for, tables of packages."""
    return (
        re.search(r"^version\s*=\s*\d+\s*$", text, re.MULTILINE) is not None
        and re.search(r"^requires-python\s*=", text, re.MULTILINE) is not None
        and re.search(r"^\[\[package\]\]", text, re.MULTILINE) is not None
    )


def read(text: str, where: str, setting: Setting) -> list[Section]:
    """Sections `packages` and `lock`.

    Raises:
        InputError: no TOML, another version of the format, a Python that the lock does not serve,
            a package without a name, or one that is needed and not there.
    """
    document = toml_of(text, where)
    if document.get("version") != 1:
        raise InputError(f"version {document.get('version')!r:.20} of uv's lock is not known", where=where)
    if setting.serves(text_at(document, "requires-python")) is False and setting.python:
        raise InputError(
            f"the lock is for Python {text_at(document, 'requires-python')[:40]}, not {setting.python}",
            where=where,
        )
    graph = _Graph(document, where, setting)
    roots = graph.roots()
    needed = graph.reached(graph.first(roots, groups=False), unsure=False)
    maybe = graph.reached(graph.first(roots, groups=False), unsure=True)
    further = graph.reached(graph.first(roots, groups=True), unsure=True, any_extra=True)
    own = {graph.name_of(index) for index in graph.checkouts()}
    expected: dict[str, Any] = {name: graph.facts(index) for name, index in graph.by_name(needed, where)}
    unsure = sorted({graph.name_of(index) for index in maybe} - set(expected) - own)
    errors = [f"whether {name} is needed here is unknown" for name in unsure]
    optional, several = graph.alternatives(further)
    return [
        packages_section(
            {**dict.fromkeys(unsure), **{name: facts for name, facts in expected.items() if name not in own}},
            whole=True,
            left_out=TOOLING,
            errors=errors,
        ),
        lock_section(
            setting.platform,
            None,
            optional={
                name: facts
                for name, facts in optional.items()
                if name not in expected and name not in own and name not in unsure
            },
            unlisted={*TOOLING, *own, *(several - set(expected))},
        ),
    ]


class _Graph:
    """The packages of a lock and what leads from one to the next on the target."""

    def __init__(self, document: Mapping[str, Any], where: str, setting: Setting) -> None:
        self.document = document
        self.where = where
        self.setting = setting
        self.packages: list[Package] = list(tables_at(document, "package"))
        self.named: dict[str, list[int]] = {}
        for index, package in enumerate(self.packages):
            if not is_name(text_at(package, "name")):
                raise InputError(f"package[{index}].name: expected a name", where=where)
            self.named.setdefault(self.name_of(index), []).append(index)

    def name_of(self, index: int) -> str:
        return normalised(text_at(self.packages[index], "name"))

    def members(self) -> list[int]:
        """The project, or all of a workspace."""
        names = {
            normalised(each)
            for each in rows_at(self.document, "manifest", "members")
            if isinstance(each, str)
        }
        local = [
            index
            for index, package in enumerate(self.packages)
            if {"editable", "virtual"} & set(table_at(package, "source"))
        ]
        if names:
            return [index for name in sorted(names) for index in self.named.get(name, ())]
        top = [
            index
            for index in local
            if "." in (table_at(self.packages[index], "source").get(key) for key in ("editable", "virtual"))
        ]
        return top or local

    def checkouts(self) -> list[int]:
        """Whatever is installed from a folder as it stands there: no lock can hold it."""
        return [
            *self.members(),
            *(
                index
                for index, package in enumerate(self.packages)
                if {"editable", "virtual"} & set(table_at(package, "source"))
            ),
        ]

    def roots(self) -> list[Mapping[str, Any]]:
        """The tables whose dependencies are the user's own; a script has them in its manifest."""
        manifest = table_at(self.document, "manifest")
        script = {"dependencies": rows_at(manifest, "requirements")}
        return [*(self.packages[index] for index in self.members()), script]

    def first(self, roots: Iterable[Mapping[str, Any]], *, groups: bool) -> list[Mapping[str, Any]]:
        """The dependencies of the roots; with `groups` those of their extras and groups too."""
        found: list[Mapping[str, Any]] = []
        for root in roots:
            found += tables_at(root, "dependencies")
            for key in ("optional-dependencies", "dev-dependencies") if groups else ():
                for name in table_at(root, key):
                    found += tables_at(root, key, name)
        return found

    def reached(self, first: list[Mapping[str, Any]], *, unsure: bool, any_extra: bool = False) -> set[int]:
        """The packages that dependencies lead to.

        Args:
            first: the dependencies to begin with.
            unsure: those whose marker cannot be told are taken too.
            any_extra: whatever extras and groups a marker asks for, it gets; in a project with
                conflicting ones uv writes them into markers under names of its own.
        """
        seen: set[_Node] = set()
        waiting = list(first)
        while waiting:
            dependency = waiting.pop()
            marker = text_at(dependency, "marker")
            holds = self.setting.holds(_EXTRA.sub("os_name != ''", marker) if any_extra else marker)
            if holds is False or (holds is None and not unsure):
                continue
            for index in self._meant(dependency, unsure):
                extras = [each for each in rows_at(dependency, "extra") if isinstance(each, str)]
                for extra in ("", *extras):
                    node = _Node(index, extra)
                    if node not in seen:
                        seen.add(node)
                        waiting += self._dependencies(node)
        return {node.place for node in seen}

    def _dependencies(self, node: _Node) -> list[Mapping[str, Any]]:
        package = self.packages[node.place]
        if node.extra:
            return list(tables_at(package, "optional-dependencies", node.extra))
        return list(tables_at(package, "dependencies"))

    def _meant(self, dependency: Mapping[str, Any], unsure: bool) -> list[int]:
        """The package of that name, version and source; of several forks that of the target."""
        version, source = text_at(dependency, "version"), dependency.get("source")
        name = text_at(dependency, "name")
        if normalised(name) not in self.named:
            # What is not there would be neither missed nor beyond the lock.
            raise InputError(
                f"{name[:80]} is needed, and no package of the lock is it",
                where=self.where,
                next_step="Give the whole file: uv writes every package that it needs.",
            )
        found = [
            index
            for index in self.named[normalised(name)]
            if not version or text_at(self.packages[index], "version") == version
            if source is None or self.packages[index].get("source") == source
        ]
        if len(found) < 2:
            return found
        return [index for index in found if self._forked_for_target(index, unsure)]

    def _forked_for_target(self, index: int, unsure: bool) -> bool:
        markers = [
            each for each in rows_at(self.packages[index], "resolution-markers") if isinstance(each, str)
        ]
        answers = {self.setting.holds(marker) for marker in markers}
        return not answers or True in answers or (unsure and None in answers)

    def alternatives(self, indexes: Iterable[int]) -> tuple[dict[str, Any], set[str]]:
        """What is said of each package, and the names of those that are there in several versions."""
        found: dict[str, Any] = {}
        several: set[str] = set()
        for index in indexes:
            name, facts = self.name_of(index), self.facts(index)
            if found.setdefault(name, facts) != facts:
                several.add(name)
        return {name: facts for name, facts in found.items() if name not in several}, several

    def by_name(self, indexes: Iterable[int], where: str) -> list[tuple[str, int]]:
        """Each package once.

        Raises:
            InputError: the target would need two versions of one.
        """
        found: dict[str, int] = {}
        for index in sorted(indexes):
            name = self.name_of(index)
            if name in found and self.facts(found[name]) != self.facts(index):
                raise InputError(f"{name} is expected in two versions on one machine", where=where)
            found[name] = index
        return sorted(found.items())

    def facts(self, index: int) -> dict[str, Any]:
        """What is said of a package, as the probe has it of a distribution."""
        package = self.packages[index]
        version, source = text_at(package, "version"), table_at(package, "source")
        facts: dict[str, Any] = {"version": version} if is_version(version) else {}
        if isinstance(source.get("git"), str):
            url, _, commit = source["git"].partition("#")
            facts["direct_url"] = {"url": self.setting.clean(url.partition("?")[0]), "commit": commit}
        elif isinstance(source.get("url"), str):
            facts["direct_url"] = {"url": self.setting.clean(source["url"])}
        elif isinstance(source.get("path"), str):
            facts["direct_url"] = {"url": "local"}
        return facts
