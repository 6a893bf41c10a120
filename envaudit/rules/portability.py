"""An environment.yml on other machines: does it say the same there, and may it be shown."""

from __future__ import annotations

import os
import re
from typing import Dict, Iterator, List, Tuple

from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule
from envaudit.rules.sourcefacts import (
    LINUX,
    MACOS,
    WINDOWS,
    Facts,
    at,
    conda_entries,
    others,
    overlap,
    sources_of,
    start_of,
    systems_of,
)

_DEFAULTS = ("defaults", "anaconda", "main", "pkgs/main")

# Packages that one system alone has.
_SYSTEM_NAMES = {
    "vs2015_runtime": WINDOWS,
    "vc": WINDOWS,
    "vc14_runtime": WINDOWS,
    "ucrt": WINDOWS,
    "wincertstore": WINDOWS,
    "win_inet_pton": WINDOWS,
    "pywin32": WINDOWS,
    "pywinpty": WINDOWS,
    "winpty": WINDOWS,
    "console_shortcut": WINDOWS,
    "tensorflow-intel": WINDOWS,
    "appnope": MACOS,
    "python.app": MACOS,
    "_libgcc_mutex": LINUX,
    "ld_impl_linux-64": LINUX,
    "libgcc-ng": LINUX,
    "libstdcxx-ng": LINUX,
}
# The default channels' builds have a hash of what they were built with; a package without compiled
# code has the system's own one.
_SYSTEM_BUILDS = {"haa95532": WINDOWS, "h06a4308": LINUX, "hecd8cb5": MACOS, "hca03da5": MACOS}


@rule(
    "EA010",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="package named twice",
    why="Some tools take the last line alone, others all of them.",
    how_to_fix="Join the lines into one.",
)
def package_twice(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Within conda or within pip; at the later line."""
    for source in sources_of(evidence):
        seen: Dict[Tuple[bool, str], List[Facts]] = {}
        for entry in source["entries"]:
            if not entry["key"] or entry["kind"] in ("pip_option", "pip_include", "pip_constraint"):
                continue
            earlier = seen.setdefault((entry["kind"] == "conda", entry["key"]), [])
            same = next((other for other in earlier if overlap(entry, other)), None)
            if same is not None:
                yield at(entry, f"{entry['name']} is named twice", others([same, entry]))
            earlier.append(entry)


@rule(
    "EA011",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="prefix of one machine",
    why="It is the folder of whoever exported the file, and no other machine has it.",
    how_to_fix="Take the line out.",
)
def machine_prefix(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """`prefix:`, and where its last folder is not the environment's name."""
    for source in sources_of(evidence):
        prefix, name = source["prefix"], source["name"]
        if prefix is not None:
            folder = os.path.basename(str(prefix["text"]).rstrip("/\\").replace("\\", "/"))
            differs = name is not None and folder != name["text"]
            told = (f"the prefix is of '{folder}', the name is '{name['text']}'",) if differs else ()
            yield at(prefix, "prefix of the machine that exported it", told)


@rule(
    "EA012",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="packages of another system",
    why="An export with builds can be installed on the system that wrote it only.",
    how_to_fix="Export with 'conda env export --from-history', or lock from what was asked for by hand.",
)
def foreign_packages(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Windows or macOS builds in a file that is for Linux; one finding a system."""
    for source in sources_of(evidence):
        wanted = systems_of(source)
        foreign: Dict[str, List[Facts]] = {}
        for entry in source["entries"]:
            system = _system_of(entry)
            if system and system not in wanted and entry.get("platforms") is None:
                foreign.setdefault(system, []).append(entry)
        for system, entries in sorted(foreign.items()):
            words = {LINUX: "Linux", WINDOWS: "Windows", MACOS: "macOS"}
            targets = " and ".join(words.get(each, each) for each in wanted)
            count = "1 package is" if len(entries) == 1 else f"{len(entries)} packages are"
            message = f"{count} for {words[system]}, the file is for {targets}"
            yield at(entries[0], message, others(entries))


@rule(
    "EA013",
    severity="error",
    scope="node",
    needs=("envfile",),
    title="credential in the file",
    why="Who can read the file has it; a lock made from it would carry it on.",
    how_to_fix="Write a variable in its place, ${CONDA_TOKEN}, and change the credential: it is known now.",
)
def credential(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A password, token or user name in a URL; the value of a variable that is named as a secret."""
    for source in sources_of(evidence):
        facts = [*source["channels"], *source["pip_repositories"], *source["variables"], *source["entries"]]
        for fact in facts:
            if fact.get("credential"):
                yield at(fact, f"{fact['credential']} stands in the file", (str(fact["text"]),))


@rule(
    "EA014",
    severity="info",
    scope="node",
    needs=("envfile",),
    title="defaults beside conda-forge",
    why="The two build against other libraries, and which one a package is from changes with the priority.",
    how_to_fix="Name one of them only, and 'nodefaults' beside conda-forge.",
)
def mixed_channels(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """At the later of the two."""
    for source in sources_of(evidence):
        found = [each for each in source["channels"] if each["text"] in (*_DEFAULTS, "conda-forge")]
        if len({each["text"] == "conda-forge" for each in found}) == 2:
            yield at(found[-1], f"channels {' and '.join(str(each['text']) for each in found)} are mixed")


@rule(
    "EA015",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="no channels",
    why="Each user's own settings then say where the packages are from.",
    how_to_fix="List them below 'channels:'.",
)
def no_channels(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A file with conda packages of which one names no channel."""
    for source in sources_of(evidence):
        named = [each for each in source["channels"] if each["text"] != "nodefaults"]
        bare = [each for each in conda_entries(source) if not each.get("channel") and not each.get("url")]
        if bare and not named:
            yield Found("the file names no channel", path=start_of(source))


def _system_of(entry: Facts) -> str:
    """The one system that has an entry's package; empty where it may be any."""
    key = str(entry["key"])
    if entry["kind"] not in ("conda", "pip") or entry.get("marker"):
        return ""
    if key in _SYSTEM_NAMES:
        return _SYSTEM_NAMES[key]
    if key.startswith(("m2w64-", "msys2-")):
        return WINDOWS
    compiler = re.search(r"_(linux|osx|win)-[a-z0-9_]+\Z", key)
    if compiler:
        return compiler[1]
    match = re.search(r"(h[0-9a-f]{7})(?:_\d+)?\Z", str(entry.get("build", "")))
    return _SYSTEM_BUILDS.get(match[1], "") if match else ""
