"""cuda-compat, the forward-compatibility driver: a newer libcuda on an older kernel module."""

from __future__ import annotations

import re
from typing import Iterator, List, Tuple

from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.cards import cards, is_linux
from envaudit.rules.compatibility import is_older
from envaudit.rules.pernode import facts_of, mapping, over_nodes
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Evidence, Found, rule

# Where the forward-compatibility driver runs: NVIDIA, CUDA Compatibility, "Forward Compatibility":
# data-centre GPUs, some RTX cards of certified servers, Jetson; never GeForce or TITAN.
_DATA_CENTRE = re.compile(
    r"\b(?:Tesla|A100|A800|A30|A40|A10G?|A16|A2|H100|H200|H800|H20|GH200|L40S?|L20|L4|L2|V100S?|P100|P40|P4"
    r"|T4G?|K80|M60|B100|B200|B300|GB200|GB300|Server Edition)\b"
)
_CONSUMER = re.compile(r"\b(?:GeForce|TITAN)\b", re.IGNORECASE)


@rule(
    "EA337",
    severity="error",
    scope="node",
    needs=("gpu", "cuda"),
    title="cuda-compat on a GPU that does not support it",
    why="CUDA ends with 'forward compatibility was attempted on non supported HW' (804).",
    case="A container with cuda-compat on a GeForce: its newer libcuda came before the host's, and no CUDA "
    "program started.",
)
def compat_unsupported(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """By the names of the GPUs; of workstation cards only some support it."""
    yield from over_nodes(evidence, _compat_fails)


def _compat_fails(fingerprint: Fingerprint) -> Iterator[Found]:
    products = _products(fingerprint)
    odd = next((name for name in products if not _DATA_CENTRE.search(name)), None)
    path = mapping(facts_of(fingerprint, "cuda").get("libcuda")).get("path")
    if odd is None or not _has_compat(fingerprint):
        return
    never = next((name for name in products if _CONSUMER.search(name)), None)
    words = f"{never} does not support it" if never else f"whether {odd} supports it is not known"
    yield Found(
        f"libcuda is that of cuda-compat, {path}, and {words}",
        path="cuda/libcuda",
        evidence=_compat_versions(fingerprint),
        hint="Take the folder of cuda-compat out of LD_LIBRARY_PATH and ld.so.conf, so that the host's "
        "libcuda is taken, and update the host's driver where torch needs a newer one.",
        severity="" if never else "warning",
    )


@rule(
    "EA338",
    severity="info",
    scope="node",
    needs=("gpu", "cuda"),
    title="cuda-compat is in use",
    why="Programs run on a newer libcuda than the kernel module's: data-centre GPUs support that.",
    how_to_fix="Nothing has to be done; a newer driver on the host makes it unnecessary.",
)
def compat_in_use(evidence: Evidence, policy: Policy) -> Iterator[Found]:
    """Older than the host's driver it is a mistake: it takes a newer driver's place."""
    yield from over_nodes(evidence, _compat_works)


def _compat_works(fingerprint: Fingerprint) -> Iterator[Found]:
    products = _products(fingerprint)
    if not products or not _has_compat(fingerprint) or any(_compat_fails(fingerprint)):
        return
    libcuda, driver = (
        mapping(facts_of(fingerprint, "cuda").get("libcuda")),
        facts_of(fingerprint, "gpu").get("driver"),
    )
    if is_older(libcuda.get("version"), driver):
        yield Found(
            f"libcuda of cuda-compat is {libcuda['version']}, older than the driver {driver}",
            path="cuda/libcuda",
            evidence=_compat_versions(fingerprint),
            hint="Take the folder of cuda-compat out of LD_LIBRARY_PATH: the host's libcuda is newer.",
            severity="warning",
        )
    else:
        yield Found(
            "libcuda is that of cuda-compat", path="cuda/libcuda", evidence=_compat_versions(fingerprint)
        )


def _has_compat(fingerprint: Fingerprint) -> bool:
    gpu = facts_of(fingerprint, "gpu")
    return facts_of(fingerprint, "cuda").get("compat") is True and is_linux(fingerprint) and bool(gpu)


def _products(fingerprint: Fingerprint) -> List[str]:
    named = (card.facts.get("product") for card in cards(fingerprint))
    return sorted({name for name in named if isinstance(name, str)})


def _compat_versions(fingerprint: Fingerprint) -> Tuple[str, ...]:
    libcuda = mapping(facts_of(fingerprint, "cuda").get("libcuda"))
    via = f", found by {libcuda['via']}" if libcuda.get("via") else ""
    driver = facts_of(fingerprint, "gpu").get("driver")
    own = (f"the driver is {driver}",) if isinstance(driver, str) else ()
    return (f"{libcuda.get('path')}, {libcuda.get('version') or 'version unknown'}{via}", *own)
