"""`fencepost autoscale backtest`: what an autoscaler would have done with a pipeline's history."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from fencepost_cli.commands.options import Needs, Target, of_pipeline, parse_since, parse_span
from fencepost_cli.commands.output import Column, number, print_fields, print_json, print_line, print_table, working
from fencepost_cli.errors import CliError
from fencepost_cli.history.backtest import STEP, Outcome, Past, autoscaled, fixed, past
from fencepost_cli.history.reading import in_order
from fencepost_cli.readable import age, timestamp
from fencepost_operator.api import AutoscaleSpec
from fencepost_operator.api.spec.cluster import MOST_WORKERS

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The number of workers by load.")

REMEDY: Final = "suspend the pipeline for some minutes, so that it has a backlog, and resume it"
_STEP: Final = timedelta(seconds=STEP)
_MOST: Final = 10
_DEFAULT: Final = "[default: of cluster.autoscale, or {}]"


@app.callback()
def autoscale() -> None:
    """Keep `backtest` a command of the group."""


@app.command()
@of_pipeline(Needs.FENCE)
def backtest(
    target: Target,
    least: Annotated[
        int | None, typer.Option("--min", min=1, max=MOST_WORKERS, help=f"Least workers. {_DEFAULT.format('1')}")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, max=MOST_WORKERS, help=f"Most workers. {_DEFAULT.format('10')}")
    ] = None,
    lag: Annotated[
        str | None,
        typer.Option("--target", metavar="SPAN", help=f"How long a record may wait. {_DEFAULT.format('30s')}"),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Of the last 90m, 12h, 2d, or since a time. [default: seven days]")
    ] = None,
) -> None:
    """Show how many workers an autoscaler would have chosen, from the load in the history of the fence row."""
    name, spec, moment = target.fence.pipeline, target.spec, parse_since(since)
    own = spec.cluster.autoscale or AutoscaleSpec(max_workers=_MOST)
    limits = AutoscaleSpec(
        min_workers=own.min_workers if least is None else least,
        max_workers=own.max_workers if most is None else most,
        target_time_lag=own.target_time_lag if lag is None else parse_span(lag, "--target").total_seconds(),
    )
    if limits.min_workers > limits.max_workers or not limits.target_time_lag:
        raise CliError("--min must be at most --max, and --target longer than zero", remedy="correct the options")
    with target.store() as store, working("reading the history"):
        seen = past(in_order(name, store.changes, since=moment), since=moment)
    if seen is None:
        raise CliError(f"{name} has less than a minute of history", remedy="try again later")
    if seen.per_core is None:
        raise CliError("no batch read as much as it might, so what a worker does is not known", remedy=REMEDY)
    rate, batch = seen.per_core * spec.cluster.worker.cores, spec.source.kafka.target_batch_duration
    with working("playing the history"):
        found = autoscaled(seen, limits, rate=rate, batch=batch)
        now = fixed(seen, max(1, spec.cluster.workers), target=limits.target_time_lag, rate=rate, batch=batch)
    if target.is_json:
        print_json({"pipeline": name, "recordsPerSecond": rate, "autoscale": _json(found), "fixed": _json(now)})
        return
    _print(name, seen, found, now, workers=max(1, spec.cluster.workers), rate=rate)


def _print(name: str, seen: Past, found: Outcome, now: Outcome, *, workers: int, rate: float) -> None:
    print_table(
        [Column("TIME"), number("WORKERS"), Column("BECAUSE")],
        [(timestamp(each.at), str(each.workers), each.message) for each in found.chosen],
    )
    print_line()
    print_fields(
        {
            "Pipeline": name,
            "History": f"{age(len(seen.arrived) * _STEP)} from {timestamp(seen.since)}",
            "Rate": f"{rate:,.0f} records/s of one worker",
            "Autoscale": _outcome(found),
            f"Always {workers}": _outcome(now),
        }
    )


def _outcome(found: Outcome) -> str:
    return f"{found.worker_hours:,.1f} worker-hours, {age(found.over_target)} over the target"


def _json(found: Outcome) -> dict[str, Any]:
    return {
        "workerHours": round(found.worker_hours, 3),
        "overTargetSeconds": found.over_target.total_seconds(),
        "chosen": [{"at": each.at, "workers": each.workers, "because": each.message} for each in found.chosen],
    }
