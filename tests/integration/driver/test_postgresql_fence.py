"""The real driver with fence and rows in one PostgreSQL: killed, frozen and poisoned, each record is stored once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fencepost_postgresql
import psycopg
import pytest

from fencepost.contract import (
    DeclaredSink,
    DriverConfig,
    ExitCode,
    PluginSink,
    PostgresqlEndpoint,
    PostgresqlSink,
    Variable,
)
from fencepost.fence import FenceRow
from fencepost.fence.history import hour_of, restored
from fencepost.fence.postgresql.dead_letters import DeadLetters
from fencepost.fence.postgresql.history import changes_of_hour
from fencepost.fence.postgresql.schema import create_schema
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.fence.table import FenceTable
from integration.driver.support import Pipeline, Run
from integration.driver.test_plugin_sink import PACKAGES, socket_of
from integration.driver.test_poison import NOWHERE, UNREADABLE, spoil
from present import present

pytestmark = pytest.mark.integration

TABLE = 'CREATE TABLE {} (topic text, partition int, "offset" bigint, bucket bigint, n bigint, x float8, city text)'
RECORDS = 2_000


@dataclass(slots=True, kw_only=True)
class InPostgresql(Pipeline):
    """A pipeline whose fence is in a schema of its own, beside the table of its rows."""

    database: Session
    dsn: str

    @property
    def _table(self) -> FenceTable:
        return PostgresqlFenceTable(self.database, self.config.fence_keyspace)

    def begin(self, config: DriverConfig | None = None, user: str = "postgres") -> Run:
        """Start a driver with the account of this database alone."""
        variables = {
            "PYTHONPATH": PACKAGES,
            Variable.CASSANDRA_USERNAME: "",
            Variable.CASSANDRA_PASSWORD: "",
            Variable.POSTGRESQL_USERNAME: user,
        }
        return self.start(config, **variables)

    def stored(self) -> list[tuple[Any, ...]]:
        """Return the record and the number of each row."""
        query = f'SELECT partition, "offset", n FROM {self.topic} ORDER BY partition, "offset", n'  # noqa: S608
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(query.encode()).fetchall()

    def changes(self) -> list[FenceRow]:
        """Return the row after each change of the last two hours, oldest first."""
        hour, key = hour_of(datetime.now(UTC)), self.config.pipeline
        hours = (hour - timedelta(hours=1), hour)
        found = [one for at in hours for one in changes_of_hour(self.database, self.config.fence_keyspace, key, at)]
        return [row for _, row in restored(key, found)]


@pytest.fixture
def moved(
    request: pytest.FixtureRequest, pipeline: Callable[..., Pipeline], postgresql: str, tmp_path: Path
) -> Iterator[InPostgresql]:
    """Return a pipeline that needs no Cassandra; the parameter is the kind of its sink."""
    one = pipeline(max_records_per_batch=200)
    folder, name = socket_of(postgresql), one.topic
    endpoint = PostgresqlEndpoint(hosts=(folder,), database="postgres")
    dsn = f"{postgresql} options='-c search_path={name}'"
    with closing(Session(endpoint, credentials=("postgres", ""))) as database:
        create_schema(database, name)
        with psycopg.connect(dsn) as connection:
            connection.execute(TABLE.format(name).encode())
        packages = tmp_path / "packages"
        described = packages / "fencepost_postgresql-1.0.dist-info"
        described.mkdir(parents=True)
        (described / "METADATA").write_text("Metadata-Version: 2.1\nName: fencepost-postgresql\nVersion: 1.0\n")
        entry = "[fencepost.sinks]\npostgresql = fencepost_postgresql.sink:PostgresqlSink\n"
        (described / "entry_points.txt").write_text(entry)
        site = Path(psycopg.__file__).parent.parent
        parts = (*site.glob("psycopg*"), described, Path(fencepost_postgresql.__file__).parent)
        sinks: dict[str, DeclaredSink] = {
            "plugin": PluginSink(name="rows", plugin="postgresql", options={"dsn": dsn, "table": name}),
            "beside": PostgresqlSink(name="rows", schema=name, table=name),
        }
        config = replace(
            one.config, cassandra=None, postgresql=endpoint, fence_keyspace=name, entrypoint="parse:placed",
            sinks=(sinks[getattr(request, "param", "plugin")],),
        )  # fmt: skip
        found = InPostgresql(**{each.name: getattr(one, each.name) for each in fields(one)}, database=database, dsn=dsn)
        found.config = config
        found.volumes = {**{f"{PACKAGES}/{path.name}": path for path in parts}, folder: Path(folder)}
        yield found
        for run in one.runs:
            run.end()


def every(count: int) -> list[tuple[int, int, int]]:
    """Return the rows of the first records."""
    return [(part, offset, 4 * offset + part) for part in range(4) for offset in range(count // 4)]


@pytest.mark.parametrize("moved", [pytest.param("plugin", marks=pytest.mark.long), "beside"], indirect=True)
def test_killed_and_frozen_drivers_leave_each_record_once(moved: InPostgresql) -> None:
    moved.kafka.produce(moved.topic, RECORDS)
    killed = moved.begin()
    moved.wait_committed(400)
    killed.kill()
    frozen = moved.begin()
    moved.wait_committed(1200)
    frozen.pause()
    moved.kafka.produce(moved.topic, RECORDS, start=RECORDS)
    last = moved.begin()
    moved.wait_committed(2 * RECORDS)
    frozen.resume()
    assert frozen.wait() == ExitCode.FENCED, frozen.log.read_text()[-4000:]
    last.stop()
    assert moved.stored() == every(2 * RECORDS)
    changes = moved.changes()
    assert [row.version for row in changes] == [*range(changes[0].version, changes[-1].version + 1)]
    assert [row.epoch for row in changes] == sorted(row.epoch for row in changes)
    assert changes[-1].is_held_as(moved.row())


@pytest.mark.long
def test_records_that_fail_are_letters_beside_the_fence(moved: InPostgresql) -> None:
    moved.kafka.produce(moved.topic, 20)
    spoil(moved, (1, UNREADABLE), (2, NOWHERE))
    moved.kafka.produce(moved.topic, 20, start=20)
    setting = replace(moved.take_over(), entrypoint="parse:picky_placed", isolate=True, dead_letter_retention=3600.0)
    run = moved.begin(setting)
    moved.wait_committed(42)
    run.signal(signal.SIGTERM)
    assert run.wait() == ExitCode.STOPPED
    assert sorted(n for _, _, n in moved.stored()) == list(range(40))
    letters = DeadLetters(moved.database, moved.config.fence_keyspace, moved.config.pipeline)
    (first,), (second,) = (list(letters.of_partition(moved.topic, part)) for part in (1, 2))
    assert (first.offset, second.offset) == (5, 5)
    assert present(letters.read(first)).value == UNREADABLE
    assert moved.row().dead_letters == 2


def test_a_database_that_refuses_the_account_is_named(moved: InPostgresql) -> None:
    run = moved.begin(user="stranger")
    assert run.wait() == ExitCode.DEPENDENCY_DOWN
    verdict = run.verdict()
    assert verdict.reason == "PostgresqlCredentialsRejected"
    assert "spec.checkpoint.postgresql.credentialsFrom" in verdict.remedy
