"""The one name of a conda channel, however its address was written.

`https://user:password@mirror.corp/t/TOKEN/conda-forge/linux-64` is conda-forge: where a package
was fetched from is no difference between two nodes, what it is a build of is.
"""

from __future__ import annotations

import re

from envaudit.probe.secrets import clean_url

_HOSTS = frozenset(
    {
        "conda.anaconda.org",
        "anaconda.org",
        "conda.binstar.org",
        "repo.anaconda.com",
        "repo.continuum.io",
        "repo.anaconda.cloud",
        "repo.prefix.dev",
        "fast.prefix.dev",
        "prefix.dev",
    }
)
# Channels that mirrors carry under their own names.
_NAMES = frozenset(
    {
        "conda-forge",
        "pytorch",
        "pytorch-lts",
        "pytorch-nightly",
        "pytorch-test",
        "nvidia",
        "rapidsai",
        "rapidsai-nightly",
        "bioconda",
        "intel",
        "pyg",
        "dglteam",
        "xformers",
        "huggingface",
        "fastai",
        "anaconda",
    }
)
_SUBDIR = re.compile(r"(?:noarch|(?:linux|osx|win|emscripten|wasi|freebsd|zos)-[a-z0-9]+)\Z")
_DEFAULTS = ("main", "r", "msys2", "free", "pro", "archive")


def canonical_channel(address: str) -> str:
    """`conda-forge`, `pkgs/main`, `nvidia/label/cuda-12.1.0`, or `host/path` of a private one.

    Takes a name, a channel's URL, with or without the platform folder. User info, tokens, scheme
    and mirror are gone; an empty text stays empty.
    """
    cleaned = clean_url(address.strip())
    _, separator, rest = cleaned.partition("://")
    parts = [part for part in (rest if separator else cleaned).split("/") if part]
    host = parts.pop(0) if separator and parts and not cleaned.startswith("file:") else ""
    if "t" in parts[:-1] and not separator:
        place = parts.index("t")
        del parts[place : place + 2]
    if parts and _SUBDIR.match(parts[-1]):
        parts.pop()
    for place, part in enumerate(parts):
        rest_of = parts[place + 1 :]
        if part in _NAMES and (not rest_of or (len(rest_of) == 2 and rest_of[0] == "label")):
            return "/".join(parts[place:])
        if part == "pkgs" and len(rest_of) == 1 and rest_of[0] in _DEFAULTS:
            return "/".join(parts[place:])
    if host.partition(":")[0] in _HOSTS or not separator:
        return "/".join(parts)
    place_of = "file:" if cleaned.startswith("file:") else host
    return "/".join([place_of, *parts]) if place_of else ""
