"""Settings of NCCL, UCX, Gloo and torch that are not the same on all nodes."""

from __future__ import annotations

import re
from fnmatch import translate
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from envaudit.model.drift import Drift, split_path
from envaudit.model.fingerprint import Fingerprint
from envaudit.rules.nodefacts import assigned, by_nodes, claimed, notes_of, setting
from envaudit.rules.pernode import facts_of, mapping
from envaudit.rules.policy import Policy
from envaudit.rules.registry import Claim, Found, difference

# What the ranks of one job must have alike, and why. From NCCL's documented environment variables.
SHAPING: Mapping[str, Sequence[str]] = {
    "All ranks of a collective must run one algorithm over the same channels.": (
        *("NCCL_ALGO", "NCCL_PROTO", "NCCL_TUNER_PLUGIN", "NCCL_TUNER_CONFIG_FILE", "NCCL_TOPO_FILE"),
        *("NCCL_GRAPH_FILE", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
        *("NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_NCHANNELS_PER_NET_PEER"),
        *("NCCL_NTHREADS", "NCCL_COLLNET_ENABLE", "NCCL_NVLS_*", "NCCL_MNNVL_*", "NCCL_CROSS_NIC"),
    ),
    "Both ends of a connection must cut a message into the same pieces.": (
        *("NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_IB_QPS_PER_CONNECTION"),
        *("NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"),
    ),
    "Both ends of a connection must speak over the same network.": (
        *("NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"),
        *("NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_PKEY"),
        *("NCCL_IB_SL", "NCCL_IB_TC", "NCCL_IB_MERGE_*", "NCCL_NET_MERGE_*", "NCCL_NETDEVS_POLICY"),
        *("NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT"),
        *("TP_SOCKET_IFNAME", "UCX_TLS", "UCX_NET_DEVICES", "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA"),
    ),
    "Where one node goes through host memory, all wait for it.": (
        *("NCCL_P2P_*", "NCCL_SHM_DISABLE", "NCCL_NET_GDR_*", "NCCL_DMABUF_ENABLE", "NCCL_PXN_*"),
        *("NCCL_CUMEM_*",),
    ),
}
# What writes more or less about the same work, or is no setting of NCCL at all.
_TALKING = ("*_DEBUG", "NCCL_DEBUG_*", "*_LOG_*", "NCCL_VERSION", "NCCL_CONF_FILE")
# torch checks or negotiates otherwise, or computes other numbers, where these differ.
_OF_TORCH = ("TORCH_DISTRIBUTED_DEBUG", "TORCH_NCCL_USE_COMM_NONBLOCKING", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
_OTHERS = ("UCX_*", "GLOO_*", "FI_*", "TP_*", "TORCH_NCCL_*")
_SETTINGS = ("env/nccl/*", *(f"env/variables/{name}" for name in _OTHERS))
# What a variable resolves to stands below this name of `network/selection`.
RESOLVES: Mapping[str, str] = {
    "NCCL_SOCKET_IFNAME": "NCCL_SOCKET_IFNAME",
    "NCCL_IB_HCA": "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX": "roce_gid",
    "GLOO_SOCKET_IFNAME": "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME": "TP_SOCKET_IFNAME",
    "UCX_NET_DEVICES": "UCX_NET_DEVICES",
}
# Of a selection, what is said rather than what is meant.
_WORDING = ("named", "idle", "by")
_MAX_TOLD = 6
_MAX_VALUE = 120


def _pattern(names: Sequence[str]) -> str:
    return "|".join(translate(name) for name in names)


_is_shaping = re.compile("|".join(_pattern(names) for names in SHAPING.values())).match
_is_talking = re.compile(_pattern(_TALKING)).match


def name_of(drift: Drift) -> str:
    """The variable that differs."""
    segments = split_path(drift.path)
    return segments[2] if len(segments) > 2 else ""


def _differs(drift: Drift) -> bool:
    """Whether the setting differs, rather than only where it comes from."""
    return split_path(drift.path)[3:] != ("origin",)


def _from_file(drift: Drift, policy: Policy) -> bool:
    """Whether some nodes lack a setting that others have from a file."""
    states = {group.state for group in drift.groups}
    return len(split_path(drift.path)) == 3 and "absent" in states and bool(_origins(drift))


def _origins(drift: Drift) -> List[str]:
    told = [mapping(group.value).get("origin") for group in drift.groups]
    return sorted({str(origin) for origin in told if origin not in (None, "environment")})


@difference(
    "EA450",
    severity="error",
    title="a settings file of NCCL on some nodes only",
    why="NCCL reads it wherever it is, unseen by the launch script: these ranks are set up otherwise.",
    of=("env/nccl/*",),
    when=_from_file,
    follows=("network/selection/**",),
    order=45,
    how_to_fix="Put the same file on all nodes, or remove it and set the variables in the launch script.",
)
def settings_file(claim: Claim, policy: Policy) -> Iterator[Found]:
    """/etc/nccl.conf, ~/.nccl.conf, or what NCCL_CONF_FILE names; a warning where it shapes nothing."""
    files = list(dict.fromkeys(origin for drift in claim.drifts for origin in _origins(drift)))
    names = [name_of(drift) for drift in claim.drifts]
    lines = by_nodes(claimed(claim), lambda one: _from_files(one, names, files))
    severe = any(_is_shaping(name) for name in names)
    message = f"settings from {', '.join(files)} are on some nodes only"
    yield claim.found(message, evidence=lines, severity="" if severe else "warning")


def _from_files(fingerprint: Fingerprint, names: Sequence[str], files: Sequence[str]) -> str:
    there = notes_of(fingerprint, "env").get("nccl_files")
    gone = [file for file in files if isinstance(there, list) and file not in there]
    return _shown(fingerprint, names) or (f"no {', '.join(gone)}" if gone else "")


@difference(
    "EA451",
    severity="error",
    title="a setting that shapes the transport differs",
    why="Ranks choose other networks, algorithms or sizes: they hang, or wait for the slowest.",
    of=_SETTINGS,
    when=lambda drift, policy: bool(_is_shaping(name_of(drift))) and _differs(drift),
    follows=("env/nccl/*/origin", "network/selection/**"),
    order=46,
    how_to_fix="Set it in the launch script for all ranks, or nowhere.",
)
def shaping_setting_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """Only told, not alarmed, where another value resolves to the same on its node: HCAs by their names."""
    names = list(dict.fromkeys(name_of(drift) for drift in claim.drifts))
    alike = all(_resolves_alike(drift, claim) for drift in claim.drifts)
    reasons = [why for why, patterns in SHAPING.items() if re.match(_pattern(patterns), names[0])]
    lines = by_nodes(claimed(claim), lambda one: _beyond_the_row(one, names))
    message = f"{names[0]} differs" if len(names) == 1 else f"{len(names)} settings of the transport differ"
    if alike:
        yield claim.found(f"{message}, and resolves to the same", evidence=lines, severity="info")
    else:
        yield claim.found(message, evidence=(*lines, *reasons[:1]))


def _resolves_alike(drift: Drift, claim: Claim) -> bool:
    """Whether the setting takes the same on all nodes of which its value is known."""
    key = RESOLVES.get(name_of(drift))
    known = {one.node: one for one in claim.evidence.everything}
    nodes = [node for group in drift.groups if group.state != "unknown" for node in group.nodes]
    if key is None or not all(node in known for node in nodes):
        return False
    told = [_resolved(known[node], key) for node in nodes]
    return bool(told) and bool(told[0]) and all(each == told[0] for each in told)


def _resolved(fingerprint: Fingerprint, key: str) -> Dict[str, Any]:
    """What is taken; nothing where the variable takes nothing, or where that was not seen."""
    selection = mapping(mapping(facts_of(fingerprint, "network").get("selection")).get(key))
    if selection.get("matched") == 0 or selection.get("idle"):
        return {}
    return {name: value for name, value in selection.items() if name not in _WORDING}


def _beyond_the_row(fingerprint: Fingerprint, names: Sequence[str]) -> str:
    """What a report's row, the name and the values side by side, does not show already."""
    told = _shown(fingerprint, names)
    is_more = len(names) > 1 or told.endswith((")", "matches nothing"))
    return told if is_more else ""


def _shown(fingerprint: Fingerprint, names: Sequence[str]) -> str:
    """`NCCL_SOCKET_IFNAME=ens5 (/etc/nccl.conf), which matches nothing`."""
    told = []
    selection = mapping(facts_of(fingerprint, "network").get("selection"))
    for name in names[:_MAX_TOLD]:
        row = setting(fingerprint, name)
        if not row:
            continue
        origin = row.get("origin")
        value = str(row.get("value"))[:_MAX_VALUE]
        nothing = mapping(selection.get(RESOLVES.get(name, ""))).get("matched") == 0
        place = "" if origin == "environment" else f" ({origin})"
        told.append(f"{assigned(name, value)}{place}{', which matches nothing' if nothing else ''}")
    more = len(names) - _MAX_TOLD
    return "; ".join(told) + (f"; and {more} more" if told and more > 0 else "")


@difference(
    "EA452",
    severity="warning",
    title="a setting of NCCL, UCX or Gloo differs",
    why="Time limits, retries or logging differ between ranks.",
    of=_SETTINGS,
    when=lambda drift, policy: name_of(drift) not in _OF_TORCH and _differs(drift),
    follows=("env/nccl/*/origin",),
    order=47,
    how_to_fix="Set it in the launch script for all ranks, or nowhere.",
)
def setting_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """What only talks more is told, not alarmed: NCCL_DEBUG, log levels."""
    names = list(dict.fromkeys(name_of(drift) for drift in claim.drifts))
    lines = by_nodes(claimed(claim), lambda one: _beyond_the_row(one, names))
    message = f"{names[0]} differs" if len(names) == 1 else f"{len(names)} settings differ"
    talking = all(_is_talking(name) for name in names)
    yield claim.found(message, evidence=lines, severity="info" if talking else "")


@difference(
    "EA453",
    severity="error",
    title="a variable of torch that ranks must share differs",
    why="Ranks check each other, connect or compute in another way: they hang, or train on other numbers.",
    of=tuple(f"env/variables/{name}" for name in _OF_TORCH),
    how_to_fix="Set it in the launch script for all ranks, or nowhere.",
)
def torch_variable_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL adds collectives of its own; the TF32 override changes numbers."""
    names: Tuple[str, ...] = tuple(dict.fromkeys(name_of(drift) for drift in claim.drifts))
    lines = by_nodes(claimed(claim), lambda one: _beyond_the_row(one, names))
    yield claim.found(f"{', '.join(names)} {'differs' if len(names) == 1 else 'differ'}", evidence=lines)


@difference(
    "EA454",
    severity="info",
    title="a setting comes from another place",
    why="The value is the same today; whoever changes it in one place changes these nodes alone.",
    of=("env/nccl/*/origin",),
    order=55,
    how_to_fix="Set it in one place: the launch script, or /etc/nccl.conf of every node.",
)
def origin_differs(claim: Claim, policy: Policy) -> Iterator[Found]:
    """From the environment here, from a file there."""
    names = list(dict.fromkeys(name_of(drift) for drift in claim.drifts))
    lines = by_nodes(claimed(claim), lambda one: _shown(one, names))
    yield claim.found(f"{', '.join(names[:_MAX_TOLD])} from another place", evidence=lines)
