"""One suite for all fence tables: what the double promises, the databases keep."""

from __future__ import annotations

import time
import uuid
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contract.cassandra import open_session
from fencepost.contract import Acceptance, CassandraEndpoint, Loss, Reason, ReportedLoss, TopicChange, commit_ms
from fencepost.contract.codec import decode
from fencepost.fence import (
    Fence,
    FenceCredentialsRejected,
    Fenced,
    FenceRow,
    FenceSchemaMissing,
    FenceTable,
    FenceUnavailable,
    Starting,
)
from fencepost.fence.cassandra import schema
from fencepost.fence.cassandra.history import read_changes
from fencepost.fence.cassandra.session import connect
from fencepost.fence.cassandra.snapshots import SnapshotTable
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema
from fencepost.fence.errors import FenceSchemaInvalid
from fencepost.fence.history import hour_of, restored
from fencepost.fence.memory import MemoryFenceTable
from fencepost.fence.postgresql.history import changes_of_hour
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.fence.promises import Promise
from fencepost.fence.promises.table import PROMISES
from fencepost.fence.snapshots import Trigger, snapshot_id, snapshot_of
from fencepost.fence.sqlite.database import Database
from fencepost.fence.sqlite.table import SCHEMA
from flights.history import read_history
from present import present

KEYSPACE = "fencepost_contract"
HELD = (
    "owner",
    "epoch",
    "driver",
    "version",
    "clock",
    "code",
    "topic_ids",
    "records",
    "duration_ms",
    "state_bytes",
    "figures",
)


@pytest.fixture
def row() -> FenceRow:
    return FenceRow(pipeline=f"contract/{uuid.uuid4()}/p", owner="cluster/cr")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name.replace(" ", "-"))
def test_a_table_keeps_its_promises(table: FenceTable, promise: Promise[FenceTable]) -> None:
    """`fencepost certify` tries the same ones on a user's store."""
    promise.check(table, f"contract/{uuid.uuid4()}/p")


def _start(_row: FenceRow) -> Starting:
    return Starting(offsets={"a/0": 1}, planned={"a/0": 2}, topic_ids={"a": "id"}, leader_epochs={"a/0": 4})


def test_a_released_row_is_adopted_and_its_zombie_neither_commits_nor_claims(table: FenceTable, row: FenceRow) -> None:
    fence = Fence(table, row.pipeline)
    taken = fence.take_over(fence.create("cluster/old"), owner="cluster/old")
    zombie = fence.claim(epoch=taken.epoch, driver="pod", code="c", start=_start, owner="cluster/old")
    fence.release(zombie)
    assert fence.read() is None
    kept = present(table.read(row.pipeline))
    assert kept == FenceRow(pipeline=row.pipeline, owner="", epoch=3, version=zombie.version + 2, clock=kept.clock)
    assert kept.clock > zombie.clock
    adopted = fence.create("cluster/new")
    assert adopted == replace(kept, owner="cluster/new", version=kept.version + 1)
    again = fence.take_over(adopted, owner="cluster/new")
    with pytest.raises(Fenced):
        fence.commit(zombie, offsets={"a/0": 2}, planned={"a/0": 2}, records=1, duration_ms=1)
    for epoch in (taken.epoch, again.epoch):
        with pytest.raises(Fenced):
            fence.claim(epoch=epoch, driver="pod", code="c", start=_start, owner="cluster/old")
    assert table.read(row.pipeline) == again


