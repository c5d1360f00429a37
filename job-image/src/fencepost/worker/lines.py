"""One line of JSON for each entry of an executor's log, with the keys of `fencepost.logs`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

LONGEST: Final = 16_384
"""Characters of a message or an exception; container runtimes cut longer lines into pieces."""
_ENTRY: Final = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P<level>TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (?P<logger>\S+): "
    r"(?P<message>.*)"
)
"""As job-image/build/log4j2.properties writes it."""
_OF_EXCEPTION: Final = re.compile(r"\s|Caused by: |Suppressed: |Traceback |[\w.$]+(Exception|Error|Throwable)\b")
_KEYS: Final = ("time", "level", "logger", "message", "exception")
"""What is taken of a line that is JSON already, as Spark's daemons write it."""
_LEVELS: Final = {"WARN": "warning", "FATAL": "critical"}
_CONTROLS: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def entries(lines: Iterable[str], *, executor: str, application: str, stream: str) -> Iterator[str]:
    """Yield a line of JSON per entry. The lines of a Java exception belong to the entry before them."""
    entry: dict[str, Any] | None = None
    for line in lines:
        if (found := _headed(line)) is not None:
            if entry is not None:
                yield _dumped(entry)
            entry = {**found, "executor": executor, "application": application, "stream": stream}
        elif entry is not None and "logger" in entry and _OF_EXCEPTION.match(line):
            text = f"{entry['exception']}\n{line}" if "exception" in entry else line
            entry["exception"] = text[:LONGEST]
        else:
            if entry is not None:
                yield _dumped(entry)
            entry = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "level": "info",
                "message": line[:LONGEST],
                "executor": executor,
                "application": application,
                "stream": stream,
            }
    if entry is not None:
        yield _dumped(entry)


def _headed(line: str) -> dict[str, str] | None:
    """Return the entry that a line begins, None for one that begins none."""
    if line.startswith('{"time": '):
        with suppress(ValueError, RecursionError):
            found = json.loads(line)
            return {key: str(found[key])[:LONGEST] for key in _KEYS if found.get(key)}
    if (match := _ENTRY.fullmatch(line)) is None:
        return None
    level = match["level"]
    return {
        "time": match["time"],
        "level": _LEVELS.get(level, level.lower()),
        "logger": match["logger"],
        "message": match["message"][:LONGEST],
    }


def _dumped(entry: dict[str, Any]) -> str:
    text = json.dumps(entry, ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
