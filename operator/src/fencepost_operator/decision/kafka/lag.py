"""How many records are still to be read, and how many of them the run could read now.

The two differ while the growth barrier holds new partitions, whose records count as lag and must not be read yet, and
while a partition has no leader, so that the lag leaves its records out.  The lag is for people; whether a run is idle
or stuck follows from what it could read.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.contract import split_offset_key, topics_of
from fencepost.fence import FenceRow
from fencepost_operator.api import Spec
from fencepost_operator.observation import Watermarks


def lags(spec: Spec, row: FenceRow, source: Watermarks) -> Mapping[str, int]:
    """Return how many records of each partition are still to be read, for the partitions that Kafka answers for."""
    found = positions(spec, row, source)
    return {key: max(0, end - found[key]) for key, end in source.ends.items()}


def positions(spec: Spec, row: FenceRow, source: Watermarks) -> Mapping[str, int]:
    """Return the next offset to read of each partition that Kafka answers for."""
    topics = topics_of(row.offsets)
    return {key: _position(spec, row, topics, key, source) for key in source.ends}


def unread_positions(spec: Spec, row: FenceRow, source: Watermarks) -> Mapping[str, int]:
    """Return the next offset to read of each partition with records from there on.

    Records behind an open transaction are among them: they may not be read yet, and age all the same.
    """
    return {
        key: position
        for key, position in positions(spec, row, source).items()
        if max(source.ends[key], source.high_watermarks.get(key, 0)) > position
    }


def readable(spec: Spec, row: FenceRow, source: Watermarks) -> int | None:
    """Return how many records the run could read now; None while that is not known.

    Records of a partition that is held do not count.  When no other partition has records, a partition that Kafka does
    not answer for decides: the operator may be the only one that gets no answer, so 0 would be a guess.
    """
    held = _held_topics(row, source)
    records = sum(
        count
        for key, count in lags(spec, row, source).items()
        if key in row.offsets or split_offset_key(key)[0] not in held
    )
    return None if not records and unanswered(spec, row, source) else records


def unanswered(spec: Spec, row: FenceRow, source: Watermarks) -> tuple[str, ...]:
    """Return the partitions that Kafka does not answer for and that may have records to read.

    One that was read to the end that the driver last saw is left out: without a leader it gets no records.
    """
    return tuple(
        key
        for key, offset in sorted(row.offsets.items())
        if key not in source.ends
        and split_offset_key(key)[0] in spec.source.kafka.topics
        and (key not in row.log_ends or row.log_ends[key] > offset)
    )


def _held_topics(row: FenceRow, source: Watermarks) -> frozenset[str]:
    """Return the topics whose new partitions must not be read yet, because an old one has not got far enough.

    The driver records the growth barrier with its next batch, and keeps it after it is passed. Until it is recorded the
    old partitions' high watermarks stand for it. An old partition with records to read counts as waiting on its own, so
    that a driver that hangs is still detected.
    """
    holding = {split_offset_key(key)[0] for key in row.growth_barrier.keys() - row.offsets.keys()}
    barrier = {key: end for key, end in row.growth_barrier.items() if split_offset_key(key)[0] in holding}
    ends = {**source.ends, **source.high_watermarks, **barrier}
    return frozenset(
        split_offset_key(key)[0] for key, offset in row.offsets.items() if key not in ends or offset < ends[key]
    )


def _position(spec: Spec, row: FenceRow, topics: frozenset[str], key: str, source: Watermarks) -> int:
    """Return the next offset to read of a partition; `topics` are those that the row knows.

    Where nothing is committed yet, reading begins as the spec says for a topic that the row does not know, and at the
    start of a partition that a known topic has grown.
    """
    if key in row.offsets:
        return row.offsets[key]
    if split_offset_key(key)[0] in topics:
        return source.starts.get(key, 0)
    starting = spec.source.kafka.starting_offsets
    if key in starting.partitions:
        return starting.partitions[key]
    return source.ends[key] if starting.position == "latest" else source.starts.get(key, 0)