LOSS = Loss(
    reason=Reason.TOPIC_RECREATED,
    ranges={"a/0": (3, 2**40), "b.c/11": (0, 0)},
    topics={"a": TopicChange("old", "new"), "b.c": TopicChange("older", "newer")},
    committed_ms=1_767_323_045_678,
)
FOUND = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_loss_comes_back_as_it_went_and_keeps_its_acceptance(table: FenceTable, row: FenceRow) -> None:
    report = ReportedLoss(loss=LOSS, epoch=3, at=FOUND)
    other = replace(report, loss=replace(LOSS, reason=Reason.TOPIC_DELETED, topics={"a": TopicChange("old", None)}))
    other = replace(other, loss=replace(other.loss, ranges={"a/0": (3, 4)}))
    for each in (report, other, replace(report, loss=replace(LOSS, committed_ms=0))):
        table.report_loss(row.pipeline, each)
    found = table.read_losses(row.pipeline, LOSS.committed_ms)
    assert {each.loss.id: each for each in found} == {LOSS.id: report, other.loss.id: other}
    assert [each.loss.committed_ms for each in table.read_losses(row.pipeline, 0)] == [0]
    assert table.read_losses(row.pipeline, 5) == ()
    assert [each.loss.committed_ms for each in table.read_losses(row.pipeline, None)] == [LOSS.committed_ms] * 2 + [0]
    acceptance = Acceptance(by="kim", choice="a/0:5,b.c/11:0", at=datetime(2026, 1, 3, tzinfo=UTC))
    table.accept_loss(row.pipeline, LOSS, acceptance)
    table.report_loss(row.pipeline, replace(report, epoch=9))  # found again
    accepted = {each.loss.id: each for each in table.read_losses(row.pipeline, LOSS.committed_ms)}
    assert accepted == {LOSS.id: replace(report, epoch=9, acceptance=acceptance), other.loss.id: other}
    table.forget(row.pipeline)
    assert table.read_losses(row.pipeline, LOSS.committed_ms) == ()


@pytest.mark.integration
def test_what_an_open_acceptance_skips_replaces_what_was_reported(
    cassandra: CassandraFenceTable, row: FenceRow
) -> None:
    loss = replace(LOSS, reason=Reason.OFFSET_OUT_OF_RANGE, ranges={"a/0": (3, 9)}, topics={"a": TopicChange("x", "x")})
    acceptance = Acceptance(by="kim", choice="earliest", at=FOUND)
    report = ReportedLoss(loss=loss, epoch=3, at=FOUND, acceptance=acceptance)
    cassandra.accept_loss(row.pipeline, loss, acceptance)
    for _ in range(2):
        cassandra.record_skipped(row.pipeline, report, {"a/0": (3, 20), "a/1": (0, 5)})
    select = f"SELECT * FROM {KEYSPACE}.accepted_losses WHERE pipeline = %s"  # noqa: S608 - a constant
    rows = list(cassandra.session.execute(select, (row.pipeline,)))
    assert {(r.partition, r.from_offset, r.until_offset, r.loss) for r in rows} == {
        (0, 3, 20, loss.id), (1, 0, 5, loss.id),
    }  # fmt: skip


def test_a_commits_time_names_its_losses_in_the_driver_as_in_the_operator(table: FenceTable, row: FenceRow) -> None:
    """The driver has µs in memory; who reads the row has what Cassandra kept."""
    fence = Fence(table, row.pipeline)
    taken = fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
    claimed = fence.claim(epoch=1, driver="pod", code="c", start=_start)
    read = taken
    for _ in range(5):
        claimed = fence.commit(claimed, offsets={"a/0": 2}, planned={"a/0": 2}, records=1, duration_ms=1)
        read = fence.read() or taken
        assert commit_ms(read.committed_at) == commit_ms(claimed.committed_at) != commit_ms(taken.committed_at)
    loss = replace(LOSS, committed_ms=commit_ms(claimed.committed_at))
    fence.report_loss(ReportedLoss(loss=loss, epoch=1, at=FOUND))
    assert [each.loss for each in fence.read_losses(read)] == [loss]


@pytest.mark.integration
def test_a_loss_of_a_thousand_partitions_is_kept_whole_and_its_record_has_each(
    cassandra: CassandraFenceTable, row: FenceRow
) -> None:
    ranges = {f"a/{number}": (number, 2 * number) for number in range(1000)}
    loss = replace(LOSS, ranges=ranges, topics={"a": TopicChange("old", "new")})
    cassandra.report_loss(row.pipeline, ReportedLoss(loss=loss, epoch=3, at=FOUND))
    for _ in range(2):
        cassandra.accept_loss(row.pipeline, loss, Acceptance(by="kim", choice="earliest", at=FOUND))
    (found,) = cassandra.read_losses(row.pipeline, loss.committed_ms)
    assert (found.loss, found.acceptance is not None) == (loss, True)
    select = f"SELECT * FROM {KEYSPACE}.accepted_losses WHERE pipeline = %s"  # noqa: S608 - a constant
    rows = list(cassandra.session.execute(select, (row.pipeline,)))
    assert {f"{r.topic}/{r.partition}": (r.from_offset, r.until_offset) for r in rows} == ranges
    assert {(r.loss, r.accepted_by, r.reason, r.choice, r.topic_id, r.new_topic_id) for r in rows} == {
        (loss.id, "kim", "TopicRecreated", "earliest", "old", "new")
    }
    cassandra.forget(row.pipeline)
    assert not list(cassandra.session.execute(select, (row.pipeline,)))


