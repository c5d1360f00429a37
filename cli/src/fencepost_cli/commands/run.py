"""`fencepost run --local`: a manifest's pipeline on this machine, without a cluster."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.contract import ExitCode as RunExit
from fencepost.contract import SqliteSink, Verdict
from fencepost.local.request import Committed, Event, Request
from fencepost_cli.commands.options import ports_of
from fencepost_cli.commands.output import Column, note, print_error, print_line, print_table
from fencepost_cli.errors import CliError
from fencepost_cli.local.request import Choices, read_pipeline, request, watched
from fencepost_cli.ports import Ports

SHOWN: Final = 5
"""Rows of a table that are shown when it gets its first ones."""
WATCH: Final = 0.5
"""Seconds between two looks at the watched files."""
OWN: Final = "fencepost_"
"""How the names of our own columns begin."""
LOG_LINES: Final = 20
"""Lines of Spark's log that are shown with a failure."""


def run(
    context: typer.Context,
    *,
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="A YAML file with a StreamingPipeline.")],
    local: Annotated[
        bool, typer.Option("--local", help="On this machine. On a cluster, `kubectl apply` runs it.")
    ] = False,
    records: Annotated[
        list[Path] | None,
        typer.Option(
            "--records",
            metavar="FILE",
            help="A file of records; may be repeated. [default: TOPIC.jsonl beside MANIFEST]",
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Of records that name none.")] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="HOST:PORT", help="Read this Kafka, in place of files.")
    ] = None,
    code: Annotated[
        Path | None, typer.Option("--code", metavar="FOLDER", help="The author's modules. [default: MANIFEST's folder]")
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="FILE", help="Keep rows and progress in this SQLite file, and continue there."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the file of --into first.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Start over when the manifest, a module or a file of records is saved.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="With --kafka: end when everything is read. A run on files always does.")
    ] = False,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="SINK=COLUMN,…", help="The primary key of a sink's table; may be repeated."),
    ] = None,
    real_sink: Annotated[
        list[str] | None,
        typer.Option("--real-sink", metavar="SINK", help="Write to this sink as it is declared; may be repeated."),
    ] = None,
    cores: Annotated[int, typer.Option("--cores", min=1, max=64, help="Tasks at the same time.")] = 2,
) -> None:
    """Run a pipeline on this machine; its rows go to tables of a SQLite file."""
    if not local:
        raise CliError("a pipeline runs on a cluster once it is applied", remedy="add --local to run it here")
    ports = ports_of(context)
    # A JVM that is killed may still write.
    with tempfile.TemporaryDirectory(prefix="fencepost-local-", ignore_cleanup_errors=True) as folder:
        choices = Choices(
            database=into or Path(folder) / "rows.sqlite",
            scratch=Path(folder),
            code=code,
            records=records or (),
            topic=topic,
            kafka=kafka,
            keys=_keys(key or ()),
            real=real_sink or (),
            cores=cores,
            once=once,
        )
        while True:
            if fresh or watch:
                _delete(choices.database)
            again = _run(ports, manifest, choices, is_kept=into is not None, watch=watch)
            if not again:
                return


def _run(ports: Ports, path: Path, choices: Choices, *, is_kept: bool, watch: bool) -> bool:
    """Run once; return whether a file has changed, and it is to start over. Raises CliError."""
    pipeline = read_pipeline(path)
    made = request(pipeline, choices)
    files = Files(watched(pipeline, made))
    shown = Progress(made)
    ended = ports.local(made, shown.show, files.have_changed if watch else _never)
    if ended.verdict is None:
        return True
    if ended.verdict.exit_code == RunExit.STOPPED:
        shown.summarize(is_kept=is_kept)
    else:
        _fail(ended.verdict, made, watch=watch)
    return watch and not ended.is_interrupted and _await(files)


def _fail(verdict: Verdict, made: Request, *, watch: bool) -> None:
    """Say why a run failed. Raises CliError, unless the next change starts it again."""
    error = CliError(verdict.message, remedy=verdict.remedy or "correct it and run again")
    _show_log(made, verdict.exit_code)
    if not watch:
        raise error
    print_error(error)


def _await(files: Files) -> bool:
    note("waiting for a change; Ctrl-C ends")
    try:
        while not files.have_changed():
            time.sleep(WATCH)
    except KeyboardInterrupt:
        return False
    return True


@dataclass
class Files:
    """Files of which a change is noticed; a module that is new is one too."""

    paths: Sequence[Path]
    _seen: dict[Path, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._seen = self._now()

    def have_changed(self) -> bool:
        """Return whether one has, since the start."""
        return self._now() != self._seen

    def _now(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns if path.exists() else 0 for path in self.paths}


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
                print_line(f"\n{sink.table} has {count:,} rows; the first ones:")
                print_table([Column(name) for name in columns], found)
                print_line()

    def _tables(self) -> list[SqliteSink]:
        return [sink for sink in self.request.config.sinks if isinstance(sink, SqliteSink)]

    def _read(self, sink: SqliteSink, limit: int) -> tuple[int, list[str], list[tuple[object, ...]]]:
        """Return how many rows a table has, its columns, and some rows."""
        table = '"' + sink.table.replace('"', '""') + '"'
        with closing(sqlite3.connect(self.request.database)) as database:
            (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - quoted
            found = database.execute(f"SELECT * FROM {table} LIMIT ?", (limit,))  # noqa: S608 - quoted
            names = [name for name, *_ in found.description]
            places = [place for place, name in enumerate(names) if not name.startswith(OWN)]
            return count, [names[place] for place in places], [tuple(row[place] for place in places) for row in found]


def _show_log(made: Request, code: int) -> None:
    """Print the end of Spark's log, for a failure that may be Spark's."""
    path = Path(made.log)
    if code != RunExit.BAD_SPEC and path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]:
            note(line)


def _keys(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the columns by sink. Raises CliError."""
    found: dict[str, tuple[str, ...]] = {}
    for text in given:
        sink, _, columns = text.partition("=")
        names = tuple(name.strip() for name in columns.split(","))
        if not sink or not all(names):
            raise CliError(f"--key {text!r} names no columns", remedy="write --key SINK=COLUMN,COLUMN")
        found[sink] = names
    return found


def _delete(database: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def _never() -> bool:
    return False
