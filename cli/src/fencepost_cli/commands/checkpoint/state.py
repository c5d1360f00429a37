"""`fencepost state show`, `query` and `export`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any, Final

import typer

from fencepost.state.errors import CheckpointDamaged
from fencepost.state.progress import Committed, unpack_committed
from fencepost.state.questions import Answer, Export, ExportFormat, OperatorsQuestion, Rows, RowsQuestion
from fencepost_cli.commands.options import Needs, Target, of_pipeline
from fencepost_cli.commands.output import (
    Column,
    note,
    number,
    print_fields,
    print_json,
    print_line,
    print_table,
    working,
)
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Store
from fencepost_operator.api import JobMode

MOST: Final = 10_000
"""Rows of one query."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The committed state of a stateful pipeline, which may run meanwhile.",
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options by which rows of the state are chosen."""

    operator: Annotated[
        int | None, typer.Option("--operator", min=0, help="The operator's number. [default: the only one]")
    ] = None
    store: Annotated[
        str | None,
        typer.Option("--store", help="The operator's store: a side of a join, or a variable. [default: the only one]"),
    ] = None
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="FIELD=VALUE", help="Only rows whose key has this value; may be repeated."),
    ] = None

    def question(self) -> RowsQuestion:
        """Return which rows these are. Raises CliError."""
        fields: dict[str, str] = {}
        for text in self.key or ():
            name, equals, value = text.partition("=")
            if not name or not equals or name in fields:
                raise CliError(
                    f"--key {text!r} is not the value of another field",
                    remedy="write --key FIELD=VALUE, once per field",
                )
            fields[name] = value
        return RowsQuestion(operator=self.operator, store=self.store, key=fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the state is read from: the fence row, or a snapshot of it."""

    committed: Committed
    epoch: int
    version: int
    snapshot: str | None

    def facts(self, target: Target) -> dict[str, object]:
        """Return it for a script."""
        return {
            "pipeline": target.fence.pipeline,
            "snapshot": self.snapshot,
            "epoch": self.epoch,
            "version": self.version,
            "batch": self.committed.batch,
        }


OfSnapshot = Annotated[
    str | None, typer.Option("--snapshot", help="The state of a snapshot, by its name or id. [default: the newest]")
]


@app.command()
@of_pipeline(Needs.FENCE)
def show(
    target: Target,
    snapshot: OfSnapshot = None,
    no_rows: Annotated[bool, typer.Option("--no-rows", help="Do not count rows: that loads the whole state.")] = False,
) -> None:
    """Show the operators of the state with their stores, partitions, rows and bytes."""
    source, answer, sizes = _ask(target, snapshot, OperatorsQuestion(counted=not no_rows))
    operators = answer.operators or ()
    if target.is_json:
        listed = [
            {
                "id": each.id,
                "name": each.name,
                "partitions": each.partitions,
                "bytes": sizes.get(each.id, 0),
                "stores": [{"name": store.name, "rows": store.rows} for store in each.stores],
            }
            for each in operators
        ]
        print_json({**source.facts(target), "operators": listed})
        return
    print_fields(
        {
            "Pipeline": target.fence.pipeline,
            "Snapshot": source.snapshot,
            "Epoch": source.epoch,
            "Version": source.version,
            "Batch": source.committed.batch,
            "Bytes": sum(sizes.values()),
        }
    )
    print_line()
    print_table(
        [number("OPERATOR"), Column("NAME"), number("PARTITIONS"), number("BYTES"), Column("STORE"), number("ROWS")],
        [
            (each.id, each.name, each.partitions, sizes.get(each.id, 0), store.name, store.rows)
            for each in operators
            for store in each.stores
        ],
    )


@app.command()
@of_pipeline(Needs.FENCE)
def query(
    target: Target,
    chosen: Chosen,
    snapshot: OfSnapshot = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MOST, help="How many rows, at most.")] = 100,
) -> None:
    """Print rows of the state, in any order."""
    source, answer, _ = _ask(target, snapshot, replace(chosen.question(), limit=limit))
    found = _rows(answer)
    rows: list[dict[str, Any]] = [json.loads(row) for row in found.rows]
    if target.is_json:
        facts = {**source.facts(target), "operator": found.operator, "store": found.store}
        print_json({**facts, "rows": rows, "more": found.more})
        return
    print_table(
        [Column(".".join(path)) for path in found.columns],
        [[_cell(row, path) for path in found.columns] for row in rows],
    )
    if found.more:
        note("there are more rows: raise --limit, add --key, or use `fencepost state export`")


@app.command()
@of_pipeline(Needs.FENCE)
def export(
    target: Target,
    chosen: Chosen,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A folder that does not exist yet.")],
    form: Annotated[ExportFormat, typer.Option("--format", help="Of the files.")] = ExportFormat.PARQUET,
    snapshot: OfSnapshot = None,
) -> None:
    """Write all rows of a store of the state to a folder."""
    folder = to.absolute()
    if folder.exists():
        raise CliError(f"--to {to}: the folder exists", remedy="name one that does not exist yet")
    wanted = replace(chosen.question(), export=Export(format=form, folder=str(folder)))
    try:
        source, answer, _ = _ask(target, snapshot, wanted)
    except BaseException:
        with suppress(FileNotFoundError):
            rmtree(folder)  # an incomplete export is not kept
        raise
    found = _rows(answer)
    if target.is_json:
        facts = {**source.facts(target), "operator": found.operator, "store": found.store}
        print_json({**facts, "folder": str(folder), "format": form, "rows": found.exported})
        return
    print_line(f"{found.exported:,} rows of operator {found.operator}, batch {source.committed.batch}, are in {folder}")


def _ask(
    target: Target, snapshot: str | None, question: OperatorsQuestion | RowsQuestion
) -> tuple[Source, Answer, Mapping[int, int]]:
    """Return what is read, the answer, and the bytes of each operator's files. Raises CliError."""
    if target.spec.job.mode is not JobMode.STATEFUL:
        raise CliError(
            f"{target.key} has no state: its spec.job.mode is {target.spec.job.mode}",
            remedy="name a pipeline with job.mode Stateful; `fencepost fence show` has the offsets of this one",
        )
    with target.store() as store, working("reading the state"):
        source = _source(target, store, snapshot)
        answer, sizes = target.ports.state(source.committed, store.chunks(), question)
    return source, answer, sizes


def _source(target: Target, store: Store, snapshot: str | None) -> Source:
    if snapshot is None:
        row = target.row(store)
        what, held = "the fence row", row.checkpoint
        epoch, version = row.epoch, row.version
    else:
        found = target.snapshot(store, snapshot)
        what, held = f"snapshot {snapshot!r}", found.checkpoint
        epoch, version = found.epoch, found.version
    try:
        committed = unpack_committed(held)
    except CheckpointDamaged as error:
        raise CliError(f"{what} of {target.key}: {error}", remedy="choose a snapshot with --snapshot") from error
    if committed is None:
        raise CliError(
            f"{what} of {target.key} has no state: nothing was committed since the start or since a rewind to it",
            remedy="wait for the first commit"
            if snapshot is None
            else f"choose another one of `fencepost snapshots list {target.key}`",
        )
    return Source(committed=committed, epoch=epoch, version=version, snapshot=snapshot)


def _rows(answer: Answer) -> Rows:
    if answer.rows is None:
        raise CliError("the process that reads the state gave another answer", remedy="update the command")
    return answer.rows


def _cell(row: Mapping[str, Any], path: Sequence[str]) -> object:
    """Return one value for a table; lists and maps as JSON."""
    value: Any = row
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return json.dumps(value) if isinstance(value, list | dict) else value
