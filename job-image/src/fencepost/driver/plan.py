"""What to read next: pure functions over offsets. Offsets are the next to read; a range is [start, until)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fencepost.batch import Batch, Watermarks, between
from fencepost.contract import Reason, StartingOffsets, split_offset_key
from fencepost.errors import BadSpec, DataLoss
from fencepost.fence import FenceRow, Starting


def start_at(log: Watermarks, topics: Iterable[str], starting: StartingOffsets) -> dict[str, int]:
    """Resolve `startingOffsets` for topics that the fence row does not know.

    Raises BadSpec for an offset that the log does not have.
    """
    wanted = set(topics)
    edge = log.ends if starting.position == "latest" else log.begins
    found = {key: edge[key] for key in log.ends if split_offset_key(key)[0] in wanted}
    for key, offset in starting.partitions.items():
        if key in found and not log.begins[key] <= offset <= log.ends[key]:
            raise BadSpec(
                f"startingOffsets {key}={offset} is outside the log, which holds [{log.begins[key]}, {log.ends[key]})",
                reason=Reason.STARTING_OFFSET_OUT_OF_RANGE,
                remedy="Name an offset that the log holds.",
            )
    return {key: starting.partitions.get(key, offset) for key, offset in found.items()}


def resume(row: FenceRow, log: Watermarks, topics: Sequence[str], starting: StartingOffsets) -> dict[str, int]:
    """Return every partition's next offset: committed ones, new partitions at 0, new topics at `starting`.

    Topics that left the spec keep their offsets: whoever names them again goes on where they were.
    Raises BadSpec for a topic that does not exist, DataLoss when the log does not hold what comes next.
    """
    for topic in topics:
        if topic not in log.topic_ids and topic not in row.topic_ids:
            raise BadSpec(
                f"topic {topic!r} does not exist",
                reason=Reason.TOPIC_NOT_FOUND,
                remedy="Create the topic, or correct spec.source.kafka.topics.",
            )
    known = [topic for topic in topics if topic in row.topic_ids]
    offsets = {**row.offsets, **start_at(log, set(topics) - set(known), starting)}
    return advance(offsets, row.topic_ids, log, known)


def advance(
    offsets: Mapping[str, int], topic_ids: Mapping[str, str], log: Watermarks, topics: Iterable[str]
) -> dict[str, int]:
    """Return offsets with grown partitions at 0, having checked that the log holds everything from there on.

    Raises DataLoss naming the range: the topic is gone or another one, retention passed, or the log was cut.
    """
    grown = dict(offsets)
    for topic in topics:
        _same_topic(topic, topic_ids, log)
    wanted = set(topics)
    for key, end in log.ends.items():
        if split_offset_key(key)[0] in wanted:
            offset = grown.setdefault(key, 0)
            _within(key, offset, log.begins[key], end)
    return grown


def _same_topic(topic: str, topic_ids: Mapping[str, str], log: Watermarks) -> None:
    now = log.topic_ids.get(topic)
    if now is None:
        raise DataLoss(f"topic {topic!r} is gone; it had id {topic_ids[topic]}", reason=Reason.TOPIC_DELETED)
    if now != topic_ids[topic]:
        raise DataLoss(
            f"topic {topic!r} was created anew: its id is {now}, the committed offsets are of {topic_ids[topic]}",
            reason=Reason.TOPIC_RECREATED,
        )


def _within(key: str, offset: int, begin: int, end: int) -> None:
    if offset < begin:
        raise DataLoss(
            f"{key}: offsets [{offset}, {begin}) are gone by retention before they were read",
            reason=Reason.OFFSET_OUT_OF_RANGE,
        )
    if offset > end:
        raise DataLoss(
            f"{key}: the log ends at {end}, before the committed offset {offset}: it was cut",
            reason=Reason.LOG_TRUNCATED,
        )


def next_batch(offsets: Mapping[str, int], log: Watermarks, topics: Iterable[str], limit: int) -> Batch:
    """Return the next batch of at most `limit` records, the same share for each partition that has them.

    Equal shares, not proportional ones: a partition with a long backlog does not hold the others back.
    """
    wanted = set(topics)
    lag = {
        key: log.ends[key] - offset
        for key, offset in offsets.items()
        if split_offset_key(key)[0] in wanted and log.ends.get(key, offset) > offset
    }
    return between(offsets, {**offsets, **{key: offsets[key] + share for key, share in shares(lag, limit).items()}})


def shares(lag: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide `limit` records by max-min fairness; what a short partition leaves goes to the others.

    With fewer records than partitions the longest backlogs get one each: who waits grows, so nobody waits for ever.
    """
    granted: dict[str, int] = {}
    left = limit
    for index, (key, records) in enumerate(sorted(lag.items(), key=lambda item: (item[1], item[0]))):
        granted[key] = min(records, left // (len(lag) - index))
        left -= granted[key]
    return {key: count for key, count in granted.items() if count > 0}


def starting(row: FenceRow, log: Watermarks, topics: Sequence[str], at: StartingOffsets, limit: int) -> Starting:
    """Return what a claim records: a batch that a predecessor planned comes first, unchanged."""
    offsets = resume(row, log, topics, at)
    inherited = _inherited(row, offsets, topics)
    batch = inherited if not inherited.is_empty else next_batch(offsets, log, topics, limit)
    ids = {**row.topic_ids, **{topic: log.topic_ids[topic] for topic in topics}}
    return Starting(offsets=offsets, planned={**offsets, **batch.until}, topic_ids=ids)


def _inherited(row: FenceRow, offsets: Mapping[str, int], topics: Iterable[str]) -> Batch:
    wanted = set(topics)
    # Not only what the row has offsets of: a partition that grew is planned one commit before it is committed.
    planned = {key: end for key, end in row.planned.items() if key in offsets and split_offset_key(key)[0] in wanted}
    return between(offsets, planned)
