"""What `fencepost run --local` prints: batches, the first rows of each table, and the log of a failure."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fencepost.contract import ExitCode, SqliteSink
from fencepost.local.request import Committed, Event, Request
from fencepost_cli.commands.output import Column, note, print_line, print_table
from fencepost_cli.local.database_file import OWN, quoted

SHOWN: Final = 5
"""Rows of a table that are shown when it gets its first ones."""
LOG_LINES: Final = 20
"""Lines of Spark's log that are shown with a failure."""


@dataclass
class Progress:
    """Prints batches, and the first rows of each table."""

    request: Request
    _records: int = 0
    _batches: int = 0
    _shown: set[str] = field(default_factory=set)

    def show(self, event: Event) -> None:
        """Print an event."""
        if event.loaded:
            print_line(f"{event.loaded:,} records are loaded")
        if event.committed is not None:
            self._committed(event.committed)

    def summarize(self, *, is_kept: bool) -> None:
        """Print what the tables have."""
        print_line(f"{self._records:,} records in {self._batches:,} {'batch' if self._batches == 1 else 'batches'}")
        for sink in self._tables():
            with suppress(sqlite3.OperationalError):  # it ended before the table was made
                count, _, _ = self._read(sink, 0)
                print_line(f"table {sink.table}: {count:,} rows")
        if is_kept:
            print_line(f"rows and progress are in {self.request.database}")

    def _committed(self, batch: Committed) -> None:
        self._batches += 1
        self._records += batch.records
        rows = ", ".join(f"{count:,} rows to {sink}" for sink, count in batch.rows.items())
        seconds = batch.milliseconds / 1000
        print_line(f"batch {self._batches:,}: {batch.records:,} records, {rows or 'no rows'}, {seconds:.1f} s")
        for sink in self._tables():
            if batch.rows.get(sink.name) and sink.name not in self._shown:
                self._shown.add(sink.name)
                count, columns, found = self._read(sink, SHOWN)
                print_line()
                print_line(f"{sink.table} has {count:,} rows; the first ones:")
                print_table([Column(name) for name in columns], found)
                print_line()

    def _tables(self) -> list[SqliteSink]:
        return [sink for sink in self.request.config.sinks if isinstance(sink, SqliteSink)]

    def _read(self, sink: SqliteSink, limit: int) -> tuple[int, list[str], list[tuple[object, ...]]]:
        """Return how many rows a table has, its columns, and some rows."""
        table = quoted(sink.table)
        with closing(sqlite3.connect(self.request.database)) as database:
            (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - quoted
            found = database.execute(f"SELECT * FROM {table} LIMIT ?", (limit,))  # noqa: S608 - quoted
            names = [name for name, *_ in found.description]
            places = [place for place, name in enumerate(names) if not name.startswith(OWN)]
            return count, [names[place] for place in places], [tuple(row[place] for place in places) for row in found]


def show_log(request: Request, code: int) -> None:
    """Print the end of Spark's log, for a failure that may be Spark's."""
    path = Path(request.log)
    if code != ExitCode.BAD_SPEC and path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]:
            note(line)
