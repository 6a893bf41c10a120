"""Kinds of reports that other rooms read: a conda-lock.yml, and what nvidia-smi prints.

The lock room needs its locks whole, to install them. The probe asks nvidia-smi where NVML is not to
be had. Here their readers answer as a module of `envaudit.sources.kinds` does.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from envaudit._version import __version__
from envaudit.errors import InputError
from envaudit.lock.expected import expected_fingerprint
from envaudit.lock.lockfile import parse_lock
from envaudit.model import Fact, Section
from envaudit.model.codec import SECTION_SCHEMAS
from envaudit.probe.folding import fold
from envaudit.probe.nvidia_smi_xml import read_report
from envaudit.probe.sections.gpu import as_driver
from envaudit.probe.xml_elements import NotReadable
from envaudit.sources import Setting


class CondaLock:
    """A conda-lock.yml."""

    KIND = "conda-lock.yml"
    IS_LOCK = True

    def __init__(self, categories: Collection[str] | None = None) -> None:
        """Of which categories packages are asked for; None where nobody asks: those of `main` are read."""
        self.categories = categories

    def matches(self, text: str) -> bool:
        """Whether it has the keys of a lock, one of which may be missing by mistake."""
        if text.lstrip().startswith("{"):  # JSON is YAML too
            return all(re.search(rf'"{key}"\s*:', text) for key in ("version", "metadata", "package"))
        keys = [
            re.search(rf"^{key}[ \t]*:", text, re.MULTILINE) for key in ("version", "metadata", "package")
        ]
        return sum(map(bool, keys)) >= 2 and not re.search(r"^environments[ \t]*:", text, re.MULTILINE)

    def read(self, text: str, where: str, setting: Setting) -> list[Section]:
        """Sections `conda`, `packages` and `lock`.

        Raises:
            InputError: it is damaged. UsageError: it has no such category, or nothing of it.
        """
        lock = parse_lock(text.encode("utf-8", "replace"), where)
        if self.categories is not None:
            lock.check_has(setting.platform, self.categories)
        expected = expected_fingerprint(
            lock,
            setting.platform,
            "",
            channel_name=setting.channel_name,
            tool=__version__,
            captured_at="",
            categories=("main",) if self.categories is None else self.categories,
        )
        conda, packages = expected.sections["conda"], expected.sections["packages"]
        return [
            replace(conda, status="partial", whole=("packages",)),
            # A distribution that comes in a conda package is not among them.
            replace(packages, status="partial"),
            expected.sections["lock"],
        ]


class NvidiaSmi:
    """`nvidia-smi -q -x`: driver and cards; what the kernel and the environment say is unknown."""

    KIND = "nvidia-smi -q -x"
    IS_LOCK = False

    def matches(self, text: str) -> bool:
        """Whether it is XML of that name."""
        start = text.lstrip()
        return start.startswith("<") and re.search(r"<nvidia_smi_log\b", start[:4096]) is not None

    def read(self, text: str, where: str, setting: Setting) -> list[Section]:
        """A section `gpu`.

        Raises:
            InputError: no XML, another document, or beyond a limit.
        """
        try:
            report = read_report(text)
        except NotReadable as error:
            raise InputError(f"not readable as {self.KIND}", where=where, why=str(error)) from None
        driver = report.values.get("driver")
        cards = {row["ordinal"]: dict(row["facts"]) for row in report.devices}
        for card in cards.values():
            if "gsp_firmware" in card:
                card["gsp_firmware"] = as_driver(card["gsp_firmware"], driver)
        each, devices = fold(cards)
        facts = {**report.values, "each": each, "devices": devices}
        errors = [error for row in report.devices for error in row["errors"]]
        if report.values["count"] != len(report.devices):
            errors.append(f"it describes {len(report.devices)} of {report.values['count']} GPUs")
        notes: dict[str, Fact] = {
            "source": "nvidia-smi",
            "devices": {str(row["ordinal"]): row["notes"] for row in report.devices},
        }
        return [Section("gpu", SECTION_SCHEMAS["gpu"], "partial", facts, notes, tuple(errors[:20]))]
