"""Whether a lock trains on GPUs: solvers take a CPU build as gladly as one for CUDA."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Tuple

from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule

Facts = Dict[str, Any]

# torch and what is compiled against it.
_TORCH = ("pytorch", "torch", "torchvision", "torchaudio", "torchtext")
# Where a message names the platforms: those with the same finding share one.
_ON = "{on}"


@rule(
    "EA080",
    severity="error",
    scope="node",
    needs=("lockfile",),
    title="CPU build where CUDA was asked for",
    why="The environment imports and runs, and trains on no GPU.",
)
def cpu_build(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A framework was solved to a CPU-only build although a line of the source asks for CUDA."""
    yield from _over_platforms(evidence, _cpu_build)


def _cpu_build(path: str, facts: Facts, suggestions: Dict[str, bool]) -> Iterator[Found]:
    builds = _cpu_builds(facts)
    if builds and facts["asks_cuda"]:
        asked = facts["asks_cuda"][0]
        yield Found(
            f"{_told(builds[0])} is a CPU build {_ON}, although {asked['text']} asks for CUDA",
            path=f"{asked['path']}:{asked['line']}:{asked['column']}",
            evidence=tuple(f"{path}: {_told(build)}" for build in builds[1:]),
            hint=_advice(builds[0], suggestions, facts["assumes_cuda"]),
        )


