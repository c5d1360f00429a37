"""How a message for a person is put together: what happened, the evidence, and what to do next."""

from __future__ import annotations

from typing import Final

DETAIL_LIMIT: Final = 600
"""Characters of somebody else's message that are repeated."""
_GAP: Final = " … "
_PUNCTUATION: Final = " .;"


def with_remedy(message: str, *remedies: str) -> str:
    """Return what happened and what to do, in one line; the only place that joins the two."""
    steps = "; ".join(step for remedy in remedies if (step := remedy.rstrip(_PUNCTUATION)))
    if not steps:
        return message
    return f"{message.rstrip(_PUNCTUATION)}. {steps[:1].upper()}{steps[1:]}."


def shorten(text: str, limit: int = DETAIL_LIMIT) -> str:
    """Return at most `limit` characters: the first and the last part, because either may name the field at fault."""
    if len(text) <= limit:
        return text
    head = (limit - len(_GAP)) // 2
    tail = limit - len(_GAP) - head
    return f"{text[:head].rstrip()}{_GAP}{text[-tail:].lstrip()}"
