"""How far a pipeline is behind its log, by partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.batch import Watermarks
from fencepost.contract import split_offset_key
from fencepost.fence import FenceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One partition: the next offset to read as committed and as planned, and the bounds of the log.

    What is not known is None.  `lag` counts offsets up to the end of the log; `lost` those that retention deleted
    before they were read.
    """

    partition: str
    begin: int | None
    committed: int | None
    planned: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        """Offsets that wait."""
        return None if self.committed is None or self.end is None else max(self.end - self.committed, 0)

    @property
    def lost(self) -> int | None:
        """Offsets that the log does not have any more and that were not read."""
        return None if self.committed is None or self.begin is None else max(self.begin - self.committed, 0)


def partitions(row: FenceRow, log: Watermarks | None) -> tuple[PartitionLag, ...]:
    """Return every partition that the fence row or Kafka knows; without Kafka, with the ends that the driver saw."""
    begins: Mapping[str, int] = log.begins if log else {}
    ends: Mapping[str, int] = log.ends if log else row.log_ends
    keys = {*row.offsets, *row.planned, *begins, *ends, *(log.leaderless if log else ())}
    return tuple(
        PartitionLag(
            partition=key,
            begin=begins.get(key),
            committed=row.offsets.get(key),
            planned=row.planned.get(key),
            end=ends.get(key),
        )
        for key in sorted(keys, key=split_offset_key)
    )


def total(found: tuple[PartitionLag, ...]) -> int | None:
    """Return the lag of all partitions together; None when that of one is not known."""
    lags = [part.lag for part in found]
    return None if not lags or None in lags else sum(lag for lag in lags if lag is not None)
