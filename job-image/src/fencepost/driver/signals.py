"""Signals, handled in a thread of their own.

A Python signal handler runs in the main thread between any two instructions of it.  If it sets an Event while the main
thread holds that Event's lock, in `wait`, the process hangs for good.  So the interpreter's own handler, which is safe
at any moment, writes the signal's number to a pipe, and a thread reads it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable


def listen(numbers: Iterable[int], react: Callable[[int], object]) -> None:
    """Call `react` with the number of each of these signals that arrives. Call this from the main thread, once."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, _nothing)
    threading.Thread(target=_read, args=[reading, react], name="signals", daemon=True).start()


def _nothing(_number: int, _frame: object) -> None:
    """Be a handler, so that the signal does not have its default effect."""


def _read(reading: int, react: Callable[[int], object]) -> None:
    while received := os.read(reading, 64):
        for number in received:
            react(number)
