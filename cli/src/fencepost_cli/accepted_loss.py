"""A loss that was accepted, as the checks of a history and of sinks use it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fencepost.contract import REPLACED, Reason, offset_key
from fencepost.fence.left_out import LeftOut


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLoss:
    """A range [start, until) of a partition that was accepted as lost, and why it was lost; see `Loss`.

    `choice` is how the pipeline continues in a topic that was replaced.
    """

    partition: str
    start: int
    until: int
    reason: str | None
    choice: str | None = None
    at: datetime | None = None
    topic_id: str | None = None

    @classmethod
    def of_left_out(cls, record: LeftOut) -> AcceptedLoss:
        """Return the range of a record that users let the pipeline leave out."""
        return cls(
            partition=offset_key(record.topic, record.partition),
            start=record.offset,
            until=record.offset + 1,
            reason=str(Reason.POISON_RECORD),
            at=record.at,
            topic_id=record.topic_id,
        )

    @property
    def is_replaced(self) -> bool:
        """Whether the topic was deleted or recreated: what it held before is another log's."""
        return self.reason in REPLACED

    def explains(self, before: int, after: int | None) -> bool:
        """Return whether a claim that continues without the range moves the offset so; None: it drops the partition."""
        if self.reason == Reason.POISON_RECORD:  # the batch that leaves it out moves past it
            return False
        if self.is_replaced:
            return self.start == before
        if self.reason == Reason.LOG_TRUNCATED:
            return after == min(self.start, before)
        return (self.start, self.until) == (before, after)
