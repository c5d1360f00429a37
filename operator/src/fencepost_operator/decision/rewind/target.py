"""Where a rewind goes back to: the target's offsets, checked against the log, the topics and what is committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from fencepost.contract import split_offset_key
from fencepost.fence import KNOWN_GROWTHS, FenceRow
from fencepost.fence.snapshots import Snapshot
from fencepost_operator.api import ResolvedTarget, RewindSpec
from fencepost_operator.decision.wording import listed
from fencepost_operator.observation import NO_RECORD, Known, RewindFacts, Unknown, UnknownReason, Unseen, Watermarks

Violations: TypeAlias = tuple[str, ...]
"""What is wrong with a target, a sentence each."""

WITHOUT_STATE: Final = (
    "a stateful pipeline has the state only of its snapshots: name one of `fencepost snapshots list` in"
    " spec.to.snapshot, or set spec.emptyState to start with empty state"
)
WITHOUT_OFFSETS: Final = (
    "snapshot {} was taken before a run had chosen where to start, so it has no offsets: name offsets or a timestamp in"
    " spec.to"
)
NO_STATE: Final = "the pipeline has no committed state: leave spec.emptyState out"
UNCHECKED: Final = Unknown(
    reason=UnknownReason.UNREACHABLE,
    message="Kafka has not said where the log of a partition begins",
    remedy="check that every partition has a leader, and that the operator may connect to this Kafka: it does not with"
    " OAuth, Kerberos or files",
)


def resolve(
    spec: RewindSpec, row: FenceRow, source: Known[Watermarks] | Unseen, facts: RewindFacts
) -> ResolvedTarget | Unseen | Violations:
    """Return the target, what of it is not known, or everything that is wrong with it."""
    if not isinstance(source, Known):
        return source
    found = _named(spec, row, source.value, facts)
    if not isinstance(found, ResolvedTarget):
        return found
    return check(found, row, source) or found


def check(target: ResolvedTarget, row: FenceRow, source: Known[Watermarks] | Unseen) -> Unseen | Violations:
    """Return what is wrong with a target by now, or what keeps it from being checked."""
    if not isinstance(source, Known):
        return source
    return _unknown(target, row, source.value) or tuple(_wrong(target, row, source.value))


def check_snapshot(target: ResolvedTarget, found: Known[Snapshot | None] | Unseen) -> Unseen | Violations:
    """Return why the target's state cannot be set any more, or what keeps that from being checked."""
    if target.snapshot is None:
        return ()
    if not isinstance(found, Known):
        return found
    is_there = found.value is not None and dict(found.value.offsets) == dict(target.offsets)
    return () if is_there else (f"snapshot {target.snapshot} does not exist any more, so its state cannot be set",)


def records_to_repeat(row: FenceRow, target: ResolvedTarget) -> int:
    """Return how many offsets lie between the target and what is committed."""
    return sum(end - start_of(target, key) for key, end in row.offsets.items())


def start_of(target: ResolvedTarget, key: str) -> int:
    """Return the offset from which a partition is read again; of one that is held, the growth barrier has it."""
    return target.offsets.get(key, target.growth_barrier.get(key, 0))


def _named(
    spec: RewindSpec, row: FenceRow, log: Watermarks, facts: RewindFacts
) -> ResolvedTarget | Unseen | Violations:
    to = spec.to
    if wrong := _wrong_state(spec, row):
        return (wrong,)
    if to.snapshot is not None:
        if not isinstance(facts.snapshot, Known):
            return facts.snapshot
        if facts.snapshot.value is None:
            return (f"snapshot {to.snapshot!r} does not exist: list them with `fencepost snapshots list`",)
        return _of_found(facts.snapshot.value, spec, row, log)
    if to.timestamp is not None:
        return _of_timestamp(row, log, facts.positions)
    return _of_offsets(to.offsets or {}, row, log)


def _of_found(snapshot: Snapshot, spec: RewindSpec, row: FenceRow, log: Watermarks) -> ResolvedTarget | Violations:
    if row.offsets and not snapshot.offsets:
        return (WITHOUT_OFFSETS.format(snapshot.id),)
    is_kept = row.checkpoint is not None and not spec.empty_state
    return _of_state(snapshot, row) if is_kept else _of_snapshot(snapshot, row, log)


