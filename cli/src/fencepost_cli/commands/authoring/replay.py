"""`fencepost replay`: one batch of the past, run again on this machine."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fencepost.contract import CassandraSink, DeclaredSink, ExitCode, Reason, SqliteSink
from fencepost.local.record_lines import line_of
from fencepost.local.request import Event, PastBatch, Request
from fencepost_cli.commands.authoring.replay_output import describe, facts, print_comparisons
from fencepost_cli.commands.authoring.run_output import Progress, show_log
from fencepost_cli.commands.confirmation import check_terminal
from fencepost_cli.commands.options import Needs, Target, of_pipeline
from fencepost_cli.commands.output import print_json, print_line, working
from fencepost_cli.errors import CliError
from fencepost_cli.errors import ExitCode as CommandExit
from fencepost_cli.history.past_batch import Found, find, missing
from fencepost_cli.history.table_rows import Comparison, compare, primary_key
from fencepost_cli.local.database_file import OWN, quoted, tables
from fencepost_cli.local.request import LocalOptions, Pipeline
from fencepost_cli.local.request import request as local_request
from fencepost_cli.local.run_code import RunCode
from fencepost_cli.ports import Store
from fencepost_operator.api import JobMode
from fencepost_operator.desired.jobs.driver_config import sinks_of

MEBIBYTE: Final = 1024 * 1024
MOST_COMPARED: Final = 100_000
"""Rows of a table that are looked up."""


@of_pipeline(Needs.FENCE, Needs.KAFKA)
def replay(
    target: Target,
    *,
    version: Annotated[
        int, typer.Option("--version", min=1, help="A commit of `fence history`, or the plan or claim of a batch.")
    ],
    code: Annotated[
        Path, typer.Option("--code", metavar="FOLDER", help="The author's modules.", file_okay=False, exists=True)
    ] = Path(),
    into: Annotated[
        Path | None, typer.Option("--into", metavar="FILE", help="Keep the rows in this new SQLite file.")
    ] = None,
    compared: Annotated[
        bool, typer.Option("--compare", help="Look the rows up in the sinks' tables. Exit code 1: they differ.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Let breakpoint() open a debugger, also in functions of Spark's workers.")
    ] = False,
    cores: Annotated[int, typer.Option("--cores", min=1, max=64, help="Tasks at the same time.")] = 2,
    max_mib: Annotated[
        int, typer.Option("--max-mib", min=1, max=64 * 1024, help="MiB of keys, values and headers, at most.")
    ] = 1024,
) -> None:
    """Run one past batch on this machine: the same records, token and version, and rows in a SQLite file alone."""
    _check(target, into, debug=debug)
    # A JVM that is killed may still write.
    with tempfile.TemporaryDirectory(prefix="fencepost-replay-", ignore_cleanup_errors=True) as folder:
        with target.store() as store, working("reading the history"):
            past = find(store, target.fence.pipeline, version)
            left_out = _left_out(store, past)
            keys = dict(_keys(store, sinks_of(target.spec)))
        records = Path(folder) / "records.jsonl"
        count = _read(target, past, records, max_mib * MEBIBYTE)
        options = LocalOptions(
            database=into or Path(folder) / "rows.sqlite",
            scratch=Path(folder),
            code=code,
            records=[records],
            keys=keys,
            cores=1 if debug else cores,
            debug=debug,
        )
        made = _request(target, past, left_out, options)
        said = _code(target, past, code)
        if not target.is_json:
            describe(past, count, said)
        rows = _run(target, made)
        results = _compared(target, made, past, rows) if compared else []
    if target.is_json:
        print_json({**facts(past, results), "code": said, "records": count, "rows": dict(rows)})
    else:
        print_comparisons(results)
        if into is not None:
            print_line(f"the rows are in {into}")
    if any(one.changed or one.missing for one in results):
        raise typer.Exit(CommandExit.FOUND)


def _check(target: Target, into: Path | None, *, debug: bool) -> None:
    if target.spec.job.mode is JobMode.STATEFUL:
        raise CliError(
            f"{target.key} is stateful: a batch needs the state before it, which is not kept",
            remedy="`fencepost sample` writes its records for `run --local`; `fencepost state` shows what is committed",
        )
    if target.spec.source.pinned_states:
        raise CliError(
            f"{target.key} reads spec.source.pinnedStates, which this command does not",
            remedy="test the function with batch_test(transform, states=…) and records of `fencepost sample`",
        )
    if into is not None and into.exists():
        raise CliError(f"--into {into} exists", remedy="name a new file")
    if debug:
        check_terminal()


def _left_out(store: Store, past: Found) -> Mapping[str, tuple[int, ...]]:
    """Return the offsets by partition that the pipeline leaves out, of the topics that the batch read."""
    found: dict[str, tuple[int, ...]] = {}
    ids = past.row.topic_ids
    for loss in store.accepted():
        topic = loss.partition.rpartition("/")[0]
        if loss.reason == Reason.POISON_RECORD and loss.topic_id is not None and ids.get(topic) == loss.topic_id:
            found[loss.partition] = (*found.get(loss.partition, ()), loss.start)
    return found


def _keys(store: Store, sinks: Sequence[DeclaredSink]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the primary key of each table that can be read."""
    for sink in sinks:
        if isinstance(sink, CassandraSink) and (key := primary_key(store.columns(sink.keyspace, sink.table))):
            yield sink.name, key


