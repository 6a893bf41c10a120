"""The libraries that the loader takes for torch on a node, against what torch was built with.

Which copy is taken is the loader's own answer (section `libraries`), or what a running torch has
(section `deep`), never the order of a variable. What torch was built with is what its own package
says. Other copies on the node, such as a toolkit's cuDNN, are no finding: nobody loads them.
"""

from __future__ import annotations

import os
from typing import Any, Iterator, Optional, Tuple

from envaudit.model.drift import join_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.compatibility import driver_floor, is_older, numbers, torch_default
from envaudit.rules.pernode import Facts, facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule
from envaudit.rules.stacks import overwritten

# A library that lies in one of these is where it belongs.
_OWN = ("environment", "static")
_PRELOADED = ("LD_PRELOAD", "/etc/ld.so.preload")
# An interpreter there belongs to the system, and so do its libraries: vendor images are built so.
_SYSTEM_PREFIXES = ("/", "/usr", "/usr/local")
_PARTS_TOLD = 6
_ONE_CUDNN = (
    "Take the other copy out of the loader's way (the system's package, LD_LIBRARY_PATH), or "
    "install a cuDNN that brings all its parts."
)
_FIND_IT = "Install what provides it: the lock of a node that has it says which package that is."


@rule(
    "EA230",
    severity="error",
    scope="node",
    title="cuDNN does not fit torch",
    why="torch refuses it at the first convolution, or calls functions that it does not have.",
    how_to_fix="Install the cuDNN that torch asks for, and let no other come before it for the loader.",
)
def cudnn_does_not_fit(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The loaded major must be the built one, and the loaded minor not older."""
    told = told_between_nodes(evidence, policy, "EA220", "libraries/cudnn")
    yield from over_nodes(evidence, _cudnn, told)


def _cudnn(fingerprint: Fingerprint) -> Iterator[Found]:
    built = _built_with(fingerprint, "cudnn")
    row = mapping(facts_of(fingerprint, "libraries").get("cudnn"))
    running = mapping(facts_of(fingerprint, "deep").get("torch")).get("cudnn")
    loaded = running if isinstance(running, str) else row.get("version")
    have, need = numbers(loaded)[:2], numbers(built)[:2]
    misfit = len(have) == 2 and len(need) == 2 and (have[0] != need[0] or have[1] < need[1])
    # One that another wheel overwrote is told by EA245, with the two.
    if misfit and "nvidia-cudnn" not in overwritten(fingerprint):
        yield Found(
            f"cuDNN {loaded} is loaded, and torch was built with {built}",
            path="libraries/cudnn/version",
            evidence=where(row),
        )


@rule(
    "EA231",
    severity="error",
    scope="node",
    title="cuDNN from more than one folder",
    why="cuDNN refuses parts of another release (SUBLIBRARY_VERSION_MISMATCH), at the first operation "
    "that needs one.",
    how_to_fix=_ONE_CUDNN,
    case="Six libraries of cuDNN came from the wheel, which lacked a seventh; the loader found that one "
    "in the system's folder. Every version number looked right.",
)
def cudnn_is_mixed(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A part that the loader finds elsewhere, or beside it in another version."""
    told = told_between_nodes(evidence, policy, "EA220", "libraries/cudnn/parts")
    yield from over_nodes(evidence, mixed_cudnn, told)


def mixed_cudnn(fingerprint: Fingerprint) -> Iterator[Found]:
    """The finding about a cuDNN whose parts do not come from one place, without its nodes."""
    for section, told in (
        ("libraries", facts_of(fingerprint, "libraries")),
        ("deep", mapping(facts_of(fingerprint, "deep").get("libraries"))),
    ):
        row = mapping(told.get("cudnn"))
        own = row.get("path")
        strays = sorted(_strays(row)) if isinstance(own, str) else []
        if not strays:
            continue
        folders = {_folder(path) for _, path, _ in strays} | {_folder(str(own))}
        lines = [f"{_named(path, version)}: {part}" for part, path, version in strays[:_PARTS_TOLD]]
        if len(strays) > _PARTS_TOLD:
            lines.append(f"and {len(strays) - _PARTS_TOLD} more parts")
        what = f"comes from {len(folders)} folders" if len(folders) > 1 else "has parts of another version"
        prefix = ("libraries",) if section == "libraries" else ("deep", "libraries")
        yield Found(
            f"cuDNN {row.get('version') or ''}".rstrip() + f" {what}",
            path=join_path(*prefix, "cudnn", "parts"),
            evidence=(f"{_named(str(own), row.get('version'))}: the library", *lines),
            hint=_ONE_CUDNN,
        )
        return


def _strays(row: Facts) -> Iterator[Tuple[str, str, Optional[str]]]:
    """Parts, paths and versions of those that lie elsewhere or are of another version."""
    for part, where in mapping(row.get("parts")).items():
        version = mapping(where).get("version")
        path = mapping(where).get("path") if isinstance(where, dict) else where
        if not isinstance(path, str) or path == "beside":
            continue
        # /lib is a link to /usr/lib on most systems: the same folder by two names.
        same_folder = _folder(path) == _folder(str(row.get("path")))
        if not same_folder or is_older(version, row.get("version")) or is_older(row.get("version"), version):
            yield str(part), path, version if isinstance(version, str) else None


def _folder(path: str) -> str:
    folder = os.path.dirname(path)
    return folder[len("/usr") :] if folder.startswith(("/usr/lib/", "/usr/lib64/")) else folder


@rule(
    "EA232",
    severity="error",
    scope="node",
    title="NCCL older than torch was built for",
    why="torch calls functions that it does not have: the import fails, or a collective does.",
    how_to_fix="Install the NCCL that torch asks for, and let no other come before it for the loader.",
)
def nccl_too_old(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By what torch's package asks for; a newer NCCL is fine."""
    yield from over_nodes(
        evidence, _old_nccl, told_between_nodes(evidence, policy, "EA214", "libraries/nccl")
    )


def _old_nccl(fingerprint: Fingerprint) -> Iterator[Found]:
    row, built = _nccl(fingerprint), _built_with(fingerprint, "nccl")
    if row.get("origin") == "static" or not is_older(row.get("version"), built):
        return
    if "nvidia-nccl" not in overwritten(fingerprint):
        yield Found(
            f"NCCL {row['version']} is loaded, and torch was built with {built}",
            path="libraries/nccl/version",
            evidence=where(row),
        )


@rule(
    "EA233",
    severity="warning",
    scope="node",
    title="NCCL from outside the environment",
    why="No lock holds it: an update of the system changes it on this node alone.",
    case="Vendor images build torch against the system's NCCL on purpose; an environment that has one of "
    "its own does not.",
)
def nccl_from_outside(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Silent where the interpreter is the system's and has no NCCL of its own."""
    told = told_between_nodes(evidence, policy, "EA214", "libraries/nccl")
    told |= told_between_nodes(evidence, policy, "EA221", "libraries/nccl")
    yield from over_nodes(evidence, _outside_nccl, told)


def _outside_nccl(fingerprint: Fingerprint) -> Iterator[Found]:
    libraries = facts_of(fingerprint, "libraries")
    row = _nccl(fingerprint)
    if row.get("origin") in (None, *_OWN) or any(_old_nccl(fingerprint)):
        return
    copies = mapping(mapping(libraries.get("copies")).get("nccl"))
    own = sorted(path for path in copies if path.startswith("{"))
    if not own and facts_of(fingerprint, "python").get("prefix") in (None, *_SYSTEM_PREFIXES):
        return
    lines = [*where(row), *(f"not taken: {_named(path, copies[path])}" for path in own)]
    usual = torch_default(facts_of(fingerprint, "torch").get("version"))
    if usual is not None and not own:
        lines.append(f"torch's usual build comes with {usual.nccl}")
    via = str(row.get("via") or "")
    out = {"LD_LIBRARY_PATH": "Take its folder out of", "LD_PRELOAD": "Take it out of"}.get(via)
    hint = f"{out} {via}" if out else "Let the environment bring its own"
    yield Found(
        f"NCCL {row.get('version') or ''}".rstrip() + f" is loaded from {_origin(row)}, not the environment",
        path="libraries/nccl/origin",
        evidence=tuple(lines),
        hint=f"{hint}, or accept it: envaudit waive EA233 --until DAY --reason WHY.",
    )


@rule(
    "EA234",
    severity="error",
    scope="node",
    title="NCCL built for a newer CUDA than the driver runs",
    why="NCCL ends with 'CUDA driver version is insufficient', whatever torch and nvcc were built for.",
    case="A driver of CUDA 10.2, nvcc of 10.1, and a system NCCL built for CUDA 11: the driver was called "
    "insufficient, and neither of the two numbers that people compared was the cause.",
)
def nccl_needs_newer_driver(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By NCCL's own suffix, +cuda11.0; where torch itself needs another driver, that is told instead."""
    yield from over_nodes(evidence, _nccl_and_driver)


def _nccl_and_driver(fingerprint: Fingerprint) -> Iterator[Found]:
    row, gpu = _nccl(fingerprint), facts_of(fingerprint, "gpu")
    needs = numbers(row.get("cuda"))
    runs, driver = _driver(fingerprint)
    floor = driver_floor(row.get("cuda"))
    if not needs or gpu.get("platform") == "tegra":
        return
    by_cuda = bool(numbers(runs)) and numbers(runs)[0] < needs[0]
    by_driver = not numbers(runs) and gpu.get("platform") != "wsl" and is_older(driver, floor)
    torch_cuda = numbers(facts_of(fingerprint, "torch").get("cuda"))
    if (by_cuda or by_driver) and not (torch_cuda and torch_cuda[0] >= needs[0]):
        newest = f", which runs CUDA {runs} at most" if runs else ""
        update = f", or a driver from {floor} on" if floor else ""
        yield Found(
            f"NCCL {row.get('version') or ''}".rstrip()
            + f" was built for CUDA {row['cuda']}, and the driver is {driver or 'older'}{newest}",
            path="libraries/nccl/cuda",
            evidence=where(row),
            hint=f"Install an NCCL built for CUDA {runs or (torch_cuda or needs)[0]}{update}.",
        )


def _driver(fingerprint: Fingerprint) -> Tuple[Optional[str], Optional[str]]:
    """The newest CUDA that the driver library runs, as far as it is told, and its version."""
    gpu, cuda = facts_of(fingerprint, "gpu"), facts_of(fingerprint, "cuda")
    if cuda.get("compat"):
        # The forward-compatibility driver runs what its own version says, not the kernel module's.
        return None, _text(mapping(cuda.get("libcuda")).get("version"))
    return _text(gpu.get("cuda")), _text(gpu.get("driver"))


@rule(
    "EA235",
    severity="error",
    scope="node",
    title="a library that torch needs is nowhere",
    why="import torch ends with 'cannot open shared object file'.",
    how_to_fix=_FIND_IT,
)
def library_missing(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """What the loader finds in none of the folders on its way; a running torch knows better."""
    told = told_between_nodes(evidence, policy, "EA220", "libraries/missing")
    yield from over_nodes(evidence, missing_libraries, told)


def missing_libraries(fingerprint: Fingerprint) -> Iterator[Found]:
    """The finding about libraries that the loader cannot find, without its nodes."""
    missing = facts_of(fingerprint, "libraries").get("missing")
    if not isinstance(missing, list) or not missing or facts_of(fingerprint, "deep").get("import") == "ok":
        return
    names = sorted(map(str, missing))
    asker = mapping(facts_of(fingerprint, "libraries").get("torch")).get("library")
    yield Found(
        f"{', '.join(names[:3])}{' and more' if len(names) > 3 else ''} cannot be found for torch",
        path="libraries/missing",
        evidence=(f"needed by {asker}",) if asker else (),
        hint=_FIND_IT,
    )


@rule(
    "EA236",
    severity="info",
    scope="node",
    title="a CUDA library is preloaded",
    why="It comes before the environment's own copy in every process, also in those that need another.",
    how_to_fix="Take it out of LD_PRELOAD where nobody remembers why it is there.",
)
def library_preloaded(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By the loader's answer: a preload that loses to nothing and is used by torch."""
    yield from over_nodes(evidence, _preloaded)


def _preloaded(fingerprint: Fingerprint) -> Iterator[Found]:
    libraries = facts_of(fingerprint, "libraries")
    for family, row in sorted(libraries.items()):
        via = mapping(row).get("via")
        # An NCCL from outside is a finding of its own.
        if via not in _PRELOADED or (family == "nccl" and row.get("origin") not in _OWN):
            continue
        copies = mapping(mapping(libraries.get("copies")).get(family))
        own = sorted(path for path in copies if path.startswith("{"))
        others = [copies[path] for path in own if copies[path] and copies[path] != row.get("version")]
        yield Found(
            f"{family} {row.get('version') or ''}".rstrip() + f" is preloaded by {via}",
            path=join_path("libraries", family, "via"),
            evidence=(str(row.get("path")), *(f"not taken: {_named(path, copies[path])}" for path in own)),
            severity="warning" if others else "",
        )


def _nccl(fingerprint: Fingerprint) -> Facts:
    return mapping(facts_of(fingerprint, "libraries").get("nccl"))


def _built_with(fingerprint: Fingerprint, family: str) -> Optional[str]:
    torch = mapping(facts_of(fingerprint, "libraries").get("torch"))
    return _text(mapping(torch.get("built_with")).get(family))


def where(row: Facts) -> Tuple[str, ...]:
    """Where a library is loaded from, and which step of the loader's order led there."""
    path, via = row.get("path"), row.get("via")
    if not isinstance(path, str):
        return ()
    return (f"loaded from {path}" + (f", found by {via}" if via else ""),)


def _origin(row: Facts) -> str:
    return {"system": "the system", "toolkit": "a toolkit"}.get(str(row.get("origin")), "another folder")


def _named(path: str, version: Any) -> str:
    return f"{path} ({version})" if isinstance(version, str) else path


def _text(value: Any) -> Optional[str]:
    return value if isinstance(value, str) else None
