"""What the loop does about records that Kafka does not have any more: it tells, and goes on as was accepted."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from fencepost.contract import (
    Acceptance,
    Loss,
    Reason,
    TopicChange,
)
from fencepost.driver import plan
from fencepost.errors import BatchFailed, DataLoss, as_worker_error
from fencepost.fence import FenceSchemaMissing, FenceUnauthorized, FenceUnavailable
from unit.driver.loop_world import PIPELINE, World


def test_data_loss_seen_while_writing_is_raised_after_the_commit() -> None:
    world = World()
    loop, engine = world.loop(world.take_over())
    engine.midway = lambda: world.log.begins.update({"t/0": 25})
    looks = Counter[str]()

    def cut_later() -> None:
        looks["n"] += 1
        if looks["n"] > 1:
            world.log.begins["t/0"] = 25

    world.log.fault = cut_later
    with pytest.raises(DataLoss):
        loop.run()
    assert sum(world.row().offsets.values()) == 10


def test_a_recreated_topic_stops_the_next_run() -> None:
    world = World()
    loop, _ = world.loop(world.take_over())
    loop.run()
    world.log.topic_id = "another"
    again, engine = world.loop(world.take_over(), driver="pod-2")
    with pytest.raises(DataLoss, match="recreated"):
        again.run()
    assert engine.batches == []
    assert world.row().driver is None  # nothing was changed, not even claimed


def losing(world: World) -> DataLoss:
    """Run into a loss."""
    loop, engine = world.loop(world.take_over(), driver=f"pod-{len(world.reports)}")
    with pytest.raises(DataLoss) as caught:
        loop.run()
    assert engine.batches == []
    assert caught.value.__cause__ is not caught.value
    return caught.value


def test_a_loss_is_recorded_and_the_next_run_skips_what_is_accepted_of_it_and_no_more() -> None:
    world = World()
    first, _ = world.loop(world.take_over())
    first.run()
    world.log.ends = {"t/0": 90, "t/1": 80}
    world.log.begins = {"t/0": 40, "t/1": 25}
    loss = losing(world).loss
    assert loss is not None
    assert loss.ranges == {"t/0": (30, 40), "t/1": (20, 25)}
    assert losing(world).loss == loss
    acceptance = Acceptance(by="kim", choice="", at=datetime(2026, 1, 1, tzinfo=UTC))
    world.table.accept_loss(PIPELINE, loss, acceptance)
    world.log.begins["t/1"] = 33
    more = losing(world).loss
    assert more is not None
    assert more.ranges == {"t/1": (25, 33)}
    world.table.accept_loss(PIPELINE, more, acceptance)
    again, _ = world.loop(world.take_over(), driver="pod-9")
    again.run()
    assert world.row().offsets == world.log.ends
    written = {key for key, _ in world.store.cells.items()}
    gone = {("t/0", at) for at in range(30, 40)} | {("t/1", at) for at in range(20, 33)}
    assert written == {(key, at) for key, end in world.log.ends.items() for at in range(end)} - gone
    world.log.begins["t/0"] = 95
    world.log.ends["t/0"] = 99
    assert losing(world).loss is not None


def test_an_offset_that_kafka_refuses_is_a_loss_only_where_the_log_says_so() -> None:
    """A task's reader knows that Kafka refused, not what the log holds instead."""
    refused = DataLoss("the log no longer holds all of t/0 [0, 10)", reason=Reason.OFFSET_OUT_OF_RANGE)

    def refuse() -> None:
        raise RuntimeError(f"Job aborted: {as_worker_error(refused)}")

    world = World()
    loop, engine = world.loop(world.take_over())
    engine.midway = refuse
    with pytest.raises(BatchFailed, match="refused an offset that its log holds"):
        loop.run()
    loop, engine = world.loop(world.take_over(), driver="pod-2", look_ahead=0.0)

    def cut() -> None:
        world.log.begins["t/0"] = 7
        refuse()

    engine.midway = cut
    with pytest.raises(DataLoss) as caught:
        loop.run()
    assert caught.value.loss is not None
    assert caught.value.loss.ranges == {"t/0": (0, 7)}
    assert [report.loss for report in world.table.losses.values()] == [caught.value.loss]


def test_a_truncation_that_a_task_saw_is_recorded_with_its_range() -> None:
    world = World()
    first, _ = world.loop(world.take_over())
    first.run()
    world.log.ends["t/0"] = 60
    loop, engine = world.loop(world.take_over(), driver="pod-2")
    seen = Loss(reason=Reason.LOG_TRUNCATED, ranges={"t/0": (12, 30), "other/0": (0, 1)})

    def diverge() -> None:
        raise RuntimeError(str(as_worker_error(DataLoss("cut", reason=Reason.LOG_TRUNCATED, loss=seen))))

    engine.midway = diverge
    with pytest.raises(DataLoss) as caught:
        loop.run()
    loss = caught.value.loss
    assert loss is not None
    assert (loss.ranges, loss.topics) == ({"t/0": (12, 30)}, {"t": TopicChange("id", "id")})
    world.table.accept_loss(PIPELINE, loss, Acceptance(by="kim", choice="", at=datetime(2026, 1, 1, tzinfo=UTC)))
    again, engine = world.loop(world.take_over(), driver="pod-3")
    again.run()
    assert engine.batches[0].ranges[0].start == 12
    assert world.row().offsets == world.log.ends


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (FenceUnavailable("silent"), FenceUnavailable),
        (FenceUnauthorized("refused"), DataLoss),
        (FenceSchemaMissing("no table"), DataLoss),
    ],
)
def test_a_loss_that_cannot_be_recorded(error: Exception, ends: type[Exception]) -> None:
    """Without an answer the next run finds the loss again; without the table or the right a person must help first."""
    world = World()
    first, _ = world.loop(world.take_over())
    first.run()
    world.log.topic_id = "another"
    loop, _ = world.loop(world.take_over(), driver="pod-2")

    def refuse(call: str) -> None:
        if call == "report_loss":
            raise error

    world.table.before = refuse
    with pytest.raises(ends) as caught:
        loop.run()
    if isinstance(caught.value, DataLoss):
        assert caught.value.loss is None
        assert "fence_losses" in caught.value.remedy


def test_a_topic_that_a_broker_does_not_know_for_a_moment_is_no_data_loss() -> None:
    world = World()
    first, _ = world.loop(world.take_over())
    first.run()
    looks = Counter[str]()

    def forget() -> None:
        looks["n"] += 1
        world.log.missing = 3.0 if looks["n"] < 4 else None

    world.log.fault = forget
    world.log.ends["t/0"] += 7
    again, _ = world.loop(world.take_over(), driver="pod-2", idle=6)
    again.run()
    world.assert_complete()
    world.log.fault = lambda: None
    world.log.missing = plan.AGREEMENT
    third, _ = world.loop(world.take_over(), driver="pod-3")
    with pytest.raises(DataLoss, match="does not exist"):
        third.run()
