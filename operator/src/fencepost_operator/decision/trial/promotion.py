"""Whether the code of a trial becomes the pipeline's, and how far that is.

A pipeline that a tool writes from a repository is not changed here: the tool would take the change back. Its status has
the patch to commit instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fencepost_operator.api import Pipeline, Promotion, PromotionState, Trial, TrialSpec, TrialStatus
from fencepost_operator.api.promotion import CHANGED_SINCE, promoting_patch, unmet


def first(trial: Trial, spec: TrialSpec, status: TrialStatus, pipeline: Pipeline) -> Promotion | None:
    """Return what a completed trial means for the pipeline; None where it is not to be promoted."""
    if spec.promote_when is None:
        return None
    patch = json.dumps(promoting_patch(spec), sort_keys=True)
    if why := unmet(spec.promote_when, status):
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


def is_refused(promotion: Promotion | None) -> bool:
    """Return whether a trial that was to be promoted is not."""
    return promotion is not None and promotion.state in {PromotionState.NOT_MET, PromotionState.REFUSED}


def fields_of_job(spec: TrialSpec) -> dict[str, Any]:
    """Return the fields of spec.job that the trial has instead, in JSON."""
    found: dict[str, Any] = promoting_patch(spec)["spec"]["job"]
    return found
