"""Python, torch, NCCL and packages that are not the same on all nodes."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from envaudit.model.drift import Drift, split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.libraries import LOADER_VARIABLES, loaded_from
from envaudit.rules.lock import distribution_of
from envaudit.rules.nodefacts import by_nodes, claimed, setting
from envaudit.rules.pernode import facts_of, mapping
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Found, difference
from envaudit.rules.torchbuild import gpus_of, is_cpu_only

# What comes with a build of torch: another torch brings others of these along.
_WITH_TORCH = (
    "torch/**",
    "libraries/**",
    *(
        f"{place}/{name}"
        for place in ("conda/packages", "packages/distributions")
        for name in (
            "pytorch*",
            "torch",
            "torchvision",
            "torchaudio",
            "libtorch",
            "triton*",
            "pytorch-triton*",
            "torchtriton",
        )
    ),
    "conda/packages/cuda*",
    "conda/packages/libcu*",
    "conda/packages/libnv*",
    "conda/packages/libnpp*",
    "conda/packages/cusparselt*",
    "conda/packages/nvtx*",
    "conda/packages/nccl",
    "conda/packages/cudnn",
    "conda/packages/magma*",
    "conda/packages/libmagma*",
    "packages/distributions/nvidia-*",
    # cuda-toolkit, cuda-bindings and cuda-pathfinder, which wheels of torch ask for.
    "packages/distributions/cuda-*",
    "deep/**",
)
# The section itself is what differs where torch is installed on some nodes only.
_TORCH = ("torch", "torch/version", "torch/git_version", "torch/cuda", "torch/hip", "torch/debug")
_FROM_OUTSIDE = (
    "It lies outside the environment: set PYTHONNOUSERSITE=1, or take its folder out of PYTHONPATH."
)
_FOLDERS_TOLD = 4
_NOT_NORMAL = re.compile(r"[-_.]+")


def _minor_differs(drift: Drift, policy: Policy) -> bool:
    """Whether the versions differ in their first two parts: 3.10 and 3.11."""
    versions = [str(group.value).split(".")[:2] for group in drift.groups if group.state != "unknown"]
    return any(version != versions[0] for version in versions)


@difference(
    "EA211",
    severity="error",
    title="Python minor versions differ",
    why="What one rank pickles another cannot load, and no compiled package fits both.",
    of=("python/version",),
    when=_minor_differs,
    follows=(
        "python/**",
        "conda/packages/python",
        "conda/packages/python_abi",
        "conda/packages/*/build",
        "conda/packages/*/md5",
        "conda/packages/*/sha256",
    ),
    order=20,
    across_roles=True,
    compared="by its first two parts",
    how_to_fix="Build the environment of these nodes from the lock that the others have.",
    case="A head node from another image had another Python than its workers, and no worker could join it.",
)
def python_minor_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Other builds of the packages follow from it."""
    yield claim.found("Python differs in its minor version")


@difference(
    "EA212",
    severity="warning",
    title="Python patch versions differ",
    why="The standard library differs in details: hashing, pickling and asyncio have changed in patches.",
    of=("python/version",),
    follows=("python/**", "conda/packages/python"),
    order=22,
    compared="by all its parts",
    how_to_fix="Pin Python to its patch in environment.yml, lock, and install again.",
)
def python_patch_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """All the digits stand in the difference."""
    yield claim.found("Python differs in its patch version")


@difference(
    "EA213",
    severity="error",
    title="torch differs",
    why="Other kernels and other collectives: ranks compute other numbers, or wait for each other.",
    of=("torch",),
    when=lambda drift, policy: drift.path in _TORCH,
    follows=_WITH_TORCH,
    order=30,
    how_to_fix="Install torch on these nodes from the lock that the others have.",
)
def torch_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """The CUDA libraries that come with a build of torch follow from it."""
    at_fault = [each for each in claim.evidence.fingerprints if each.node in claim.nodes]
    if at_fault and all(is_cpu_only(each) and gpus_of(each) for each in at_fault):
        yield claim.found("torch is a CPU build, and the nodes have GPUs")
    else:
        yield claim.found("torch differs")


@difference(
    "EA214",
    severity="error",
    title="NCCL differs",
    why="Ranks with different NCCL refuse to connect or hang.",
    of=("libraries/nccl/version",),
    follows=(
        "libraries/nccl/**",
        "libraries/copies/nccl/**",
        "conda/packages/nccl",
        "packages/distributions/nvidia-nccl-*",
        *LOADER_VARIABLES,
    ),
    order=40,
    how_to_fix="Install it from the others' lock, and let nothing come before it for the loader.",
    case="Sixteen GPUs on four nodes hung; whether all nodes had one NCCL was the first question asked.",
)
def nccl_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """With the file that the loader takes on the nodes at fault."""
    yield claim.found("NCCL differs", evidence=loaded_from(claim, "nccl"))


