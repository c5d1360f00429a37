"""The outputs of one task for several sinks: each sink gets one stream of rows per task, and all share one read.

A sink pulls its rows, so each one runs in a thread of its own.  The outputs are handed over one by one: of each sink
one waits while another is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from queue import Empty, Full, Queue, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    Write: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    """Writes rows to a sink, and yields its reports. It reads the rows to the end, or raises."""
    Reports: TypeAlias = SimpleQueue[pa.RecordBatch]

LOOK_EVERY: Final = 0.2
"""Seconds between two looks for reports and failures while a sink is busy."""


def write_all(outputs: Iterator[Mapping[str, pa.RecordBatch]], writes: Mapping[str, Write]) -> Iterator[pa.RecordBatch]:
    """Write each output to all sinks; yield their reports.

    What fails first, `outputs` or a sink, is raised, and ends the streams of all sinks with that error: none of them
    takes a part of its rows for all of them.
    """
    reports: Reports = SimpleQueue()
    feeds = {name: _Feed() for name in writes}
    with ThreadPoolExecutor(max_workers=len(writes), thread_name_prefix="sink") as pool:
        running = {name: pool.submit(_write, write, feeds[name], reports) for name, write in writes.items()}
        try:
            for output in outputs:
                for name, feed in feeds.items():
                    yield from _hand_over(feed, output[name], running, reports)
            for feed in feeds.values():
                yield from _hand_over(feed, None, running, reports)
            while wait(running.values(), timeout=LOOK_EVERY, return_when=FIRST_EXCEPTION).not_done:
                _raise_failed(running)
                yield from _so_far(reports)
            _raise_failed(running)
            yield from _so_far(reports)
        except BaseException as error:
            for feed in feeds.values():
                feed.fail(error)
            raise


class _Feed:
    """The rows of one sink, on their way from the task's thread to the sink's."""

    def __init__(self) -> None:
        self._waiting: Queue[pa.RecordBatch | None] = Queue(maxsize=1)
        self._error: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            rows = self._waiting.get()
            if self._error is not None:
                raise self._error
            if rows is None:
                return
            yield rows

    def offer(self, rows: pa.RecordBatch | None) -> bool:
        """Give rows, None for their end; return whether there was room for them within LOOK_EVERY."""
        try:
            self._waiting.put(rows, timeout=LOOK_EVERY)
        except Full:
            return False
        return True

    def fail(self, error: BaseException) -> None:
        """Raise `error` in the sink where it next asks for rows."""
        self._error = error
        with suppress(Full):
            self._waiting.put_nowait(None)


def _write(write: Write, feed: _Feed, reports: Reports) -> None:
    for report in write(iter(feed)):
        reports.put(report)


def _hand_over(
    feed: _Feed, rows: pa.RecordBatch | None, running: Mapping[str, Future[None]], reports: Reports
) -> Iterator[pa.RecordBatch]:
    """Give rows to a sink once it takes them; yield the reports that come meanwhile. Raises what a sink raised."""
    while not feed.offer(rows):
        _raise_failed(running)
        yield from _so_far(reports)
    _raise_failed(running)
    yield from _so_far(reports)


def _raise_failed(running: Mapping[str, Future[None]]) -> None:
    for future in running.values():
        if future.done():
            future.result()


def _so_far(reports: Reports) -> Iterator[pa.RecordBatch]:
    with suppress(Empty):
        while True:
            yield reports.get_nowait()
