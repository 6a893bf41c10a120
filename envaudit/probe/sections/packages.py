"""Every Python distribution that the interpreter would find, in the order in which it looks."""

from __future__ import annotations

import binascii
import hashlib
import json
import os
import re
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from envaudit.probe.checkout import find_checkout, head_of
from envaudit.probe.context import Answer, Context
from envaudit.probe.distributions import Distribution, find_in
from envaudit.probe.hostname import host_names
from envaudit.probe.placeholders import Placeholders
from envaudit.probe.secrets import clean_url

SCHEMA = 1
# On a network file system that has not seen them, hundreds of small files take seconds.
DEADLINE_S = 15.0

_RECORD_LIMIT_BYTES = 32 << 20
# More of a .pth file than anybody writes.
_PTH_BYTES = 1 << 20


def read(context: Context) -> Answer:
    """Facts `distributions` (normalised name → what is installed) and `duplicates` (name → versions).

    `pth`, where there are any, are the .pth files of the site folders with lines that Python runs at
    every start: name → digest of these lines. What a distribution's RECORD has as it is, that of
    setuptools or of coverage, comes and goes with the distribution, and is compared as that.

    A distribution is {version, installer} and, where it applies,

    - `direct_url`: what a URL install came from: `url`, `commit`, `revision`, `hash`; a local file or
      folder is told by `"local"` alone, since its path is that of a build;
    - `editable`: true, with `commit` of its checkout when there is one;
    - `folder`: the sys.path entry, when that is neither in the prefix nor in the base prefix;
    - `user_site`: true in the user's own site folder.

    The note `twice_in_folder` has the names, with their versions, that one folder has two records of,
    as an install leaves them that broke off; most duplicates only hide each other on sys.path.
    """
    told = context.interpreter
    errors: List[str] = []
    put = Placeholders(context.environ, host_names(context)).put
    found: List[Distribution] = []
    starting: Dict[str, Dict[bytes, Tuple[str, str]]] = {}
    for folder, names in _listed(context, told.get("path", []), errors):
        found.extend(find_in(context, folder, names, errors))
        if _runs_pth(folder, told):
            starting[folder] = _pth_files(context, folder, names)
    distributions: Dict[str, Any] = {}
    duplicates: Dict[str, List[Optional[str]]] = {}
    records: Dict[str, str] = {}
    projects: Dict[str, str] = {}
    first_in: Dict[Tuple[str, str], Optional[str]] = {}
    twice: Dict[str, List[Optional[str]]] = {}
    for one in found:
        if (one.name, one.folder) in first_in and not _is_own_project(one, projects.get(one.name)):
            twice.setdefault(one.name, [first_in[one.name, one.folder]]).append(one.version)
        first_in.setdefault((one.name, one.folder), one.version)
        if one.name in distributions:
            # An editable project's own .egg-info is seen again where a .pth file puts its folder.
            if not _is_own_project(one, projects.get(one.name)):
                first = distributions[one.name]["version"]
                duplicates.setdefault(one.name, [first]).append(one.version)
            continue
        row, project = _facts(context, one, told, errors)
        if "folder" in row:
            row["folder"] = put(row["folder"])
        distributions[one.name] = row
        if project is not None:
            projects[one.name] = project
        record = _record(context, one)
        if record is not None:
            records[one.name] = hashlib.sha256(record).hexdigest()
            here = starting.get(one.folder, {})
            for line in [line for line in here if line in record or record.startswith(line[1:])]:
                del here[line]
    notes: Dict[str, Any] = {"record_sha256": records, "projects": projects}
    if twice:
        notes["twice_in_folder"] = twice
    facts: Dict[str, Any] = {"distributions": distributions, "duplicates": duplicates}
    pth = _pth_digests((each for files in starting.values() for each in files.values()), told, put)
    if pth:
        facts["pth"] = pth
    return Answer("partial" if errors else "ok", facts, notes, errors)


def _listed(context: Context, path: List[str], errors: List[str]) -> Iterator[Tuple[str, List[str]]]:
    """Each folder once, with the names in it."""
    for folder in dict.fromkeys(path):
        try:
            yield folder, context.list_dir(folder)
        except FileNotFoundError:
            continue  # python311.zip stands on every sys.path and is hardly ever there
        except NotADirectoryError:
            yield folder, _archived(context, folder)
        except OSError as error:
            errors.append(f"{folder}: {error.strerror}")


def _archived(context: Context, path: str) -> List[str]:
    """The outermost names in a zip archive, which Python imports from; none where it is no archive."""
    import zipfile  # archives are rare

    try:
        context.read_head(path, 1)  # a regular file: to open a pipe may block
        with zipfile.ZipFile(context.real(path)) as archive:
            return sorted({name.partition("/")[0] for name in archive.namelist()})
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
        return []


def _runs_pth(folder: str, told: Mapping[str, Any]) -> bool:
    """Whether Python looks for .pth files there: it does in site folders, not in those of PYTHONPATH."""
    in_user_site = bool(told.get("user_site_enabled")) and folder == told.get("user_site")
    return in_user_site or folder in told.get("site_packages", ())


