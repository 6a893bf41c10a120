"""XML from anywhere as a tree of elements: bounded, no entity expanded, no document type fetched.

xml.etree would expand the entities that a document declares for itself; here such a document is
refused. A document type that only names an outside file, as nvidia-smi's does, is passed over.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional

_LIMIT_CHARACTERS = 8 << 20
_DEPTH_MAX = 16
_ELEMENTS_MAX = 200_000
_TEXT_MAX = 256


class NotReadable(ValueError):
    """The text is not the document it should be; the message says why."""


class Element:
    """An element: its tag, its attributes, its children, and the first 256 characters of its text."""

    __slots__ = ("attributes", "children", "tag", "text")

    def __init__(self, tag: str, attributes: Dict[str, str]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: List[Element] = []
        self.text = ""

    def at(self, path: str) -> Optional[Element]:
        """The first element at a path of tags, `a/b`; None where there is none."""
        found = self
        for tag in path.split("/"):
            for child in found.children:
                if child.tag == tag:
                    found = child
                    break
            else:
                return None
        return found

    def text_at(self, path: str) -> Optional[str]:
        """The text of the first element at a path, without the white space around it."""
        found = self.at(path)
        return None if found is None else found.text.strip()[:_TEXT_MAX]

    def all(self, tag: str) -> Iterator[Element]:
        """The children of one tag."""
        return (child for child in self.children if child.tag == tag)


def parse_xml(text: str) -> Element:
    """The top element of the document in `text`.

    Raises:
        NotReadable: no XML, beyond a limit of size, depth or number, or with entities of its own.
    """
    if len(text) > _LIMIT_CHARACTERS:
        raise NotReadable(f"more than {_LIMIT_CHARACTERS >> 20} MiB")
    import pyexpat  # a library that few nodes need

    parser = pyexpat.ParserCreate("utf-8")
    parser.buffer_text = True
    stack = [Element("", {})]
    count = 0

    def start(tag: str, attributes: Dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _ELEMENTS_MAX or len(stack) > _DEPTH_MAX:
            raise NotReadable(f"more than {_ELEMENTS_MAX} elements, or nested deeper than {_DEPTH_MAX}")
        element = Element(tag, attributes)
        stack[-1].children.append(element)
        stack.append(element)

    def end(_: str) -> None:
        stack.pop()

    def said(data: str) -> None:
        if len(stack[-1].text) <= _TEXT_MAX:
            # White space comes first, up to the next tag; a megabyte of it is not kept.
            stack[-1].text += data[: 2 * _TEXT_MAX]

    def doctype(_name: str, _system: Any, _public: Any, has_internal_subset: int) -> None:
        if has_internal_subset:
            raise NotReadable("its document type declares something of its own")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = said, doctype
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except pyexpat.ExpatError as error:
        raise NotReadable(f"no XML: {error}") from None
    return stack[0].children[0]
