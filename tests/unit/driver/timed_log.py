"""Partitions of records with timestamps, and what Kafka says of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

Time: TypeAlias = int | None
"""Of a record, in ms; None without one."""


@dataclass
class TimedPartitions:
    """The records' times by 'topic/partition'. `asked` has the time and the partitions of each request."""

    times: Mapping[str, Sequence[Time]]
    silent: set[str] = field(default_factory=set)
    """Partitions whose leader does not answer."""
    _newest: dict[str, list[int]] = field(init=False, default_factory=dict)
    """The largest time up to each record."""
    asked: list[tuple[int, Collection[str]]] = field(default_factory=list)

    @property
    def ends(self) -> dict[str, int]:
        return {key: len(times) for key, times in self.times.items()}

    def lag(self, offsets: Mapping[str, int]) -> dict[str, int]:
        return {key: end - offsets[key] for key, end in self.ends.items() if end > offsets[key]}

    def offsets_at(self, time: int, partitions: Collection[str]) -> Mapping[str, int | None]:
        assert time >= 0, "Kafka takes -1 and -2 for the log's ends"
        self.asked.append((time, partitions))
        return {key: self._first(key, time) for key in partitions if key not in self.silent}

    def _first(self, key: str, time: int) -> int | None:
        if key not in self._newest:
            self._newest[key] = list(accumulate((-1 if at is None else at for at in self.times[key]), max))
        place = bisect_left(self._newest[key], time)
        return place if place < len(self._newest[key]) else None


def first(times: Sequence[Time], time: int) -> int | None:
    return next((place for place, at in enumerate(times) if at is not None and at >= time), None)


def reached(times: Sequence[Time], until: int) -> int:
    """Return the newest time before an offset, -1 without one: what moves the watermark."""
    return max((at for at in times[:until] if at is not None), default=-1)
