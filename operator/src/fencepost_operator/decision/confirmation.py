"""A person's word that a driver is dead where Kubernetes cannot prove it.

Deleting the Node object is no such word: Kubernetes then deletes the pods of the node whether they have ended or not.
"""

from __future__ import annotations

from fencepost_operator.api import CONFIRM_DEAD_ANNOTATION, RunStatus
from fencepost_operator.decision.context import Context


def is_confirmed(context: Context, run: RunStatus) -> bool:
    """Return whether a person has said, for this very run, that its driver is dead."""
    return context.pipeline.annotations.get(CONFIRM_DEAD_ANNOTATION) == run.name


def how_to_prove(context: Context, run: RunStatus) -> str:
    """Return what a person does about a driver of which nobody knows whether it lives."""
    key = context.pipeline.key
    return (
        "bring the node back; or make sure that its machine is off and run: kubectl annotate streamingpipeline "
        f"{key.name} --namespace {key.namespace} --overwrite {CONFIRM_DEAD_ANNOTATION}={run.name}"
    )
