"""What a keyspace of a Cassandra-compatible store promises beside the fence's rows: timestamps, expiry, pages, history.

Sinks, dead letters, snapshots and the state of stateful pipelines rest on these.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement

from fencepost.fence.cassandra.errors import translated
from fencepost.fence.cassandra.history import read_changes
from fencepost.fence.cassandra.schema import STATEMENT_LIMIT, await_agreement
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.fence.clock import wall_clock
from fencepost.fence.history import Change
from fencepost.fence.promises.promise import Promise, expect
from fencepost.fence.promises.table import history_is_kept

LARGE: Final = 1024 * 1024
"""Bytes of the largest value that Fencepost writes: a chunk of a dead letter."""
ROWS: Final = 500
PAGE: Final = 40
SLICES: Final = 8
EXPIRY: Final = 2
"""Seconds, of a row that expires."""
EXPIRED_WITHIN: Final = 30.0
_RING: Final = (-(2**63), 2**63 - 1)
_SECOND: Final = 1_000_000
"""In the unit of write timestamps."""
_DAY: Final = 24 * 3600 * _SECOND


@dataclass(frozen=True, slots=True)
class Scratch:
    """A keyspace with the fence's tables, and one table of rows (part, number, content) made by `prepare`."""

    session: Session
    keyspace: str

    def prepare(self) -> None:
        """Create the table of rows. Raises FenceError."""
        with translated(f"creating {self.rows}"):
            self.session.execute(
                f"CREATE TABLE IF NOT EXISTS {self.rows}"
                " (part text, number int, content blob, PRIMARY KEY (part, number))",
                timeout=STATEMENT_LIMIT,
            )
            await_agreement(self.session)

    @property
    def rows(self) -> str:
        """The table's name, as in CQL."""
        return f'"{self.keyspace}".promised_rows'

    @property
    def fence(self) -> CassandraFenceTable:
        """The fence table of the keyspace."""
        return CassandraFenceTable.over(self.session, self.keyspace)

    def ask(self, statement: str, *values: object) -> Any:  # noqa: ANN401 - the library is untyped
        """Run a statement. Raises FenceError."""
        with translated(statement.split(maxsplit=1)[0].lower()):
            return self.session.execute(statement, values)

    def write(self, part: str, content: bytes, *, using: str, number: int = 1) -> None:
        """Write one row, with CQL's options after USING."""
        insert = f"INSERT INTO {self.rows} (part, number, content) VALUES (%s, %s, %s) USING {using}"
        self.ask(insert, part, number, content)

    def content(self, part: str, number: int = 1) -> bytes | None:
        """Return what a row holds, None without it."""
        found = self.ask(f"SELECT content FROM {self.rows} WHERE part = %s AND number = %s", part, number).one()
        return None if found is None else bytes(found.content)

    def fill(self, keys: list[tuple[str, int]]) -> None:
        """Write a row for each (part, number)."""
        with translated("insert"):
            insert = self.session.prepare(f"INSERT INTO {self.rows} (part, number, content) VALUES (?, ?, 0x00)")
            execute_concurrent_with_args(self.session, insert, keys, concurrency=16)


def _late_write_loses(scratch: Scratch, part: str) -> None:
    now = wall_clock()
    scratch.write(part, b"new", using=f"TIMESTAMP {now}")
    scratch.write(part, b"old", using=f"TIMESTAMP {now - _SECOND}")
    expect((found := scratch.content(part)) == b"new", "the content of the later timestamp", found)


def _deletion_has_its_moment(scratch: Scratch, part: str) -> None:
    now = wall_clock()
    scratch.write(part, b"before", using=f"TIMESTAMP {now - 2 * _SECOND}")
    delete = f"DELETE FROM {scratch.rows} USING TIMESTAMP {now - _SECOND} WHERE part = %s AND number = %s"
    scratch.ask(delete, part, 1)
    scratch.write(part, b"late", using=f"TIMESTAMP {now - 2 * _SECOND}")
    expect((found := scratch.content(part)) is None, "no row: each write is older than the deletion", found)
    scratch.write(part, b"after", using=f"TIMESTAMP {now}")
    expect((found := scratch.content(part)) == b"after", "the row that is newer than the deletion", found)


