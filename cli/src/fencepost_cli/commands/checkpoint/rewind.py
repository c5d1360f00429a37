"""`fencepost rewind`: create a PipelineRewind and follow its progress."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.fence.snapshots import NAME
from fencepost.fence.stored_rows import PARTITION
from fencepost_cli.commands.confirmation import ask
from fencepost_cli.commands.options import Target, of_pipeline, parse_moment
from fencepost_cli.commands.output import Column, note, number, print_json, print_line, print_table, working
from fencepost_cli.errors import CliError, ExitCode
from fencepost_operator.api import (
    COMPLETED,
    PAUSED_ANNOTATION,
    ObjectKey,
    RewindSpec,
    RewindStatus,
    RewindTarget,
    StepState,
    asks_for_pause,
    write_rewind_status,
)
from fencepost_operator.api.rewind import MOST_OFFSETS

POLL: Final = 1.0
"""Seconds between two looks at the status."""
MOST_BYTES: Final = 1024 * 1024
"""Of a file of offsets."""
_LARGEST: Final = 2**63 - 1


@of_pipeline()
def rewind(
    target: Target,
    *,
    to_snapshot: Annotated[
        str | None, typer.Option("--to-snapshot", metavar="SNAPSHOT", help="To a snapshot, by its name or id.")
    ] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option("--to-timestamp", metavar="TIME", help="To the first records since 2026-01-31T12:00:00Z."),
    ] = None,
    to_offsets: Annotated[
        str | None,
        typer.Option("--to-offsets", metavar="FILE", help='To offsets: JSON, {"topic/partition": offset}; - is stdin.'),
    ] = None,
    delete_output: Annotated[
        bool, typer.Option("--delete-output/--keep-output", help="Delete the rows of repeated records first.")
    ] = True,
    empty_state: Annotated[
        bool, typer.Option("--empty-state", help="Start a stateful pipeline with empty state there.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would happen, and change nothing.")] = False,
    watch: Annotated[
        bool | None,
        typer.Option(
            "--watch/--no-watch", help="Follow the steps to the end. [default: with --dry-run]", show_default=False
        ),
    ] = None,
    timeout: Annotated[int, typer.Option("--timeout", min=0, help="Seconds to follow it; 0 has no limit.")] = 0,
    name: Annotated[str | None, typer.Option("--name", help="Of the PipelineRewind. [default: made up]")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Let the pipeline read records again, as one PipelineRewind. Exit code 1: it failed."""
    if name is not None and not NAME.fullmatch(name):
        raise CliError(
            f"--name {name!r} is not a valid object name", remedy="use lower-case letters, digits and dashes"
        )
    spec = RewindSpec(
        pipeline=target.key.name,
        to=_target(to_snapshot, to_timestamp, to_offsets),
        delete_output=delete_output,
        empty_state=empty_state,
        dry_run=dry_run,
    )
    _refuse_a_pause(target)
    if not (dry_run or yes):
        rows = "Rows of the records after it are deleted, and the" if delete_output else "The"
        state = " Its state is emptied." if empty_state else ""
        ask(f"Rewind {target.key}? {rows} records are read again.{state}")
    made = target.cluster.create_rewind(target.key, spec, name)
    if not (dry_run if watch is None else watch):
        if target.is_json:
            print_json({"rewind": str(made), "status": None})
        else:
            print_line(f"rewind {made} is created")
            note(f"see `kubectl get rw -n {made.namespace} {made.name} -w`")
        return
    status = _follow(target, made, timeout)
    if target.is_json:
        print_json({"rewind": str(made), "status": write_rewind_status(status)})
    else:
        _print_end(status)
    if status.phase != COMPLETED:
        raise typer.Exit(ExitCode.FOUND)


