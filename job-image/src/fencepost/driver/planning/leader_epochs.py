"""What the leader epochs of records say: whether they are of the log that was read before.

The header of a record batch names the leader epoch under which it was written, whoever serves it.  Within one log the
epochs never fall, and (epoch, offset) names one record.  So where they fall, two logs were read.  Where they rise, the
log of the later leader must reach as far under the earlier epoch as was read of it (KIP-320), and only a leader that
knows the later epoch can say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from fencepost.batch import Batch, Range, Sighting
from fencepost.contract import Reason
from fencepost.driver.ports import Records
from fencepost.errors import DataLoss, DependencyDown


@dataclass(frozen=True, slots=True)
class Committed:
    """The epochs that belong to a batch's end, as FenceRow has them."""

    leader_epochs: dict[str, int] = field(default_factory=dict)
    epoch_starts: dict[str, int] = field(default_factory=dict)


class Rise(NamedTuple):
    """A later epoch after an earlier one: the offsets from the last record of that to the first one of `epoch`."""

    part: Range
    epoch: int


class _Answer(NamedTuple):
    """What a check of a position gave: the leader that was seen before it, and the epoch of the next record."""

    start: int
    leader: int
    record: int


class LeaderEpochs:
    """Compares what one run reads with what was read before it."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._answers: dict[str, _Answer] = {}

    def before(self, batch: Batch) -> None:
        """Ask whether logs with another leader still hold what was read, once per leader. Raises as Records.check."""
        leaders = batch.leader_epochs
        due = tuple(part for part in batch.since_other_leaders if self._is_due(part, leaders[part.key]))
        if due:
            records = self._records.check(due)
            self._answers |= {
                part.key: _Answer(part.start, leaders[part.key], records.get(part.key, -1)) for part in due
            }

    def after(self, batch: Batch, seen: Mapping[str, Sequence[Sighting]]) -> Committed:
        """Return what is committed with a batch of which these records were seen.

        Raises DependencyDown for records of two logs, and where no leader answers that knows their epochs; DataLoss
        where its log differs from what was read.
        """
        found = Committed(leader_epochs=dict(batch.leader_epochs))
        rises: dict[str, list[Rise]] = {}
        for part in batch.ranges:
            records = sorted(seen.get(part.key, ()))
            _require_one_log(part, records)
            epoch, start, chain = _end(part, records, batch.leader_epochs.get(part.key))
            if epoch is not None:
                found.leader_epochs[part.key] = epoch
            if start is not None:
                found.epoch_starts[part.key] = start
            rises[part.key] = [rise for rise in _rises(part, chain) if not self._is_known(rise)]
        while round_ := [waiting.pop(0) for waiting in rises.values() if waiting]:
            self._check(round_)
        return found

    def _is_due(self, part: Range, leader: int) -> bool:
        """Return whether to ask about a position: not again under one leader, unless its log had a later record there.

        Between two such questions `after` checks each rise.
        """
        answer = self._answers.get(part.key)
        return answer is None or answer.leader != leader or answer.record > (part.leader_epoch or 0)

    def _is_known(self, rise: Rise) -> bool:
        """Return whether the question before this batch was about the same, and had the answer of so late a leader."""
        answer = self._answers.get(rise.part.key)
        return answer is not None and answer.start == rise.part.start and answer.record >= rise.epoch

    def _check(self, rises: Sequence[Rise]) -> None:
        try:
            self._records.check([rise.part for rise in rises], {rise.part.key: rise.epoch for rise in rises})
        except DataLoss as lost:
            if lost.reason is not Reason.OFFSET_OUT_OF_RANGE:
                raise
            if len(rises) > 1:
                for rise in rises:
                    self._check([rise])
            # Else retention has deleted it since it was read: there is nothing left to compare.


def _require_one_log(part: Range, records: Sequence[Sighting]) -> None:
    """Raise DependencyDown where the epochs fall, or one offset has two. Nothing is lost: the batch is read again."""
    before = (
        [Sighting(part.start - 1, part.leader_epoch)]
        if part.epoch_start is not None and part.leader_epoch is not None
        else []
    )
    for one, other in pairwise([*before, *records]):
        if other.epoch < one.epoch or (other.offset == one.offset and other.epoch != one.epoch):
            raise DependencyDown(
                f"Kafka gave records of two logs of {part.key}: offset {one.offset} of leader epoch {one.epoch}, and"
                f" offset {other.offset} of {other.epoch}",
                reason=Reason.KAFKA_UNREACHABLE,
                remedy="Nothing of the batch is committed, and the next run reads it again. See whether a broker that"
                " the controller does not reach still serves clients.",
            )


def _end(
    part: Range, records: Sequence[Sighting], leader: int | None
) -> tuple[int | None, int | None, Sequence[Sighting]]:
    """Return the epoch of a range's end, where that epoch starts, and the records that led to it.

    Offsets without a record may end the range (transaction markers, aborted records, compaction), under an epoch that
    is not seen.  It is that of the last record where the next one has it, or where the leader had no later one when the
    range was planned.  Otherwise the next record's epoch is the latest that it can be, or the leader's.
    """
    inside = [record for record in records if record.offset < part.until]
    beyond = next((record for record in records if record.offset >= part.until), None)
    epoch, start, is_last = None, None, False
    if inside:
        epoch, is_last = inside[-1].epoch, inside[-1].offset + 1 == part.until
        first = next(record.offset for record in inside if record.epoch == epoch)
        start = part.epoch_start if epoch == part.leader_epoch and part.epoch_start is not None else first
    elif part.epoch_start is not None:
        epoch, start = part.leader_epoch, part.epoch_start
    if epoch is not None and (is_last or epoch == leader or (beyond is not None and beyond.epoch == epoch)):
        return epoch, start, inside
    if beyond is not None:
        return beyond.epoch, None, [*inside, beyond]
    known = [each for each in (epoch, leader) if each is not None]
    return max(known, default=None), None, inside


def _rises(part: Range, records: Sequence[Sighting]) -> Iterator[Rise]:
    """Yield where the epochs of a range's records rise, from that of its start on."""
    if records and part.leader_epoch is not None and records[0].epoch > part.leader_epoch:
        yield Rise(replace(part, until=records[0].offset + 1), records[0].epoch)
    for one, other in pairwise(records):
        if other.epoch > one.epoch:
            between = replace(part, start=one.offset + 1, until=other.offset + 1)
            yield Rise(replace(between, leader_epoch=one.epoch, epoch_start=None), other.epoch)
