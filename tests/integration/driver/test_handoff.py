"""The next run waits, warm, beside the one that works: on real parts, with the pause between their commits."""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from fencepost.contract import WARM_FILE, DriverConfig, ExitCode
from harness.waiting import eventually
from integration.driver.support import Pipeline, Run

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]

RECORDS = 20_000


def is_warm(run: Run) -> bool:
    found = subprocess.run([run.docker, "exec", run.container, "cat", WARM_FILE], capture_output=True, check=False)
    return found.returncode == 0


def next_of(config: DriverConfig) -> DriverConfig:
    """The configuration of a run of other code that awaits the epoch after this one."""
    return replace(config, epoch=config.epoch + 1, code="new", awaits_epoch=True)


def pause_after(one: Pipeline, epoch: int) -> float:
    """Return the seconds between the last commit of an epoch and the first one after it."""
    times = [(row.epoch, row.committed_at) for row in one.history() if row.committed_at is not None]
    last = max(at for each, at in times if each == epoch)
    return (min(at for each, at in times if each > epoch and at > last) - last).total_seconds()


def test_the_next_run_commits_right_after_the_last_commit_of_the_one_before(
    pipeline: Make, record_testsuite_property: Callable[[str, object], None]
) -> None:
    one = pipeline(max_records_per_batch=1000)
    one.kafka.produce(one.topic, 1000)
    first = replace(one.take_over(), hands_over=True)
    old = one.start(first)
    one.wait_committed(1000)
    sent, enough = itertools.count(1000, 100), threading.Event()

    def send() -> None:
        while not enough.is_set():
            one.kafka.produce(one.topic, 100, start=next(sent))

    sending = threading.Thread(target=send)
    sending.start()
    try:
        new = one.start(next_of(first))
        eventually("the next run is warm", lambda: is_warm(new), seconds=240, pause=0.2)
        assert one.row().epoch == first.epoch, "it has changed nothing"
        old.stop()
        version = one.row().version
        eventually("the next run commits", lambda: one.row().version > version + 2, seconds=60)
        assert (one.row().epoch, one.row().code) == (first.epoch + 1, "new")
    finally:
        enough.set()
        sending.join()
    records = next(sent)
    one.wait_committed(records)
    new.stop()
    record_testsuite_property("pause_seconds", pause_after(one, first.epoch))
    rows = Counter((row.partition, row.offset) for row in one.rows())
    assert len(rows) == records
    assert set(rows.values()) == {1}


@pytest.mark.long
def test_the_next_run_leaves_a_batch_that_the_code_of_the_killed_one_began(pipeline: Make) -> None:
    """Injected: SIGKILL of the run that works, inside a batch."""
    one = pipeline(max_records_per_batch=1000)
    one.kafka.produce(one.topic, RECORDS)
    first = replace(one.take_over(), hands_over=True)
    old = one.start(first)
    new = one.start(next_of(first))
    eventually("the next run is warm", lambda: is_warm(new), seconds=240, pause=0.2)
    one.kafka.produce(one.topic, RECORDS, start=RECORDS)
    eventually("a batch is begun", lambda: bool(one.row().written_until), seconds=60, pause=0.01)
    old.kill()
    row = one.row()
    one.fence.take_over(row, owner="test/test")
    if not row.written_until:
        return
    assert new.wait() == ExitCode.FENCED
    assert one.row().driver is None
