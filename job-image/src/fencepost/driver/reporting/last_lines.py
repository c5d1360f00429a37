"""The last lines of the driver's log: they go into its verdict, and outlive its pod there."""

from __future__ import annotations

import logging
import re
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from fencepost.contract import LOG_LINES, last_lines

JAVA_FRAME: Final = re.compile(r"\s+at |\s*\.\.\. \d+ more|JVM stacktrace:")
"""Of a Java stack: there are pages of it, and the cause stands before."""
SHORTEST_SECRET: Final = 4
"""Characters. A shorter one would cover words that are none."""
MASK: Final = "***"


class LastLines(logging.Handler):
    """Keeps the newest lines that are logged, in readable form, without their keys."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=LOG_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, with its exception."""
        at = datetime.fromtimestamp(record.created, UTC)
        self.add(f"{at:%H:%M:%S} {record.levelname} {record.name}: {record.getMessage()}".splitlines())
        if record.exc_info and record.exc_info[1] is not None:
            self.add(_traceback(record.exc_info[1]))

    def add(self, lines: Iterable[str]) -> None:
        """Keep lines of another log, that of Spark's JVM, or of an exception."""
        self._lines.extend(line for line in lines if JAVA_FRAME.match(line) is None)

    def without(self, secrets: Iterable[str]) -> tuple[str, ...]:
        """Return the lines, with each of these texts covered."""
        return last_lines(masked(list(self._lines), secrets))


def masked(texts: Sequence[str], secrets: Iterable[str]) -> list[str]:
    """Return the texts with each secret covered, the longest first: a shorter one may be a part of it."""
    words = sorted({word for word in secrets if len(word) >= SHORTEST_SECRET}, key=len, reverse=True)
    found = list(texts)
    for word in words:
        found = [text.replace(word, MASK) for text in found]
    return found


def _traceback(error: BaseException) -> Iterator[str]:
    for part in traceback.format_exception(error):
        yield from part.splitlines()
