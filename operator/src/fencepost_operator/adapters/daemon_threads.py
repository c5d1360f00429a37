"""Blocking requests in daemon threads of their own, with their results on the event loop.

A thread per request, not a pool: a database that does not answer blocks no thread that another caller needs, and the
process ends without waiting for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from fencepost.fence import FenceUnavailable

T = TypeVar("T")


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
        threading.Thread(target=run, name=name, daemon=True).start()
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
