"""What the status says of a loss and of its acceptance: the first ranges, and counts of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from fencepost.contract import REPLACED, Loss, Reason, ReportedLoss, commit_ms, split_offset_key
from fencepost.fence import FenceRow
from fencepost_operator.api import AcceptedLossStatus, LossStatus, OffsetRange, ReplacedTopic, Status
from fencepost_operator.decision.wording import listed
from fencepost_operator.observation import Known, Observation
from fencepost_operator.text import single_line

RANGES: Final = 10
"""Ranges and topics in the status; table fence_losses has all."""
ACCEPTED: Final = 10
"""Acceptances in the status; table accepted_losses has all."""
_LARGEST: Final = 2**63 - 1
"""Of a count: the API server takes no larger integer, and refuses the whole status."""
LONGEST_TEXT: Final = 253
"""Characters of a topic's name or id, of who accepts, and of a choice."""


def update(status: Status, row: FenceRow | None, observation: Observation) -> Status:
    """Return the status with the loss that was observed, without one that a later run has got past."""
    seen = observation.loss.value if isinstance(observation.loss, Known) else None
    if seen is not None:
        epoch = status.run.epoch if status.run is not None else 0
        accepted = _with_acceptance(status.accepted_losses, seen, epoch)
        status = replace(status, loss=_reported(seen), accepted_losses=accepted)
    run, loss = status.run, status.loss
    if run is not None and loss is not None and run.claimed_at is not None and run.epoch > loss.epoch:
        return replace(status, loss=None)
    return _without_gone_batches(status, row, observation) if row is not None else status


def without_gone(ends: Mapping[str, int], status: Status, row: FenceRow, observation: Observation) -> dict[str, int]:
    """Return where begun batches end after a loss that a user has accepted and no run has passed yet.

    The claim of the next run takes them out of the fence row, see `fencepost.driver.recovery.lost_ranges`.  Of a topic
    that was deleted or recreated nothing is left, and of a truncated partition what the log still has.  Records that
    expired move the offsets instead.
    """
    seen = observation.loss.value if isinstance(observation.loss, Known) else None
    if seen is None or seen.acceptance is None or status.loss is None or not _is_of(seen.loss, row):
        return dict(ends)
    left = {key: _left(seen.loss, key, end) for key, end in ends.items()}
    return {key: end for key, end in left.items() if end is not None and end > row.offsets.get(key, 0)}


def _is_of(loss: Loss, row: FenceRow) -> bool:
    """Return whether the row has what was lost: the topics of that time, and no commit since."""
    same_topics = all(row.topic_ids.get(topic) == change.old_id for topic, change in loss.topics.items())
    return same_topics and loss.committed_ms == commit_ms(row.committed_at)


def _left(loss: Loss, key: str, end: int) -> int | None:
    if loss.reason in REPLACED:
        return None if split_offset_key(key)[0] in loss.topics else end
    return min(end, loss.ranges[key][0]) if loss.reason is Reason.LOG_TRUNCATED and key in loss.ranges else end


def _without_gone_batches(status: Status, row: FenceRow, observation: Observation) -> Status:
    batch = status.finishing
    if batch is None:
        return status
    until = without_gone(batch.until, status, row, observation)
    return replace(status, finishing=replace(batch, until=until) if until else None)


def described(accepted: AcceptedLossStatus) -> str:
    """Return an acceptance as one sentence."""
    choice = f", continue={accepted.choice}" if accepted.choice else ""
    return (
        f"{accepted.by} accepted loss {accepted.id} ({accepted.reason}{choice}): "
        f"{counted(accepted.records, accepted.partitions)}, {shown(accepted.ranges)}"
    )


def counted(records: int, partitions: int) -> str:
    """Return how much is lost."""
    return f"{records} offsets of {partitions} {'partition' if partitions == 1 else 'partitions'}"


def shown(ranges: Sequence[OffsetRange]) -> str:
    """Return the first ranges."""
    return listed([f"{found.partition} [{found.from_offset}, {found.until_offset})" for found in ranges])


def _reported(seen: ReportedLoss) -> LossStatus:
    loss = seen.loss
    replaced = sorted(loss.topics.items())[:RANGES] if loss.reason in REPLACED else []
    return LossStatus(
        id=loss.id,
        reason=loss.reason,
        epoch=seen.epoch,
        at=seen.at,
        records=min(max(0, loss.records), _LARGEST),
        partitions=len(loss.ranges),
        estimated=loss.reason in REPLACED,
        ranges=_first(loss),
        topics=tuple(
            ReplacedTopic(topic=_text(topic), old_id=_text(change.old_id), new_id=_text(change.new_id) or None)
            for topic, change in replaced
        ),
    )


def _with_acceptance(
    before: tuple[AcceptedLossStatus, ...], seen: ReportedLoss, epoch: int
) -> tuple[AcceptedLossStatus, ...]:
    loss, acceptance = seen.loss, seen.acceptance
    if acceptance is None:
        return before
    given = (loss.id, _text(acceptance.by), _text(acceptance.choice))
    if any((known.id, known.by, known.choice) == given for known in before):
        return before
    accepted = AcceptedLossStatus(
        id=loss.id,
        epoch=epoch,
        reason=loss.reason,
        by=_text(acceptance.by),
        at=acceptance.at,
        choice=_text(acceptance.choice),
        records=min(max(0, loss.records), _LARGEST),
        partitions=len(loss.ranges),
        ranges=_first(loss),
    )
    return (*before, accepted)[-ACCEPTED:]


def _first(loss: Loss) -> tuple[OffsetRange, ...]:
    return tuple(
        OffsetRange(partition=_text(key), from_offset=start, until_offset=until)
        for key, (start, until) in sorted(loss.ranges.items())[:RANGES]
    )


def _text(text: str | None) -> str:
    return single_line(text, limit=LONGEST_TEXT)
