"""The condition RetentionRisk: why Kafka may delete records before they are committed, and how to prevent it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from fencepost.contract import split_offset_key
from fencepost_operator.api import PAUSED_ANNOTATION, Condition, DataRisk, ObjectKey, Reason, Spec, Status, condition_of
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.kafka.retention import BY_TIME
from fencepost_operator.decision.pausing import is_paused
from fencepost_operator.decision.wording import listed, with_remedy
from fencepost_operator.observation import DRIVER_ONLY, Known

RETENTION_RISK: Final = "RetentionRisk"
SHORTEST_RETENTION: Final = timedelta(hours=72)
"""A failure on Friday evening is found on Monday morning."""
_LONGEST_EXTENSION: Final = 87_600
"""Hours that `fencepost retention extend` takes at most."""
_HYSTERESIS: Final = 0.1
"""Of the time of warning, by which the danger must be past before the condition ends."""
_ADVISED: Final = timedelta(days=7)
"""Kafka's own default retention."""
_HOUR: Final = 3_600_000
"""Milliseconds."""


def retention_risk(context: Context, status: Status) -> tuple[Reason, str] | None:
    """Return the reason and the message, the most urgent one; None without a risk."""
    risk = status.data_risk
    before = condition_of(context.pipeline.status.conditions, RETENTION_RISK)
    if risk is not None and risk.partition is not None:
        if risk.lost_records:
            return Reason.DATA_EXPIRED, _expired(risk, risk.partition)
        if _is_near(risk, before, context.now):
            return Reason.DATA_EXPIRES_SOON, _expires_soon(context, risk, risk.partition)
    return _too_short(context, before)


def _is_near(risk: DataRisk, before: Condition | None, now: datetime) -> bool:
    if risk.warn_at is None or risk.expires_at is None:
        return False
    is_reported = before is not None and before.reason == Reason.DATA_EXPIRES_SOON
    return now >= risk.warn_at - (risk.expires_at - risk.warn_at) * (_HYSTERESIS if is_reported else 0)


def _expires_soon(context: Context, risk: DataRisk, partition: str) -> str:
    by_time = risk.limit == BY_TIME
    value = (risk.retention_ms if by_time else risk.retention_bytes) or 0
    since = f", there since {_moment(risk.oldest_uncommitted_at)}," if risk.oldest_uncommitted_at is not None else ""
    estimate = "" if by_time else ", estimated by how fast the start of its log advances"
    return with_remedy(
        f"Kafka may delete the oldest uncommitted record of {partition}, at offset {risk.offset}{since} from "
        f"{_moment(risk.expires_at)} on ({risk.limit}={value}{estimate})",
        *_how_to_continue(context),
        _extend(context.pipeline.key, partition, risk),
    )


def _expired(risk: DataRisk, partition: str) -> str:
    return with_remedy(
        f"Kafka has deleted {risk.lost_records} records of {partition} from offset {risk.offset} on that were not "
        "committed",
        "see lost records in the runbook FencepostPipelineNotReady: a driver stops where it finds them gone",
    )


def _how_to_continue(context: Context) -> tuple[str, ...]:
    """Return how the pipeline gets to read the records."""
    key, spec = context.pipeline.key, context.pipeline.spec
    if is_paused(context.pipeline) and not context.is_streaming:
        return (f"run kubectl annotate spl -n {key.namespace} {key.name} {PAUSED_ANNOTATION}- to continue",)
    if isinstance(spec, Spec) and spec.suspend:
        patch = '{"spec":{"suspend":false}}'
        return (f"run kubectl patch spl -n {key.namespace} {key.name} --type merge -p '{patch}' to resume",)
    if context.is_streaming:
        return ("the pipeline is behind: add workers, or see the runbook FencepostPipelineLagGrowing",)
    return ("correct what the condition Ready names",)


def _extend(key: ObjectKey, partition: str, risk: DataRisk) -> str:
    """Return the command that keeps the records as long again, and notes what was there before."""
    topic, _ = split_offset_key(partition)
    if risk.limit == BY_TIME:
        how = f"--hours {min(_LONGEST_EXTENSION, max(1, (risk.retention_ms or 0) // _HOUR))}"
    else:
        how = f"--to {_ADVISED.days}d --lift-size"
    return f"run fencepost retention extend {key} --topic {topic} {how} to keep the records longer"


def _lengthen(topic: str) -> str:
    """Return the command that gives a topic a longer retention for good."""
    return (
        "run kafka-configs.sh --bootstrap-server SERVER --alter --entity-type topics --entity-name "
        f"{topic} --add-config {BY_TIME}={_ADVISED // timedelta(milliseconds=1)} to keep the records longer"
    )


def _too_short(context: Context, before: Condition | None) -> tuple[Reason, str] | None:
    """Return the standing warning; what cannot be seen now changes nothing."""
    unread = context.observation.unread
    facts = unread.value.retention if isinstance(unread, Known) else {}
    short = {
        topic: fact.value.time
        for topic, fact in sorted(facts.items())
        if isinstance(fact, Known) and fact.value.time is not None and fact.value.time < SHORTEST_RETENTION
    }
    if not short:
        looked = unread == DRIVER_ONLY or isinstance(unread, Known)
        seen = looked and all(isinstance(fact, Known) for fact in facts.values())
        is_reported = before is not None and before.reason == Reason.RETENTION_TOO_SHORT
        return (Reason.RETENTION_TOO_SHORT, before.message) if before is not None and is_reported and not seen else None
    topics = listed([f"{topic} for {format_duration(time.total_seconds())}" for topic, time in short.items()])
    return Reason.RETENTION_TOO_SHORT, with_remedy(
        f"Kafka keeps records of topic {topics}, which is less than "
        f"{format_duration(SHORTEST_RETENTION.total_seconds())}: a failure at the start of a weekend may cost records",
        _lengthen(next(iter(short))),
    )


def _moment(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"
