"""The file systems that work lives on: not the same on all nodes, or mounted otherwise."""

from __future__ import annotations

from typing import Iterable, Iterator

from envaudit.model.drift import split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.nodefacts import by_nodes, notes_of
from envaudit.rules.pernode import facts_of, mapping
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Found, difference

_HF_HOME = "env/variables/HF_HOME"
_SET_ALIKE = "Set HF_HOME in the launch script for all ranks, or nowhere."
_PLACES = {
    "root": "/",
    "tmp": "/tmp",
    "shm": "/dev/shm",
    "prefix": "the environment",
    "workdir": "the working directory",
    "hf_home": "the Hugging Face cache",
}


@difference(
    "EA140",
    severity="warning",
    title="a file system differs",
    why="Files are read from elsewhere or in another way; where a mount is missing, its folder is empty.",
    of=("storage/**", _HF_HOME),
    how_to_fix="Compare 'findmnt' on these nodes, then fstab, the automounter or the container's volumes.",
)
def file_system_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """The file system of a place, its mount options, or the place itself where HF_HOME names another."""
    paths = [split_path(drift.path) for drift in claim.drifts if drift.path != _HF_HOME]
    moved = list(dict.fromkeys(path[1] for path in paths if len(path) > 1 and "options" not in path))
    set_otherwise = [path for path in paths if "options" in path and path[1] not in moved]
    what = [f"file system of {_words(moved)}"] if moved else []
    if set_otherwise:
        names = {path[3] if len(path) > 3 else "" for path in set_otherwise}
        option = f"option {min(names)}" if len(names) == 1 and names != {""} else "options"
        what.append(f"mount {option} of {_words(path[1] for path in set_otherwise)}")
    if not what:
        what.append("storage" if paths else "HF_HOME")
    is_one = len(what) == 1 and not what[0].startswith("mount options")
    follows_variable = len(paths) < len(claim.drifts) and all(path[1:2] == ("hf_home",) for path in paths)
    yield claim.found(
        f"{' and '.join(what)} {'differs' if is_one else 'differ'}",
        evidence=by_nodes(claim.evidence.fingerprints, lambda one: _where(one, moved)),
        hint=_SET_ALIKE if follows_variable else "",
    )


def _words(places: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(_PLACES.get(place, place) for place in places))


def _where(fingerprint: Fingerprint, places: Iterable[str]) -> str:
    """`the working directory is on lustre at /srv, rw`."""
    mounts = facts_of(fingerprint, "storage")
    told = []
    for place in places:
        of = mounts.get(place)
        name = of[len("as ") :] if isinstance(of, str) and of.startswith("as ") else place
        mount = mapping(mounts.get(name))
        if mount:
            point = mapping(notes_of(fingerprint, "storage").get(name)).get("mount_point")
            at = f" at {point}" if point else ""
            kind = mount.get("fstype") or "an unknown file system"
            told.append(f"{_PLACES.get(place, place)} is on {kind}{at}, {mount.get('access')}")
    return "; ".join(told)
