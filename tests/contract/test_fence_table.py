"""One suite for both fence tables: what the double promises, Cassandra keeps."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fencepost.contract import CassandraEndpoint
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
from fencepost.fence.cassandra import CassandraFenceTable, connect, create_schema
from fencepost.fence.memory import MemoryFenceTable
from flights.history import read_history
from testbed import environment

KEYSPACE = "fencepost_contract"


@pytest.fixture(scope="module")
def cassandra() -> Iterator[CassandraFenceTable]:
    place = environment.load()
    session = connect(
        CassandraEndpoint(
            contact_points=(place.cassandra_host,), port=place.cassandra_port, local_datacenter="datacenter1"
        ),
        credentials=(place.cassandra_username, place.cassandra_password),
        consistency="ONE",
    )
    create_schema(session, KEYSPACE, {"class": "SimpleStrategy", "replication_factor": 1})
    table = CassandraFenceTable.over(session, KEYSPACE)
    yield table
    table.close()


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.integration)])
def table(request: pytest.FixtureRequest) -> FenceTable:
    if request.param == "memory":
        return MemoryFenceTable()
    found: CassandraFenceTable = request.getfixturevalue("cassandra")
    return found


@pytest.fixture
def row() -> FenceRow:
    return FenceRow(pipeline=f"contract/{uuid.uuid4()}/p", owner="cluster/cr")


def test_a_row_that_is_not_there_is_none(table: FenceTable, row: FenceRow) -> None:
    assert table.read(row.pipeline) is None


def test_a_row_comes_back_as_it_went(table: FenceTable, row: FenceRow) -> None:
    full = replace(
        row,
        epoch=3,
        driver="pod",
        version=7,
        clock=1_700_000_000_000_000,
        offsets={"a/0": 1, "b.c/11": 2**40},
        planned={"a/0": 2},
        topic_ids={"a": "id"},
        code="image",
        committed_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        records=10,
        duration_ms=12,
    )
    assert table.insert(full)
    assert table.read(row.pipeline) == full


def test_a_row_is_inserted_once(table: FenceTable, row: FenceRow) -> None:
    assert table.insert(row)
    assert not table.insert(replace(row, owner="other"))
    assert table.read(row.pipeline) == row


@pytest.mark.parametrize(
    "stale",
    [{"epoch": 2}, {"version": 9}, {"driver": "other"}, {"driver": None}],
    ids=["epoch", "version", "driver", "null"],
)
def test_a_swap_is_refused_where_any_part_of_the_condition_is_stale(
    table: FenceTable, row: FenceRow, stale: dict[str, object]
) -> None:
    current = replace(row, epoch=1, version=1, driver="pod")
    table.insert(current)
    assert not table.swap(replace(current, **stale), replace(current, version=2))  # type: ignore[arg-type]
    assert table.read(row.pipeline) == current


def test_a_swap_from_no_driver_works_once(table: FenceTable, row: FenceRow) -> None:
    table.insert(row)
    mine, theirs = replace(row, driver="me", version=1), replace(row, driver="you", version=1)
    assert table.swap(row, mine)
    assert not table.swap(row, theirs)
    assert table.read(row.pipeline) == mine


def test_a_missing_row_is_neither_swapped_nor_deleted(table: FenceTable, row: FenceRow) -> None:
    assert not table.swap(row, replace(row, version=1))
    assert not table.delete(row)


def test_a_row_is_deleted_on_its_condition(table: FenceTable, row: FenceRow) -> None:
    table.insert(row)
    assert not table.delete(replace(row, version=5))
    assert table.delete(row)
    assert table.read(row.pipeline) is None


def test_of_many_claims_at_once_one_wins(table: FenceTable, row: FenceRow) -> None:
    """Injected: eight drivers of one epoch claim in the same moment."""
    fence = Fence(table, row.pipeline)
    taken = fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
    outcomes: list[str] = []
    gate = threading.Barrier(8)

    def claim(driver: str) -> None:
        gate.wait()
        try:
            Fence(table, row.pipeline).claim(
                epoch=taken.epoch,
                driver=driver,
                code="image",
                start=lambda seen: Starting(offsets=seen.offsets, planned=seen.planned, topic_ids=seen.topic_ids),
            )
            outcomes.append(driver)
        except Fenced:
            outcomes.append("fenced")

    threads = [threading.Thread(target=claim, args=(f"pod-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [outcome for outcome in outcomes if outcome != "fenced"]
    seen = table.read(row.pipeline)
    assert len(outcomes) == 8
    assert seen is not None
    assert winners == [seen.driver]


@pytest.mark.integration
def test_a_wrong_password_is_told_apart_from_a_silent_database() -> None:
    place = environment.load()
    with pytest.raises(FenceCredentialsRejected):
        connect(
            CassandraEndpoint(
                contact_points=(place.cassandra_host,), port=place.cassandra_port, local_datacenter="datacenter1"
            ),
            credentials=(place.cassandra_username, "wrong"),
        )


@pytest.mark.integration
def test_a_missing_schema_is_told_apart(cassandra: CassandraFenceTable) -> None:
    with pytest.raises(FenceSchemaMissing):
        CassandraFenceTable.over(cassandra.session, "no_such_keyspace").read("x")


@pytest.mark.integration
def test_changes_are_kept_in_the_history(cassandra: CassandraFenceTable, row: FenceRow) -> None:
    fence = Fence(cassandra, row.pipeline)
    fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
    cassandra.finish_history()
    changes = read_history(cassandra.session, KEYSPACE, row.pipeline)
    assert [(change.epoch, change.version) for change in changes] == [(0, 0), (1, 1)]


@pytest.mark.integration
def test_a_row_that_is_deleted_takes_its_history_along(cassandra: CassandraFenceTable, row: FenceRow) -> None:
    fence = Fence(cassandra, row.pipeline)
    taken = fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
    cassandra.finish_history()
    fence.delete(taken)
    assert read_history(cassandra.session, KEYSPACE, row.pipeline) == []


@pytest.mark.integration
def test_a_change_stands_whose_history_cannot_be_written(cassandra: CassandraFenceTable, row: FenceRow) -> None:
    keyspace = "fencepost_contract_mute"
    create_schema(cassandra.session, keyspace, {"class": "SimpleStrategy", "replication_factor": 1})
    cassandra.session.execute(f"DROP TABLE {keyspace}.fence_history")
    mute = CassandraFenceTable.over(cassandra.session, keyspace)
    fence = Fence(mute, row.pipeline)
    taken = fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
    mute.finish_history()
    assert fence.read() == taken
    cassandra.session.execute(f"DROP KEYSPACE {keyspace}")


def test_a_contact_point_without_an_address_is_an_unreachable_database() -> None:
    with pytest.raises(FenceUnavailable, match=r"no-such-host\.invalid"):
        connect(CassandraEndpoint(contact_points=("no-such-host.invalid",)), credentials=None)
