"""Times, spans and bytes as users read them, in a terminal and in a page."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta


def timestamp(value: datetime) -> str:
    """Return a time as Kubernetes writes it."""
    return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def age(span: timedelta) -> str:
    """Return a span as kubectl writes it: '45s', '12m', '5h', '3d'."""
    seconds = max(int(span.total_seconds()), 0)
    for unit, size, until in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def bytes_shown(size: int) -> str:
    """Return bytes in mebibytes, rounded up: '1,024 MiB'."""
    return f"{-(-size // 1024**2):,} MiB"


def printable_text(content: bytes) -> str | None:
    """Return UTF-8 text without control characters but tabs and line breaks, None for other bytes."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if all(part.isprintable() for part in re.split("[\t\n\r]", text)) else None
