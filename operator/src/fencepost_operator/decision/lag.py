"""How many records are still to be read, and how many of them the run could read now.

The two differ while the growth barrier holds new partitions, whose records count as lag and must not be read yet, and
while a partition has no leader, so that the lag leaves its records out.  The lag is for people; whether a run is idle
or stuck follows from what it could read.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.contract import split_offset_key
from fencepost.fence import FenceRow
from fencepost_operator.api import Spec
from fencepost_operator.observation import Watermarks


def lags(spec: Spec, row: FenceRow, source: Watermarks) -> Mapping[str, int]:
    """Return how many records of each partition are still to be read, for the partitions that Kafka answers for."""
    return {key: max(0, end - _position(spec, row, key, source)) for key, end in source.ends.items()}


def readable(spec: Spec, row: FenceRow, source: Watermarks) -> int | None:
    """Return how many records the run could read now; None while that is not known.

    Records of a partition that is held do not count.  When no other partition has records, a partition that Kafka does
    not answer for decides: the operator may be the only one that gets no answer, so 0 would be a guess.
    """
    records = sum(count for key, count in lags(spec, row, source).items() if not _is_held(row, key, source))
    return None if not records and unanswered(spec, row, source) else records


def unanswered(spec: Spec, row: FenceRow, source: Watermarks) -> tuple[str, ...]:
    """Return the partitions that Kafka does not answer for and that may have records to read.

    One that was read to the end that the driver last saw is left out: without a leader it gets no records.
    """
    return tuple(
        key
        for key, offset in sorted(row.offsets.items())
        if key not in source.ends
        and split_offset_key(key)[0] in spec.source.topics
        and (key not in row.log_ends or row.log_ends[key] > offset)
    )


def _is_held(row: FenceRow, key: str, source: Watermarks) -> bool:
    """Return whether the driver must not read a new partition yet, because an old one of its topic has not got far.

    The driver records the growth barrier with its next batch. Until then the old partitions' high watermarks stand for
    it. An old partition with records to read counts as waiting by itself, so that a driver that hangs is still found.
    """
    if key in row.offsets:
        return False
    topic = split_offset_key(key)[0]
    old = [known for known in row.offsets if split_offset_key(known)[0] == topic]
    ends = {**source.ends, **source.high_watermarks, **row.growth_barrier}
    return any(known not in ends or row.offsets[known] < ends[known] for known in old)


def _position(spec: Spec, row: FenceRow, key: str, source: Watermarks) -> int:
    """Return the next offset to read.

    Where nothing is committed yet, reading begins as the spec says for a topic that the row does not know, and at the
    start of a partition that a known topic has grown.
    """
    if key in row.offsets:
        return row.offsets[key]
    topic = split_offset_key(key)[0]
    if any(split_offset_key(known)[0] == topic for known in row.offsets):
        return source.starts.get(key, 0)
    if key in spec.source.starting_partitions:
        return spec.source.starting_partitions[key]
    return source.ends[key] if spec.source.starting_position == "latest" else source.starts.get(key, 0)
