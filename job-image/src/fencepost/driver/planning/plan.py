"""What to read next: pure functions over offsets. Offsets are the next to read; a range is [start, until).

A topic that grows: a key may move from an old partition to a new one, so a record of the new partition must not be read
before older records of the same key.  New partitions are held until the old ones have reached the ends that they had
when the growth was discovered (the growth barrier, kept in the fence row), and then start at 0.  The records of open
transactions count: the ends of the barrier are high watermarks.  The barrier of a topic's last growth stays in the row
after it is passed, so that a rewind to before the growth holds the new partitions again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from fencepost.batch import Batch, Watermarks, between
from fencepost.contract import Reason, StartingOffsets, split_offset_key
from fencepost.driver.recovery import lost_ranges
from fencepost.errors import BadSpec
from fencepost.fence import FenceRow, Starting

AGREEMENT: Final = lost_ranges.AGREEMENT
Divide: TypeAlias = Callable[[Mapping[str, int], Mapping[str, int], int], Mapping[str, int]]
"""Divides a batch among partitions with a backlog: of their offsets, the records beyond, and the most records of a
batch, it makes the records of each one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where reading is: every partition's next offset, the growth barrier and the log's ends (see FenceRow).

    The barrier also maps each partition that is held to where it starts: 0, or where an accepted loss ends.
    """

    offsets: Mapping[str, int]
    barrier: Mapping[str, int]
    log_ends: Mapping[str, int] = field(default_factory=dict)
    growths: tuple[Mapping[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next batch, and what was seen while it was planned.

    `lag` counts the offsets in the log beyond `position`.  `unavailable` names the partitions that have a position and
    no answer from Kafka: the batch leaves them out.
    """

    batch: Batch
    position: Position
    log_ends: Mapping[str, int]
    lag: int
    unavailable: tuple[str, ...]


def start_at(log: Watermarks, topics: Iterable[str], starting: StartingOffsets) -> dict[str, int]:
    """Resolve `startingOffsets` for topics that the fence row does not know.

    The log reaches to the high watermark: a start may lie within a transaction that is open now.
    Raises BadSpec for an offset that the log does not have.
    """
    wanted = set(topics)
    edge = log.ends if starting.position == "latest" else log.begins
    found = {key: edge[key] for key in log.ends if split_offset_key(key)[0] in wanted}
    for key in sorted(found.keys() & starting.partitions.keys()):
        offset, begin, end = starting.partitions[key], log.begins[key], log.high_watermark(key)
        if not begin <= offset <= end:
            raise BadSpec(
                f"startingOffsets {key}={offset} is outside the log, which holds [{begin}, {end})",
                reason=Reason.STARTING_OFFSET_OUT_OF_RANGE,
                remedy="Name an offset that the log holds.",
            )
    return {key: starting.partitions.get(key, offset) for key, offset in found.items()}


def unresolved(row: FenceRow, log: Watermarks, topics: Iterable[str]) -> str:
    """Return why the start of a topic that the row does not know cannot be resolved yet; '' when every one can."""
    new = {topic for topic in topics if topic not in row.topic_ids}
    absent = sorted(topic for topic in new - log.topic_ids.keys() if log.missing.get(topic, 0.0) < AGREEMENT)
    leaderless = sorted(key for key in log.leaderless if split_offset_key(key)[0] in new)
    parts = [f"topic {topic!r} is not found" for topic in absent] + [f"{key} has no leader" for key in leaderless]
    return ", ".join(parts)


