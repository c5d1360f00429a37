"""What a pipeline's conditions mean, and what to do: the guidance of their reasons, with the pipeline's own names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fencepost.contract.guidance import Guidance, Step, guidance_of
from fencepost_cli.ports import Json
from fencepost_operator.api import Condition, ObjectKey, Status, read_status

FAILURE: Final = "Failure"
"""In place of a condition's type: the newest failed run."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""What Kubernetes takes as a name, which no shell reads as anything else."""
_GOOD_WHEN_TRUE: Final = frozenset({"Ready", "Streaming"})
_STEPS: Final = "Reconciling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A condition, or the newest failure, in words. `guidance` is None for a reason of another release.

    `steps` are those of the guidance, with the pipeline's names in their commands.
    """

    kind: str
    status: str
    reason: str
    message: str
    since: datetime | None
    is_wrong: bool
    guidance: Guidance | None
    remedy: str
    steps: tuple[Step, ...]


def explained(body: Json) -> tuple[Explained, ...]:
    """Return the conditions of a pipeline, what is wrong first, and then its newest failure."""
    status, words = read_status(body.get("status")), words_of(body)
    found = [_condition(one, status, words) for one in status.conditions]
    found.sort(key=lambda one: (not one.is_wrong, one.kind))
    return (*found, *_failure(status, words))


def steps_of(reason: str, words: Mapping[str, str]) -> tuple[Step, ...]:
    """Return the steps of a reason's runbook, with these words in place of those in capitals."""
    guidance = guidance_of(reason)
    return tuple(Step(step.text, filled(step.command, words)) for step in guidance.steps) if guidance else ()


def words_of(body: Json) -> dict[str, str]:
    """Return what stands for the words in capitals of a command, as far as it is known and safe in a shell."""
    metadata, status = body["metadata"], read_status(body.get("status"))
    run = status.run
    words = {
        "NAMESPACE": metadata["namespace"],
        "NAME": metadata["name"],
        "EPOCH": str(run.epoch) if run else "",
        "POD": (run.pod_name or "") if run else "",
        "NODE": (run.node_name or "") if run else "",
    }
    return {word: text for word, text in words.items() if _NAME.fullmatch(text)}


def filled(command: str, words: Mapping[str, str]) -> str:
    """Return a command with these words in place of those in capitals."""
    return re.sub(r"\b[A-Z]+\b", lambda found: words.get(found[0], found[0]), command)


def named(key: ObjectKey) -> dict[str, str]:
    """Return the words of a pipeline of which only the place is known."""
    return {word: text for word, text in (("NAMESPACE", key.namespace), ("NAME", key.name)) if _NAME.fullmatch(text)}


def _condition(one: Condition, status: Status, words: Mapping[str, str]) -> Explained:
    guidance = guidance_of(one.reason)
    return Explained(
        kind=one.type,
        status=one.status,
        reason=one.reason,
        message=one.message,
        since=one.last_transition_time,
        is_wrong=_is_wrong(one, status),
        guidance=guidance,
        remedy=guidance.remedy if guidance else "",
        steps=steps_of(one.reason, words),
    )


def _is_wrong(one: Condition, status: Status) -> bool:
    if one.type == "Streaming":  # Ready says whether it should be
        return one.status == "False" and any(
            other.type == "Ready" and other.status == "False" for other in status.conditions
        )
    return one.status != "True" if one.type in _GOOD_WHEN_TRUE else one.status == "True" and one.type != _STEPS


def _failure(status: Status, words: Mapping[str, str]) -> tuple[Explained, ...]:
    failure = status.failure
    if failure is None:
        return ()
    return (
        Explained(
            kind=FAILURE,
            status="",
            reason=failure.reason,
            message=failure.message,
            since=failure.at,
            is_wrong=False,
            guidance=guidance_of(failure.reason),
            remedy=failure.remedy,
            steps=steps_of(failure.reason, {**words, "EPOCH": str(failure.epoch)}),
        ),
    )
