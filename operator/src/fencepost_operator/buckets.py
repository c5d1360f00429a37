"""How much may be done: a bucket of tokens.

It fills by the monotonic clock: by the wall clock, a step forward would fill it at once, and one back would starve it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Bucket:
    """Holds `size` tokens at most, is full at first, and gets `rate` a second; at an infinite rate it stays full.

    `monotonic` is a clock in seconds that never steps.
    """

    size: float
    rate: float
    monotonic: Callable[[], float] = time.monotonic
    _tokens: float = field(init=False)
    _counted_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._tokens, self._counted_at = self.size, self.monotonic()

    @property
    def tokens(self) -> float:
        """How many there are now."""
        if self.rate == math.inf:
            return self.size
        now = self.monotonic()
        self._tokens = min(self.size, self._tokens + self.rate * (now - self._counted_at))
        self._counted_at = now
        return self._tokens

    @property
    def wait(self) -> float:
        """Seconds until there is a whole token."""
        return max(0.0, 1 - self.tokens) / self.rate

    def spend(self, tokens: float = 1.0) -> None:
        """Take that many, or all where there are fewer."""
        self._tokens = max(0.0, self.tokens - tokens)

    def give_back(self) -> None:
        """Put a token back that was not needed after all."""
        self._tokens = min(self.size, self._tokens + 1)
