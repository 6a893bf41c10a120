"""Printing; apart from reports, so that `--version` and `--help` wait for no library."""

from __future__ import annotations

import sys


def write(text: str) -> None:
    """Print, also where the locale cannot: what it lacks is escaped.

    Raises:
        BrokenPipeError: its reader has left.
        NeededError: it cannot be written, such as a file on a full disk.
    """
    encoding = sys.stdout.encoding or "ascii"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        from envaudit.store.files import write_failure

        raise write_failure("standard output", error) from error
