"""The commands put together, with the adapters that they use: each is imported when it is needed.

The libraries of all commands together take seconds of CPU to import.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException
from typer.main import get_group

from fencepost_cli.errors import CliError, ExitCode

DEBUG: Final = "FENCEPOST_DEBUG"
"""With this variable set, an error of the program itself shows its traceback."""
_COMMANDS: Final = "fencepost_cli.commands"
_STORES: Final = "fencepost_cli.stores"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command or a group of them: its place below `commands`, as 'module:attribute', and its line in the help."""

    place: str
    summary: str

    def load(self) -> Any:  # noqa: ANN401 - a function, or an app of typer
        """Import it."""
        return resolve_name(f"{_COMMANDS}.{self.place}")


COMMANDS: Final = {
    "init": Entry(
        "authoring.init:init", "Write a new project: function, test, table, pipeline.yaml, Dockerfile and CI file."
    ),
    "advise": Entry(
        "pipeline.advise:advise",
        "Advise on memory, workers and batches, from what the newest code took by the history of the fence row.",
    ),
    "bundle": Entry(
        "pipeline.bundle:bundle",
        "Write an archive with what the cluster has of a pipeline: no Secrets, and no values of variables.",
    ),
    "certify": Entry(
        "checkpoint.certify:certify",
        "Try what Fencepost needs of a store, in a keyspace or a schema that is dropped; exit code 1: not all.",
    ),
    "check": Entry(
        "authoring.check:check",
        "Find what is wrong with a manifest, its code or an image, before it runs; exit code 1 if something is.",
    ),
    "console": Entry(
        "pipeline.console:console",
        "Show pipelines in a browser, with your kubeconfig's rights; nothing can be changed there.",
    ),
    "explain": Entry("pipeline.explain:explain", "Explain what a pipeline's conditions mean and what to do."),
    "failover": Entry(
        "pipeline.lifecycle:failover",
        "Move a pipeline to the Kubernetes cluster that waits for it, after its batch is committed (spec.failover).",
    ),
    "logs": Entry(
        "pipeline.logs:logs",
        "Show the log of the current or the last run's driver; without its pod, the lines that outlived it.",
    ),
    "offsets": Entry(
        "checkpoint.offsets:offsets",
        "Show for each partition the log's begin and end, what is committed and planned, and the lag.",
    ),
    "replay": Entry(
        "authoring.replay:replay",
        "Run one past batch on this machine: the same records, token and version, and rows in a SQLite file alone.",
    ),
    "restart": Entry(
        "pipeline.lifecycle:restart",
        "Start a new run: at once where one waits or has failed for good, after its batch where one streams.",
    ),
    "resume": Entry(
        "pipeline.lifecycle:resume", "Let a suspended pipeline continue from its last commit (spec.suspend)."
    ),
    "rewind": Entry("checkpoint.rewind:rewind", "Let the pipeline read records again, as one PipelineRewind."),
    "run": Entry("authoring.run:run", "Run a pipeline on this machine; its rows go to tables of a SQLite file."),
    "sample": Entry(
        "authoring.sample:sample", "Write records of a pipeline's topics to a file that `run --local` and tests read."
    ),
    "suspend": Entry(
        "pipeline.lifecycle:suspend",
        "Stop a pipeline after its batch is committed, and remove its Spark cluster (spec.suspend).",
    ),
    "fence": Entry("checkpoint.fence:app", "The fence row, its history, and their proof."),
    "dead-letters": Entry(
        "checkpoint.dead_letters:app", "The records that a driver set aside because each fails alone."
    ),
    "retention": Entry("checkpoint.retention:app", "How long Kafka keeps the topics' records."),
    "snapshots": Entry("checkpoint.snapshots:app", "Immutable copies of the committed offsets."),
    "state": Entry("checkpoint.state:app", "The committed state of a stateful pipeline, which may run meanwhile."),
    "trial": Entry(
        "pipeline.trial:app",
        "New code on committed records beside the running pipeline, compared with the rows of its tables.",
    ),
    "autoscale": Entry("pipeline.autoscale:app", "The number of workers by load."),
}
"""In the order of the help."""

ADAPTERS: Final = {
    "cluster": "kubernetes.api:KubeconfigCluster",
    "objects": "kubernetes.pipeline_objects:KubeconfigObjects",
    "store": "fence_stores:open_store",
    "log": "kafka.log:watermarks",
    "leader_epoch": "kafka.epochs:leader_epoch",
    "configs": "kafka.settings:open_settings",
    "producer": "kafka.producer:open_producer",
    "records": "kafka.records:read_records",
    "parquet": "processes.parquet:write_parquet",
    "state": "state_reader:ask_state",
    "code": "processes.code:check_code",
    "image": "containers:inspect_image",
    "local": "processes.local:run_local",
    "serve": "web_server:serve",
    "certify": "certification:certify_store",
}
"""The place of each port's adapter below `stores`, as 'module:attribute'."""


class Commands(TyperGroup):
    """Imports a command when it is invoked, and ends one that cannot do its work with two lines and exit code 2."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - typer's own
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=entry.summary) for name, entry in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401 - typer's own type is private
        """Return the command itself, where `commands` has the help alone."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if found is None or name is None else loaded(name), rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own type is private
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CliError as error:
            _print(error)
        except (typer.Exit, typer.Abort, TyperException, BrokenPipeError):
            raise  # typer ends the process as they say
        except Exception as error:
            if os.environ.get(DEBUG):
                raise
            _print(
                CliError(
                    f"{type(error).__name__}: {error}", remedy=f"report it with the output of {DEBUG}=1 fencepost …"
                )
            )
        raise typer.Exit(ExitCode.FAILED)


def loaded(name: str) -> Any:  # noqa: ANN401 - typer's own type is private
    """Return the command or the group of this name, imported."""
    found = COMMANDS[name].load()
    of_one = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        of_one.add_typer(found, name=name)
    else:
        of_one.command(name)(found)
    return get_group(of_one).commands[name]


def adapter(place: str) -> Callable[..., Any]:
    """Return a port whose adapter, 'module:attribute' below `stores`, is imported when it is called."""

    def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - the adapter has the types
        return resolve_name(f"{_STORES}.{place}")(*given, **named)

    return call


def _print(error: CliError) -> None:
    from fencepost_cli.commands.output import print_error  # noqa: PLC0415 - rich is not needed for the help

    print_error(error)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Begin, check and run a streaming pipeline; show and explain what it does, verify it, and repair it.",
)


@app.callback()
def prepare(context: typer.Context) -> None:
    """Give the commands their adapters; a test gives its own."""
    # The clients' libraries log what the errors say.
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)
    if context.obj is None:
        from fencepost_cli.ports import Ports  # noqa: PLC0415 - the help of all commands needs none

        context.obj = Ports(**{name: adapter(place) for name, place in ADAPTERS.items()})
