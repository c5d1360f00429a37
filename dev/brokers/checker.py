"""Holds what the clients saw against what Kafka and the table hold at the end; knows nothing of how a driver works.

Where no loss was accepted, a driver reads each offset once. So rows of a log that diverged without a recorded loss are
still in the table at the end, and differ from the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from brokers.producer import Acknowledged
from fencepost.contract import ReportedLoss, split_offset_key
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.history.checks import Change, check_history

SHOWN: Final = 5
"""Places that one sentence names."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is there once nothing runs any more: numbers by place, in Kafka's log and in the table.

    `keeps` is whether Kafka must keep what it acknowledged, and each number once.
    """

    acknowledged: Sequence[Acknowledged]
    log: Mapping[Place, int]
    rows: Sequence[tuple[Place, int]]
    changes: Sequence[Change]
    losses: Sequence[ReportedLoss]
    keeps: bool


def violations(seen: Seen) -> list[str]:
    """Return each promise that does not hold, as a sentence."""
    return [*_rows(seen), *_history(seen), *(_kept(seen) if seen.keeps else _exact(seen))]


def forgotten(seen: Seen) -> list[Acknowledged]:
    """Return the records that Kafka acknowledged and does not hold."""
    return [record for record in seen.acknowledged if seen.log.get((record.partition, record.offset)) != record.number]


def _rows(seen: Seen) -> Iterator[str]:
    """Yield where the table is not what Kafka's log is."""
    stored = dict(seen.rows)
    if len(stored) != len(seen.rows):
        yield f"{len(seen.rows) - len(stored)} places are in the table twice"
    missing = sorted(seen.log.keys() - stored.keys())
    extra = sorted(stored.keys() - seen.log.keys())
    other = sorted(place for place in stored.keys() & seen.log.keys() if stored[place] != seen.log[place])
    for what, places in (
        ("records are not in the table", missing),
        ("rows are of no record", extra),
        ("rows are of another record than the log has there", other),
    ):
        if places:
            yield f"{len(places)} {what}: {', '.join(map(str, places[:SHOWN]))}"


def _history(seen: Seen) -> Iterator[str]:
    """Yield what is wrong with the changes of the fence row."""
    accepted = [
        AcceptedLoss(partition=key, start=start, until=until, reason=str(report.loss.reason))
        for report in seen.losses
        for key, (start, until) in report.loss.ranges.items()
    ]
    yield from check_history(seen.changes, accepted=accepted).violations


def _kept(seen: Seen) -> Iterator[str]:
    """Yield what a Kafka that keeps what it acknowledges makes impossible."""
    if lost := forgotten(seen):
        yield f"Kafka lost {len(lost)} acknowledged records: {lost[0]}"
    if seen.losses:
        yield f"{len(seen.losses)} losses are recorded: {seen.losses[0].loss}"
    if twice := [number for number, count in Counter(number for _, number in seen.rows).items() if count > 1]:
        yield f"{len(twice)} numbers are in the table twice: {twice[:SHOWN]}"


def _exact(seen: Seen) -> Iterator[str]:
    """Yield partitions of whose one loss Kafka still holds the first record.

    That is one which it acknowledged before any that it lost there: a new leader's record at that offset came later.
    Of several losses of a partition, a later leader may hold again what an earlier one had not.
    """
    counted = Counter(key for report in seen.losses for key in report.loss.ranges)
    first_lost: dict[int, float] = {}
    for record in forgotten(seen):
        first_lost[record.partition] = min(record.at, first_lost.get(record.partition, record.at))
    kept = {(record.partition, record.offset): record.at for record in seen.acknowledged} if first_lost else {}
    for report in seen.losses:
        for key, (start, _) in report.loss.ranges.items():
            partition = split_offset_key(key)[1]
            at = kept.get((partition, start))
            if counted[key] == 1 and at is not None and at < first_lost.get(partition, 0.0):
                yield f"the loss of {key} begins at {start}, where Kafka holds what it acknowledged before"