@pytest.mark.integration
@pytest.mark.parametrize(
    "change",
    [
        "from_offsets = {'a/0': 4, 'b.c/11': 0}",
        "until_offsets = null",
        "old_topic_ids = null",
        "reason = 'Streaming'",
        "epoch = null",
    ],
)
def test_a_loss_that_was_changed_by_hand_is_none(cassandra: CassandraFenceTable, row: FenceRow, change: str) -> None:
    cassandra.report_loss(row.pipeline, ReportedLoss(loss=LOSS, epoch=3, at=FOUND))
    cassandra.session.execute(
        f"UPDATE {KEYSPACE}.fence_losses SET {change} WHERE pipeline = %s AND committed_ms = %s AND id = %s",  # noqa: S608 - constants
        (row.pipeline, LOSS.committed_ms, LOSS.id),
    )
    assert cassandra.read_losses(row.pipeline, LOSS.committed_ms) == ()


@pytest.mark.integration
def test_an_older_schema_keeps_what_it_can_of_a_loss(cassandra: CassandraFenceTable, row: FenceRow) -> None:
    keyspace = "fencepost_contract_older"
    create_schema(cassandra.session, keyspace, {"class": "SimpleStrategy", "replication_factor": 1})
    older = CassandraFenceTable.over(cassandra.session, keyspace)
    cassandra.session.execute(f"ALTER TABLE {keyspace}.accepted_losses DROP (loss, reason, choice)", timeout=60)
    older.report_loss(row.pipeline, ReportedLoss(loss=LOSS, epoch=3, at=FOUND))
    older.accept_loss(row.pipeline, LOSS, Acceptance(by="kim", choice="earliest", at=FOUND))
    assert [report.acceptance is not None for report in older.read_losses(row.pipeline, LOSS.committed_ms)] == [True]
    cassandra.session.execute(f"DROP TABLE {keyspace}.fence_losses", timeout=60)
    assert older.read_losses(row.pipeline, LOSS.committed_ms) == ()
    with pytest.raises(FenceSchemaMissing):
        older.report_loss(row.pipeline, ReportedLoss(loss=LOSS, epoch=3, at=FOUND))
    older.forget(row.pipeline)
    cassandra.session.execute(f"DROP KEYSPACE {keyspace}", timeout=60)


def test_forgetting_takes_the_progress_along_and_leaves_the_row(table: FenceTable, row: FenceRow) -> None:
    table.insert(row)
    table.report_progress(row.pipeline, epoch=0, version=0, done=1)
    table.forget(row.pipeline)
    table.forget(row.pipeline)
    assert table.read_progress(row.pipeline) is None
    assert table.read(row.pipeline) == row


def test_the_epoch_alone_is_read_as_the_row_has_it(table: FenceTable, row: FenceRow) -> None:
    assert table.read_epoch(row.pipeline) is None
    table.insert(row)
    assert table.read_epoch(row.pipeline) == row.epoch
    after = replace(row, epoch=row.epoch + 1, version=row.version + 1, clock=row.clock + 2)
    assert table.swap(row, after)
    assert table.read_epoch(row.pipeline) == row.epoch + 1


def test_the_table_knows_the_time(table: FenceTable) -> None:
    """Of one machine, or of two whose clocks are kept: what is not within a day is another unit."""
    assert abs(table.server_time() - time.time() * 1e6) < 24 * 3600 * 1e6


@pytest.mark.integration
def test_a_wrong_password_is_distinguished_from_a_silent_database() -> None:
    with pytest.raises(FenceCredentialsRejected):
        open_session(password="wrong")  # noqa: S106 - refused on purpose


@pytest.mark.integration
def test_a_missing_schema_is_distinguished(cassandra: CassandraFenceTable) -> None:
    with pytest.raises(FenceSchemaMissing):
        CassandraFenceTable.over(cassandra.session, "no_such_keyspace").read("x")


