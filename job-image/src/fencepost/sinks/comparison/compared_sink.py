"""A Cassandra sink that writes nothing: it reads the row of each key that the new code produces, and compares.

A cell is compared as the writer would send it, with the cell that the table has.  A row that differs, and that was
written since the trial began, is the pipeline's own later one, and is not compared.  What the new code deletes is to be
absent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from fencepost.contract.trial import LONGEST_SAMPLE
from fencepost.fence.patience import Patience
from fencepost.sinks.cassandra.encoding.cells import Cells
from fencepost.sinks.cassandra.encoding.columns import encoder
from fencepost.sinks.cassandra.encoding.requests import Change, steps
from fencepost.sinks.cassandra.encoding.rows import joined_cells
from fencepost.sinks.cassandra.queries import Queries
from fencepost.sinks.cassandra.row_changes import changes
from fencepost.sinks.cassandra.writer import Target, connected
from fencepost.sinks.comparison.cells import ColumnType
from fencepost.sinks.comparison.findings import Outcome, TaskFindings
from fencepost.sinks.comparison.pace import Pace
from fencepost.sinks.comparison.stored_rows import StoredRow, StoredRows, TableShape, raw
from fencepost.sinks.interface import BatchToken, Sink

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from pyspark.sql.types import StructType

    from fencepost.sinks.cassandra.cassandra_sink import TableSink

ROWS_AT_ONCE: Final = 5_000
"""Rows of an Arrow batch that are read and compared together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is compared in one table, the same for the whole trial."""

    sink: str
    folder: str
    """Where tasks leave what they find, a folder for each batch."""
    columns: Mapping[str, bool]
    """The columns that may be compared, and whether the table stores each as one cell, with one write time."""
    written_after: int
    written_until: int
    """Clock of the fence row at the start and at the end, in µs."""
    rows_per_second: float
    """Of one task."""
    default_ttl: int = 0
    """Seconds for which the table keeps a row without a TTL of its own; 0 without an end."""
    show_values: bool = False
    is_written_once: bool = False
    """Whether one record alone writes a key, so that no later one overwrites it."""


@dataclass(frozen=True, slots=True)
class ComparingTask:
    """The task's half."""

    target: Target
    comparison: Comparison

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Compare all rows; yield how many were. Raises PoisonRecord for a row that no table could take, as the writer.

        In a warm-up it connects, and in a rehearsal it encodes.
        """
        table = _ComparedTable(self.target, self.comparison)
        findings = TaskFindings(Path(self.comparison.folder) / str(batch.token), self.comparison.sink)
        for rows in batches:
            if batch.is_warm_up and not batch.is_rehearsal:
                continue
            for part in _parts(rows):
                table.compare(part, findings, is_rehearsal=batch.is_rehearsal)
                if not findings.is_empty:
                    findings.write()
                yield part.num_rows


class ComparedSink(Sink):
    """The driver's half: `check` is that of the sink that writes, and creates nothing."""

    def __init__(self, table: TableSink, comparison: Comparison) -> None:
        self._table = table
        self._comparison = comparison
        self._written: frozenset[str] = frozenset()

    def check(self, schema: StructType) -> None:
        """Raise BadSpec naming every column that does not fit the table."""
        self._table.check(schema)
        self._written = frozenset(schema.names)

    def unwritten(self, columns: Iterable[str]) -> str:
        """Return which of the table's columns the new code leaves alone, in words; '' for none."""
        left = sorted(set(columns) - self._written)
        return f"the new code does not write {', '.join(left)}" if left else ""

    def task(self) -> ComparingTask:
        """Return the task's half."""
        return ComparingTask(self._table.task().target, self._comparison)


@dataclass(frozen=True, slots=True)
class DiscardingTask:
    """Reads the rows, so that the transform runs, and leaves them."""

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:  # noqa: ARG002 - the interface
        """Yield how many rows there were."""
        for rows in batches:
            yield rows.num_rows


class DiscardingSink(Sink):
    """A sink that is not compared: nothing is opened, and nothing written."""

    def check(self, schema: StructType) -> None:
        """Accept any columns."""

    def task(self) -> DiscardingTask:
        """Return the task's half."""
        return DiscardingTask()


