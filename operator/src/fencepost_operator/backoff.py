"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Final

JITTER: Final = 0.2


def restart_delay(failures: int, *, longest: float) -> timedelta:
    """Return the wait after that many failures in a row: none after the first, then n²+n seconds up to `longest`.

    n counts the failures before this one, so a driver that had been making progress is replaced at once.
    """
    n = max(0, failures - 1)
    return timedelta(seconds=min(longest, n * n + n))


def retry_delay(attempts: int, *, first: float = 1.0, longest: float = 60.0) -> float:
    """Return seconds before an action that failed `attempts` times in a row is tried again; it doubles."""
    return float(min(longest, first * 2 ** min(max(0, attempts - 1), 16)))


def jittered(seconds: float) -> float:
    """Return the wait spread by a fifth, so that many pipelines do not ask at one moment."""
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load, guards nothing
