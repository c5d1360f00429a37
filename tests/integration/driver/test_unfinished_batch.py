"""New code that gives rows other keys, after a driver that wrote half of a batch and died: on real parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.contract import DriverConfig, ExitCode
from fencepost.spark.tasks import SLICE_RECORDS
from harness.waiting import eventually
from integration.driver.support import Pipeline

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]

OLD, NEW = "1", "2"
"""The buckets, which are a part of the key, that the two codes use."""
HELD = "/opt/fencepost/held"
BATCH = 2 * SLICE_RECORDS
"""Records, so that a batch has two tasks."""


def code(pipeline: Pipeline, bucket: str) -> DriverConfig:
    """The configuration of a code's run under a new epoch."""
    config = pipeline.take_over()
    return replace(config, entrypoint="parse:keyed", args=(bucket, f"{HELD}/marker"), code=f"code {bucket}")


def half_written(make: Make, folder: Path) -> tuple[Pipeline, dict[str, int]]:
    """A pipeline whose driver wrote the rows of the first task of its first batch and is held in the second one."""
    one = make(max_records_per_batch=BATCH)
    held = folder / "held"
    held.mkdir()
    held.chmod(0o755)
    (held / "marker").touch()
    one.volumes[HELD] = held
    one.kafka.produce(one.topic, 2 * BATCH)
    one.start(code(one, OLD))
    eventually("half of the batch is written", lambda: len(one.rows()) >= SLICE_RECORDS, seconds=240, pause=0.2)
    began = dict(one.row().planned)
    assert sum(began.values()) == BATCH
    assert len(one.rows()) == SLICE_RECORDS, "the second task is held"
    return one, began


def finish(one: Pipeline, began: dict[str, int]) -> None:
    """Let the old code finish, as the operator does."""
    run = one.start(replace(code(one, OLD), finish_until=began))
    assert run.wait() == ExitCode.STOPPED, run.log.read_text()[-6000:]
    assert run.verdict().message == "finished what this code began"
    assert one.row().offsets == one.row().planned == began


def upgrade(one: Pipeline) -> None:
    run = one.start(code(one, NEW))
    one.wait_committed(2 * BATCH)
    run.stop()
    assert one.row().planned == one.row().offsets


def assert_once_each(one: Pipeline, began: dict[str, int]) -> None:
    """Every record has one row, of the code that committed it."""
    rows = one.rows()
    assert set(Counter((row.partition, row.offset) for row in rows).values()) == {1}
    assert len(rows) == 2 * BATCH
    wrong = [row for row in rows if (row.bucket == 1) != (row.offset < began[f"{one.topic}/{row.partition}"])]
    assert wrong == []


def test_no_row_is_doubled_when_the_code_that_began_a_batch_finishes_it(pipeline: Make, tmp_path: Path) -> None:
    """Injected: SIGKILL of the old driver in the middle of a batch; the new code has other keys."""
    one, began = half_written(pipeline, tmp_path)
    one.runs[-1].kill()
    (tmp_path / "held" / "marker").unlink()
    finish(one, began)
    upgrade(one)
    assert_once_each(one, began)


def test_a_zombie_of_the_old_code_doubles_nothing(pipeline: Make, tmp_path: Path) -> None:
    """Injected: the old driver is paused in the middle of its batch, and wakes up after the new code has committed."""
    one, began = half_written(pipeline, tmp_path)
    zombie = one.runs[-1]
    zombie.pause()
    (tmp_path / "held" / "marker").unlink()
    finish(one, began)
    upgrade(one)
    zombie.resume()
    assert zombie.wait() == ExitCode.FENCED
    assert_once_each(one, began)
