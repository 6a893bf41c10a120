"""Devices of one kind folded: what most share takes one row, and one that deviates is one difference."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple


def fold(devices: Mapping[int, Mapping[str, Any]]) -> Tuple[Dict[str, Any], Dict[str, Dict[str, Any]]]:
    """What most devices share, and by ordinal what deviates; a key a device lacks is unknown there.

    The majority decides, the lowest ordinal among equals. `state`, which only a device has that is
    not well, is never shared.
    """
    each: Dict[str, Any] = {}
    deviating: Dict[str, Dict[str, Any]] = {}
    keys = {key for facts in devices.values() for key in facts}
    for key in sorted(keys):
        holders = [ordinal for ordinal in sorted(devices) if key in devices[ordinal]]
        values = [devices[ordinal][key] for ordinal in holders]
        common = max(values, key=values.count) if key != "state" else None
        if common is not None:
            each[key] = common
        for ordinal, value in zip(holders, values):
            if value != common:
                deviating.setdefault(str(ordinal), {})[key] = value
    return each, deviating
