"""New code that gives rows other keys, after a driver that wrote half of a batch and died: on real parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from contract.purging import run
from fencepost.contract import DriverConfig, ExitCode
from fencepost.fence import FenceRow
from fencepost.fence.cassandra.history import read_changes
from fencepost.fence.history import restored
from fencepost.spark.tasks.slicing import SLICE_RECORDS
from fencepost_operator.api import ResolvedTarget, Status
from fencepost_operator.decision.rewind.purge_jobs import ranges
from harness.waiting import eventually
from integration.driver.support import Pipeline

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]

OLD, NEW = "1", "2"
"""The buckets, which are a part of the key, that the two codes use."""
HELD = "/opt/fencepost/held"
BATCH = 2 * SLICE_RECORDS
"""Records, so that a batch has two tasks."""
TABLE = (
    "CREATE TABLE driver_tests.{0} (topic text, partition int, bucket bigint, offset bigint, n bigint, x double,"
    " city text, PRIMARY KEY ((topic, partition, bucket), offset))"
)
"""A rewind can purge it."""


def code(pipeline: Pipeline, bucket: str) -> DriverConfig:
    """The configuration of a code's run under a new epoch."""
    config = pipeline.take_over()
    return replace(config, entrypoint="parse:keyed", args=(bucket, f"{HELD}/marker"), code=f"code {bucket}")


def half_written(make: Make, folder: Path) -> tuple[Pipeline, dict[str, int]]:
    """A pipeline whose driver wrote the rows of the first task of its first batch and is held in the second one."""
    one = make(max_records_per_batch=BATCH)
    one.session.execute(f"DROP TABLE driver_tests.{one.topic}")
    one.session.execute(TABLE.format(one.topic), timeout=60)
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


@pytest.mark.long
def test_no_row_is_doubled_when_the_code_that_began_a_batch_finishes_it(pipeline: Make, tmp_path: Path) -> None:
    """Injected: SIGKILL of the old driver in the middle of a batch; the new code has other keys."""
    one, began = half_written(pipeline, tmp_path)
    one.runs[-1].kill()
    (tmp_path / "held" / "marker").unlink()
    finish(one, began)
    upgrade(one)
    assert_once_each(one, began)


@pytest.mark.long
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


def rewind(one: Pipeline, folder: Path, target: Mapping[str, int]) -> None:
    """Go back and delete the output beyond the target, as the operator does."""
    one.take_over()
    row = one.row()
    meant = ranges(row, Status(), ResolvedTarget(offsets=target))
    code, words = run(folder, one.config, meant, row.write_timestamp)
    assert code == 0, words
    one.fence.rewind(row, offsets=target, leader_epochs={}, growth_barrier={})


def places(one: Pipeline) -> Counter[tuple[str, int]]:
    """How many rows there are of each record."""
    return Counter((f"{row.topic}/{row.partition}", row.offset) for row in one.rows())


def changes(one: Pipeline) -> list[FenceRow]:
    """The fence's history, oldest first, with the code of each change."""
    name = one.config.pipeline
    return [row for _, row in restored(name, read_changes(one.session, one.config.fence_keyspace, name))]


@pytest.mark.long
def test_a_rewind_purges_the_range_that_two_codes_have_written(pipeline: Make, tmp_path: Path) -> None:
    """Injected: the old code fails in the middle of its batch, and the new code, with other keys, repeats the batch."""
    one, began = half_written(pipeline, tmp_path)
    marker = tmp_path / "held" / "marker"
    marker.write_text("fail")
    assert one.runs[-1].wait() == ExitCode.FAILED, one.runs[-1].log.read_text()[-6000:]
    marker.unlink()
    before = one.row()
    upgrade(one)
    doubled = {place for place, rows in places(one).items() if rows > 1}
    assert len(doubled) == SLICE_RECORDS
    history = changes(one)
    claim = next(row for row in history if row.code == f"code {NEW}")
    assert (dict(claim.offsets), dict(claim.planned)) == (dict(before.offsets), began)
    assert {row.code for row in history if row.version < claim.version} == {None, f"code {OLD}"}
    mixed = {(key, offset) for key, end in began.items() for offset in range(before.offsets[key], end)}
    assert doubled <= mixed, "the history names the range"
    rewind(one, tmp_path, before.offsets)
    assert one.rows() == []
    upgrade(one)
    assert set(places(one).values()) == {1}
    assert [row.bucket for row in one.rows()] == [int(NEW)] * 2 * BATCH