def _pth_files(context: Context, folder: str, names: List[str]) -> Dict[bytes, Tuple[str, str]]:
    """The .pth files with lines that site.py executes: the line that a RECORD has of it → name, code.

    Their other lines name folders, which stand on sys.path.
    """
    found = {}
    for name in names:
        if not name.endswith(".pth"):
            continue
        try:
            text = context.read_head(os.path.join(folder, name), _PTH_BYTES)
        except OSError:
            continue  # Python goes on without it as well
        code = b"\n".join(line for line in text.splitlines() if line.startswith((b"import ", b"import\t")))
        if code:
            digest = binascii.b2a_base64(hashlib.sha256(text).digest(), newline=False).rstrip(b"=")
            digest = digest.replace(b"+", b"-").replace(b"/", b"_")
            recorded = b"\n%s,sha256=%s," % (os.fsencode(name), digest)
            found[recorded] = name, code.decode("utf-8", "surrogateescape")
    return found


def _pth_digests(
    code: Iterable[Tuple[str, str]], told: Mapping[str, Any], put: Callable[[str], str]
) -> Dict[str, str]:
    """Name → digest of the code, without what differs from prefix to prefix and from user to user."""
    prefix = str(told.get("prefix") or "").rstrip("/")
    texts: Dict[str, str] = {}
    for name, text in code:
        if prefix:
            text = re.sub(rf"(?<![\w.-]){re.escape(prefix)}(?![\w.-])", "$PREFIX", text)
        texts[name] = texts.get(name, "") + put(text)
    return {
        name: hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        for name, text in texts.items()
    }


def _is_own_project(one: Distribution, project: Optional[str]) -> bool:
    return project is not None and (one.folder == project or one.folder.startswith(project + "/"))


def _facts(
    context: Context, one: Distribution, told: Mapping[str, Any], errors: List[str]
) -> Tuple[Dict[str, Any], Optional[str]]:
    """What is compared of a distribution, and the project folder of an editable one."""
    facts: Dict[str, Any] = {"version": one.version, "installer": None}
    project = one.project
    if one.metadata.endswith(".dist-info"):
        installer = _optional_text(context, os.path.join(one.metadata, "INSTALLER"), errors)
        facts["installer"] = installer.strip().lower()[:64] or None if installer else None
        # A conda build keeps the direct_url.json of the machine it was built on: no fact of this one.
        if facts["installer"] != "conda":
            origin = _optional_text(context, os.path.join(one.metadata, "direct_url.json"), errors)
            if origin is not None:
                project = _put_origin(facts, origin, one, errors)
    if project is not None:
        facts["editable"] = True
        commit = _commit(context, project)
        if commit is not None:
            facts["commit"] = commit
    if told.get("user_site") and one.folder == told["user_site"]:
        facts["user_site"] = True
    elif not _is_inside(one.folder, told):
        facts["folder"] = one.folder
    return facts, project


def _put_origin(facts: Dict[str, Any], text: str, one: Distribution, errors: List[str]) -> Optional[str]:
    """Add `direct_url` as PEP 610 has it; returns the project folder of an editable install."""
    try:
        origin = json.loads(text)
        url = origin["url"]
        archive, vcs = origin.get("archive_info") or {}, origin.get("vcs_info") or {}
        editable = bool((origin.get("dir_info") or {}).get("editable"))
        hashes = [f"{kind}={digest}" for kind, digest in sorted((archive.get("hashes") or {}).items())]
        found = {
            "url": "local" if url.startswith("file:") else clean_url(url),
            "commit": vcs.get("commit_id"),
            "revision": vcs.get("requested_revision"),
            "hash": hashes[0] if hashes else archive.get("hash"),
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        errors.append(f"{one.metadata}/direct_url.json: not as PEP 610 has it ({type(error).__name__})")
        return None
    if editable:
        return _folder_of(url)
    facts["direct_url"] = {key: value for key, value in found.items() if isinstance(value, str)}
    return None


def _folder_of(url: str) -> str:
    from urllib.parse import unquote  # costs 3 ms, and only editable installs need it

    return unquote(url.partition("://")[2]).rstrip("/") or "/"


def _commit(context: Context, project: str) -> Optional[str]:
    top = find_checkout(context, project)
    if top is None:
        return None
    try:
        return head_of(context, top)[0]
    except OSError:
        return None


def _is_inside(folder: str, told: Mapping[str, Any]) -> bool:
    prefixes = {str(told.get(key) or "") for key in ("prefix", "base_prefix", "exec_prefix")} - {""}
    return any(f"{folder}/".startswith(prefix.rstrip("/") + "/") for prefix in prefixes)


def _optional_text(context: Context, path: str, errors: List[str]) -> Optional[str]:
    try:
        return context.read_text(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        errors.append(f"{path}: {error.strerror}")
        return None


def _record(context: Context, one: Distribution) -> Optional[bytes]:
    try:
        return context.read_bytes(os.path.join(one.metadata, "RECORD"), _RECORD_LIMIT_BYTES)
    except OSError:
        return None  # egg-info and conda builds have none
