"""The list of all pipelines, read once per interval however many pages show it.

A list of 1000 pipelines takes the API server some tenths of a second.  Who filters or orders does not wait for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Final

from fencepost_cli.console.fleet import Row, row_of
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Listing

INTERVAL: Final = 4.0
"""Seconds between the starts of two lists; a page asks every 5 s, so that each time it gets another one."""
OLDEST: Final = 60.0
"""Seconds after which a list is not shown any more while the next one is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The last list that the API server gave, and what went wrong since; `at` is None before the first one."""

    rows: Sequence[Row] = ()
    namespace: str = ""
    at: datetime | None = None
    error: CliError | None = None


@dataclass(slots=True)
class LatestList:
    """Lists when someone asks and the last list is older than the interval; who asks meanwhile waits for that list."""

    read: Callable[[], Listing]
    interval: float = INTERVAL
    clock: Callable[[], float] = time.monotonic
    _seen: Seen = field(default_factory=Seen)
    _begun: float = float("-inf")
    _turn: Lock = field(default_factory=Lock)

    def now(self) -> Seen:
        """Return the list; after a failure the one before, with the error."""
        with self._turn:
            if self.clock() >= self._begun + self.interval:
                self._begun = self.clock()
                try:
                    found = self.read()
                    rows = [row_of(body) for body in found.bodies]
                    self._seen = Seen(rows=rows, namespace=found.namespace, at=datetime.now(UTC))
                except CliError as error:
                    before = self._seen
                    self._seen = Seen(rows=before.rows, namespace=before.namespace, at=before.at, error=error)
            return self._seen

    def last(self) -> Seen:
        """Return the list that was read last; without one, or only an old one, wait for another one."""
        seen = self._seen
        return seen if seen.at is not None and self.clock() < self._begun + OLDEST else self.now()
