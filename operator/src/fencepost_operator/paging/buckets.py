"""How many messages may be sent: a token bucket, of which urgent messages alone use the last tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(slots=True, kw_only=True)
class Bucket:
    """Holds `size` tokens at most, and gets `per_hour` more."""

    size: float
    per_hour: float
    reserved: float
    """Tokens that only urgent messages use."""
    tokens: float = field(init=False)
    _refilled_at: datetime | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.tokens = self.size

    def refill(self, now: datetime) -> None:
        """Add what has come since the last time."""
        passed = (now - self._refilled_at).total_seconds() if self._refilled_at is not None else 0.0
        self.tokens = min(self.size, self.tokens + max(0.0, passed) * self.per_hour / 3600)
        self._refilled_at = now

    def left(self, *, urgent: bool) -> int:
        """Return how many messages may be sent."""
        return max(0, int(self.tokens if urgent else self.tokens - self.reserved))

    def spend(self, messages: int) -> None:
        """Take the tokens of some messages."""
        self.tokens = max(0.0, self.tokens - messages)
