"""Which of a release's wheels an installer would take on the target, without that machine.

The order is that of PEP 425 as pip uses it: the most specific tag first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import unquote, urlsplit

# What conda-lock assumes where no virtual package says otherwise.
DEFAULT_GLIBC = "2.28"
DEFAULT_OSX = "11.0"

_LINUX_MACHINES = {
    "linux-64": "x86_64",
    "linux-aarch64": "aarch64",
    "linux-ppc64le": "ppc64le",
    "linux-s390x": "s390x",
}
_MAC_MACHINES = {"osx-64": "x86_64", "osx-arm64": "arm64"}
_WINDOWS = {"win-64": "win_amd64", "win-32": "win32", "win-arm64": "win_arm64"}
# The names that manylinux tags had before PEP 600 gave them the glibc's number.
_LEGACY = {(2, 17): "2014", (2, 12): "2010", (2, 5): "1"}
# The oldest glibc that a tag has ever been defined for (manylinux1).
_OLDEST_GLIBC_MINOR = 5


def platform_tags(platform: str, virtual: dict[str, str]) -> list[str]:
    """The wheel platforms that a conda platform runs, best first; empty where there are none.

    Args:
        platform: a conda platform, `linux-64`.
        virtual: virtual package to version; `__glibc` and `__osx` count.
    """
    if platform in _LINUX_MACHINES:
        return _linux_tags(_LINUX_MACHINES[platform], virtual.get("__glibc", DEFAULT_GLIBC))
    if platform in _MAC_MACHINES:
        from packaging.tags import mac_platforms

        return list(mac_platforms(_pair(virtual.get("__osx", DEFAULT_OSX)), _MAC_MACHINES[platform]))
    return [_WINDOWS[platform]] if platform in _WINDOWS else []


def best_wheel(urls: Sequence[str], python: str, platforms: Iterable[str]) -> str | None:
    """The URL that an installer would take; None when none of them fits.

    Args:
        urls: of the wheels of one release.
        python: the full version of the target's interpreter; it is taken for CPython.
        platforms: as `platform_tags` gives them.
    """
    from packaging.tags import Tag, compatible_tags, cpython_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    version, names = _pair(python), list(platforms)
    interpreter = f"cp{version[0]}{version[1]}"
    ranks: dict[Tag, int] = {}
    for tag in (*cpython_tags(version, platforms=names), *compatible_tags(version, interpreter, names)):
        ranks.setdefault(tag, len(ranks))
    found: list[tuple[int, tuple[int, str] | tuple[()], str]] = []
    for url in urls:
        try:
            _, _, build, tags = parse_wheel_filename(file_name(url))
        except InvalidWheelFilename:
            continue
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None:
            found.append((rank, build, url))
    if not found:
        return None
    best = min(rank for rank, _, _ in found)
    # Of equal tags the higher build number wins, as the wheel specification says.
    return max((build, url) for rank, build, url in found if rank == best)[1]


def file_name(url: str) -> str:
    """The last part of a URL's path, unquoted."""
    return unquote(urlsplit(url).path).rsplit("/", 1)[-1]


def _linux_tags(machine: str, glibc: str) -> list[str]:
    major, minor = _pair(glibc)
    tags = []
    for older in range(minor, _OLDEST_GLIBC_MINOR - 1, -1):
        tags.append(f"manylinux_{major}_{older}_{machine}")
        if (major, older) in _LEGACY:
            tags.append(f"manylinux{_LEGACY[(major, older)]}_{machine}")
    return [*tags, f"linux_{machine}"]


def _pair(version: str) -> tuple[int, int]:
    """Major and minor; a part that is no number counts as 0."""
    parts = [int(part) if part.isdigit() else 0 for part in version.split(".")[:2]]
    return parts[0], parts[1] if len(parts) > 1 else 0
