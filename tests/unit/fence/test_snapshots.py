"""A snapshot is written soon after its row was read, or not kept: later the files of its state may be gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import pytest

from fencepost.fence import FenceRow, FenceUnavailable
from fencepost.fence.snapshots import WRITTEN_WITHIN, Snapshot, Trigger, snapshot_id, snapshot_of, take
from fencepost.state.collector import GRACE

ROW: Final = FenceRow(pipeline="p", owner="o", epoch=3, offsets={"t/0": 5}, checkpoint=b"state")
ID: Final = snapshot_id(datetime(2026, 1, 2, tzinfo=UTC), "p")
HALF: Final = WRITTEN_WITHIN / 2


@dataclass(slots=True)
class Frozen:
    """A process that is frozen between two of its steps; `monotonic` counts that time."""

    after_the_read: float = 0.0
    before_the_insert: float = 0.0
    before_the_answer: float = 0.0
    is_answered: bool = True
    now: float = 1000.0
    found: dict[UUID, Snapshot] = field(default_factory=dict)

    def take(self, row: FenceRow = ROW) -> None:
        def copy() -> Snapshot:
            self.now += self.after_the_read
            return snapshot_of(row, id=ID, trigger=Trigger.SCHEDULE, name=None)

        take(row.pipeline, copy, self, monotonic=lambda: self.now)

    def insert(self, pipeline: str, snapshot: Snapshot) -> bool:
        assert pipeline == ROW.pipeline
        self.now += self.before_the_insert
        is_new = self.found.setdefault(snapshot.id, snapshot) is snapshot
        self.now += self.before_the_answer
        if not self.is_answered:
            raise FenceUnavailable("no answer")
        return is_new

    def delete(self, pipeline: str, ids: Sequence[UUID]) -> None:
        assert pipeline == ROW.pipeline
        for one in ids:
            self.found.pop(one, None)


def test_a_snapshot_is_written_in_time() -> None:
    frozen = Frozen(before_the_insert=HALF, before_the_answer=HALF)
    frozen.take()
    assert frozen.found == {ID: snapshot_of(ROW, id=ID, trigger=Trigger.SCHEDULE, name=None)}


@pytest.mark.parametrize(("first", "second"), [(WRITTEN_WITHIN + 1, 0.0), (0.0, WRITTEN_WITHIN + 1), (HALF, HALF + 1)])
def test_one_that_is_written_too_late_is_deleted(first: float, second: float) -> None:
    frozen = Frozen(before_the_insert=first, before_the_answer=second)
    with pytest.raises(FenceUnavailable, match=f"was written {WRITTEN_WITHIN + 1:.0f} s after what it copies was read"):
        frozen.take()
    assert not frozen.found


def test_after_a_late_read_none_is_written() -> None:
    frozen = Frozen(after_the_read=WRITTEN_WITHIN + 1, is_answered=False)
    with pytest.raises(
        FenceUnavailable, match=f"is not written: what it copies was read {WRITTEN_WITHIN + 1:.0f} s ago"
    ):
        frozen.take()
    assert not frozen.found


@pytest.mark.parametrize(("seconds", "is_kept"), [(HALF, True), (WRITTEN_WITHIN + 1, False)])
def test_without_an_answer_only_one_that_is_written_in_time_stays(seconds: float, is_kept: bool) -> None:
    """The next attempt has the same id, and finds it."""
    frozen = Frozen(before_the_insert=seconds, is_answered=False)
    with pytest.raises(FenceUnavailable, match="no answer"):
        frozen.take()
    assert bool(frozen.found) == is_kept


def test_one_that_another_operator_has_written_meanwhile_stays() -> None:
    frozen = Frozen(before_the_insert=GRACE)
    other = snapshot_of(ROW, id=ID, trigger=Trigger.SCHEDULE, name="other")
    frozen.found[ID] = other
    frozen.take()
    assert frozen.found == {ID: other}


def test_a_driver_keeps_the_files_of_a_row_for_longer_than_that() -> None:
    """Beyond it, the insert may wait in Cassandra, and the driver's clock may be faster."""
    assert GRACE >= 2 * WRITTEN_WITHIN
