"""A clock that only a test moves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass
class Clock:
    """The wall clock and the monotonic one; time passes by sleeping alone, or where a test sets `seconds`."""

    start: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seconds: float = 0.0
    """Since the start."""

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds)

    def micros(self) -> int:
        """Return µs since 1970."""
        return int(self.start.timestamp()) * 1_000_000 + int(self.seconds * 1e6)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
