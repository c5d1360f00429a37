"""`fencepost snapshots list`, `show` and `create`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from fencepost.contract import split_offset_key
from fencepost.fence.snapshots import NAME, Snapshot
from fencepost_cli.commands.options import Needs, Target, of_pipeline
from fencepost_cli.commands.output import (
    Column,
    moment,
    number,
    print_fields,
    print_json,
    print_line,
    print_table,
    working,
)
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Cluster
from fencepost_cli.readable import age
from fencepost_operator.api import SNAPSHOT_ANNOTATION, ObjectKey, SnapshotStatus

POLL: Final = 1.0
"""Seconds between two looks at the status."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Immutable copies of the committed offsets.")


@app.command("list")
@of_pipeline(Needs.FENCE)
def list_snapshots(target: Target) -> None:
    """List the snapshots, the newest first."""
    with target.store() as store:
        snapshots = store.snapshots()
    if target.is_json:
        print_json({"pipeline": target.fence.pipeline, "snapshots": [_json(one) for one in snapshots]})
        return
    now = datetime.now(UTC)
    columns = ("AGE", "TRIGGER", "NAME"), ("EPOCH", "VERSION", "OFFSETS"), ("IMAGE", "ID")
    print_table(
        [*map(Column, columns[0]), *map(number, columns[1]), *map(Column, columns[2])],
        [
            (
                age(now - one.at),
                one.trigger,
                one.name,
                one.epoch,
                one.version,
                sum(one.offsets.values()),
                _image(one),
                one.id,
            )
            for one in snapshots
        ],
    )


@app.command()
@of_pipeline(Needs.FENCE)
def show(
    target: Target,
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Its name, or its id.")],
) -> None:
    """Show one snapshot with its offsets; of several with one name, the newest."""
    with target.store() as store:
        whole = target.snapshot(store, snapshot)
    if target.is_json:
        print_json({"pipeline": target.fence.pipeline, **_json(whole), "topicIds": whole.topic_ids})
        return
    print_fields(
        {
            "Snapshot": whole.id,
            "Name": whole.name,
            "Trigger": whole.trigger,
            "Taken": moment(whole.at),
            "Epoch": whole.epoch,
            "Version": whole.version,
            "Code": whole.code,
        }
    )
    print_line()
    keys = sorted(whole.offsets, key=split_offset_key)
    print_table([Column("PARTITION"), number("OFFSET")], [(key, whole.offsets[key]) for key in keys])


@app.command()
@of_pipeline()
def create(
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    timeout: Annotated[int, typer.Option("--timeout", min=0, help="Seconds to wait for it; 0 does not wait.")] = 60,
) -> None:
    """Ask the operator for a snapshot, by an annotation of the pipeline, and wait until it is written."""
    if not NAME.fullmatch(name):
        raise CliError(
            f"{name!r} is not a valid snapshot name",
            remedy="use at most 63 lower-case letters, digits, dashes and dots",
        )
    cluster, key = target.cluster, target.key
    if cluster.snapshots(key).requested == name:
        raise CliError(f"the operator was asked for {name!r} last and took it", remedy="choose another name")
    cluster.annotate(key, SNAPSHOT_ANNOTATION, name)
    made = _wait(cluster, key, name, timeout) if timeout else None
    if target.is_json:
        print_json({"pipeline": str(key), "name": name, "id": made.id if made else None})
    elif made:
        print_line(f"snapshot {name} is written: {made.id}, of version {made.version}")
    else:
        print_line(f"snapshot {name} is requested")


def _wait(cluster: Cluster, key: ObjectKey, name: str, timeout: int) -> SnapshotStatus:
    """Return the snapshot once the operator has seen it. Raises CliError."""
    deadline = time.monotonic() + timeout
    with working("waiting for the operator") as progress:
        while True:
            known = cluster.snapshots(key)
            made = next((one for one in known.recent if one.name == name), None)
            if made is not None and known.requested == name and known.pending is None:
                return made
            if time.monotonic() > deadline:
                why = f": {known.message}" if known.message else ""
                raise CliError(
                    f"no snapshot {name!r} within {timeout} s{why}",
                    remedy=f"it is still due; a pipeline that has committed nothing has nothing to copy:"
                    f" `kubectl describe spl -n {key.namespace} {key.name}`",
                )
            progress.show(known.message or "not yet")
            time.sleep(POLL)


def _image(snapshot: Snapshot) -> str | None:
    return (snapshot.code or "").partition(" ")[0] or None


def _json(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "id": str(snapshot.id),
        "name": snapshot.name,
        "trigger": snapshot.trigger,
        "at": snapshot.at,
        "epoch": snapshot.epoch,
        "version": snapshot.version,
        "code": snapshot.code,
        "image": _image(snapshot),
        "offsets": dict(snapshot.offsets),
    }