def test_the_history_has_the_moment_of_each_commit(table: FenceTable, row: FenceRow, tmp_path: Path) -> None:
    """As precise as the row itself has it: what reads the history compares the two."""
    fence = Fence(table, row.pipeline)
    taken = fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
    rows = [taken, fence.claim(epoch=1, driver="pod", code="c", start=_start)]
    for end in (3, 4):
        ends = {"a/0": end}
        rows.append(fence.commit(rows[-1], offsets=rows[-1].planned, planned=ends, records=1, duration_ms=1))
        rows.append(fence.plan(rows[-1], offsets=rows[-1].offsets, planned={"a/0": end + 5}))
    moments = {seen.version: commit_ms(seen.committed_at) for seen in _history(table, row.pipeline, tmp_path)}
    assert moments == {0: 0} | {made.version: commit_ms(made.committed_at) for made in rows}
    assert moments[rows[-1].version] == commit_ms(present(table.read(row.pipeline)).committed_at) > 0


def _history(table: FenceTable, pipeline: str, folder: Path) -> list[FenceRow]:
    """Return the rows of a table's history."""
    if isinstance(table, MemoryFenceTable):
        return [seen for seen in table.history if seen.pipeline == pipeline]
    if isinstance(table, CassandraFenceTable):
        table.finish_history()
        return [seen for _, seen in restored(pipeline, read_changes(table.session, table.keyspace, pipeline))]
    if isinstance(table, PostgresqlFenceTable):
        hours = {hour_of(datetime.now(UTC) - timedelta(minutes=ago)) for ago in (0, 10)}
        read = (changes_of_hour(table.session, table.schema, pipeline, hour) for hour in hours)
        return [seen for _, seen in restored(pipeline, (one for changes in read for one in changes))]
    with closing(Database(folder / "fence.sqlite", SCHEMA)) as database, database.reading() as connection:
        found = connection.execute("SELECT content FROM fencepost_changes WHERE pipeline = ?", (pipeline,)).fetchall()
    return [decode(FenceRow, content, "a change") for (content,) in found]


@pytest.mark.integration
def test_changes_are_kept_in_the_history(cassandra: CassandraFenceTable, row: FenceRow) -> None:
    fence = Fence(cassandra, row.pipeline)
    fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
    cassandra.finish_history()
    changes = read_history(cassandra.session, KEYSPACE, row.pipeline)
    assert [(change.epoch, change.version) for change in changes] == [(0, 0), (1, 1)]


@pytest.mark.integration
def test_the_history_gives_back_every_row_of_a_run(cassandra: CassandraFenceTable, row: FenceRow) -> None:
    fence = Fence(cassandra, row.pipeline)
    rows = [fence.create("cluster/cr")]
    rows.append(fence.take_over(rows[-1], owner="cluster/cr"))
    start = Starting(offsets={"a/0": 0, "a/1": 0}, planned={"a/0": 5, "a/1": 0}, topic_ids={"a": "id"})
    rows.append(fence.claim(epoch=1, driver="pod", code="image", start=lambda _: start))
    for planned in ({"a/0": 9, "a/1": 0}, {"a/0": 9, "a/1": 4}, {"a/0": 9, "a/1": 4, "a/2": 1}):
        offsets = rows[-1].planned
        figures = {"bytes": 9 * len(rows), "driver_jvm": 7}
        made = fence.commit(
            rows[-1], offsets=offsets, planned=planned, records=4, duration_ms=3, figures=figures, state_bytes=len(rows)
        )
        rows.append(made)
    cassandra.finish_history()
    records = read_changes(cassandra.session, KEYSPACE, row.pipeline)
    read = [(*(getattr(seen, name) for name in HELD), dict(seen.offsets), dict(seen.planned))
            for _, seen in restored(row.pipeline, records)]  # fmt: skip
    assert read == [(*(getattr(made, name) for name in HELD), dict(made.offsets), dict(made.planned)) for made in rows]
    by_version = {record.version: record for record in records}
    assert [by_version[version].base for version in range(6)] == [True, True, True, False, False, False]
    assert by_version[4].committed
    assert by_version[4].offsets == {}
    assert by_version[4].planned == {"a/1": 4}


@pytest.mark.integration
def test_a_row_that_is_released_takes_its_history_along(cassandra: CassandraFenceTable, row: FenceRow) -> None:
    fence = Fence(cassandra, row.pipeline)
    taken = fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
    cassandra.finish_history()
    fence.release(taken)
    assert read_history(cassandra.session, KEYSPACE, row.pipeline) == []


