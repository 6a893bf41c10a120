"""An environment.yml as people really write it, read with the place of everything in it.

Nothing is lost in silence: what cannot be read as conda or pip would read it is a `Fault` with
its line and column. The judging is left to `envaudit.rules.envfile`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from envaudit.lock import yamltext
from envaudit.lock.condaspec import BadSpec, parse_spec
from envaudit.lock.entries import Entry, Fault, Located, SourceFile
from envaudit.lock.includes import Includes
from envaudit.lock.requirement import BadRequirement, parse_line
from envaudit.lock.selectors import PLATFORMS, platforms_of, selector_in
from envaudit.lock.sourcetext import read_text

if TYPE_CHECKING:
    import yaml

# conda's keys, and those that conda-lock adds.
KEYS = ("name", "channels", "dependencies", "variables", "prefix",
        "platforms", "category", "pip-repositories", "allow-pypi-requests")  # fmt: skip

__all__ = ["KEYS", "SourceFile", "read_source"]

# So many faults of one file are told; a wrong file has one for each line.
MAX_FAULTS = 100


def read_source(path: str) -> SourceFile:
    """Read an environment.yml.

    Raises:
        InputError: there is no such file, it cannot be read, or it is no text. All else that is
            wrong with it is a fault of the value; `SourceFile.check` refuses the fatal ones.
    """
    decoded = read_text(path)
    return _Reader(SourceFile(path, decoded.text, decoded.encoding, decoded.has_mark)).read()


class _Reader:
    """One file being read; collects what it says and what is wrong."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.path = source.path
        self.lines = source.text.split("\n")
        self.faults: list[Fault] = []
        self.conda: list[Entry] = []
        self.pip: list[Entry] = []
        self.pip_sections: list[Located] = []
        self.includes = Includes(source.path)

    def read(self) -> SourceFile:
        """The file as a value."""
        import yaml

        templates = yamltext.template_faults(self.source.text, self.path)
        root, faults = yamltext.compose(self.source.text, self.path)
        # What a template's marks do to YAML is no fault of its own.
        self.faults += templates or faults
        if root is None or yamltext.is_null(root):
            if not self.faults:
                self.faults.append(Fault("empty", "the file is empty", 1, 1, self.path, _EMPTY_ADVICE))
            return self._done()
        if not isinstance(root, yaml.MappingNode):
            self._fault("shape", f"a {_kind(root)}, where an environment has keys", root, _KEYS_ADVICE)
            return self._done()
        self._keys(root)
        return self._done()

    def _done(self) -> SourceFile:
        # An alias says the same as often as it is named.
        faults = list(dict.fromkeys([*self.faults, *self.includes.faults]))
        if len(faults) > MAX_FAULTS:
            last = faults[MAX_FAULTS]
            faults = [*faults[:MAX_FAULTS],
                      replace(last, message=f"{len(faults) - MAX_FAULTS} further faults")]  # fmt: skip
        return replace(
            self.source,
            conda=tuple(self.conda),
            pip=tuple(self.pip),
            pip_sections=tuple(self.pip_sections),
            faults=tuple(faults),
        )

    def _keys(self, root: yaml.MappingNode) -> None:
        first: dict[str, Located] = {}
        for key, value in yamltext.pairs(root):
            key = replace(key, path=self.path)
            if key.text in first:
                message = f"'{key.text}' is given twice, first in line {first[key.text].line}"
                self._fault_at("duplicate", message, key, "YAML keeps the last and drops the other.")
            first[key.text] = key
            if key.text == "dependencies" and (yamltext.is_null(value) or not value.value):
                self._fault_at(
                    "nothing", "'dependencies' is empty: there is nothing to install", key, fatal=False
                )
            elif key.text in KEYS:
                self._key(key.text, value)
            elif key.text == "<<":
                self._fault_at(
                    "shape", "a merge key, which conda-lock does not read", key, "Write the keys out."
                )
            else:
                message = f"'{key.text}' is no key of an environment file"
                self._fault_at("key", message, key, _nearest(key.text, KEYS), fatal=False)
        if "dependencies" not in first:
            place = Located("", 1, 1, self.path)
            self._fault_at("shape", "there is no key 'dependencies'", place, _EMPTY_ADVICE)

    def _key(self, key: str, node: yaml.Node) -> None:
        if key == "dependencies":
            self._dependencies(node)
        elif key == "channels":
            self.source = replace(self.source, channels=self._texts(node, key))
        elif key == "platforms":
            self.source = replace(self.source, platforms=self._platforms(node))
        elif key == "pip-repositories":
            self.source = replace(self.source, pip_repositories=self._texts(node, key))
        elif key == "variables":
            self.source = replace(self.source, variables=self._variables(node))
        else:
            self._word(key, node)

    def _word(self, key: str, node: yaml.Node) -> None:
        import yaml

        if yamltext.is_null(node):
            return
        if not isinstance(node, yaml.ScalarNode):
            self._fault("shape", f"'{key}' is a {_kind(node)}, expected a word", node)
        elif key == "category":
            self.source = replace(self.source, category=node.value.strip() or "main")
        elif key == "name":
            self.source = replace(self.source, name=yamltext.located(node, self.path))
        elif key == "prefix":
            self.source = replace(self.source, prefix=yamltext.located(node, self.path))

    def _texts(self, node: yaml.Node, key: str) -> tuple[Located, ...]:
        """A list of texts."""
        import yaml

        if yamltext.is_null(node):
            return ()
        if not isinstance(node, yaml.SequenceNode):
            advice = f"Write '{key}:', and below it a line '  - {getattr(node, 'value', '...')}' for each."
            self._fault("shape", f"'{key}' is a {_kind(node)}, expected a list", node,
                        advice if isinstance(node, yaml.ScalarNode) else "")  # fmt: skip
            return ()
        texts = []
        for item in node.value:
            if isinstance(item, yaml.ScalarNode) and not yamltext.is_null(item):
                texts.append(yamltext.located(item, self.path))
            else:
                self._fault("shape", f"an item of '{key}' is a {_kind(item)}, expected a word", item)
        return tuple(texts)

    def _platforms(self, node: yaml.Node) -> tuple[Located, ...]:
        platforms = self._texts(node, "platforms")
        for platform in platforms:
            if platform.text not in PLATFORMS:
                message = f"'{platform.text}' is no platform"
                self._fault_at("platform", message, platform, _nearest(platform.text, PLATFORMS))
        return platforms

    def _variables(self, node: yaml.Node) -> tuple[tuple[str, Located], ...]:
        import yaml

        if yamltext.is_null(node):
            return ()
        if not isinstance(node, yaml.MappingNode):
            self._fault("shape", f"'variables' is a {_kind(node)}, expected 'NAME: value' lines", node)
            return ()
        return tuple((key.text, yamltext.located(value, self.path)) for key, value in yamltext.pairs(node))

    def _dependencies(self, node: yaml.Node) -> None:
        import yaml

        if isinstance(node, yaml.MappingNode):
            self._fault("shape", "'dependencies' is a mapping, expected a list", node, _MAPPING_ADVICE)
            return
        if not isinstance(node, yaml.SequenceNode):
            self._fault("shape", f"'dependencies' is a {_kind(node)}, expected a list", node)
            return
        for item in node.value:
            if isinstance(item, yaml.MappingNode):
                self._section(item)
            elif not isinstance(item, yaml.ScalarNode):
                self._fault("shape", "a list inside 'dependencies'", item, "Indent all its items alike.")
            elif yamltext.is_null(item):
                self._fault("shape", "an empty item of 'dependencies'", item)
            elif not yamltext.is_word(item):
                self._fault("shape", f"'{item.value}' is {yamltext.type_of(item)} to YAML, no package", item)
            else:
                self._package(item)

    def _package(self, node: yaml.ScalarNode) -> None:
        written = yamltext.located(node, self.path)
        if yamltext.PLACEHOLDER.search(written.text):
            return
        if "$" in written.text and "://" not in written.text:
            message = f"'{written.text}' has a placeholder that nobody fills in"
            self._fault_at("template", message, written, "Write the version that is meant.")
            return
        try:
            spec = parse_spec(written.text)
        except BadSpec as error:
            self._fault_at("spec", f"'{written.text}' is no package: {error}", written)
            return
        if spec.ignored:
            message = f"conda drops '{spec.ignored}' of {spec.name}"
            self._fault_at("ignored", message, written, fatal=False)
        selector, platforms = self._selector(node, written)
        self.conda.append(
            Entry(
                written.text,
                written.line,
                written.column,
                self.path,
                "conda",
                name=spec.name,
                key=spec.name.lower(),
                version=spec.version,
                build=spec.build,
                channel=spec.channel,
                url=spec.url,
                selector=selector,
                platforms=platforms,
            )
        )

    def _section(self, node: yaml.MappingNode) -> None:
        """`- pip:` with its lines; any other mapping is a typing error."""
        import yaml

        for key, value in yamltext.pairs(node):
            key = replace(key, path=self.path)
            if key.text != "pip":
                if not yamltext.PLACEHOLDER.search(self.lines[key.line - 1]):
                    message = f"'{key.text}:' is a mapping, where a package is a word"
                    self._fault_at("shape", message, key, "Only 'pip:' takes lines of its own.")
                continue
            self.pip_sections.append(key)
            if yamltext.is_null(value):
                continue
            if not isinstance(value, yaml.SequenceNode):
                self._fault("shape", f"'pip' is a {_kind(value)}, expected a list", value)
                continue
            for item in value.value:
                self._pip_item(item)

    def _pip_item(self, node: yaml.Node) -> None:
        import yaml

        if not isinstance(node, yaml.ScalarNode) or not yamltext.is_word(node):
            what = f"a {_kind(node)}" if not isinstance(node, yaml.ScalarNode) else yamltext.type_of(node)
            if not yamltext.PLACEHOLDER.search(self.lines[node.start_mark.line]):
                self._fault("shape", f"{what} in the pip section, expected a requirement", node)
            return
        written = yamltext.located(node, self.path)
        if yamltext.PLACEHOLDER.search(written.text):
            return
        selector, platforms = self._selector(node, written)
        try:
            entries = parse_line(written, block=len(self.pip_sections) - 1)
        except BadRequirement as error:
            self._fault_at("requirement", str(error), written, error.next_step)
            return
        for entry in entries:
            entry = replace(entry, selector=selector, platforms=platforms)
            self.pip += [entry, *self.includes.lines_of(entry)]

    def _selector(self, node: yaml.Node, written: Located) -> tuple[str | None, tuple[str, ...] | None]:
        """The comment selector behind a node, and its platforms."""
        line = self.lines[node.end_mark.line] if node.end_mark.line < len(self.lines) else ""
        selector = selector_in(line[node.end_mark.column :])
        if selector is None:
            return None, None
        platforms = platforms_of(selector)
        if not platforms:
            message = f"'# [{selector}]' behind '{written.text}' is no selector: the line would count nowhere"
            advice = "Write the line once for each platform, or move the comment above it."
            self._fault_at("selector", message, written, advice)
        return selector, platforms or None

    def _fault(self, kind: str, message: str, node: yaml.Node, next_step: str = "") -> None:
        self._fault_at(kind, message, yamltext.located(node, self.path), next_step)

    def _fault_at(
        self, kind: str, message: str, place: Located, next_step: str = "", *, fatal: bool = True
    ) -> None:
        self.faults.append(Fault(kind, message, place.line, place.column, self.path, next_step, fatal))


_EMPTY_ADVICE = "An environment file has 'channels:' and 'dependencies:', each a list."
_KEYS_ADVICE = "It begins with keys at the left margin: name, channels, dependencies."
_MAPPING_ADVICE = "Write '- python=3.12', with a dash before and '=' within each."


def _kind(node: yaml.Node) -> str:
    if yamltext.is_null(node):
        return "nothing"
    import yaml

    if isinstance(node, yaml.ScalarNode):
        return "word"
    return "list" if isinstance(node, yaml.SequenceNode) else "mapping"


def _nearest(word: str, words: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(re.sub(r"\s", "", word).lower(), words, n=1)
    return f"Did you mean '{close[0]}'?" if close else ""
