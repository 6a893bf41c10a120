"""Processes that a test saw start."""

from __future__ import annotations

import time


def is_gone(pid: int) -> bool:
    """Whether a process has ended; its parent may not have waited for it yet."""
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                if file.read().split()[2] in "ZX":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False
