"""The largest status of a pipeline with many partitions: each map and list in it is full."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from fencepost.fence import FenceRow
from fencepost_operator.api import CommittedStatus, FinishingStatus, Status

PARTITIONS: Final = 5_000
TOPIC: Final = "a" * 60
"""Longer than most are; Kafka takes 249 characters."""
OFFSET: Final = 10**12


def offsets(add: int = 0) -> dict[str, int]:
    """Return an offset of each partition, of thirteen digits."""
    return {f"{TOPIC}/{number}": OFFSET + number + add for number in range(PARTITIONS)}


def row_of(row: FenceRow) -> FenceRow:
    """Return a fence row with a batch of all partitions in progress."""
    return replace(row, offsets=offsets(), planned=offsets(9))


def full(status: Status, *, now: datetime) -> Status:
    """Return a status in which old code finishes a batch that was cut, of all partitions."""
    return replace(
        status,
        committed=CommittedStatus(version=9, at=now, since=now, observable_since=now, offsets=offsets(), done=7),
        finishing=FinishingStatus(code="c" * 300, revision="r" * 250, since=now, until=offsets(99)),
    )
