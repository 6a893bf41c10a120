"""Distributions of one environment that do not go together: two CUDA stacks, two builds, two copies."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from envaudit.model.drift import join_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.compatibility import numbers, torch_default_of_minor
from envaudit.rules.lock import distribution_of
from envaudit.rules.pernode import facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule

# NVIDIA's wheels: nvidia-nccl-cu12, nvidia-nccl-cu13, and since CUDA 13 some without suffix: nvidia-cublas.
_WHEEL = re.compile(r"(nvidia-[a-z0-9-]+?)(?:-cu(\d+))?")
# Index placeholders of a time before the wheels: nothing is in them.
_PLACEHOLDER = "0.0."
_NAMES_TOLD = 8

# The local tag of a build: +cu130, +cpu, +rocm6.2. Vendors' and checkouts' tags say nothing of that.
_RELEASE = re.compile(r"\d+\.\d+\.\d+(?:\.post\d+)?(?:\+(cu\d+|cpu|rocm[\d.]+|xpu))?")
_COMPANIONS = ("torchvision", "torchaudio")


class _Pair(NamedTuple):
    """One library that two wheels bring.

    Attributes:
        family: `nvidia-nccl`.
        wheels: their names and versions.
        overwritten: whether both install the same files, so that the later one has won.
    """

    family: str
    wheels: Tuple[Tuple[str, str], ...]
    overwritten: bool


@rule(
    "EA245",
    severity="warning",
    scope="node",
    needs=("packages",),
    title="two NVIDIA stacks in one environment",
    why="Which copy is loaded depends on the order of installs and imports; where both have the same files, "
    "the later install has overwritten the other's.",
    case="nvidia-nccl-cu12 2.29.3 beside nvidia-nccl-cu13 2.29.7: both install libnccl.so.2 into one folder, "
    "the older one won, and torch did not find ncclCommResume.",
)
def two_stacks(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By library: an error where two versions write the same file, or where torch does not import."""
    yield from over_nodes(evidence, _two_stacks)


def _two_stacks(fingerprint: Fingerprint) -> Iterator[Found]:
    pairs = _pairs(mapping(facts_of(fingerprint, "packages").get("distributions")))
    if not pairs:
        return
    imported = facts_of(fingerprint, "deep").get("import")
    lost = [pair for pair in pairs if pair.overwritten and len({v for _, v in pair.wheels}) > 1]
    fatal = imported not in (None, "ok") or (bool(lost) and imported is None)
    first = (lost or [pair for pair in pairs if pair.overwritten] or pairs)[0]
    names = " and ".join(f"{name} {version}" for name, version in first.wheels)
    lines = [
        f"{' and '.join(f'{name} {version}' for name, version in pair.wheels)}"
        + (": the same files" if pair.overwritten else "")
        for pair in pairs[:_NAMES_TOLD]
        if pair is not first
    ]
    if len(pairs) > _NAMES_TOLD:
        lines.append(f"and {len(pairs) - _NAMES_TOLD} more libraries twice")
    if imported not in (None, "ok"):
        lines.append(f"import torch: {imported}")
    keep, drop = _to_keep(first, facts_of(fingerprint, "torch").get("cuda"))
    again = f", then install {keep} again: they have the same files" if first.overwritten else ""
    yield Found(
        f"{names} are both installed" + (" and write the same files" if first.overwritten else ""),
        path="packages/distributions",
        evidence=tuple(lines),
        hint=f"Remove {drop}{again}."
        if drop
        else "Keep the ones of the CUDA that torch was built for, and remove the others.",
        severity="error" if fatal else "",
    )


def overwritten(fingerprint: Fingerprint) -> FrozenSet[str]:
    """The libraries, `nvidia-nccl`, that two wheels of an environment install into the same files."""
    pairs = _pairs(mapping(facts_of(fingerprint, "packages").get("distributions")))
    return frozenset(pair.family for pair in pairs if pair.overwritten)


def _pairs(distributions: Mapping[str, Any]) -> List[_Pair]:
    """The libraries that more than one wheel brings, those that overwrite each other first."""
    families: Dict[str, List[Tuple[str, str, Optional[str]]]] = {}
    for name, row in distributions.items():
        if not name.startswith("nvidia-"):
            continue
        match = _WHEEL.fullmatch(name)
        version = mapping(row).get("version")
        if match and isinstance(version, str) and not version.startswith(_PLACEHOLDER):
            families.setdefault(match.group(1), []).append((name, version, match.group(2)))
    found = []
    for family, wheels in sorted(families.items()):
        if len(wheels) > 1:
            # Those without a suffix lie in nvidia/cu13; the others share nvidia/nccl, nvidia/cudnn, ...
            # and there the file is named after the major version: libnccl.so.2.
            suffixed = [numbers(version)[:1] for _, version, suffix in wheels if suffix]
            shown = tuple((name, version) for name, version, _ in sorted(wheels))
            found.append(_Pair(family, shown, len(suffixed) > len(set(suffixed))))
    return sorted(found, key=lambda pair: (not pair.overwritten, pair.family))


