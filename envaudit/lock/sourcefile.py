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
from envaudit.lock.complaints import Complaints, shown
from envaudit.lock.dependencies import Dependencies
from envaudit.lock.entries import Located, SourceFile
from envaudit.lock.selectors import PLATFORMS
from envaudit.lock.sourcetext import read_text

if TYPE_CHECKING:
    import yaml

# conda's keys, and those that conda-lock adds.
KEYS = ("name", "channels", "dependencies", "variables", "prefix",
        "platforms", "category", "pip-repositories", "allow-pypi-requests")  # fmt: skip

__all__ = ["KEYS", "SourceFile", "read_source"]

# So many faults of one file are told; a wrong file has one for each line.
MAX_FAULTS = 100


def read_source(path: str, *, named: bool = True) -> SourceFile:
    """Read an environment.yml; `named` as for `read_text`.

    Raises:
        InputError: there is no such file, it cannot be read, or it is no text. All else that is
            wrong with it is a fault of the value; `SourceFile.check` refuses the fatal ones.
    """
    decoded = read_text(path, named=named)
    return _Reader(SourceFile(path, decoded.text, decoded.encoding, decoded.has_mark)).read()


class _Reader:
    """One file being read; collects what it says and what is wrong."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.path = source.path
        self.complaints = Complaints(source.path)
        self.dependencies = Dependencies(source.path, yamltext.lines_of(source.text), self.complaints)

    def read(self) -> SourceFile:
        """The file as a value."""
        import yaml

        templates = yamltext.template_faults(self.source.text, self.path)
        root, faults = yamltext.compose(self.source.text, self.path)
        # What a template's marks do to YAML is no fault of its own.
        self.complaints.faults += templates or faults
        if root is None or yamltext.is_null(root):
            if not self.complaints.faults:
                start = Located("", 1, 1, self.path)
                self.complaints.at("empty", "the file is empty", start, _EMPTY_ADVICE)
            return self._done()
        if not isinstance(root, yaml.MappingNode):
            self.complaints.of_node(
                "shape", f"a {yamltext.kind_of(root)}, where an environment has keys", root, _KEYS_ADVICE
            )
            return self._done()
        self._keys(root)
        return self._done()

    def _done(self) -> SourceFile:
        # An alias says the same as often as it is named.
        faults = list(dict.fromkeys(self.complaints.faults))
        if len(faults) > MAX_FAULTS:
            rest = replace(faults[MAX_FAULTS], message=f"{len(faults) - MAX_FAULTS} further faults")
            faults = [*faults[:MAX_FAULTS], rest]
        return replace(
            self.source,
            conda=tuple(self.dependencies.conda),
            pip=tuple(self.dependencies.pip),
            pip_sections=tuple(self.dependencies.pip_sections),
            faults=tuple(faults),
        )

    def _keys(self, root: yaml.MappingNode) -> None:
        first: dict[str, Located] = {}
        for key, value in yamltext.pairs(root):
            key = replace(key, path=self.path)
            if key.text in first:
                message = f"'{shown(key.text)}' is given twice, first in line {first[key.text].line}"
                self.complaints.at("duplicate", message, key, "YAML keeps the last and drops the other.")
            first[key.text] = key
            if key.text == "dependencies" and (yamltext.is_null(value) or not value.value):
                self.complaints.at(
                    "nothing", "'dependencies' is empty: there is nothing to install", key, fatal=False
                )
            elif key.text in KEYS:
                self._key(key.text, value)
            elif key.text == "<<":
                self.complaints.at(
                    "shape", "a merge key, which conda-lock does not read", key, "Write the keys out."
                )
            else:
                message = f"'{shown(key.text)}' is no key of an environment file"
                advice = _PIP_ADVICE if key.text == "pip" else _nearest(key.text, KEYS)
                self.complaints.at("key", message, key, advice, fatal=False)
        if "dependencies" not in first:
            place = Located("", 1, 1, self.path)
            is_lock = "metadata" in first and "package" in first
            advice = _LOCK_ADVICE if is_lock else _EMPTY_ADVICE
            self.complaints.at("shape", "there is no key 'dependencies'", place, advice)

    def _key(self, key: str, node: yaml.Node) -> None:
        if key == "dependencies":
            self.dependencies.read(node)
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
            self.complaints.of_node("shape", f"'{key}' is a {yamltext.kind_of(node)}, expected a word", node)
        elif key == "category":
            self.source = replace(self.source, category=node.value.strip() or "main")
        elif key == "name":
            self.source = replace(self.source, name=yamltext.located(node, self.path))
        elif key == "allow-pypi-requests":
            # What YAML 1.1 reads as no.
            allowed = node.value.lower() not in ("false", "no", "off")
            self.source = replace(self.source, allow_pypi_requests=allowed)
        elif key == "prefix":
            self.source = replace(self.source, prefix=yamltext.located(node, self.path))

    def _texts(self, node: yaml.Node, key: str) -> tuple[Located, ...]:
        """A list of texts."""
        import yaml

        if yamltext.is_null(node):
            return ()
        if not isinstance(node, yaml.SequenceNode):
            message = f"'{key}' is a {yamltext.kind_of(node)}, expected a list"
            word = shown(node.value) if isinstance(node, yaml.ScalarNode) else ""
            advice = f"Write '{key}:', and below it a line '  - {word}' for each." if word else ""
            self.complaints.of_node("shape", message, node, advice)
            return ()
        texts = []
        for item in node.value:
            if isinstance(item, yaml.ScalarNode) and not yamltext.is_null(item):
                texts.append(yamltext.located(item, self.path))
            else:
                self.complaints.of_node(
                    "shape", f"an item of '{key}' is a {yamltext.kind_of(item)}, expected a word", item
                )
        return tuple(texts)

    def _platforms(self, node: yaml.Node) -> tuple[Located, ...]:
        platforms = self._texts(node, "platforms")
        for platform in platforms:
            if platform.text not in PLATFORMS:
                message = f"'{shown(platform.text)}' is no platform"
                self.complaints.at("platform", message, platform, _nearest(platform.text, PLATFORMS))
        return platforms

    def _variables(self, node: yaml.Node) -> tuple[tuple[str, Located], ...]:
        import yaml

        if yamltext.is_null(node):
            return ()
        if not isinstance(node, yaml.MappingNode):
            self.complaints.of_node(
                "shape", f"'variables' is a {yamltext.kind_of(node)}, expected 'NAME: value' lines", node
            )
            return ()
        return tuple((key.text, yamltext.located(value, self.path)) for key, value in yamltext.pairs(node))


_EMPTY_ADVICE = "An environment file has 'channels:' and 'dependencies:', each a list."
_LOCK_ADVICE = "This is a lock: name the file that it was made from, or see 'envaudit lock --check'."
_PIP_ADVICE = "Its lines are read below 'dependencies:' alone, as '- pip:'."
_KEYS_ADVICE = "It begins with keys at the left margin: name, channels, dependencies."


def _nearest(word: str, words: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(re.sub(r"\s", "", word).lower(), words, n=1)
    return f"Did you mean '{close[0]}'?" if close else ""
