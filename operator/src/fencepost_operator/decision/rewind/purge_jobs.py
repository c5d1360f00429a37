"""The Jobs of a rewind: which one is due, and its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost.contract.purge_request import PurgeRequest
from fencepost.fence import FenceRow
from fencepost_operator.actions import StartPurge
from fencepost_operator.api import ResolvedTarget, Rewind, RewindSpec, RewindStep, Status
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.rewind.target import start_of
from fencepost_operator.decision.run.open_batch import furthest, written_until
from fencepost_operator.desired.jobs.driver_config import driver_config
from fencepost_operator.desired.jobs.purge_job import count_job_name, purge_config, purge_job, purge_job_name
from fencepost_operator.observation import PurgeJob

PURGEABLE: Final = frozenset({"cassandra", "postgresql", "files", "plugin"})
"""Kinds of sinks of which output may be deleted."""


def purge_due(rewind: Rewind) -> str | None:
    """Return the name of the Job that the rewind waits for, None where its step has none."""
    status = rewind.status
    if not isinstance(rewind.spec, RewindSpec) or not rewind.spec.delete_output:
        return None
    if not status.has_begun:
        return count_job_name(rewind)
    if status.epoch is None or status.target is None or status.has_done(RewindStep.SET_OFFSETS):
        return None
    return purge_job_name(rewind, status.epoch)


def start_count(context: RunContext, rewind: Rewind, target: ResolvedTarget) -> StartPurge:
    """Return the Job that counts what would be deleted."""
    request = PurgeRequest(ranges=ranges(context.row, context.status, target))
    return _start(context, rewind, count_job_name(rewind), request)


def start_purge(context: RunContext, rewind: Rewind, target: ResolvedTarget) -> StartPurge:
    """Return the Job that deletes the output beyond the target."""
    row = context.row
    request = PurgeRequest(
        ranges=ranges(row, context.status, target), timestamp=deleted_at(row), committed=row.output_token
    )
    return _start(context, rewind, purge_job_name(rewind, row.epoch), request)


def deleted_at(row: FenceRow) -> int:
    """Return the timestamp of a deletion while the row has no driver, in µs.

    Whatever an older run wrote, or still writes, is older, since the takeover has moved the clock by two.  Whatever the
    next run writes is newer, also where the rewind is cancelled and that run begins on this very row.
    """
    return row.clock


def ranges(row: FenceRow, status: Status, target: ResolvedTarget) -> Mapping[str, tuple[int, int]]:
    """Return the offsets [start, until) of which there may be output beyond the target.

    A batch that failed may have been planned further than the piece of it that is planned now, as the row's `begun`
    keeps it, and never beyond the end of the log that its plan recorded.
    """
    reached = furthest(row.offsets, row.written_until, written_until(status, row))
    found = {key: (start_of(target, key), until) for key, until in sorted(reached.items())}
    return {
        key: (start, max(until, row.log_ends.get(key, until))) for key, (start, until) in found.items() if start < until
    }


def is_purged(job: PurgeJob) -> bool:
    """Return whether the Job has ended, and counted no row that is left."""
    return job.is_done and job.report is not None and job.report.left == 0


def unpurgeable(context: RunContext) -> tuple[str, ...]:
    """Return why output cannot be deleted, a sentence per sink of a kind that cannot; the count finds the others.

    The fence row says nothing of a deletion: a Kubernetes cluster that took over before the offsets are set would
    continue behind the deleted rows.
    """
    if context.spec.failover is not None:
        why = "deleteOutput is refused with spec.failover, because another Kubernetes cluster may take over meanwhile"
        return (f"{why}: delete the pipeline there, then remove spec.failover",)
    return tuple(
        f"the output of sink {sink.name} cannot be deleted: it is not a table, files or a sink of a package;"
        " set deleteOutput to false"
        for sink in context.spec.sinks
        if not {*sink.kinds} & PURGEABLE
    )


def _start(context: RunContext, rewind: Rewind, name: str, request: PurgeRequest) -> StartPurge:
    config = driver_config(
        key=context.pipeline.key,
        spec=context.spec,
        references=context.references.hashes,
        config=context.config,
        epoch=context.row.epoch,
        generation=0,
        owner=context.owner,
    )
    pipeline = context.pipeline
    return StartPurge(
        job=purge_job(pipeline=pipeline, spec=context.spec, config=config, rewind=rewind, name=name),
        config_map=purge_config(pipeline=pipeline, config=config, request=request, rewind=rewind, name=name),
    )