@pytest.mark.integration
def test_a_change_stands_whose_history_cannot_be_written(cassandra: CassandraFenceTable, row: FenceRow) -> None:
    keyspace = "fencepost_contract_mute"
    create_schema(cassandra.session, keyspace, {"class": "SimpleStrategy", "replication_factor": 1})
    cassandra.session.execute(f"DROP TABLE {keyspace}.fence_changes", timeout=60)
    mute = CassandraFenceTable.over(cassandra.session, keyspace)
    fence = Fence(mute, row.pipeline)
    taken = fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
    mute.finish_history()
    assert fence.read() == taken
    cassandra.session.execute(f"DROP KEYSPACE {keyspace}", timeout=60)


def test_a_contact_point_without_an_address_is_an_unreachable_database() -> None:
    with pytest.raises(FenceUnavailable, match=r"no-such-host\.invalid"):
        connect(CassandraEndpoint(contact_points=("no-such-host.invalid",)), credentials=None)


FULL = {
    "epoch": 3,
    "version": 7,
    "code": "image job:transform",
    "offsets": {"a/0": 5},
    "topic_ids": {"a": "id"},
    "leader_epochs": {"a/0": 3},
    "growth_barrier": {"a/0": 2},
}


@pytest.mark.integration
def test_a_snapshot_is_written_once_and_never_changed(cassandra: CassandraFenceTable, row: FenceRow) -> None:
    snapshots = SnapshotTable(cassandra.session, KEYSPACE)
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    ids = [snapshot_id(at.replace(minute=minute), row.pipeline) for minute in range(3)]
    full = replace(row, **FULL)  # type: ignore[arg-type]
    for one in ids:
        assert snapshots.insert(row.pipeline, snapshot_of(full, id=one, trigger=Trigger.ON_DEMAND, name="v1"))
    later = replace(full, version=8, offsets={"a/0": 9})
    assert not snapshots.insert(row.pipeline, snapshot_of(later, id=ids[0], trigger=Trigger.ON_DEMAND, name="v1"))
    first = snapshots.read(row.pipeline, ids[0])
    assert first == snapshot_of(full, id=ids[0], trigger=Trigger.ON_DEMAND, name="v1")
    assert first.at == at.replace(minute=0)
    listed = snapshots.newest(row.pipeline)
    assert [one.id for one in listed] == list(reversed(ids))
    assert not any(one.offsets for one in listed)
    assert [one.offsets for one in snapshots.newest(row.pipeline, with_offsets=True)] == [{"a/0": 5}] * 3
    snapshots.delete(row.pipeline, ids[:2])
    assert [one.id for one in snapshots.newest(row.pipeline)] == [ids[2]]
    cassandra.forget(row.pipeline)
    assert snapshots.newest(row.pipeline) == ()


@pytest.mark.integration
def test_a_snapshot_fits_the_table_of_the_first_release(cassandra: CassandraFenceTable, row: FenceRow) -> None:
    keyspace = "fencepost_contract_first"
    create_schema(cassandra.session, keyspace, {"class": "SimpleStrategy", "replication_factor": 1})
    for column in schema.SNAPSHOTS.added:
        cassandra.session.execute(f"ALTER TABLE {keyspace}.snapshots DROP IF EXISTS {column}", timeout=60)
    snapshots = SnapshotTable(cassandra.session, keyspace)
    one = snapshot_id(datetime(2026, 1, 2, tzinfo=UTC), row.pipeline)
    whole = snapshot_of(replace(row, **FULL), id=one, trigger=Trigger.SCHEDULE, name=None)  # type: ignore[arg-type]
    snapshots.insert(row.pipeline, whole)
    with pytest.raises(FenceSchemaInvalid, match="lacks the column checkpoint"):
        snapshots.insert(row.pipeline, replace(whole, checkpoint=b"state"))
    found = present(snapshots.read(row.pipeline, one))
    assert (found.offsets, found.topic_ids, found.version) == ({"a/0": 5}, {"a": "id"}, 7)
    cassandra.session.execute(f"DROP TABLE {keyspace}.snapshots", timeout=60)
    assert snapshots.newest(row.pipeline) == ()
    cassandra.session.execute(f"DROP KEYSPACE {keyspace}", timeout=60)
