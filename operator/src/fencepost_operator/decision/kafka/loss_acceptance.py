"""The annotation with which a user accepts a loss, `<id> by=<who> [continue=<how>]`: untrusted text of a tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fencepost.contract import ABANDON, EARLIEST, LONGEST_CHOICE, Loss, Reason, choice_problem
from fencepost_operator.api import ACCEPT_LOSS_ANNOTATION, ObjectKey
from fencepost_operator.text import single_line

LONGEST_NAME: Final = 253
LONGEST: Final = LONGEST_CHOICE + 1024
"""Characters of the annotation."""
SHOWN: Final = 60
"""Characters of a wrong word that a message repeats."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """An acceptance of the loss that was reported. `choice` is '' where there is one way to continue."""

    by: str
    choice: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Why an annotation accepts nothing."""

    problem: str


def read_acceptance(text: str, loss: Loss) -> Accepted | Refused | None:
    """Return what an annotation says about this loss; None without one."""
    words = text.split() if len(text) <= LONGEST else []
    if not words:
        return Refused(f"is longer than {LONGEST} characters") if text.strip() else None
    if words[0] != loss.id:
        return Refused(f"is about loss {_shown(words[0])}, not about {loss.id}")
    values = {"by": "", "continue": ""}
    for word in words[1:]:
        name, separator, value = word.partition("=")
        if not separator or name not in values or not value or values[name]:
            return Refused(f"has {_shown(word)} where one by=NAME or one continue=CHOICE belongs")
        values[name] = value
    by = single_line(values["by"], limit=LONGEST_NAME)
    if not by:
        return Refused("does not say who accepts the loss: add by=NAME")
    problem = choice_problem(loss, values["continue"])
    return Refused(single_line(problem)) if problem else Accepted(by=by, choice=values["continue"])


def commands(key: ObjectKey, loss: Loss) -> str:
    """Return the command that accepts a loss, and what else it may say."""
    if loss.reason is Reason.TOPIC_DELETED:
        effect = "the topic's positions are dropped; then remove it from source.kafka.topics, or create it again"
        return f"to continue without the topic, run: {_command(key, loss, f' continue={ABANDON}')} ({effect})"
    if loss.reason is Reason.TOPIC_RECREATED:
        first = f"{min(loss.topics, default='TOPIC')}/0:0"
        return (
            f"to read the new topic from its beginning, run: {_command(key, loss, f' continue={EARLIEST}')} "
            f"(or continue={first},… for other offsets, or continue={ABANDON} to forget what was read)"
        )
    if loss.reason is Reason.OFFSET_OUT_OF_RANGE:
        return (
            f"keep what is left with `fencepost retention extend {key} --to 14d`; then, to skip what retention deletes "
            f"before it is read, run: {_command(key, loss, f' continue={EARLIEST}')} "
            "(or, without continue=, to skip exactly these ranges)"
        )
    return f"to continue without these records, run: {_command(key, loss, '')}"


def _command(key: ObjectKey, loss: Loss, choice: str) -> str:
    value = f'"{loss.id} by=$USER{choice}"'
    return f"kubectl annotate spl -n {key.namespace} {key.name} {ACCEPT_LOSS_ANNOTATION}={value} --overwrite"


def _shown(word: str) -> str:
    return repr(single_line(word, limit=SHOWN))
