"""How often a sink's task half repeated a request: counted in the thread that writes, reported with its rows."""

from __future__ import annotations

import threading
from typing import Final

_here: Final = threading.local()


def retried(times: int = 1) -> None:
    """Count requests that a task repeats, in the thread that called its `write`."""
    _here.count = getattr(_here, "count", 0) + times


def take_retries() -> int:
    """Return what this thread has counted since the last call."""
    count: int = getattr(_here, "count", 0)
    _here.count = 0
    return count
