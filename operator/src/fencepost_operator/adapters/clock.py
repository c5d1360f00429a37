"""The wall clock."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """Time as the operating system has it."""

    def now(self) -> datetime:
        """Return the time now, in UTC."""
        return datetime.now(UTC)
