"""Losses and their acceptances as rows: what is read back is a loss only if it has the content that its id names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from fencepost.contract import LOSSES, Acceptance, Loss, Reason, ReportedLoss, TopicChange, split_offset_key
from fencepost.fence.stored_rows import PARTITION

_LARGEST: Final = 2**63 - 1
"""Of a bigint."""


def report_values(pipeline: str, report: ReportedLoss) -> Mapping[str, Any]:
    """Return the columns of table `fence_losses` that a driver writes."""
    loss = report.loss
    return {
        "pipeline": pipeline,
        "committed_ms": loss.committed_ms,
        "id": loss.id,
        "epoch": report.epoch,
        "reason": str(loss.reason),
        "from_offsets": {key: start for key, (start, _) in loss.ranges.items()},
        "until_offsets": {key: until for key, (_, until) in loss.ranges.items()},
        "old_topic_ids": {topic: change.old_id for topic, change in loss.topics.items()},
        "new_topic_ids": {topic: change.new_id for topic, change in loss.topics.items() if change.new_id is not None},
        "at": report.at,
    }


def accepted_rows(
    pipeline: str, loss: Loss, acceptance: Acceptance, ranges: Mapping[str, tuple[int, int]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of table `accepted_losses`, one for each range that the acceptance of a loss covers."""
    for key, (start, until) in sorted(ranges.items()):
        topic, partition = split_offset_key(key)
        change = loss.topics.get(topic)
        yield {
            "pipeline": pipeline,
            "topic": topic,
            "partition": partition,
            "from_offset": start,
            "until_offset": until,
            "accepted_by": acceptance.by,
            "at": acceptance.at,
            "loss": loss.id,
            "reason": str(loss.reason),
            "choice": acceptance.choice,
            "topic_id": change.old_id if change else None,
            "new_topic_id": change.new_id if change else None,
        }


def reported_loss(found: Any) -> ReportedLoss | None:  # noqa: ANN401 - a driver's named tuple
    """Return the loss in a row of table `fence_losses`, None for one that no driver wrote as it is."""
    try:
        loss = Loss(
            reason=Reason(found.reason),
            ranges=_ranges(found),
            topics=_topics(found),
            committed_ms=found.committed_ms,
        )
        if not isinstance(found.epoch, int) or loss.id != found.id or not _is_sound(loss):
            return None
        return ReportedLoss(loss=loss, epoch=found.epoch, at=_utc(found.at), acceptance=_acceptance(found))
    except (AttributeError, KeyError, TypeError, ValueError):  # a column set to null or to something else by hand
        return None


def _is_sound(loss: Loss) -> bool:
    """Return whether every value is what a driver may write: a Cassandra that a tenant runs sends anything."""
    numbers: list[Any] = [loss.committed_ms, *(offset for bounds in loss.ranges.values() for offset in bounds)]
    ids: list[Any] = [
        name for change in loss.topics.values() for name in (change.old_id, change.new_id) if name is not None
    ]
    if loss.reason not in LOSSES or not all(isinstance(number, int) and 0 <= number <= _LARGEST for number in numbers):
        return False
    if not all(isinstance(name, str) for name in ids):
        return False
    keys = all(PARTITION.fullmatch(key) for key in (*loss.ranges, *(f"{topic}/0" for topic in loss.topics)))
    return keys and {split_offset_key(key)[0] for key in loss.ranges} <= loss.topics.keys()


def _ranges(found: Any) -> dict[str, tuple[int, int]]:  # noqa: ANN401
    starts, ends = dict((found.from_offsets or {}).items()), dict((found.until_offsets or {}).items())
    return {key: (start, ends[key]) for key, start in starts.items()}


def _topics(found: Any) -> dict[str, TopicChange]:  # noqa: ANN401
    new = dict((found.new_topic_ids or {}).items())
    return {topic: TopicChange(old, new.get(topic)) for topic, old in (found.old_topic_ids or {}).items()}


def _acceptance(found: Any) -> Acceptance | None:  # noqa: ANN401
    if found.accepted_at is None or not (isinstance(found.accepted_by, str) and found.accepted_by):
        return None
    if not isinstance(found.choice, str | None):
        return None
    return Acceptance(by=found.accepted_by, choice=found.choice or "", at=_utc(found.accepted_at))


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)
