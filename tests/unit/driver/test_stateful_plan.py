"""A stream's batches: planned as the loop plans them, and read as the fence row has them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fencepost.batch import Batch, Range, Written
from fencepost.contract import EARLIEST, Reason
from fencepost.driver.planning.claiming import Claiming
from fencepost.driver.planning.log_polling import LogPolling, Stopping
from fencepost.driver.stateful.plan import StreamPlan, starting
from fencepost.errors import BatchFailed, DataLoss
from fencepost.fence import FenceRow, Starting
from present import present
from unit.driver.loop_world import FakeRecords, World, config


@dataclass
class Run:
    """One run of a stream: what Spark, the checkpoint and the fence do with its plan. Raises what the plan raises."""

    world: World
    changes: dict[str, Any] = field(default_factory=dict)
    now: float = 0.0
    waits: list[float] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    takes: float = 0.0
    """Seconds of each batch."""
    row: FenceRow = field(init=False)
    plan: StreamPlan = field(init=False)
    batches: list[Batch] = field(default_factory=list)

    def __post_init__(self) -> None:
        world, stop = self.world, self.stop
        made = config(world.take_over(), **self.changes)
        polling = LogPolling(world.log, stop)
        claiming = Claiming(config=made, fence=world.fence(), polling=polling, limit=10, wait=self.wait)

        def start(row: FenceRow) -> Starting:
            found = claiming.start(row)
            return starting(present(claiming.row), found, made.source.topics)

        self.row = world.fence().claim(
            epoch=made.epoch,
            driver=f"pod-{made.epoch}",
            code="c",
            start=start,
            owner="owner",
        )
        polling.end()
        self.plan = StreamPlan(
            config=made,
            row=lambda: self.row,
            source=world.log,
            records=FakeRecords(world.log),
            stop=stop,
            leader_epochs=claiming.leader_epochs,
            written_until=claiming.written_until,
            now=lambda: self.now,
            wait=self.wait,
        )

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def ask(self) -> Mapping[str, int]:
        """Ask where the next batch ends, as Spark does after each batch."""
        return self.plan.end(self.row.offsets)

    def record(self, end: Mapping[str, int]) -> None:
        """Plan a batch at the fence."""
        found = self.plan.planned(end)
        self.row = self.world.fence().plan(
            self.row,
            offsets=found.offsets,
            planned=found.planned,
            growth_barrier=found.growth_barrier,
            log_ends=found.log_ends,
            planned_log=b"Spark's",
        )

    def read(self, start: Mapping[str, int], end: Mapping[str, int]) -> Batch:
        batch = self.plan.batch(start, end)
        self.batches.append(batch)
        return batch

    def commit(self) -> None:
        self.now += self.takes
        batch = self.plan.hand
        epochs = self.plan.written(Written({}, records=batch.records, size=100 * batch.records))
        self.row = self.world.fence().commit(
            self.row,
            offsets=self.row.planned,
            planned=self.row.planned,
            records=batch.records,
            duration_ms=1,
            leader_epochs=epochs.leader_epochs,
            epoch_starts=epochs.epoch_starts,
        )
        self.plan.committed()

    def step(self) -> bool:
        """Do one batch; return whether there was one."""
        start = self.row.offsets
        end = self.ask()
        if end == start:
            return False
        self.record(end)
        self.read(start, end)
        self.commit()
        return True

    def until_idle(self) -> None:
        while self.step():
            pass

    def read_offsets(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for batch in self.batches:
            for part in batch.ranges:
                found.setdefault(part.key, []).extend(range(part.start, part.until))
        return found


@pytest.fixture
def start(world: World) -> Callable[..., Run]:
    def made(**changes: Any) -> Run:
        return Run(world, changes)

    return made


def test_each_record_is_planned_once_and_in_order(world: World, start: Callable[..., Run]) -> None:
    run = start()
    assert run.plan.start() == {"t/0": 0, "t/1": 0}
    run.until_idle()
    assert run.read_offsets() == {"t/0": list(range(30)), "t/1": list(range(20))}
    assert run.row.offsets == world.log.ends
    assert {batch.records for batch in run.batches} == {10}


def test_a_batch_that_is_planned_is_repeated_by_the_next_run(world: World, start: Callable[..., Run]) -> None:
    one = start()
    one.step()
    began, end = one.row.offsets, one.ask()
    one.record(end)
    batch = one.read(began, end)
    world.log.ends["t/0"] += 100
    other = start(first_batch_limit=2)
    assert other.read(began, end) == batch
    assert other.batches[0].is_repeated
    assert not batch.is_repeated
    other.commit()
    other.until_idle()
    assert {key: sorted(offsets) for key, offsets in other.read_offsets().items()} == {
        "t/0": list(range(began["t/0"], 130)),
        "t/1": list(range(began["t/1"], 20)),
    }


def test_a_planned_batch_is_repeated_beside_a_partition_that_the_row_gains(
    world: World, start: Callable[..., Run]
) -> None:
    one = start()
    one.until_idle()
    world.log.ends["t/0"] += 5
    began, end = one.row.offsets, one.ask()
    one.record(end)
    batch = one.read(began, end)
    world.log.ends["t/2"] = 3
    world.table.rows[one.row.pipeline] = replace(one.row, offsets={**one.row.offsets, "t/2": 0})
    other = start()
    assert other.row.offsets == {**began, "t/2": 0}
    assert other.read(other.row.offsets, other.row.planned) == replace(batch, until={**batch.until, "t/2": 0})
    other.commit()
    other.until_idle()
    assert other.read_offsets()["t/2"] == [0, 1, 2]


def test_a_planned_batch_keeps_nothing_of_a_topic_that_was_recreated(world: World, start: Callable[..., Run]) -> None:
    """Its offsets are those of the new topic once the loss is accepted, before and after the batch."""
    one = start()
    one.step()
    one.record(one.ask())
    assert one.row.planned == {"t/0": 10, "t/1": 10}
    world.log.topic_id, world.log.ends = "another", {"t/0": 7, "t/1": 0}
    with pytest.raises(DataLoss) as lost:
        world.run()
    world.accept(lost.value.loss, EARLIEST)
    other = start()
    assert other.row.offsets == other.row.planned == {"t/0": 0, "t/1": 0}
    assert other.row.planned_log == one.row.planned_log
    assert other.read(other.row.offsets, other.row.planned).is_empty
    other.commit()
    other.until_idle()
    assert other.read_offsets() == {"t/0": list(range(7))}


def test_a_plan_that_spark_does_not_have_is_not_repeated_and_not_forgotten(
    world: World, start: Callable[..., Run]
) -> None:
    """The pipeline was stateless before."""
    world.crash("midway", 1)
    run = start()
    assert (run.row.planned, run.row.begun) == ({"t/0": 0, "t/1": 0}, {"t/0": 5, "t/1": 5})
    run.step()
    assert run.batches[0].is_repeated


def test_a_claim_plans_no_batch(start: Callable[..., Run]) -> None:
    """Spark has none in its checkpoint yet."""
    run = start()
    assert run.row.planned == run.row.offsets
    assert not run.row.begun


def test_a_batch_that_the_row_does_not_have_is_not_read(start: Callable[..., Run]) -> None:
    run = start()
    began, end = run.row.offsets, run.ask()
    with pytest.raises(BatchFailed, match="the fence row one up to"):
        run.read(began, {**end, "t/0": end["t/0"] + 1})


def test_an_end_that_this_run_has_not_chosen_is_not_planned(start: Callable[..., Run]) -> None:
    run = start()
    end = run.ask()
    before = run.row
    with pytest.raises(BatchFailed, match="Spark plans a batch up to"):
        run.record({**end, "t/0": end["t/0"] + 1})
    assert run.world.row() == before


def test_a_batch_without_records_records_nothing_new(start: Callable[..., Run]) -> None:
    """Spark runs one when a watermark has moved."""
    run = start()
    run.until_idle()
    end = run.row.offsets
    run.record(end)
    assert run.row.offsets == run.row.planned == end
    assert run.read(end, end).is_empty
    run.commit()
    assert run.row.offsets == run.row.planned == end


def test_a_batch_without_records_changes_neither_the_size_nor_the_start_of_the_next_one(
    world: World, start: Callable[..., Run]
) -> None:
    run = start(limit=100, batch_interval=5.0, source={"target_batch_duration": 10.0, "min_records_per_batch": 1})
    run.takes = 2.0
    run.until_idle()
    end = run.row.offsets
    run.record(end)
    run.read(end, end)
    run.commit()
    world.log.ends["t/0"] += 7
    run.waits.clear()
    assert run.step()
    assert (run.plan.limit, run.waits) == (100, [])


def test_a_partition_that_appears_without_records_begins_no_batch(world: World, start: Callable[..., Run]) -> None:
    run = start()
    run.until_idle()
    world.log.ends["t/2"] = 0
    assert run.ask() == run.row.offsets
    assert run.plan.looks_in_vain == 2


def test_partitions_that_appear_wait_for_the_old_ones(world: World, start: Callable[..., Run]) -> None:
    run = start()
    run.step()
    world.log.ends["t/2"] = 7
    run.until_idle()
    assert run.read_offsets()["t/2"] == list(range(7))
    firsts = [min(place for place, batch in enumerate(run.batches) if key in batch.spans()) for key in ("t/2",)]
    lasts = [max(place for place, batch in enumerate(run.batches) if key in batch.spans()) for key in ("t/0", "t/1")]
    assert min(firsts) > max(lasts)
    assert run.row.growth_barrier == {"t/0": 30, "t/1": 20, "t/2": 0}


def test_a_stop_ends_the_stream_between_two_batches(start: Callable[..., Run]) -> None:
    run = start()
    run.step()
    run.stop.set()
    with pytest.raises(Stopping):
        run.ask()
    assert run.row.planned == run.row.offsets


def test_a_run_that_finishes_what_its_code_began_ends_there(start: Callable[..., Run]) -> None:
    run = start(finish_until={"t/0": 12})
    run.step()
    assert run.row.offsets == {"t/0": 10, "t/1": 0}
    run.step()
    with pytest.raises(Stopping):
        run.ask()
    assert run.row.offsets == {"t/0": 12, "t/1": 0}


def test_a_run_that_finishes_gets_there_although_older_records_lie_beyond_its_bound(
    world: World, start: Callable[..., Run]
) -> None:
    world.log.times = {"t/1": [1000 + number for number in range(20)]}
    run = start(finish_until={"t/0": 3, "t/1": 5})
    with pytest.raises(Stopping):
        run.until_idle()
    assert run.row.offsets == {"t/0": 3, "t/1": 5}


def test_the_partitions_of_a_backlog_stay_together_in_record_time(world: World, start: Callable[..., Run]) -> None:
    """What happened: equal shares read a short partition to its end, and the records of the others were late."""
    world.log.times = {"t/0": [100 * number for number in range(30)], "t/1": [150 * number for number in range(20)]}
    run = start()
    while run.step():
        at = {key: world.log.times[key][offset - 1] for key, offset in run.row.offsets.items()}
        assert abs(at["t/0"] - at["t/1"]) <= 150, at
    assert run.row.offsets == world.log.ends


def test_a_stop_does_not_wait_for_kafkas_answer_to_a_time(
    world: World, start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, released = start(), threading.Event()

    def silent(*_: object) -> Mapping[str, int]:
        run.stop.set()
        released.wait(30)
        return {}

    monkeypatch.setattr(world.log, "offsets_at", silent)
    with pytest.raises(Stopping):
        run.ask()
    released.set()


def test_an_idle_log_is_looked_at_again_after_the_interval(start: Callable[..., Run]) -> None:
    run = start(batch_interval=0.5)
    run.until_idle()
    run.waits.clear()
    assert run.ask() == run.row.offsets
    assert run.waits == [0.5]
    assert run.plan.looks_in_vain == 2


@pytest.mark.parametrize(
    ("ends", "takes", "waits"), [(10, 2.0, []), (4, 2.0, [3.0]), (4, 4.5, [0.5]), (4, 5.0, []), (4, 6.0, [])]
)
def test_a_batch_that_is_not_full_is_followed_after_the_interval(
    world: World, start: Callable[..., Run], ends: int, takes: float, waits: list[float]
) -> None:
    world.log.ends = {"t/0": ends}
    run = start(batch_interval=5.0)
    run.takes = takes
    run.step()
    world.log.ends = {"t/0": 100}
    run.waits.clear()
    run.step()
    assert run.waits == waits


def test_the_size_follows_what_the_batches_took(world: World, start: Callable[..., Run]) -> None:
    world.log.ends = {"t/0": 200}
    run = start(limit=100, source={"target_batch_duration": 10.0, "min_records_per_batch": 1})
    run.takes = 20.0
    run.step()
    assert run.plan.limit == 50
    run.step()
    assert [batch.records for batch in run.batches] == [100, 50]


def test_a_limited_run_doubles_its_batch_size_every_ten_minutes(world: World, start: Callable[..., Run]) -> None:
    world.log.ends = {"t/0": 100}
    run = start(limit=16, first_batch_limit=4)
    run.takes = 300.0
    for _ in range(5):
        run.step()
    assert [batch.records for batch in run.batches] == [4, 4, 8, 8, 16]


def test_the_lag_is_what_the_log_holds_beyond_the_planned_batch(start: Callable[..., Run]) -> None:
    run = start()
    assert run.plan.lag is None
    lags: list[int | None] = []
    while run.step():
        lags.append(run.plan.lag)
    assert lags == [40, 30, 20, 10, 0]


def test_a_partition_without_a_leader_is_left_out_and_named(world: World, start: Callable[..., Run]) -> None:
    run = start()
    world.log.leaderless = {"t/1"}
    run.step()
    assert run.plan.unavailable == ("t/1",)
    assert run.batches[0].spans().keys() == {"t/0"}


def test_the_log_is_looked_at_while_a_batch_is_written(world: World, start: Callable[..., Run]) -> None:
    run = start()
    began, end = run.row.offsets, run.ask()
    run.record(end)
    looked = threading.Event()
    world.log.fault = looked.set
    run.read(began, end)
    assert looked.wait(5)


def test_a_stream_that_ends_leaves_no_thread(start: Callable[..., Run]) -> None:
    others = set(threading.enumerate())
    run = start()
    run.until_idle()
    run.plan.close()
    for thread in set(threading.enumerate()) - others:
        thread.join(5)
        assert not thread.is_alive()


def test_what_kafka_lost_ends_the_stream(world: World, start: Callable[..., Run]) -> None:
    run = start()
    run.step()
    world.log.begins = {"t/0": 25}
    with pytest.raises(DataLoss) as lost:
        run.ask()
    assert lost.value.reason is Reason.OFFSET_OUT_OF_RANGE


def test_a_log_with_another_leader_is_compared_before_the_batch(world: World, start: Callable[..., Run]) -> None:
    run = start()
    run.step()
    world.log.epoch += 1
    world.log.grown_again_from = {"t/0": 2}
    end = run.ask()
    run.record(end)
    with pytest.raises(DataLoss) as lost:
        run.read(run.row.offsets, end)
    assert lost.value.reason is Reason.LOG_TRUNCATED


def test_the_batch_at_hand_is_shown(start: Callable[..., Run]) -> None:
    run = start(limit=4)
    began, end = run.row.offsets, run.ask()
    run.record(end)
    run.read(began, end)
    assert run.plan.hand.ranges == (Range("t", 0, 0, 2), Range("t", 1, 0, 2))
    run.commit()
    assert run.plan.hand.is_empty
