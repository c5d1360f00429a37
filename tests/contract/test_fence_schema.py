"""The fence's schema on a real Cassandra: made once, migrated without loss, and absent only when Cassandra says so."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from cassandra.cluster import Session

from contract.cassandra import open_session
from fakes.connections import connection_to
from fakes.fence_stores import CassandraFenceStore
from fencepost.fence import Fence, FenceRow, FenceSchemaInvalid, FenceSchemaMissing, FenceUnauthorized, FenceUnavailable
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema
from fencepost_operator.adapters.cassandra import fences
from fencepost_operator.api import CassandraConnection, ObjectKey
from fencepost_operator.errors import Denied, Rejected, Unreachable
from harness.waiting import answered
from present import present
from testbed import environment

pytestmark = pytest.mark.integration

REPLICATION: Mapping[str, str | int] = {"class": "SimpleStrategy", "replication_factor": 1}
FIRST_RELEASE = """pipeline text PRIMARY KEY, version bigint, owner text, epoch bigint, driver text, clock bigint,
    offsets frozen<map<text, bigint>>, planned frozen<map<text, bigint>>, topic_ids frozen<map<text, text>>,
    code text, committed_at timestamp, records bigint, duration_ms bigint"""
"""The columns of the fence table as the first release creates it."""


@pytest.fixture
def keyspace(session: Session) -> Iterator[str]:
    name = f"fencepost_schema_{uuid.uuid4().hex[:12]}"
    yield name
    session.execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=60)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does much else takes its time for a schema."""
    monkeypatch.setattr(fences, "_ANSWER_WITHIN", 400.0)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every DDL statement that any session sends."""
    sent: list[str] = []
    execute = Session.execute

    def recorded(self: Session, query: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(query, str) and query.split()[0] in {"CREATE", "ALTER"}:
            sent.append(" ".join(query.split()))
        return execute(self, query, *arguments, **options)

    monkeypatch.setattr(Session, "execute", recorded)
    return sent


class Accounts:
    """The Secrets of a namespace: the testbed's account, or another one."""

    def __init__(self, username: str | None = None, password: str | None = None) -> None:
        place = environment.load()
        self.data = {"username": username or place.cassandra_username, "password": password or place.cassandra_password}

    async def secret(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        del key, name
        return self.data

    def forget_secrets(self, namespace: str) -> None:
        """They never change."""


def connection(keyspace: str, *, create: bool = True) -> CassandraConnection:
    place = environment.load()
    return connection_to(
        place.cassandra_host,
        namespace="shop",
        port=place.cassandra_port,
        keyspace=keyspace,
        credentials_secret="account",  # noqa: S106 - a name
        create_schema=create,
    )


async def test_twenty_new_pipelines_at_once_run_each_ddl_statement_once(keyspace: str, statements: list[str]) -> None:
    store = CassandraFenceStore(Accounts())
    try:
        await asyncio.gather(*(store.create(connection(keyspace), f"s/shop/p{n}", "me") for n in range(20)))
        rows = await asyncio.gather(*(store.read(connection(keyspace), f"s/shop/p{n}") for n in range(20)))
    finally:
        await store.close()
    assert [row.owner if row else None for row in rows] == ["me"] * 20
    assert len(statements) == len(set(statements)), statements


def test_a_schema_that_is_there_is_not_created_again(session: Session, keyspace: str, statements: list[str]) -> None:
    create_schema(session, keyspace, REPLICATION)
    assert statements
    statements.clear()
    create_schema(session, keyspace, REPLICATION)
    assert statements == []


def test_a_missing_keyspace_and_a_missing_table_are_absence(session: Session, keyspace: str) -> None:
    table = CassandraFenceTable.over(session, keyspace)
    with pytest.raises(FenceSchemaMissing, match=keyspace):
        table.read("p")
    create_schema(session, keyspace, REPLICATION)
    assert table.read("p") is None
    session.execute(f"DROP TABLE {keyspace}.fence")
    with pytest.raises(FenceSchemaMissing, match=rf"{keyspace}\.fence"):
        table.read("p")


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        (FIRST_RELEASE.replace("owner text, ", ""), "owner"),
        (FIRST_RELEASE.replace("epoch bigint", "epoch text"), "epoch"),
    ],
    ids=["column", "type"],
)
async def test_a_table_of_another_shape_is_rejected_and_never_an_absent_row(
    session: Session, keyspace: str, columns: str, named: str
) -> None:
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {REPLICATION}")
    session.execute(f"CREATE TABLE {keyspace}.fence ({columns})")
    with pytest.raises(FenceSchemaInvalid, match=rf"{keyspace}\.fence.*{named}"):
        CassandraFenceTable.over(session, keyspace).read("p")
    store = CassandraFenceStore(Accounts())
    try:
        with pytest.raises(Rejected, match=rf"{keyspace}\.fence.*{named}") as caught:
            await store.read(connection(keyspace, create=False), "p")
        with pytest.raises(Rejected, match=named):
            await store.release(connection(keyspace, create=False), "p", 0, 0)
    finally:
        await store.close()
    assert "fence-schema.cql" in caught.value.remedy