def _wrong_state(spec: RewindSpec, row: FenceRow) -> str:
    """Return why the pipeline cannot have the state that is asked for; '' when it can."""
    if spec.empty_state:
        return NO_STATE if row.checkpoint is None else ""
    return WITHOUT_STATE if row.checkpoint is not None and spec.to.snapshot is None else ""


def _of_timestamp(
    row: FenceRow, log: Watermarks, positions: Known[Mapping[str, int]] | Unseen
) -> ResolvedTarget | Unseen:
    if not isinstance(positions, Known):
        return positions
    read = {key for key in row.offsets if _topic(key) in log.topic_ids}
    if not read <= positions.value.keys():
        return UNCHECKED
    back = {key: min(at, row.offsets[key]) for key in read if (at := positions.value[key]) != NO_RECORD}
    target = _with_barrier({**row.offsets, **back}, row)
    grown = _grown_since(target, row)
    starts = {key: log.starts[key] for key in grown & log.starts.keys()}
    return _held_again(replace(target, offsets={**target.offsets, **starts}), grown)


def _of_offsets(given: Mapping[str, int], row: FenceRow, log: Watermarks) -> ResolvedTarget | Violations:
    target = _with_barrier({**row.offsets, **given}, row)
    grown = _grown_since(target, row)
    late = sorted(key for key in grown & log.starts.keys() if target.offsets[key] > log.starts[key])
    if late:
        names = listed([f"{key}: {log.starts[key]}" for key in late])
        why = f"the target is before topic {_topic(late[0])} grew, and newer records of a key would stay written"
        return (f"{why} while older ones are written again: add {names} to spec.to.offsets",)
    return _held_again(target, grown)


def _with_barrier(offsets: Mapping[str, int], row: FenceRow) -> ResolvedTarget:
    """Return a target with the barrier of each topic's first growth after it."""
    return ResolvedTarget(offsets=dict(offsets), growth_barrier=_first_after(offsets, row, row.growth_barrier))


def _first_after(offsets: Mapping[str, int], row: FenceRow, last: Mapping[str, int]) -> dict[str, int]:
    """Return the barrier of each topic's first growth after the offsets, `last` where it did not grow since.

    The driver passes that growth, and then those that followed it, as the row knows them.  A partition without an
    offset is still held: the growth that it came with counts as one after the offsets, and its start is that of `last`.
    """
    barrier, held = dict(last), {key: start for key, start in last.items() if key not in offsets}
    for growth in reversed(row.growths):
        if again := _crossed(growth, offsets) | {_topic(key) for key in held.keys() & growth.keys()}:
            barrier = {key: end for key, end in barrier.items() if _topic(key) not in again} | dict(growth)
    return {key: held.get(key, end) for key, end in barrier.items()}


def _crossed(barrier: Mapping[str, int], offsets: Mapping[str, int]) -> set[str]:
    """Return the topics of which the offsets are before a growth."""
    return {_topic(key) for key, end in barrier.items() if offsets.get(key, end) < end}


def _grown_since(target: ResolvedTarget, row: FenceRow) -> set[str]:
    """Return the partitions that their topic got after what the target repeats of older ones."""
    crossed = _crossed(target.growth_barrier, target.offsets)
    found = {key for key in row.growth_barrier if _topic(key) in crossed and key in row.offsets}
    return {key for key in found if not target.growth_barrier.get(key, 0)}


def _held_again(target: ResolvedTarget, grown: Iterable[str]) -> ResolvedTarget:
    """Return the target without these partitions: the driver holds them until the others have passed the barrier."""
    without = set(grown)
    starts = {key: target.offsets[key] for key in without & target.growth_barrier.keys()}
    offsets = {key: offset for key, offset in target.offsets.items() if key not in without}
    return replace(target, offsets=offsets, growth_barrier={**target.growth_barrier, **starts})


