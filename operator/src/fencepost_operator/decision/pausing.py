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
    Pipeline,
    Reason,
    Status,
    asks_for_pause,
    condition_after,
    condition_of,
)
from fencepost_operator.decision.wording import with_remedy

PAUSED: Final = "Paused"


def is_paused(pipeline: Pipeline) -> bool:
    """Return whether the annotation asks for nothing to be done."""
    return pipeline.deleting_since is None and asks_for_pause(pipeline.annotations.get(PAUSED_ANNOTATION))


def paused(pipeline: Pipeline, now: datetime) -> Status:
    """Return the status with the condition that says so; one that has none yet gets the three of every status."""
    before, key, generation = pipeline.status.conditions, pipeline.key, pipeline.generation
    kinds = {} if condition_of(before, "Ready") else {"Ready": "False", "Reconciling": "True", "Streaming": "False"}
    if condition_of(before, PAUSED) is None:
        kinds[PAUSED] = "True"
    message = with_remedy(
        f"Paused by the annotation {PAUSED_ANNOTATION}: nothing is started, replaced or stopped, a "
        "PipelineRewind waits, and the rest of the status but RetentionRisk is as it was before",
        f"to continue, run: kubectl annotate streamingpipeline {key.name} --namespace {key.namespace} "
        f"{PAUSED_ANNOTATION}-",
    )
    added = (
        condition_after(before, kind, status, Reason.PAUSED, message, now=now, generation=generation)
        for kind, status in kinds.items()
    )
    return replace(pipeline.status, conditions=(*before, *added))
