"""Workers that write, as processes: the lock of one that is killed goes when it is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fencepost.sinks import writers


@pytest.fixture(autouse=True)
def prepared() -> Iterator[None]:
    writers.prepare()
    yield
    writers._files.pop().close()


@contextmanager
def another_that_writes() -> Iterator[int]:
    """Yield the id of a worker inside its block."""
    reads, writes = os.pipe()
    if not (worker := os.fork()):
        with writers.writing(), writers.writing():  # two sinks of a task
            os.write(writes, b"!")
            signal.pause()
        os._exit(0)
    os.read(reads, 1)
    yield worker
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)


def sees_a_writer() -> bool:
    """Return what another worker sees."""
    if not (worker := os.fork()):
        os._exit(int(not writers.others_have_ended(patience=0.0)))
    return bool(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))


def test_a_worker_that_writes_is_waited_for_until_it_is_gone() -> None:
    with another_that_writes():
        assert not writers.others_have_ended(patience=0.1)
    assert writers.others_have_ended(patience=0.0)


def test_a_worker_does_not_wait_for_itself() -> None:
    with writers.writing():
        assert writers.others_have_ended(patience=0.0)


def test_the_lock_is_held_until_the_last_sink_of_the_task_has_ended() -> None:
    with writers.writing():
        with writers.writing():
            pass
        assert sees_a_writer()
    assert not sees_a_writer()
