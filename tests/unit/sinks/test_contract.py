"""The suite for sinks of other packages: a right sink passes it, and a rule that a sink breaks fails a test of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fencepost.sinks import BatchToken, PurgeToken, Sink, SinkContext
from fencepost.testing.purges import PurgeContract
from fencepost.testing.sinks import SinkContract, Subject
from unit.sinks import sqlite_sink
from unit.sinks.sqlite_sink import SqliteSink, SqliteTask

SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())])
CONTEXT = SinkContext(name="rows", pipeline="test/test/test", epoch=1, patience=5.0)


def batch(*values: str) -> pa.RecordBatch:
    rows = [{"topic": "t", "partition": 0, "offset": 7 + place, "value": value} for place, value in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def read(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT topic, partition, offset, value FROM rows").fetchall()
    return [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    path = tmp_path / "rows.db"
    return Subject(
        open=lambda: SqliteSink({"path": str(path)}, CONTEXT),
        rows=batch("a", "b", "c"),
        changed=batch("x", "y", "z"),
        read=lambda: read(path),
        misfits={
            "town": SCHEMA.append(pa.field("town", pa.string())),
            "offset": SCHEMA.remove(2),
            "partition": SCHEMA.set(1, pa.field("partition", pa.string())),
        },
    )


class TestSqliteSink(SinkContract, PurgeContract):
    """A sink that keeps to the contract."""


class WithTask(Sink):
    """The sink with another task's half."""

    def __init__(self, inner: Sink, task: Any) -> None:
        self._inner, self._task = inner, task

    def check(self, schema: Any) -> None:
        self._inner.check(schema)

    def task(self) -> Any:
        return self._task(self._inner.task())


class Broken(SqliteTask):
    """Base of tasks that break one rule."""

    def __init__(self, inner: SqliteTask) -> None:
        super().__init__(inner.path)


class IgnoresTheToken(Broken):
    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        yield from super().write(batches, batch if batch.is_warm_up else replace(batch, token=1))


class WritesInAWarmUp(Broken):
    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        yield from super().write(batches, replace(batch, token=max(1, batch.token)))


class Doubles(Broken):
    """Keeps every attempt: its rows have no key."""

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS copies AS SELECT * FROM rows")
            database.execute("DROP TABLE rows")
            database.execute("ALTER TABLE copies RENAME TO rows")
            for rows in batches:
                if not batch.is_warm_up:
                    found = [(*row.values(), batch.token) for row in rows.to_pylist()]
                    database.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", found)
                    yield len(found)


class CountsNothing(Broken):
    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        yield from (0 for _ in super().write(batches, batch))


class NotPickled(Broken):
    def __init__(self, inner: SqliteTask) -> None:
        SqliteTask.__init__(self, inner.path)
        object.__setattr__(self, "connection", sqlite3.connect(":memory:"))


def failing(subject: Subject, suite: type = SinkContract) -> set[str]:
    """Run every test of the suite, each on an empty store; return the names of those that fail."""
    found = set()
    path = Path(subject.open().task().path)  # type: ignore[attr-defined]
    for name in (name for name in dir(suite) if name.startswith("test_")):
        path.unlink(missing_ok=True)
        try:
            getattr(suite(), name)(subject)
        except Exception:  # noqa: BLE001 - as pytest counts
            found.add(name.removeprefix("test_"))
    return found


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (IgnoresTheToken, {"what_a_replaced_driver_writes_late_changes_nothing"}),
        (WritesInAWarmUp, {"a_warm_up_stores_nothing"}),
        (Doubles, {"a_repeated_task_leaves_the_same", "a_successor_cuts_the_records_otherwise"}),
        (CountsNothing, {"rows_are_stored_and_counted"}),
        (NotPickled, {"rows_are_stored_and_counted"}),
    ],
)
def test_a_sink_that_breaks_a_rule_fails(subject: Subject, task: Any, expected: set[str]) -> None:
    make = subject.open
    assert expected <= failing(replace(subject, open=lambda: WithTask(make(), task)))


def test_a_sink_that_accepts_every_column_fails(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_sink.SqliteSink, "check", lambda *_: None)
    assert failing(subject) == {"columns_that_do_not_fit_are_refused_by_name"}


class DeletesTooMuch(SqliteSink):
    def purge(self, purge: PurgeToken) -> None:
        super().purge(replace(purge, offsets={key: (0, until) for key, (_, until) in purge.offsets.items()}))


class DeletesTooLittle(SqliteSink):
    def purge(self, purge: PurgeToken) -> None:
        super().purge(
            replace(purge, offsets={key: (start, until - 1) for key, (start, until) in purge.offsets.items()})
        )


class ForgetsItsToken(SqliteSink):
    def purge(self, purge: PurgeToken) -> None:
        super().purge(replace(purge, token=0))


class CountsByDeleting(SqliteSink):
    def count(self, offsets: Mapping[str, tuple[int, int]]) -> int:
        found = super().count(offsets)
        super().purge(PurgeToken(pipeline="", epoch=0, token=0, offsets=offsets))
        return found


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (DeletesTooMuch, {"a_purge_deletes_exactly_the_rows_of_its_records"}),
        (DeletesTooLittle, {"a_purge_deletes_exactly_the_rows_of_its_records"}),
        (ForgetsItsToken, {"what_a_replaced_driver_writes_after_a_purge_changes_nothing"}),
        (CountsByDeleting, {"a_count_deletes_nothing"}),
    ],
)
def test_a_purge_that_breaks_a_rule_fails(subject: Subject, tmp_path: Path, sink: Any, expected: set[str]) -> None:
    options = {"path": str(tmp_path / "rows.db")}
    assert expected <= failing(replace(subject, open=lambda: sink(options, CONTEXT)), PurgeContract)