@rule(
    "EA081",
    severity="warning",
    scope="node",
    needs=("lockfile",),
    title="CPU build, and nobody asked for one",
    why="Where the nodes have GPUs, the environment does not use them.",
)
def silent_cpu_build(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """A framework was solved to a CPU-only build, while the solve assumed a machine with CUDA."""
    yield from _over_platforms(evidence, _silent_cpu_build)


def _silent_cpu_build(path: str, facts: Facts, suggestions: Dict[str, bool]) -> Iterator[Found]:
    builds = _cpu_builds(facts)
    if builds and facts["assumes_cuda"] and not facts["asks_cuda"] and not facts["asks_cpu"]:
        assumed = facts["assumes_cuda"]
        advice = _advice(builds[0], suggestions, assumed)
        yield Found(
            f"{_told(builds[0])} is a CPU build {_ON}, and the solve assumed CUDA {assumed}",
            path=path,
            evidence=tuple(_told(build) for build in builds[1:]),
            hint=f"{advice} If no GPU is meant, say so with --cuda none.",
        )


@rule(
    "EA082",
    severity="warning",
    scope="node",
    needs=("lockfile",),
    title="cudatoolkit that nothing depends on",
    why="It is installed and loaded by nothing: the CUDA that it names is not the one that is used.",
    how_to_fix="Take it out, and ask for the build instead: pytorch=2.0.1=*cuda11.8*, or pytorch-cuda=11.8.",
)
def unused_cudatoolkit(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """No locked package has it among its dependencies."""
    yield from _over_platforms(evidence, _unused_cudatoolkit)


def _unused_cudatoolkit(path: str, facts: Facts, suggestions: Dict[str, bool]) -> Iterator[Found]:
    for version in facts["unused"]:
        yield Found(f"nothing depends on cudatoolkit {version} {_ON}", path=path)


@rule(
    "EA083",
    severity="error",
    scope="node",
    needs=("lockfile",),
    title="CUDA family not on one version",
    why="Libraries of two CUDA releases in one process: symbols are missing, or kernels fail at run time.",
    how_to_fix="Pin the CUDA version once, with cuda-version or pytorch-cuda, and lock again.",
)
def cuda_family(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Packages of the toolkit of different versions, or a build for another CUDA than the toolkit's.

    A build for an older minor version of the same major is fine: CUDA 11 and newer run it.
    """
    yield from _over_platforms(evidence, _cuda_family)


def _cuda_family(path: str, facts: Facts, suggestions: Dict[str, bool]) -> Iterator[Found]:
    yield from _torch_apart(path, facts["cuda"])
    toolkit: Dict[str, List[str]] = {}
    for each in facts["cuda"]:
        if each["by"] == "version":
            toolkit.setdefault(each["cuda"], []).append(f"{each['name']} {each['version']}")
    if len(toolkit) > 1:
        # The version that fewest packages have is named first: it is mostly the odd one.
        ranked = sorted(toolkit.items(), key=lambda item: (len(item[1]), item[0]))
        named = " beside ".join(f"CUDA {cuda} ({members[0]})" for cuda, members in ranked[:2])
        yield Found(
            f"{named} {_ON}",
            path=path,
            evidence=tuple(f"CUDA {cuda}: {', '.join(members)}" for cuda, members in ranked),
        )
    elif toolkit:
        yield from _wrong_builds(path, facts["cuda"], next(iter(toolkit)))


def _torch_apart(path: str, cuda: List[Facts]) -> Iterator[Found]:
    """Of torch and its extensions, compiled for two versions of CUDA: the extension does not load.

    Wheels carry their CUDA and must agree on it; builds of conda share the environment's, so that
    those of one major version go together.
    """
    built = [each for each in cuda if each["by"] == "build" and each["name"] in _TORCH]
    exactly = any(each["manager"] == "pip" for each in built)
    if len({each["cuda"] if exactly else _numbers(each["cuda"])[0] for each in built}) > 1:
        named = " beside ".join(f"{each['name']} for CUDA {each['cuda']}" for each in built)
        yield Found(f"{named} {_ON}", path=path)


def _wrong_builds(path: str, cuda: List[Facts], toolkit: str) -> Iterator[Found]:
    wrong = [each for each in cuda if each["by"] == "build" and not _runs_on(each["cuda"], toolkit)]
    if wrong:
        yield Found(
            f"{wrong[0]['name']} is built for CUDA {wrong[0]['cuda']}, the lock has CUDA {toolkit} {_ON}",
            path=path,
            evidence=tuple(f"{each['name']} {each['version']} {each['build']}".rstrip() for each in wrong),
        )


def _runs_on(built: str, toolkit: str) -> bool:
    """Whether a build for `built` (`11.8`, or a bare major) runs with the libraries of `toolkit`."""
    need, have = _numbers(built), _numbers(toolkit)
    if need[0] != have[0]:
        return False
    return len(need) < 2 or need[1] <= have[1] if need[0] >= 11 else need == have[: len(need)]


def _numbers(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _cpu_builds(facts: Facts) -> List[Facts]:
    """The frameworks on the CPU, pytorch itself first; what merely chooses the variant last."""
    builds = [each for each in facts["frameworks"] if each["variant"] == "cpu"]
    choosers = ("pytorch-mutex", "cpuonly")
    real = [each for each in builds if each["name"] not in choosers]
    return sorted(real or builds, key=lambda each: (each["name"] not in ("pytorch", "torch"), each["name"]))


def _told(package: Facts) -> str:
    return f"{package['name']} {package['version']} {package['build']}".rstrip()


def _advice(build: Facts, suggestions: Dict[str, bool], assumed: str) -> str:
    """What to write; a suggestion that was tried is told with its result.

    The CUDA that is assumed by default is older than what the newest builds ask for.
    """
    solving = [spec for spec, solves in suggestions.items() if solves]
    failing = [spec for spec, solves in suggestions.items() if not solves]
    if solving:
        return f"Write {solving[0]}: it solves."
    if failing:
        text = (
            f"{' and '.join(failing)} were tried and do not solve: these channels have no CUDA build "
            "that fits the other specs and virtual packages."
        )
        newer = f" Where the nodes' driver serves a newer CUDA than {assumed}, say so with --cuda VERSION."
        return text + newer if assumed else text
    if build["name"] == "torch":
        return "Take the wheel of the CUDA that is meant: torch==2.5.1+cu121 with its index."
    return f"Ask for the build: {build['name']}={build['version']}=*cuda*, or pytorch-gpu on conda-forge."


def _over_platforms(
    evidence: Evidence, judge: Callable[[str, Facts, Dict[str, bool]], Iterator[Found]]
) -> Iterator[Found]:
    """What `judge` says of each platform; what it says of several is one finding."""
    found: Dict[Found, List[str]] = {}
    for path, platform, facts, suggestions in _platforms(evidence):
        for each in judge(path, facts, suggestions):
            found.setdefault(each, []).append(platform)
    for each, platforms in found.items():
        yield each._replace(message=each.message.replace(_ON, f"on {', '.join(platforms)}"))


def _platforms(evidence: Evidence) -> Iterator[Tuple[str, str, Facts, Dict[str, bool]]]:
    """The lock's path, platform, its facts, and the suggestions that were tried."""
    for fingerprint in evidence.fingerprints:
        sections = fingerprint.sections
        if "lockfile" not in sections:
            continue
        solve: Facts = sections["solve"].facts if "solve" in sections else {"suggestions": {}}
        facts: Facts = sections["lockfile"].facts
        for platform, each in facts["platforms"].items():
            yield str(facts["path"]), platform, each, solve["suggestions"]
