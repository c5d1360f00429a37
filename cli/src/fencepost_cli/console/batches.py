"""The newest batches by phase, from the lines that the driver logs; a tenant's code may write into the same log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

PHASES: Final = ("plan", "record", "transform", "job", "commit")
"""In their order. The driver's `write` is `transform` and `job` together."""
MOST: Final = 30
"""Batches that a page shows."""
_LARGEST: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One committed batch; times in ms, `other` is what no phase has."""

    at: datetime | None
    version: int | None
    records: int | None
    lag: int | None
    total: int
    phases: Mapping[str, int]

    @property
    def parts(self) -> Sequence[tuple[str, int, float, float]]:
        """The phases that took time: name, ms, and where each begins and how long it is, as shares of the total."""
        found, begins = list[tuple[str, int, float, float]](), 0
        times = {**self.phases, "other": max(self.total - sum(self.phases.values()), 0)}
        whole = max(sum(times.values()), 1)
        for name, ms in times.items():
            if ms:
                found.append((name, ms, begins / whole, ms / whole))
            begins += ms
        return found


def batches(log: str) -> list[Batch]:
    """Return the newest batches of a driver's log, the newest first."""
    found = list[Batch]()
    for line in reversed(log.splitlines()):
        if len(found) == MOST:
            break
        if '"committed"' in line and (batch := _batch(line)) is not None:
            found.append(batch)
    return found


def _batch(line: str) -> Batch | None:
    try:
        read: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict) or read.get("message") != "committed" or not isinstance(read.get("ms"), dict):
        return None
    times = read["ms"]
    total = _count(times.get("total"))
    if total is None:
        return None
    return Batch(
        at=_moment(read.get("time")),
        version=_count(read.get("version")),
        records=_count(read.get("records")),
        lag=_count(read.get("lag")),
        total=total,
        phases={name: _count(times.get(name)) or 0 for name in PHASES},
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST**2 else None


def _moment(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value))
        return found.astimezone(UTC) if found.tzinfo else None
    except (ValueError, OverflowError):  # the first hours of year 1 and the last ones of 9999 have no time in UTC
        return None
