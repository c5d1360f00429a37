"""Tests that every `PurgeableSink` passes, beside those of `fencepost.testing.sinks` and with the same fixture.

class TestPostgresqlSink(SinkContract, PurgeContract): ...

The rows of the subject have the columns topic, partition and offset.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from fencepost.errors import DriverError
from fencepost.sinks import PurgeableSink, PurgeToken
from fencepost.testing.sinks import Subject, expect, half_of, token_of, write_batch, write_task

KILLS = 8
"""Moments at which a purge is killed, spread over the time that one takes."""


class PurgeContract:
    """The tests. They fail with AssertionError."""

    def test_a_count_deletes_nothing(self, subject: Subject) -> None:
        """It says how many rows the records have, and leaves them."""
        sink = _written(subject)
        _counts(sink, _second_half(subject), half_of(subject.rows, 1).num_rows)
        expect(subject, subject.rows)

    def test_a_purge_deletes_exactly_the_rows_of_its_records(self, subject: Subject) -> None:
        """Nothing of them is left, and nothing else is gone."""
        sink = _written(subject)
        sink.purge(_second_half(subject))
        _counts(sink, _second_half(subject), 0)
        expect(subject, half_of(subject.rows, 0))

    def test_a_second_purge_changes_nothing(self, subject: Subject) -> None:
        """A pod may be repeated."""
        _written(subject).purge(_second_half(subject))
        _opened(subject).purge(_second_half(subject))
        expect(subject, half_of(subject.rows, 0))

    def test_a_purge_of_an_empty_store_passes(self, subject: Subject) -> None:
        """The sink may be new."""
        _opened(subject).purge(_second_half(subject))
        expect(subject)

    def test_purged_records_are_stored_again(self, subject: Subject) -> None:
        """The next driver reads them again; its batch begins at the target."""
        _written(subject).purge(_second_half(subject))
        again = half_of(subject.changed, 1)
        write_batch(subject.open(), token_of(again, after=1), [again])
        expect(subject, half_of(subject.rows, 0), again)

    def test_what_a_replaced_driver_writes_after_a_purge_changes_nothing(self, subject: Subject) -> None:
        """It began its batch before it was stopped. Its sink may refuse to write, by a DriverError."""
        replaced, late = _written(subject), token_of(subject.rows)
        with suppress(DriverError):
            replaced.begin(late)
        _opened(subject).purge(_second_half(subject))
        with suppress(DriverError):
            write_task(replaced, late, [half_of(subject.rows, 1)])
            replaced.finish(late)
        expect(subject, half_of(subject.rows, 0))

    def test_a_purge_that_was_killed_is_completed_by_the_next(self, subject: Subject) -> None:
        """A process is killed at several moments of a purge; whatever it had done, another purge completes it."""
        began = time.monotonic()
        _written(subject).purge(_second_half(subject))
        took = time.monotonic() - began
        for kill in range(KILLS):
            again = half_of(subject.rows, 1)
            write_batch(subject.open(), token_of(again, after=1 + kill), [again])
            expect(subject, subject.rows)
            _purge_and_kill(subject, _second_half(subject, after=1 + kill), seconds=took * kill / KILLS)
            _opened(subject).purge(_second_half(subject, after=1 + kill))
            expect(subject, half_of(subject.rows, 0))


def _opened(subject: Subject) -> PurgeableSink:
    sink = subject.open()
    if not isinstance(sink, PurgeableSink):
        raise AssertionError(f"{type(sink).__name__} is not a fencepost.sinks.PurgeableSink")
    return sink


def _written(subject: Subject) -> PurgeableSink:
    """Return the sink after it has stored the subject's rows."""
    sink = _opened(subject)
    write_batch(sink, token_of(subject.rows), [subject.rows])
    return sink


def _second_half(subject: Subject, *, after: int = 0) -> PurgeToken:
    """Return the purge of the second half of the rows, `after` takeovers and one more after the first batch."""
    wrote, next_one = token_of(half_of(subject.rows, 1), after=after), token_of(subject.rows, after=after + 1)
    return PurgeToken(
        pipeline=wrote.pipeline,
        epoch=next_one.epoch,
        token=next_one.token - 1,
        offsets=wrote.offsets,
        committed=wrote.token,
    )


def _counts(sink: PurgeableSink, purge: PurgeToken, expected: int) -> None:
    found = sink.count(purge.offsets)
    if found != expected:
        raise AssertionError(f"the sink counts {found} rows of {dict(purge.offsets)}, and there are {expected}")


def _purge_and_kill(subject: Subject, purge: PurgeToken, *, seconds: float) -> None:
    """Purge in a process of its own, and kill that after some seconds."""
    child = os.fork()
    if child == 0:
        try:
            _opened(subject).purge(purge)
        finally:
            os._exit(0)
    time.sleep(seconds)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
