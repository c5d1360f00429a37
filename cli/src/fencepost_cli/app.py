"""The commands put together, with the adapters that they use."""

from __future__ import annotations

import logging
import os
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from fencepost_cli.commands import (
    advise,
    bundle,
    certify,
    check,
    console,
    dead_letters,
    explain,
    fence,
    init,
    lifecycle,
    logs,
    offsets,
    replay,
    retention,
    rewind,
    run,
    sample,
    snapshots,
    state,
    trial,
)
from fencepost_cli.commands.output import print_error
from fencepost_cli.errors import CliError, ExitCode
from fencepost_cli.ports import Ports
from fencepost_cli.stores.cassandra import open_store
from fencepost_cli.stores.certification import certify_store
from fencepost_cli.stores.code_process import check_code
from fencepost_cli.stores.containers import inspect_image
from fencepost_cli.stores.kafka_epochs import leader_epoch
from fencepost_cli.stores.kafka_log import watermarks
from fencepost_cli.stores.kafka_producer import open_producer
from fencepost_cli.stores.kafka_records import read_records
from fencepost_cli.stores.kafka_settings import open_settings
from fencepost_cli.stores.kubernetes_api import KubeconfigCluster
from fencepost_cli.stores.local_process import run_local
from fencepost_cli.stores.parquet_process import write_parquet
from fencepost_cli.stores.pipeline_objects import KubeconfigObjects
from fencepost_cli.stores.state_reader import ask_state
from fencepost_cli.stores.web_server import serve

DEBUG: Final = "FENCEPOST_DEBUG"
"""With this variable set, an error of the program itself shows its traceback."""


class Commands(TyperGroup):
    """Ends a command that cannot do its work with two lines and exit code 2."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own type is private
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CliError as error:
            print_error(error)
        except (typer.Exit, typer.Abort, TyperException, BrokenPipeError):
            raise  # typer ends the process as they say
        except Exception as error:
            if os.environ.get(DEBUG):
                raise
            print_error(
                CliError(
                    f"{type(error).__name__}: {error}", remedy=f"report it with the output of {DEBUG}=1 fencepost …"
                )
            )
        raise typer.Exit(ExitCode.FAILED)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Begin, check and run a streaming pipeline; show and explain what it does, verify it, and repair it.",
)
app.add_typer(fence.app, name="fence")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(retention.app, name="retention")
app.add_typer(snapshots.app, name="snapshots")
app.add_typer(state.app, name="state")
app.add_typer(trial.app, name="trial")
app.command("init")(init.init)
app.command("advise")(advise.advise)
app.command("bundle")(bundle.bundle)
app.command("certify")(certify.certify)
app.command("check")(check.check)
app.command("console")(console.console)
app.command("explain")(explain.explain)
app.command("logs")(logs.logs)
app.command("offsets")(offsets.offsets)
app.command("replay")(replay.replay)
app.command("restart")(lifecycle.restart)
app.command("resume")(lifecycle.resume)
app.command("rewind")(rewind.rewind)
app.command("run")(run.run)
app.command("sample")(sample.sample)
app.command("suspend")(lifecycle.suspend)


@app.callback()
def prepare(context: typer.Context) -> None:
    """Give the commands their adapters; a test gives its own."""
    # The clients' libraries log what the errors say.
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)
    if context.obj is None:
        context.obj = Ports(
            cluster=KubeconfigCluster,
            objects=KubeconfigObjects,
            store=open_store,
            log=watermarks,
            leader_epoch=leader_epoch,
            configs=open_settings,
            producer=open_producer,
            records=read_records,
            parquet=write_parquet,
            state=ask_state,
            code=check_code,
            image=inspect_image,
            local=run_local,
            serve=serve,
            certify=certify_store,
        )
