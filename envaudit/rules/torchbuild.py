"""The build of torch on a node, against what the node is: its GPUs, its glibc, its compiler."""

from __future__ import annotations

from typing import Any, Iterator, Optional, Tuple

from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.compatibility import is_older, numbers, torch_default_of_minor
from envaudit.rules.pernode import facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, difference, rule

_TOOLKIT_VARIABLES = ("env/variables/CUDA_HOME", "env/variables/CUDA_PATH")


@rule(
    "EA240",
    severity="error",
    scope="node",
    needs=("torch", "gpu"),
    title="CPU-only torch on a node with GPUs",
    why="It imports and runs, trains on no GPU, and a job that asks for cuda ends.",
    case="'pytorch>=2.6,<3' alone gave a CPU build on nodes with A100s; another constraint in the same "
    "file turned it round.",
)
def cpu_torch(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Neither CUDA nor HIP, where a process of this launch may use a GPU."""
    yield from over_nodes(evidence, _cpu_torch, told_between_nodes(evidence, policy, "EA213", "torch/cuda"))


def _cpu_torch(fingerprint: Fingerprint) -> Iterator[Found]:
    torch = facts_of(fingerprint, "torch")
    gpus = gpus_of(fingerprint)
    if gpus and is_cpu_only(fingerprint):
        build = mapping(mapping(facts_of(fingerprint, "conda").get("packages")).get("pytorch")).get("build")
        kind = "ROCm" if "AMD" in gpus else "CUDA"
        if torch.get("packaging") == "conda" or build:
            fix = "Ask conda for the CUDA build: pytorch-gpu, or pytorch=*=*cuda*, and lock again."
        else:
            fix = f"Install the wheel that is built for {kind}, with its tag in the pin: torch==2.9.1+cu128."
            fix = fix.replace("+cu128", "+rocm6.4") if kind == "ROCm" else fix
        yield Found(
            f"torch {torch.get('version') or ''}".rstrip() + f" is a CPU build, and the node has {gpus}",
            path="torch/cuda",
            evidence=(f"conda build {build}",) if isinstance(build, str) else (),
            hint=fix,
        )


def is_cpu_only(fingerprint: Fingerprint) -> bool:
    """Whether torch is known to be built for no GPU at all."""
    torch = facts_of(fingerprint, "torch")
    return "cuda" in torch and torch["cuda"] is None and torch.get("hip") is None


def gpus_of(fingerprint: Fingerprint) -> str:
    """The GPUs that a process of this launch may use, `8 x NVIDIA H100`; empty where none is seen."""
    gpu = facts_of(fingerprint, "gpu")
    amd = mapping(gpu.get("amd"))
    for told, maker in ((gpu, "NVIDIA"), (amd, "AMD")):
        count = told.get("count")
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            continue
        if mapping(told.get("visible")).get("count") == 0:
            continue
        name = mapping(told.get("each")).get("product")
        return f"{count} x {name}" if isinstance(name, str) else f"{count} {maker} GPU{'s' * (count > 1)}"
    return ""


@rule(
    "EA241",
    severity="error",
    scope="node",
    needs=("torch", "host"),
    title="glibc older than torch needs",
    why="The loader refuses torch's libraries: version GLIBC_2.28 not found.",
    how_to_fix="Use a torch that was built for this system (an older one, or conda-forge's), or update it.",
)
def glibc_too_old(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By what torch's libraries ask for, else by the platform tag of its release's wheels."""
    yield from over_nodes(evidence, _glibc)


def _glibc(fingerprint: Fingerprint) -> Iterator[Found]:
    torch = facts_of(fingerprint, "torch")
    needed = mapping(facts_of(fingerprint, "libraries").get("torch")).get("glibc")
    read = "read from its libraries"
    if not isinstance(needed, str) and torch.get("packaging") == "wheel":
        usual = torch_default_of_minor(torch.get("version"))
        needed, read = usual.glibc if usual is not None else None, "the platform tag of its wheels"
    host = facts_of(fingerprint, "host").get("glibc")
    if is_older(host, needed):
        yield Found(
            f"the node has glibc {host}, and torch {torch.get('version') or ''}".rstrip()
            + f" needs {needed}",
            path="host/glibc",
            evidence=(f"needed: {needed}, {read}",),
        )


@rule(
    "EA242",
    severity="info",
    scope="node",
    needs=("torch", "cuda"),
    title="the compiler's CUDA is not torch's",
    why="It matters when an extension is built: torch's builder refuses another major version. What is "
    "installed already runs on the CUDA that torch brings.",
    how_to_fix="Set CUDA_HOME to a toolkit of torch's major version before you build.",
    case="Reports called nvcc's version 'the CUDA runtime'; torch ran on the CUDA of its own, and nothing "
    "was wrong.",
)
def other_compiler(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The toolkit that torch's extension builder would take: CUDA_HOME, nvcc on PATH, /usr/local/cuda."""
    yield from over_nodes(evidence, _compiler)


def _compiler(fingerprint: Fingerprint) -> Iterator[Found]:
    built = facts_of(fingerprint, "torch").get("cuda")
    found = _toolkit(facts_of(fingerprint, "cuda"))
    if found is None or not numbers(built):
        return
    path, where, version = found
    if numbers(version) and numbers(version)[0] != numbers(built)[0]:
        yield Found(
            f"{where} is of CUDA {'.'.join(version.split('.')[:2])}, and torch was built for {built}: that "
            "matters when an extension is built",
            path=path,
        )


@difference(
    "EA243",
    severity="warning",
    title="the toolkit that extensions are built with differs",
    why="An extension that is compiled there, as DeepSpeed's are at their first use, is built with another "
    "CUDA; torch itself brings its own libraries.",
    of=(*_TOOLKIT_VARIABLES, "cuda/home/**", "cuda/nvcc/**", "cuda/default", "cuda/toolkits/**"),
    how_to_fix="Set CUDA_HOME in the launch script for all ranks, or nowhere.",
)
def toolkits_differ(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Only told where no variable chooses another one: torch brings its own libraries."""
    chosen = [drift.path.rpartition("/")[2] for drift in claim.drifts if drift.path in _TOOLKIT_VARIABLES]
    if chosen:
        yield claim.found(f"{' and '.join(chosen)} {'differs' if len(chosen) == 1 else 'differ'}")
    else:
        yield claim.found("toolkits of CUDA differ", severity="info")


def _toolkit(cuda: Any) -> Optional[Tuple[str, str, str]]:
    """Path of the fact, what it is, and its version; None where no toolkit or no version is told.

    In the order of torch.utils.cpp_extension._find_cuda_home.
    """
    home, nvcc = mapping(cuda.get("home")), mapping(cuda.get("nvcc"))
    if home:
        found = ("cuda/home", f"{home.get('variable')} {home.get('path')}", home.get("version"))
    elif nvcc:
        found = ("cuda/nvcc", str(nvcc.get("path")), nvcc.get("version"))
    else:
        default = cuda.get("default")
        found = ("cuda/default", str(default), mapping(cuda.get("toolkits")).get(str(default)))
    path, where, version = found
    return (path, where, version) if isinstance(version, str) else None
