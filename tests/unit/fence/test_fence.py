"""The fence's promises, with every fault that a request can meet: lost before the effect, or after it."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fakes.clock import Clock
from fencepost.batch import EventTime
from fencepost.contract import Loss, Reason, ReportedLoss
from fencepost.fence import (
    EMPTY,
    Fence,
    FenceClockSkew,
    Fenced,
    FenceMissing,
    FenceRow,
    FenceSwapRefused,
    FenceUnavailable,
    Starting,
)
from fencepost.fence.clock import wall_clock
from fencepost.fence.memory import MemoryFenceTable, no_fault
from present import present

PIPELINE = "default/flights/departures"
OWNER = "cluster-1/cr-1"
LOST = ReportedLoss(
    loss=Loss(reason=Reason.DATA_LOSS, committed_ms=7, ranges={"flights/0": (3, 5)}),
    epoch=1,
    at=datetime(2026, 1, 2, tzinfo=UTC),
)


BEGAN = Clock().micros()
"""µs since 1970."""
Table = MemoryFenceTable


@dataclass
class Faults:
    """Raises FenceUnavailable at the calls with these numbers, counted from 1."""

    at: frozenset[int]
    calls: list[str] = field(default_factory=list)

    def __call__(self, call: str) -> None:
        self.calls.append(call)
        if len(self.calls) in self.at:
            raise FenceUnavailable(f"{call}: injected")


def fence(table: Table, time: Clock | None = None, *, patience: float = 30.0) -> Fence:
    time = time or Clock()
    if table.now is wall_clock:
        table.now = lambda: BEGAN
    return Fence(table, PIPELINE, patience=patience, now=time.micros, monotonic=time.monotonic, sleep=time.sleep)


def nowhere(row: FenceRow) -> Starting:
    return Starting(offsets=row.offsets, planned=row.planned, topic_ids=row.topic_ids)


def at_zero(_row: FenceRow) -> Starting:
    return Starting(offsets={"flights/0": 0}, planned={"flights/0": 10}, topic_ids={"flights": "id-1"})


def unclaimed(table: Table) -> FenceRow:
    return fence(table).take_over(fence(table).create(OWNER), owner=OWNER)


def claimed(table: Table) -> FenceRow:
    return fence(table).claim(epoch=unclaimed(table).epoch, driver="pod-a", code="image", start=at_zero)


def commit(table: Table, row: FenceRow, until: int) -> FenceRow:
    offsets, planned = {"flights/0": until}, {"flights/0": until + 10}
    return fence(table).commit(row, offsets=offsets, planned=planned, records=10, duration_ms=5)


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def row(table: Table) -> FenceRow:
    """Return the row that the driver pod-a holds, at epoch 1."""
    return claimed(table)


@pytest.fixture
def taken(table: Table) -> FenceRow:
    """Return a row of epoch 1 without a driver."""
    return unclaimed(table)


def test_a_new_row_is_at_epoch_zero_and_creating_it_twice_keeps_it(table: Table) -> None:
    first = fence(table).create(OWNER)
    assert (first.epoch, first.version, first.driver) == (0, 0, None)
    fence(table).take_over(first, owner=OWNER)
    assert fence(table).create("another owner").epoch == 1


def test_a_takeover_moves_epoch_and_clock_and_drops_the_driver(table: Table, row: FenceRow) -> None:
    after = fence(table).take_over(row, owner=OWNER)
    assert (after.epoch, after.version, after.driver) == (row.epoch + 1, row.version + 1, None)
    assert after.clock >= row.clock + 2
    assert after.offsets == row.offsets


def test_a_takeover_keeps_the_clock_ahead_when_the_wall_time_is_behind(table: Table, row: FenceRow) -> None:
    ahead = replace(row, clock=row.clock + 10**12)
    table.rows[PIPELINE] = ahead
    assert fence(table).take_over(ahead, owner=OWNER).clock == ahead.clock + 2


def test_output_of_a_replaced_driver_is_older_than_its_successors(table: Table) -> None:
    zombie = claimed(table)
    zombie = commit(table, zombie, 10)
    successor = fence(table).take_over(zombie, owner=OWNER)
    assert zombie.write_timestamp < successor.clock < successor.write_timestamp


def test_a_twin_of_the_same_epoch_is_fenced_at_the_claim(table: Table, row: FenceRow) -> None:
    with pytest.raises(Fenced, match="held by driver pod-a"):
        fence(table).claim(epoch=row.epoch, driver="pod-b", code="image", start=at_zero)


def test_a_driver_of_an_older_epoch_is_fenced_at_the_claim(table: Table, row: FenceRow) -> None:
    fence(table).take_over(row, owner=OWNER)
    with pytest.raises(Fenced, match="epoch 1 is over"):
        fence(table).claim(epoch=1, driver="pod-a", code="image", start=at_zero)


def test_a_claim_without_a_row_says_so(table: Table) -> None:
    with pytest.raises(FenceMissing, match=PIPELINE):
        fence(table).claim(epoch=1, driver="pod-a", code="image", start=nowhere)


def test_a_later_claim_is_asked_with_the_committed_offsets(table: Table, row: FenceRow) -> None:
    row = fence(table).take_over(commit(table, row, 10), owner=OWNER)
    seen: list[FenceRow] = []

    def start(before: FenceRow) -> Starting:
        seen.append(before)
        return nowhere(before)

    again = fence(table).claim(epoch=row.epoch, driver="pod-b", code="image", start=start)
    assert seen[0].offsets == {"flights/0": 10}
    assert (again.offsets, again.planned) == ({"flights/0": 10}, {"flights/0": 20})


def test_a_failing_start_leaves_the_row_unclaimed(table: Table) -> None:
    row = fence(table).take_over(fence(table).create(OWNER), owner=OWNER)

    def start(_row: FenceRow) -> Starting:
        raise LookupError("topic is gone")

    with pytest.raises(LookupError):
        fence(table).claim(epoch=row.epoch, driver="pod-a", code="image", start=start)
    assert table.rows[PIPELINE] == row


def test_a_claim_repeated_by_the_same_pod_is_the_same_claim(table: Table, row: FenceRow) -> None:
    assert fence(table).claim(epoch=row.epoch, driver="pod-a", code="image", start=at_zero) == row


def test_a_commit_moves_version_and_offsets(table: Table, row: FenceRow) -> None:
    after = commit(table, row, 10)
    assert (after.version, after.offsets) == (row.version + 1, {"flights/0": 10})
    assert after.committed_at == datetime.fromtimestamp(BEGAN / 1_000_000, UTC)


def test_a_commit_takes_the_clock_along_with_the_wall_time(table: Table, row: FenceRow) -> None:
    """A row that was deleted by hand, at the wall time, returns with the next batch that holds it."""
    deleted_at = row.clock + 3_600_000_000
    table.now = lambda: deleted_at
    later = Fence(table, PIPELINE, now=lambda: deleted_at + 1)
    after = later.commit(row, offsets={"flights/0": 10}, planned={"flights/0": 10}, records=10, duration_ms=5)
    assert after.write_timestamp > deleted_at


def test_a_commit_moves_the_clock_when_the_wall_time_is_behind(table: Table, row: FenceRow) -> None:
    behind = Fence(table, PIPELINE, now=lambda: row.clock - 1_000_000)
    after = behind.commit(row, offsets={"flights/0": 10}, planned={"flights/0": 10}, records=10, duration_ms=5)
    assert after.clock == row.clock + 1


def test_event_time_is_kept_from_commit_to_commit(table: Table, row: FenceRow) -> None:
    held = fence(table)

    def commit(before: FenceRow, **seen: Any) -> FenceRow:
        return held.commit(before, offsets=row.offsets, planned=row.offsets, records=1, duration_ms=1, **seen)

    first = commit(row, event_time=EventTime(watermark=70, late_rows=2), record_times={"flights/0": 90, "other/0": 1})
    assert (first.watermark, first.late_rows, first.record_times) == (70, 2, {"flights/0": 90})
    older = commit(first, record_times={"flights/0": 80})
    assert (older.watermark, older.late_rows, older.record_times) == (70, 2, {"flights/0": 90})
    without = commit(older, event_time=EventTime(late_rows=1))
    assert (without.watermark, without.late_rows) == (None, 3)
    taken = held.take_over(without, owner=OWNER)
    back = held.rewind(taken, offsets=row.offsets, leader_epochs={}, growth_barrier={})
    assert (back.watermark, back.late_rows, back.record_times) == (None, 3, {})


def test_the_size_of_the_state_is_that_of_the_last_commit(table: Table, row: FenceRow) -> None:
    held = fence(table)
    here = row.offsets
    row = held.commit(
        row, offsets=here, planned=here, records=1, duration_ms=1, checkpoint=b"some", state_bytes=70
    )  # fmt: skip
    assert row.state_bytes == 70
    row = held.plan(row, offsets=here, planned=here)
    row = held.commit(row, offsets=here, planned=here, records=0, duration_ms=1)
    assert row.state_bytes == 70
    row = held.commit(row, offsets=here, planned=here, records=1, duration_ms=1, checkpoint=b"none", state_bytes=0)
    assert row.state_bytes == 0
    taken = held.take_over(row, owner=OWNER)
    back = held.rewind(taken, offsets=here, leader_epochs={}, growth_barrier={}, checkpoint=b"some")
    assert back.state_bytes is None


def test_figures_are_those_of_the_last_commit_that_has_some(table: Table, row: FenceRow) -> None:
    held, here = fence(table), row.offsets
    row = held.commit(row, offsets=here, planned=here, records=1, duration_ms=1, figures={"bytes": 9})
    row = held.commit(row, offsets=here, planned=here, records=1, duration_ms=1)
    assert row.figures == {"bytes": 9}
    row = held.commit(row, offsets=here, planned=here, records=1, duration_ms=1, figures={"rows": 2})
    assert row.figures == {"rows": 2}
    taken = held.take_over(row, owner=OWNER)
    assert taken.figures == {"rows": 2}
    assert held.rewind(taken, offsets=here, leader_epochs={}, growth_barrier={}).figures == {}


def test_the_output_token_is_that_of_the_last_committed_batch_with_output(table: Table, row: FenceRow) -> None:
    held, here = fence(table), dict(row.offsets)
    assert row.output_token == 0
    token = row.write_timestamp
    row = held.commit(row, offsets=here, planned=here, records=1, duration_ms=1)
    row = held.plan(row, offsets=here, planned=here)
    row = held.commit(row, offsets=here, planned=here, records=1, duration_ms=1, has_output=False)
    taken = held.take_over(row, owner=row.owner)
    rewound = held.rewind(taken, offsets=here, leader_epochs={}, growth_barrier={})
    assert [row.output_token, taken.output_token, rewound.output_token] == [token] * 3


def test_a_plan_keeps_the_last_batch_s_figures(table: Table, row: FenceRow) -> None:
    """The operator judges a slow batch by how long the last one took."""
    row = commit(table, row, 10)
    planned = fence(table).plan(row, offsets=row.offsets, planned={"flights/0": 12})
    assert (planned.version, planned.offsets, planned.planned) == (row.version + 1, row.offsets, {"flights/0": 12})
    assert (planned.records, planned.duration_ms, planned.committed_at) == (10, 5, row.committed_at)


def test_the_end_of_a_plan_that_is_cut_stays_until_it_is_committed(table: Table) -> None:
    row = fence(table).plan(claimed(table), offsets={"flights/0": 0}, planned={"flights/0": 20})
    row = fence(table).plan(row, offsets=row.offsets, planned={"flights/0": 5})
    assert (row.begun, row.written_until) == ({"flights/0": 20}, {"flights/0": 20})
    row = commit(table, row, 5)
    row = fence(table).plan(row, offsets=row.offsets, planned={"flights/0": 30})
    row = fence(table).withdraw(row)  # nothing of it is written: only what was cut before is begun
    assert (row.planned, row.begun) == ({"flights/0": 5}, {"flights/0": 20})
    row = commit(table, row, 20)
    assert row.begun == {}


def test_a_replaced_driver_cannot_commit(table: Table) -> None:
    zombie = claimed(table)
    fence(table).take_over(zombie, owner=OWNER)
    with pytest.raises(Fenced, match="epoch 1 is over: the fence is at epoch 2"):
        commit(table, zombie, 10)
    assert table.rows[PIPELINE].offsets == {"flights/0": 0}


def test_a_commit_of_the_same_driver_from_an_older_version_is_refused(table: Table, row: FenceRow) -> None:
    commit(table, row, 10)
    with pytest.raises(Fenced, match="moved to version"):
        commit(table, row, 15)


def test_an_answer_that_never_comes_ends_in_unavailable_after_the_patience(table: Table, row: FenceRow) -> None:
    def down(call: str) -> None:
        raise FenceUnavailable(f"{call}: down")

    table.before = down
    with pytest.raises(FenceUnavailable):
        commit(table, row, 10)


@pytest.mark.parametrize(("patience", "lost_reads"), [(0.0, 0), (30.0, 0), (30.0, 1)])
def test_a_driver_that_wakes_after_its_patience_learns_that_it_was_fenced(
    table: Table, row: FenceRow, patience: float, lost_reads: int
) -> None:
    """Injected: the process is frozen in its commit for two minutes, while a successor takes over."""
    time = Clock()
    frozen = fence(table, time, patience=patience)
    calls: list[str] = []

    def freeze(call: str) -> None:
        if call == "server_time":
            return
        calls.append(call)
        if len(calls) == 1:
            table.before = no_fault
            fence(table).take_over(row, owner=OWNER)
            table.before = freeze
            time.seconds += 120
        if len(calls) <= 1 + lost_reads:
            raise FenceUnavailable(f"{call}: the connection died meanwhile")

    table.before = freeze
    with pytest.raises(Fenced):
        frozen.commit(row, offsets={"flights/0": 10}, planned={"flights/0": 10}, records=10, duration_ms=5)
    assert calls == ["swap", "read"] * (1 + lost_reads)


def test_a_freeze_begins_the_patience_once_more_and_no_other_does(table: Table, row: FenceRow) -> None:
    """Injected: each request of a dead database takes as long as a freeze."""
    time = Clock()
    slow = fence(table, time)

    def down(call: str) -> None:
        if call == "server_time":
            return
        time.seconds += 60
        raise FenceUnavailable(f"{call}: down")

    table.before = down
    began = time.seconds
    with pytest.raises(FenceUnavailable):
        slow.take_over(row, owner=OWNER)
    assert time.seconds - began <= 2 * 60 + 1


def refusing(monkeypatch: pytest.MonkeyPatch, times: int) -> list[FenceRow]:
    """Let tables refuse the first swaps, whose conditions hold; return the rows that the refused ones were to leave."""
    refused, real = list[FenceRow](), Table.swap

    def swap(table: Table, before: FenceRow, after: FenceRow) -> bool:
        if len(refused) >= times:
            return real(table, before, after)
        refused.append(after)
        return False

    monkeypatch.setattr(Table, "swap", swap)
    return refused


def test_a_store_that_refuses_every_change_is_named_once_the_patience_ends(
    table: Table, row: FenceRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: a store whose conditions never hold, such as one that does not compare with null."""
    time, refused = Clock(), refusing(monkeypatch, 1000)
    with pytest.raises(FenceSwapRefused, match=r"refuses to change .* epoch 1, version 2, driver pod-a") as caught:
        fence(table, time).take_over(row, owner=OWNER)
    assert "fencepost certify" in caught.value.remedy
    assert 28 <= time.seconds <= 30
    assert len(refused) < 20
    assert table.rows[PIPELINE] == row


