"""Figures that are asked for in a thread of their own: a scrape waits for them for a moment, a batch never."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

log = logging.getLogger(__name__)

PATIENCE: Final = 0.5
"""Seconds that a scrape waits for new figures. Prometheus waits 10 s for the whole answer."""
LIFETIME: Final = 60.0
"""Seconds for which old figures are better than none."""

T = TypeVar("T")


class Sampler(Generic[T]):
    """Calls `read` when it is asked, one call at a time, always from the same thread.

    Py4J keeps a connection, and the JVM a thread, for each thread that calls.  A JVM that stands still in a collection
    holds that thread alone.
    """

    def __init__(
        self, name: str, read: Callable[[], T], *, patience: float = PATIENCE, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._patience = patience
        self._now = now
        self._changed = threading.Condition()
        self._is_asked = False
        self._answers = 0
        self._newest: tuple[float, T] | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def latest(self) -> T | None:
        """Return new figures; after the patience those from before, and None where they are old or cannot be read."""
        with self._changed:
            answers, self._is_asked = self._answers, True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answers > answers, self._patience)
            newest = self._newest
        return newest[1] if newest is not None and self._now() - newest[0] < LIFETIME else None

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_asked)
                self._is_asked = False
            found: tuple[float, T] | None = None
            try:
                found = self._now(), self._read()
            except Exception as error:  # noqa: BLE001 - Py4J raises many kinds for a JVM that is gone
                log.debug("the figures cannot be read: %s", error)
            with self._changed:
                self._newest = found
                self._answers += 1
                self._changed.notify_all()
