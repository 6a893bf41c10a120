"""What an environment.yml says about CUDA: whether a solve of it gives a build that trains on GPUs.

Sources of the facts: the recipes of the packages. From 1.13 on, pytorch of the channel `pytorch`
takes CUDA from `pytorch-cuda`, before from `cudatoolkit`; on conda-forge a build of pytorch is
chosen by its build string, `cuda126_*` or `cpu_*`.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule
from envaudit.rules.sourcefacts import (
    LINUX,
    WINDOWS,
    Facts,
    at,
    conda_entries,
    exact_version,
    others,
    overlap,
    pip_entries,
    sources_of,
    systems_of,
)

# The first version of pytorch that takes CUDA from pytorch-cuda.
_WITHOUT_CUDATOOLKIT = (1, 13)

# conda packages whose own version is a version of CUDA.
_CUDA_VERSIONED = (
    "cudatoolkit",
    "cuda-toolkit",
    "cuda-version",
    "pytorch-cuda",
    "cuda",
    "cuda-cudart",
    "cuda-runtime",
    "cuda-nvcc",
)
# Those of them that a training environment should not leave open.
_CUDA_TO_PIN = ("cudatoolkit", "cuda-toolkit", "cuda-version", "pytorch-cuda", "cuda")
# conda packages that pytorch's CUDA build is chosen with.
_CHOOSERS = ("pytorch-cuda", "pytorch-gpu", "cpuonly")
_CPU_BUILD = re.compile(r"(?:^|[_*])cpu")
_GPU_BUILD = re.compile(r"cuda|cu\d|gpu")

# `cuda11.8`, `cuda118_py310`, `cu118`, `+pt113cu117`, `whl/cu121`; `cuda12*` names the major only.
_CUDA_WORD = re.compile(r"(?<![a-z])(?:pt\d+)?cu(?:da)?_?(?:(\d{2})[._]?(\d{1,2})|(\d{2}))(?!\d)")


class _Mention(NamedTuple):
    """A version of CUDA that a line asks for; `minor` is None where it leaves that open."""

    entry: Facts
    major: int
    minor: Optional[int]

    def contradicts(self, other: _Mention) -> bool:
        if self.major != other.major:
            return True
        return self.minor is not None and other.minor is not None and self.minor != other.minor


@rule(
    "EA030",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="build of torch left open",
    why="Solvers take a CPU build of pytorch as gladly as a CUDA build, and another one next month.",
)
def open_build(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """No version of pytorch or CUDA, or nothing that chooses between pytorch's CUDA and CPU builds."""
    for source in sources_of(evidence):
        if not _has_cuda_systems(source):
            continue
        toolkits = conda_entries(source, "cudatoolkit")
        choosers = _choosers(source)
        without = {id(torch) for torch in _without_toolkit(source)}
        for torch in conda_entries(source, "pytorch"):
            chosen = _is_chosen(torch, choosers, toolkits)
            told = id(torch) in without and any(overlap(torch, each) for each in toolkits)
            if chosen and not torch["version"]:
                yield at(torch, "pytorch has no version", hint="Write one: pytorch=2.5.1.")
            elif not chosen and not told:
                message = "nothing chooses between pytorch's CUDA and CPU builds"
                if not torch["version"]:
                    message = f"pytorch has no version, and {message}"
                yield at(torch, message, hint=_build_advice(torch, source))
        for entry in conda_entries(source, *_CUDA_TO_PIN):
            if not entry["version"]:
                hint = "Write the version that pytorch is built for."
                yield at(entry, f"{entry['name']} has no version", hint=hint)
        for entry in pip_entries(source, "pip"):
            if entry["key"] == "torch" and not re.match(r"[=~]=", entry["version"]):
                message = "torch has no version" if not entry["version"] else "torch's version is left open"
                yield at(
                    entry, message, hint="Each torch on the index is built for one CUDA: write torch==2.5.1."
                )