_sessions: dict[tuple[Any, ...], Session] = {}


def _session(target: Target) -> Session:
    """Return this worker's session for reading; it outlives the task."""
    key = (target.cassandra, target.credentials, target.tls, target.consistency)
    if key not in _sessions:
        _sessions[key] = raw(connected(target))
    return _sessions[key]


class _ComparedTable:
    """Compares the rows of one task."""

    def __init__(self, target: Target, comparison: Comparison) -> None:
        self._target = target
        self._comparison = comparison
        self._pace = Pace(comparison.rows_per_second)
        self._queries = Queries(_session(target), comparison.sink, target.keyspace, Patience(target.patience))
        self._readers: dict[tuple[tuple[str, ...], bool], _Reader] = {}

    def compare(self, rows: pa.RecordBatch, findings: TaskFindings, *, is_rehearsal: bool) -> None:
        """Read the rows of these keys, and add what is found. Raises DriverError."""
        target = self._target
        parts = changes(rows, target.rules, primary_key=target.primary_key, partition_key=target.partition_key)
        for shape, part in parts:
            if not part.num_rows:
                continue
            if shape.is_delete and len(shape.columns) < len(target.primary_key):
                self._delete_range(part, shape.columns, findings)
                continue
            names = shape.columns[:-1] if shape.has_ttl else shape.columns
            reader = self._reader(names, is_delete=shape.is_delete)
            lifetimes = part.column(len(names)).to_pylist() if shape.has_ttl else None
            reader.compare(
                part.select(list(names)), findings,
                lifetimes=lifetimes, is_delete=shape.is_delete, is_rehearsal=is_rehearsal,
            )  # fmt: skip

    def _delete_range(self, rows: pa.RecordBatch, columns: tuple[str, ...], findings: TaskFindings) -> None:
        keys = self._reader(self._target.primary_key, is_delete=True).change.encoded(rows, columns)
        for key in joined_cells(keys).to_pylist():
            findings.add(key, Outcome.RANGE_DELETED)

    def _reader(self, names: tuple[str, ...], *, is_delete: bool) -> _Reader:
        if (names, is_delete) not in self._readers:
            rows = partial(StoredRows, self._queries, pace=self._pace)
            self._readers[names, is_delete] = _reader(self._target, self._comparison, rows, names, is_delete=is_delete)
        return self._readers[names, is_delete]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Compares rows that have one set of columns."""

    comparison: Comparison
    rows: StoredRows
    change: Change
    """Encodes the rows as the writer does."""
    types: dict[str, ColumnType]
    ttl: int | None

    def compare(
        self,
        produced: pa.RecordBatch,
        findings: TaskFindings,
        *,
        lifetimes: Sequence[int | None] | None,
        is_delete: bool,
        is_rehearsal: bool,
    ) -> None:
        """Add what is found of each row. Raises DriverError."""
        shape = self.rows.shape
        cells = {name: self.change.encoded(produced, [name])[0] for name in (*shape.primary_key, *shape.columns)}
        if is_rehearsal:
            return
        keys = joined_cells([cells[name] for name in shape.primary_key]).to_pylist()
        found = self.rows.read(_requested(shape, cells))
        columns = [cells[name].to_pylist() for name in shape.columns]
        for index, key in enumerate(keys):
            stored, row = found.get(key), [column[index] for column in columns]
            differing = self._differing(stored, row) if stored is not None and not is_delete else ()
            lifetime = lifetimes[index] if lifetimes is not None else None
            outcome = self._outcome(stored, bool(differing), is_delete=is_delete, lifetime=lifetime)
            if findings.add(key, outcome):
                findings.show(self._sample(produced, index, stored, row, differing, is_delete=is_delete))

    def _differing(self, stored: StoredRow, row: Sequence[bytes | None]) -> tuple[int, ...]:
        names = self.rows.shape.columns
        pairs = enumerate(zip(names, stored.cells, row, strict=True))
        return tuple(place for place, (name, was, now) in pairs if not self.types[name].are_same(was, now))

    def _outcome(
        self,
        stored: StoredRow | None,
        differs: bool,
        *,
        is_delete: bool,
        lifetime: int | None,
    ) -> Outcome:
        if stored is None:
            return Outcome.EQUAL if is_delete else self._absent(lifetime)
        if not differs and not is_delete:
            return Outcome.EQUAL
        if stored.written is None:
            return Outcome.CHANGED if self.comparison.is_written_once else Outcome.UNDECIDED
        return Outcome.OVERWRITTEN if stored.written > self.comparison.written_until else Outcome.CHANGED

    def _absent(self, lifetime: int | None) -> Outcome:
        """Return whether a row that the table does not have may have been there, and have expired."""
        seconds = next((found for found in (lifetime, self.ttl, self.comparison.default_ttl) if found is not None), 0)
        has_expired = seconds and self.comparison.written_after / 1e6 + seconds < time.time()
        return Outcome.UNDECIDED if has_expired else Outcome.ADDED

    def _sample(
        self,
        produced: pa.RecordBatch,
        index: int,
        stored: StoredRow | None,
        row: Sequence[bytes | None],
        differing: Sequence[int],
        *,
        is_delete: bool,
    ) -> str:
        """Return the key and the columns, parted by a line break."""
        shape = self.rows.shape
        key = self.change.key_of(produced, index)[:LONGEST_SAMPLE]
        if is_delete:
            return f"{key}\nthe new code deletes the row"
        if stored is None:
            return f"{key}\n"
        parts = []
        for place in differing:
            name = shape.columns[place]
            kind = self.types[name]
            was, now = (_short(kind.shown(value)) for value in (stored.cells[place], row[place]))
            parts.append(f"{name}: {was} → {now}" if self.comparison.show_values else name)
        return f"{key}\n{', '.join(parts)[:LONGEST_SAMPLE]}"


def _reader(
    target: Target,
    comparison: Comparison,
    open_rows: Callable[[TableShape], StoredRows],
    names: tuple[str, ...],
    *,
    is_delete: bool,
) -> _Reader:
    """Prepare the statement that reads the columns of a frame; of rows that are deleted, when any was written."""
    columns = () if is_delete else tuple(name for name in names if name in comparison.columns)
    rows = open_rows(
        TableShape(
            keyspace=target.keyspace,
            table=target.table,
            partition_key=target.partition_key,
            clustering_key=target.primary_key[len(target.partition_key) :],
            columns=columns,
            timed=tuple(name for name in (comparison.columns if is_delete else columns) if comparison.columns[name]),
        )
    )
    prepared = rows.queries.prepare(rows.shape.by_key())
    version = rows.queries.session.cluster.protocol_version
    kinds = {name: kind for _, _, name, kind in prepared.result_metadata}
    read = (*rows.shape.primary_key, *columns)
    change = Change(
        prepared=prepared,
        keyspace=target.keyspace,
        columns=tuple(names),
        key=tuple(names.index(name) for name in target.partition_key),
        primary=target.primary_key,
        encoders=tuple(encoder(kinds[name], version) if name in read else _not_encoded for name in names),
        table=f"{target.keyspace}.{target.table}",
        patience=target.patience,
    )
    types = {name: ColumnType(kinds[name], version, comparison.columns[name]) for name in columns}
    return _Reader(comparison, rows, change, types, target.rules.ttl)


def _not_encoded(column: pa.Array) -> Cells:
    raise RuntimeError(f"a column of {column.type} is not compared")


def _requested(shape: TableShape, cells: dict[str, Cells]) -> list[tuple[tuple[bytes, ...], bytes]]:
    partitions = zip(*(cells[name].to_pylist() for name in shape.partition_key), strict=True)
    if not shape.clustering_key:
        return [(partition, b"") for partition in partitions]
    clustering = joined_cells([cells[name] for name in shape.clustering_key]).to_pylist()
    return list(zip(partitions, clustering, strict=True))


def _parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for part in steps(rows):
        for start in range(0, part.num_rows, ROWS_AT_ONCE):
            yield part.slice(start, ROWS_AT_ONCE)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_SHOWN: Final = 60
"""Characters of a value in a sample."""
