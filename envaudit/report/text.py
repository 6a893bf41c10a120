"""Text for a terminal: the lines of `plain`, coloured by rich."""

from __future__ import annotations

import io
import shutil
from typing import Optional

from rich.console import Console
from rich.text import Text

from envaudit.report import Report
from envaudit.report.layout import layout

_COLOURS = {
    "": "",
    "error": "bold red",
    "incomplete": "bold magenta",
    "warning": "yellow",
    "info": "cyan",
    "good": "bold green",
    "head": "bold",
    "dim": "dim",
}


def render(report: Report, width: Optional[int] = None, color: bool = True) -> str:
    """The report as lines with ANSI colours.

    Nodes' texts reach rich as `Text`, never as markup, and are printable already.

    Args:
        report: what to say.
        width: columns; None for those of the terminal. Lines are not broken: a terminal wraps
            them, and what is copied from it stays whole.
        color: without it the text is that of `plain`.
    """
    console = Console(
        file=io.StringIO(),
        width=width or shutil.get_terminal_size().columns,
        force_terminal=color,
        color_system="standard" if color else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        for spans in layout(report):
            text = Text(end="\n")
            for span in spans:
                text.append(span.text, style=_COLOURS[span.style])
            text.rstrip()
            console.print(text, soft_wrap=True)
    return capture.get()
