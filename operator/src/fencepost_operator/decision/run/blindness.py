"""What the operator cannot observe of a run: it does not replace the run, and pages when that lasts.  Pure.

A driver that hangs meanwhile is not found.  So Ready is not True on facts that are older than `page_not_ready_after`,
and the condition Unobserved pages.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from fencepost.contract.guidance import remedy_of
from fencepost_operator.api import Pipeline, Reason, Spec, Status
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.wording import detail, with_remedy
from fencepost_operator.observation import Known, Observation, Unknown, UnknownReason

UNOBSERVED: Final = "Unobserved"
NO_SIGN: Final = Unknown(
    reason=UnknownReason.REJECTED,
    message="the driver gives no sign of life, and only the driver may connect to Kafka",
    remedy="create the table fence_progress (docs/fence-schema.cql), and grant the account SELECT and MODIFY on it",
)


def unobserved_since(pipeline: Pipeline, observation: Observation, status: Status) -> datetime | None:
    """Return since when some fact is unknown that Ready is about, None while all are known."""
    spec = pipeline.spec
    if not isinstance(spec, Spec) or spec.suspend or pipeline.deleting_since is not None:
        return None
    if unknown_fact(observation, status) is None:
        return None
    return pipeline.status.unobserved_since or observation.now


def unknown_fact(observation: Observation, status: Status) -> Unknown | None:
    """Return a fact that Ready is about and that is unknown: the Jobs, what they use, the fence row, what is read."""
    facts = (observation.references, observation.runs, observation.fence, observation.source)
    unknown = next((fact for fact in facts if isinstance(fact, Unknown)), None)
    return unknown or unknown_life(observation, status)


def unknown_life(observation: Observation, status: Status) -> Unknown | None:
    """Return why it is unknown whether an idle driver works where only it may connect to Kafka, None where it is not.

    Its offsets match the log's ends as it last saw them, whether it looks again or hangs.
    """
    fence, source, committed = observation.fence, observation.source, status.committed
    row = fence.value if isinstance(fence, Known) else None
    is_alone = isinstance(source, Known) and source.value.by_driver
    if row is None or row.driver is None or not is_alone or not row.is_between_batches:
        return None
    if isinstance(observation.progress, Unknown):
        return observation.progress
    return NO_SIGN if committed is None or committed.alive_at is None else None


def is_blind(context: Context) -> bool:
    """Return whether a fact has been unknown for so long that the operator must page."""
    since = context.status.unobserved_since
    return since is not None and context.now - since >= timedelta(seconds=context.config.page_not_ready_after)


def unseen(context: Context) -> str:
    """Return since when nothing was seen of a run."""
    since = context.status.unobserved_since
    return f"whether the run still commits has not been observed since {since:%Y-%m-%d %H:%M} UTC"


def blindness(context: Context) -> str:
    """Return what is not seen of a run that holds the fence, '' where all is, or was so a short time ago."""
    unknown = unknown_fact(context.observation, context.status)
    if unknown is None or not context.is_streaming or not is_blind(context):
        return ""
    why = unseen(context)
    return with_remedy(
        f"{why[:1].upper()}{why[1:]}: {detail(unknown.message)}; a driver that hangs is not replaced meanwhile",
        unknown.remedy or remedy_of(Reason.UNOBSERVED),
    )
