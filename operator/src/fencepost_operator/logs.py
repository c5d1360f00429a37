"""Logs: one JSON object a line, with the pipeline they are about and the reason from the one vocabulary."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

PIPELINE: Final[ContextVar[str | None]] = ContextVar("pipeline", default=None)
"""The pipeline that the current task works on, 'namespace/name'; every line it logs carries it."""

_EXTRAS: Final = ("reason", "outcome", "remedy", "seconds")
_CHATTY: Final = ("kopf", "aiohttp.access", "kubernetes", "asyncio")
_TOLD_ANYWAY: Final = ("cassandra",)
"""Logs a traceback for each error that it raises as well, and the errors are translated and told once."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        pipeline = getattr(record, "pipeline", None) or PIPELINE.get()
        if pipeline:
            line["pipeline"] = str(pipeline)
        line |= {name: getattr(record, name) for name in _EXTRAS if hasattr(record, name)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def configure(level: int) -> None:
    """Log to standard error from `level` on; libraries only speak up when something is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    for name in _TOLD_ANYWAY:
        logging.getLogger(name).setLevel(logging.DEBUG if level <= logging.DEBUG else logging.CRITICAL)
