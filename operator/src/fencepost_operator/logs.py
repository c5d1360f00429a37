"""What the operator logs, in the format of `fencepost.logs`."""

from __future__ import annotations

import logging
from typing import Final

from fencepost.logs import PIPELINE, JsonFormatter, write_to_stderr

__all__ = ["PIPELINE", "JsonFormatter", "configure"]

_VERBOSE: Final = ("kopf", "aiohttp.access", "kubernetes", "asyncio")
_DUPLICATES: Final = ("cassandra",)
"""Logs a traceback for each error that it also raises; the adapters translate the error and it is logged once."""


def configure(level: int) -> None:
    """Log to standard error from `level` on; libraries log warnings only."""
    write_to_stderr(level=level)
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    for name in _DUPLICATES:
        logging.getLogger(name).setLevel(logging.DEBUG if level <= logging.DEBUG else logging.CRITICAL)
