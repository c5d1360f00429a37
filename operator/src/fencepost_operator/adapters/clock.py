"""The wall clock, and the one that never steps."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """Time as the operating system has it."""

    def now(self) -> datetime:
        """Return the time now, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment."""
        return time.monotonic()
