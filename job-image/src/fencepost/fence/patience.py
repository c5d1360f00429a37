"""How long a dependency that does not answer is asked again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from fencepost.fence.errors import FenceUnavailable

RETRY_PAUSE: Final = 0.25
"""Seconds between two requests to a database that does not answer; it doubles up to LONGEST_PAUSE."""

LONGEST_PAUSE: Final = 2.0
"""Seconds."""
FROZEN_MARGIN: Final = 3.0
"""Seconds beyond the longest request and pause between two looks at the clock: then the process did not run."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """`seconds` for which a request is repeated, by the clock `monotonic`; `sleep` pauses between two of them.

    `longest` is how many seconds one attempt may take at most, with all that it asks.
    """

    seconds: float
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    longest: float = 10.0

    def begin(self) -> Deadline:
        """Return the deadline of a request that begins now."""
        return Deadline(self)

    def ask(self, request: Callable[[], T], *, final: type[FenceUnavailable] | tuple[()] = ()) -> T:
        """Return the answer to a request that may be repeated. Raises FenceUnavailable when the patience ends.

        An error of the kind `final` ends it at once.
        """
        deadline = self.begin()
        while True:
            try:
                return request()
            except final:
                raise
            except FenceUnavailable as error:
                deadline.pause_or_raise(error)


class Deadline:
    """Doubling pauses until the patience ends.

    A process that was frozen (SIGSTOP, a paused VM) wakes after the end of its patience, with a request that failed
    meanwhile and says nothing about the dependency.  So the patience begins once more then, once: time to connect and
    to learn from the fence who took over.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._looked_at = patience.monotonic()
        self._end = self._looked_at + patience.seconds
        self._pause = RETRY_PAUSE
        self._was_frozen = False

    @property
    def is_over(self) -> bool:
        """Whether the patience has ended."""
        return self._patience.monotonic() > self._end

    def pause_or_raise(self, error: Exception) -> None:
        """Pause, or raise the error when the patience would end meanwhile."""
        now = self._patience.monotonic()
        frozen_after = self._patience.longest + LONGEST_PAUSE + FROZEN_MARGIN
        if now - self._looked_at > frozen_after and not self._was_frozen:
            self._was_frozen, self._end = True, now + max(self._patience.seconds, self._pause)
        if now + self._pause > self._end:
            raise error
        self._looked_at = now
        self._patience.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
