"""What Kafka lost, and how reading continues once that is accepted: pure functions over offsets.

An acceptance is used up by position.  It applies to the fence row that it was given for: the row has the topic ids and
offsets of the loss, and nothing was committed since.  What is lost besides is another loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from fencepost.batch import Watermarks
from fencepost.contract import (
    ABANDON,
    EARLIEST,
    REPLACED,
    Loss,
    Reason,
    ReportedLoss,
    StartingOffsets,
    TopicChange,
    choice_problem,
    commit_ms,
    split_offset_key,
    starts_of,
)
from fencepost.errors import DataLoss
from fencepost.fence import FenceError, FenceRow

AGREEMENT: Final = 30.0
"""Seconds for which all of Kafka's answers must say that a topic does not exist: a broker that starts says so too."""
_LARGEST: Final = 2**63 - 1
SHOWN: Final = 5
"""Ranges that a message names; the recorded loss has all of them."""


Ranges = Mapping[str, tuple[int, int]]
"""Offsets [start, until) per 'topic/partition'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """What an acceptance of whatever retention deletes is used for, to be recorded."""

    report: ReportedLoss
    ranges: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """The fence row without what is accepted as lost, which losses these were, and where replaced topics start.

    `skipped` is what acceptances were used for that reach further than the loss that was reported.
    """

    row: FenceRow
    accepted: tuple[ReportedLoss, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    starts: Mapping[str, StartingOffsets] = field(default_factory=dict)


def check_topics(
    offsets: Mapping[str, int],
    log_ends: Mapping[str, int],
    topic_ids: Mapping[str, str],
    log: Watermarks,
    topics: Iterable[str],
) -> None:
    """Raise DataLoss for every topic that Kafka has deleted, else for every one that was recreated.

    A topic that Kafka does not know is deleted once all answers have said so for AGREEMENT seconds.
    """
    changes = {topic: TopicChange(topic_ids[topic], log.topic_ids.get(topic)) for topic in topics}
    deleted = {
        topic: change
        for topic, change in changes.items()
        if change.new_id is None and log.missing.get(topic, 0.0) >= AGREEMENT
    }
    recreated = {topic: change for topic, change in changes.items() if change.new_id not in {None, change.old_id}}
    for reason, lost in ((Reason.TOPIC_DELETED, deleted), (Reason.TOPIC_RECREATED, recreated)):
        if lost:
            loss = Loss(reason=reason, ranges=_estimated(offsets, log_ends, lost), topics=lost)
            raise DataLoss(_topics_message(loss, log), reason=reason, loss=loss)


def check_ranges(
    offsets: Mapping[str, int], topic_ids: Mapping[str, str], log: Watermarks, topics: Iterable[str]
) -> None:
    """Raise DataLoss for every partition of which the log does not hold what comes at its offset.

    A partition without an offset starts at 0.  The log reaches to the high watermark: an offset beyond the last stable
    one was reached with `read_uncommitted`.
    """
    wanted = set(topics)
    next_offsets = {key: offsets.get(key, 0) for key in log.ends if split_offset_key(key)[0] in wanted}
    deleted = {key: (at, log.begins[key]) for key, at in next_offsets.items() if at < log.begins[key]}
    truncated = {key: (log.high_watermark(key), at) for key, at in next_offsets.items() if at > log.high_watermark(key)}
    if deleted:
        raise _lost(Reason.OFFSET_OUT_OF_RANGE, deleted, topic_ids)
    if truncated:
        raise _lost(Reason.LOG_TRUNCATED, truncated, topic_ids)


def check_begun(row: FenceRow, log: Watermarks, topics: Iterable[str]) -> None:
    """Raise DataLoss where the log ends before a batch does that was begun.

    Its records were there when it was planned, and rows of them may be written.  Without them it is never finished.
    """
    wanted = set(topics)
    gone = {
        key: (log.high_watermark(key), end)
        for key, end in row.written_until.items()
        if split_offset_key(key)[0] in wanted and key in log.ends and log.high_watermark(key) < end
    }
    if gone:
        raise _lost(Reason.LOG_TRUNCATED, gone, row.topic_ids)


def joined(one: DataLoss, other: DataLoss, row: FenceRow) -> DataLoss:
    """Return the error of what two looks show of truncated logs: of a partition that both name, all from the cut on."""
    if one.loss is None or other.loss is None:
        return one if other.loss is None else other
    ranges = dict(one.loss.ranges)
    for key, (start, until) in other.loss.ranges.items():
        first, last = ranges.get(key, (start, until))
        ranges[key] = min(first, start), max(last, until)
    return _lost(Reason.LOG_TRUNCATED, ranges, row.topic_ids)


def completed(error: DataLoss, row: FenceRow) -> DataLoss:
    """Return the error with what only the fence row knows of its loss: the topics' ids and the last commit.

    A reader knows neither; of its ranges only those of the row's partitions count.
    """
    loss = error.loss
    if loss is not None and not loss.topics:
        ranges = {
            key: (start, until)
            for key, (start, until) in loss.ranges.items()
            if key in row.offsets and 0 <= start <= until <= _LARGEST
        }
        loss = replace(loss, ranges=ranges, topics=_unchanged(ranges, row.topic_ids)) if ranges else None
    if loss is not None:
        loss = replace(loss, committed_ms=commit_ms(row.committed_at))
    return DataLoss(error.message, reason=error.reason, remedy=error.remedy, loss=loss)


def unrecorded(error: DataLoss, refused: FenceError) -> DataLoss:
    """Return the error of a loss that could not be stored in the fence's keyspace: until then it cannot be accepted."""
    remedy = (
        f"The loss could not be recorded ({refused}). Create table fence_losses as docs/fence-schema.cql has it, and"
        " grant the driver's account MODIFY and SELECT on it; then request a new attempt."
    )
    return DataLoss(error.message, reason=error.reason, remedy=remedy)


