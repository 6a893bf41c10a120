"""A process that writes the same reports over and over, in turn of two runs, until it is killed."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from envaudit.cli import output
from tests.report.ci_cases import CI_CASES


def main(folder: str) -> None:
    """Say `ready` once each report is there."""
    formats = [name for name in output.FORMATS if name != "text"]
    options = argparse.Namespace(
        format="plain", report=[f"{name}={folder}/report.{name}" for name in formats], output=None
    )
    output.write = lambda text: None
    reports = [
        replace(CI_CASES["node_missing_and_outlier"], started_at=f"2026-11-30T10:00:0{second}Z", host=host)
        for second, host in enumerate(("first", "second"))
    ]
    while True:
        for report in reports:
            output.emit(report, options)
        sys.stdout.write("ready\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
