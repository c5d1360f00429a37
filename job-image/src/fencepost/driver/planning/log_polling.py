"""Polls the source's log in a thread of its own: a Kafka that does not answer blocks neither commit nor stop.

There is one request at a time.  One is begun beside the batch that is being written, so that the next batch can be
planned without waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

from fencepost.batch import Watermarks
from fencepost.driver.ports import Log
from fencepost.errors import DependencyDown

T = TypeVar("T")

STOP_CHECK: Final = 0.2
"""Seconds between two checks for a stop while Kafka does not answer."""


class Stopping(Exception):
    """A stop was requested while the loop waited for Kafka: nothing is in progress, so it just ends."""


class LogPolling:
    """Asks the log; `stop` ends each wait but those of `insist` and `within`."""

    def __init__(self, source: Log, stop: threading.Event) -> None:
        self._source = source
        self._stop = stop
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._begun: Future[Watermarks] | None = None

    def now(self) -> Watermarks:
        """Return what the log holds now. Raises Stopping, DependencyDown."""
        return self._await(self._look())

    def ask(self, request: Callable[[], T]) -> T:
        """Return the answer to another request. Raises Stopping, DependencyDown."""
        return self._await(self._thread.submit(request))

    def insist(self) -> Watermarks:
        """Return what the log holds now, whatever stops. Raises DependencyDown."""
        return self._look().result()

    def begin(self) -> None:
        """Begin a look whose answer `within` or `begun` returns."""
        self._begun = self._look()

    def within(self, seconds: float) -> Watermarks | None:
        """Return the answer to `begin`, None when it is not there in time. Raises DependencyDown."""
        begun = self._begun
        if begun is None or not wait([begun], timeout=seconds).done:
            return None
        self._begun = None
        return begun.result()

    def begun(self) -> Watermarks | None:
        """Return the answer to `begin` that `within` did not, None without one. Raises as `now`."""
        begun, self._begun = self._begun, None
        return None if begun is None else self._await(begun)

    def forget(self) -> None:
        """Drop the answer to `begin`: the fence row changes meanwhile."""
        self._begun = None

    def check_stop(self) -> None:
        """Raise Stopping once a stop was requested."""
        if self._stop.is_set():
            raise Stopping

    def end(self) -> None:
        """Begin no further look."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _look(self) -> Future[Watermarks]:
        return self._thread.submit(self._source.state)

    def _await(self, look: Future[T]) -> T:
        while not wait([look], timeout=STOP_CHECK).done:
            self.check_stop()
        try:
            return look.result()
        except DependencyDown:
            self.check_stop()
            raise
