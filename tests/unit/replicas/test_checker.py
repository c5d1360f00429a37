"""The checker finds each promise that breaks, in histories that are written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.fence import Fence, FenceRow, Starting
from fencepost.fence.memory import MemoryFenceTable
from replicas.checker import PARTITION, violations, wrong_output
from replicas.seen_requests import Answer, Call, Record, Write

CREATED = FenceRow(pipeline="p", owner="o")


class Seen:
    """A history in which each request ends before the next one begins, a second apart."""

    def __init__(self) -> None:
        self.record = Record()
        self._at = 0.0

    def change(self, before: FenceRow | None, after: FenceRow, answer: Answer = Answer.APPLIED) -> FenceRow:
        self._add(answer, before, after)
        if answer is Answer.APPLIED:
            self.record.promise(after)
        return after

    def read(self, row: FenceRow) -> None:
        self._add(Answer.SEEN, None, row)

    def broken(self, final: FenceRow) -> str:
        return "\n".join(violations(self.record, final))

    def _add(self, answer: Answer, before: FenceRow | None, after: FenceRow) -> None:
        self._at += 1.0
        self.record.add(
            Call(client="c", began=self._at, ended=self._at + 0.5, answer=answer, before=before, after=after)
        )


def after(row: FenceRow, **changes: object) -> FenceRow:
    return replace(row, version=row.version + 1, clock=row.clock + 2, **changes)  # type: ignore[arg-type]


@pytest.fixture
def seen() -> Seen:
    made = Seen()
    made.change(None, CREATED)
    return made


def test_what_the_protocol_does_on_one_node_breaks_no_promise(seen: Seen) -> None:
    taken = seen.change(CREATED, after(CREATED, epoch=1))
    claimed = seen.change(taken, after(taken, driver="d", offsets={PARTITION: 0}))
    committed = seen.change(claimed, after(claimed, offsets={PARTITION: 5}))
    seen.read(committed)
    assert seen.broken(committed) == ""


def test_a_change_without_an_answer_may_be_applied_or_not(seen: Seen) -> None:
    applied = seen.change(CREATED, after(CREATED, epoch=1), Answer.UNKNOWN)
    seen.read(applied)
    seen.change(applied, after(applied, epoch=2), Answer.UNKNOWN)
    seen.read(applied)
    assert seen.broken(applied) == ""


def test_two_rows_of_one_version_are_two_histories(seen: Seen) -> None:
    one = seen.change(CREATED, after(CREATED, epoch=1))
    seen.change(CREATED, after(CREATED, epoch=1, owner="another"))
    assert "version 1 was 2 different rows" in seen.broken(one)


def test_an_acknowledged_commit_that_a_later_change_does_not_contain_is_lost(seen: Seen) -> None:
    lost = seen.change(CREATED, after(CREATED, epoch=1))
    seen.record.calls.pop()
    seen.read(CREATED)
    assert "the acknowledged (epoch 1, version 1" in seen.broken(CREATED)
    assert lost in seen.record.promised


def test_a_read_after_an_answer_is_not_older_than_the_answer(seen: Seen) -> None:
    taken = seen.change(CREATED, after(CREATED, epoch=1))
    seen.read(CREATED)
    seen.read(taken)
    assert "after c had got (epoch 1, version 1" in seen.broken(taken)


def test_a_refused_change_is_not_resurrected(seen: Seen) -> None:
    refused = seen.change(CREATED, after(CREATED, epoch=1), Answer.REFUSED)
    seen.read(refused)
    assert "was refused to each client" in seen.broken(refused)


def test_a_row_that_no_client_asked_for_is_found(seen: Seen) -> None:
    seen.read(after(CREATED, epoch=7))
    assert "was requested by no client" in seen.broken(after(CREATED, epoch=7))


def test_an_epoch_has_one_driver(seen: Seen) -> None:
    first = seen.change(CREATED, after(CREATED, driver="d1"))
    second = seen.change(first, after(first, driver="d2"))
    assert "epoch 0 was held by 2 drivers: d1, d2" in seen.broken(second)


def test_neither_epoch_nor_clock_nor_a_drivers_offsets_move_back(seen: Seen) -> None:
    taken = seen.change(CREATED, after(CREATED, epoch=2, driver="d", offsets={PARTITION: 9}))
    back = seen.change(taken, replace(after(taken, epoch=1, offsets={PARTITION: 3}), clock=0))
    broken = seen.broken(back)
    assert "the epoch moved back" in broken
    assert "the clock moved back" in broken
    assert "a driver moved the offsets back" in broken


def test_a_version_that_is_missing_and_an_end_that_is_older_are_found(seen: Seen) -> None:
    later = replace(after(CREATED, epoch=1), version=3)
    seen.read(later)
    broken = seen.broken(CREATED)
    assert "no row of the versions between 0 and 3" in broken
    assert "the row at the end is (epoch 0, version 0" in broken


def test_output_is_what_the_committed_attempt_wrote() -> None:
    fence, seen = Fence(MemoryFenceTable(), "p"), Seen()
    created = fence.create("o")
    taken = fence.take_over(created, owner="o")
    claimed = fence.claim(
        epoch=1,
        driver="d",
        code="c",
        start=lambda _: Starting(offsets={PARTITION: 0}, planned={PARTITION: 0}, topic_ids={}),
    )
    planned = fence.plan(claimed, offsets={PARTITION: 0}, planned={PARTITION: 2})
    committed = fence.commit(planned, offsets={PARTITION: 2}, planned={PARTITION: 2}, records=2, duration_ms=1)
    chain = [created, taken, claimed, planned, committed]
    for before, row in zip([None, *chain], chain, strict=False):
        seen.change(before, row)
    for offset in (0, 1):
        seen.record.wrote(Write(offset, "of a zombie", claimed.write_timestamp, claimed))
        seen.record.wrote(Write(offset, "committed", planned.write_timestamp, planned))
    assert wrong_output(seen.record, committed, {0: "committed", 1: "committed"}) == []
    assert wrong_output(seen.record, committed, {0: "of a zombie"}) == [
        "offset 0: the table holds 'of a zombie', the commit stands for 'committed'",
        "offset 1: the table holds None, the commit stands for 'committed'",
    ]
