"""What a purge reports of one sink."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Purged:
    """Rows that were found, and rows that are left."""

    rows: int
    left: int