def test_a_store_that_refuses_to_adopt_a_released_row_is_named_likewise(
    table: Table, row: FenceRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence(table).release(row)
    time, refused = Clock(), refusing(monkeypatch, 1000)
    with pytest.raises(FenceSwapRefused, match="no driver"):
        fence(table, time).create("new")
    assert len(refused) < 20
    assert table.rows[PIPELINE].is_released


def test_a_store_that_refuses_a_row_and_reads_none_is_named_likewise(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Table, "insert", lambda *_: False)
    with pytest.raises(FenceSwapRefused, match="reads none"):
        fence(table).create(OWNER)


def test_a_change_that_is_refused_once_is_tried_again_after_a_pause(
    table: Table, row: FenceRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, refused = Clock(), refusing(monkeypatch, 1)
    assert fence(table, time).take_over(row, owner=OWNER) == table.rows[PIPELINE] == refused[0]
    assert time.seconds > 0


def test_two_takeovers_from_one_row_are_one(table: Table, row: FenceRow) -> None:
    fence(table).take_over(row, owner=OWNER)
    with pytest.raises(Fenced):
        fence(table).take_over(row, owner="cluster-2/cr-9")
    assert table.rows[PIPELINE].epoch == row.epoch + 1


def faults() -> Iterator[tuple[str, frozenset[int]]]:
    """Each place of up to four calls, alone and in pairs, before and after the effect."""
    for place in ("before", "after"):
        for first in range(1, 5):
            yield place, frozenset({first})
            for second in range(first + 1, 6):
                yield place, frozenset({first, second})


STEPS: dict[str, tuple[Callable[[Table], FenceRow], Callable[[Table, FenceRow], FenceRow | None], int, int]] = {
    "take over": (claimed, lambda table, row: fence(table).take_over(row, owner=OWNER), 1, 1),
    "take over an epoch": (claimed, lambda table, row: fence(table).take_over_epoch(row.epoch, owner=OWNER), 1, 1),
    "claim": (unclaimed, lambda table, _: fence(table).claim(epoch=1, driver="a", code="image", start=at_zero), 0, 1),
    "commit": (claimed, lambda table, row: commit(table, row, 10), 0, 1),
    "release": (claimed, lambda table, row: fence(table).release(row), 2, 2),
}
"""What makes the row before a step, the step, and by how much it moves the epoch and the version."""


@pytest.mark.parametrize(("place", "at"), list(faults()))
@pytest.mark.parametrize("step", sorted(STEPS))
def test_a_change_is_applied_once_whatever_answers_are_lost(
    table: Table, step: str, place: str, at: frozenset[int]
) -> None:
    before, change, epochs, versions = STEPS[step]
    row = before(table)
    setattr(table, place, Faults(at))
    returned, after = change(table, row), table.rows[PIPELINE]
    assert (after.epoch, after.version) == (row.epoch + epochs, row.version + versions)
    history = [changed.version for changed in table.history]
    assert (returned, history) == ((None, []) if step == "release" else (after, list(range(after.version + 1))))


@pytest.mark.parametrize(("place", "at"), list(faults()))
def test_creating_is_done_once_whatever_answers_are_lost(place: str, at: frozenset[int], table: Table) -> None:
    setattr(table, place, Faults(at))
    assert fence(table).create(OWNER) == table.rows[PIPELINE]
    assert len(table.history) == 1


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_commit_in_doubt_that_a_takeover_outran_is_fenced(table: Table, row: FenceRow, place: str) -> None:
    """Injected: the commit's answer is lost, and the operator takes over before the driver can look."""

    def outrun(call: str) -> None:
        if call != "swap":
            return
        setattr(table, place, lambda _call: None)
        fence(table).take_over(table.rows[PIPELINE], owner=OWNER)
        raise FenceUnavailable("injected")

    setattr(table, place, outrun)
    with pytest.raises(Fenced):
        commit(table, row, 10)
    assert table.rows[PIPELINE].epoch == row.epoch + 1
    assert table.rows[PIPELINE].offsets == ({"flights/0": 0} if place == "before" else {"flights/0": 10})


def test_releasing_is_conditional_and_repeatable(table: Table, row: FenceRow) -> None:
    commit(table, row, 10)
    with pytest.raises(Fenced):
        fence(table).release(row)
    last = table.rows[PIPELINE]
    fence(table).release(last)
    fence(table).release(last)
    assert fence(table).read() is None
    assert table.history == []


def test_a_released_row_keeps_epoch_version_clock_and_output_token_alone(table: Table, row: FenceRow) -> None:
    row = commit(table, row, 10)
    fence(table).release(row)
    kept = table.rows[PIPELINE]
    assert kept == FenceRow(
        pipeline=PIPELINE, owner="", epoch=row.epoch + 2, version=row.version + 2, clock=kept.clock,
        output_token=row.output_token,
    )  # fmt: skip
    assert kept.output_token
    assert kept.clock >= row.clock + 2


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("fatal", range(6))
def test_a_release_that_dies_at_any_call_is_resumed(table: Table, row: FenceRow, side: str, fatal: int) -> None:
    """The fault: the operator is killed.  Its successor sees the row as `read` returns it, and nothing else."""

    class Killed(BaseException):
        pass

    row = commit(table, row, 10)
    table.report_loss(PIPELINE, LOST)
    table.report_progress(PIPELINE, epoch=row.epoch, version=row.version, done=3)
    calls = itertools.count()

    def kill(call: str) -> None:
        if call != "server_time" and next(calls) == fatal:
            raise Killed

    setattr(table, side, kill)
    with contextlib.suppress(Killed):
        fence(table).release(row)
    setattr(table, side, lambda _call: None)
    while (seen := fence(table).read()) is not None:
        fence(table).release(seen)
    assert table.rows[PIPELINE].is_released
    assert (table.history, table.losses, table.progress) == ([], {}, {})


def test_a_pipeline_that_is_created_again_starts_at_the_beginning(table: Table, row: FenceRow) -> None:
    row = commit(table, row, 10)
    fence(table).release(row)
    again = fence(table).create("cluster-1/cr-2")
    assert (again.owner, again.epoch, again.offsets, again.driver) == ("cluster-1/cr-2", row.epoch + 2, {}, None)
    assert again.version > row.version
    assert again.clock > row.clock
    assert fence(table).create("cluster-1/cr-2") == again


def test_a_zombie_of_a_deleted_pipeline_neither_commits_nor_claims_in_the_new_one(table: Table) -> None:
    """Injected: epochs used to restart at 0, so that the zombie's epoch was given again."""
    zombie = claimed(table)
    fence(table).release(zombie)
    taken = fence(table).take_over(fence(table).create("cluster-1/cr-2"), owner="cluster-1/cr-2")
    with pytest.raises(Fenced):
        commit(table, zombie, 10)
    with pytest.raises(Fenced):
        fence(table).claim(epoch=zombie.epoch, driver="pod-a", code="image", start=at_zero, owner=OWNER)
    with pytest.raises(Fenced, match="belongs to 'cluster-1/cr-2'"):
        fence(table).claim(epoch=taken.epoch, driver="pod-a", code="image", start=at_zero, owner=OWNER)
    assert table.rows[PIPELINE] == taken


def test_a_claim_names_its_owner_and_an_empty_owner_is_not_checked() -> None:
    for owner in (OWNER, "", None):
        table, start = Table(), at_zero
        epoch = unclaimed(table).epoch
        assert fence(table).claim(epoch=epoch, driver="a", code="image", start=start, owner=owner).driver == "a"


@pytest.mark.parametrize(("place", "at"), list(faults()))
def test_a_released_row_is_adopted_once(table: Table, row: FenceRow, place: str, at: frozenset[int]) -> None:
    fence(table).release(row)
    released = table.rows[PIPELINE]
    setattr(table, place, Faults(at))
    assert fence(table).create("new") == table.rows[PIPELINE]
    assert table.rows[PIPELINE] == replace(released, owner="new", version=released.version + 1)


def test_a_released_row_that_a_rival_adopts_first_is_the_rivals(table: Table, row: FenceRow) -> None:
    """Injected: another operator adopts the row between the read and the request."""
    fence(table).release(row)

    def adopt(call: str) -> None:
        if call == "swap":
            table.before = no_fault
            fence(table).create("rival")

    table.before = adopt
    assert fence(table).create("new").owner == "rival"


def test_a_driver_that_commits_faster_than_a_pass_takes_is_fenced(table: Table) -> None:
    """Injected: the zombie commits between any look of the operator and its request, nine times out of ten."""
    observed = zombie = claimed(table)
    swaps = 0

    def outrun(call: str) -> None:
        nonlocal zombie, swaps
        if call == "swap":
            swaps += 1
            if swaps % 10:
                table.before = lambda _call: None
                zombie = commit(table, table.rows[PIPELINE], 10 * swaps)
                table.before = outrun

    table.before = outrun
    with pytest.raises(Fenced):
        fence(table).take_over(observed, owner=OWNER)  # what the operator did before: the version of its last look
    taken = fence(table).take_over_epoch(observed.epoch, owner=OWNER)
    table.before = lambda _call: None
    assert (taken.epoch, taken.driver) == (observed.epoch + 1, None)
    assert taken.offsets == zombie.offsets  # its last commit counts
    with pytest.raises(Fenced):
        commit(table, zombie, 1000)


def outrun_takeover(seconds: float, other: Callable[[Table], object]) -> FenceRow:
    """Take over with a patience of 10 s; before each request, `seconds` pass and `other` changes the row."""
    table, time = Table(), Clock()
    row = claimed(table)

    def outrun(call: str) -> None:
        if call == "swap":
            table.before = lambda _call: None
            time.seconds += seconds
            other(table)
            table.before = outrun

    table.before = outrun
    return fence(table, time, patience=10).take_over_epoch(row.epoch, owner=OWNER)


def test_a_takeover_that_is_always_outrun_gives_up_after_the_patience() -> None:
    with pytest.raises(FenceUnavailable, match="before each of our requests"):
        outrun_takeover(1, lambda table: commit(table, table.rows[PIPELINE], 10))


def test_a_takeover_that_another_one_outruns_as_its_patience_ends_is_fenced() -> None:
    with pytest.raises(Fenced):
        outrun_takeover(11, lambda table: fence(table).take_over(table.rows[PIPELINE], owner="rival"))


def test_a_takeover_of_an_epoch_that_is_over_is_refused_and_of_no_row_too(table: Table) -> None:
    with pytest.raises(FenceMissing):
        fence(table).take_over_epoch(1, owner=OWNER)
    row = claimed(table)
    fence(table).take_over(row, owner="rival")
    with pytest.raises(Fenced, match="epoch 1 is over"):
        fence(table).take_over_epoch(1, owner=OWNER)
    fence(table).release(table.rows[PIPELINE])
    with pytest.raises(FenceMissing):
        fence(table).take_over_epoch(table.rows[PIPELINE].epoch, owner=OWNER)


def test_leader_epochs_are_kept_with_the_offsets_that_they_belong_to(table: Table, row: FenceRow) -> None:
    """An older epoch beside a newer offset would look like a truncated log."""
    for offsets, found, kept in [
        ({"a/0": 5, "a/1": 7}, {"a/0": 3, "a/1": 4}, {"a/0": 3, "a/1": 4}),
        ({"a/0": 6, "a/1": 7}, {"a/0": 5, "a/1": 9}, {"a/0": 5, "a/1": 4}),
        ({"a/0": 7, "a/1": 7}, {}, {"a/1": 4}),
    ]:
        row = fence(table).commit(
            row, offsets=offsets, planned=offsets, records=1, duration_ms=1, leader_epochs=found, epoch_starts=found
        )
        assert row.leader_epochs == row.epoch_starts == kept
    planned = fence(table).plan(row, offsets=row.offsets, planned={"a/0": 9, "a/1": 7})
    assert planned.leader_epochs == planned.epoch_starts == {"a/1": 4}
    assert fence(table).skip(planned, offsets={"a/0": 7, "a/1": 8}, growth_barrier={}).epoch_starts == {}


MINUTE = 60_000_000
SERVER = BEGAN + 60 * MINUTE


def at(table: Table, *, local: int, server: int) -> Fence:
    table.now = lambda: server
    return Fence(table, PIPELINE, now=lambda: local, monotonic=lambda: 0.0, sleep=lambda _: None)


def test_a_clock_within_minutes_of_the_database_s_is_used_and_reported(table: Table, row: FenceRow) -> None:
    ahead = at(table, local=SERVER + 4 * MINUTE, server=SERVER)
    after = ahead.commit(row, offsets={}, planned={}, records=0, duration_ms=0)
    assert after.clock == SERVER + 4 * MINUTE
    assert ahead.clock_skew_ms == 240_000


def test_timestamps_of_a_clock_that_is_behind_follow_the_database_s(table: Table, row: FenceRow) -> None:
    """Else a deletion by hand hides rows that are written after it."""
    behind = at(table, local=SERVER - 4 * MINUTE, server=SERVER)
    after = behind.commit(row, offsets={}, planned={}, records=0, duration_ms=0)
    assert after.clock == SERVER - 5_000_000
    assert behind.take_over(after, owner=OWNER).clock == after.clock + 2


def test_a_node_hours_behind_neither_claims_nor_commits(table: Table, taken: FenceRow) -> None:
    """Its rows would lose to whatever was deleted by hand in these hours, and nothing would show that."""
    table.rows[PIPELINE] = taken = replace(taken, clock=SERVER - 600 * MINUTE)
    with pytest.raises(FenceClockSkew, match="this node's clock is 36000 s behind") as caught:
        at(table, local=SERVER - 600 * MINUTE, server=SERVER).claim(epoch=1, driver="d", code="c", start=at_zero)
    assert os.uname().nodename in caught.value.remedy
    assert table.rows[PIPELINE] == taken

    row = at(table, local=SERVER, server=SERVER).claim(epoch=1, driver="d", code="c", start=at_zero)
    with pytest.raises(FenceClockSkew, match="behind"):
        commit_by(at(table, local=SERVER - 6 * MINUTE, server=SERVER), row, 10)
    assert table.rows[PIPELINE] == row
    taken_over = at(table, local=SERVER - 600 * MINUTE, server=SERVER).take_over(row, owner=OWNER)
    assert taken_over.epoch == 2  # a driver is fenced whatever the operator's clock says


def test_a_node_a_year_ahead_neither_claims_nor_commits(table: Table, taken: FenceRow) -> None:
    """One write of such a node would hide a year of later ones."""
    year = 365 * 24 * 60 * MINUTE
    with pytest.raises(FenceClockSkew, match="this node's clock is 31536000 s ahead") as caught:
        at(table, local=SERVER + year, server=SERVER).claim(epoch=1, driver="d", code="c", start=at_zero)
    assert os.uname().nodename in caught.value.remedy
    assert table.rows[PIPELINE] == taken

    row = at(table, local=SERVER, server=SERVER).claim(epoch=1, driver="d", code="c", start=at_zero)
    with pytest.raises(FenceClockSkew):
        commit_by(at(table, local=SERVER + year, server=SERVER), row, 10)
    assert table.rows[PIPELINE] == row


def test_a_clock_that_jumps_is_refused_without_a_request_per_commit(table: Table, row: FenceRow) -> None:
    time, jump = Clock(), 0
    calls: list[str] = []
    table.before, table.now = calls.append, time.micros
    one = Fence(table, PIPELINE, now=lambda: time.micros() + jump, monotonic=time.monotonic, sleep=time.sleep)
    for until in (10, 20, 30):
        time.seconds += 10
        row = commit_by(one, row, until)
    assert calls.count("server_time") == 1
    time.seconds += 600
    row = commit_by(one, row, 40)
    assert calls.count("server_time") == 2
    jump = 6 * MINUTE
    with pytest.raises(FenceClockSkew):
        commit_by(one, row, 50)


def commit_by(one: Fence, row: FenceRow, until: int) -> FenceRow:
    return one.commit(row, offsets={"flights/0": until}, planned={"flights/0": until}, records=1, duration_ms=1)


def test_a_machine_that_was_suspended_is_not_taken_for_one_whose_clock_jumped(table: Table, row: FenceRow) -> None:
    wall = SERVER
    table.now = lambda: wall
    one = Fence(table, PIPELINE, now=lambda: wall, monotonic=lambda: 0.0, sleep=lambda _: None)
    row = commit_by(one, row, 10)
    wall += 60 * MINUTE  # and the monotonic clock stood still
    assert commit_by(one, row, 20).clock == wall


def test_a_row_whose_clock_is_far_ahead_is_refused_with_the_way_out(table: Table, taken: FenceRow) -> None:
    table.rows[PIPELINE] = replace(taken, clock=SERVER + 60 * MINUTE)
    with pytest.raises(FenceClockSkew, match="the fence row's clock is 3600 s ahead") as caught:
        at(table, local=SERVER, server=SERVER).claim(epoch=1, driver="d", code="c", start=at_zero)
    assert f"SET clock = {SERVER}" in caught.value.remedy
    assert f"IF clock = {SERVER + 60 * MINUTE}" in caught.value.remedy


def test_a_takeover_by_an_operator_whose_clock_is_ahead_has_the_servers_time(table: Table, row: FenceRow) -> None:
    """Fencing a driver matters more than the operator's clock, which must not reach the row all the same."""
    after = at(table, local=SERVER + 60 * MINUTE, server=SERVER).take_over(row, owner=OWNER)
    assert after.clock == SERVER


def test_progress_is_reported_beside_the_row_which_stays_as_it_is(table: Table, row: FenceRow) -> None:
    fence(table).report_progress(row, 41)
    seen = present(table.read_progress(PIPELINE))
    assert (seen.epoch, seen.version, seen.done) == (1, row.version, 41)
    assert table.rows[PIPELINE] == row
    fence(table).give_sign(row)
    sign = present(table.read_progress(PIPELINE))
    assert sign.done == 0, "nothing of a batch is done"


def test_a_plan_and_a_commit_move_a_stateful_pipelines_logs(table: Table) -> None:
    row = claimed(table)
    planned = fence(table).plan(row, offsets=row.offsets, planned=row.planned, planned_log=b"log 0")
    assert (planned.planned_log, planned.checkpoint) == (b"log 0", None)
    assert present(table.read(PIPELINE)) == planned
    ends = planned.planned
    done = fence(table).commit(planned, offsets=ends, planned=ends, records=1, duration_ms=1, checkpoint=b"state 0")
    assert (done.planned_log, done.checkpoint) == (None, b"state 0")
    again = fence(table).plan(done, offsets=ends, planned=ends, planned_log=b"log 1")
    assert (again.planned_log, again.checkpoint) == (b"log 1", b"state 0")
    back = fence(table).withdraw(again)
    assert (back.planned_log, back.checkpoint) == (None, b"state 0")


def test_both_stay_through_a_takeover_and_a_claim_and_a_release_forgets_them(table: Table) -> None:
    row = claimed(table)
    planned = fence(table).plan(row, offsets=row.offsets, planned=row.planned, planned_log=b"log")
    full = replace(planned, checkpoint=b"state")
    table.rows[PIPELINE] = full
    taken = fence(table).take_over(full, owner=OWNER)
    row = fence(table).claim(epoch=taken.epoch, driver="pod-b", code="image", start=nowhere)
    assert (row.planned_log, row.checkpoint) == (b"log", b"state")
    fence(table).release(row)
    released = present(table.read(PIPELINE))
    assert (released.planned_log, released.checkpoint) == (None, None)


def test_a_rewind_sets_the_state_and_plans_nothing(table: Table) -> None:
    row = claimed(table)
    planned = fence(table).plan(row, offsets=row.offsets, planned=row.planned, planned_log=b"log")
    taken = fence(table).take_over(planned, owner=OWNER)
    back = fence(table).rewind(taken, offsets={}, leader_epochs={}, growth_barrier={}, checkpoint=b"snapshot")
    assert (back.planned_log, back.checkpoint) == (None, b"snapshot")
    emptied = fence(table).rewind(back, offsets={}, leader_epochs={}, growth_barrier={})
    assert emptied.checkpoint == EMPTY


def test_another_checkpoint_is_another_change() -> None:
    row = FenceRow(pipeline=PIPELINE, owner=OWNER, checkpoint=b"a")
    assert not row.is_held_as(replace(row, checkpoint=b"b"))
    assert not row.is_held_as(replace(row, planned_log=b"b"))


def test_a_release_deletes_the_rest_before_the_owner_and_again_after_a_crash(table: Table) -> None:
    row = claimed(table)
    seen: list[FenceRow] = []

    def crash() -> None:
        seen.append(present(table.read(PIPELINE)))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fence(table).release(row, also=crash)
    assert (seen[0].epoch, seen[0].driver, seen[0].owner) == (row.epoch + 1, None, OWNER)
    fence(table).release(present(table.read(PIPELINE)), also=lambda: seen.append(present(table.read(PIPELINE))))
    assert len(seen) == 2
    assert present(table.read(PIPELINE)).is_released