def _read(target: Target, past: Found, path: Path, most: int) -> int:
    """Write the batch's records to a file, and return how many there are. Raises CliError."""
    with working("asking Kafka"):
        log = target.watermarks()
    if gone := missing(past.ranges, log):
        raise CliError(
            f"Kafka does not have all records of the batch any more: {', '.join(gone)}",
            remedy="choose a later version; `fencepost offsets` shows where each log begins",
        )
    size = count = 0
    with (
        working("reading Kafka") as progress,
        path.open("w", encoding="utf-8", newline="") as lines,
        closing(target.ports.records(target.kafka, past.ranges)) as records,
    ):
        for count, record in enumerate(records, start=1):
            size += record.size
            if size > most:
                raise CliError(f"the batch has more than {most // MEBIBYTE:,} MiB", remedy="raise --max-mib")
            lines.write(f"{line_of(record)}\n")
            if count % 1_000 == 0:
                progress.show(f"{count:,} records")
    return count


def _request(target: Target, past: Found, left_out: Mapping[str, tuple[int, ...]], options: LocalOptions) -> Request:
    made = local_request(Pipeline(options.scratch / "pipeline.yaml", target.key, target.spec), options)
    spans = {part.key: (part.start, part.until) for part in past.ranges}
    config, row = made.config, past.row
    topics = sorted({*config.source.topics, *(part.topic for part in past.ranges)})
    source = replace(config.source, topics=tuple(topics))
    return replace(
        made,
        config=replace(config, pipeline=row.pipeline, epoch=row.epoch, owner=row.owner, source=source),
        left_out=left_out,
        past=PastBatch(version=row.version, clock=row.clock, spans=spans, is_repeated=past.is_repeated),
    )


def _code(target: Target, past: Found, folder: Path) -> str:
    """Return how the code of the folder and that of the run compare."""
    run = RunCode.of(past.row.code or "")
    name = target.spec.job.code_config_map
    modules = target.cluster.config_map(target.key, name) if name and run.digest else {}
    is_same = run.is_in(folder, modules)
    entrypoint = target.spec.job.entrypoint
    renamed = (
        "" if run.entrypoint == entrypoint else f"; the run called {run.entrypoint}, and the spec names {entrypoint}"
    )
    if is_same is None:
        return f"of image {run.image}: whether {folder.absolute()} has the same is not known{renamed}"
    if is_same:
        return f"that of the run, {run.digest}{renamed}"
    changed = run.changed(folder, modules)
    what = f"in {', '.join(changed)}" if changed else f"and so does ConfigMap {name} now"
    return f"differs from that of the run, {run.digest}, {what}{renamed}"


def _run(target: Target, made: Request) -> Mapping[str, int]:
    """Run the batch, and return the rows by sink. Raises CliError."""
    shown = Progress(made)
    rows: dict[str, int] = {}

    def show(event: Event) -> None:
        if event.committed is not None:
            rows.update(event.committed.rows)
            if not target.is_json:
                shown.show(event)

    ended = target.ports.local(made, show, lambda: False)
    if ended.verdict is None or ended.is_interrupted:
        raise CliError("the batch was interrupted", remedy="start the command again")
    if ended.verdict.exit_code != ExitCode.STOPPED:
        show_log(made, ended.verdict.exit_code)
        raise CliError(ended.verdict.message, remedy=ended.verdict.remedy or "correct it and run again")
    return rows


def _compared(target: Target, made: Request, past: Found, written: Mapping[str, int]) -> list[Comparison]:
    """Look up the rows that were `written` by sink, as far as they are MOST_COMPARED. Raises CliError."""
    databases = {sink.name: sink for sink in made.config.sinks if isinstance(sink, SqliteSink)}
    found = []
    with target.store() as store, working("reading the tables"):
        for sink in sinks_of(target.spec):
            if isinstance(sink, CassandraSink):
                rows = _rows(databases[sink.name])
                one = compare(store, sink.keyspace, sink.table, rows, token=past.row.write_timestamp)
                one.beyond = max(written.get(sink.name, 0) - MOST_COMPARED, 0)
                found.append(one)
            else:
                found.append(Comparison(table=sink.name, skipped="it is not a table of Cassandra"))
    return found


def _rows(sink: SqliteSink) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a table, at most MOST_COMPARED; a batch without rows makes no table. Raises CliError."""
    if sink.table not in tables(Path(sink.path)):
        return
    with closing(sqlite3.connect(sink.path)) as database:
        database.row_factory = sqlite3.Row
        for row in database.execute(f"SELECT * FROM {quoted(sink.table)} LIMIT {MOST_COMPARED}"):  # noqa: S608
            yield {name: row[name] for name in row.keys() if not name.startswith(OWN)}  # noqa: SIM118 - a Row
