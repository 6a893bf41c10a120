"""What joins one GPU to the others, as NVML tells it: NVLinks and the NVLink fabric."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional

from envaudit.probe.nvml_asker import INVALID_ARGUMENT, Asker

_LINKS_MAX = 36
_LINK_COUNT, _LINK_SPEED = 91, 90  # NVML_FI_DEV_NVLINK_LINK_COUNT, _SPEED_MBPS_COMMON
# nvml.h, nvmlNvlinkVersion_t.
_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
# nvml.h, NVML_GPU_FABRIC_STATE_*.
_FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
# nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*: where two bits lie, and the value that is bad: 1 is "true"
# for the first four; a partition that is not assigned and a fabric manager that is gone are 2.
_HEALTH = (
    (0, 1, "degraded_bandwidth"),
    (2, 1, "route_recovery"),
    (4, 1, "route_unhealthy"),
    (6, 1, "access_timeout_recovery"),
    (12, 2, "no_partition"),
    (14, 2, "manager_disconnected"),
)
_CONFIGURATION_SHIFT, _CONFIGURATION_GOOD = 8, (0, 1)


def read_links(asker: Asker, handle: Any) -> Dict[str, Any]:
    """Puts `nvlinks`, `nvlinks_up`, `nvlink_mbps` and `nvlink_version`; returns the notes.

    A GPU without NVLink has null; a driver that does not answer for one link leaves all of it out.
    """
    fields = asker.fields(handle, _LINK_COUNT, _LINK_SPEED)
    states: Dict[int, bool] = {}
    for link in range(min(fields.get(_LINK_COUNT) or _LINKS_MAX, _LINKS_MAX)):
        known, state = asker.ask("nvmlDeviceGetNvLinkState", handle, link, quiet=(INVALID_ARGUMENT,))
        if not known:
            return {}
        if state is not None:
            states[link] = bool(state)
        elif not states and link >= 1:
            break  # no NVLink here: two answers are enough
    up = [link for link, state in states.items() if state]
    asker.values["nvlinks"] = len(states) or None
    asker.values["nvlinks_up"] = len(up) if states else None
    if not states:
        return {}
    asker.values["nvlink_mbps"] = fields.get(_LINK_SPEED)
    if up:
        asker.put_named("nvlink_version", _VERSIONS, "nvmlDeviceGetNvLinkVersion", handle, up[0])
    down = [link for link in states if link not in up]
    return {"nvlinks_down": down} if down else {}


def read_fabric(asker: Asker, handle: Any) -> Dict[str, Any]:
    """Puts `fabric_state`, `fabric_status` and `fabric_health`; returns the notes.

    All are null where the GPU is in no fabric (PCIe cards, GPUs before Hopper). `fabric_health` has
    the words for what is wrong, none in a healthy one. A driver before 545 tells no health.
    """
    for structure, function in (
        ("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV"),
        ("c_nvmlGpuFabricInfo_t", "nvmlDeviceGetGpuFabricInfo"),
    ):
        info = getattr(asker.pynvml, structure, lambda: None)()
        if info is None:
            continue
        known, answer = asker.ask(function, handle, ctypes.byref(info))
        if not known:
            return {}
        if answer is not None:
            return _put_fabric(asker.values, info)
    asker.values.update(fabric_state=None, fabric_status=None, fabric_health=None)
    return {}


def _put_fabric(values: Dict[str, Any], info: Any) -> Dict[str, Any]:
    state = info.state & 0xFF  # one byte in nvml.h, four in pynvml: the rest is padding
    if not state:
        values.update(fabric_state=None, fabric_status=None, fabric_health=None)
        return {}
    mask: Optional[int] = getattr(info, "healthMask", None)
    values["fabric_state"] = _FABRIC_STATES.get(state, str(state))
    values["fabric_status"] = int(info.status)
    values["fabric_health"] = None if mask is None else fabric_troubles(mask)
    return {"fabric_cluster": bytes(info.clusterUuid).hex(), "fabric_clique": int(info.cliqueId)}


def fabric_troubles(mask: int) -> List[str]:
    """The words for what a health mask says is wrong; `incorrect_configuration_5` carries nvml.h's number."""
    troubles = [name for shift, bad, name in _HEALTH if mask >> shift & 3 == bad]
    configuration = mask >> _CONFIGURATION_SHIFT & 0xF
    if configuration not in _CONFIGURATION_GOOD:
        troubles.append(f"incorrect_configuration_{configuration}")
    return troubles