@difference(
    "EA210",
    severity="warning",
    title="a variable of Python differs",
    why="Modules come from elsewhere, or Python behaves in another way, on these nodes alone.",
    of=("env/variables/PYTHON*",),
    follows=("python/path_outside_prefix", "python/flags/**", "python/encodings/**", "python/user_site/**"),
    order=51,
    how_to_fix="Set it in the launch script for all ranks, or nowhere.",
)
def python_variable_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """PYTHONPATH, PYTHONUTF8 and their like, with the folders and flags that they set.

    A folder on the path that PYTHONPATH does not name has another cause, and is told.
    """
    names = [split_path(drift.path)[-1] for drift in claim.drifts]
    known = [one for one in claim.evidence.everything if facts_of(one, "python")]
    everywhere = set.intersection(*map(_folders, known)) if known else set()
    lines = by_nodes(claimed(claim), lambda one: _not_by_pythonpath(one, everywhere))
    message = f"{names[0]} differs" if len(names) == 1 else f"{len(names)} variables of Python differ"
    yield claim.found(message, evidence=lines)


def _folders(fingerprint: Fingerprint) -> Set[str]:
    """The entries of sys.path outside the environment."""
    folders = facts_of(fingerprint, "python").get("path_outside_prefix")
    return set(map(str, folders)) if isinstance(folders, list) else set()


def _not_by_pythonpath(fingerprint: Fingerprint, everywhere: Set[str]) -> str:
    value = str(setting(fingerprint, "PYTHONPATH").get("value", ""))
    named = {folder.rstrip("/") for folder in value.split(":")}
    others = sorted(_folders(fingerprint) - everywhere - named)
    return f"also on its path, and not by PYTHONPATH: {', '.join(others[:_FOLDERS_TOLD])}" if others else ""


@difference(
    "EA218",
    severity="error",
    title="the checkout of an editable install differs",
    why="Ranks that run other code compute other numbers.",
    of=("packages/distributions/*/commit", "packages/distributions/*/editable"),
    follows=("git/**",),
    order=55,
    across_roles=True,
    how_to_fix="Check out one commit on all nodes, or install a build of it from the lock.",
)
def checkout_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Another commit, or an editable install on some nodes only."""
    names = list(dict.fromkeys(package_of(drift) for drift in claim.drifts))
    what = names[0] if len(names) == 1 else f"{len(names)} editable installs"
    verb = ("is", "are")[len(names) > 1]
    if all(group.state == "present" for drift in claim.drifts for group in drift.groups):
        how = "at another commit"
    elif any(drift.path.endswith("/editable") for drift in claim.drifts):
        how = "editable on some nodes only"
    else:
        how = "in a checkout on some nodes only"
    yield claim.found(f"{what} {verb} {how}")


@difference(
    "EA215",
    severity="error",
    title="a package that must match differs",
    why="Ranks exchange what it makes, or compute with it: they fail late, or train on other numbers.",
    of=("conda/packages/*", "packages/distributions/*", "torch/torchvision", "torch/torchaudio"),
    when=lambda drift, policy: (
        package_of(drift) in policy.must_match or _distribution_of(drift) in policy.must_match
    ),
    order=60,
    across_roles=True,
    how_to_fix="Install it on these nodes from the lock that the others have.",
    case="Two versions of cloudpickle: the cluster started, and no worker lived.",
)
def matching_package_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """One finding, whatever the number of packages."""
    yield _about_packages(claim, "that must match ")


@difference(
    "EA216",
    severity="warning",
    title="a package differs",
    why="It was tested with another version, and something may depend on it.",
    of=("conda/packages/*", "packages/distributions/*"),
    order=70,
    how_to_fix="Install it on these nodes from the lock that the others have.",
)
def package_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """One finding, whatever the number of packages."""
    yield _about_packages(claim, "")


@difference(
    "EA217",
    severity="warning",
    title="PYTHONHASHSEED differs",
    why="Sets and dictionaries of texts have another order: data is sharded or shuffled in another way.",
    of=("env/variables/PYTHONHASHSEED",),
    follows=("python/flags/hash_randomization",),
    how_to_fix="Set it to one value in the launch script, or nowhere.",
)
def hash_seed_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Unset means that each process has another seed: that is another value as well."""
    yield claim.found("PYTHONHASHSEED differs")