def resume(
    row: FenceRow,
    log: Watermarks,
    topics: Sequence[str],
    starting: StartingOffsets,
    replaced: Mapping[str, StartingOffsets] | None = None,
) -> Position:
    """Return where to resume: committed offsets, new topics at `starting`, new partitions of known topics held or at 0.

    `replaced` has the starts of topics that an acceptance names instead of `starting`.
    Topics that left the spec keep their offsets: a spec that names them again continues from there.
    Raises BadSpec for a topic that does not exist, DataLoss when the log does not hold what comes next.
    """
    known = [topic for topic in topics if topic in row.topic_ids]
    for topic in topics:
        if topic not in log.topic_ids and topic not in row.topic_ids:
            raise BadSpec(
                f"topic {topic!r} does not exist",
                reason=Reason.TOPIC_NOT_FOUND,
                remedy="Create the topic, or correct spec.source.kafka.topics.",
            )
    offsets = dict(row.offsets)
    for topic in set(topics) - set(known):
        offsets |= start_at(log, [topic], (replaced or {}).get(topic, starting))
    position = Position(offsets=offsets, barrier=row.growth_barrier, log_ends=row.log_ends, growths=row.growths)
    return advance(position, row.topic_ids, log, known)


def advance(position: Position, topic_ids: Mapping[str, str], log: Watermarks, topics: Sequence[str]) -> Position:
    """Return the position with new partitions held or admitted, having checked that the log holds all from there on.

    A topic or partition that Kafka does not answer for at the moment stays as it is.
    Raises DataLoss naming every range: a topic is deleted or recreated, retention passed, or the log is truncated.
    """
    lost_ranges.check_topics(position.offsets, position.log_ends, topic_ids, log, topics)
    for topic in topics:
        if topic in log.topic_ids:
            position = _grow(topic, position, log)
    lost_ranges.check_ranges({**_held(position), **position.offsets}, topic_ids, log, topics)
    return position


def _held(position: Position) -> dict[str, int]:
    """Return the partitions that the growth barrier holds, and where they start."""
    return {key: start for key, start in position.barrier.items() if key not in position.offsets}


def _grow(topic: str, position: Position, log: Watermarks) -> Position:
    """Admit the partitions whose barrier is passed, then hold or admit those that the topic has besides."""
    held = {key: position.barrier[key] for key in _keys(_held(position), [topic])}
    barrier = {key: position.barrier[key] for key in _keys(position.barrier, [topic])}
    if held and not _is_passed(barrier, position.offsets):
        return position
    offsets = {**position.offsets, **held}
    passed = {**position.barrier, **dict.fromkeys(held, 0)}
    old = _keys(offsets, [topic])
    # After a rewind the growths that followed come in the order in which they came, and not as one.
    known = next((growth for growth in position.growths if old and set(old) < growth.keys()), {})
    new = [key for key in known or _keys(log.ends, [topic]) if key not in offsets]
    if not new or any(key not in log.ends for key in (*old, *new)):
        # Where an old partition ends is not known, the new ones cannot be ordered after it yet.
        return replace(position, offsets=offsets, barrier=passed)
    # Not the last stable offset: records of an open transaction lie beyond it, and they are older than the growth too.
    ends = {key: log.high_watermark(key) for key in old}
    found = {key: min(end, known.get(key, end)) for key, end in ends.items()} | dict.fromkeys(new, 0)
    admitted = dict.fromkeys(new, 0) if _is_passed(found, offsets) else {}
    return replace(position, offsets={**offsets, **admitted}, barrier={**passed, **found})


def _is_passed(barrier: Mapping[str, int], offsets: Mapping[str, int]) -> bool:
    """Return whether the old partitions have reached their ends; those that are held have no offset."""
    return all(offsets[key] >= end for key, end in barrier.items() if key in offsets)


def equally(offsets: Mapping[str, int], lag: Mapping[str, int], limit: int) -> Mapping[str, int]:
    """Return the same share for each partition that has as many records.

    Equal shares, not proportional ones: a partition with a long backlog does not hold the others back.  With fewer
    records than partitions each batch begins where the one before ended, so each partition with a backlog moves at
    least once in ⌈partitions / limit⌉ batches.
    """
    return shares(lag, limit) if limit >= len(lag) else dict.fromkeys(_in_turn(offsets, lag, limit), 1)