@rule(
    "EA031",
    severity="warning",
    scope="node",
    needs=("envfile",),
    title="cudatoolkit that pytorch does not use",
    why="From 1.13 on pytorch takes CUDA from elsewhere, so that its CPU build meets both lines.",
)
def unused_toolkit(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """At the line of cudatoolkit; not where conda-forge is the only channel."""
    for source in sources_of(evidence):
        torches = _without_toolkit(source)
        for toolkit in conda_entries(source, "cudatoolkit"):
            torch = next((each for each in torches if overlap(each, toolkit)), None)
            if torch is None:
                continue
            message = f"{torch['text']} does not use {toolkit['text']}: the CPU build meets both"
            cuda = exact_version(toolkit["version"])
            pair = re.match(r"\d+\.\d+", cuda)
            version = f"={exact_version(torch['version'])}" if exact_version(torch["version"]) else ""
            pin = f"pytorch{version or '=*'}=*cuda{pair[0] if pair else ''}*"
            other = f", or add pytorch-cuda={pair[0]} where the channel has it," if pair else ""
            hint = f"Write {pin}{other} and take {toolkit['name']} out."
            yield at(toolkit, message, others([torch]), hint)


@rule(
    "EA032",
    severity="error",
    scope="node",
    needs=("envfile",),
    title="CPU build beside CUDA",
    why="The environment trains on no GPU, although it asks for CUDA.",
    how_to_fix="Take out the one that is not meant.",
)
def cpu_beside_cuda(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """`cpuonly`, `pytorch=*=cpu*` or `torch==2.5.1+cpu` with a line that asks for CUDA."""
    for source in sources_of(evidence):
        asking = _asking_for_cuda(source)
        for entry in source["entries"]:
            if not _asks_for_cpu(entry):
                continue
            beside = next((other for other in asking if overlap(entry, other)), None)
            if beside is not None:
                message = f"{entry['text']} is a CPU build, beside {beside['text']}"
                yield at(entry, message, others([beside]))


@rule(
    "EA033",
    severity="error",
    scope="node",
    needs=("envfile",),
    title="two versions of CUDA",
    why="Libraries of one process that bring different CUDA runtimes fail to load, or fail later.",
    how_to_fix="Ask for one version of CUDA in all lines.",
)
def two_cudas(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Versions, builds, local versions and index addresses; at the first that contradicts an earlier one."""
    for source in sources_of(evidence):
        seen: Dict[Tuple[object, ...], _Mention] = {}
        for mention in (mention for entry in source["entries"] for mention in _mentions(entry)):
            earlier = [
                other
                for other in seen.values()
                if mention.contradicts(other) and overlap(mention.entry, other.entry)
            ]
            if earlier:
                message = f"CUDA {_words(mention)} beside CUDA {_words(earlier[0])}"
                yield at(mention.entry, message, others([earlier[0].entry, mention.entry]))
                break
            platforms = tuple(mention.entry.get("platforms") or ())
            seen.setdefault((mention.major, mention.minor, platforms), mention)


def _has_cuda_systems(source: Facts) -> bool:
    """Whether the file is for a system that has CUDA at all."""
    return not {LINUX, WINDOWS}.isdisjoint(systems_of(source))


def _choosers(source: Facts) -> List[Facts]:
    """The lines that say if the CUDA or the CPU build of pytorch is meant."""
    mutexes = [each for each in conda_entries(source, "pytorch-mutex") if each.get("build")]
    return conda_entries(source, *_CHOOSERS) + mutexes


def _is_chosen(torch: Facts, choosers: List[Facts], toolkits: List[Facts]) -> bool:
    """Whether the line itself or another one says which build of pytorch is meant."""
    if torch.get("build") or torch.get("url"):
        return True
    if any(overlap(torch, each) for each in choosers):
        return True
    return _takes_cudatoolkit(torch) and any(overlap(torch, each) for each in toolkits)


def _takes_cudatoolkit(torch: Facts) -> bool:
    """Whether all versions of pytorch that an entry allows take CUDA from cudatoolkit."""
    upper = re.search(r"<(=?)(\d+)(?:\.(\d+))?", torch["version"])
    if upper:
        bound = int(upper[2]), int(upper[3] or 0)
        return bound < _WITHOUT_CUDATOOLKIT or (bound == _WITHOUT_CUDATOOLKIT and not upper[1])
    numbers = re.match(r"(\d+)\.(\d+)", exact_version(torch["version"]))
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < _WITHOUT_CUDATOOLKIT


def _without_toolkit(source: Facts) -> List[Facts]:
    """The lines of pytorch that do not take CUDA from cudatoolkit, and leave the build open."""
    names = {str(channel["text"]) for channel in source["channels"]}
    only_forge = bool(names) and names <= {"conda-forge", "nodefaults"}
    return [
        torch
        for torch in conda_entries(source, "pytorch")
        if not _takes_cudatoolkit(torch)
        and not torch.get("url")
        and not _GPU_BUILD.search(str(torch.get("build", "")))
        and (torch.get("channel") or not only_forge)
    ]


def _build_advice(torch: Facts, source: Facts) -> str:
    version = exact_version(torch["version"])
    # A range stays what it is, in the form of three fields.
    pinned = f"pytorch {torch['version']} " if torch["version"] and not version else ""
    pinned = pinned or f"pytorch={version or '2.5.1'}="
    named = {str(channel["text"]) for channel in source["channels"]} | {str(torch.get("channel", ""))}
    other = "a line pytorch-cuda=12.4" if "pytorch" in named else "the package pytorch-gpu"
    return f"Write {pinned}*cuda*, or {other}; where CPUs are meant, {pinned}*cpu*."


def _asks_for_cpu(entry: Facts) -> bool:
    if entry["kind"] == "conda":
        named = entry["key"] in ("pytorch", "pytorch-mutex", "torchvision", "torchaudio", "libtorch")
        return entry["key"] == "cpuonly" or (named and bool(_CPU_BUILD.search(str(entry.get("build", "")))))
    return entry["kind"] == "pip" and str(entry["version"]).endswith("+cpu")


def _asking_for_cuda(source: Facts) -> List[Facts]:
    found = []
    for entry in source["entries"]:
        if entry["kind"] == "conda":
            gpu_build = entry["key"].startswith("pytorch") and _GPU_BUILD.search(str(entry.get("build", "")))
            if entry["key"] in (*_CUDA_VERSIONED, "pytorch-gpu") or gpu_build:
                found.append(entry)
        elif entry["kind"] == "pip" and re.search(r"\+.*cu\d", entry["version"]):
            found.append(entry)
    return found


def _mentions(entry: Facts) -> Iterator[_Mention]:
    """The versions of CUDA that one line names."""
    if entry["kind"] == "conda":
        version = exact_version(entry["version"])
        numbers = re.match(r"(\d+)(?:\.(\d+))?(?![\d])", version)
        if entry["key"] in _CUDA_VERSIONED and numbers:
            yield _Mention(entry, int(numbers[1]), None if numbers[2] is None else int(numbers[2]))
        text = str(entry.get("build", ""))
    elif entry["kind"] == "pip":
        text = entry["version"].partition("+")[2] or _suffix_of(entry["key"])
    else:
        text = str(entry.get("value", ""))
    match = _CUDA_WORD.search(text)
    if match:
        major = int(match[1] or match[3])
        yield _Mention(entry, major, None if match[2] is None else int(match[2]))


def _suffix_of(name: str) -> str:
    """`cu12` of `cupy-cuda12x` and `nvidia-nccl-cu12`."""
    match = re.search(r"-(?:cuda|cu)(\d{2})x?\Z", name)
    return f"cu{match[1]}" if match else ""


def _words(mention: _Mention) -> str:
    return str(mention.major) if mention.minor is None else f"{mention.major}.{mention.minor}"
