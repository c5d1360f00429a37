"""What the pod of a trial reported, as the status has it. The pod runs a tenant's code: it may report anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fencepost.contract.trial import LONGEST_SAMPLE, SAMPLES, Sample, SinkFindings, TrialReport
from fencepost_operator.api import (
    PoisonFound,
    ProcessUse,
    PromotionState,
    RowCounts,
    TrialResources,
    TrialSample,
    TrialSink,
    TrialStatus,
)
from fencepost_operator.desired.jobs.trial_job import START_ALLOWANCE
from fencepost_operator.text import single_line

FITTING: Final = 0.9
"""Of the memory limit, what the trial may have used."""
MOST_SINKS: Final = 100
MOST_PROCESSES: Final = 10
LARGEST: Final = 2**63 - 1
ALLOWANCE: Final = f"{START_ALLOWANCE // 60} minutes"


def recorded(status: TrialStatus, report: TrialReport) -> TrialStatus:
    """Return the status with what was found."""
    sinks = tuple({sink.name: sink for sink in map(_sink, report.sinks[:MOST_SINKS])}.values())
    kinds: dict[str, list[TrialSample]] = {}
    for sample in report.samples:
        kinds.setdefault(sample.kind, []).append(_sample(sample))
    poison = PoisonFound(
        records=report.poison,
        first=single_line(report.first_poison, limit=300),
        error=single_line(report.poison_error, limit=500),
    )
    return replace(
        status,
        records=report.records,
        complete=report.is_complete,
        seconds=report.seconds,
        records_per_second=round(report.records / report.seconds, 1) if report.seconds else None,
        rows=_together(sinks),
        sinks=sinks,
        samples=tuple(sample for some in kinds.values() for sample in some[:SAMPLES]),
        poison=poison if report.poison else None,
        resources=_resources(report),
    )


def summary(status: TrialStatus, note: str = "") -> str:
    """Return what was found, in a few sentences; `note` is the pod's."""
    rows = status.rows or RowCounts()
    missing = "missing rows not looked for" if rows.missing is None else f"{rows.missing} missing"
    differing = f"{rows.changed} changed, {missing}, {rows.added} added"
    parts = [f"{rows.compared} rows compared: {rows.equal} equal, {differing}"]
    if rows.overwritten or rows.undecided:
        parts.append(f"{rows.overwritten + rows.undecided} could not be compared")
    if (status.records or 0) < (status.records_total or 0):
        parts.append(f"Only {status.records} of {status.records_total} records were processed")
    if status.poison is not None:
        parts.append(f"The new code cannot process {status.poison.records} records, {status.poison.first} first")
    if status.resources is not None and status.resources.fits is False:
        parts.append("It does not fit its limits")
    if note:
        parts.append(single_line(note, limit=200))
    if status.promotion is not None:
        parts.append(f"{_PROMOTED.get(status.promotion.state, 'Not promoted')}: {status.promotion.message}")
    return ". ".join(parts)


_PROMOTED: Final[dict[str, str]] = {
    PromotionState.PROMOTED: "Promoted",
    PromotionState.PROMOTING: "Promoting",
    PromotionState.REPORTED: "To promote",
}


def _sample(sample: Sample) -> TrialSample:
    return TrialSample(
        sink=single_line(sample.sink, limit=64),
        kind=sample.kind,
        key=single_line(sample.key, limit=LONGEST_SAMPLE),
        columns=single_line(sample.columns, limit=LONGEST_SAMPLE),
    )


def _sink(sink: SinkFindings) -> TrialSink:
    rows = RowCounts(
        compared=_sum(sink.equal, sink.changed, sink.added),
        equal=sink.equal,
        changed=sink.changed,
        missing=sink.missing,
        added=sink.added,
        overwritten=sink.overwritten,
        undecided=sink.undecided,
    )
    message = single_line(sink.message, limit=512)
    return TrialSink(name=single_line(sink.name, limit=64), rows=rows if sink.is_compared else None, message=message)


def _together(sinks: tuple[TrialSink, ...]) -> RowCounts:
    """Return the counts of all sinks; where one does not know its missing rows, nor do all together."""
    rows = [sink.rows for sink in sinks if sink.rows is not None]
    missing = [each.missing for each in rows if each.missing is not None]
    return RowCounts(
        compared=_sum(*(each.compared for each in rows)),
        equal=_sum(*(each.equal for each in rows)),
        changed=_sum(*(each.changed for each in rows)),
        missing=_sum(*missing) if rows and len(missing) == len(rows) else None,
        added=_sum(*(each.added for each in rows)),
        overwritten=_sum(*(each.overwritten for each in rows)),
        undecided=_sum(*(each.undecided for each in rows)),
    )


def _sum(*counts: int) -> int:
    """Return a sum that the API server takes: each count alone may be the largest of the CRD."""
    return min(sum(counts), LARGEST)


def _resources(report: TrialReport) -> TrialResources:
    peak, limit = report.peak_memory, report.memory_limit
    is_within = peak is None or limit is None or peak <= FITTING * limit
    processes = {single_line(each.name, limit=32): each for each in report.processes[:MOST_PROCESSES]}
    return TrialResources(
        processes=tuple(
            ProcessUse(name=name, peak_memory=each.peak_memory, cpu_seconds=each.cpu_seconds, peak_cpu=each.peak_cpu)
            for name, each in processes.items()
        ),
        peak_memory=peak,
        memory_limit=limit,
        fits=report.is_complete and is_within,
    )
