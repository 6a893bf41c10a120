"""Every error a user may meet: what happened, where, why, and the next step.

The exit code stands on the class, so that the table in the README is generated from here and no
command invents one of its own.
"""

from __future__ import annotations

from typing import Dict, Tuple, Type

EXIT_PASS = 0
EXIT_FINDINGS = 1
EXIT_INCOMPLETE = 3


class EnvauditError(Exception):
    """An error with advice.

    Args:
        what: one clause, what could not be done.
        where: the file with its key path, the node, or the option.
        why: the cause as far as it is known.
        next_step: what the reader can do about it, a whole sentence.
    """

    exit_code = 70
    meaning = "internal error: a fault of envaudit itself"

    def __init__(self, what: str, *, where: str = "", why: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.next_step = next_step

    def __str__(self) -> str:
        """`where: what (why). next step`, each part only where it is known."""
        # The name of a file makes no line of its own: a CI runner takes some lines for commands.
        where = self.where.replace("\n", "\\n").replace("\r", "\\r")
        text = f"{where}: {self.what}" if where else self.what
        if self.why:
            text += f" ({self.why})"
        if not text.endswith((".", "?", "!")):
            text += "."
        return f"{text} {self.next_step}" if self.next_step else text


class UsageError(EnvauditError):
    """A wrong option, reference, node set, configuration or policy."""

    exit_code = 2
    meaning = "usage: a wrong option, reference, node set, configuration or policy"


class InputError(EnvauditError):
    """A file or an answer that cannot be read, or is of an unknown schema."""

    exit_code = 4
    meaning = "input unreadable, corrupt, or of an unknown schema"


class NeededError(EnvauditError):
    """A program, a file system or a device that the command needs is absent or failed."""

    exit_code = 5
    meaning = "something needed is absent or failed: a program (ssh), the disk, the store"


class Interrupted(EnvauditError):
    """The user ended the run."""

    exit_code = 130
    meaning = "interrupted"


ERROR_CLASSES: Tuple[Type[EnvauditError], ...] = (
    UsageError,
    InputError,
    NeededError,
    EnvauditError,
    Interrupted,
)


def exit_code_table() -> Dict[int, str]:
    """Exit code to meaning, in ascending order: the table of the README."""
    table = {
        EXIT_PASS: "pass",
        EXIT_FINDINGS: "findings at or above the threshold",
        EXIT_INCOMPLETE: "incomplete: a node did not answer, or required evidence is missing",
    }
    table.update({cls.exit_code: cls.meaning for cls in ERROR_CLASSES})
    return dict(sorted(table.items()))