def next_batch(
    offsets: Mapping[str, int],
    log: Watermarks,
    topics: Iterable[str],
    limit: int,
    *,
    divide: Divide = equally,
    bound: Mapping[str, int] | None = None,
) -> Batch:
    """Return the next batch of at most `limit` records; with a `bound` nothing beyond, and nothing of other partitions.

    Raises what `divide` raises.
    """
    ends = {key: log.ends[key] for key in _keys(log.ends, topics) if key in offsets}
    if bound is not None:  # before the batch is divided: what lies beyond must not take the place of what does not
        ends = {key: min(end, bound.get(key, 0)) for key, end in ends.items()}
    lag = {key: end - offsets[key] for key, end in ends.items() if end > offsets[key]}
    return _with(offsets, divide(offsets, lag, limit))


def after(
    position: Position,
    topic_ids: Mapping[str, str],
    log: Watermarks,
    topics: Sequence[str],
    limit: int,
    *,
    divide: Divide = equally,
    bound: Mapping[str, int] | None = None,
) -> Plan:
    """Return the plan from a position on; `divide` and `bound` are those of `next_batch`. Raises DataLoss."""
    advanced = advance(position, topic_ids, log, topics)
    batch = next_batch(advanced.offsets, log, topics, limit, divide=divide, bound=bound)
    ends = {key: log.ends[key] for key in _keys(log.ends, topics)}
    return Plan(
        batch=Batch(ranges=batch.ranges, until=batch.until, leader_epochs=log.leader_epochs),
        position=advanced,
        log_ends=_seen_ends(advanced, log, topics),
        lag=sum(max(0, end - advanced.offsets.get(key, 0)) for key, end in ends.items()),
        unavailable=tuple(key for key in _keys(advanced.offsets, topics) if key not in ends),
    )


def recorded(
    row: FenceRow, topics: Iterable[str], *, leader_epochs: Mapping[str, int], written_until: Mapping[str, int]
) -> Batch:
    """Return the batch that the row has as planned.

    `leader_epochs` are those of `Batch`; up to `written_until` an earlier run may have written output.
    """
    until = {key: row.planned[key] for key in _keys(row.planned, topics)}
    batch = between(row.offsets, until, row.leader_epochs, row.topic_ids, row.epoch_starts)
    ends = written_until, row.begun
    is_repeated = any(part.start < each.get(part.key, 0) for part in batch.ranges for each in ends)
    return replace(batch, leader_epochs=leader_epochs, is_repeated=is_repeated)