def _deletion_ahead_hides(scratch: Scratch, part: str) -> None:
    now = wall_clock()
    scratch.write(part, b"chunk", using=f"TIMESTAMP {now}")
    scratch.ask(f"DELETE FROM {scratch.rows} USING TIMESTAMP {now + _DAY} WHERE part = %s", part)
    scratch.write(part, b"late", using=f"TIMESTAMP {now + _SECOND}")
    expect((found := scratch.content(part)) is None, "no row until a day has passed", found)


def _row_expires(scratch: Scratch, part: str) -> None:
    scratch.write(part, b"kept", using="TTL 3600", number=1)
    scratch.write(part, b"expires", using=f"TTL {EXPIRY}", number=2)
    end = time.monotonic() + EXPIRED_WITHIN
    while scratch.content(part, 2) is not None:
        expect(time.monotonic() < end, f"that a row with TTL {EXPIRY} expires", f"it after {EXPIRED_WITHIN:.0f} s")
        time.sleep(0.5)
    expect((found := scratch.content(part)) == b"kept", "the row with a longer TTL", found)


def _pages_are_whole(scratch: Scratch, part: str) -> str:
    scratch.fill([(part, number) for number in range(ROWS)])
    select = SimpleStatement(f"SELECT number FROM {scratch.rows} WHERE part = %s", fetch_size=PAGE)
    with translated("select"):
        found = [row.number for row in scratch.session.execute(select, (part,))]
    expect(found == [*range(ROWS)], f"{ROWS} rows in their order", f"{len(found)} rows, {len(set(found))} different")
    return f"{ROWS} rows by {PAGE}"


def _slices_are_whole(scratch: Scratch, part: str) -> str:
    keys = [f"{part}/{number}" for number in range(100)]
    scratch.fill([(key, 0) for key in keys])
    lowest, highest = _RING
    step = (highest - lowest) // SLICES
    bounds = [lowest + step * number for number in range(SLICES)] + [highest]
    found: list[str] = []
    for low, high in pairwise(bounds):
        rows = scratch.ask(f"SELECT part FROM {scratch.rows} WHERE token(part) > %s AND token(part) <= %s", low, high)
        found += [row.part for row in rows if row.part.startswith(f"{part}/")]
    expect(sorted(found) == sorted(keys), f"each of {len(keys)} partitions once", f"{len(found)} of them")
    return f"{len(keys)} partitions in {SLICES} slices"


def _large_value(scratch: Scratch, part: str) -> str:
    content = bytes(range(256)) * (LARGE // 256)
    scratch.write(part, content, using="TTL 3600")
    expect(scratch.content(part) == content, "the value as it was written", "another one")
    return f"{LARGE // 1024:,} KiB"


def _history_is_kept(scratch: Scratch, pipeline: str) -> None:
    table = scratch.fence

    def read() -> Sequence[Change]:
        table.finish_history()
        with translated("reading the history"):
            return read_changes(scratch.session, scratch.keyspace, pipeline)

    history_is_kept(table, pipeline, read)


PROMISES: Final[tuple[Promise[Scratch], ...]] = (
    Promise(name="a write with an earlier timestamp loses", needed_by="sinks: late writes", check=_late_write_loses),
    Promise(
        name="a deletion removes what is older than it",
        needed_by="sinks, PipelineRewind",
        check=_deletion_has_its_moment,
    ),
    Promise(
        name="a deletion may lie a day ahead",
        needed_by="stateful pipelines",
        check=_deletion_ahead_hides,
    ),
    Promise(name="a row with a TTL expires", needed_by="history, dead letters, sinks", check=_row_expires),
    Promise(name="pages hold each row once", needed_by="purges, fencepost fence verify", check=_pages_are_whole),
    Promise(
        name="slices of the token ring hold each row once",
        needed_by="fencepost fence verify",
        check=_slices_are_whole,
    ),
    Promise(name="a value of 1 MiB comes back whole", needed_by="dead letters, state", check=_large_value),
    Promise(name="the history is kept, and deleted", needed_by="fencepost fence history", check=_history_is_kept),
)