def _to_keep(pair: _Pair, cuda: object) -> Tuple[str, str]:
    """The wheel of a pair that torch's CUDA asks for, and the other; nothing where nobody says."""
    major = numbers(cuda)[:1]
    fitting = [name for name, _ in pair.wheels if major and name.endswith(f"-cu{major[0]}")] or [
        name for name, _ in pair.wheels if major >= (13,) and not re.search(r"-cu\d+$", name)
    ]
    others = [name for name, _ in pair.wheels if name not in fitting]
    return (fitting[0], " and ".join(others)) if fitting and others else ("", "")


@rule(
    "EA246",
    severity="error",
    scope="node",
    title="torch and its companion are built for different CUDA",
    why="Their operators are not registered: torchvision::nms does not exist, at import or at first use.",
    case="torch 2.10.0+cu130 from one index and torchvision 0.25.0 from another: the versions match, the "
    "builds do not.",
)
def variants_differ(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The tags of torch, torchvision and torchaudio: cu130, cpu, rocm6.2."""
    for companion in _COMPANIONS:
        told = told_between_nodes(evidence, policy, "EA215", f"torch/{companion}")
        told |= told_between_nodes(evidence, policy, "EA215", f"packages/distributions/{companion}")
        yield from over_nodes(evidence, partial(_variants, companion=companion), told)


def _variants(fingerprint: Fingerprint, companion: str) -> Iterator[Found]:
    section = facts_of(fingerprint, "torch")
    torch, other = _version(fingerprint, "version", "torch"), _version(fingerprint, companion, companion)
    if torch is None or other is None:
        return
    wants, has = _variant(torch), _variant(other)
    if not wants and "cuda" in section:
        wants = _built_for(section)
    guessed = ""
    if bool(wants) != bool(has) and _are_plain(fingerprint, companion, torch, other):
        # Only the default index has wheels without a tag in their name.
        usual = torch_default_of_minor(torch)
        guessed = f"cu{usual.cuda.replace('.', '')}" if usual is not None else ""
        wants, has = wants or guessed, has or guessed
    if wants and has and not _same(wants, has):
        named = companion if has == guessed else "torch"
        note = f"{named} has no tag, as wheels of the default index: they are built for {guessed}"
        tag = has if wants == guessed else wants
        yield Found(
            f"torch {torch} is built for {wants}, and {companion} {other} for {has}",
            path=join_path("torch", companion)
            if companion in section
            else join_path("packages", "distributions", companion),
            evidence=(note,) if guessed else (),
            hint=f"Install both from one index: {companion}=={other.partition('+')[0]}+{tag}.",
        )


def _version(fingerprint: Fingerprint, key: str, distribution: str) -> Optional[str]:
    """What the package says of itself, else what its distribution's record says."""
    said = facts_of(fingerprint, "torch").get(key)
    if not isinstance(said, str):
        rows = mapping(facts_of(fingerprint, "packages").get("distributions"))
        said = mapping(rows.get(distribution)).get("version")
    return said if isinstance(said, str) else None


def _variant(version: str) -> str:
    match = _RELEASE.fullmatch(version)
    return (match.group(1) or "") if match else ""


def _built_for(torch: Mapping[str, Any]) -> str:
    """The tag that torch's own constants stand for: 13.0 is cu130."""
    cuda, hip = torch.get("cuda"), torch.get("hip")
    if isinstance(cuda, str):
        return "cu" + "".join(cuda.split(".")[:2])
    if isinstance(hip, str):
        return "rocm" + ".".join(hip.split(".")[:2])
    return "cpu"


def _are_plain(fingerprint: Fingerprint, companion: str, torch: str, other: str) -> bool:
    """Whether both are releases that pip installed on x86_64: conda's packages carry no tag at all."""
    rows = mapping(facts_of(fingerprint, "packages").get("distributions"))
    by_conda = facts_of(fingerprint, "torch").get("packaging") == "conda" or any(
        mapping(rows.get(name)).get("installer") == "conda" for name in ("torch", companion)
    )
    # On other machines the default wheels are for the CPU, or for another CUDA.
    known = facts_of(fingerprint, "host").get("architecture") in (None, "x86_64")
    return known and not by_conda and bool(_RELEASE.fullmatch(torch) and _RELEASE.fullmatch(other))


def _same(one: str, other: str) -> bool:
    """Whether two tags are one build; rocm6.2 and rocm6.2.4 are, as far as both go."""
    if one.startswith("rocm") and other.startswith("rocm"):
        return all(a == b for a, b in zip(one.split("."), other.split(".")))
    return one == other


@rule(
    "EA247",
    severity="warning",
    scope="node",
    needs=("packages",),
    title="a package is installed twice over",
    why="An install broke off: its files are of one version, and what pip or conda say is of the other.",
    how_to_fix="Remove both and install it again, or build the environment anew from its lock.",
)
def installed_twice(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Two records in one folder, or two of conda's; a copy that hides another on sys.path is none.

    Debian's own packages have two records of one version in a folder, and are whole.
    """
    # Against a lock, EA201 names conda's second records.
    locked = any(reference.source == "lock" for reference in evidence.references)
    yield from over_nodes(evidence, partial(_twice, locked=locked))


def _twice(fingerprint: Fingerprint, locked: bool) -> Iterator[Found]:
    packages, conda = fingerprint.sections.get("packages"), facts_of(fingerprint, "conda")
    in_folder = mapping(packages.notes.get("twice_in_folder")) if packages is not None else {}
    # What lies beside conda's own is pip over conda, EA207.
    of_conda = {distribution_of(name) for name in mapping(conda.get("packages"))} if in_folder else set()
    by_pip = {
        name: rows
        for name, rows in in_folder.items()
        if name not in of_conda and len(set(_versions(rows))) > 1
    }
    by_conda = {} if locked else mapping(conda.get("duplicates"))
    for told, path, who in (
        (by_pip, ("packages", "duplicates"), "one folder"),
        (by_conda, ("conda", "duplicates"), "conda's records"),
    ):
        lines = [f"{name}: {', '.join(_versions(told[name]))}" for name in sorted(told)]
        if lines:
            what = lines[0].partition(":")[0] if len(lines) == 1 else f"{len(lines)} packages"
            yield Found(
                f"{what} {'is' if len(lines) == 1 else 'are'} twice in {who}",
                path=join_path(*path, *([what] if len(lines) == 1 else [])),
                evidence=_shortened(lines),
            )


@rule(
    "EA248",
    severity="warning",
    scope="node",
    needs=("packages",),
    title="a package from outside hides the environment's",
    why="It is imported instead of the locked one, for this user or with this PYTHONPATH alone.",
    how_to_fix="Set PYTHONNOUSERSITE=1, or take the folder out of PYTHONPATH.",
)
def hidden_by_outside(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """In the user's site folder or outside the prefix, and installed a second time or a must-match."""
    yield from over_nodes(evidence, partial(_from_outside, policy=policy))


def _from_outside(fingerprint: Fingerprint, policy: Policy) -> Iterator[Found]:
    facts = facts_of(fingerprint, "packages")
    twice = mapping(facts.get("duplicates"))
    by_place: Dict[str, List[str]] = {}
    rows = mapping(facts.get("distributions"))
    outside = {
        name: row
        for name, row in rows.items()
        if isinstance(row, dict) and ("user_site" in row or "folder" in row)
    }
    for name, row in sorted(outside.items()):
        in_user_site = row.get("user_site") is True
        # A checkout is where it is on purpose.
        if row.get("editable") or not (in_user_site or isinstance(row.get("folder"), str)):
            continue
        if name in twice or (in_user_site and name in policy.must_match):
            hidden = [version for version in _versions(twice.get(name))[1:] if version != row.get("version")]
            note = f", hides {', '.join(hidden)}" if hidden else ""
            place = "the user's site folder" if in_user_site else str(row["folder"])
            by_place.setdefault(place, []).append(f"{name} {row.get('version')}{note}")
    for place, lines in by_place.items():
        what = lines[0].partition(",")[0] if len(lines) == 1 else f"{len(lines)} packages"
        yield Found(
            f"{what} {'comes' if len(lines) == 1 else 'come'} from {place}",
            path="packages/distributions",
            evidence=_shortened(lines),
        )


def _versions(rows: object) -> List[str]:
    """Versions as `packages` and `conda` tell them of what is there twice."""
    told = rows if isinstance(rows, list) else []
    return [str(mapping(row).get("version") if isinstance(row, dict) else row) for row in told]


def _shortened(lines: List[str]) -> Tuple[str, ...]:
    more = [f"and {len(lines) - _NAMES_TOLD} more"] if len(lines) > _NAMES_TOLD else []
    return (*lines[:_NAMES_TOLD], *more)
