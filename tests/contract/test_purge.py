"""Deleting output on a real Cassandra: exactly the rows of the ranges, and only those that are not newer."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from cassandra.cluster import Session

from contract.purging import run
from fakes.driver_configs import USUAL
from fencepost.contract import CassandraEndpoint, CassandraSink, DriverConfig, Verdict
from fencepost.contract.purge_request import PurgeReport
from present import present
from testbed.environment import Environment, load

pytestmark = pytest.mark.integration

KEYSPACE = "purge_contract"
"""Without the testbed's password in its name: messages cover that."""
KEYS = {
    "bucketed": "(topic, partition, bucket), offset",
    "plain": "(topic, partition), offset, i",
    "row_per_partition": "(topic, partition, offset)",
}
OTHER_KEYS = {"business": "id", "late": "(topic, partition), id, offset"}
COLUMNS = "topic text, partition int, bucket bigint, offset bigint, i int, id bigint, value text"
OLD, NEW, NEWER = 1_000, 2_000, 3_000


@pytest.fixture(scope="module")
def keyspace(session: Session) -> str:
    session.execute(
        f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE}"
        " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    for name, key in {**KEYS, **OTHER_KEYS}.items():
        session.execute(f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.{name} ({COLUMNS}, PRIMARY KEY ({key}))", timeout=60)
    return KEYSPACE


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


def fill(session: Session, table: str, topic: str, offsets: range, *, partition: int = 0, at: int = OLD) -> None:
    insert = session.prepare(
        f"INSERT INTO {KEYSPACE}.{table} (topic, partition, bucket, offset, i, id, value)"  # noqa: S608
        " VALUES (?, ?, ?, ?, 0, ?, 'x') USING TIMESTAMP ?"
    )
    for offset in offsets:
        session.execute(insert, (topic, partition, offset // 10, offset, offset, at))


def left(session: Session, table: str, topic: str, partition: int = 0) -> list[int]:
    found = session.execute(f"SELECT topic, partition, offset FROM {KEYSPACE}.{table}")  # noqa: S608
    return sorted(row.offset for row in found if (row.topic, row.partition) == (topic, partition))


def config_of(environment: Environment, table: str) -> DriverConfig:
    """Return the configuration of a pipeline with one table."""
    return replace(
        USUAL,
        pipeline="default/shop/orders",
        epoch=2,
        sinks=(CassandraSink(name="out", keyspace=KEYSPACE, table=table),),
        cassandra=CassandraEndpoint(contact_points=(environment.cassandra_host,), port=environment.cassandra_port),
    )


@pytest.fixture(scope="module")
def environment() -> Environment:
    return load()


@pytest.mark.parametrize("table", KEYS)
def test_the_rows_of_the_ranges_go_and_no_others(
    session: Session, keyspace: str, environment: Environment, tmp_path: Path, topic: str, table: str
) -> None:
    del keyspace
    for partition in (0, 1):
        fill(session, table, topic, range(40), partition=partition)
    ranges = {f"{topic}/0": (15, 35), f"{topic}x/0": (0, 100)}
    code, words = run(tmp_path, config_of(environment, table), ranges, None)
    assert code == 0, words
    counted = present(PurgeReport.from_json(words))
    assert (counted.rows, counted.left) == (20, 20)
    assert left(session, table, topic) == list(range(40))
    code, words = run(tmp_path, config_of(environment, table), ranges, NEW)
    assert code == 0, words
    purged = present(PurgeReport.from_json(words))
    assert (purged.rows, purged.left) == (20, 0)
    assert left(session, table, topic) == [*range(15), *range(35, 40)]
    assert left(session, table, topic, partition=1) == list(range(40))
    fill(session, table, topic, range(15, 20), at=OLD)  # a zombie's late write
    fill(session, table, topic, range(30, 33), at=NEWER)  # the next run's
    assert left(session, table, topic) == [*range(15), *range(30, 33), *range(35, 40)]


def test_newer_rows_stay_and_are_reported(
    session: Session, keyspace: str, environment: Environment, tmp_path: Path, topic: str
) -> None:
    del keyspace
    fill(session, "plain", topic, range(10), at=OLD)
    fill(session, "plain", topic, range(5, 7), at=NEWER)
    code, words = run(tmp_path, config_of(environment, "plain"), {f"{topic}/0": (0, 10)}, NEW)
    verdict = present(Verdict.from_json(words))
    assert (code, verdict.reason) == (1, "PurgeFailed")
    assert "2 of 10 rows are still there" in verdict.message
    assert left(session, "plain", topic) == [5, 6]


@pytest.mark.parametrize("table", [*OTHER_KEYS, "missing"])
def test_a_table_with_another_key_is_refused_by_name(
    keyspace: str, environment: Environment, tmp_path: Path, topic: str, table: str
) -> None:
    code, words = run(tmp_path, config_of(environment, table), {f"{topic}/0": (0, 10)}, NEW)
    verdict = present(Verdict.from_json(words))
    assert code == 51
    assert f"{keyspace}.{table}" in verdict.message
    assert json.loads(words)["remedy"]
