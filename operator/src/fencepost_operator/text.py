"""Text that somebody else wrote, made fit for one line of a condition, an Event or a log."""

from __future__ import annotations

import re
from typing import Final

_UNPRINTABLE: Final = re.compile(
    "[\\s\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]+"
)
"""White space, control characters, line breaks of Unicode, invisible and bidirectional marks, lone surrogates."""
_GAP: Final = " … "


def single_line(text: object, *, limit: int = 1024) -> str:
    """Return the text on one line of at most `limit` characters, without control or invisible characters.

    A text that is too long keeps both ends: the first names the object, the last the field.  None is empty.
    """
    if text is None:
        return ""
    found = _UNPRINTABLE.sub(" ", str(text)).strip()
    if len(found) <= limit:
        return found
    head = (limit - len(_GAP)) // 2
    tail = limit - len(_GAP) - head
    return found[:head] + _GAP + found[-tail:]
