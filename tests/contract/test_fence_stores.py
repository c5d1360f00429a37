"""One suite for the operator's store of fences: in memory, on a real Cassandra, and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contract.cassandra import open_session
from contract.operator_stages import KEYSPACE
from contract.postgresql import session_with
from fakes.connections import connection_to
from fakes.fence_stores import CassandraFenceStore, NoFences
from fakes.ports import ports_of
from fakes.secrets import Secrets
from fakes.world import World
from fencepost.contract import Loss, PostgresqlTls, Reason, ReportedLoss, TopicChange, topics_of
from fencepost.fence import Fence, Fenced, FenceRow, Starting
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.fence.postgresql.schema import create_schema
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.fence.snapshots import Trigger, snapshot_id
from fencepost.fence.table import FenceTable
from fencepost_operator.adapters.fence_store import DatabaseFenceStore
from fencepost_operator.adapters.postgresql.fences import PostgresqlFences
from fencepost_operator.api import FenceConnection, PostgresqlConnection
from fencepost_operator.desired.names import sign_key
from fencepost_operator.errors import Conflict, Denied, Rejected, Unreachable
from fencepost_operator.observation import NoStart, StartingPoint
from fencepost_operator.ports import FenceStore
from postgresql_server import USER, Server, free_port
from present import present
from testbed.environment import load


@dataclass(frozen=True, slots=True)
class Held:
    """A store, the way to it, and the tables as a driver has them."""

    fences: FenceStore
    place: FenceConnection
    table: Callable[[], FenceTable]
    fence: Callable[[FenceTable, str], Fence] = Fence

    def report(self, row: str, loss: ReportedLoss) -> None:
        """Record a loss as a driver does."""
        self.table().report_loss(row, loss)

    def commit(self, row: str, ends: Mapping[str, int]) -> FenceRow:
        """Claim a row at offset 0, commit up to these offsets, and return the row once the history has it."""
        table = self.table()
        fence = self.fence(table, row)
        begins, ids = dict.fromkeys(ends, 0), dict.fromkeys(topics_of(ends), "id")
        start = Starting(offsets=begins, planned=ends, topic_ids=ids)
        held = fence.claim(epoch=present(fence.read()).epoch, driver="pod", code="image", start=lambda _: start)
        row_after = fence.commit(held, offsets=ends, planned=ends, records=sum(ends.values()), duration_ms=1)
        if isinstance(table, CassandraFenceTable):
            table.finish_history()
        return row_after


def connection_of(server: Server, **changes: Any) -> PostgresqlConnection:
    usual = PostgresqlConnection(
        namespace="shop", hosts=("127.0.0.1",), port=present(server.port), database="postgres",
        schema=f"s{uuid.uuid4().hex[:8]}", credentials_secret="account", create_schema=True,  # noqa: S106 - a name
    )  # fmt: skip
    return replace(usual, **changes)


def postgresql_store(**account: str) -> DatabaseFenceStore:
    fences = PostgresqlFences(Secrets({"username": USER, "password": "", **account}))
    return DatabaseFenceStore(cassandra=NoFences(), postgresql=fences)


@pytest.fixture(
    params=["memory", *(pytest.param(name, marks=pytest.mark.integration) for name in ("cassandra", "postgresql"))]
)
async def held(request: pytest.FixtureRequest) -> AsyncIterator[Held]:
    match request.param:
        case "memory":
            world = World(ends={}, rate=0.0)
            yield Held(
                ports_of(world).fences, connection_to("cassandra"), lambda: world.table, lambda _, row: world.fence(row)
            )
        case "cassandra":
            place = load()
            account = {"username": place.cassandra_username, "password": place.cassandra_password}
            session, on_cassandra = open_session(), CassandraFenceStore(Secrets(account))
            connection = connection_to(
                place.cassandra_host, namespace="shop", port=place.cassandra_port, keyspace=KEYSPACE,
                credentials_secret="account", create_schema=True,  # noqa: S106 - a name
            )  # fmt: skip
            yield Held(on_cassandra, connection, lambda: CassandraFenceTable.over(session, KEYSPACE))
            await on_cassandra.close()
            session.cluster.shutdown()
        case _:
            server = request.getfixturevalue("server")
            store, to = postgresql_store(), connection_of(server)
            with closing(session_with(server)) as opened:
                yield Held(store, to, lambda: PostgresqlFenceTable(opened, to.schema))
            await store.close()


async def test_a_pipeline_whose_driver_reported_nothing_has_no_progress(held: Held) -> None:
    fences, place, row = held.fences, held.place, f"contract/{uuid.uuid4()}/quiet"
    await fences.create(place, row, "me")
    assert await fences.read_progress(place, row) is None


async def test_a_fence_row_is_created_once_and_taken_over_from_where_it_stands(held: Held) -> None:
    fences, place, row = held.fences, held.place, f"contract/{uuid.uuid4()}/orders"
    assert await fences.read(place, row) is None
    await fences.create(place, row, "me")
    await fences.create(place, row, "another owner")
    made = present(await fences.read(place, row))
    assert (made.owner, made.epoch, made.version, made.driver) == ("me", 0, 0, None)
    taken = await fences.take_over(place, row, 0, 0, "me again")
    assert (taken.owner, taken.epoch, taken.version, taken.driver) == ("me again", 1, 1, None)
    assert await fences.read(place, row) == taken
    for epoch, version in ((0, 0), (1, 0), (0, 1)):
        with pytest.raises(Conflict):
            await fences.take_over(place, row, epoch, version, "me")
        with pytest.raises(Conflict):
            await fences.release(place, row, epoch, version)
    await fences.release(place, row, 1, 1)
    await fences.release(place, row, 1, 1)
    assert await fences.read(place, row) is None
    with pytest.raises(Conflict):
        await fences.take_over(place, row, 1, 1, "me")


async def test_a_loss_is_read_by_its_id_and_accepted_once_it_is_reported(held: Held) -> None:
    fences, place, row = held.fences, held.place, f"contract/{uuid.uuid4()}/losing"
    loss = Loss(reason=Reason.OFFSET_OUT_OF_RANGE, ranges={"t/0": (3, 9)}, topics={"t": TopicChange("id", "id")})
    await fences.create(place, row, "me")
    assert await fences.read_loss(place, row, 0, loss.id) is None
    with pytest.raises(Conflict):
        await fences.accept_loss(place, row, 0, loss.id, by="kim", choice="")
    await asyncio.to_thread(held.report, row, ReportedLoss(loss=loss, epoch=2, at=datetime(2026, 1, 2, tzinfo=UTC)))
    found = present(await fences.read_loss(place, row, 0, loss.id))
    assert (found.loss, found.epoch, found.acceptance) == (loss, 2, None)
    assert await fences.read_loss(place, row, 1, loss.id) is None
    assert await fences.read_loss(place, row, 0, "0123456789ab") is None
    for _ in range(2):
        await fences.accept_loss(place, row, 0, loss.id, by="kim", choice="")
        found = present(await fences.read_loss(place, row, 0, loss.id))
        assert found.acceptance is not None
        assert (found.acceptance.by, found.acceptance.choice) == ("kim", "")


async def test_what_was_committed_at_a_moment_is_known_from_the_first_claim_on(held: Held) -> None:
    fences, place, row = held.fences, held.place, f"contract/{uuid.uuid4()}/tried"
    await fences.create(place, row, "me")
    await fences.take_over(place, row, 0, 0, "me")
    made = await asyncio.to_thread(held.commit, row, {"t/0": 7})
    at, topics = datetime.fromtimestamp(made.clock / 1e6 + 0.001, UTC), frozenset({"t"})
    then = await fences.committed_at(place, row, at, topics)
    assert then == StartingPoint(offsets={"t/0": 7}, topic_ids={"t": "id"}, clock=made.clock)
    before = await fences.committed_at(place, row, at - timedelta(hours=2), topics)
    assert isinstance(before, NoStart)
    assert isinstance(await fences.committed_at(place, row, present(before.earliest), topics), StartingPoint)
    assert await fences.committed_at(place, row, at, topics | {"u"}) == NoStart()


@pytest.mark.integration
async def test_before_its_tables_exist_a_fence_in_postgresql_is_absent(server: Server) -> None:
    """Found on the cluster: the first look at a new pipeline reported its snapshots as unreadable."""
    store, there = postgresql_store(), connection_of(server)
    assert await store.read(there, "a/b/c") is None
    assert await store.snapshots(there, "a/b/c") == ()
    assert await store.read_progress(there, "a/b/c") is None
    assert await store.read_loss(there, "a/b/c", 0, "0123456789ab") is None
    await store.close()


async def test_a_snapshot_is_taken_once_listed_found_and_deleted(held: Held) -> None:
    fences, place, row = held.fences, held.place, f"contract/{uuid.uuid4()}/kept"
    await fences.create(place, row, "me")
    await fences.take_over(place, row, 0, 0, "me")
    made = await asyncio.to_thread(held.commit, row, {"t/0": 7})
    ids = [str(snapshot_id(datetime(2026, 1, 2, minute, tzinfo=UTC), row)) for minute in range(2)]
    for one in (*ids, ids[0]):
        await fences.take_snapshot(place, row, owner="me", snapshot=one, trigger=Trigger.ON_DEMAND, name="v1")
    assert [str(one.id) for one in await fences.snapshots(place, row)] == [*reversed(ids)]
    found = present(await fences.find_snapshot(place, row, ids[0]))
    assert (found.offsets, found.version, found.name) == ({"t/0": 7}, made.version, "v1")
    assert str(present(await fences.find_snapshot(place, row, "v1")).id) == ids[1]
    assert await fences.find_snapshot(place, row, "absent") is None
    with pytest.raises(Conflict):
        await fences.take_snapshot(place, row, owner="other", snapshot=ids[0], trigger=Trigger.ON_DEMAND, name="")
    await fences.drop_snapshots(place, row, [ids[1]])
    await fences.drop_snapshots(place, row, [ids[1]])
    assert [str(one.id) for one in await fences.snapshots(place, row)] == [ids[0]]


async def test_a_row_is_set_back_once_no_driver_has_it_and_the_next_commit_is_found(held: Held) -> None:
    fences, place, row = held.fences, held.place, f"contract/{uuid.uuid4()}/rewound"
    await fences.create(place, row, "me")
    await fences.take_over(place, row, 0, 0, "me")
    made = await asyncio.to_thread(held.commit, row, {"t/0": 7})
    maps: dict[str, Any] = {"leader_epochs": {}, "growth_barrier": {}, "keeps_output": True, "snapshot": None}
    with pytest.raises(Conflict):
        await fences.rewind(place, row, epoch=made.epoch, version=made.version, offsets={"t/0": 3}, **maps)
    taken = await fences.take_over(place, row, made.epoch, made.version, "me")
    await fences.rewind(place, row, epoch=taken.epoch, version=taken.version, offsets={"t/0": 3}, **maps)
    back = present(await fences.read(place, row))
    assert (back.offsets, back.epoch) == ({"t/0": 3}, taken.epoch)
    at = {"epoch": back.epoch, "version": back.version, "since": datetime.now(UTC)}
    assert await fences.first_commit(place, row, **at) is None  # type: ignore[arg-type]


@pytest.mark.integration
async def test_a_postgresql_that_refuses_or_is_not_there_is_told_apart(server: Server) -> None:
    there = connection_of(server)
    stranger, right = postgresql_store(username="unknown-account"), postgresql_store()
    with pytest.raises(Denied) as refused:
        await stranger.read(there, "a/b/c")
    assert "checkpoint.postgresql.credentialsFrom" in refused.value.remedy
    with pytest.raises(Unreachable, match="refused"):
        await right.read(replace(there, port=free_port()), "a/b/c")
    with pytest.raises(Unreachable, match="absent"):
        await right.read(replace(there, hosts=("absent.fencepost.test",)), "a/b/c")
    with pytest.raises(Rejected, match="nowhere") as absent:
        await right.read(replace(there, database="nowhere"), "a/b/c")
    assert "spec.checkpoint.postgresql.database" in absent.value.remedy
    with pytest.raises(Rejected) as missing:
        await right.create(replace(there, create_schema=False), "a/b/c", "me")
    assert "checkpoint.postgresql.createSchema" in missing.value.remedy
    assert await right.read(replace(there, create_schema=False), "a/b/c") is None
    with pytest.raises(Rejected, match=r"spec\.checkpoint\.postgresql\.tls: key ca\.crt is missing"):
        await right.read(replace(there, tls=PostgresqlTls(), tls_secret="certificates"), "a/b/c")  # noqa: S106 - a name
    for store in (stranger, right):
        await store.close()


@pytest.mark.integration
async def test_an_account_that_may_not_create_tables_uses_those_that_are_there(server: Server) -> None:
    there = connection_of(server)
    with closing(session_with(server)) as owner:
        create_schema(owner, there.schema)
        name = f"kim{uuid.uuid4().hex[:8]}"
        for statement in (
            f"CREATE ROLE {name} LOGIN",
            f"GRANT USAGE ON SCHEMA {there.schema} TO {name}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {there.schema} TO {name}",
        ):
            owner.run("granting", statement)
        store = postgresql_store(username=name)
        await store.create(there, "a/b/c", "me")
        assert present(await store.read(there, "a/b/c")).owner == "me"
        owner.run("dropping", f"DROP TABLE {there.schema}.snapshots")
        again = postgresql_store(username=name)
        await again.take_over(there, "a/b/c", 0, 0, "me")  # without the right to create what is missing
        for one in (store, again):
            await one.close()
        owner.run("revoking", f"DROP OWNED BY {name}")
        owner.run("dropping", f"DROP ROLE {name}")


async def test_a_sign_of_life_of_one_cluster_is_read_by_the_other(held: Held) -> None:
    """It has a key of its own: neither cluster's sign, nor a driver's report, is in the way of another's."""
    fences, place, row = held.fences, held.place, f"test/shop/{uuid.uuid4().hex[:8]}"
    await fences.create(place, row, "east/uid-1")
    east, west = sign_key(row, "east"), sign_key(row, "west")
    assert await fences.read_progress(place, east) is None
    await fences.give_sign(place, east, epoch=0, version=0, number=1, note="")
    first = present(await fences.read_progress(place, east))
    await fences.give_sign(place, west, epoch=0, version=0, number=7, note="Suspended")
    assert await fences.read_progress(place, east) == first, "an owner that gives no sign is seen to give none"
    await fences.give_sign(place, east, epoch=0, version=0, number=2, note="")
    assert present(await fences.read_progress(place, east)) != first
    assert (first.note, present(await fences.read_progress(place, west)).note) == ("", "Suspended")
    assert await fences.read_progress(place, row) is None


