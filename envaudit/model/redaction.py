"""A snapshot that may be shown to anybody: who, where and which machine are pseudonyms.

Versions, package names, settings and numbers stay. The same identity has the same pseudonym
everywhere in one snapshot, so that two alike nodes stay alike and a drift stays a drift. Pseudonyms
are numbered anew for every snapshot: two redacted files cannot be joined, and cannot be compared.

What people name as they like (folders, conda environments, branches) counts as an identity. Of a
section that this version does not know only numbers, versions and its own keys are kept.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from envaudit.model.codec import SECTION_SCHEMAS
from envaudit.model.fingerprint import Fingerprint, Missing, Snapshot
from envaudit.model.identities import (
    COMMON,
    Pseudonyms,
    Scrubber,
    is_address,
    is_nothing,
    may_be_token,
)
from envaudit.model.nodeset import natural_key
from envaudit.model.section import Section

# The kind of identity that a value is by its key, `sys_image_guid` or `SLURM_JOB_ID`.
_KINDS = (
    ("host", r"(.*_)?(host_?name|hostid|fqdn|node_?name|nodelist|master_addr)|host"),
    ("user", r"(.*_)?(user_?(name)?s?|login|logname|owner|account)"),
    ("job", r"(.*_)?job_?(id|name|uid)?|.*_(cluster_name|partition|reservation|submit_host|topology_addr)"),
    ("id", r"(.*_)?(uuids?|serials?|serial_numbers?|guids?|gids?|comm_id|cluster_id|clique_id|ident)"),
    ("id", r"(machine|boot|asset|board|chassis|product|system|session|module|unique)_?(id|tag|serial|uuid)"),
    ("mac", r"(.*_)?(macs?|hwaddr|mac_address)"),
    (
        "addr",
        r"(.*_)?(ips?|addr|address(es)?|gateways?|dns|peers?|subnets?|broadcast|sources?|refid|servers?)",
    ),
    ("branch", r"branch|revision"),
    ("remote", r"remotes?|origin_url"),
    ("dir", r"changed_files|conda_default_env|conda_prompt_modifier|label"),
)
_KIND_OF = tuple((kind, re.compile(rf"(?:{pattern})\Z")) for kind, pattern in _KINDS)
_VERSION_KEY = re.compile(
    r"(?:.*_)?(?:version|driver|firmware|vbios|inforom|release|build|pinned|requested|revision)\Z"
)
_COMMIT = re.compile(r"[0-9a-f]{7,64}\Z")
_VERSION = re.compile(r"v?\d+(?:\.\d+){1,5}(?:[-+._]?[a-z]{1,8}\d{0,4})?\Z", re.IGNORECASE)
# Below these keys a long hexadecimal number is the digest of something public, or a commit.
_DIGEST_KEYS = frozenset(
    (
        *("build", "commit", "digest", "environment_files", "files", "git_version", "hash", "lock"),
        *("locks", "md5", "record_sha256", "revision", "sha256"),
    )
)
# Where keys are names of packages, which stay as they are: section and first key.
_PACKAGE_TABLES = frozenset(
    [
        ("conda", "packages"),
        ("conda", "duplicates"),
        ("conda", "urls"),
        ("integrity", "changed"),
        ("integrity", "missing"),
        ("integrity", "extra"),
        ("integrity", "counts"),
        ("packages", "distributions"),
        ("packages", "duplicates"),
        ("packages", "projects"),
        ("packages", "record_sha256"),
        ("packages", "twice_in_folder"),
    ]
)
# Texts whose whole is a person's own: section, then its key.
_OWN_WORDS = {
    ("conda", "name"): "dir",
    ("git", "changed"): "dir",
    ("host", "kernel_arguments", "notes"): "text",
    ("conda", "history"): "text",
}
# What a mount is told beside its facts: numbers and folders, else the names of servers' clients and shares.
_PLAIN_OPTION = re.compile(r"[\d.]+[a-zA-Z%]?\Z|/|(?:on|off|yes|no)\Z")
# What ran before a snapshot was taken (see `cli.launched`): its command is in its owner's own words.
_RUN = ("host", "run")
# Tables whose keys are files, named from anywhere.
_FILE_TABLES = frozenset([("git", "files"), ("packages", "pth"), (*_RUN, "files"), (*_RUN, "policy")])
# Where a text came from, and that is a word of this program.
_OWN_SOURCES = frozenset([("gpu", "source"), ("gpu", "compute_capability_source")])
# Variables that hold files and folders, which may be written without a slash.
_PLACES = re.compile(r".*(?:PATH|DIR|FILE|HOME|PREFIX|PRELOAD|STARTUP)\Z")
# A path as the whole of a text; with a space in it, it would end there in any other text.
_WHOLE_PATH = re.compile(r"/(?:[^\s:;,'\"()<>|=]| (?!/))+\Z")
# Processes of these names are everywhere; another is called as its owner likes.
_PROCESS = re.compile(r"(?:python[\d.]*|pt_main_thread|ray|torchrun|Xorg|nvidia-\w+|nv-\w+|dcgm\w*)\Z")
_PLAIN_KEY = re.compile(r"[a-z][a-z_]{0,40}\Z")
_PCI_ADDRESS = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\Z")
# No user begins with a dot: a home folder may be /home itself, with /home/.cache in it.
_LOGIN = re.compile(r"(?<![\w.+-])([\w.+-]{1,64})@([\w.-]{1,253})")
_HOME = re.compile(r"/(?:home|Users)/([^./\s:;,'\"][^/\s:;,'\"]*)")


def redact(snapshot: Snapshot) -> Snapshot:
    """The snapshot without identities; every node is called `node-1`, `node-2` and so on."""
    names = sorted([*(each.node for each in snapshot.fingerprints), *snapshot.missing], key=natural_key)
    width = len(str(len(names)))
    nodes = {name: f"node-{index:0{width}}" for index, name in enumerate(names, 1)}
    redaction = _Redaction(nodes, snapshot)
    return Snapshot(
        tuple(redaction.fingerprint(each) for each in snapshot.fingerprints),
        {nodes[name]: redaction.missing(gone) for name, gone in snapshot.missing.items()},
    )


class _Redaction:
    """One snapshot's pseudonyms, and the values they are put into."""

    def __init__(self, nodes: Dict[str, str], snapshot: Snapshot) -> None:
        self._nodes = nodes
        self._pseudonyms = Pseudonyms()
        self._tokens: Dict[str, str] = {}
        self._done: Dict[str, Section] = {}
        self._hosts = {name.partition(".")[0].lower() for name in nodes}
        self._collect(snapshot)
        self._scrubber = Scrubber(self._tokens, self._pseudonyms, stems=_stems(self._tokens))

    def fingerprint(self, fingerprint: Fingerprint) -> Fingerprint:
        """One node's sections under its pseudonym."""
        sections = {name: self._section(each) for name, each in fingerprint.sections.items()}
        tool = self._scrubber.text(fingerprint.tool)
        return replace(fingerprint, node=self._nodes[fingerprint.node], tool=tool, sections=sections)

    def missing(self, gone: Missing) -> Missing:
        """Why a node is missing, in words that name nobody."""
        return Missing(gone.kind, self._scrubber.text(gone.why), self._scrubber.text(gone.next_step))

    # What is known to be an identity, before any text is looked at.

    def _collect(self, snapshot: Snapshot) -> None:
        for name, pseudonym in self._nodes.items():
            self._learn(name, pseudonym)
        for name in self._nodes:
            self._learn_parts(name)
        for fingerprint in snapshot.fingerprints:
            host = fingerprint.sections.get("host")
            own = host.notes.get("hostname") if host is not None else None
            if isinstance(own, str):
                self._learn_host(own, fingerprint.node)
        seen: Set[str] = set()
        for fingerprint in snapshot.fingerprints:
            for section in fingerprint.sections.values():
                facts = {} if section.digest in seen else section.facts
                seen.add(section.digest)
                for key, text in _leaves(facts, section.notes, list(section.errors)):
                    self._learn_leaf(key, text)
        for gone in snapshot.missing.values():
            self._learn_leaf("", gone.why)
            self._learn_leaf("", gone.next_step)

    def _learn(self, name: str, pseudonym: str) -> None:
        if may_be_token(name):
            self._tokens.setdefault(name, pseudonym)

    def _learn_parts(self, name: str) -> None:
        """Of `gpu01.cluster.example` the host and the domain, which occur without each other."""
        short, _, domain = name.partition(".")
        if domain and not domain.replace(".", "").isdigit():
            self._learn(short, self._nodes[name])
            self._learn(domain, self._pseudonyms.of("domain", domain))

    def _learn_host(self, own: str, node: str = "") -> None:
        """The names of a host, `node` when it is that node."""
        short, _, domain = own.partition(".")
        same = short.lower() == node.partition(".")[0].lower()
        self._learn(short, self._nodes[node] if same else self._pseudonyms.of("host", short))
        if domain:
            self._learn(domain, self._pseudonyms.of("domain", domain))

    def _learn_leaf(self, key: str, text: str) -> None:
        for match in _HOME.finditer(text):
            self._learn(match.group(1), self._pseudonyms.of("user", match.group(1)))
        for match in _LOGIN.finditer(text) if "@" in text else ():
            if match.group(2).partition(".")[0].lower() in self._hosts:
                self._learn(match.group(1), self._pseudonyms.of("user", match.group(1)))
        kind = kind_of(key)
        if kind not in ("host", "user", "job", "id") or not _is_one_word(text) or not may_be_token(text):
            return
        if kind == "host":
            if not is_address(text):
                self._learn_host(text)
        else:
            self._learn(text, self._pseudonyms.of(kind, text))

    # Values.

    def _section(self, section: Section) -> Section:
        name, known = section.name, section.name in SECTION_SCHEMAS
        notes: Dict[str, Any] = {"redacted": "of a section that this version does not know"}
        errors: Tuple[str, ...] = ("redacted",) * len(section.errors)
        if known:
            notes = self._known(name, (), section.notes, notes=True)
            errors = tuple(self._scrubber.text(text) for text in section.errors)
        # A thousand nodes have a few sets of facts, and each notes of its own.
        if section.digest not in self._done:
            facts = self._known(name, (), section.facts) if known else self._unknown((), section.facts)
            self._done[section.digest] = replace(section, facts=facts)
        return self._done[section.digest].with_details(notes, errors)

    def _known(self, section: str, path: Tuple[str, ...], value: Any, *, notes: bool = False) -> Any:
        if isinstance(value, dict):
            named = (section, *path) in _PACKAGE_TABLES
            return {
                key if named else self._key(section, path, key): self._known(
                    section, (*path, key), item, notes=notes
                )
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._known(section, path, item, notes=notes) for item in value]
        own = _OWN_WORDS.get((section, *path[:1])) or (
            _OWN_WORDS.get((section, *path[:1], "notes")) if notes else None
        )
        if notes and (section, *path) == (*_RUN, "command"):
            own = "text"
        kind = own or kind_of(path[-1]) if path else None
        if (section, *path[-1:]) in _OWN_SOURCES:
            kind = None
        if notes and section == "storage" and kind is None and "options" in path[:-1]:
            kind = "text" if not _PLAIN_OPTION.match(str(value)) else None
        if isinstance(value, str):
            if section == "env" and path[-1] != "origin" and any(map(_PLACES.match, path)):
                return self._places(value)
            if section == "gpu" and "processes" in path and path[-1] == "name" and not is_nothing(value):
                return value if _PROCESS.match(value) else self._pseudonyms.of("process", value)
            return self._leaf(kind, path, value, whole=own is not None)
        if isinstance(value, int) and not isinstance(value, bool) and kind == "id" and value:
            return self._pseudonyms.of("id", str(value))
        return value

    def _leaf(self, kind: Optional[str], path: Tuple[str, ...], text: str, *, whole: bool) -> str:
        if is_nothing(text) or _PCI_ADDRESS.match(text):
            return text
        if not whole and _VERSION.match(text) and (_VERSION_KEY.match(path[-1]) or "copies" in path):
            return text
        if whole:
            return self._scrubber.folder(text) if kind == "dir" else self._pseudonyms.of(str(kind), text)
        # A file system comes from an address or from a device.
        if kind in (None, "addr") and "not_examined" not in path and _WHOLE_PATH.match(text):
            return self._scrubber.path(text)
        shown = self._scrubber.text(text, keep_hex=not _DIGEST_KEYS.isdisjoint(path))
        if kind == "host" and text in self._nodes:
            return self._nodes[text]
        if kind == "branch" and _COMMIT.match(text):
            return text
        if kind is None or shown != text or text.lower() in COMMON or _is_loopback(text):
            return shown
        return self._scrubber.folder(text) if kind == "dir" else self._pseudonyms.of(kind, text)

    def _places(self, text: str) -> str:
        """A list of files and folders, some of them perhaps named from where the work runs."""
        if "://" in text or "@" in text:
            return self._scrubber.text(text)
        return ":".join(
            one if is_nothing(one) or one.isdigit() else self._scrubber.path(one) for one in text.split(":")
        )

    def _key(self, section: str, path: Tuple[str, ...], key: str) -> str:
        if (section, *path) in _FILE_TABLES:
            stem, dot, kind = key.rpartition(".")
            return f"{self._pseudonyms.of('dir', stem)}.{kind}" if dot else self._pseudonyms.of("dir", key)
        return self._scrubber.text(key)

    def _unknown(self, path: Tuple[str, ...], value: Any) -> Any:
        if isinstance(value, dict):
            # The outermost keys are the section's own words; further down they may be anybody's.
            return {
                (key if not path and _PLAIN_KEY.match(key) and key not in self._tokens else self._any(key)): (
                    self._unknown((*path, key), item)
                )
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._unknown(path, item) for item in value]
        if isinstance(value, str) and not is_nothing(value):
            return value if _VERSION.match(value) and not is_address(value) else self._any(value)
        return value

    def _any(self, text: str) -> str:
        return self._pseudonyms.of("text", text)


def kind_of(key: str) -> Optional[str]:
    """What kind of identity a key's value is, None where the key does not say."""
    lowered = key.lower()
    return next((kind for kind, form in _KIND_OF if form.match(lowered)), None)


def _leaves(*values: Any) -> Iterator[Tuple[str, str]]:
    """Every text in these values with the key that it stands under."""
    waiting: List[Tuple[str, Any]] = [("", value) for value in values]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, dict):
            for name, item in value.items():
                yield "", name
                waiting.append((name, item))
        elif isinstance(value, list):
            waiting.extend((key, item) for item in value)


def _stems(names: Iterable[str]) -> List[str]:
    """What names of hosts begin with, for `gpu[01-16]` names them too."""
    stems = {re.sub(r"\d+\Z", "", name.partition(".")[0]) for name in names if name[-1:].isdigit()}
    return sorted(stem for stem in stems if stem)


def _is_one_word(text: str) -> bool:
    return re.fullmatch(r"[\w.:-]{3,253}", text) is not None


def _is_loopback(text: str) -> bool:
    return text.startswith("127.") or text in ("::1", "0.0.0.0", "::")  # noqa: S104 (no socket is bound)