def first_release(session: Session, keyspace: str) -> None:
    """Make the fence table as the first release did, with a row in it."""
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {REPLICATION}")
    session.execute(f"CREATE TABLE {keyspace}.fence ({FIRST_RELEASE})")
    session.execute(
        f"INSERT INTO {keyspace}.fence (pipeline, owner, epoch, version, clock, offsets)"  # noqa: S608
        " VALUES ('p', 'me', 3, 9, 5, {'orders/0': 7}) IF NOT EXISTS"
    )


def test_a_row_of_an_older_schema_is_read_and_changed_before_the_migration(session: Session, keyspace: str) -> None:
    """Injected: a new job image, and an operator that has not migrated the schema."""
    first_release(session, keyspace)
    table = CassandraFenceTable.over(session, keyspace)
    row = table.read("p")
    assert row == FenceRow(pipeline="p", owner="me", epoch=3, version=9, clock=5, offsets={"orders/0": 7})
    after = Fence(table, "p").take_over(row, owner="me")
    seen = present(table.read("p"))
    assert (seen.epoch, seen.version, seen.clock) == (4, 10, after.clock)


async def test_the_operator_adds_the_columns_and_tables_of_a_newer_release(
    session: Session, keyspace: str, statements: list[str]
) -> None:
    first_release(session, keyspace)
    statements.clear()
    store = CassandraFenceStore(Accounts())
    try:
        # Serial reads of one row contend and may time out.
        reads = (answered(lambda: store.read(connection(keyspace), "p"), Unreachable) for _ in range(20))
        rows = await asyncio.gather(*reads)
        await store.take_over(connection(keyspace), "p", 3, 9, "me")
    finally:
        await store.close()
    assert {row.offsets["orders/0"] for row in rows if row} == {7}
    assert len(statements) == len(set(statements)), statements
    assert any("ADD leader_epochs" in statement for statement in statements)
    table = CassandraFenceTable.over(session, keyspace)
    taken = present(table.read("p"))
    full = replace(taken, version=taken.version + 1, leader_epochs={"orders/0": 4}, log_ends={"orders/0": 9})
    assert table.swap(taken, full)
    assert table.read("p") == full


async def test_a_schema_that_must_not_be_changed_is_used_as_it_is(
    session: Session, keyspace: str, statements: list[str]
) -> None:
    first_release(session, keyspace)
    statements.clear()
    store = CassandraFenceStore(Accounts())
    try:
        assert (await store.take_over(connection(keyspace, create=False), "p", 3, 9, "me")).epoch == 4
    finally:
        await store.close()
    assert statements == []


@pytest.fixture
def stranger(session: Session) -> Iterator[tuple[str, str]]:
    """An account that may log in and nothing else."""
    name = f"stranger_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE ROLE {name} WITH PASSWORD = 'secret' AND LOGIN = true")
    yield name, "secret"
    session.execute(f"DROP ROLE {name}", timeout=60)


async def test_an_account_without_a_grant_is_denied_and_never_an_absent_row(
    session: Session, keyspace: str, stranger: tuple[str, str]
) -> None:
    create_schema(session, keyspace, REPLICATION)
    theirs = open_session(*stranger)
    try:
        with pytest.raises(FenceUnauthorized) as caught:
            CassandraFenceTable.over(theirs, keyspace).read("p")
    finally:
        theirs.cluster.shutdown()
    assert isinstance(caught.value, FenceUnavailable), "so that it is tried again before the run ends"
    store = CassandraFenceStore(Accounts(*stranger))
    try:
        with pytest.raises(Denied, match=keyspace) as denied:
            await store.read(connection(keyspace), "p")
    finally:
        await store.close()
    assert "checkpoint.cassandra.credentialsFrom" in denied.value.remedy
    assert stranger[0] not in f"{denied.value} {denied.value.remedy}", "a Secret's value"
