"""Tests that every sink passes; a package with a sink of its own runs them with pytest.

Derive a class, and give it a fixture `subject`: the sink over an empty store.

from fencepost.testing.sinks import SinkContract, Subject

class TestPostgresqlSink(SinkContract):
    @pytest.fixture
    def subject(self, database):
        def opened():
            context = SinkContext(name="rows", pipeline="test/test/test", epoch=1, patience=5.0)
            return PostgresqlSink({"dsn": database.dsn, "table": "orders"}, context)

        return Subject(open=opened, rows=ROWS, changed=CHANGED, read=database.orders, misfits={"town": WITH_TOWN})

No Spark session is needed, and the rows go through the task's half as they do in a Python worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost.context import WARM_TOKEN
from fencepost.errors import BadSpec, DriverError
from fencepost.sinks import BatchToken, Sink

if TYPE_CHECKING:
    import pyarrow as pa

TOKEN = 1_700_000_000_000_000
"""µs: the first batch's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A sink over an empty store, and rows for it.

    `rows` has two rows or more, with the columns topic, partition and offset where the sink uses them; they are of one
    partition, in the order of their offsets.  `changed` has rows of the same keys and coordinates with other values, as
    a corrected transform makes them.
    """

    open: Callable[[], Sink]
    """Opens the sink, as each driver does."""
    rows: pa.RecordBatch
    changed: pa.RecordBatch
    read: Callable[[], Iterable[Mapping[str, Any]]]
    """What a reader of the store sees: rows with the columns of the frame, in any order."""
    misfits: Mapping[str, pa.Schema] = field(default_factory=dict)
    """Frames that the sink refuses, by the name of the column that its message has."""


class SinkContract:
    """The tests. They fail with AssertionError."""

    def test_rows_are_stored_and_counted(self, subject: Subject) -> None:
        """What a batch writes is there, and the counts add up to it."""
        sink = subject.open()
        count = write_batch(sink, token_of(subject.rows), [subject.rows])
        expect(subject, subject.rows)
        if count != subject.rows.num_rows:
            raise AssertionError(f"the task counted {count} rows of {subject.rows.num_rows}")

    def test_an_empty_batch_stores_nothing(self, subject: Subject) -> None:
        """Neither a task without Arrow batches nor one with an empty batch stores anything."""
        sink = subject.open()
        write_batch(sink, token_of(subject.rows.slice(0, 0)), [])
        write_batch(sink, token_of(subject.rows.slice(0, 0), after=1), [subject.rows.slice(0, 0)])
        expect(subject)

    def test_a_warm_up_stores_nothing(self, subject: Subject) -> None:
        """A global aggregate makes rows of an empty batch; at the token of a warm-up they are not stored."""
        sink = subject.open()
        write_task(sink, token_of(subject.rows.slice(0, 0), token=WARM_TOKEN), [subject.rows])
        expect(subject)

    def test_a_repeated_task_leaves_the_same(self, subject: Subject) -> None:
        """Spark repeats a task, also one that has written everything."""
        sink, token = subject.open(), token_of(subject.rows)
        sink.begin(token)
        for _ in range(2):
            write_task(sink, token, [subject.rows])
        sink.finish(token)
        expect(subject, subject.rows)

    def test_a_successor_repeats_a_batch_that_was_not_finished(self, subject: Subject) -> None:
        """The first driver ends before `finish`, having written the first half."""
        first, successor = subject.open(), subject.open()
        first.begin(token_of(subject.rows))
        write_task(first, token_of(subject.rows), [half_of(subject.rows, 0)])
        write_batch(successor, token_of(subject.rows, after=1), [subject.rows])
        expect(subject, subject.rows)

    def test_a_successor_repeats_a_batch_that_was_finished(self, subject: Subject) -> None:
        """The first driver ends between `finish` and the fence's commit."""
        first, successor = subject.open(), subject.open()
        write_batch(first, token_of(subject.rows), [subject.rows])
        write_batch(successor, token_of(subject.rows, after=1), [subject.rows])
        expect(subject, subject.rows)

    def test_a_successor_cuts_the_records_otherwise(self, subject: Subject) -> None:
        """What was one batch of one task becomes two batches, the first of which ends within it."""
        first, successor = subject.open(), subject.open()
        write_batch(first, token_of(subject.rows), [subject.rows])
        committed = 0
        for number, half in enumerate((half_of(subject.rows, 0), half_of(subject.rows, 1)), start=1):
            token = token_of(half, after=number, committed=committed)
            write_batch(successor, token, [half])
            committed = token.token
        expect(subject, subject.rows)

    def test_a_smaller_batch_is_repeated_as_part_of_a_larger_one(self, subject: Subject) -> None:
        """The first driver wrote a part of what its successor writes at once."""
        first, successor = subject.open(), subject.open()
        half = half_of(subject.rows, 0)
        write_batch(first, token_of(half), [half])
        write_batch(successor, token_of(subject.rows, after=1), [subject.rows])
        expect(subject, subject.rows)

    def test_what_a_replaced_driver_writes_late_changes_nothing(self, subject: Subject) -> None:
        """It began its batch before it was replaced. Its sink may refuse to write, by a DriverError."""
        replaced, successor = subject.open(), subject.open()
        late = token_of(subject.rows)
        replaced.begin(late)
        write_batch(successor, token_of(subject.changed, after=1), [subject.changed])
        with suppress(DriverError):
            write_task(replaced, late, [subject.rows])
            replaced.finish(late)
        expect(subject, subject.changed)

    def test_a_replaced_driver_that_begins_late_changes_nothing(self, subject: Subject) -> None:
        """It was frozen before its batch began."""
        replaced, successor = subject.open(), subject.open()
        write_batch(successor, token_of(subject.changed, after=1), [subject.changed])
        with suppress(DriverError):
            write_batch(replaced, token_of(subject.rows), [subject.rows])
        expect(subject, subject.changed)

    def test_columns_that_fit_are_accepted(self, subject: Subject) -> None:
        """The frame of the other tests passes."""
        subject.open().check(_spark(subject.rows.schema))

    def test_columns_that_do_not_fit_are_refused_by_name(self, subject: Subject) -> None:
        """The run ends before its first batch, and the author reads which column it was."""
        sink = subject.open()
        for name, schema in subject.misfits.items():
            try:
                sink.check(_spark(schema))
            except BadSpec as error:
                if name not in error.message:
                    raise AssertionError(f"the message does not name the column {name!r}: {error.message}") from error
            else:
                raise AssertionError(f"a frame with the misfit {name!r} was accepted")


