"""The conditions of a status: Ready and Streaming always, Reconciling or Stalled while True and never both.

StandbyReady with restart.standby: whether a warm standby waits.
Unobserved when the facts about a run that holds the fence are too old.  PartitionsOffline while no leader answers for a
partition.  TransactionStalled while a producer's open transaction keeps
records from being read.  ProgressUnreadable from when the progress of a batch may not be read until it is read again;
SnapshotsUnreadable likewise.  RetentionRisk while Kafka is
about to delete records that are not committed, has deleted some, or keeps them for too short a time.  FallingBehind
while records arrive faster than full batches are committed.  WatermarkStuck while commits do not move the watermark of
a stateful pipeline, and LateRowsDropped while its operators drop rows as late.  StateNearLimit while its state takes
most of the room that workers have for it.  ScalingLimited while the target of autoscale is missed with the most
workers.  DurabilityAtRisk while a setting of Cassandra or Kafka lets an acknowledged
write be lost.  FailoverBlocked while a move to another Kubernetes cluster is asked for and does not begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from fencepost.contract import record_place
from fencepost.contract.guidance import remedy_of
from fencepost_operator.api import Condition, Reason, ReconcileConfig, Spec, Status, condition_after, condition_of
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.decision.cluster.autoscale import SCALING_LIMITED, scaling_limited
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.durability import DURABILITY_AT_RISK, weak_settings
from fencepost_operator.decision.kafka.event_time import (
    LATE_ROWS_DROPPED,
    WATERMARK_STUCK,
    late_rows_dropped,
    watermark_stuck,
)
from fencepost_operator.decision.kafka.retention_risk import RETENTION_RISK, retention_risk
from fencepost_operator.decision.kafka.throughput import FALLING_BEHIND_AFTER, is_falling_behind
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.decision.reporting.failover_condition import FAILOVER_BLOCKED, failover_blocked
from fencepost_operator.decision.reporting.standby_condition import STANDBY_READY, standby_ready
from fencepost_operator.decision.run.batch_progress import REMEDY, is_transient, refusal
from fencepost_operator.decision.run.blindness import UNOBSERVED, blindness
from fencepost_operator.decision.run.stored_state import STATE_NEAR_LIMIT, state_near_limit
from fencepost_operator.decision.wording import detail, listed, with_remedy, with_runbook
from fencepost_operator.observation import Known, NotAsked, Unknown

TRANSACTION_STALLED: Final = "TransactionStalled"
PROGRESS_UNREADABLE: Final = "ProgressUnreadable"
SNAPSHOTS_UNREADABLE: Final = "SnapshotsUnreadable"
FALLING_BEHIND: Final = "FallingBehind"
PARTITIONS_OFFLINE: Final = "PartitionsOffline"
OFFLINE_AFTER: Final = timedelta(minutes=3)
"""Without a leader before it is reported: an election takes seconds, a broker's restart a minute or two."""


def conditions(context: Context, outcome: Outcome) -> tuple[Condition, ...]:
    """Return all conditions of an outcome."""
    found = [_condition(context, "Ready", "True" if outcome.ready else "False", outcome.reason, outcome.message)]
    if outcome.stalled:
        found.append(_condition(context, "Stalled", "True", outcome.reason, outcome.message))
    elif not outcome.ready:
        found.append(_condition(context, "Reconciling", "True", outcome.reason, outcome.message))
    found.append(_streaming(context, outcome))
    if standby := standby_ready(context, outcome.status):
        found.append(_condition(context, STANDBY_READY, *standby))
    found.extend(
        _condition(context, kind, "True", reason, with_runbook(message, reason, context.config.runbook_url))
        for kind, reason, message in _warnings(context, outcome.status)
    )
    if message := failover_blocked(context, outcome):
        message = with_runbook(message, Reason.FAILOVER_BLOCKED, context.config.runbook_url)
        found.append(_condition(context, FAILOVER_BLOCKED, "True", Reason.FAILOVER_BLOCKED, message))
    return tuple(found)


def with_retention_risk(context: Context, status: Status) -> tuple[Condition, ...]:
    """Return the conditions of a status with RetentionRisk as it is now, and all others as they were."""
    others = tuple(found for found in status.conditions if found.type != RETENTION_RISK)
    risk = retention_risk(context, status)
    if risk is None:
        return others
    reason, message = risk
    message = with_runbook(message, reason, context.config.runbook_url)
    return (*others, _condition(context, RETENTION_RISK, "True", reason, message))


def _warnings(context: Context, status: Status) -> Iterator[tuple[str, Reason, str]]:
    """Yield type, reason and message of each warning about a pipeline that continues."""
    if message := blindness(context):
        yield UNOBSERVED, Reason.UNOBSERVED, message
    if message := stalled_transactions(context.config, status, context.now):
        yield TRANSACTION_STALLED, Reason.TRANSACTION_STALLED, message
    if message := offline_partitions(status, context.now):
        yield PARTITIONS_OFFLINE, Reason.PARTITIONS_OFFLINE, message
    if message := unreadable_progress(context):
        yield PROGRESS_UNREADABLE, Reason.PROGRESS_UNREADABLE, message
    if message := unreadable_snapshots(context):
        yield SNAPSHOTS_UNREADABLE, Reason.SNAPSHOTS_UNREADABLE, message
    if risk := retention_risk(context, status):
        yield RETENTION_RISK, *risk
    if message := falling_behind(context, status):
        yield FALLING_BEHIND, Reason.FALLING_BEHIND, message
    if message := scaling_limited(context, status):
        yield SCALING_LIMITED, Reason.SCALING_LIMITED, message
    yield from _of_stateful(context, status)
    if message := weak_settings(status):
        yield DURABILITY_AT_RISK, Reason.DURABILITY_AT_RISK, message


