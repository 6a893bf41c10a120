"""Clocks, power and temperature of the GPUs while they are tried, read in a thread beside the supervisor.

A driver call may hang for as long as the card does; the thread is a daemon and is not waited for.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Optional, Sequence

from envaudit.checks.cards import Card, Cards, Reading, throttle_names

_EVERY_S = 0.1
_STOPPING_S = 0.5
# As many as a run of ten minutes takes; a longer one keeps every second, then every fourth.
_READINGS_MAX = 6000


class Meter:
    """What the cards say from `start` to `stop`, one row a card."""

    def __init__(self, cards: Cards, watched: Sequence[Card]) -> None:
        self._cards = cards
        self._watched = list(watched)
        self._readings: List[List[Reading]] = [[] for _ in self._watched]
        self._ecc_before = [cards.ecc(card) for card in self._watched]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> List[Dict[str, Any]]:
        """The rows, in the order of the cards; see `summed_up`."""
        self._stopped.set()
        self._thread.join(_STOPPING_S)
        hangs = self._thread.is_alive()
        rows = []
        for card, readings, before in zip(self._watched, self._readings, self._ecc_before):
            after = {} if hangs else self._cards.ecc(card)
            rows.append(summed_up(list(readings), before, after))
        return rows

    def _watch(self) -> None:
        every_s = _EVERY_S
        while not self._stopped.wait(every_s):
            for card, readings in zip(self._watched, self._readings):
                readings.append(self._cards.read(card))
                if len(readings) > _READINGS_MAX:
                    del readings[::2]
                    every_s *= 2


def summed_up(
    readings: Sequence[Reading], before: Dict[str, Optional[int]], after: Dict[str, Optional[int]]
) -> Dict[str, Any]:
    """One card's run in integers.

    `sm_clock_mhz`, `power_mw` and `temperature_c` are {"median", "least", "most"}; `throttle` lists the
    reasons seen at any moment; `ecc_corrected` and `ecc_uncorrected` are {"before", "after"}. What the
    card does not tell is null.
    """
    row: Dict[str, Any] = {"readings": len(readings)}
    for name in ("sm_clock_mhz", "power_mw", "temperature_c"):
        values = sorted(value for value in (getattr(each, name) for each in readings) if value is not None)
        row[name] = (
            {"median": values[len(values) // 2], "least": values[0], "most": values[-1]} if values else None
        )
    masks = [each.throttle for each in readings if each.throttle is not None]
    together = 0
    for mask in masks:
        together |= mask
    row["throttle"] = throttle_names(together) if masks else None
    for kind in ("corrected", "uncorrected"):
        row[f"ecc_{kind}"] = {"before": before.get(kind), "after": after.get(kind)}
    return row
