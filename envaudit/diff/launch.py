"""Facts that belong to how the probe was started, not to the node.

An ssh session and a Slurm step have other variables, limits and visible GPUs on a healthy node.
Two environments that were asked for by different paths lie at different places, and may still be
alike in all that matters. Such facts are compared only between nodes that were started alike, and
facts that one source alone tells only between nodes that it was asked on.
"""

from __future__ import annotations

from typing import Dict, Iterable, NamedTuple, Tuple

from envaudit.model.fingerprint import Fingerprint

Path = Tuple[str, ...]


class Start(NamedTuple):
    """One thing that whoever starts a probe chooses.

    Attributes:
        word: what a drift calls another choice, `other launch`.
        said: the fact that names the choice; that two differ is no drift by itself.
        paths: the facts, and all below them, that follow from the choice.
        usual: the choice of a node that does not say.
    """

    word: str
    said: Path
    paths: Tuple[Path, ...]
    usual: str = "unknown"


LAUNCH = Start(
    word="other launch",
    said=("host", "launch"),
    paths=(
        # Found through PATH, CUDA_HOME and LD_LIBRARY_PATH; a step of `srun --export=NONE` has none.
        ("cuda", "compat"),
        ("cuda", "home"),
        ("cuda", "libcuda"),
        ("cuda", "nvcc"),
        ("deep",),
        ("env",),
        ("git",),
        ("gpu", "amd", "visible"),
        ("gpu", "visible"),
        ("libraries",),
        ("limits",),
        # Which interface and HCA NCCL_SOCKET_IFNAME and its like name, and the GID that follows.
        ("network", "selection"),
        # PYTHONUTF8, PYTHONUNBUFFERED and a locale of C set flags; PYTHONPATH adds folders.
        ("python", "customized"),
        ("python", "encodings"),
        ("python", "flags"),
        ("python", "path_outside_prefix"),
        ("storage", "hf_home"),
        ("storage", "workdir"),
        # To read it takes root.
        ("topology", "acs"),
    ),
)
INTERPRETER = Start(
    word="other interpreter",
    said=("python", "asked"),
    paths=(
        ("conda", "name"),
        ("conda", "prefix"),
        ("python", "exec_prefix"),
        ("python", "executable"),
        ("python", "prefix"),
        ("python", "site_packages"),
        # "as prefix" where they lie on its mount.
        ("storage", "hf_home"),
        ("storage", "prefix"),
        ("storage", "workdir"),
    ),
)
INTEGRITY = Start(
    word="other integrity mode",
    said=("integrity", "mode"),
    # An edit that keeps a file's size is seen by who reads it, not by who looks at sizes.
    paths=(("integrity",),),
)
# An environment that was read without being started does not tell what only a start tells: its
# flags, what follows from variables, and the versions that its libraries and nvcc give themselves.
STATIC = Start(
    word="other interpreter",
    said=("python", "started"),
    paths=(
        ("cuda", "nvcc"),
        ("libraries",),
        ("python", "customized"),
        ("python", "encodings"),
        ("python", "flags"),
        ("python", "path_outside_prefix"),
        ("python", "user_site"),
    ),
)
# What NVML says of GPUs, and nvidia-smi, which stands in where that library cannot be loaded, does not;
# of the applications' clocks it says under newer drivers that they are deprecated.
NVML = Start(
    word="other source",
    said=("gpu", "source"),
    paths=(
        ("gpu", "confidential"),
        ("gpu", "nvml"),
        ("gpu", "each", "clock_application_graphics_mhz"),
        ("gpu", "each", "clock_application_memory_mhz"),
        ("gpu", "each", "compute_capability"),
        ("gpu", "each", "gsp_mode"),
        ("gpu", "each", "nvlink_mbps"),
        ("gpu", "each", "nvlink_version"),
        ("gpu", "each", "nvlinks"),
        ("gpu", "each", "nvlinks_up"),
    ),
    usual="NVML",
)
# Maps that have a key for each thing that was asked for, null where nothing was found: the configuration
# names folders, and a baseline may be older than that.
ASKED_FOR: Tuple[Path, ...] = (("storage",),)
STARTS = (LAUNCH, INTERPRETER, INTEGRITY, STATIC, NVML)


def choices(start: Start, fingerprints: Iterable[Fingerprint]) -> Dict[str, str]:
    """What was chosen for each node; the usual where its section does not say."""
    found = {}
    for fingerprint in fingerprints:
        section = fingerprint.sections.get(start.said[0])
        choice = section.facts.get(start.said[1]) if section is not None else None
        found[fingerprint.node] = choice if isinstance(choice, str) else start.usual
    return found
