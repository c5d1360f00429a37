"""One HTTP POST by the standard library: no redirects, no proxy, nothing kept of what is answered but the status."""

from __future__ import annotations

import http.client
import ssl
from typing import Final
from urllib.parse import urlsplit

from fencepost_operator.paging.delivery import SEND_TIMEOUT, Answer, Message, Outcome

_TRY_AGAIN: Final = frozenset({408, 425, 429})
_LONGEST_WAIT: Final = 600.0
"""Seconds that an answer may ask for."""


def post(message: Message) -> Answer:
    """Send a message. Raises OSError, http.client.HTTPException or ValueError without an answer."""
    url = urlsplit(message.url)
    host = url.hostname or ""
    if url.scheme == "https":
        context = ssl.create_default_context(cadata=message.ca or None)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, url.port or 443, timeout=SEND_TIMEOUT, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, url.port or 80, timeout=SEND_TIMEOUT)
    try:
        connection.request("POST", url.path or "/", message.body.encode(), dict(message.headers))
        response = connection.getresponse()
        return answer_of(response.status, response.getheader("Retry-After"))
    finally:
        connection.close()


def answer_of(status: int, retry_after: str | None) -> Answer:
    """Return what a status means; a redirect is a permanent error."""
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's classes
        return Answer(outcome=Outcome.DELIVERED, status=status)
    if status in _TRY_AGAIN or status >= 500:  # noqa: PLR2004
        return Answer(outcome=Outcome.FAILED, status=status, retry_after=_seconds(retry_after))
    return Answer(outcome=Outcome.REFUSED, status=status)


def _seconds(text: str | None) -> float:
    """Return the seconds that an answer asks to wait for, 0 without; a date counts as the longest wait."""
    if not text:
        return 0.0
    return min(_LONGEST_WAIT, float(text)) if text.strip().isdecimal() else _LONGEST_WAIT