async def test_another_cluster_takes_over_from_the_version_it_saw_or_not_at_all(held: Held) -> None:
    fences, place, row = held.fences, held.place, f"test/shop/{uuid.uuid4().hex[:8]}"
    await fences.create(place, row, "east/uid-1")
    await fences.take_over(place, row, 0, 0, "east/uid-1")
    seen = present(await fences.read(place, row))
    committed = held.commit(row, {"orders/0": 5})
    with pytest.raises(Conflict):  # the owner lives: it has committed meanwhile
        await fences.take_over(place, row, seen.epoch, seen.version, "west/uid-2")
    taken = await fences.take_over(place, row, committed.epoch, committed.version, "west/uid-2")
    assert (taken.owner, taken.epoch, taken.driver) == ("west/uid-2", 2, None)
    assert taken.offsets == {"orders/0": 5}
    with pytest.raises(Conflict):  # the first one comes back with what it saw last
        await fences.take_over(place, row, committed.epoch, None, "east/uid-1")
    table = held.table()
    with pytest.raises(Fenced):
        held.fence(table, row).commit(
            committed, offsets={"orders/0": 9}, planned={"orders/0": 9}, records=4, duration_ms=1
        )
    assert present(await fences.read(place, row)) == taken


async def test_a_move_names_the_cluster_that_continues_and_keeps_what_is_committed(held: Held) -> None:
    fences, place, row = held.fences, held.place, f"test/shop/{uuid.uuid4().hex[:8]}"
    await fences.create(place, row, "east/uid-1")
    await fences.take_over(place, row, 0, 0, "east/uid-1")
    committed = held.commit(row, {"orders/0": 5})
    moved = await fences.take_over(place, row, committed.epoch, None, "west/")
    assert (moved.owner, moved.epoch, moved.driver) == ("west/", 2, None)
    assert moved.offsets == {"orders/0": 5}
    mine = await fences.take_over(place, row, moved.epoch, moved.version, "west/uid-2")
    assert (mine.owner, mine.epoch, mine.offsets) == ("west/uid-2", 3, {"orders/0": 5})
