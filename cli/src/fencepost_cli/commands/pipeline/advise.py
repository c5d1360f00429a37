"""`fencepost advise`: sizes of a pipeline from what its history says that it took."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from fencepost.fence.figures import Figure
from fencepost_cli.commands.options import Needs, Target, of_pipeline, parse_since, parse_span
from fencepost_cli.commands.output import Column, number, print_fields, print_json, print_line, print_table, working
from fencepost_cli.errors import CliError
from fencepost_cli.history.advice import FEW, Advice, Backlog, Cost, advised, backlog, bounds, cost
from fencepost_cli.history.reading import in_order
from fencepost_cli.history.usage import Spread, Usage, usage
from fencepost_cli.readable import age, bytes_shown, timestamp

_PROCESSES: Final = (
    ("driver", Figure.DRIVER_CONTAINER, Figure.DRIVER_LIMIT),
    ("driver, Python", Figure.DRIVER_PYTHON, None),
    ("driver, JVM", Figure.DRIVER_JVM, None),
    ("worker", Figure.WORKER_CONTAINER, Figure.WORKER_LIMIT),
    ("worker, Python of one core", Figure.WORKER_PYTHON, None),
    ("worker, JVM of the executor", Figure.WORKER_JVM, None),
)


@of_pipeline(Needs.FENCE)
def advise(
    target: Target,
    since: Annotated[
        str | None, typer.Option("--since", help="Of the last 90m, 12h, 2d, or since a time. [default: seven days]")
    ] = None,
    catch_up: Annotated[
        str, typer.Option("--catch-up", metavar="SPAN", help="How long a backlog of one day may take.")
    ] = "6h",
) -> None:
    """Advise on memory, workers and batches, from what the newest code took by the history of the fence row."""
    moment, span = parse_since(since), parse_span(catch_up, "--catch-up")
    if not span:
        raise CliError("--catch-up must be longer than zero", remedy="write --catch-up 6h")
    name = target.fence.pipeline
    with target.store() as store, working("reading the history"):
        found = usage(in_order(name, store.changes, since=moment), bounds(target.spec), since=moment)
    advice = [] if found is None else advised(target.spec, found, catch_up=span)
    if target.is_json:
        print_json(
            {
                "pipeline": name,
                "history": None if found is None else _usage_json(found),
                "backlog": None if found is None else _backlog_json(backlog(found)),
                "costPerMillion": None if found is None else _cost_json(cost(target.spec, found)),
                "advice": [_advice_json(one) for one in advice],
            }
        )
        return
    if found is None:
        print_line(f"{name}: not enough history: it has no commit, and {FEW} are needed")
        return
    _print(name, target, found)
    print_line()
    print_table(
        [Column("FIELD"), Column("NOW"), Column("ADVICE"), Column("BECAUSE")],
        [(one.field, one.now, one.value or one.kind.value, one.because) for one in advice],
    )


def _print(name: str, target: Target, found: Usage) -> None:
    took = backlog(found)
    print_fields(
        {
            "Pipeline": name,
            "Code": found.code,
            "History": f"{found.commits:,} commits in {found.runs:,} epochs, from {timestamp(found.since)} to"
            f" {timestamp(found.until)} ({age(found.span)})",
            "Batches": f"{found.sizes.median:,} records in the median, {found.sizes.largest:,} at most;"
            f" {found.durations.median:,} ms and {found.durations.largest:,} ms",
            "Busy": f"{found.busy / found.span:.0%} of the time" if found.span else None,
            "Backlog": None if took is None else _backlog(took),
            "Cost": _cost(cost(target.spec, found)),
            "State": None if found.state_bytes is None else _state(found),
        }
    )
    print_line()
    print_table(
        [Column("PROCESS"), number("LARGEST"), number("LIMIT")],
        [(name, _shown(found, peak), _shown(found, limit) if limit else None) for name, peak, limit in _PROCESSES],
    )


def _shown(found: Usage, name: Figure) -> str | None:
    return bytes_shown(found.peaks[name]) if name in found.peaks else None


def _backlog(found: Backlog) -> str:
    takes = "never ends" if found.takes is None else f"takes {age(found.takes)}"
    return (
        f"{found.arriving:,.0f} records/s arrive, and {found.rate:,.0f} records/s of a backlog are done: one of a day"
        f" {takes}"
    )


def _cost(found: Cost | None) -> str | None:
    if found is None:
        return None
    text = f"{found.core_hours:,.3g} core-hours and {found.gib_hours:,.3g} GiB-hours requested per million {found.unit}"
    if found.backlog_core_hours is None or found.backlog_gib_hours is None:
        return text
    return f"{text}; on a backlog {found.backlog_core_hours:,.3g} and {found.backlog_gib_hours:,.3g}"


def _state(found: Usage) -> str:
    chunks = found.peaks.get(Figure.STATE_CHUNKS)
    shown = f" in {chunks:,} chunks" if chunks is not None else ""
    return f"{bytes_shown(found.state_bytes or 0)}{shown} at most"


def _usage_json(found: Usage) -> dict[str, Any]:
    return {
        "code": found.code,
        "since": found.since,
        "until": found.until,
        "commits": found.commits,
        "epochs": found.runs,
        "records": found.records,
        "rows": found.rows,
        "busySeconds": found.busy.total_seconds(),
        "largestLag": found.lag,
        "cores": found.cores or None,
        "batchRecords": _spread_json(found.sizes),
        "batchBytes": _spread_json(found.bytes),
        "batchMs": _spread_json(found.durations),
        "fullBatches": found.full,
        "fullBatchesByBound": dict(found.bounds),
        "peakBytes": {str(name): found.peaks.get(name) for name in Figure if name.startswith(("driver_", "worker_"))},
        "stateBytes": found.state_bytes,
        "stateChunks": found.peaks.get(Figure.STATE_CHUNKS),
    }


def _spread_json(found: Spread) -> dict[str, int]:
    return {"median": found.median, "p95": found.most, "largest": found.largest}


def _backlog_json(found: Backlog | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "arrivingPerSecond": round(found.arriving, 3),
        "donePerSecond": round(found.rate, 3),
        "dayTakesSeconds": None if found.takes is None else round(found.takes.total_seconds()),
    }


def _cost_json(found: Cost | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "unit": found.unit,
        "coreHours": found.core_hours,
        "gibHours": found.gib_hours,
        "backlogCoreHours": found.backlog_core_hours,
        "backlogGibHours": found.backlog_gib_hours,
    }


def _advice_json(one: Advice) -> dict[str, Any]:
    return {
        "field": one.field,
        "advice": one.kind.value,
        "now": one.now,
        "value": one.value,
        "because": one.because,
    }
