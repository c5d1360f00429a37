"""Blocking requests in daemon threads of their own, with their results on the event loop.

A thread per request in progress, not a pool of some: a database that does not answer blocks no thread that another
caller needs, and the process ends without waiting for it.  A thread whose request has ended does the next one that
comes soon: who starts a thread waits until it runs, and on a busy machine the event loop would do that for each look at
a fence.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from fencepost.fence import FenceUnavailable

T = TypeVar("T")

IDLE: Final = 10.0
"""Seconds after which a thread without a request ends."""


class _Worker(threading.Thread):
    """A thread that does one piece of work after another."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.work: SimpleQueue[tuple[str, Callable[[], object]]] = SimpleQueue()

    def run(self) -> None:
        while True:
            try:
                self.name, work = self.work.get(timeout=IDLE)
            except Empty:
                if _leave(self):
                    return
                continue
            work()
            del work  # or an idle thread would keep what the last request had
            with _LOCK:
                _WAITING.append(self)


_LOCK: Final = threading.Lock()
_WAITING: Final[list[_Worker]] = []
"""Threads without work, the last one that had some last."""


def _leave(worker: _Worker) -> bool:
    """Take a thread out of those that wait; False where it was given work at this moment."""
    with _LOCK:
        is_waiting = worker in _WAITING
        if is_waiting:
            _WAITING.remove(worker)
    return is_waiting


def _worker() -> _Worker:
    """Return a thread that waits for work. Raises RuntimeError where none can be started."""
    with _LOCK:
        if _WAITING:
            return _WAITING.pop()
    worker = _Worker()
    worker.start()
    return worker


def in_thread(work: Callable[[], T], *, name: str) -> Future[T]:
    """Do the work in a daemon thread; FenceUnavailable is the result where no thread can be started."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from here on it cannot be cancelled: the thread runs to its end

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who waits
            future.set_exception(error)

    try:
        _worker().work.put((name, run))
    except RuntimeError as error:
        # A result like any other, so that what was taken for this work is given back.
        failure = FenceUnavailable("the operator has no thread left for a request to the fence")
        failure.__cause__ = error
        future.set_exception(failure)
    return future


def then(job: Future[T], action: Callable[[], object]) -> None:
    """Do something on the event loop once a thread is done."""
    loop = asyncio.get_running_loop()

    def done(_: Future[T]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(action)

    job.add_done_callback(done)
