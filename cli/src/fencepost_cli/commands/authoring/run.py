"""`fencepost run --local`: a manifest's pipeline on this machine, without a cluster."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.contract import ExitCode as RunExit
from fencepost.contract import Verdict
from fencepost.local.request import Request
from fencepost_cli.commands.authoring.run_output import Progress, show_log
from fencepost_cli.commands.confirmation import check_terminal
from fencepost_cli.commands.options import parse_place, ports_of
from fencepost_cli.commands.output import note, print_error
from fencepost_cli.errors import CliError
from fencepost_cli.local import database_file
from fencepost_cli.local.request import LocalOptions, read_pipeline, request
from fencepost_cli.local.watched_files import WatchedFiles
from fencepost_cli.ports import Ports

WATCH: Final = 0.5
"""Seconds between two looks at the watched files."""


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
    registry: Annotated[
        str | None, typer.Option("--registry", metavar="URL", help="In place of the manifest's schema registry.")
    ] = None,
    registry_credentials: Annotated[
        Path | None,
        typer.Option("--registry-credentials", metavar="FOLDER", help="The keys of the registry's Secret, as files."),
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
        bool, typer.Option("--watch", help="Start over when the manifest, a module, CQL or a file of records changes.")
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
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="TOPIC/PARTITION@OFFSET", help="Leave out this record; may be repeated."),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Let breakpoint() open a debugger, also in functions of Spark's workers.")
    ] = False,
    cores: Annotated[int, typer.Option("--cores", min=1, max=64, help="Tasks at the same time.")] = 2,
) -> None:
    """Run a pipeline on this machine; its rows go to tables of a SQLite file."""
    if not local:
        raise CliError("a pipeline runs on a cluster once it is applied", remedy="add --local to run it here")
    if debug:
        check_terminal()
    ports = ports_of(context)
    # A JVM that is killed may still write.
    with tempfile.TemporaryDirectory(prefix="fencepost-local-", ignore_cleanup_errors=True) as folder:
        options = LocalOptions(
            database=into or Path(folder) / "rows.sqlite",
            scratch=Path(folder),
            code=code,
            records=records or (),
            topic=topic,
            kafka=kafka,
            registry=registry,
            registry_credentials=registry_credentials,
            keys=_keys(key or ()),
            real=real_sink or (),
            skipped=[parse_place(text, "--skip") for text in skip or ()],
            cores=1 if debug else cores,
            once=once,
            debug=debug,
        )
        while True:
            if fresh or watch:
                database_file.delete(options.database)
            again = _run(ports, manifest, options, is_kept=into is not None, watch=watch)
            if not again:
                return


def _run(ports: Ports, path: Path, options: LocalOptions, *, is_kept: bool, watch: bool) -> bool:
    """Run once; return whether a file has changed, and it is to start over. Raises CliError."""
    pipeline = read_pipeline(path)
    made = request(pipeline, options)
    files = WatchedFiles.of(pipeline, made)
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
    show_log(made, verdict.exit_code)
    if not watch:
        raise error
    print_error(error)


def _await(files: WatchedFiles) -> bool:
    note("waiting for a change; Ctrl-C ends")
    try:
        while not files.have_changed():
            time.sleep(WATCH)
    except KeyboardInterrupt:
        return False
    return True


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


def _never() -> bool:
    return False
