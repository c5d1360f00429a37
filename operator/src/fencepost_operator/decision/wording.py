"""How a message for a user is composed: what happened, the evidence, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fencepost_operator.text import single_line

DETAIL_LIMIT: Final = 600
"""Characters of another component's message that are repeated."""
SHOWN: Final = 3
"""Things of a kind that a message names."""
_PUNCTUATION: Final = " .;"


def with_remedy(message: str, *remedies: str) -> str:
    """Return what happened and what to do, in one line; the only place that joins the two."""
    steps = "; ".join(step for remedy in remedies if (step := remedy.rstrip(_PUNCTUATION)))
    if not steps:
        return message
    return f"{message.rstrip(_PUNCTUATION)}. {steps[:1].upper()}{steps[1:]}."


def with_runbook(message: str, reason: str, url: str) -> str:
    """Return a message with the page of its reason at its end; as it is without a URL, or with that page."""
    page = f"{url}/{reason}.md"
    return message if not url or message.endswith(page) else f"{message.rstrip(_PUNCTUATION)}. Runbook: {page}"


def detail(text: str) -> str:
    """Return another program's message on one line; a long one keeps both ends."""
    return single_line(text, limit=DETAIL_LIMIT)


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