def log_fields(report: ReportedLoss) -> Mapping[str, object]:
    """Return what the log says of a loss that is taken out."""
    loss, acceptance = report.loss, report.acceptance
    return {
        "loss": loss.id,
        "reason": str(loss.reason),
        "ranges": _shown(loss),
        "by": acceptance.by if acceptance else None,
        "choice": acceptance.choice[:200] if acceptance else None,
    }


def without_accepted(row: FenceRow, reported: Iterable[ReportedLoss], log: Watermarks) -> Continued:
    """Return how to continue from a row: each accepted loss that is of this very row is taken out, oldest first.

    Losses that overlap, as one that was found again with more to it, are taken out together.
    The planned batch keeps what is left of it.  Of a truncated partition and a replaced topic nothing of it is left:
    those records are gone, whatever is at their offsets now.
    Raises DataLoss, of the same loss, when its acceptance names a partition or an offset that the log does not have.
    """
    found = Continued(row=row)
    for report in sorted(reported, key=lambda report: report.epoch):
        if _is_of(report, row, found.row, log):
            found = _opened(found, report, log) if _is_open(report) else _taken_out(found, report)
            _check_starts(report, found.starts, log)
    return found


def without_expired(row: FenceRow, reported: Iterable[ReportedLoss], log: Watermarks) -> Continued | None:
    """Return how a run continues after what retention deleted, as far as the row says that it was accepted.

    None where retention deleted nothing that is still to be read, or later records, which no user accepted.
    """
    expired = _expired(row, log, row.topic_ids)
    if not expired or any(until > row.accepted_until.get(key, 0) for key, (_, until) in expired.items()):
        return None
    opened = sorted(filter(_is_open, reported), key=lambda report: report.epoch, reverse=True)
    skipped: dict[str, tuple[ReportedLoss, dict[str, tuple[int, int]]]] = {}
    for key, bounds in expired.items():
        topic, _ = split_offset_key(key)
        found = next((each for each in opened if _names(each.loss, topic, row)), None)
        if found is None:
            return None  # who accepted it is not known any more
        skipped.setdefault(found.loss.id, (found, {}))[1][key] = bounds
    return Continued(
        row=_moved_on(row, {key: until for key, (_, until) in expired.items()}),
        skipped=tuple(Skipped(report=report, ranges=ranges) for report, ranges in skipped.values()),
    )


def _names(loss: Loss, topic: str, row: FenceRow) -> bool:
    return topic in loss.topics and loss.topics[topic].old_id == row.topic_ids.get(topic)


def _is_open(report: ReportedLoss) -> bool:
    choice = report.acceptance.choice if report.acceptance else ""
    return report.loss.reason is Reason.OFFSET_OUT_OF_RANGE and choice == EARLIEST


def _opened(found: Continued, report: ReportedLoss, log: Watermarks) -> Continued:
    """Take out what is gone of the loss's topics now; of a partition without a leader, what was reported."""
    starts = {**found.row.growth_barrier, **found.row.offsets}
    reported = {
        key: (starts.get(key, 0), until)
        for key, (_, until) in report.loss.ranges.items()
        if key not in log.begins and starts.get(key, 0) < until
    }
    skipped = {**reported, **_expired(found.row, log, report.loss.topics)}
    held = {key: log.high_watermark(key) for key in log.ends if split_offset_key(key)[0] in report.loss.topics}
    row = replace(found.row, accepted_until={**found.row.accepted_until, **held})
    return replace(
        found,
        row=_moved_on(row, {key: until for key, (_, until) in skipped.items()}),
        accepted=(*found.accepted, report),
        skipped=(*found.skipped, Skipped(report=report, ranges=skipped)),
    )


