"""A dead letter: a record that a driver set aside because it fails alone."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from fencepost.fence.errors import FenceSchemaInvalid

LONGEST_TEXT: Final = 16 * 1024
"""Characters of the error, and of the traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One record, and why it was set aside.

    `topic_id` is Kafka's: a topic that is deleted and created again has another one.  `headers` are JSON, [[key, value
    in base64 or null], …].  `value_size` and `value_sha256` are of the value.  `code` is that of the run, as in the
    fence row.  `retried_at`, `retried_by` and `retried_to` ('topic/partition@offset') are set when a user sends the
    record to Kafka again; a driver that writes the letter later clears them.  `is_whole` is False where chunks of it
    are missing.
    """

    topic: str
    partition: int
    topic_id: str
    offset: int
    epoch: int
    at: datetime
    code: str | None = None
    reason: str | None = None
    error: str | None = None
    traceback: str | None = None
    timestamp: datetime | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: str | None = None
    value_size: int | None = None
    value_sha256: str | None = None
    retried_at: datetime | None = None
    retried_by: str | None = None
    retried_to: str | None = None
    is_whole: bool = True


TYPES: Final = {
    **dict.fromkeys(("topic", "topic_id", "code", "reason", "error", "traceback", "headers", "value_sha256"), str),
    **dict.fromkeys(("retried_by", "retried_to"), str),
    **dict.fromkeys(("partition", "offset", "epoch", "value_size"), int),
    **dict.fromkeys(("at", "timestamp", "retried_at"), datetime),
    **dict.fromkeys(("key", "value"), bytes),
}
"""What a column of a letter may hold: any client with the account may have written others."""
_NEVER_NULL: Final = frozenset({"topic", "partition", "topic_id", "offset", "epoch", "at"})


def letter(
    *,
    topic: str,
    partition: int,
    topic_id: str,
    offset: int,
    epoch: int,
    code: str,
    reason: str,
    error: str,
    traceback: str,
    timestamp: datetime | None,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> DeadLetter:
    """Return the letter of a record, whole; only error and traceback are bounded."""
    coded = [[name, None if content is None else base64.b64encode(content).decode()] for name, content in headers]
    return DeadLetter(
        topic=topic,
        partition=partition,
        topic_id=topic_id,
        offset=offset,
        epoch=epoch,
        at=datetime.now(UTC),
        code=code,
        reason=reason,
        error=_both_ends(error),
        traceback=_both_ends(traceback),
        timestamp=timestamp,
        key=key,
        value=value,
        headers=json.dumps(coded),
        value_size=None if value is None else len(value),
        value_sha256=None if value is None else hashlib.sha256(value).hexdigest(),
    )


def checked(values: dict[str, Any]) -> DeadLetter:
    """Return the letter in a row. Raises FenceSchemaInvalid, naming the column that holds something else."""
    for name, value in values.items():
        if value is None and name not in _NEVER_NULL:
            continue
        if not isinstance(value, TYPES[name]) or (TYPES[name] is int and isinstance(value, bool)):
            raise FenceSchemaInvalid(f"column {name} of a dead letter holds {type(value).__name__}")
        if isinstance(value, datetime):
            values[name] = value.replace(tzinfo=UTC)
    return DeadLetter(**values)


def _both_ends(text: str) -> str:
    """Return a text that fits, in characters that UTF-8 has: a lone surrogate of a record's JSON is none."""
    fitting = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT // 3]}\n…\n{text[-LONGEST_TEXT // 2 :]}"
    return fitting.encode("utf-8", "backslashreplace").decode("utf-8")
