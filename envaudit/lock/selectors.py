"""Comment selectors, `- cudatoolkit  # [linux]`: lines that count on some platforms only.

conda reads them as the comments they are; conda-lock takes a line that has one only where the
selector names the platform, letter by letter. The table is that of conda-lock 4.0.
"""

from __future__ import annotations

import re

# Platform to the selectors that hold there.
_SELECTORS = {
    "linux-64": ("linux64", "unix", "linux"),
    "linux-aarch64": ("aarch64", "unix", "linux"),
    "linux-ppc64le": ("ppc64le", "unix", "linux"),
    "osx-64": ("osx64", "osx", "unix"),
    "osx-arm64": ("arm64", "osx", "unix"),
    "win-64": ("win", "win64"),
}

# Further platforms that channels have, for which there is no selector.
PLATFORMS = (*_SELECTORS, "linux-32", "linux-armv6l", "linux-armv7l", "linux-riscv64", "linux-s390x",
             "win-32", "win-arm64", "zos-z", "freebsd-64", "emscripten-wasm32", "wasi-wasm32")  # fmt: skip

KNOWN = tuple(sorted({name for names in _SELECTORS.values() for name in names}))

_BRACKET = re.compile(r"\[([^\[\]]+)\]")


def selector_in(comment: str) -> str | None:
    """The selector in the rest of a line behind an entry; None where there is none.

    As conda-lock finds it: in the last brackets of the comment, unless parentheses follow.
    """
    comment = comment[comment.find("#") :] if "#" in comment else ""
    found = list(_BRACKET.finditer(comment))
    if not found or found[-1].end() <= max(comment.rfind("("), comment.rfind(")")):
        return None
    return found[-1][1]


def platforms_of(selector: str) -> tuple[str, ...]:
    """The platforms that a selector means; none for one that conda-lock does not know."""
    return tuple(platform for platform, names in _SELECTORS.items() if selector in names)
