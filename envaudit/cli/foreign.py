"""Files that are no snapshot: foreign reports and locks, a conda-lock.yml among them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Mapping

from envaudit._version import __version__
from envaudit.cli.borrowed import CondaLock, NvidiaSmi
from envaudit.errors import InputError, UsageError
from envaudit.model import Fingerprint, Section
from envaudit.model.locked import PLATFORMS
from envaudit.probe.channels import canonical_channel
from envaudit.probe.secrets import clean_url
from envaudit.sources import Kind, Setting, kinds, recognised, sections_of
from envaudit.sources.decoding import decoded
from envaudit.store.snapshot_file import read_document

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# What an open-ended name of a file ends in.
_ENDINGS = re.compile(r"(?:\.(?:gz|json|ya?ml|toml|txt|xml|lock))+\Z", re.IGNORECASE)


class ForeignFile:
    """One file, read once.

    Attributes:
        path: as the user named it.
        kind: what it was recognised as.
    """

    def __init__(self, path: str, data: bytes, kinds_read: Collection[Kind]) -> None:
        """Recognise what a file's content is.

        Raises:
            InputError: it is of no kind that is known, or of several.
        """
        self.path = path
        self.text = decoded(data, path)
        self.kind = recognised(self.text, path, list(kinds_read))
        self._sections: dict[Setting, Mapping[str, Section]] = {}

    def sections(self, setting: Setting) -> Mapping[str, Section]:
        """What it says for a target; nodes alike are read for once."""
        if setting not in self._sections:
            self._sections[setting] = sections_of(self.kind, self.text, self.path, setting)
        return self._sections[setting]

    def fingerprint(self, node: str, setting: Setting) -> Fingerprint:
        """What it says, under a node's name, for a comparison with nodes.

        Raises:
            InputError: it cannot be read, or is a lock that has nothing for the target's platform.
        """
        # What a lock is for is no fact of a node.
        sections = {name: each for name, each in self.sections(setting).items() if name != "lock"}
        self._check_platform(setting, sections)
        return Fingerprint(node, "import", self._time(), __version__, sections)

    def _check_platform(self, setting: Setting, said: Mapping[str, Section]) -> None:
        """An environment for another machine is not an empty one for this."""
        lock = self.sections(setting).get("lock")
        platforms = lock.facts.get("platforms") if lock is not None else None
        listed = any(each.facts.get("packages") or each.facts.get("distributions") for each in said.values())
        if isinstance(platforms, list) and platforms and setting.platform not in platforms and not listed:
            raise InputError(
                f"has nothing for {setting.platform}",
                where=self.path,
                why=f"it has {', '.join(map(str, platforms))}",
                next_step=f"Read it for one of those: envaudit import --platform {platforms[0]} -o FILE.",
            )

    def expected(self, node: str, setting: Setting) -> Fingerprint:
        """What it asks of a node."""
        return Fingerprint(node, "lock", self._time(), __version__, self.sections(setting))

    def _time(self) -> str:
        """The file's own time: no report says when it was made."""
        try:
            made_s = os.stat(self.path).st_mtime
        except OSError:
            made_s = time.time()
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made_s))


def every_kind(categories: Collection[str] | None = None) -> list[Kind]:
    """All kinds that are read."""
    return [CondaLock(categories), NvidiaSmi(), *kinds().values()]


def read_report(path: str, categories: Collection[str] | None = None) -> ForeignFile:
    """The report that a file holds.

    Raises:
        InputError: it cannot be read, or is of no kind that is known.
    """
    return ForeignFile(path, read_document(path, follow=True), every_kind(categories))


def setting_of(platform: str, python: str | None = None, implementation: str = "cpython") -> Setting:
    """A target, with the probe's words for channels and addresses."""
    return Setting(platform, python, canonical_channel, clean_url, implementation)


def setting_of_node(found: Fingerprint, platform: str, python_known: str | None = None) -> Setting:
    """The target that a node is; its interpreter as far as it was read, or is known otherwise."""
    python = found.sections.get("python")
    facts = python.facts if python is not None else {}
    conda = found.sections.get("conda")
    packages = conda.facts.get("packages") if conda is not None else None
    record = packages.get("python") if isinstance(packages, dict) else None
    version = facts.get("version") or (record.get("version") if isinstance(record, dict) else None)
    implementation = facts.get("implementation")
    return setting_of(
        platform,
        version if isinstance(version, str) else python_known,
        implementation if isinstance(implementation, str) else "cpython",
    )


def python_of_prefix(prefix: str) -> str | None:
    """The version of a virtual environment's interpreter, as pyvenv.cfg has it; it is not started."""
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
            text = file.read(64 * 1024)
    except OSError:
        return None
    match = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)", text, re.MULTILINE)
    return match[1] if match else None


def setting_here() -> Setting:
    """The target where nobody says another: this machine's platform, and any Python."""
    machine = os.uname()
    return setting_of(PLATFORMS.get(machine.machine, "linux-64"))


def node_name(path: str) -> str:
    """A node's name for a file, by its own: `reports/node 07.txt` is `node-07`."""
    stem = _UNSAFE.sub("-", _ENDINGS.sub("", os.path.basename(path))).strip("-.")
    return stem[:128] or "report"


def fingerprint_of_file(path: str, document: bytes) -> Fingerprint:
    """What a file says that is no snapshot.

    Raises:
        InputError: it is of no kind that is known, or cannot be read.
    """
    return ForeignFile(path, document, every_kind()).fingerprint(node_name(path), setting_here())


def read_lock_report(path: str, categories: Collection[str]) -> ForeignFile:
    """A lock of any kind, or a report of an environment to be held to.

    Raises:
        InputError: it cannot be read, or is of no kind that is known.
    """
    try:
        return read_report(path, categories)
    except InputError as error:
        if not os.path.exists(path):
            raise InputError(
                error.what, where=path, why=error.why, next_step="Make one with 'envaudit lock'."
            ) from None
        raise


def check_is_lock(report: ForeignFile) -> None:
    """Refuse what no environment can be held to, before any node is asked.

    Raises:
        UsageError: the report does not say all that must be there.
    """
    if not report.kind.IS_LOCK:
        raise UsageError(
            f"{report.kind.KIND} is no lock: it does not say all that must be there",
            where=report.path,
            next_step="Compare it with 'envaudit diff'.",
        )
