"""What `fencepost trial` prints of a trial. Its spec, its rows and its pod's words are a tenant's text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from fencepost_cli.commands.output import NOTHING, Column, moment, number, print_fields, print_line, print_table
from fencepost_cli.readable import age
from fencepost_cli.trials import Outcome, outcome
from fencepost_operator.api import RowCounts, Trial, TrialResources, TrialSpec, TrialStatus, write_trial_status
from fencepost_operator.api.codec import encode
from fencepost_operator.api.quantities import bytes_text, duration_text
from fencepost_operator.api.trial import TrialSince

_COUNTS: Final = ("compared", "equal", "changed", "missing", "added", "overwritten", "undecided")
_MIB: Final = 1024 * 1024


def trial_json(trial: Trial, ended: Outcome) -> dict[str, Any]:
    """Return a trial for a script; `passed` is null while it is not over."""
    return {
        "trial": str(trial.key),
        "pipeline": trial.pipeline,
        "createdAt": trial.created_at,
        "spec": encode(trial.spec) if isinstance(trial.spec, TrialSpec) else None,
        "status": write_trial_status(trial.status),
        "passed": ended.passed,
        "why": ended.why or None,
    }


def print_trials(trials: Sequence[Trial], now: datetime) -> None:
    """Print a line for each."""
    print_table(
        [
            Column("NAME"), Column("AGE"), Column("STATE"), number("COMPARED"), number("CHANGED"), number("MISSING"),
            number("ADDED"), Column("PASSED"), Column("PROMOTION"), Column("CODE"),
        ],
        [
            (
                one.key.name, age(now - one.created_at), one.status.phase,
                *_counts(one.status.rows, ("compared", "changed", "missing", "added")),
                outcome(one).passed, one.status.promotion and one.status.promotion.state, _code(one),
            )
            for one in trials
        ],
    )  # fmt: skip


def print_trial(trial: Trial, ended: Outcome) -> None:
    """Print one with what it found."""
    status = trial.status
    print_fields(dict(_fields(trial)))
    if status.message:
        print_line()
        print_line(status.message)
    if status.sinks:
        _print_rows(status)
    if status.samples:
        print_line()
        columns = [Column("SINK"), Column("ROW"), Column("KEY"), Column("COLUMNS")]
        print_table(columns, [(one.sink, one.kind, one.key, one.columns or None) for one in status.samples])
    if status.resources is not None:
        _print_resources(status.resources)
    if status.promotion is not None:
        print_line()
        print_line(f"Promotion: {status.promotion.state}: {status.promotion.message}")
        if status.promotion.patch:
            print_line(f"patch: {status.promotion.patch}")
    if ended.passed is not None:
        print_line()
        print_line("Passed" if ended.passed else f"Not passed: {ended.why}", style="" if ended.passed else "red")


def _fields(trial: Trial) -> Iterator[tuple[str, object]]:
    status, spec = trial.status, trial.spec
    yield "Trial", trial.key
    yield "Pipeline", trial.pipeline
    yield "State", status.phase
    yield "Code", _code(trial)
    if isinstance(spec, TrialSpec):
        yield "Since", _since(spec.since)
    yield "Begun", moment(status.started_at)
    yield "Ended", moment(status.finished_at)
    if status.records_total is not None:
        yield "Records", f"{status.records or 0:,} of {status.records_total:,}"
    if status.records_per_second is not None:
        yield "Catch-up", f"{status.records_per_second:,.0f} records/s, in {status.seconds or 0.0:,.0f} s"
    if status.poison is not None:
        yield "Cannot process", f"{status.poison.records:,} records, {status.poison.first} first: {status.poison.error}"


def _code(trial: Trial) -> str:
    """Return what of spec.job is new, in a line."""
    if not isinstance(trial.spec, TrialSpec):
        return NOTHING
    job = trial.spec.job
    parts = [
        job.image,
        job.code_from and f"ConfigMap {job.code_from.config_map_name}",
        job.entrypoint,
        job.args is not None and " ".join(job.args),
    ]
    return ", ".join(part for part in parts if part)


def _since(since: TrialSince) -> str | None:
    if since.snapshot is not None:
        return f"snapshot {since.snapshot}"
    return moment(since.timestamp) if since.duration is None else f"{duration_text(since.duration)} before"


def _print_rows(status: TrialStatus) -> None:
    print_line()
    rows = [(one.name, *_counts(one.rows, _COUNTS), one.message or None) for one in status.sinks]
    if len(rows) > 1:
        rows.append(("all", *_counts(status.rows, _COUNTS), None))
    print_table([Column("SINK"), *(number(name.upper()) for name in _COUNTS), Column("NOTE")], rows)


def _counts(rows: RowCounts | None, names: Sequence[str]) -> list[int | None]:
    return [None if rows is None else getattr(rows, name) for name in names]


def _print_resources(found: TrialResources) -> None:
    print_line()
    rows: list[tuple[object, ...]] = [
        (one.name, _mebibytes(one.peak_memory), f"{one.cpu_seconds:,.1f}", f"{one.peak_cpu:.2f}")
        for one in found.processes
    ]
    rows.append(("pod", _mebibytes(found.peak_memory), None, None))
    print_table([Column("PROCESSES"), number("PEAK MEMORY"), number("CPU SECONDS"), number("PEAK CPUS")], rows)
    if found.fits is not None:
        limit = f": the pod has {bytes_text(found.memory_limit)}" if found.memory_limit else ""
        print_line(f"It {'fits' if found.fits else 'does not fit'} its limits{limit}")


def _mebibytes(size: int | None) -> str | None:
    return None if size is None else f"{size / _MIB:,.0f} MiB"
