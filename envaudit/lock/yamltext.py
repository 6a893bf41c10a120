"""YAML with positions: text to a tree of nodes, each with its line and column; nothing is built.

Only libyaml's parser runs, no constructor: a tag such as `!!python/object` is a word. Aliases
stay shared nodes, so that a bomb of them costs nothing until somebody expands it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from envaudit.lock.entries import Fault, Located

if TYPE_CHECKING:
    import yaml

# Jinja, cookiecutter, ERB and shell placeholders. `$VARIABLE` alone is conda's own in channels.
PLACEHOLDER = re.compile(r"\{\{|\}\}|\{%|%\}|<%|%>|\$\{\{")
_LINE_END = re.compile("[\n\x85\u2028\u2029]")
# The reader in Python is ten times slower; so much it reads in a moment.
_SLOW_CHARACTERS = 64 * 1024
_NULL = "tag:yaml.org,2002:null"
_TEXT = "tag:yaml.org,2002:str"
_TEMPLATE_ADVICE = "Fill in the template first, then check what comes of it."


def compose(text: str, path: str) -> tuple[yaml.Node | None, list[Fault]]:
    """The document's root and what is wrong with it as YAML; None where there is no document."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if ("\t" in text or "\ufeff" in text) and len(text) <= _SLOW_CHARACTERS:
        # libyaml lets a tab, and a mark of byte order that begins a line, pass where the readers of conda
        # and conda-lock, in Python, end.
        loader = yaml.SafeLoader
    try:
        return yaml.compose(text, Loader=loader), []
    except yaml.MarkedYAMLError as error:
        return None, [_syntax_fault(error, text, path)]
    except yaml.reader.ReaderError as error:
        line = len(lines_of(text[: error.position]))
        message = f"character U+{_number_of(error.character):04X} is not allowed in YAML"
        return None, [Fault("syntax", message, line, 1, path)]
    except RecursionError:
        return None, [Fault("syntax", "nested too deeply", 1, 1, path)]


def lines_of(text: str) -> list[str]:
    """The lines of a text as YAML 1.1 counts them: Unicode's three further line ends are some too."""
    return _LINE_END.split(text)


def located(node: yaml.Node, path: str) -> Located:
    """A node's text and place; the text is empty for what is no scalar."""
    import yaml

    value = node.value if isinstance(node, yaml.ScalarNode) else ""
    return Located(value.strip(), node.start_mark.line + 1, node.start_mark.column + 1, path)


def is_null(node: yaml.Node) -> bool:
    """Whether a node is empty, `~` or `null`."""
    return bool(node.tag == _NULL)


def is_word(node: yaml.ScalarNode) -> bool:
    """Whether YAML takes a scalar for text, as it does not `3.8` and `yes`."""
    return bool(node.tag == _TEXT)


def type_of(node: yaml.ScalarNode) -> str:
    """What YAML takes a scalar for: `a float`, `nothing`."""
    name = str(node.tag).rpartition(":")[2]
    return "nothing" if name == "null" else f"{'an' if name == 'int' else 'a'} {name}"


def kind_of(node: yaml.Node) -> str:
    """What a node is, in a word for a message."""
    import yaml

    if is_null(node):
        return "nothing"
    if isinstance(node, yaml.ScalarNode):
        return "word"
    return "list" if isinstance(node, yaml.SequenceNode) else "mapping"


def pairs(node: yaml.MappingNode) -> Iterator[tuple[Located, yaml.Node]]:
    """The keys of a mapping with their places, and the nodes of their values."""
    for key, value in node.value:
        yield located(key, ""), value


def template_faults(text: str, path: str) -> list[Fault]:
    """Template marks outside of comments, at most one: the first."""
    for number, line in enumerate(lines_of(text), start=1):
        match = PLACEHOLDER.search(re.sub(r"(?:^|\s)#.*$", "", line))
        if match:
            message = f"'{match[0]}' is a template's, the file is not filled in"
            return [Fault("template", message, number, match.start() + 1, path, _TEMPLATE_ADVICE)]
    return []


def _syntax_fault(error: yaml.MarkedYAMLError, text: str, path: str) -> Fault:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = lines_of(text)
    character = lines[line][column : column + 1] if line < len(lines) else ""
    if character == "\t" or "\t" in (lines[line][: column + 1] if line < len(lines) else ""):
        message, advice = "a tab, where YAML takes spaces only", "Indent with spaces."
    elif character == "\ufeff":
        message, advice = "a mark of byte order (U+FEFF, not to be seen) inside the text", "Delete it."
    elif "another document" in (error.problem or ""):
        message, advice = "a second document begins here", "One file is one environment."
    elif path.endswith(".toml"):
        message = "TOML, where an environment file is YAML"
        advice = "Write what it depends on into an environment.yml: that is what is read."
    else:
        problem = f"{error.problem or 'not YAML'}"
        context = f", {error.context}" if error.context else ""
        message, advice = f"not YAML: {problem}{context}", ""
    return Fault("syntax", message, line + 1, column + 1, path, advice)


def _number_of(character: object) -> int:
    return character if isinstance(character, int) else ord(str(character)[:1] or "\0")
