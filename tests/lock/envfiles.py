"""Environment files for tests, and what is said about them."""

from __future__ import annotations

from pathlib import Path

from envaudit.lock.envsection import section_of
from envaudit.lock.sourcefile import SourceFile, read_source
from envaudit.model import Finding, Fingerprint
from envaudit.rules import Evidence, judge

HEAD = "channels: [conda-forge]\ndependencies:\n"


def written(folder: Path, text: str | bytes, name: str = "environment.yml") -> SourceFile:
    """The text in a file, read."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_source(str(path))


def faults_of(source: SourceFile) -> list[tuple[int, int, str]]:
    """Line, column and kind of each fault."""
    return [(fault.line, fault.column, fault.kind) for fault in source.faults]


def judged(source: SourceFile) -> list[Finding]:
    """The findings over one file."""
    fingerprint = Fingerprint("", "import", "2026-11-30T10:00:00Z", "0", {"envfile": section_of([source])})
    return list(judge(Evidence((fingerprint,), comparing=False)))


def places_of(folder: Path, text: str | bytes, rule: str) -> list[str]:
    """`line:column` of each finding of one rule over a text."""
    findings = judged(written(folder, text))
    return [":".join(finding.path.rsplit(":", 2)[1:]) for finding in findings if finding.rule == rule]
