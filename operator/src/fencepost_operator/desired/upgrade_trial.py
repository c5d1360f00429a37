"""The PipelineTrial that an upgrade waits for."""

from __future__ import annotations

from typing import Any, Final

from fencepost_operator.api import GROUP, TRIAL_KIND, VERSION, Pipeline, Spec, TrialJob, TrialSince, TrialSpec
from fencepost_operator.api.codec import encode
from fencepost_operator.desired import labels
from fencepost_operator.desired.identity.code import tasks_image
from fencepost_operator.desired.owner import owner_reference

KEPT: Final = 7 * 24 * 3600.0
"""Seconds for which a trial is kept after its end. One that the object still asks for is then tried again."""
_DIGITS: Final = 8


def trial_name(pipeline: Pipeline, tried: str) -> str:
    """Return the name of the trial of what this generation of the object asks for; `tried` is its hash.

    The generation is in it, so that code which is asked for a second time is tried on what was committed since.
    """
    return f"{pipeline.key.name}-{pipeline.generation}-{tried[:_DIGITS]}"


def upgrade_trial(pipeline: Pipeline, spec: Spec, name: str, *, snapshot: str = "") -> dict[str, Any]:
    """Return the manifest of a trial of `spec`, which the pipeline's object asks for.

    It begins with a snapshot, by its id, or without one at upgrade.trial.since.  Its pod has one image, that of the
    tasks.
    """
    job, asked = spec.job, spec.upgrade.trial
    tried = TrialSpec(
        pipeline=pipeline.key.name,
        job=TrialJob(image=tasks_image(spec), code_from=job.code_from, entrypoint=job.entrypoint, args=job.args),
        since=TrialSince(snapshot=snapshot) if snapshot else TrialSince(duration=asked.since),
        compare=asked.compare,
        limits=asked.limits,
        ttl_after_finished=KEPT,
    )
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": TRIAL_KIND,
        "metadata": {
            "name": name,
            "namespace": pipeline.key.namespace,
            "labels": labels.upgrade_labels(pipeline.key),
            "ownerReferences": [owner_reference(pipeline)],
        },
        "spec": encode(tried),
    }
