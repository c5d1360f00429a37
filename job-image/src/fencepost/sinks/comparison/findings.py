"""What was found of each key, in two steps: a file for each task, and one SQLite file for the trial.

A key may be produced several times: the row that counts is that of the last batch, because it is what the table would
have in the end.  Within one batch an equal row counts: where a batch writes a key twice, what the table has depends
on where batches are cut.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final

import pyarrow as pa

from fencepost.contract.trial import SAMPLES

SCHEMA: Final = pa.schema([("key", pa.binary()), ("outcome", pa.int8()), ("sample", pa.string())])


class Outcome(IntEnum):
    """What was found of a row that the new code produces."""

    EQUAL = 0
    CHANGED = 1
    ADDED = 2
    OVERWRITTEN = 3
    """The table has other cells, which the pipeline has written since the trial began."""
    UNDECIDED = 4
    """The table's row may have expired, or cannot say when it was written."""
    RANGE_DELETED = 5
    """Not of a row: the new code deletes all keys that begin with this one, and none of them is compared."""


@dataclass(slots=True)
class TaskFindings:
    """What one task of a batch finds; `write` appends a part of it to the task's file."""

    folder: Path
    sink: str
    keys: list[bytes] = field(default_factory=list)
    outcomes: list[int] = field(default_factory=list)
    samples: list[str | None] = field(default_factory=list)
    _shown: dict[Outcome, int] = field(default_factory=dict)

    def add(self, key: bytes, outcome: Outcome) -> bool:
        """Add a row; return whether `show` is to be called for it: of a few rows of each kind."""
        self.keys.append(key)
        self.outcomes.append(outcome)
        self.samples.append(None)
        shown = self._shown.get(outcome, 0)
        return outcome in {Outcome.CHANGED, Outcome.ADDED} and shown < SAMPLES

    def show(self, sample: str) -> None:
        """Keep a sample of the row that was added last."""
        self.samples[-1] = sample
        outcome = Outcome(self.outcomes[-1])
        self._shown[outcome] = self._shown.get(outcome, 0) + 1

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be written."""
        return not self.keys

    def write(self) -> None:
        """Store what was added since the last call in a file of its own; a file under its last name is complete."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.sink}.{uuid.uuid4().hex}"
        table = pa.table([self.keys, self.outcomes, self.samples], schema=SCHEMA)
        with pa.OSFile(str(self.folder / f"{name}.part"), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
            writer.write_table(table)
        os.replace(self.folder / f"{name}.part", self.folder / f"{name}.arrow")  # noqa: PTH105
        self.keys, self.outcomes, self.samples = [], [], []


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a sink by outcome."""

    counts: dict[Outcome, int]

    def of(self, outcome: Outcome) -> int:
        """Return how many rows have an outcome."""
        return self.counts.get(outcome, 0)


class Findings:
    """All keys of a trial, in one SQLite file of the pod's scratch volume. Of one thread."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32768;"
            "CREATE TABLE rows (sink TEXT, key BLOB, batch INTEGER, outcome INTEGER, sample TEXT,"
            " PRIMARY KEY (sink, key)) WITHOUT ROWID"
        )

    def close(self) -> None:
        """End the use of the file."""
        self._connection.close()

    def take(self, folder: Path, batch: int) -> None:
        """Move what the tasks of a batch have found here; batches have growing numbers."""
        with self._transaction():
            for path in sorted(folder.glob("*.arrow")) if folder.is_dir() else ():
                with pa.memory_map(str(path)) as source:
                    table = pa.ipc.open_file(source).read_all()
                self._add(path.name.partition(".")[0], batch, *(column.to_pylist() for column in table.columns))
                with suppress(OSError):
                    path.unlink()

    def _add(
        self, sink: str, batch: int, keys: Sequence[bytes], outcomes: Sequence[int], samples: Sequence[str | None]
    ) -> None:
        rows = [
            (sink, key, batch, outcome, sample)
            for key, outcome, sample in zip(keys, outcomes, samples, strict=True)
            if outcome != Outcome.RANGE_DELETED
        ]
        self._connection.executemany(
            "INSERT INTO rows VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET batch = excluded.batch,"
            " outcome = excluded.outcome, sample = excluded.sample"
            " WHERE excluded.batch > batch OR excluded.outcome = 0",  # EQUAL
            rows,
        )
        for key, outcome in zip(keys, outcomes, strict=True):
            if outcome == Outcome.RANGE_DELETED:
                self._forget(sink, key, batch)

    def _forget(self, sink: str, prefix: bytes, batch: int) -> None:
        """Call the keys that begin with these columns undecided: the new code deletes them."""
        self._connection.execute(
            "UPDATE rows SET outcome = ?, sample = NULL, batch = ?"
            " WHERE sink = ? AND key >= ? AND substr(key, 1, ?) = ?",
            (int(Outcome.UNDECIDED), batch, sink, prefix, len(prefix), prefix),
        )

    def of(self, sink: str) -> Found:
        """Return the counts of a sink."""
        rows = self._connection.execute("SELECT outcome, count(*) FROM rows WHERE sink = ? GROUP BY outcome", (sink,))
        return Found({Outcome(outcome): count for outcome, count in rows})

    def samples(self, sink: str, outcome: Outcome) -> list[str]:
        """Return samples of rows of one kind, in the order of their keys."""
        rows = self._connection.execute(
            "SELECT sample FROM rows WHERE sink = ? AND outcome = ? AND sample IS NOT NULL ORDER BY key LIMIT ?",
            (sink, int(outcome), SAMPLES),
        )
        return [sample for (sample,) in rows]

    def has(self, sink: str, key: bytes) -> bool:
        """Return whether the new code produced a key."""
        found = self._connection.execute("SELECT 1 FROM rows WHERE sink = ? AND key = ?", (sink, key)).fetchone()
        return found is not None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