def _of_snapshot(snapshot: Snapshot, row: FenceRow, log: Watermarks) -> ResolvedTarget | Violations:
    """Return the snapshot's offsets for its topics; other topics, and those that the spec has left, stay.

    A partition that its topic has got since then leaves the row: the driver discovers it again, and holds it back until
    the older ones have passed their ends of then.
    """
    topics = {topic for topic in snapshot.topic_ids if topic in log.topic_ids or topic in log.missing_topics}
    if recreated := _recreated(snapshot, row, topics):
        return recreated
    back = {key: offset for key, offset in snapshot.offsets.items() if _topic(key) in topics}
    stay = {key: offset for key, offset in row.offsets.items() if _topic(key) not in topics}
    barrier = {key: end for key, end in row.growth_barrier.items() if _topic(key) not in topics}
    barrier |= {key: end for key, end in snapshot.growth_barrier.items() if _topic(key) in topics}
    epochs = {key: epoch for key, epoch in snapshot.leader_epochs.items() if key in back}
    offsets = {**stay, **back}
    return ResolvedTarget(offsets=offsets, leader_epochs=epochs, growth_barrier=_first_after(offsets, row, barrier))


def _of_state(snapshot: Snapshot, row: FenceRow) -> ResolvedTarget | Violations:
    """Return the snapshot's offsets for all topics: its state is that of their records before these, and of no other.

    Partitions that the topics have got since then leave the row, as with `_of_snapshot`.
    """
    if added := sorted({_topic(key) for key in row.offsets} - snapshot.topic_ids.keys()):
        return tuple(
            f"topic {topic} was added after the snapshot was taken, whose state has none of its records: choose a later"
            " snapshot"
            for topic in added
        )
    if recreated := _recreated(snapshot, row, snapshot.topic_ids):
        return recreated
    return ResolvedTarget(
        offsets=dict(snapshot.offsets),
        leader_epochs=dict(snapshot.leader_epochs),
        growth_barrier=_first_after(snapshot.offsets, row, snapshot.growth_barrier),
        snapshot=str(snapshot.id),
    )


def _recreated(snapshot: Snapshot, row: FenceRow, topics: Iterable[str]) -> Violations:
    other = sorted(topic for topic in topics if row.topic_ids.get(topic) != snapshot.topic_ids[topic])
    return tuple(f"topic {topic} was recreated since the snapshot was taken" for topic in other)


def _unknown(target: ResolvedTarget, row: FenceRow, log: Watermarks) -> Unknown | None:
    """Return what keeps the target from being checked: a topic that exists, and no answer for a partition of it."""
    moved = [key for key in _moved(target, row) & row.offsets.keys() if _topic(key) in log.topic_ids]
    return UNCHECKED if not log.topic_ids or any(key not in log.starts for key in moved) else None


def _unordered(target: ResolvedTarget, row: FenceRow) -> set[str]:
    """Return the topics of which the row may have forgotten a growth after the target."""
    known: dict[str, list[Mapping[str, int]]] = {}
    for growth in row.growths:
        known.setdefault(_topic(next(iter(growth))), []).append(growth)
    full = {topic: growths[0] for topic, growths in known.items() if len(growths) == KNOWN_GROWTHS}
    return {topic for topic, oldest in full.items() if _crossed(oldest, target.offsets)}


def _wrong(target: ResolvedTarget, row: FenceRow, log: Watermarks) -> Iterator[str]:
    moved = sorted(_moved(target, row))
    for topic in sorted(_unordered(target, row)):
        yield (
            f"topic {topic} has grown {KNOWN_GROWTHS} times or more since the target, and the order of keys is known"
            f" over {KNOWN_GROWTHS - 1}: choose a later target in spec.to"
        )
    for topic in sorted({_topic(key) for key in moved}):
        if topic not in log.topic_ids:
            yield f"topic {topic} is not read: it does not exist, or spec.source.kafka.topics does not name it"
        elif log.topic_ids[topic] != row.topic_ids.get(topic):
            yield f"topic {topic} was recreated since its offsets were committed"
    for key in moved:
        offset, committed, start = start_of(target, key), row.offsets.get(key), log.starts.get(key)
        if committed is None:
            yield f"{key} is not a partition that the pipeline has committed"
        elif offset > committed:
            yield f"{key}: {offset} is beyond the committed offset {committed}: a rewind only goes back"
        elif start is not None and offset < start:
            yield f"{key}: the log begins at {start}: the records from {offset} on were deleted"


def _moved(target: ResolvedTarget, row: FenceRow) -> set[str]:
    keys = target.offsets.keys() | row.offsets.keys()
    return {key for key in keys if target.offsets.get(key) != row.offsets.get(key)}


def _topic(key: str) -> str:
    return split_offset_key(key)[0]
