"""Where `spec.cluster.autoscale` leaves the number of workers to the operator: what the policy knows, and its effect.

The number is recorded in the status, and all rules find it in the spec, as if a user had set `cluster.workers`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import Final

from fencepost.contract.guidance import remedy_of
from fencepost.fence import FenceRow
from fencepost.fence.rates import backlog_rate
from fencepost_operator.api import (
    AutoscaleSpec,
    AutoscaleStatus,
    ClusterStatus,
    Pipeline,
    Reason,
    RunStatus,
    Spec,
    Status,
)
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.autoscaling.policy import Load, bounded, first, scaled, time_lag
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.kafka.retention import backlog
from fencepost_operator.decision.wording import with_remedy
from fencepost_operator.observation import Known, Observation, Watermarks

SCALING_LIMITED: Final = "ScalingLimited"
LIMITED_AFTER: Final = timedelta(minutes=5)
"""How long the target is missed with the most workers before that is reported: a burst is over by then."""


def with_chosen_workers(pipeline: Pipeline, status: Status) -> Pipeline:
    """Return the pipeline with the number of workers of a status in its spec, where the operator chooses it."""
    spec, chosen = pipeline.spec, status.autoscale
    if not isinstance(spec, Spec) or spec.cluster.autoscale is None or chosen is None:
        return pipeline
    cluster = replace(spec.cluster, workers=bounded(spec.cluster.autoscale, chosen.workers))
    return replace(pipeline, spec=replace(spec, cluster=cluster))


def autoscale(status: Status, spec: object, row: FenceRow | None, observation: Observation) -> AutoscaleStatus | None:
    """Return the number of workers after one more look, None where the spec says it.

    `status` still has the commit of the look before.  While Kafka or the fence row is not known, and while no run
    works, nothing changes but what the spec allows; without a valid spec nothing does.
    """
    if not isinstance(spec, Spec):
        return status.autoscale
    limits, source, now = spec.cluster.autoscale, observation.source, observation.now
    if limits is None:
        return None
    before = status.autoscale or first(limits, _installed(status), now)
    idle = Load(now=now, lag=0, arriving=None, usual=None, time_lag=0.0, measured=before.measured)
    if row is None or not isinstance(source, Known):
        is_allowed = bounded(limits, before.workers) == before.workers
        return before if is_allowed else scaled(before, limits, idle)
    run = status.run
    if run is None or not run.is_active or run.claimed_at is None or run.stop_requested_at is not None:
        return replace(scaled(before, limits, idle), limited_since=None)
    load = _load(status, spec, run, row, source.value, observation)
    return scaled(before, limits, replace(load, lacking=_is_lacking(before, status.cluster)))


def scaling_limited(context: Context, status: Status) -> str:
    """Return why the target is missed with the most workers, '' where it is not, or nothing runs."""
    chosen, spec = status.autoscale, context.pipeline.spec
    if chosen is None or not isinstance(spec, Spec) or spec.cluster.autoscale is None or not context.is_streaming:
        return ""
    since, limits = chosen.limited_since, spec.cluster.autoscale
    if since is None or context.now - since < LIMITED_AFTER:
        return ""
    limit, remedy = _limit(chosen, limits, status.cluster)
    return with_remedy(
        f"For at least {format_duration(LIMITED_AFTER.total_seconds())} records have waited for longer than "
        f"targetTimeLag, {format_duration(limits.target_time_lag)}, with {chosen.workers} workers, {limit}",
        remedy,
    )


def _limit(chosen: AutoscaleStatus, limits: AutoscaleSpec, cluster: ClusterStatus | None) -> tuple[str, str]:
    """Return what keeps further workers from helping, and what to do about it."""
    if _is_lacking(chosen, cluster):
        ready = cluster.ready_workers if cluster is not None else 0
        return f"of which {ready} are ready", "find out why the others are not, such as a quota or nodes without room"
    if chosen.workers >= limits.max_workers:
        return "which is maxWorkers", remedy_of(Reason.SCALING_LIMITED)
    return "which is as many as there are tasks for", "set source.kafka.splitPartitions to true, or add partitions"


def _is_lacking(chosen: AutoscaleStatus, cluster: ClusterStatus | None) -> bool:
    return cluster is None or cluster.ready_workers < chosen.workers


def _installed(status: Status) -> int:
    return status.cluster.workers if status.cluster is not None else 0


def _load(
    status: Status, spec: Spec, run: RunStatus, row: FenceRow, source: Watermarks, observation: Observation
) -> Load:
    """Return what is known of a pipeline whose run works."""
    arrivals, waiting = observation.arrivals, backlog(spec, observation, status.data_risk)
    lags = waiting.lags if waiting is not None else {}
    load = Load(
        now=observation.now,
        lag=sum(lags.values()),
        arriving=None,
        usual=None,
        time_lag=0.0,
        time_to_loss=waiting.time_to_loss if waiting is not None else None,
        rate=_rate(status, spec, run, row),
        measured=run.spec_hash.partition(".")[0],  # without the chart's part: an operator's upgrade changes no rate
        most_useful=_most_useful(spec, row, source),
    )
    if arrivals is None:
        return load
    usual = sum(arrivals.usual.values())
    return replace(
        load,
        # Where only the driver asks Kafka, the ends move once per batch: over seconds that looks like bursts.
        arriving=usual if source.by_driver else sum(arrivals.recent.values()),
        usual=usual,
        time_lag=time_lag(lags, arrivals.usual, waiting.time_lag if waiting is not None else None),
    )


def _rate(status: Status, spec: Spec, run: RunStatus, row: FenceRow) -> float | None:
    """Return the records per second of one worker in a batch of a backlog, once for each commit of the run."""
    is_own = row.epoch == run.epoch and row.committed_at != run.resumed_from
    is_counted = status.committed is not None and status.committed.version == row.version
    found = backlog_rate(row) if is_own and not is_counted else None
    return found.per_core * spec.cluster.worker.cores if found is not None else None


def _most_useful(spec: Spec, row: FenceRow, source: Watermarks) -> int | None:
    """Return the number of workers that have a task at the same time; None where a batch is cut into any number."""
    tasks = [spec.stateful.partitions] if spec.stateful is not None else []
    if not spec.source.kafka.split_partitions:
        tasks.append(len(row.offsets.keys() | source.ends.keys()))
    return max(1, math.ceil(min(tasks) / spec.cluster.worker.cores)) if tasks else None