def _of_stateful(context: Context, status: Status) -> Iterator[tuple[str, Reason, str]]:
    if message := watermark_stuck(context, status):
        yield WATERMARK_STUCK, Reason.WATERMARK_STUCK, message
    if message := late_rows_dropped(status, context.now):
        yield LATE_ROWS_DROPPED, Reason.LATE_ROWS_DROPPED, message
    if message := state_near_limit(status):
        yield STATE_NEAR_LIMIT, Reason.STATE_NEAR_LIMIT, message


def falling_behind(context: Context, status: Status) -> str:
    """Return why the pipeline never catches up as it is, '' when it does or nothing runs."""
    figures = status.throughput
    if figures is None or not context.is_streaming or not is_falling_behind(figures):
        return ""
    lasted = format_duration(FALLING_BEHIND_AFTER.total_seconds())
    reason = Reason.FALLING_BEHIND if status.autoscale is None else Reason.SCALING_LIMITED
    return with_remedy(f"The lag has grown for at least {lasted} although every batch is full", remedy_of(reason))


def unreadable_progress(context: Context) -> str:
    """Return why the progress of batches may not be read, '' when it may.

    An observation that did not look, as between two batches, or that got no answer, changes nothing.
    """
    fence, progress = context.observation.fence, context.observation.progress
    if isinstance(fence, Unknown) or isinstance(progress, NotAsked) or is_transient(progress):
        return _reported_before(context, PROGRESS_UNREADABLE)
    if why := refusal(progress):
        effect = "a driver that hangs inside a batch is replaced only after twice the stall timeout"
        return with_remedy(f"{why[:1].upper()}{why[1:]}; {effect}", REMEDY)
    return ""


def unreadable_snapshots(context: Context) -> str:
    """Return why the snapshots may not be read, '' when they may.

    An observation that did not look, or that got no answer, changes nothing.
    """
    spec, fence, seen = context.pipeline.spec, context.observation.fence, context.observation.snapshots
    is_transient = isinstance(seen, Unknown) and seen.is_transient
    if not isinstance(spec, Spec) or isinstance(fence, Unknown) or is_transient or isinstance(seen, NotAsked):
        return _reported_before(context, SNAPSHOTS_UNREADABLE)
    if isinstance(seen, Known):
        return ""
    table = f"{spec.checkpoint.place}.snapshots"
    rights = "SELECT, MODIFY" if spec.checkpoint.cassandra else "SELECT, INSERT, UPDATE, DELETE"
    return with_remedy(
        f"Table {table} cannot be read: {detail(seen.message)}; no further snapshot is taken, and none is deleted",
        f"GRANT {rights} ON {table} TO the account of the pipeline's Secret",
    )


def _reported_before(context: Context, kind: str) -> str:
    before = condition_of(context.pipeline.status.conditions, kind)
    return before.message if before is not None else ""


def stalled_transactions(config: ReconcileConfig, status: Status, now: datetime) -> str:
    """Return which transactions are open for too long, '' when none is."""
    timeout = timedelta(seconds=config.transaction_timeout)
    stalled = [found for found in status.open_transactions if now - found.since >= timeout]
    if not stalled:
        return ""
    names = listed([record_place(found.partition, found.offset) for found in stalled])
    return with_remedy(
        f"An open transaction has kept records from being read for {format_duration(config.transaction_timeout)}: "
        f"{names}",
        remedy_of(Reason.TRANSACTION_STALLED),
    )


def offline_partitions(status: Status, now: datetime) -> str:
    """Return which partitions have had no leader for too long, '' when none has."""
    offline = [found for found in status.offline_partitions if now - found.since >= OFFLINE_AFTER]
    if not offline:
        return ""
    names = listed([f"{found.partition} since {found.since:%Y-%m-%d %H:%M} UTC" for found in offline])
    return with_remedy(
        f"No leader answers for {names}; the other partitions are read, and the lag does not count these",
        remedy_of(Reason.PARTITIONS_OFFLINE),
    )


def _streaming(context: Context, outcome: Outcome) -> Condition:
    run = outcome.status.run
    if run is None or run.ended_at is not None or run.claimed_at is None:
        return _condition(context, "Streaming", "False", outcome.reason, "No driver holds the fence")
    runs, fence = context.observation.runs, context.observation.fence
    readable = isinstance(context.pipeline.spec, Spec)  # an invalid spec does not say where the fence is
    if isinstance(runs, Unknown) or (readable and isinstance(fence, Unknown)):
        message = f"{run.name} held the fence when it was last seen"
        return _condition(context, "Streaming", "Unknown", outcome.reason, message)
    return _condition(context, "Streaming", "True", Reason.STREAMING, f"{run.name} holds the fence")


def _condition(context: Context, kind: str, status: str, reason: Reason, message: str) -> Condition:
    pipeline = context.pipeline
    before, generation = pipeline.status.conditions, pipeline.generation
    return condition_after(before, kind, status, reason, message, now=context.now, generation=generation)
