"""The NVIDIA driver: old enough for nothing, too old for torch's CUDA, or not one driver at all."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional

from envaudit.model.drift import Drift
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.cards import is_linux, noted, whole_number
from envaudit.rules.compatibility import driver_floor, is_older, newest_cuda, numbers, toolkit_driver
from envaudit.rules.pernode import facts_of, mapping, over_nodes, told_between_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Evidence, Found, difference, rule

# What follows from another driver: its libraries and firmware, and what only newer ones tell.
_WITH_DRIVER = (
    *("cuda/libcuda/**", "cuda/libcuda", "cuda/compat", "gpu/module", "gpu/nvml", "gpu/cuda", "gpu/flavour"),
    *("gpu/each/gsp_firmware", "gpu/each/gsp_mode", "gpu/each/addressing", "gpu/each/memory_bytes"),
    *("gpu/each/recovery_action", "gpu/each/sram_threshold_exceeded", "gpu/each/fabric_health"),
    *("gpu/devices/*/gsp_firmware", "gpu/fabric_manager/version", "gpu/confidential"),
    *("gpu/amd/rocm",),
)


def _branch_differs(drift: Drift, policy: Policy) -> bool:
    """Whether the versions differ in their first part: 550 and 570."""
    branches = {numbers(group.value)[:1] for group in drift.groups if group.state == "present"}
    return len(branches - {()}) > 1


@difference(
    "EA331",
    severity="warning",
    title="driver differs",
    why="Nodes in the middle of an update are normal; for bugs that only some nodes have, look here first.",
    of=("gpu/driver", "gpu/amd/driver"),
    follows=_WITH_DRIVER,
    order=26,
    how_to_fix="Finish the update: install the others' driver, and reboot.",
)
def driver_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Of one branch."""
    if _is_told_as_too_old(claim, policy):
        return
    yield claim.found("driver differs", evidence=("same branch",))


@difference(
    "EA332",
    severity="warning",
    title="driver branch differs",
    why="Another branch brings another CUDA and other firmware: what is compiled at run time may differ.",
    of=("gpu/driver", "gpu/amd/driver"),
    when=_branch_differs,
    follows=_WITH_DRIVER,
    order=25,
    compared="by its first part",
    how_to_fix="Finish the update: install the others' driver, and reboot.",
)
def driver_branch_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Each of them may still run what is installed: that is for EA330."""
    if _is_told_as_too_old(claim, policy):
        return
    yield claim.found("driver branch differs")


def _is_told_as_too_old(claim: Claim, policy: Policy) -> bool:
    """Whether EA330 speaks of all these nodes: a driver that cannot run at all need not differ as well."""
    silenced = policy.level_of("EA330", "error") != "error"
    if silenced or any(waiver.rule == "EA330" for waiver in policy.waivers):
        return False
    at_fault = [each for each in claim.evidence.fingerprints if each.node in claim.nodes]
    return bool(at_fault) and all(any(_too_old(each)) for each in at_fault)


class _Driver(NamedTuple):
    """The driver that a program runs on: its version, the fact that tells it, and how it is called."""

    version: Optional[str]
    path: str
    words: str


def _running(fingerprint: Fingerprint) -> _Driver:
    """The libcuda that the loader takes; where none is told, the driver as NVML has it."""
    cuda, gpu = facts_of(fingerprint, "cuda"), facts_of(fingerprint, "gpu")
    libcuda = mapping(cuda.get("libcuda"))
    version = libcuda.get("version")
    if isinstance(version, str) and cuda.get("compat") is True:
        return _Driver(version, "cuda/libcuda/version", f"libcuda of cuda-compat is {version}")
    driver = gpu.get("driver")
    if not isinstance(driver, str) and isinstance(version, str):
        return _Driver(version, "cuda/libcuda/version", f"libcuda is {version}")
    return _Driver(driver if isinstance(driver, str) else None, "gpu/driver", f"the driver is {driver}")


@rule(
    "EA330",
    severity="error",
    scope="node",
    needs=("gpu", "torch"),
    title="driver too old for torch's CUDA",
    why="CUDA does not start: 'driver version is insufficient for CUDA runtime version'.",
)
def driver_too_old(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By CUDA's major version; an older CUDA runs on any newer driver."""
    claims = [claim for name in ("EA331", "EA332") for claim in evidence.claims.get(name, ())]
    for found in over_nodes(evidence, _too_old):
        own = [claim for claim in claims if _is_told_as_too_old(claim, policy)]
        about = [claim for claim in own if set(found.nodes).issuperset(claim.nodes)]
        following = tuple(drift for claim in about for drift in (*claim.drifts, *claim.following))
        yield found._replace(following=following)


