"""Whether torch's GPU code runs on the GPUs of the node.

NVIDIA, CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility": a binary runs on
devices of its major compute capability and a minor that is not lower; PTX is compiled by the driver
for any newer device. Code for `sm_90a` runs on exactly that device; that for `sm_100f`, a family, on
those of its major and a minor that is not lower. Of Tegra chips before CUDA 13 a binary runs on
exactly its own.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.cards import Card, by_value, cards, named, usable
from envaudit.rules.compatibility import newest_cuda, numbers
from envaudit.rules.pernode import facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule

Capability = Tuple[int, int]

# The CUDA that first builds for a device (NVIDIA, CUDA Toolkit Release Notes).
_FIRST_CUDA: Mapping[str, str] = {
    "7.0": "9.0",
    "7.5": "10.0",
    "8.0": "11.0",
    "8.6": "11.1",
    "8.7": "11.4",
    "8.9": "11.8",
    "9.0": "11.8",
    "10.0": "12.8",
    "12.0": "12.8",
    "10.3": "12.9",
    "12.1": "12.9",
    "11.0": "13.0",
}
_CODE = re.compile(r"(sm|compute)_(\d{1,3})(\d)([af]?)")


class _Code(NamedTuple):
    """One piece of GPU code: a binary or PTX, for which device, and whether for that or its family alone."""

    is_ptx: bool
    capability: Capability
    suffix: str


@lru_cache(maxsize=64)
def codes_of(architectures: Tuple[str, ...]) -> Tuple[_Code, ...]:
    """What a list such as sm_80, sm_90a, compute_90 names; what is none of these is left out."""
    matches = [_CODE.fullmatch(name) for name in architectures]
    return tuple(
        _Code(match[1] == "compute", (int(match[2]), int(match[3])), match[4]) for match in matches if match
    )


def runs_on(code: _Code, device: Capability, *, exact: bool) -> bool:
    """Whether a piece of code runs on a device; `exact` for binaries of Tegra chips before CUDA 13."""
    if code.suffix == "a" or (exact and not code.is_ptx):
        return code.capability == device
    same_family = code.capability[0] == device[0] and code.capability[1] <= device[1]
    return code.capability <= device if code.is_ptx and not code.suffix else same_family


class _Fit(NamedTuple):
    """How torch's code runs on a device: as a `binary`, as `ptx`, as PTX `too_new` for the driver, `none`."""

    kind: str
    capability: str


