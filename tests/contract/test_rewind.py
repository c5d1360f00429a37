"""The rewind of a fence row on a real Cassandra: the change, its history, and what the operator finds of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from fencepost.fence import Fence, Fenced, FenceRow, Starting
from fencepost.fence.cassandra.history import changes_after
from fencepost.fence.cassandra.snapshots import SnapshotTable
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.fence.history import first_commit, hour_of
from fencepost.fence.snapshots import Trigger, snapshot_id, snapshot_of
from fencepost.fence.table import FenceTable
from present import present

KEYSPACE = "fencepost_rewind"
BACK = {"a/0": 3, "a/1": 0}


@pytest.fixture
def stopped(table: FenceTable) -> FenceRow:
    """A row at offsets 10 and 10 without a driver."""
    fence = Fence(table, f"default/rewind/{uuid4()}")
    taken = fence.take_over(fence.create("cluster/p"), owner="cluster/p")
    held = fence.claim(epoch=taken.epoch, driver="pod", code="c", start=_start)
    ends = {"a/0": 10, "a/1": 10}
    done = fence.commit(held, offsets=ends, planned=ends, records=20, duration_ms=1, leader_epochs={"a/0": 4})
    return fence.take_over(done, owner="cluster/p")


def _start(_row: FenceRow) -> Starting:
    return Starting(offsets={"a/0": 0, "a/1": 0}, planned={"a/0": 10, "a/1": 10}, topic_ids={"a": "id"})


def _keep(row: FenceRow) -> Starting:
    return Starting(offsets=row.offsets, planned={"a/0": 5, "a/1": 5}, topic_ids=row.topic_ids)


def test_a_row_goes_back_once(table: FenceTable, stopped: FenceRow) -> None:
    fence = Fence(table, stopped.pipeline)
    after = fence.rewind(stopped, offsets=BACK, leader_epochs={"a/0": 2}, growth_barrier={})
    seen = present(table.read(stopped.pipeline))
    assert seen.is_held_as(after)
    assert seen.leader_epochs == {"a/0": 2}
    assert after.clock >= stopped.clock + 2
    with pytest.raises(Fenced):
        fence.rewind(stopped, offsets={"a/0": 1}, leader_epochs={}, growth_barrier={})
    again = present(table.read(stopped.pipeline))
    assert again.is_held_as(after)


def test_a_driver_begins_at_the_target_and_the_history_says_so(table: FenceTable, stopped: FenceRow) -> None:
    if not isinstance(table, CassandraFenceTable):
        pytest.skip("the operator reads the history of Cassandra")
    fence = Fence(table, stopped.pipeline)
    back = fence.rewind(stopped, offsets=BACK, leader_epochs={}, growth_barrier={})
    held = fence.claim(epoch=back.epoch, driver="next", code="c", start=_keep)
    ends = {"a/0": 5, "a/1": 5}
    fence.commit(held, offsets=ends, planned=ends, records=7, duration_ms=1)

    def begun() -> object:
        now = datetime.now(UTC)
        found = [
            record
            for hour in sorted({hour_of(now - timedelta(minutes=5)), hour_of(now)})
            for record in changes_after(
                table.session, table.keyspace, back.pipeline, hour, epoch=back.epoch, version=back.version, limit=10
            )
        ]
        return first_commit(back.pipeline, found, back.version)

    deadline = time.monotonic() + 15  # the history is appended after the change
    while begun() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert begun() == BACK


def test_a_snapshot_of_a_rewind_holds_what_was_committed(table: FenceTable, stopped: FenceRow) -> None:
    if not isinstance(table, CassandraFenceTable):
        pytest.skip("snapshots are a table of Cassandra")
    snapshots = SnapshotTable(table.session, table.keyspace)
    taken = snapshot_of(stopped, id=snapshot_id(datetime.now(UTC), "uid"), trigger=Trigger.REWIND, name=None)
    snapshots.insert(stopped.pipeline, taken)
    assert snapshots.read(stopped.pipeline, taken.id) == taken
