"""The condition StandbyReady: whether a run is warm that takes over when the one that works fails, and why not."""

from __future__ import annotations

from typing import Final

from fencepost.contract.guidance import remedy_of
from fencepost_operator.api import Reason, Spec, Standby, Status, condition_of
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.run.handoff import is_warm, job_named, standby_of
from fencepost_operator.decision.wording import with_remedy
from fencepost_operator.observation import Unknown

STANDBY_READY: Final = "StandbyReady"


def standby_ready(context: Context, status: Status) -> tuple[str, Reason, str] | None:
    """Return the condition's status, reason and message; None where no standby is asked for.

    Without an answer about the Jobs it is as it was.
    """
    spec, before = context.pipeline.spec, condition_of(context.pipeline.status.conditions, STANDBY_READY)
    if not isinstance(spec, Spec) or spec.restart.standby is not Standby.WARM:
        return None
    if spec.suspend or context.pipeline.deleting_since is not None:
        return None
    if isinstance(context.observation.runs, Unknown) and before is not None:
        return before.status, Reason(before.reason), before.message
    return _found(context, status)


def _found(context: Context, status: Status) -> tuple[str, Reason, str]:
    standby, failed = standby_of(status), status.standby
    job = job_named(context.runs, standby.name) if standby is not None else None
    if job is not None and job.pod is not None and is_warm(job):
        where = f" on node {job.pod.node}" if job.pod.node else ""
        return "True", Reason.STANDBY_WARM, f"{job.name} is warm{where}, and takes over when the run before it fails"
    if failed is not None:
        again = f"; the next one starts at {failed.next_attempt_at:%H:%M:%S} UTC" if failed.next_attempt_at else ""
        many = f"{failed.failures} standbys in a row have" if failed.failures > 1 else "The standby has"
        message = f"{many} failed, and the pipeline runs without one{again}: {failed.message}"
        return "False", Reason.STANDBY_FAILED, with_remedy(message, failed.remedy or remedy_of(Reason.STANDBY_FAILED))
    if standby is not None:
        return "False", Reason.STANDBY_STARTING, f"{standby.name} gets warm beside the run that works"
    return "False", Reason.STANDBY_STARTING, "A standby starts as soon as a run works"
