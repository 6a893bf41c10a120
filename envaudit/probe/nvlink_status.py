"""What `nvidia-smi nvlink --status` prints, read as NVML's facts of NVLinks.

A pure function of the text. A link is `Link 3: 26.562 GB/s`, or `Link 3: <inactive>`; a GPU whose
links are all down says so in a sentence, and does not tell how many they are.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple

_GPU = re.compile(r"GPU (\d{1,3}):")
_LINK = re.compile(r"\s*Link (\d{1,3}): (?:(\d{1,5})(?:\.(\d{1,3}))? GB/s|<inactive>)\s*\Z")
_ALL_DOWN = "all links are inactive"


class LinkStatus(NamedTuple):
    """NVLinks of one GPU: what is compared, and the numbers of the links that are down."""

    facts: Dict[str, Any]
    down: List[int]


def read_link_status(text: str) -> Dict[int, LinkStatus]:
    """By ordinal, the GPUs that the text names: {"nvlinks", "nvlinks_up", "nvlink_mbps"}.

    The speed is null where links differ in it. A GPU without NVLink is not named, or has no links.
    """
    found: Dict[int, LinkStatus] = {}
    speeds: Dict[int, int] = {}
    status = LinkStatus({}, [])
    for line in text.splitlines():
        gpu, link = _GPU.match(line), _LINK.match(line)
        if gpu:
            facts: Dict[str, Any] = {"nvlinks": None, "nvlinks_up": None, "nvlink_mbps": None}
            status, speeds = LinkStatus(facts, []), {}
            found[int(gpu.group(1))] = status
        elif link:
            if link.group(2):
                speeds[int(link.group(1))] = int(link.group(2)) * 1000 + int(
                    (link.group(3) or "").ljust(3, "0")
                )
            else:
                status.down.append(int(link.group(1)))
            same = len(set(speeds.values())) == 1
            status.facts.update(
                nvlinks=len(speeds) + len(status.down),
                nvlinks_up=len(speeds),
                nvlink_mbps=next(iter(speeds.values())) if same else None,
            )
        elif _ALL_DOWN in line and status.facts:
            status.facts["nvlinks_up"] = 0
            del status.facts["nvlinks"]
    return found
