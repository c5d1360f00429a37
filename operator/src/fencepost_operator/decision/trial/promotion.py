"""Whether the code of a trial becomes the pipeline's, and how far that is.

A pipeline that a tool writes from a repository is not changed here: the tool would take the change back. Its status has
the patch to commit instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from fencepost_operator.api import Pipeline, Promotion, PromotionState, RowCounts, Trial, TrialSpec, TrialStatus
from fencepost_operator.api.codec import encode
from fencepost_operator.api.trial import TrialPromotion

CHANGED_SINCE: Final = "the pipeline's spec was changed since the trial began; create another PipelineTrial"


def first(
    trial: Trial, spec: TrialSpec, status: TrialStatus, pipeline: Pipeline, *, is_complete: bool
) -> Promotion | None:
    """Return what a completed trial means for the pipeline; None where it is not to be promoted.

    `is_complete` says that all records were processed, and that the status has what was found in each sink.
    """
    if spec.promote_when is None:
        return None
    patch = json.dumps({"spec": {"job": fields_of_job(spec)}}, sort_keys=True)
    if why := unmet(spec.promote_when, status, is_complete=is_complete):
        return Promotion(state=PromotionState.NOT_MET, message=why)
    if pipeline.generation != status.pipeline_generation:
        return Promotion(state=PromotionState.REFUSED, message=CHANGED_SINCE, patch=patch)
    if pipeline.managed_by:
        message = f"{pipeline.managed_by} writes this pipeline, so commit status.promotion.patch to its repository"
        return Promotion(state=PromotionState.REPORTED, message=message, patch=patch)
    message = f"the code of PipelineTrial {trial.key.name} becomes the pipeline's"
    return Promotion(state=PromotionState.PROMOTING, message=message, patch=patch)


def carried_through(spec: TrialSpec, status: TrialStatus, pipeline: Pipeline | None) -> Promotion:
    """Return how far a promotion is that was recorded: it is over once the pipeline's spec has the code."""
    patch = status.promotion.patch if status.promotion is not None else ""
    if pipeline is None or pipeline.deleting_since is not None or pipeline.uid != status.pipeline_uid:
        return Promotion(state=PromotionState.REFUSED, message="the pipeline was deleted", patch=patch)
    job = pipeline.written.get("job")
    if isinstance(job, Mapping) and all(job.get(name) == value for name, value in fields_of_job(spec).items()):
        return Promotion(state=PromotionState.PROMOTED, message="the pipeline's spec has the code", patch=patch)
    if pipeline.generation != status.pipeline_generation:
        return Promotion(state=PromotionState.REFUSED, message=CHANGED_SINCE, patch=patch)
    return Promotion(state=PromotionState.PROMOTING, message="the pipeline's spec is being changed", patch=patch)


def fields_of_job(spec: TrialSpec) -> dict[str, Any]:
    """Return the fields of spec.job that the trial has instead, in JSON."""
    found: dict[str, Any] = encode(spec.job)
    return found


def unmet(wanted: TrialPromotion, status: TrialStatus, *, is_complete: bool) -> str:
    """Return which condition of promoteWhen does not hold, '' where all do."""
    rows = status.rows or RowCounts()
    if (status.records or 0) < (status.records_total or 0):
        return "not all records were processed"
    if not is_complete:
        return "not all rows were compared"
    if status.poison is not None:
        return f"the new code cannot process {status.poison.records} records"
    if not rows.compared:
        return "no row was compared"
    if rows.missing is None and not wanted.ignore_missing:
        return "missing rows were not looked for; promoteWhen.ignoreMissing promotes nevertheless"
    counts = (
        ("changed", rows.changed, wanted.changed_rows),
        ("missing", 0 if wanted.ignore_missing else rows.missing or 0, wanted.missing_rows),
        ("added", rows.added, wanted.added_rows),
    )
    return "; ".join(f"{found} {name} rows are more than {most}" for name, found, most in counts if found > most)
