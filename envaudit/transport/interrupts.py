"""Ctrl-C and SIGTERM held back where they would come between a deed and its record."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Let SIGINT and SIGTERM take effect when the block is over, not inside of it.

    The handlers are exchanged, for a program that is started in the block would inherit a mask. A
    signal that is ignored or has its default effect keeps that, and so has every other thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [(number, handler) for number in numbers if callable(handler := signal.getsignal(number))]
    try:
        for number, _ in handlers:
            signal.signal(number, lambda number, _frame: arrived.append(number))
        yield
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
        for came in arrived:
            signal.raise_signal(came)
