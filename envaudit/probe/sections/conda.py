"""The conda environment of the interpreter, from its conda-meta folder; conda itself is not run."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, List, Optional, Tuple

from envaudit.probe.channels import canonical_channel
from envaudit.probe.context import Answer, Context
from envaudit.probe.secrets import clean, clean_url

SCHEMA = 1
# On a network file system that has not seen them, hundreds of small files take seconds.
DEADLINE_S = 15.0

# A record of this size is parsed whole: cutting would cost more than it saves.
_SMALL_BYTES = 8 * 1024
_MAX_RECORD_BYTES = 64 << 20
_HISTORY_LINES = 40
# Of one text of a record; the longest seen is a url. A longer one would cost the whole section.
_MAX_RECORD_TEXT = 4096
_KEPT = ("name", "version", "build", "build_string", "channel", "md5", "sha256", "url")
_CONDA_RECORD = re.compile(r"conda-(?P<version>[0-9][^-]*)-[^-]+\.json\Z")


def read(context: Context) -> Answer:
    """Name and prefix of the environment, every package, the pinned file.

    A package is {version, build, channel, md5, sha256}; the channel is canonical (see
    `envaudit.probe.channels`), what a record does not state is null. A virtual environment on top of
    a conda interpreter belongs to that conda environment.
    """
    told = context.interpreter
    for key in ("prefix", "base_prefix"):
        prefix = str(told.get(key) or "")
        meta = os.path.join(prefix, "conda-meta")
        try:
            names = context.list_dir(meta) if prefix else []
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return Answer("error", {}, {}, (f"{meta}: {error.strerror}",))
        if names:
            return _environment(context, prefix, meta, names)
    return Answer("absent", {})


def _environment(context: Context, prefix: str, meta: str, names: List[str]) -> Answer:
    errors: List[str] = []
    packages: Dict[str, Any] = {}
    twice: Dict[str, List[Any]] = {}  # an interrupted update leaves two records of one package
    channels: Dict[str, Optional[str]] = {}
    # Where each was fetched: what rebuilds the environment, and no fact, since mirrors differ.
    urls: Dict[str, str] = {}
    for name in names:
        if not name.endswith(".json"):
            continue
        path = os.path.join(meta, name)
        try:
            record = _record(context.read_bytes(path, _MAX_RECORD_BYTES))
            package = _package(record, channels)
            if record["name"] in packages:
                twice.setdefault(record["name"], [packages[record["name"]]]).append(package)
            packages[record["name"]] = package
            if isinstance(record.get("url"), str):
                urls[record["name"]] = clean_url(record["url"])
        except OSError as error:
            errors.append(f"{path}: {error.strerror}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            errors.append(f"{path}: not a record of a package ({type(error).__name__})")
    facts: Dict[str, Any] = {
        "name": "base" if context.is_dir(os.path.join(prefix, "condabin")) else os.path.basename(prefix),
        "prefix": prefix,
        "packages": packages,
        "pinned": None,
    }
    if twice:
        facts["duplicates"] = twice
    notes: Dict[str, Any] = {"conda": _conda(context, prefix), "urls": urls}
    try:
        facts["pinned"] = _lines(context, os.path.join(meta, "pinned"))
        history = _lines(context, os.path.join(meta, "history"))
    except OSError as error:
        errors.append(f"{error.filename}: {error.strerror}")
    else:
        notes.update(_history(history or []))
    return Answer("partial" if errors else "ok", facts, notes, errors)


def _record(text: bytes) -> Any:
    """A record of conda-meta without its lists of files, which are nearly all of its bytes.

    `files` and `paths_data.paths` are cut out where the text is laid out as conda, mamba and rattler write
    it, and what remains is parsed; a text that then is no record is parsed whole.

    Raises:
        ValueError: not JSON.
    """
    if len(text) > _SMALL_BYTES:
        try:
            record = json.loads(_cut(text))
            if isinstance(record, dict) and "name" in record and "version" in record:
                return record
        except ValueError:
            pass
    return json.loads(text)


def _cut(text: bytes) -> bytes:
    # The indent of the outermost keys follows `{` and a newline. Only those keys and their closing
    # brackets stand at that indent, since a text in JSON holds no newline.
    quote = text.find(b'"', 0, 64)
    margin = text[1:quote]
    indent = margin[1:]
    if text[:1] != b"{" or margin[:1] != b"\n" or not indent or indent.strip(b" "):
        return text
    place = 0
    for opening, closing in (
        (margin + b'"files": [\n', margin + b"]"),
        (margin + indent + b'"paths": [\n', margin + indent + b"]"),
    ):
        begin = text.find(opening, place)
        if begin < 0:
            continue
        inside = begin + len(opening)
        # One byte is found ten times as fast as a bracket with its indent, and few paths hold it.
        place = text.find(b"]", inside)
        while place >= 0 and not text.endswith(closing, inside - 1, place + 1):
            place = text.find(b"]", place + 1)
        if place < 0:
            return text
        text = text[:inside] + text[place:]
        place = inside
    return text


def _package(record: Dict[str, Any], channels: Dict[str, Optional[str]]) -> Dict[str, Optional[str]]:
    address = record.get("channel") or record.get("schannel") or ""
    if isinstance(address, dict):
        address = address.get("canonical_name") or address.get("name") or ""
    if address in ("", "<unknown>") or not isinstance(address, str):
        address = str(record.get("url") or "").rpartition("/")[0]
    if address not in channels:
        channels[address] = canonical_channel(address) or None
    if not isinstance(record["version"], str) or not isinstance(record["name"], str):
        raise TypeError("name and version are texts")
    if any(isinstance(record.get(key), str) and len(record[key]) > _MAX_RECORD_TEXT for key in _KEPT):
        raise ValueError("a text too long")
    return {
        "version": record["version"],
        "build": _text(record, "build", "build_string"),
        "channel": channels[address],
        "md5": _text(record, "md5"),
        "sha256": _text(record, "sha256"),
    }


def _text(record: Dict[str, Any], *keys: str) -> Optional[str]:
    for key in keys:
        if isinstance(record.get(key), str) and record[key]:
            return str(record[key])
    return None


def _lines(context: Context, path: str) -> Optional[List[str]]:
    """The lines of a small file that say something, without secrets; None when it is not there."""
    try:
        text = context.read_text(path, 8 << 20)
    except FileNotFoundError:
        return None
    return [clean(line) for line in text.splitlines() if line.strip()]


def _history(lines: List[str]) -> Dict[str, Any]:
    """What was asked for, in the order of the requests, and the last commands."""
    asked = [line.partition("specs:")[2].strip() for line in lines if _is_request(line)]
    commands = [line for line in lines if line.startswith(("==>", "# cmd:"))]
    return {"requested": asked[-_HISTORY_LINES:], "history": commands[-_HISTORY_LINES:]}


def _is_request(line: str) -> bool:
    return line.startswith(("# update specs:", "# install specs:", "# remove specs:", "# neutered specs:"))


def _conda(context: Context, prefix: str) -> Dict[str, Optional[str]]:
    """The executable of conda and its version, as the records of its own environment name it."""
    executable = context.environ.get("CONDA_EXE") or None
    bases = [os.path.dirname(os.path.dirname(executable))] if executable else []
    above = os.path.dirname(prefix)
    bases += [os.path.dirname(above)] if os.path.basename(above) == "envs" else [prefix]
    version: Optional[Tuple[str, ...]] = None
    for base in bases:
        try:
            names = context.list_dir(os.path.join(base, "conda-meta"))
        except OSError:
            continue
        version = tuple(m["version"] for m in map(_CONDA_RECORD.match, names) if m) or version
    return {"executable": executable, "version": version[0] if version else None}
