"""What the interpreter of an environment would say of itself, read from files: it is not started.

`envaudit.probe.interpreter` asks a live one; the keys here are the same. What only a start tells,
its flags, the user's site folder and what PYTHONPATH adds, is left out.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Dict, List, Mapping, Optional, Tuple

from envaudit.probe import Refused

_LIBRARY = re.compile(r"(?P<kind>python|pypy)(?P<version>3(?:\.\d+)?)t?\Z")
_CONDA_RECORD = re.compile(r"(?:python|pypy)-(?P<version>3\.\d+\.\d+[\w.]*)-[^-]+\.json\Z")
# PY_VERSION of Include/patchlevel.h, `3.11.8` or `3.14.0rc2`.
_PATCHLEVEL = re.compile(r'^#\s*define\s+PY_VERSION\s+"(\d+\.\d+\.\d+[\w.]*)\+?"', re.MULTILINE)
_FULL_VERSION = re.compile(r"3\.\d+\.\d+[\w.]*\Z")
_SOABI = re.compile(r"\.((?:cpython|pypy)[\w-]+)\.so\Z")
_TEXT_BYTES = 64 * 1024
_PTH_FILES = 1000
_PTH_FOLDERS = 200
# Its interpreter has a site folder of its own, dist-packages, where the distribution is Debian.
_DEBIAN = "/usr"


def check_prefix(asked: str) -> str:
    """The absolute path of an environment's folder; `~/` is home.

    Raises:
        Refused: there is no such folder.
    """
    prefix = os.path.abspath(os.path.expanduser(asked))
    if not os.path.isdir(prefix):
        raise Refused(f"{prefix} is no folder.")
    return prefix


def interpreter_of(prefix: str) -> Dict[str, Any]:
    """The words of the interpreter of a conda environment or a virtual environment."""
    settings = _settings(prefix)
    base = _base_of(prefix, settings)
    kind, library = _library(prefix)
    standard_kind, standard = (kind, library) if base == prefix else _library(base)
    sites = [os.path.join(library, "site-packages")] if library else []
    if base == prefix == _DEBIAN:
        sites = _sites_of_base(base, standard)
    elif base != prefix and _shares_base(settings):
        sites += _sites_of_base(base, standard)
    path = [standard, os.path.join(standard, "lib-dynload")] if standard else []
    for site in sites:
        path += [site, *_named_in_pth(site)]
    return {
        "executable": os.path.join(prefix, "bin", "python"),
        "version": _version(prefix, base, settings, library or standard),
        "implementation": {"python": "cpython", "pypy": "pypy"}.get(kind or standard_kind),
        "prefix": prefix,
        "base_prefix": base,
        "exec_prefix": prefix,
        "soabi": _soabi(standard),
        "platform": "linux",
        "path": list(dict.fromkeys(path)),
        "site_packages": sites,
    }


def _settings(prefix: str) -> Mapping[str, str]:
    """The `key = value` lines of pyvenv.cfg, keys in small letters; none in a conda environment."""
    found: Dict[str, str] = {}
    for line in (_text(os.path.join(prefix, "pyvenv.cfg")) or "").splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found[key.strip().lower()] = value.strip()
    return found


def _base_of(prefix: str, settings: Mapping[str, str]) -> str:
    """The prefix whose standard library is used: `home` is the folder of its interpreter."""
    home = settings.get("home", "")
    return os.path.dirname(os.path.normpath(home)) if home.startswith("/") else prefix


def _library(prefix: str) -> Tuple[str, str]:
    """The kind of interpreter and the folder `lib/python3.X` of a prefix, the newest of several."""
    library = os.path.join(prefix, "lib")
    found = [
        ([int(part) for part in match["version"].split(".")], name, match["kind"])
        for name in _names(library)
        for match in [_LIBRARY.match(name)]
        if match and os.path.isdir(os.path.join(library, name, "site-packages"))
    ] or [
        ([int(part) for part in match["version"].split(".")], name, match["kind"])
        for name in _names(library)
        for match in [_LIBRARY.match(name)]
        if match and os.path.isdir(os.path.join(library, name))
    ]
    if not found:
        return "", ""
    _, name, kind = max(found)
    return kind, os.path.join(library, name)


def _sites_of_base(base: str, standard: str) -> List[str]:
    """The site folders that a virtual environment shares; Debian has its own."""
    sites = [os.path.join(standard, "site-packages")] if standard else []
    if base == _DEBIAN:
        sites.append(f"{_DEBIAN}/lib/python3/dist-packages")
    return [site for site in sites if os.path.isdir(site)]


def _shares_base(settings: Mapping[str, str]) -> bool:
    # As site.py has it: what does not say `false` shares.
    return settings.get("include-system-site-packages", "true").lower() == "true"


def _named_in_pth(site: str) -> List[str]:
    """The folders that the .pth files of a site folder name; lines that import are not for reading."""
    folders: List[str] = []
    names = [name for name in _names(site) if name.endswith(".pth") and not name.startswith(".")]
    for name in names[:_PTH_FILES]:
        for line in (_text(os.path.join(site, name)) or "").splitlines():
            line = line.strip()
            if line and not line.startswith(("#", "import ", "import\t")) and "\0" not in line:
                folder = os.path.normpath(os.path.join(site, line))
                if os.path.isdir(folder) and len(folders) < _PTH_FOLDERS:
                    folders.append(folder)
    return folders


def _version(prefix: str, base: str, settings: Mapping[str, str], library: str) -> Optional[str]:
    """3.11.8 from the header, the record of the conda package or pyvenv.cfg; else 3.11 from the folder."""
    for one in dict.fromkeys((prefix, base)):
        header = os.path.join(one, "include", os.path.basename(library), "patchlevel.h")
        match = _PATCHLEVEL.search(_text(header) or "") if library else None
        if match:
            return match[1]
        for name in _names(os.path.join(one, "conda-meta")):
            record = _CONDA_RECORD.match(name)
            if record:
                return record["version"]
    for key in ("version", "version_info"):
        # virtualenv writes 3.11.8.final.0 as `version_info`.
        told = re.sub(r"\.final\.0\Z", "", settings.get(key, ""))
        if _FULL_VERSION.match(told):
            return told
    match = _LIBRARY.match(os.path.basename(library))
    return match["version"] if match else None


def _soabi(standard: str) -> Optional[str]:
    """`cpython-311-x86_64-linux-gnu`, from the name of an extension module of the standard library."""
    for name in _names(os.path.join(standard, "lib-dynload")) if standard else ():
        match = _SOABI.search(name)
        if match:
            return match[1]
    return None


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except (OSError, ValueError):
        return []


def _text(path: str) -> Optional[str]:
    """The beginning of a file; None for what is none, such as a FIFO that would wait for a writer."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return os.read(fd, _TEXT_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    finally:
        os.close(fd)
