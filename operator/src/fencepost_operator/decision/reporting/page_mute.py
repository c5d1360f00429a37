"""The annotation that silences the pages of a pipeline until a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from fencepost.contract.guidance import remedy_of
from fencepost_operator.api import SILENCE_ANNOTATION, Pipeline, Reason
from fencepost_operator.decision.wording import with_remedy
from fencepost_operator.text import single_line

LONGEST: Final = timedelta(days=30)
_SHOWN: Final = 60
"""Characters of a value that are repeated."""


def silenced_until(pipeline: Pipeline, now: datetime) -> tuple[datetime | None, str]:
    """Return until when no pages are sent, None where they are; and what is wrong with the annotation, or ''."""
    text = pipeline.annotations.get(SILENCE_ANNOTATION, "").strip()
    if not text:
        return None, ""
    until = _moment(text)
    if until is None:
        return None, _refusal(text, "is not a time with an offset in the format of RFC 3339")
    if until > now + LONGEST:
        return None, _refusal(text, f"is more than {LONGEST.days} days ahead")
    return (until, "") if until > now else (None, "")


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    has_time = "T" in text.upper() or " " in text
    return moment if has_time and moment.utcoffset() is not None else None


def _refusal(text: str, why: str) -> str:
    shown = single_line(text, limit=_SHOWN)
    return with_remedy(
        f"The annotation {SILENCE_ANNOTATION}={shown!r} {why}, and silences nothing", remedy_of(Reason.SILENCE_INVALID)
    )
