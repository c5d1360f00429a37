"""How long a database that does not answer is asked again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from fencepost.fence.errors import FenceUnavailable

RETRY_PAUSE: Final = 0.25
"""Seconds between two requests to a database that does not answer; it doubles up to two seconds."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """`seconds` for which a request is repeated, by the clock `monotonic`; `sleep` pauses between two of them."""

    seconds: float
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]

    def begin(self) -> Deadline:
        """Return the deadline of a request that begins now."""
        return Deadline(self)

    def ask(self, request: Callable[[], T]) -> T:
        """Return the answer to a request that may be repeated. Raises FenceUnavailable when the patience ends."""
        deadline = self.begin()
        while True:
            try:
                return request()
            except FenceUnavailable as error:
                deadline.pause_or_raise(error)


class Deadline:
    """Doubling pauses until the patience ends."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._end = patience.monotonic() + patience.seconds
        self._pause = RETRY_PAUSE

    @property
    def is_over(self) -> bool:
        """Whether the patience has ended."""
        return self._patience.monotonic() > self._end

    def pause_or_raise(self, error: FenceUnavailable) -> None:
        """Pause, or raise the error when the patience would end meanwhile."""
        if self._patience.monotonic() + self._pause > self._end:
            raise error
        self._patience.sleep(self._pause)
        self._pause = min(self._pause * 2, 2.0)
