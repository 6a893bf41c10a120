"""The `dependencies` of an environment.yml: conda's lines and the pip sections, to entries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from envaudit.lock import yamltext
from envaudit.lock.complaints import Complaints, shown
from envaudit.lock.condaspec import BadSpec, parse_spec
from envaudit.lock.entries import Entry, Located
from envaudit.lock.includes import Includes
from envaudit.lock.requirement import BadRequirement, parse_line
from envaudit.lock.selectors import KNOWN, platforms_of, selector_in

if TYPE_CHECKING:
    import yaml

# The largest public exports have some hundreds; with aliases a small file can stand for any number.
MAX_ENTRIES = 5000
_MAPPING_ADVICE = "Write '- python=3.12', with a dash before and '=' within each."


class Dependencies:
    """One file's dependencies, being read.

    Attributes:
        conda: entries, in order.
        pip: entries of all pip sections with those of the files they include, in order.
        pip_sections: where each begins.
    """

    def __init__(self, path: str, lines: list[str], complaints: Complaints) -> None:
        self.conda: list[Entry] = []
        self.pip: list[Entry] = []
        self.pip_sections: list[Located] = []
        self.path = path
        self.lines = lines
        self.complaints = complaints
        self.includes = Includes(path, complaints)

    def read(self, node: yaml.Node) -> None:
        """Read the value of `dependencies`."""
        import yaml

        if isinstance(node, yaml.MappingNode):
            self.complaints.of_node(
                "shape", "'dependencies' is a mapping, expected a list", node, _MAPPING_ADVICE
            )
            return
        if not isinstance(node, yaml.SequenceNode):
            self.complaints.of_node(
                "shape", f"'dependencies' is a {yamltext.kind_of(node)}, expected a list", node
            )
            return
        for item in node.value:
            if self._is_full(item):
                return
            if isinstance(item, yaml.MappingNode):
                self._section(item)
            elif not isinstance(item, yaml.ScalarNode):
                self.complaints.of_node(
                    "shape", "a list inside 'dependencies'", item, "Indent all its items alike."
                )
            elif yamltext.is_null(item):
                self.complaints.of_node("shape", "an empty item of 'dependencies'", item)
            elif not yamltext.is_word(item):
                self.complaints.of_node(
                    "shape", f"'{shown(item.value)}' is {yamltext.type_of(item)} to YAML, no package", item
                )
            else:
                self._package(item)

    def _is_full(self, node: yaml.Node) -> bool:
        full = len(self.conda) + len(self.pip) >= MAX_ENTRIES
        if full:
            self.complaints.of_node("shape", f"more than {MAX_ENTRIES} dependencies", node)
        return full

    def _package(self, node: yaml.ScalarNode) -> None:
        written = yamltext.located(node, self.path)
        if yamltext.PLACEHOLDER.search(written.text):
            return
        if "$" in written.text and "://" not in written.text:
            message = f"'{shown(written.text)}' has a placeholder that nobody fills in"
            self.complaints.at("template", message, written, "Write the version that is meant.")
            return
        try:
            spec = parse_spec(written.text)
        except BadSpec as error:
            self.complaints.at("spec", f"'{shown(written.text)}' is no package: {error}", written)
            return
        if spec.ignored:
            message = f"conda drops '{spec.ignored}' of {spec.name}"
            self.complaints.at("ignored", message, written, fatal=False)
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
                    message = f"'{shown(key.text)}:' is a mapping, where a package is a word"
                    self.complaints.at("shape", message, key, "Only 'pip:' takes lines of its own.")
                continue
            self.pip_sections.append(key)
            if yamltext.is_null(value):
                continue
            if not isinstance(value, yaml.SequenceNode):
                self.complaints.of_node(
                    "shape", f"'pip' is a {yamltext.kind_of(value)}, expected a list", value
                )
                continue
            for item in value.value:
                if self._is_full(item):
                    return
                self._pip_item(item)

    def _pip_item(self, node: yaml.Node) -> None:
        import yaml

        if not isinstance(node, yaml.ScalarNode) or not yamltext.is_word(node):
            what = (
                f"a {yamltext.kind_of(node)}"
                if not isinstance(node, yaml.ScalarNode)
                else yamltext.type_of(node)
            )
            if not yamltext.PLACEHOLDER.search(self.lines[node.start_mark.line]):
                self.complaints.of_node("shape", f"{what} in the pip section, expected a requirement", node)
            return
        written = yamltext.located(node, self.path)
        if yamltext.PLACEHOLDER.search(written.text):
            return
        selector, platforms = self._selector(node, written)
        try:
            entries = parse_line(written, block=len(self.pip_sections) - 1)
        except BadRequirement as error:
            self.complaints.at("requirement", str(error), written, error.next_step)
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
            said = f"'# [{shown(selector)}]' behind '{shown(written.text)}'"
            message = f"{said} is no selector: the line would count nowhere"
            advice = f"There are {', '.join(KNOWN)}; a comment that is no selector goes above the line."
            self.complaints.at("selector", message, written, advice)
        return selector, platforms or None
