"""Text of other programs and tenants, made fit for one line of a condition, an Event or a log."""

from __future__ import annotations

import re
from typing import Final

_UNPRINTABLE: Final = re.compile(
    "[\\s\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]+"
)
"""White space, control characters, line breaks of Unicode, invisible and bidirectional marks, lone surrogates."""
_GAP: Final = " … "
_SCHEME: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*):(?=//)")
_HOST: Final = re.compile(
    r"\b(www)\.(?=\w)|\b(?!fencepost\.dev/)([A-Za-z0-9-]+)\.(?=[A-Za-z]{2,24}(?::[0-9]+)?[/?#])", re.IGNORECASE
)
"""The last dot of a host that a path follows, and the first one of those that programs take for one.  Annotations of
fencepost.dev are left: users copy the commands with them."""


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


def without_links(text: str) -> str:
    """Return the text so that no chat, mail program or console makes a link of it; it stays readable."""
    return _HOST.sub(lambda found: f"{found[1] or found[2]}[.]", _SCHEME.sub(r"\1[:]", text))
