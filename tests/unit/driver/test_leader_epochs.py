"""What the leader epochs of records prove: one log or two, and under which epoch a batch's end is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from fencepost.batch import Batch, Range, Sighting
from fencepost.contract import Reason
from fencepost.driver.planning.leader_epochs import Committed, LeaderEpochs
from fencepost.errors import DataLoss, DependencyDown

Places = Sequence[tuple[int, int]]
Question = tuple[int, int, int | None, int | None]


@dataclass
class Asked:
    """Kafka's log, as a fresh consumer of the driver's sees it: `answers` are the epochs of the records that it gives.

    `questions` has (start, until, leader epoch, least epoch of the answer).
    """

    answers: Mapping[str, int] = field(default_factory=dict)
    error: Exception | None = None
    questions: list[Question] = field(default_factory=list)

    def first(self, part: Range) -> Any:
        raise AssertionError(part)

    def check(self, parts: Sequence[Range], at_least: Mapping[str, int] | None = None) -> Mapping[str, int]:
        least = at_least or {}
        self.questions += [(part.start, part.until, part.leader_epoch, least.get(part.key)) for part in parts]
        if self.error is not None:
            raise self.error
        return self.answers


def batch(leader: int | None, epoch: int | None = 1, epoch_start: int | None = 0, start: int = 40) -> Batch:
    """A batch [start, 60) of one partition, planned by the log of a leader."""
    part = Range("t", 0, start, 60, epoch, epoch_start=epoch_start)
    leaders = {} if leader is None else {"t/0": leader}
    return Batch(ranges=(part,), until={"t/0": 60}, leader_epochs=leaders)


def after(records: Asked, planned: Batch, seen: Places) -> Committed:
    return LeaderEpochs(records).after(planned, {"t/0": [Sighting(*place) for place in seen]})


@pytest.mark.parametrize(
    ("leader", "before", "seen", "epoch", "start"),
    [
        # The batch ends with a record.
        (1, (1, 0), [(40, 1), (59, 1)], 1, 0),
        (2, (1, 0), [(40, 1), (59, 1)], 1, 0),  # a backlog, or a leader that was cut off
        (2, (1, 0), [(40, 1), (50, 1), (51, 2), (59, 2)], 2, 51),
        (5, (5, None), [(40, 2), (59, 2)], 2, 40),  # it began at a leader's epoch
        (5, (None, None), [(40, 2), (59, 2)], 2, 40),
        # It ends with a marker, an aborted record, or a record that was set aside.
        (1, (1, 0), [(40, 1), (58, 1)], 1, 0),
        (2, (1, 0), [(40, 1), (58, 1), (61, 1)], 1, 0),
        (2, (1, 0), [(40, 1), (58, 1), (61, 2)], 2, None),
        (2, (1, 0), [(40, 1), (58, 1)], 2, None),
        (1, (1, 0), [(40, 2), (58, 2)], 2, None),
        # It has no record.
        (1, (1, 0), [], 1, 0),
        (2, (1, 0), [(70, 1)], 1, 0),
        (2, (1, 0), [], 2, None),
        (4, (3, None), [], 4, None),
        # Epochs are not known: records in an old format, or an old broker.
        (None, (None, None), [], None, None),
    ],
)
def test_the_epoch_that_is_committed(
    leader: int | None, before: tuple[int | None, int | None], seen: Places, epoch: int | None, start: int | None
) -> None:
    """It is that of the record before the offset where that is known, else a later one that cannot be too early."""
    found = after(Asked(), batch(leader, *before), seen)
    assert found.leader_epochs.get("t/0") == epoch
    assert found.epoch_starts.get("t/0") == start


@pytest.mark.parametrize(
    ("seen", "questions"),
    [
        ([(40, 1), (59, 1)], []),
        ([(40, 2), (59, 2)], [(40, 41, 1, 2)]),
        ([(40, 1), (50, 1), (53, 2), (59, 2)], [(51, 54, 1, 2)]),
        ([(40, 2), (50, 2), (51, 4), (59, 4)], [(40, 41, 1, 2), (51, 52, 2, 4)]),
        ([(40, 1), (59, 1), (60, 2)], []),  # the next batch begins with it
        ([(40, 1), (58, 1), (61, 2)], [(59, 62, 1, 2)]),  # its epoch is committed
    ],
)
def test_each_rise_is_checked_against_the_log_of_the_later_leader(seen: Places, questions: list[Question]) -> None:
    records = Asked()
    after(records, batch(4), seen)
    assert records.questions == questions


def test_a_rise_of_each_partition_is_checked_with_one_question() -> None:
    ranges = tuple(Range("t", number, 40, 60, 1, epoch_start=0) for number in range(3))
    planned = Batch(ranges=ranges, until={part.key: 60 for part in ranges}, leader_epochs={})
    calls: list[int] = []

    class Counting(Asked):
        def check(self, parts: Sequence[Range], at_least: Mapping[str, int] | None = None) -> Mapping[str, int]:
            calls.append(len(parts))
            return super().check(parts, at_least)

    LeaderEpochs(Counting()).after(planned, {part.key: [Sighting(40, 2), Sighting(59, 2)] for part in ranges})
    assert calls == [3]


@pytest.mark.parametrize(
    "seen",
    [
        [(40, 0), (59, 0)],  # before the committed epoch
        [(40, 2), (49, 2), (50, 1), (59, 1)],  # between two slices
        [(40, 1), (40, 2), (59, 1), (59, 2)],  # of one slice that two sinks read
    ],
)
def test_epochs_that_fall_are_of_two_logs_and_nothing_is_committed(seen: Places) -> None:
    with pytest.raises(DependencyDown, match="two logs of t/0: offset"):
        after(Asked(), batch(2), seen)


def test_an_epoch_before_one_that_only_a_leader_had_is_no_fall() -> None:
    """Of a first start, a rewind or an accepted loss the leader's epoch is known, and the record's may be earlier."""
    records = Asked()
    found = after(records, batch(5, 5, None), [(40, 0), (59, 0)])
    assert (found.leader_epochs, found.epoch_starts, records.questions) == ({"t/0": 0}, {"t/0": 40}, [])


def test_a_log_that_differs_is_raised() -> None:
    with pytest.raises(DataLoss):
        after(Asked(error=DataLoss("cut", reason=Reason.LOG_TRUNCATED)), batch(2), [(40, 2), (59, 2)])


def test_what_retention_deletes_after_it_was_read_is_not_compared() -> None:
    records = Asked(error=DataLoss("gone", reason=Reason.OFFSET_OUT_OF_RANGE))
    assert after(records, batch(2), [(40, 2), (59, 2)]).leader_epochs == {"t/0": 2}


def test_another_leader_is_asked_about_once_however_long_the_backlog_of_earlier_epochs_is() -> None:
    records = Asked({"t/0": 1})
    epochs = LeaderEpochs(records)
    for start in (40, 45, 50):
        epochs.before(batch(7, start=start))
    epochs.before(batch(8, start=50))
    assert [start for start, *_ in records.questions] == [40, 50]


def test_a_restart_of_a_broker_costs_one_question() -> None:
    records = Asked({"t/0": 2})
    epochs = LeaderEpochs(records)
    epochs.before(batch(2))
    epochs.after(batch(2), {"t/0": [Sighting(40, 2), Sighting(59, 2)]})
    assert records.questions == [(40, 41, 1, None)]


def test_a_position_of_which_the_log_had_a_later_record_than_was_read_is_asked_about_again() -> None:
    """A task read on from a leader that was cut off."""
    records = Asked({"t/0": 2})
    epochs = LeaderEpochs(records)
    epochs.before(batch(2))
    assert epochs.after(batch(2), {"t/0": [Sighting(40, 1), Sighting(59, 1)]}).leader_epochs == {"t/0": 1}
    epochs.before(batch(2, start=50))
    assert [start for start, *_ in records.questions] == [40, 50]
