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

    before_the_insert: float = 0.0
    before_the_answer: float = 0.0
    now: float = 1000.0
    found: dict[UUID, Snapshot] = field(default_factory=dict)

    def take(self, row: FenceRow = ROW) -> None:
        take(lambda: row, self, id=ID, trigger=Trigger.SCHEDULE, name=None, monotonic=lambda: self.now)

    def insert(self, pipeline: str, snapshot: Snapshot) -> bool:
        assert pipeline == ROW.pipeline
        self.now += self.before_the_insert
        is_new = self.found.setdefault(snapshot.id, snapshot) is snapshot
        self.now += self.before_the_answer
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
    with pytest.raises(FenceUnavailable, match="was written 301 s after the fence row was read"):
        frozen.take()
    assert not frozen.found


def test_one_that_another_operator_has_written_meanwhile_stays() -> None:
    frozen = Frozen(before_the_insert=GRACE)
    other = snapshot_of(ROW, id=ID, trigger=Trigger.SCHEDULE, name="other")
    frozen.found[ID] = other
    frozen.take()
    assert frozen.found == {ID: other}


def test_a_driver_keeps_the_files_of_a_row_for_longer_than_that() -> None:
    """Beyond it, the insert may wait in Cassandra, and the driver's clock may be faster."""
    assert GRACE >= 2 * WRITTEN_WITHIN
