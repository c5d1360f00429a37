"""Logs of the operator and the driver: one JSON object per line on stderr, with the same keys on both sides.

Keys: time (RFC 3339, UTC), level, logger, message, pipeline ('namespace/name') where the line is about one, reason from
`fencepost.contract.Reason`, outcome, remedy, seconds, the record's own fields, exception.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

PIPELINE: Final[ContextVar[str | None]] = ContextVar("pipeline", default=None)
"""The pipeline that the current task works on, 'namespace/name'; every line that the task logs has it."""

_EXTRAS: Final = ("reason", "outcome", "remedy", "seconds")
"""Attributes that `extra={...}` may set; `extra={"fields": {...}}` adds any other key."""

_CONTROLS: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What JSON leaves as it is, and a reader takes for a line's end, a terminal for a command, or UTF-8 cannot hold."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON. `pipeline` is the one of a process that works on no other."""

    def __init__(self, *, pipeline: str | None = None) -> None:
        super().__init__()
        self._pipeline = pipeline

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        pipeline = getattr(record, "pipeline", None) or PIPELINE.get() or self._pipeline
        if pipeline:
            line["pipeline"] = str(pipeline)
        line |= {name: getattr(record, name) for name in _EXTRAS if hasattr(record, name)}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        text = json.dumps(line, default=str, ensure_ascii=False)
        return _CONTROLS.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def write_to_stderr(*, level: int, pipeline: str | None = None) -> None:
    """Make the root logger write such lines from `level` on, in place of any other handler."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(pipeline=pipeline))
    logging.basicConfig(level=level, handlers=[handler], force=True)
