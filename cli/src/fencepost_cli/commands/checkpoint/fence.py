"""`fencepost fence show`, `history` and `verify`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fencepost.batch import Watermarks
from fencepost.contract import CassandraSink
from fencepost.fence import FenceRow
from fencepost.fence.figures import Figure
from fencepost_cli.commands.options import Needs, Target, of_pipeline, parse_since
from fencepost_cli.commands.output import (
    NOTHING,
    Column,
    moment,
    note,
    number,
    print_fields,
    print_json,
    print_line,
    print_table,
    working,
)
from fencepost_cli.errors import CliError, ExitCode
from fencepost_cli.history.reading import Entry, newest
from fencepost_cli.history.sink_rows import PartitionCount
from fencepost_cli.history.verification import Verification
from fencepost_cli.history.verification import verify as run_verification
from fencepost_cli.lag import PartitionLag, partitions, total
from fencepost_cli.readable import timestamp

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The fence row, its history, and their proof.")


@app.command()
@of_pipeline(Needs.FENCE, Needs.KAFKA)
def show(target: Target) -> None:
    """Show the fence row: epoch, driver, version, offsets, and the lag against the log."""
    with target.store() as store:
        row = target.row(store)
    log = _log_if_it_answers(target)
    parts = partitions(row, log)
    if target.is_json:
        print_json(_row_json(row, parts, log))
        return
    print_fields(
        {
            "Pipeline": row.pipeline,
            "Owner": row.owner,
            "Epoch": row.epoch,
            "Version": row.version,
            "Driver": row.driver or "none has claimed this epoch",
            "Code": row.code,
            "Committed": moment(row.committed_at),
            "Last batch": _last_batch(row),
            "Lag": total(parts),
        }
    )
    print_line()
    print_table(
        [Column("PARTITION"), *map(number, ("COMMITTED", "PLANNED", "END", "LAG"))],
        [(part.partition, part.committed, part.planned, part.end, part.lag) for part in parts],
    )


@app.command()
@of_pipeline(Needs.FENCE)
def history(
    target: Target,
    limit: Annotated[int, typer.Option("--limit", min=0, help="How many changes; 0 shows all.")] = 20,
    since: Annotated[str | None, typer.Option("--since", help="Of the last 90m, 12h, 2d, or since a time.")] = None,
) -> None:
    """Show the changes of the fence row, the newest first, and whether each follows the one before it."""
    moment_since = parse_since(since)
    with target.store() as store, working("reading the history"):
        entries = newest(target.fence.pipeline, store.changes, limit=limit or None, since=moment_since)
    if target.is_json:
        print_json({"pipeline": target.fence.pipeline, "changes": [_entry_json(entry) for entry in entries]})
        return
    has_state = any(entry.state_bytes is not None for entry in entries)
    print_table(
        [
            Column("RECORDED"),
            number("EPOCH"),
            number("VERSION"),
            Column("CHANGE"),
            number("RECORDS"),
            number("MS"),
            number("LAG"),
            Column("FOLLOWS"),
            Column("DRIVER"),
            *(map(number, ("STATE", "CHUNKS")) if has_state else ()),
            Column("OFFSETS"),
        ],
        [
            (
                timestamp(entry.recorded_at) if entry.recorded_at else None,
                entry.epoch,
                entry.version,
                entry.kind,
                entry.records,
                entry.duration_ms,
                entry.lag,
                entry.contiguous,
                entry.driver,
                *((entry.state_bytes, entry.figures.get(Figure.STATE_CHUNKS)) if has_state else ()),
                _moved(entry),
            )
            for entry in entries
        ],
    )


@app.command()
@of_pipeline(Needs.FENCE)
def verify(
    target: Target,
    sinks: Annotated[bool, typer.Option("--sinks/--no-sinks", help="Read the sinks' tables, whole.")] = True,
    max_rows: Annotated[
        int, typer.Option("--max-rows", min=1, help="Rows of a table that are read at most.")
    ] = 1_000_000_000,
    exact: Annotated[
        bool, typer.Option("--exact", help="Each offset makes one row: none or several is an error.")
    ] = False,
) -> None:
    """Prove that the history is contiguous, and compare the sinks' rows with the offsets. Exit code 1: it is not so."""
    spec = target.spec
    tables = ((sink.name, sink.cassandra) for sink in spec.sinks if sink.cassandra and sinks)
    wanted = tuple(CassandraSink(name=name, keyspace=one.keyspace, table=one.table) for name, one in tables)
    with target.store() as store, working("verifying") as progress:
        result = run_verification(
            target.fence.pipeline,
            store,
            lambda: target.row(store),
            sinks=wanted,
            topics=spec.source.kafka.topics,
            exact=exact,
            most_rows=max_rows,
            show_progress=progress.show,
        )
    if target.is_json:
        print_json(_verification_json(result))
    else:
        _print_verification(result)
    if result.findings:
        raise typer.Exit(ExitCode.FOUND)


def _log_if_it_answers(target: Target) -> Watermarks | None:
    try:
        return target.watermarks()
    except CliError as error:
        note(f"{error}; the ends of the log are those that the driver last saw. {error.remedy}")
        return None


def _last_batch(row: FenceRow) -> str:
    if row.records is None:
        return NOTHING
    return f"{row.records:,} records" + (f" in {row.duration_ms:,} ms" if row.duration_ms is not None else "")


