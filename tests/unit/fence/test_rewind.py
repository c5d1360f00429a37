"""Setting a row back: once or not at all, whatever answers are lost, and no older writer can change it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fencepost.fence import EMPTY, Fenced, FenceRow, FenceUnavailable
from fencepost.fence.history import change, first_commit
from fencepost.fence.memory import MemoryFenceTable
from unit.fence.test_fence import OWNER, Faults, claimed, commit, fence

BACK = {"flights/0": 4}


def stopped(table: MemoryFenceTable) -> FenceRow:
    """A row without a driver, with offsets 10."""
    return fence(table).take_over(commit(table, claimed(table), 10), owner=OWNER)


def back(table: MemoryFenceTable, row: FenceRow) -> FenceRow:
    return fence(table).rewind(row, offsets=BACK, leader_epochs={"flights/0": 2}, growth_barrier={})


def test_it_sets_offsets_and_plans_nothing() -> None:
    table = MemoryFenceTable()
    before = stopped(table)
    after = back(table, before)
    assert (after.offsets, after.planned, after.epoch, after.driver) == (BACK, BACK, before.epoch, None)
    assert after.leader_epochs == {"flights/0": 2}
    assert after.version == before.version + 1
    assert after.topic_ids == before.topic_ids


def test_what_is_written_afterwards_wins_over_deletions_at_the_rows_timestamp() -> None:
    table = MemoryFenceTable()
    zombie = commit(table, claimed(table), 10)
    before = fence(table).take_over(zombie, owner=OWNER)
    assert zombie.write_timestamp < before.write_timestamp < back(table, before).write_timestamp


def test_a_partition_that_is_not_named_leaves_the_row_with_its_leader_epoch() -> None:
    table = MemoryFenceTable()
    row = replace(
        stopped(table),
        offsets={"flights/0": 10, "flights/1": 3},
        leader_epochs={"flights/1": 1},
        epoch_starts={"flights/0": 1},
    )
    table.rows[row.pipeline] = row
    after = back(table, row)
    assert after.offsets == BACK
    assert (after.leader_epochs, after.epoch_starts) == ({"flights/0": 2}, {})


@pytest.mark.parametrize(("keeps_output", "begun"), [(True, {"flights/1": 5, "flights/2": 7}), (False, {})])
def test_a_batch_stays_begun_where_the_offset_stays(keeps_output: bool, begun: dict[str, int]) -> None:
    """Half of it may be written, and the operator may lose the status of the pipeline (seed 1027108)."""
    table = MemoryFenceTable()
    row = replace(
        stopped(table),
        offsets={"flights/0": 10, "flights/1": 3, "flights/2": 3},
        planned={"flights/0": 20, "flights/1": 5, "flights/2": 3},
        begun={"flights/0": 30, "flights/2": 7},
    )
    table.rows[row.pipeline] = row
    offsets = {**row.offsets, **BACK}
    after = fence(table).rewind(row, offsets=offsets, leader_epochs={}, growth_barrier={}, keeps_output=keeps_output)
    assert (after.offsets, after.planned, after.begun) == (offsets, offsets, begun)


@pytest.mark.parametrize(
    ("before", "snapshot", "after"),
    [
        (b"state", b"older", b"older"),
        (b"state", None, EMPTY),
        (EMPTY, None, EMPTY),
        (None, b"older", b"older"),
        (None, None, None),
    ],
)
def test_a_row_with_state_keeps_saying_so(before: bytes | None, snapshot: bytes | None, after: bytes | None) -> None:
    """A snapshot of before the first commit has none; the row's commits are those of a stateful pipeline still."""
    table = MemoryFenceTable()
    row = replace(stopped(table), checkpoint=before)
    table.rows[row.pipeline] = row
    back = fence(table).rewind(row, offsets=BACK, leader_epochs={}, growth_barrier={}, checkpoint=snapshot)
    assert (back.checkpoint, back.committed_at) == (after, row.committed_at)


def test_a_row_that_a_driver_holds_is_refused() -> None:
    table = MemoryFenceTable()
    with pytest.raises(ValueError, match="take it over first"):
        back(table, claimed(table))


def test_a_row_that_moved_is_left_alone() -> None:
    table = MemoryFenceTable()
    before = stopped(table)
    moved = fence(table).take_over(before, owner=OWNER)
    with pytest.raises(Fenced):
        back(table, before)
    assert table.read(before.pipeline) == moved


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 5))
def test_a_lost_answer_is_resolved(side: str, number: int) -> None:
    table = MemoryFenceTable()
    before = stopped(table)
    setattr(table, side, Faults(frozenset({number})))
    after = back(table, before)
    table.before = table.after = lambda _call: None
    assert table.read(before.pipeline) == after
    assert sum(row.offsets == BACK for row in table.history) == 1


def test_without_an_answer_it_gives_up_and_can_be_asked_again() -> None:
    table = MemoryFenceTable()
    before = stopped(table)
    table.after = Faults(frozenset(range(1, 500)))
    with pytest.raises(FenceUnavailable):
        back(table, before)
    table.after = lambda _call: None
    assert table.rows[before.pipeline].offsets == BACK


def test_the_history_has_where_the_first_commit_began() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    base = FenceRow(pipeline="p", owner=OWNER, epoch=2, version=8, offsets={"a/0": 4}, planned={"a/0": 4})
    claim = replace(base, version=9, driver="pod", planned={"a/0": 6})
    plan = replace(claim, version=10, planned={"a/0": 7})
    first = replace(plan, version=11, offsets={"a/0": 7}, planned={"a/0": 9}, committed_at=now)
    second = replace(first, version=12, offsets={"a/0": 9}, committed_at=now + timedelta(seconds=1))
    rows = [claim, plan, first, second]
    records = [change(before, after, now) for before, after in zip([base, *rows], rows, strict=False)]
    assert records[0].base
    assert first_commit("p", records, 8) == {"a/0": 4}
    assert first_commit("p", records[:2], 8) is None, "nothing is committed"
    assert first_commit("p", [records[0], *records[2:]], 8) is None, "a record is missing"
    assert first_commit("p", [], 8) is None
