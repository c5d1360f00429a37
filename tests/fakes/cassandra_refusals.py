"""Requests that Cassandra refuses, as the driver raises them; the guardrail's text is that of Cassandra 4.1 and 5.0."""

from __future__ import annotations

from typing import Final

from cassandra.protocol import InvalidRequestException

DISK_FULL: Final = (
    "Guardrail replica_disk_usage violated: Write request failed because disk usage exceeds failure threshold"
)
QUOTING: Final = (
    "unconfigured table disk_usage",
    "Undefined column name disk_usage in table k.t",
    'Invalid value for "disk usage"',
    f"Key may not be {DISK_FULL}",
    f'Key may not be empty" message="{DISK_FULL}',
)
"""Refusals that quote a table, a column or data that an author named like the guardrail."""


def refused(text: str) -> Exception:
    """Return what the driver raises for an answer INVALID with this text."""
    error: Exception = InvalidRequestException(0x2200, text, None).to_exception()
    return error
