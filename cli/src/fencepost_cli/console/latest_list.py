"""The list of all pipelines, read once per interval however many pages show it."""

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

INTERVAL: Final = 5.0
"""Seconds between two lists; the page asks as often."""


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
    _next: float = float("-inf")
    _turn: Lock = field(default_factory=Lock)

    def now(self) -> Seen:
        """Return the list; after a failure the one before, with the error."""
        with self._turn:
            if self.clock() >= self._next:
                try:
                    found = self.read()
                    rows = [row_of(body) for body in found.bodies]
                    self._seen = Seen(rows=rows, namespace=found.namespace, at=datetime.now(UTC))
                except CliError as error:
                    before = self._seen
                    self._seen = Seen(rows=before.rows, namespace=before.namespace, at=before.at, error=error)
                self._next = self.clock() + self.interval
            return self._seen