def token_of(rows: pa.RecordBatch, *, after: int = 0, token: int | None = None, committed: int = 0) -> BatchToken:
    """Return the token of a batch of these rows, `after` takeovers after the first."""
    offsets: dict[str, tuple[int, int]] = {}
    if rows.num_rows and {"topic", "partition", "offset"} <= set(rows.schema.names):
        topics, partitions, places = (rows.column(name).to_pylist() for name in ("topic", "partition", "offset"))
        offsets = {f"{topics[0]}/{partitions[0]}": (min(places), max(places) + 1)}
    return BatchToken(
        pipeline="test/test/test",
        epoch=1 + after,
        version=3 + 3 * after,
        token=TOKEN + 3 * after if token is None else token,
        offsets=offsets,
        committed=committed,
    )


def half_of(rows: pa.RecordBatch, index: int) -> pa.RecordBatch:
    """Return the first half of the rows, or the second."""
    middle = rows.num_rows // 2
    return rows.slice(middle) if index else rows.slice(0, middle)


def write_batch(sink: Sink, token: BatchToken, batches: Sequence[pa.RecordBatch]) -> int:
    """Write a batch of one task as the driver does; return the rows that it counts."""
    sink.begin(token)
    count = write_task(sink, token, batches)
    sink.finish(token)
    return count


def write_task(sink: Sink, token: BatchToken, batches: Sequence[pa.RecordBatch]) -> int:
    """Write in a copy of the task's half, as a Python worker has it; return the rows that it counts."""
    from pyspark import cloudpickle  # noqa: PLC0415 - an import of a second

    pickled = cloudpickle.dumps((sink.task(), token))  # type: ignore[no-untyped-call]
    task, token = cloudpickle.loads(pickled)
    return sum(task.write(iter(batches), token))


def _spark(schema: pa.Schema) -> Any:  # noqa: ANN401 - Spark's own signature is untyped
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    return from_arrow_schema(schema)


def expect(subject: Subject, *expected: pa.RecordBatch) -> None:
    """Raise AssertionError when a reader sees other rows."""
    wanted = sorted((_comparable(row) for batch in expected for row in batch.to_pylist()), key=repr)
    found = sorted((_comparable(row) for row in subject.read()), key=repr)
    if wanted != found:
        raise AssertionError(f"a reader should see\n  {wanted}\nand sees\n  {found}")


def _comparable(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(row.items()))
