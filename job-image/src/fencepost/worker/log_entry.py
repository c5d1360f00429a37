"""One line of JSON for each entry of an executor's log, with the keys of `fencepost.logs`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

LONGEST: Final = 16_384
"""Characters of a message or an exception; container runtimes cut longer lines into pieces."""
_KEYS: Final = ("time", "level", "logger", "message", "exception")
"""What is taken of a line that is JSON already, as job-image/build/log4j2.properties makes it."""
_CONTROLS: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def entries(lines: Iterable[str], *, executor: str, application: str, stream: str) -> Iterator[str]:
    """Yield a line of JSON per line, which may be JSON already."""
    for line in lines:
        entry = _logged(line) or {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": "info",
            "message": line[:LONGEST],
        }
        yield _dumped({**entry, "executor": executor, "application": application, "stream": stream})


def _logged(line: str) -> dict[str, str] | None:
    """Return the entry that a line of JSON holds, None for any other line."""
    if not line.startswith('{"time": '):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return {key: str(found[key])[:LONGEST] for key in _KEYS if found.get(key)}


def _dumped(entry: dict[str, str]) -> str:
    text = json.dumps(entry, ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