def _row_json(row: FenceRow, parts: tuple[PartitionLag, ...], log: Watermarks | None) -> dict[str, Any]:
    return {
        "pipeline": row.pipeline,
        "owner": row.owner,
        "epoch": row.epoch,
        "version": row.version,
        "driver": row.driver,
        "code": row.code,
        "clock": row.clock,
        "committedAt": row.committed_at,
        "records": row.records,
        "durationMs": row.duration_ms,
        "topicIds": row.topic_ids,
        "lag": total(parts),
        "endsFrom": "kafka" if log else "fence",
        "partitions": [
            {
                "partition": part.partition,
                "committed": part.committed,
                "planned": part.planned,
                "end": part.end,
                "lag": part.lag,
                "leaderEpoch": row.leader_epochs.get(part.partition),
            }
            for part in parts
        ],
    }


def _moved(entry: Entry) -> str:
    return ", ".join(f"{key} {start:,} to {until:,}" for key, (start, until) in sorted(entry.moved.items())) or NOTHING


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "epoch": entry.epoch,
        "version": entry.version,
        "kind": entry.kind,
        "contiguous": entry.contiguous,
        "recordedAt": entry.recorded_at,
        "driver": entry.driver,
        "code": entry.code,
        "records": entry.records,
        "durationMs": entry.duration_ms,
        "lag": entry.lag,
        "bytes": entry.figures.get(Figure.BYTES),
        "rows": entry.figures.get(Figure.ROWS),
        "stateBytes": entry.state_bytes,
        "stateChunks": entry.figures.get(Figure.STATE_CHUNKS),
        "offsets": {key: {"from": start, "until": until} for key, (start, until) in sorted(entry.moved.items())},
    }


def _verification_json(result: Verification) -> dict[str, Any]:
    story = result.history
    return {
        "pipeline": result.row.pipeline,
        "ok": not result.findings,
        "findings": result.findings,
        "history": {
            "changes": story.changes,
            "commits": story.commits,
            "takeovers": story.takeovers,
            "rewinds": story.rewinds,
            "firstEpoch": story.first_epoch,
            "lastEpoch": story.last_epoch,
            "gaps": story.gaps,
            "complete": result.complete,
        },
        "sinks": [
            {
                "name": sink.sink,
                "table": sink.table,
                "skipped": sink.skipped,
                "otherRows": sink.other_rows,
                "partitions": [_count_json(part) for part in sink.partitions],
            }
            for sink in result.sinks
        ],
    }


def _count_json(part: PartitionCount) -> dict[str, Any]:
    return {
        "partition": part.partition,
        "from": part.start,
        "fromKnown": part.start_known,
        "until": part.until,
        "rows": part.rows,
        "offsets": part.offsets,
        "missing": part.missing,
        "lost": part.lost,
        "repeated": part.repeated,
        "before": part.before,
        "inProgress": part.in_progress,
        "beyond": part.beyond,
        "earlier": part.earlier,
        "holes": [{"from": start, "until": until} for start, until in part.holes],
    }


def _print_verification(result: Verification) -> None:
    story = result.history
    reach = "from the first offset on" if result.complete else "of what is on record"
    print_line(
        f"history: {story.changes:,} changes {reach}, {story.commits:,} commits, {story.takeovers:,} takeovers,"
        f" epochs {story.first_epoch} to {story.last_epoch}, {story.gaps:,} changes not on record"
    )
    for sink in result.sinks:
        print_line()
        print_line(
            f"sink {sink.sink}, table {sink.table}" + (f": not compared, {sink.skipped}" if sink.skipped else "")
        )
        if not sink.skipped:
            titles = ("FROM", "UNTIL", "ROWS", "OFFSETS", "MISSING", "LOST", "REPEATED", "IN PROGRESS", "BEYOND")
            print_table(
                [Column("PARTITION"), *map(number, titles)],
                [_cells(part) for part in sink.partitions],
            )
            for part in sink.partitions:
                for start, until in part.holes:
                    print_line(f"  no row: {part.partition} [{start}, {until})")
    print_line()
    for finding in result.findings:
        print_line(f"broken: {finding}", style="red")
    print_line("nothing is broken" if not result.findings else f"{len(result.findings)} findings")
    _explain(result)


def _cells(part: PartitionCount) -> tuple[object, ...]:
    counts = (part.rows, part.offsets, part.missing, part.lost, part.repeated, part.in_progress, part.beyond)
    return (part.partition, part.start, part.until, *counts)


def _explain(result: Verification) -> None:
    """Say what the counts do not prove."""
    parts = [part for sink in result.sinks for part in sink.partitions]
    if any(part.missing for part in parts) and not result.exact:
        note(
            "an offset without a row is legal where the transform drops records, and where a transaction's marker or a"
            " compacted record was; --exact takes it for an error"
        )
    if any(part.repeated for part in parts) and not result.exact:
        note("several rows of one offset are legal where a record makes several rows; --exact takes it for an error")
    if any(part.earlier for part in parts):
        note("rows of a log that was replaced or truncated, and accepted as lost, are left out of BEYOND")
    if any(not part.start_known for part in parts):
        note(
            "the history does not reach back to the first offset: rows are compared from the lowest offset that has one"
        )