def newest(row: FenceRow, log: Watermarks, topics: Sequence[str], limit: int) -> Batch:
    """Return the newest committed records that the log has, about `limit`: the same number of each partition."""
    ends = {key: row.offsets[key] for key in _keys(row.offsets, topics) if key in log.begins}
    share = max(1, limit // max(1, len(ends)))
    starts = {key: min(at, max(log.begins[key], at - share)) for key, at in ends.items()}
    return between(starts, ends)


def up_to(batch: Batch, offsets: Mapping[str, int], bound: Mapping[str, int]) -> Batch:
    """Return what of a batch after `offsets` lies before the offsets of `bound`; nothing of other partitions."""
    until = {key: min(end, max(bound.get(key, 0), offsets[key])) for key, end in batch.until.items()}
    found = between(offsets, until)
    return Batch(ranges=found.ranges, until={**offsets, **found.until}, leader_epochs=batch.leader_epochs)


def shares(lag: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide `limit` records, at least one for each partition, by max-min fairness.

    What a short partition leaves goes to the others.
    """
    granted: dict[str, int] = {}
    left = limit
    for index, (key, records) in enumerate(sorted(lag.items(), key=lambda item: (item[1], item[0]))):
        granted[key] = min(records, left // (len(lag) - index))
        left -= granted[key]
    return granted


def starting(
    row: FenceRow,
    log: Watermarks,
    topics: Sequence[str],
    at: StartingOffsets,
    limit: int,
    *,
    first_limit: int | None = None,
    replaced: Mapping[str, StartingOffsets] | None = None,
) -> Starting:
    """Return what a claim records: a batch that a predecessor planned comes first.

    It is repeated as it was planned, unless there is a `first_limit`: then more than that, or more than `limit`, is cut
    off, because a batch that was too large is never finished by repeating it.  Nothing of it is written yet when the
    claim records this.  What is cut off, and what Kafka does not answer for, stays in `begun`.
    `replaced`: see `resume`.  Raises as that does, also where a batch that was begun ends beyond the log.
    """
    position = resume(row, log, topics, at, replaced)
    lost_ranges.check_begun(row, log, [topic for topic in topics if topic in row.topic_ids])
    offsets = position.offsets
    first = limit if first_limit is None else min(limit, first_limit)
    batch = _inherited(row, offsets, log, topics)
    if batch.is_empty:
        batch = next_batch(offsets, log, topics, first)
    elif first_limit is not None:
        batch = _cut(batch, offsets, first)
    planned = {**offsets, **batch.until}
    return Starting(
        offsets=offsets,
        planned=planned,
        begun=begun(row, offsets, planned, topics),
        accepted_until=row.accepted_after(offsets),
        topic_ids={**row.topic_ids, **{topic: log.topic_ids[topic] for topic in topics if topic in log.topic_ids}},
        leader_epochs={
            **{key: epoch for key, epoch in log.leader_epochs.items() if key in offsets},
            **{key: epoch for key, epoch in row.leader_epochs.items() if offsets.get(key) == row.offsets.get(key)},
        },
        epoch_starts={key: at for key, at in row.epoch_starts.items() if offsets.get(key) == row.offsets.get(key)},
        growth_barrier=position.barrier,
        growths=row.growths_after(position.barrier),
        log_ends=_seen_ends(position, log, topics),
    )


def begun(
    row: FenceRow, offsets: Mapping[str, int], planned: Mapping[str, int], topics: Iterable[str]
) -> dict[str, int]:
    """Return what a claim keeps of what is begun; of a topic that the spec has left nothing: no run will finish it."""
    found = row.begun_after(offsets, planned)
    return {key: found[key] for key in _keys(found, topics)}


def _seen_ends(position: Position, log: Watermarks, topics: Sequence[str]) -> dict[str, int]:
    """Return where the log ends, and where it last did of topics that Kafka does not know now.

    Once such a topic is known to be deleted, nothing else shows how much of it was not read.
    """
    gone = [topic for topic in topics if topic in log.missing]
    last = {key: position.log_ends[key] for key in _keys(position.log_ends, gone)}
    return {**last, **{key: log.ends[key] for key in _keys(log.ends, topics)}}


def _inherited(row: FenceRow, offsets: Mapping[str, int], log: Watermarks, topics: Iterable[str]) -> Batch:
    """Return the planned batch of the row, less what cannot be read now: it only ever shrinks."""
    planned = {key: min(row.planned[key], log.ends[key]) for key in _keys(row.planned, topics) if key in log.ends}
    return between(offsets, {key: end for key, end in planned.items() if key in offsets})


def _cut(batch: Batch, offsets: Mapping[str, int], limit: int) -> Batch:
    """Return the batch with at most `limit` records, the same share for each partition."""
    return _with(offsets, equally(offsets, {part.key: part.records for part in batch.ranges}, limit))


def _with(offsets: Mapping[str, int], granted: Mapping[str, int]) -> Batch:
    return between(offsets, {key: offsets[key] + records for key, records in granted.items()})


def _in_turn(offsets: Mapping[str, int], lag: Iterable[str], limit: int) -> list[str]:
    """Return the `limit` partitions whose turn it is, of those with a backlog.

    The turn begins at a place among all partitions, the sum of their offsets: each such batch moves it on by `limit`.
    """
    keys = sorted(offsets)
    place, waiting = sum(offsets.values()) % len(keys), set(lag)
    return [key for key in (*keys[place:], *keys[:place]) if key in waiting][:limit]


def _keys(offsets: Iterable[str], topics: Iterable[str]) -> list[str]:
    """Return the partitions of these topics."""
    wanted = set(topics)
    return [key for key in offsets if split_offset_key(key)[0] in wanted]