@rule(
    "EA340",
    severity="error",
    scope="node",
    needs=("gpu", "torch"),
    title="torch has no code for the GPU",
    why="Every kernel ends with 'no kernel image is available', although cuda.is_available() is true.",
    case="An RTX 5090 with a build for CUDA 12.4: the list of architectures ended at sm_90, and "
    "is_available() was true. Builds for CUDA 12.8 have its code.",
)
def no_code(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Of the GPUs that this launch may use; a warning where others of the node do run it."""
    yield from over_nodes(evidence, _no_code, told_between_nodes(evidence, policy, "EA213", "torch"))


def _no_code(fingerprint: Fingerprint) -> Iterator[Found]:
    torch = facts_of(fingerprint, "torch")
    groups = _fits(fingerprint)
    some_run = any(fit.kind in ("binary", "ptx") for fit in groups)
    for fit, chosen in groups.items():
        if fit.kind == "none":
            product = chosen[0].facts.get("product")
            yield Found(
                f"torch {torch.get('version') or ''}".rstrip()
                + f" has no code for {product or named(chosen)}, compute capability {fit.capability}",
                path="torch/architectures",
                evidence=(f"built for {' '.join(map(str, torch['architectures']))}",),
                hint=_remedy(fit.capability, torch.get("cuda")),
                severity="warning" if some_run else "",
            )


def _remedy(capability: str, built: Any) -> str:
    first = _FIRST_CUDA.get(capability)
    if first is not None and numbers(built)[:2] < numbers(first):
        tag = "cu" + first.replace(".", "")
        return f"Install a torch built for CUDA {first} or newer ({tag} and later)."
    return f"Install a torch whose list has it, or build one with TORCH_CUDA_ARCH_LIST={capability}."


@rule(
    "EA341",
    severity="info",
    scope="node",
    needs=("gpu", "torch"),
    title="torch's code is compiled at its start",
    why="It has only PTX for this GPU: the driver compiles each kernel at its first use, once for each user.",
    how_to_fix="A build with a binary for the GPU starts at once; nothing has to be done.",
)
def compiled_late(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By PTX of an older device."""
    yield from over_nodes(evidence, lambda fingerprint: _about_ptx(fingerprint, "ptx"))


@rule(
    "EA342",
    severity="error",
    scope="node",
    needs=("gpu", "torch"),
    title="driver too old for torch's PTX",
    why="Every kernel ends with 'the provided PTX was compiled with an unsupported toolchain'.",
    how_to_fix="Update the driver to that of torch's CUDA, or install a torch that has a binary for the GPU.",
)
def ptx_too_new(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A driver takes PTX of its own CUDA or an older one: minor-version compatibility is for binaries."""
    yield from over_nodes(evidence, lambda fingerprint: _about_ptx(fingerprint, "too_new"))


def _about_ptx(fingerprint: Fingerprint, kind: str) -> Iterator[Found]:
    torch = facts_of(fingerprint, "torch")
    for fit, chosen in _fits(fingerprint).items():
        if fit.kind == kind:
            product = chosen[0].facts.get("product") or named(chosen)
            words = f"torch has only PTX for {product}, compute capability {fit.capability}"
            if kind == "too_new":
                runs = _driver_cuda(fingerprint)
                words += f": made by CUDA {torch.get('cuda')}, and the driver takes that of {runs} at most"
            yield Found(
                words,
                path="torch/architectures",
                evidence=(f"built for {' '.join(map(str, torch['architectures']))}",),
            )


def _fits(fingerprint: Fingerprint) -> Dict[_Fit, List[Card]]:
    """The GPUs of this launch by how torch's code runs on them; nothing where either is not known."""
    torch, gpu = facts_of(fingerprint, "torch"), facts_of(fingerprint, "gpu")
    listed, built = torch.get("architectures"), torch.get("cuda")
    if not isinstance(listed, list) or not numbers(built):
        return {}
    codes = codes_of(tuple(name for name in listed if isinstance(name, str)))
    if not codes:
        return {}
    exact = gpu.get("platform") == "tegra" and numbers(built) < (13,)
    runs = _driver_cuda(fingerprint)
    too_new = bool(numbers(runs)) and numbers(runs)[:2] < numbers(built)[:2]

    def fit(card: Card) -> Optional[_Fit]:
        device = numbers(card.facts.get("compute_capability"))
        if len(device) != 2:
            return None
        return _Fit(_kind(codes, (device[0], device[1]), exact, too_new), f"{device[0]}.{device[1]}")

    return by_value(usable(fingerprint) or cards(fingerprint), fit)


@lru_cache(maxsize=256)
def _kind(codes: Tuple[_Code, ...], device: Capability, exact: bool, too_new: bool) -> str:
    running = [code for code in codes if runs_on(code, device, exact=exact)]
    if any(not code.is_ptx for code in running):
        return "binary"
    if running:
        return "too_new" if too_new else "ptx"
    return "none"


def _driver_cuda(fingerprint: Fingerprint) -> Optional[str]:
    """The newest CUDA that the driver library runs: that of cuda-compat where it is taken."""
    cuda, gpu = facts_of(fingerprint, "cuda"), facts_of(fingerprint, "gpu")
    if cuda.get("compat") is True:
        return newest_cuda(mapping(cuda.get("libcuda")).get("version"))
    told = gpu.get("cuda")
    return told if isinstance(told, str) else None
