"""Reconciliation paused by an annotation: a run continues, and nothing restarts it.

The status stays what it was when the pause began, with one condition more, but for what threatens unread records: Kafka
deletes them also while nothing reconciles the pipeline.  A pipeline that is being deleted is not
paused: its finalizer would keep it forever.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from fencepost_operator.api import (
    PAUSED_ANNOTATION,
    Condition,
    Event,
    EventType,
    Pipeline,
    Reason,
    Status,
    asks_for_pause,
)
from fencepost_operator.decision.wording import with_remedy

PAUSED: Final = "Paused"


def is_paused(pipeline: Pipeline) -> bool:
    """Return whether the annotation asks for nothing to be done."""
    return pipeline.deleting_since is None and asks_for_pause(pipeline.annotations.get(PAUSED_ANNOTATION))


def paused(pipeline: Pipeline, now: datetime) -> Status:
    """Return the status with the condition that says so; one that has none yet gets the three of every status."""
    before = {condition.type: condition for condition in pipeline.status.conditions}
    kinds = {"Ready": "False", "Reconciling": "True", "Streaming": "False"} if "Ready" not in before else {}
    added = [_condition(pipeline, kind, status, now) for kind, status in kinds.items()]
    if PAUSED not in before:
        added.append(_condition(pipeline, PAUSED, "True", now))
    if not added:
        return pipeline.status
    return replace(pipeline.status, conditions=(*pipeline.status.conditions, *added))


def pause_events(before: Status, after: Status) -> tuple[Event, ...]:
    """Return the Event of a pause that begins."""
    if any(condition.type == PAUSED for condition in before.conditions):
        return ()
    (condition,) = [condition for condition in after.conditions if condition.type == PAUSED]
    return (Event(EventType.WARNING, Reason.PAUSED, condition.message),)


def _condition(pipeline: Pipeline, kind: str, status: str, now: datetime) -> Condition:
    key = pipeline.key
    message = with_remedy(
        f"Paused by the annotation {PAUSED_ANNOTATION}: nothing is started, replaced or stopped, a "
        "PipelineRewind waits, and the rest of the status but RetentionRisk is as it was before",
        f"to continue, run: kubectl annotate streamingpipeline {key.name} --namespace {key.namespace} "
        f"{PAUSED_ANNOTATION}-",
    )
    return Condition(
        type=kind,
        status=status,
        reason=Reason.PAUSED,
        message=message,
        last_transition_time=now.replace(microsecond=0),
        observed_generation=pipeline.generation,
    )