def _expired(row: FenceRow, log: Watermarks, topics: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return what the log does not hold any more from the row's positions on; a new partition starts at 0."""
    starts, wanted = {**row.growth_barrier, **row.offsets}, set(topics)
    return {
        key: (starts.get(key, 0), begin)
        for key, begin in log.begins.items()
        if split_offset_key(key)[0] in wanted and starts.get(key, 0) < begin
    }


def _moved_on(row: FenceRow, moved: Mapping[str, int]) -> FenceRow:
    """Return the row with these partitions at other offsets; of one that is held, the growth barrier has the start."""
    held = {key: at for key, at in moved.items() if key not in row.offsets}
    return replace(
        row,
        offsets={**row.offsets, **{key: at for key, at in moved.items() if key not in held}},
        growth_barrier={**row.growth_barrier, **held},
        leader_epochs=_without(row.leader_epochs, moved),
        epoch_starts=_without(row.epoch_starts, moved),
    )


def _check_starts(report: ReportedLoss, starts: Mapping[str, StartingOffsets], log: Watermarks) -> None:
    chosen = {
        key: at for topic in report.loss.topics if topic in starts for key, at in starts[topic].partitions.items()
    }
    if unknown := sorted(chosen.keys() - log.ends.keys() - log.leaderless):
        topic, _ = split_offset_key(unknown[0])
        known = sorted(key for key in log.ends.keys() | log.leaderless if split_offset_key(key)[0] == topic)
        raise DataLoss(
            f"the acceptance of loss {report.loss.id} has continue={unknown[0]}:{chosen[unknown[0]]}; topic {topic} has"
            f" {len(known)} partitions, and that is none of them",
            reason=report.loss.reason,
            remedy=f"Accept the loss again: with partitions from 0 to {len(known) - 1}, or continue=earliest.",
            loss=report.loss,
        )
    for key in sorted(chosen.keys() & log.ends.keys()):
        begin, end = log.begins[key], log.high_watermark(key)
        if not begin <= chosen[key] <= end:
            raise DataLoss(
                f"the acceptance of loss {report.loss.id} has continue={key}:{chosen[key]}; that is outside the log,"
                f" which holds [{begin}, {end})",
                reason=report.loss.reason,
                remedy="Accept the loss again: with an offset that the log holds, or continue=earliest.",
                loss=report.loss,
            )


def _is_of(report: ReportedLoss, read: FenceRow, row: FenceRow, log: Watermarks) -> bool:
    """Return whether an accepted loss is of the row as it was read, or as others that are accepted leave it."""
    loss, acceptance = report.loss, report.acceptance
    if acceptance is None or choice_problem(loss, acceptance.choice):
        return False
    same_topics = all(row.topic_ids.get(topic) == change.old_id for topic, change in loss.topics.items())
    if not same_topics or loss.committed_ms != commit_ms(row.committed_at):
        return False
    match loss.reason:
        case Reason.OFFSET_OUT_OF_RANGE if acceptance.choice != EARLIEST:
            known, now = {**read.growth_barrier, **read.offsets}, {**row.growth_barrier, **row.offsets}
            begins = all(
                start in {known.get(key, 0), now.get(key, 0)} and start <= now.get(key, 0)
                for key, (start, _) in loss.ranges.items()
            )
            return begins and any(now.get(key, 0) < until for key, (_, until) in loss.ranges.items())
        case Reason.LOG_TRUNCATED:
            return all(row.offsets.get(key, 0) <= until for key, (_, until) in loss.ranges.items())
        case Reason.TOPIC_RECREATED if acceptance.choice != ABANDON:
            return all(log.topic_ids.get(topic) == change.new_id for topic, change in loss.topics.items())
        case _:
            return True


def _taken_out(found: Continued, report: ReportedLoss) -> Continued:
    loss, row = report.loss, found.row
    accepted, starts = (*found.accepted, report), dict(found.starts)
    if loss.reason in REPLACED:
        choice = report.acceptance.choice if report.acceptance else ABANDON
        if choice != ABANDON:
            partitions = starts_of(choice)
            starts |= {
                topic: StartingOffsets(
                    position=EARLIEST,
                    partitions={key: at for key, at in partitions.items() if split_offset_key(key)[0] == topic},
                )
                for topic in loss.topics
            }
        return replace(found, row=_without_topics(row, loss.topics), accepted=accepted, starts=starts)
    if loss.reason is Reason.LOG_TRUNCATED:
        starts_at = {**row.growth_barrier, **row.offsets}  # of a partition that is held, the barrier has the start
        ends = {key: start for key, (start, _) in loss.ranges.items()}
        moved = {key: min(end, starts_at.get(key, 0)) for key, end in ends.items()}
        row = replace(
            row,
            planned=_no_further(row.planned, ends),
            begun=_no_further(row.begun, ends),
            growth_barrier=_no_further(row.growth_barrier, moved),
        )
        # The epoch shows where the log is cut once more. What is left may have been written under an earlier one.
        moved_back = replace(_moved_on(row, moved), leader_epochs=row.leader_epochs)
        return replace(found, row=moved_back, accepted=accepted)
    starts_at = {**row.growth_barrier, **row.offsets}
    moved = {key: max(until, starts_at.get(key, 0)) for key, (_, until) in loss.ranges.items()}
    return replace(found, row=_moved_on(row, moved), accepted=accepted)


def _without_topics(row: FenceRow, topics: Iterable[str]) -> FenceRow:
    """Return the row as if these topics had never been read."""
    gone = set(topics)
    keys = {
        key
        for known in (
            row.offsets,
            row.planned,
            row.begun,
            row.accepted_until,
            row.leader_epochs,
            row.growth_barrier,
            row.log_ends,
        )
        for key in known
        if split_offset_key(key)[0] in gone
    }
    return replace(
        row,
        offsets=_without(row.offsets, keys),
        planned=_without(row.planned, keys),
        begun=_without(row.begun, keys),
        accepted_until=_without(row.accepted_until, keys),
        topic_ids={topic: name for topic, name in row.topic_ids.items() if topic not in gone},
        leader_epochs=_without(row.leader_epochs, keys),
        epoch_starts=_without(row.epoch_starts, keys),
        growth_barrier=_without(row.growth_barrier, keys),
        growths=tuple(growth for growth in row.growths if not keys & growth.keys()),
        log_ends=_without(row.log_ends, keys),
    )


def _no_further(values: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
    return {key: min(value, ends.get(key, value)) for key, value in values.items()}


def _without(values: Mapping[str, int], keys: Iterable[str]) -> dict[str, int]:
    dropped = set(keys)
    return {key: value for key, value in values.items() if key not in dropped}


def _estimated(
    offsets: Mapping[str, int], log_ends: Mapping[str, int], topics: Iterable[str]
) -> dict[str, tuple[int, int]]:
    """Return what is lost of topics that are gone: from the committed offsets to the ends that were last seen."""
    gone = set(topics)
    starts = {**dict.fromkeys(log_ends, 0), **offsets}
    return {
        key: (start, max(start, log_ends.get(key, start)))
        for key, start in starts.items()
        if split_offset_key(key)[0] in gone
    }


def _unchanged(ranges: Iterable[str], topic_ids: Mapping[str, str]) -> dict[str, TopicChange]:
    topics = {split_offset_key(key)[0] for key in ranges}
    return {topic: TopicChange(topic_ids[topic], topic_ids[topic]) for topic in topics if topic in topic_ids}


def _lost(reason: Reason, ranges: Mapping[str, tuple[int, int]], topic_ids: Mapping[str, str]) -> DataLoss:
    loss = Loss(reason=reason, ranges=ranges, topics=_unchanged(ranges, topic_ids))
    if reason is Reason.OFFSET_OUT_OF_RANGE:
        message = f"retention deleted {_counted(loss)} before they were read: {_shown(loss)}"
    else:
        message = f"the log was truncated: {_counted(loss)} were read and no longer exist: {_shown(loss)}"
    return DataLoss(message, reason=reason, loss=loss)


def _topics_message(loss: Loss, log: Watermarks) -> str:
    what = [
        f"topic {topic!r} does not exist: Kafka says so for {log.missing[topic]:.0f} s; it had id {change.old_id}"
        if change.new_id is None
        else f"topic {topic!r} was recreated: its id is {change.new_id}, the committed offsets belong to"
        f" {change.old_id}"
        for topic, change in sorted(loss.topics.items())[:SHOWN]
    ]
    return f"{'; '.join(what)}. Estimated loss: {_counted(loss)}: {_shown(loss)}"


def held(row: FenceRow, log: Watermarks, topics: Iterable[str]) -> str:
    """Return what the log holds from the committed offsets on, for a message."""
    wanted = set(topics)
    parts = [
        f"{key} [{log.begins[key]}, {log.high_watermark(key)}) with {at} next"
        for key, at in sorted(row.offsets.items())
        if split_offset_key(key)[0] in wanted and key in log.ends
    ]
    more = len(parts) - SHOWN
    return ", ".join(parts[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _counted(loss: Loss) -> str:
    return f"{loss.records} offsets of {len(loss.ranges)} {'partition' if len(loss.ranges) == 1 else 'partitions'}"


def _shown(loss: Loss) -> str:
    """Return the first ranges, and how many more there are."""
    shown = ", ".join(f"{key} [{start}, {until})" for key, (start, until) in sorted(loss.ranges.items())[:SHOWN])
    more = len(loss.ranges) - SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