def _refuse_a_pause(target: Target) -> None:
    """Raise CliError for a paused pipeline: its rewind would wait, and begin unexpectedly when the pause ends."""
    if asks_for_pause(target.cluster.annotation(target.key, PAUSED_ANNOTATION).value):
        raise CliError(
            f"{target.key} is paused, so the operator does not begin a rewind",
            remedy=f"run kubectl annotate spl -n {target.key.namespace} {target.key.name} {PAUSED_ANNOTATION}- first",
        )


def _target(snapshot: str | None, timestamp: str | None, file: str | None) -> RewindTarget:
    """Return where to go back to. Raises CliError."""
    if sum(given is not None for given in (snapshot, timestamp, file)) != 1:
        raise CliError(
            "nothing says where to go back to, or several things do",
            remedy="add one of --to-snapshot, --to-timestamp and --to-offsets",
        )
    if snapshot is not None:
        if not NAME.fullmatch(snapshot):
            raise CliError(
                f"{snapshot!r} is not a valid snapshot name", remedy="choose one of `fencepost snapshots list`"
            )
        return RewindTarget(snapshot=snapshot)
    if timestamp is not None:
        return RewindTarget(timestamp=parse_moment(timestamp, "--to-timestamp"))
    return RewindTarget(offsets=_offsets(file or ""))


def _offsets(file: str) -> Mapping[str, int]:
    """Return the offsets in a file, which may also be the output of `snapshots show -o json`. Raises CliError."""
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as source:
            text = source.read(MOST_BYTES + 1)
        found = json.loads(text) if len(text) <= MOST_BYTES else None
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error}", remedy="name a file that is there, or - for stdin") from error
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and isinstance(found.get("offsets"), dict):
        found = found["offsets"]
    if not isinstance(found, dict) or not 0 < len(found) <= MOST_OFFSETS:
        raise CliError(
            f"{file} is not a map of 1 to {MOST_OFFSETS} partitions", remedy='write JSON such as {"flights/0": 12000}'
        )
    for key, offset in found.items():
        if not PARTITION.fullmatch(key) or type(offset) is not int or not 0 <= offset <= _LARGEST:
            raise CliError(f"{file} has {key!r}: {offset!r}", remedy="write the next offset to read of topic/partition")
    return found


def _follow(target: Target, made: ObjectKey, timeout: int) -> RewindStatus:
    """Return the last status; print each step as it changes. Raises CliError."""
    deadline = time.monotonic() + timeout if timeout else None
    printed: dict[str, tuple[StepState, str]] = {}
    with working(f"rewind {made}") as progress:
        while True:
            status = target.cluster.rewind(made)
            if status is None:
                raise CliError(
                    f"rewind {made} was deleted",
                    remedy=f"`fencepost fence history {target.key}` shows whether it was done",
                )
            for step in status.steps:
                if printed.get(step.name) != (step.state, step.message) and not target.is_json:
                    print_line(f"{step.name:<11} {step.state:<8} {step.message}")
                printed[step.name] = (step.state, step.message)
            if status.is_finished:
                return status
            if deadline is not None and time.monotonic() > deadline:
                raise CliError(
                    f"rewind {made} is not over within {timeout} s: {status.phase}, {status.message or 'no word yet'}",
                    remedy=f"it continues: `kubectl get rw -n {made.namespace} {made.name} -w`; delete it to cancel",
                )
            progress.show(f"{status.phase} {status.message}")
            time.sleep(POLL)


def _print_end(status: RewindStatus) -> None:
    print_line()
    if status.target is not None:
        rows = sorted(status.target.offsets.items())
        print_table([Column("PARTITION"), number("NEXT OFFSET")], rows)
        print_line()
    seconds = status.estimated_seconds
    facts = {
        "records to repeat": status.records_to_repeat,
        "rows to delete": status.rows_to_delete,
        "backup": status.backup,
    }
    for title, value in facts.items():
        if value is not None:
            print_line(f"{title}: {value:,}" if isinstance(value, int) else f"{title}: {value}")
    if seconds is not None:
        print_line(f"estimated time: {seconds:.0f} s")
    print_line(f"{status.phase}: {status.message}", style="" if status.phase == COMPLETED else "red")
