"""Records that Kafka no longer has, in the status: the loss that a user has to accept, and the accepted ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fencepost_operator.api.fields import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange(Model):
    """Offsets [from_offset, until_offset) of a partition that Kafka no longer has."""

    partition: str
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedTopic(Model):
    """A topic that was deleted, or recreated under a new id."""

    topic: str
    old_id: str
    new_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossStatus(Model):
    """The loss that stops the pipeline until a user accepts it and a run has claimed the fence.

    `ranges` and `topics` have the first ones; `records` counts the offsets of all `partitions`.  `estimated`: the
    log is gone, so the ranges end where the driver last saw the log end.
    """

    id: str
    reason: str
    epoch: int
    at: datetime
    records: int = 0
    partitions: int = 0
    estimated: bool = False
    ranges: tuple[LostRange, ...] = ()
    topics: tuple[ReplacedTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLossStatus(Model):
    """An acceptance, as table accepted_losses of the fence's keyspace has it whole; `choice` is cut.

    `epoch` is of the newest run when the acceptance was first seen: it answers a stop at this loss up to that run.
    """

    id: str
    epoch: int
    reason: str
    by: str
    at: datetime
    choice: str = ""
    records: int = 0
    partitions: int = 0
    ranges: tuple[LostRange, ...] = ()
