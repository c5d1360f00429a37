"""What waits to be sent: bounded, sent by a thread of its own, and dropped when the receiver does not take it."""

from __future__ import annotations

import http.client
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from fencepost.driver.reporting.telemetry.post import Post

log = logging.getLogger(__name__)

CAPACITY: Final = 256
"""Items that wait; of one more, the oldest is dropped."""
AT_ONCE: Final = 32
"""Items of one request."""
GATHER: Final = 2.0
"""Seconds that the first item waits for others."""
PAUSES: Final = (1.0, 2.0, 4.0, 8.0)
"""Seconds between two attempts."""
_AGAIN: Final = frozenset({408, 425, 429})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sent:
    """How many items a receiver has taken, and how many were dropped."""

    delivered: int = 0
    dropped: int = 0


class Outbox(Generic[T]):
    """Sends items to one receiver. `put` and `end` return at once, whatever the receiver does.

    `encode` makes the body of a request of some items; it runs in the outbox's thread, as `post` does.
    """

    def __init__(
        self,
        name: str,
        encode: Callable[[Sequence[T]], bytes],
        post: Post,
        *,
        capacity: int = CAPACITY,
        at_once: int = AT_ONCE,
        gather: float = GATHER,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        self._name = name
        self._encode = encode
        self._post = post
        self._capacity = capacity
        self._at_once = at_once
        self._gather = gather
        self._pauses = pauses
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._waiting: deque[T] = deque()
        self._sent = Sent()
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def sent(self) -> Sent:
        """The counts so far. From any thread."""
        return self._sent

    def put(self, item: T) -> None:
        """Send an item soon."""
        with self._changed:
            if len(self._waiting) >= self._capacity:
                self._waiting.popleft()
                self._count(dropped=1)
            self._waiting.append(item)
            self._changed.notify()

    def end(self) -> None:
        """Send what waits now, and try nothing again."""
        self._ending.set()
        with self._changed:
            self._changed.notify()

    def join(self, timeout: float) -> None:
        """Wait until everything is sent or dropped, for so many seconds at most; `end` comes before."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while items := self._next():
            self._send(items)

    def _next(self) -> list[T]:
        """Return the next items once there are some; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending.is_set())
        self._ending.wait(self._gather)
        with self._changed:
            return [self._waiting.popleft() for _ in range(min(self._at_once, len(self._waiting)))]

    def _send(self, items: Sequence[T]) -> None:
        try:
            body = self._encode(items)
            is_taken = self._is_taken(body)
        except Exception as error:  # noqa: BLE001 - telemetry ends no run
            self._failed(f"{type(error).__name__}: {error}")
            is_taken = False
        with self._changed:
            self._count(**{"delivered" if is_taken else "dropped": len(items)})

    def _is_taken(self, body: bytes) -> bool:
        """Return whether the receiver takes the body, at the first or a later attempt."""
        for pause in (*self._pauses, None):
            try:
                status = self._post(body)
            except (OSError, http.client.HTTPException) as error:
                self._failed(f"{type(error).__name__}: {error}")
            else:
                if 200 <= status < 300:  # noqa: PLR2004 - HTTP's classes
                    self._succeeded()
                    return True
                self._failed(f"HTTP {status}")
                if status < 500 and status not in _AGAIN:  # noqa: PLR2004
                    return False
            if pause is None or self._ending.is_set():
                return False
            self._ending.wait(pause)
        return False

    def _count(self, *, delivered: int = 0, dropped: int = 0) -> None:
        self._sent = Sent(self._sent.delivered + delivered, self._sent.dropped + dropped)

    def _failed(self, why: str) -> None:
        """Log the first failure of several in a row."""
        if not self._has_failed:
            remedy = f"Let the pod reach the receiver of spec.observability.{self._name}; batches do not wait for it."
            log.warning("%s takes nothing: %s", self._name, why, extra={"remedy": remedy})
        self._has_failed = True

    def _succeeded(self) -> None:
        if self._has_failed:
            log.info("%s takes what is sent again", self._name)
        self._has_failed = False
