"""How many rows a task may read: its share of a rate, so that the pipeline keeps its own."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Lets at most `rate` rows per second through, after a second's burst."""

    def __init__(
        self,
        rate: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate = rate
        self._now = now
        self._sleep = sleep
        self._free_at = now()
        """When all rows that were let through are paid for."""

    def take(self, rows: int) -> None:
        """Wait until that many rows may be read."""
        now = self._now()
        self._free_at = max(self._free_at, now - 1.0) + rows / self._rate
        if self._free_at > now:
            self._sleep(self._free_at - now)
