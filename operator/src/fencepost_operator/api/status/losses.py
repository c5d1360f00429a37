"""Records that are lost, set aside, or may be in the output of two codes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fencepost_operator.api.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange(Model):
    """Offsets [from_offset, until_offset) of a partition."""

    partition: str
    """The partition."""
    from_offset: int
    """The first offset of the range."""
    until_offset: int
    """The first offset after the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedTopic(Model):
    """A topic that was deleted, or recreated under a new id."""

    topic: str
    """The topic."""
    old_id: str
    """The id that the committed offsets belong to."""
    new_id: str | None = None
    """The id that Kafka has now; absent when the topic does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossStatus(Model):
    """Records that Kafka no longer has. The pipeline waits until the loss is accepted with the annotation
    streaming.fencepost.dev/accept-loss; absent as soon as the next run has claimed the fence without them.
    """

    id: str
    """Hash of the reason and all ranges and topics. An acceptance names it."""
    reason: str
    """OffsetOutOfRange, LogTruncated, TopicDeleted or TopicRecreated."""
    epoch: int
    """Epoch of the run that found it."""
    at: datetime
    """When the run found it."""
    records: int = 0
    """Number of offsets in all ranges."""
    partitions: int = 0
    """Number of partitions."""
    estimated: bool = False
    """The log itself is gone, so the ranges end where the driver last saw its end."""
    ranges: tuple[OffsetRange, ...] = ()
    """The first ten ranges. Table fence_losses of the fence's keyspace has all."""
    topics: tuple[ReplacedTopic, ...] = ()
    """The first ten topics that were deleted or recreated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLossStatus(Model):
    """An acceptance, as table accepted_losses of the fence's keyspace has it whole; `choice` is cut."""

    id: str
    """Id of the loss."""
    # The acceptance answers a stop at this loss up to that run.
    epoch: int
    """Epoch of the newest run at that time."""
    reason: str
    """Reason of the loss."""
    by: str
    """Who accepted it."""
    at: datetime
    """When the operator recorded it."""
    choice: str = ""
    """How a replaced topic continues."""
    records: int = 0
    """Number of offsets in all ranges."""
    partitions: int = 0
    """Number of partitions."""
    ranges: tuple[OffsetRange, ...] = ()
    """The first ten ranges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersStatus(Model):
    """Records that were set aside; see onPoison. Absent while none is."""

    count: int
    """Number of them since the pipeline was created."""
    last: str | None = None
    """The newest one, as topic/partition@offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedOutput(Model):
    """Records of which two codes may have written rows: `after` took over in `epoch`, because of `why`."""

    epoch: int
    """Epoch in which the newer code took over."""
    at: datetime
    """When that was recorded."""
    before: str
    """The code that began the batch."""
    after: str
    """The code that took over."""
    why: str
    """Why the code that began the batch did not finish it."""
    records: int = 0
    """Number of offsets in all ranges."""
    partitions: int = 0
    """Number of partitions."""
    ranges: tuple[OffsetRange, ...] = ()
    """The first hundred ranges."""