@difference(
    "EA219",
    severity="warning",
    title="a start-up file of Python differs",
    why="Python runs such files before anything else, in every process: they may change whatever follows.",
    of=("packages/pth/**", "python/customized/**"),
    follows=("python/path_outside_prefix",),
    # Another minor version may bring its own; a patch does not.
    order=21,
    how_to_fix="Read them on these nodes, in site-packages; then remove them, or install them on all.",
)
def start_file_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """A sitecustomize, a usercustomize, or a .pth file with lines that run and that no package recorded."""
    names = list(dict.fromkeys(name for drift in claim.drifts for name in _start_files(drift)))
    one = len(names) == 1
    what = f"the start-up file {names[0]}" if one else f"{len(names)} start-up files"
    yield claim.found(f"{what} {_verb(claim.drifts, plural=not one)}")


def _start_files(drift: Drift) -> List[str]:
    """The file whose digest differs; all of them where some nodes have none at all."""
    values = [group.value for group in drift.groups if isinstance(group.value, dict)]
    return sorted({name for value in values for name in value}) or [split_path(drift.path)[-1]]


def package_of(drift: Drift) -> str:
    """The normalised name of the package whose fact differs; empty for another fact."""
    segments = split_path(drift.path)
    if segments[:2] in (("conda", "packages"), ("packages", "distributions")) and len(segments) > 2:
        return _NOT_NORMAL.sub("-", segments[2]).lower()
    return segments[1] if segments[:1] == ("torch",) else ""


def _distribution_of(drift: Drift) -> str:
    """The distribution that a package is, for conda has its own names of some: ray-core is ray."""
    name = package_of(drift)
    return distribution_of(name) if drift.section == "conda" else name


def _about_packages(claim: Claim, which: str) -> Found:
    """`ray differs`, or `3 packages that must match differ`.

    A conda package of Python code is a distribution too: one difference, seen from two sides.
    """
    drifts, echoes = _without_echoes(claim.drifts)
    claim = claim._replace(drifts=drifts, following=(*claim.following, *echoes))
    names = list(dict.fromkeys(package_of(drift) for drift in drifts))
    extra = all(drift.kind == "extra" and len(split_path(drift.path)) == 3 for drift in drifts)
    hint = "Remove what is extra, or lock it and install the lock on all nodes." if extra else ""
    if _are_from_outside(claim, names):
        hint = _FROM_OUTSIDE
    if len(names) == 1:
        return claim.found(f"{names[0]} {_verb(drifts, plural=False)}", hint=hint)
    return claim.found(f"{len(names)} packages {which}{_verb(drifts, plural=True)}", hint=hint)


def _are_from_outside(claim: Claim, names: Sequence[str]) -> bool:
    """Whether on a node at fault all of these are imported from elsewhere than its environment."""
    for fingerprint in claimed(claim):
        installed = mapping(facts_of(fingerprint, "packages").get("distributions"))
        rows = [mapping(installed.get(name)) for name in names]
        if all(("folder" in row or "user_site" in row) and not row.get("editable") for row in rows):
            return True
    return False


def _verb(drifts: Sequence[Drift], *, plural: bool) -> str:
    ways = {"missing" if _is_gone(drift) else drift.kind for drift in drifts}
    one_way = ways.pop() if len(ways) == 1 else "changed"
    if one_way == "missing" and not drifts[0].reference:
        return "are on some nodes only" if plural else "is on some nodes only"
    words = {"changed": ("differs", "differ"), "missing": ("is missing", "are missing")}
    return words.get(one_way, ("is extra", "are extra"))[plural]


def _is_gone(drift: Drift) -> bool:
    return drift.kind == "missing" and len(split_path(drift.path)) == 3


def _without_echoes(drifts: Sequence[Drift]) -> Tuple[Tuple[Drift, ...], Tuple[Drift, ...]]:
    """The differences, and apart those of distributions that are the same as their conda package's."""
    told: Dict[str, List[Tuple[str, object]]] = {
        _distribution_of(drift): _versions(drift) for drift in drifts if drift.section == "conda"
    }
    own: List[Drift] = []
    echoes: List[Drift] = []
    for drift in drifts:
        same = drift.section == "packages" and told.get(package_of(drift)) == _versions(drift)
        (echoes if same else own).append(drift)
    return tuple(own), tuple(echoes)


def _versions(drift: Drift) -> List[Tuple[str, object]]:
    """What the groups say, in their order; of a whole package its version."""
    return [
        (group.state, group.value.get("version") if isinstance(group.value, dict) else group.value)
        for group in drift.groups
        if group.state != "unknown"
    ]
