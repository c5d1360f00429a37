"""The Events of a decision: what is new since the previous status, reported once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from fencepost.contract.guidance import remedy_of
from fencepost_operator.api import (
    AutoscaleStatus,
    Event,
    EventType,
    MixedOutput,
    Reason,
    ReconcileConfig,
    Status,
    condition_of,
)
from fencepost_operator.decision.cluster.autoscale import SCALING_LIMITED
from fencepost_operator.decision.durability import weak_settings
from fencepost_operator.decision.kafka.event_time import LATE_ROWS_DROPPED, WATERMARK_STUCK
from fencepost_operator.decision.kafka.loss_status import described
from fencepost_operator.decision.kafka.retention_risk import RETENTION_RISK
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.decision.pausing import PAUSED
from fencepost_operator.decision.reporting.conditions import (
    FALLING_BEHIND,
    PARTITIONS_OFFLINE,
    PROGRESS_UNREADABLE,
    SNAPSHOTS_UNREADABLE,
    TRANSACTION_STALLED,
)
from fencepost_operator.decision.reporting.failover_condition import FAILOVER_BLOCKED
from fencepost_operator.decision.reporting.standby_condition import STANDBY_READY
from fencepost_operator.decision.run.blindness import UNOBSERVED
from fencepost_operator.decision.run.handoff import standby_of
from fencepost_operator.decision.run.stored_state import STATE_NEAR_LIMIT
from fencepost_operator.decision.wording import SHOWN, listed, with_remedy, with_runbook

REPORTED_BY_FACTS: Final = frozenset({Reason.FENCED, Reason.LOSS_ACCEPTED, Reason.PENDING, Reason.AUTOSCALED})
"""Reasons whose Event comes with the fact that they lead to, or that have none."""


def status_events(
    before: Status, after: Status, outcome: Outcome, config: ReconcileConfig, *, asks_to_run: bool
) -> tuple[Event, ...]:
    """Return the Events that lead from one status to the next; a warning names its runbook.

    `asks_to_run`: a valid spec of a pipeline that is not being deleted does not suspend it.
    """
    found = (*_facts(before, after), *_turn(before, after, outcome, asks_to_run=asks_to_run))
    return tuple(_with_page(event, after, config) for event in found)


def _with_page(event: Event, after: Status, config: ReconcileConfig) -> Event:
    if event.type is not EventType.WARNING:
        return event
    failure = after.failure if event.reason == Reason.RUN_FAILED else None
    page = failure.reason if failure is not None else event.reason
    return replace(event, message=with_runbook(event.message, page, config.runbook_url))


def _facts(before: Status, after: Status) -> Iterator[Event]:
    if before.epoch is None and after.epoch:
        message = f"Found this pipeline's fence at epoch {after.epoch}: it continues from the last commit there"
        yield _normal(Reason.RESUMED, message)
    elif after.epoch and after.epoch != before.epoch:
        yield _normal(Reason.FENCED, f"Epoch {after.epoch} began; no driver of an older epoch can commit")
    run, failure, cluster = after.run, after.failure, after.cluster
    if cluster is not None and cluster.ready_at is not None and (not before.cluster or not before.cluster.ready_at):
        yield _normal(Reason.CLUSTER_READY, f"The Spark master of cluster generation {cluster.generation} is ready")
    if run is not None and run.claimed_at is not None and not _had_claimed(before, run.epoch):
        yield _normal(Reason.RUN_CLAIMED, f"{run.name} claimed epoch {run.epoch}")
    if failure is not None and failure.count and (before.failure is None or before.failure.epoch != failure.epoch):
        message = with_remedy(f"Run {failure.epoch} failed ({failure.reason}): {failure.message}", failure.remedy)
        yield Event(EventType.WARNING, Reason.RUN_FAILED, message)
    if after.accepted_losses and after.accepted_losses[-1:] != before.accepted_losses[-1:]:
        yield _normal(Reason.LOSS_ACCEPTED, described(after.accepted_losses[-1]))
    yield from _standby(before, after)
    yield from _scaled(before.autoscale, after.autoscale)
    yield from _dead_letters(before, after)
    if after.mixed_output and after.mixed_output[-1:] != before.mixed_output[-1:]:
        yield Event(EventType.WARNING, Reason.MIXED_OUTPUT, _mixed(after.mixed_output[-1]))
    for kind in (
        UNOBSERVED,
        TRANSACTION_STALLED,
        PARTITIONS_OFFLINE,
        PROGRESS_UNREADABLE,
        SNAPSHOTS_UNREADABLE,
        RETENTION_RISK,
        FALLING_BEHIND,
        SCALING_LIMITED,
        WATERMARK_STUCK,
        LATE_ROWS_DROPPED,
        STATE_NEAR_LIMIT,
        FAILOVER_BLOCKED,
    ):
        yield from new_condition(before, after, kind)
    yield from _durability(before, after)


def new_condition(before: Status, after: Status, kind: str) -> Iterator[Event]:
    """Yield the Event of a condition that is there now, or has another reason."""
    found, was = condition_of(after.conditions, kind), condition_of(before.conditions, kind)
    if found is not None and (was is None or was.reason != found.reason):
        yield Event(EventType.WARNING, found.reason, found.message)


def _durability(before: Status, after: Status) -> Iterator[Event]:
    """Yield an Event for each change of what is at risk; another cause of what is not known is not such a change."""
    was, now = weak_settings(before), weak_settings(after)
    known = before.durability.weak if before.durability is not None else ()
    if now and after.durability is not None and after.durability.weak != known:
        yield Event(EventType.WARNING, Reason.DURABILITY_AT_RISK, now)
    elif was and not now:
        yield _normal(
            Reason.DURABLE, "No setting of Cassandra and Kafka that can be read puts acknowledged writes at risk"
        )


def _standby(before: Status, after: Status) -> Iterator[Event]:
    """Yield that a standby is warm, has failed, or has taken over; that one starts is said by the condition alone."""
    run, standby = after.run, standby_of(before)
    if standby is not None and run is not None and run.name == standby.name and before.run != run:
        replaced = before.run.name if before.run is not None else "the run before"
        yield _normal(Reason.STANDBY_TOOK_OVER, f"The standby {run.name} takes over from {replaced}")
    found, was = (condition_of(each.conditions, STANDBY_READY) for each in (after, before))
    if found is None or (was is not None and was.reason == found.reason):
        return
    if found.reason == Reason.STANDBY_WARM:
        yield _normal(Reason.STANDBY_WARM, found.message)
    elif found.reason == Reason.STANDBY_FAILED:
        yield Event(EventType.WARNING, Reason.STANDBY_FAILED, found.message)


def _scaled(before: AutoscaleStatus | None, after: AutoscaleStatus | None) -> Iterator[Event]:
    if before is not None and after is not None and before.workers != after.workers:
        message = f"Scaling from {before.workers} to {after.workers} workers: {after.message}"
        yield _normal(Reason.AUTOSCALED, message)


def _dead_letters(before: Status, after: Status) -> Iterator[Event]:
    old = before.dead_letters.count if before.dead_letters else 0
    written = after.dead_letters
    if written is None or written.count <= old or before.epoch is None:
        return  # before the first look it is not known which are new
    found = written.count - old
    what = "A record was" if found == 1 else f"{found} records were"
    message = f"{what} set aside as dead {'letter' if found == 1 else 'letters'}, {written.count} in all"
    where = f"; the last one is {written.last}" if written.last else ""
    yield _warning(Reason.DEAD_LETTER_WRITTEN, f"{message}{where}")


def _mixed(found: MixedOutput) -> str:
    """Return which range two versions of the code may have written, and how to purge it."""
    shown = listed([f"{each.partition} [{each.from_offset}, {each.until_offset})" for each in found.ranges])
    to = ", ".join(f"{each.partition}: {each.from_offset}" for each in found.ranges[:SHOWN])
    more = ", … (status.mixedOutput has the others)" if found.partitions > SHOWN else ""
    return with_remedy(
        f"Both {found.before} and {found.after} may have written output of {found.records} records: {shown}; "
        f"the code that began this batch does not finish it: {found.why}",
        "where the two write other rows for the same record, purge them: create a PipelineRewind with "
        f"to: {{offsets: {{{to}{more}}}}} and deleteOutput: true. It purges the sinks that the spec names: where "
        "the old code had another table, suspend the pipeline and name that table in spec.sinks until it is over",
    )


def _had_claimed(before: Status, epoch: int) -> bool:
    return before.run is not None and before.run.epoch == epoch and before.run.claimed_at is not None


def _turn(before: Status, after: Status, outcome: Outcome, *, asks_to_run: bool) -> Iterator[Event]:
    if condition_of(before.conditions, PAUSED) is not None:
        yield _normal(Reason.RESUMED, "Reconciliation resumed")
    was = condition_of(before.conditions, "Ready")
    if was is not None and was.reason == Reason.SUSPENDED and outcome.reason != Reason.SUSPENDED and asks_to_run:
        yield _normal(Reason.RESUMED, "Resumed: the pipeline continues from its last commit")
    if (was is not None and was.reason == outcome.reason) or outcome.reason in REPORTED_BY_FACTS:
        return
    if after.failure is not None and after.failure != before.failure and after.failure.reason == outcome.reason:
        return
    yield Event(EventType.WARNING if outcome.warning else EventType.NORMAL, outcome.reason, outcome.message)


def _warning(reason: Reason, message: str) -> Event:
    return Event(EventType.WARNING, reason, with_remedy(message, remedy_of(reason)))


def _normal(reason: Reason, message: str) -> Event:
    return Event(EventType.NORMAL, reason, message)