def _too_old(fingerprint: Fingerprint) -> Iterator[Found]:
    torch, gpu = facts_of(fingerprint, "torch"), facts_of(fingerprint, "gpu")
    built, newest = torch.get("cuda"), gpu.get("cuda")
    if not numbers(built) or gpu.get("platform") == "tegra" or not whole_number(gpu.get("count")):
        return
    driver, floor = _running(fingerprint), driver_floor(built)
    named = f"torch {torch.get('version') or ''}".rstrip()
    if is_linux(fingerprint) and driver.version is not None and floor is not None:
        if is_older(driver.version, floor):
            fits = newest_cuda(driver.version)
            yield Found(
                f"{driver.words}, and CUDA {built} needs {floor} or newer",
                path=driver.path,
                evidence=(f"{named} is built for CUDA {built}",),
                hint=f"Update the driver, or install a torch built for CUDA {fits or 'of an older release'}.",
            )
    # Windows numbers its drivers in another way; what it runs is the same.
    elif numbers(newest) and numbers(newest)[0] < numbers(built)[0] and driver.path == "gpu/driver":
        yield Found(
            f"the driver runs CUDA {newest} at most, and torch is built for {built}",
            path="gpu/cuda",
            evidence=(f"{named} is built for CUDA {built}", driver.words),
            hint=f"Update the driver, or install a torch built for CUDA {numbers(newest)[0]}.",
        )


@rule(
    "EA333",
    severity="info",
    scope="node",
    needs=("gpu", "torch"),
    title="minor-version compatibility",
    why="Any driver of a CUDA major runs all its minors; only code that is compiled at run time (PTX) and "
    "single new functions ask for the newer driver.",
    how_to_fix="Nothing has to be done.",
)
def minor_version_compatibility(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Between the floor and the driver that came with the toolkit; from CUDA 11 on."""
    yield from over_nodes(evidence, _minor)


def _minor(fingerprint: Fingerprint) -> Iterator[Found]:
    built, gpu = facts_of(fingerprint, "torch").get("cuda"), facts_of(fingerprint, "gpu")
    driver, own = _running(fingerprint), toolkit_driver(built)
    known = numbers(built)[:1] >= (11,) and gpu.get("platform") != "tegra" and is_linux(fingerprint)
    floor = driver_floor(built)
    between = is_older(driver.version, own) and floor is not None and not is_older(driver.version, floor)
    if known and whole_number(gpu.get("count")) and between:
        yield Found(
            f"{driver.words}, and CUDA {built} came with {own}: minor-version compatibility",
            path=driver.path,
            evidence=(f"CUDA {numbers(built)[0]} runs on drivers from {floor} on",),
        )


@rule(
    "EA334",
    severity="error",
    scope="node",
    needs=("gpu",),
    title="kernel module and driver libraries differ",
    why="After an update the old module stays loaded: NVML and CUDA refuse to work with it, and no GPU is "
    "found although all are there.",
    how_to_fix="Reboot, or reload the module (as root, with the GPUs idle: rmmod nvidia_uvm nvidia_drm "
    "nvidia_modeset nvidia, then modprobe nvidia).",
)
def module_and_library_differ(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By libnvidia-ml, or the libcuda of the system; never by that of cuda-compat."""
    yield from over_nodes(evidence, _two_drivers)


def _two_drivers(fingerprint: Fingerprint) -> Iterator[Found]:
    gpu, cuda = facts_of(fingerprint, "gpu"), facts_of(fingerprint, "cuda")
    driver = gpu.get("driver")
    kernel = driver if gpu.get("module") == "as driver" else gpu.get("module")
    if not numbers(kernel) or not is_linux(fingerprint):
        return
    nvml = driver if gpu.get("nvml") == "as driver" else gpu.get("nvml")
    libcuda = mapping(cuda.get("libcuda"))
    from_system = libcuda.get("version") if libcuda.get("origin") == "system" else None
    for name, version, path in (
        ("libnvidia-ml", _bare(nvml), "gpu/nvml"),
        ("libcuda", from_system, "cuda/libcuda/version"),
    ):
        if numbers(version) and numbers(version) != numbers(kernel):
            yield Found(
                f"kernel module {kernel}, {name} {version}",
                path=path,
                evidence=("the GPUs are there; the two halves of the driver do not fit",),
            )
            return


def _bare(version: object) -> Optional[str]:
    """`550.54.15` of `12.550.54.15`: libnvidia-ml puts its CUDA major before the driver's version."""
    parts = numbers(version)
    if len(parts) > 2 and parts[0] < 100 <= parts[1]:
        return str(version).partition(".")[2]
    return version if isinstance(version, str) else None


@rule(
    "EA335",
    severity="error",
    scope="node",
    needs=("gpu",),
    title="GPUs without a driver",
    why="No CUDA program finds a GPU, although the node has some.",
    how_to_fix="Load the module (modprobe nvidia, as root) and see dmesg if it does not load; after an "
    "update of the kernel it has to be built anew.",
)
def no_driver(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """The bus shows GPUs, and neither a module nor NVML; what a container is not shown proves nothing."""
    told = told_between_nodes(evidence, policy, "EA300", "gpu")
    yield from over_nodes(evidence, _no_driver, told)


def _no_driver(fingerprint: Fingerprint) -> Iterator[Found]:
    gpu = facts_of(fingerprint, "gpu")
    inventory = mapping(gpu.get("inventory"))
    on_bus = whole_number(inventory.get("pci"))
    unloaded = inventory.get("proc") is None and gpu.get("module") is None
    if on_bus and unloaded and gpu.get("driver") is None and gpu.get("platform") == "linux":
        holders = sorted(set(map(str, mapping(noted(fingerprint).get("other_drivers")).values())))
        yield Found(
            f"{on_bus} GPU{'s' * (on_bus > 1)} on the PCI bus, and no NVIDIA driver is loaded",
            path="gpu/module",
            evidence=(f"held by {', '.join(holders)}",) if holders else (),
        )
