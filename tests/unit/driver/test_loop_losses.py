"""Records that Kafka no longer has: the loop reports them, and continues as was accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fencepost.batch import Watermarks
from fencepost.contract import LOSSES, Acceptance, Loss, Reason, ReportedLoss, TopicChange
from fencepost.driver.planning import plan
from fencepost.driver.recovery.lost_ranges import without_expired
from fencepost.errors import BatchFailed, DataLoss, DependencyDown
from fencepost.fence import FenceSchemaMissing, FenceUnauthorized, FenceUnavailable
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.history.checks import check_history
from present import present
from unit.driver.loop_world import PIPELINE, FakeLog, World


def caught_up() -> World:
    """A world whose first run has read everything."""
    world = World()
    world.run()
    return world


def test_data_loss_seen_while_writing_is_raised_after_the_commit(world: World) -> None:
    loop, engine = world.loop(world.take_over())
    engine.midway = lambda: world.log.begins.update({"t/0": 25})

    def cut_later() -> None:
        if world.log.looks > 1:
            world.log.begins["t/0"] = 25

    world.log.fault = cut_later
    with pytest.raises(DataLoss):
        loop.run()
    assert sum(world.row().offsets.values()) == 10


def test_nothing_of_a_topic_that_was_recreated_while_it_was_read_is_committed(world: World) -> None:
    """The reader asks for the topic's id; what is lost is everything from the committed offsets on."""
    loop, engine = world.loop(world.take_over())

    def recreate() -> None:
        assert {part.topic_id for part in engine.batches[-1].ranges} == {"id"}
        world.log.topic_id = "another"
        raise DataLoss("the id is another", reason=Reason.TOPIC_RECREATED)

    engine.midway = recreate
    with pytest.raises(DataLoss, match="recreated") as caught:
        loop.run()
    assert caught.value.reason is Reason.TOPIC_RECREATED
    assert present(caught.value.loss).ranges == {"t/0": (0, 30), "t/1": (0, 20)}
    assert sum(world.row().offsets.values()) == 0
    assert len(engine.batches) == 1


def test_a_recreated_topic_stops_the_next_run(world: World) -> None:
    world.run()
    world.log.topic_id = "another"
    again, engine = world.loop(world.take_over(), driver="pod-2")
    with pytest.raises(DataLoss, match="recreated"):
        again.run()
    assert engine.batches == []
    assert world.row().driver is None  # nothing was changed, not even claimed


def losing(world: World) -> DataLoss:
    """Run into a loss."""
    loop, engine = world.loop(world.take_over(), driver=f"pod-{len(world.reports)}-{len(world.table.losses)}")
    with pytest.raises(DataLoss) as caught:
        loop.run()
    assert engine.batches == []
    assert caught.value.__cause__ is not caught.value
    return caught.value


def truncated(world: World, *, end: int) -> Loss:
    """Return the loss of a log that was truncated to offset 12 and ends at `end` under another leader."""
    world.log.epoch, world.log.grown_again_from["t/0"], world.log.ends["t/0"] = 5, 12, end
    return present(losing(world).loss)


def assert_continued_from_12(world: World, loss: Loss) -> None:
    """Accept a loss: the rest of the log is read."""
    world.accept(loss)
    engine = world.run(driver="pod-9")
    assert engine.batches[0].ranges[0].start == 12
    assert world.row().offsets == world.log.ends


def test_a_loss_is_recorded_and_the_next_run_skips_what_is_accepted_of_it_and_no_more() -> None:
    world = caught_up()
    world.log.ends = {"t/0": 90, "t/1": 80}
    world.log.begins = {"t/0": 40, "t/1": 25}
    loss = present(losing(world).loss)
    assert loss.ranges == {"t/0": (30, 40), "t/1": (20, 25)}
    assert losing(world).loss == loss
    world.accept(loss)
    world.log.begins["t/1"] = 33
    more = present(losing(world).loss)
    assert more.ranges == {"t/1": (25, 33)}
    world.accept(more)
    world.run(driver="pod-9")
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
        raise refused

    world = World()
    loop, engine = world.loop(world.take_over())
    engine.midway = refuse
    with pytest.raises(BatchFailed, match=r"OffsetOutOfRange is not confirmed: .* t/0 \[0, 30\) with 0 next"):
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
    world = caught_up()
    world.log.ends["t/0"] = 60
    loop, engine = world.loop(world.take_over(), driver="pod-2")
    seen = Loss(reason=Reason.LOG_TRUNCATED, ranges={"t/0": (12, 30), "other/0": (0, 1)})

    def diverge() -> None:
        world.log.epoch, world.log.grown_again_from["t/0"] = 5, 12
        raise DataLoss("cut", reason=Reason.LOG_TRUNCATED, loss=seen)

    engine.midway = diverge
    with pytest.raises(DataLoss) as caught:
        loop.run()
    loss = present(caught.value.loss)
    assert (loss.ranges, loss.topics) == ({"t/0": (12, 30)}, {"t": TopicChange("id", "id")})
    assert_continued_from_12(world, loss)


def test_a_truncated_log_that_ends_before_the_offset_is_lost_from_its_truncation() -> None:
    """Found: the loss began at the log's end, so the new records before that were never read once it was accepted."""
    world = caught_up()
    loss = truncated(world, end=20)
    assert loss.ranges == {"t/0": (12, 30)}
    assert_continued_from_12(world, loss)


def test_a_log_that_is_cut_again_before_the_acceptance_is_another_loss() -> None:
    """Found: the claim forgot under which leader the accepted offset was reached."""
    world = caught_up()
    loss = truncated(world, end=60)
    assert loss.ranges == {"t/0": (12, 30)}
    world.log.epoch, world.log.grown_again_from["t/0"] = 6, 7
    world.accept(loss)
    more = present(losing(world).loss)
    assert more.ranges == {"t/0": (7, 12)}


def test_a_log_truncated_before_the_offset_loses_the_begun_batch_and_what_was_committed() -> None:
    world = caught_up()
    world.log.ends["t/0"] = 40
    world.crash("midway", 1, driver="old")
    assert world.row().planned["t/0"] == 40
    loss = truncated(world, end=35)
    assert loss.ranges == {"t/0": (12, 40)}


def test_a_loss_is_recorded_once_kafka_answers_where_the_log_was_truncated() -> None:
    world = caught_up()
    world.log.epoch, world.log.ends["t/0"] = 5, 20
    loop, _ = world.loop(world.take_over(), driver="pod-2")

    def silent(_: str) -> None:
        raise DependencyDown("no answer", reason=Reason.KAFKA_UNREACHABLE)

    world.records_step = silent
    with pytest.raises(DependencyDown):
        loop.run()
    assert world.table.losses == {}


def test_a_truncation_while_a_run_idles_is_found_before_the_next_batch_although_the_log_grew_again() -> None:
    """The tasks' consumers have seen the new leader by then, and librdkafka lets them read on."""
    world = World()
    loop, engine = world.loop(world.take_over())

    def elect() -> None:
        if world.row().offsets == {"t/0": 30, "t/1": 20}:
            world.log.epoch, world.log.grown_again_from["t/0"], world.log.ends["t/0"] = 5, 12, 60

    world.log.fault = elect
    with pytest.raises(DataLoss) as caught:
        loop.run()
    assert present(caught.value.loss).ranges == {"t/0": (12, 30)}
    assert max(batch.until["t/0"] for batch in engine.batches) == 30


def test_another_leader_with_all_records_is_checked_once() -> None:
    world = caught_up()
    world.log.epoch, world.log.ends["t/0"] = 5, 60
    world.run(driver="pod-2")
    world.assert_complete()
    assert world.records_steps == ["check"]


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason in LOSSES or reason is Reason.DATA_LOSS])
def test_a_loss_that_the_log_contradicts_is_a_failed_run_and_is_not_recorded(reason: Reason) -> None:
    """An author's code can raise any loss, of any ranges: its acceptance would skip records that Kafka holds."""
    world = caught_up()
    world.log.ends["t/0"] = 60
    loop, engine = world.loop(world.take_over(), driver="pod-2")
    claimed = Loss(reason=reason, ranges={"t/0": (12, 55)}, topics={"t": TopicChange("id", "other")}, committed_ms=1)

    def claim() -> None:
        raise DataLoss("so the code says", reason=reason, loss=claimed)

    engine.midway = claim
    with pytest.raises(
        BatchFailed, match=f"{reason} is not confirmed: so the code says; but .* with 30 next"
    ) as caught:
        loop.run()
    assert "raises DataLoss" in caught.value.remedy
    assert world.table.losses == {}


def test_of_a_claimed_loss_what_the_driver_sees_is_recorded() -> None:
    world = caught_up()
    world.log.ends["t/0"] = 60
    loop, engine = world.loop(world.take_over(), driver="pod-2")

    def claim() -> None:
        world.log.begins["t/0"] = 33
        wide = Loss(reason=Reason.OFFSET_OUT_OF_RANGE, ranges={"t/0": (0, 55), "t/1": (0, 20)})
        raise DataLoss("gone", reason=Reason.OFFSET_OUT_OF_RANGE, loss=wide)

    engine.midway = claim
    with pytest.raises(DataLoss):
        loop.run()
    assert [report.loss.ranges for report in world.table.losses.values()] == [{"t/0": (30, 33)}]


@pytest.mark.parametrize("finishes", [False, True])
def test_a_batch_that_ends_beyond_a_truncated_log_is_a_loss_and_closed_once_that_is_accepted(finishes: bool) -> None:
    """Found: its records never come back, so the old code never finished it and the new code never started."""
    world = World()
    world.crash("midway", 1, driver="old")
    assert world.row().planned == {"t/0": 5, "t/1": 5}
    world.log.ends = {"t/0": 3, "t/1": 20}
    until = {"t/0": 5, "t/1": 5} if finishes else {}
    loop, _ = world.loop(world.take_over(), driver="pod-2", finish_until=until)
    with pytest.raises(
        DataLoss, match=r"2 offsets of 1 partition were read and no longer exist: t/0 \[3, 5\)"
    ) as caught:
        loop.run()
    world.accept(caught.value.loss)
    left = {"t/0": 3, "t/1": 5} if finishes else {}
    again, _ = world.loop(world.take_over(), driver="pod-3", finish_until=left)
    again.claim()
    assert world.row().written_until == {"t/0": 3, "t/1": 5}
    again, _ = world.loop(world.take_over(), driver="pod-4", finish_until=left)
    again.run()
    assert again._stop.is_set() is not finishes  # a run that finishes a batch ends without a stop
    assert world.row().written_until == {}
    assert world.row().offsets == (left or world.log.ends)


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (FenceUnavailable("silent"), FenceUnavailable),
        (FenceUnauthorized("refused"), DataLoss),
        (FenceSchemaMissing("no table"), DataLoss),
    ],
)
def test_a_loss_that_cannot_be_recorded(error: Exception, ends: type[Exception]) -> None:
    """Without an answer the next run finds the loss again; without the table or the right the user acts first."""
    world = caught_up()
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


def test_a_topic_that_a_broker_does_not_know_for_a_moment_is_not_a_data_loss() -> None:
    world = caught_up()
    world.log.looks = 0

    def forget() -> None:
        world.log.missing = 3.0 if world.log.looks < 4 else None

    world.log.fault = forget
    world.log.ends["t/0"] += 7
    world.run(driver="pod-2", idle=6)
    world.assert_complete()
    world.log.fault = lambda: None
    world.log.missing = plan.AGREEMENT
    third, _ = world.loop(world.take_over(), driver="pod-3")
    with pytest.raises(DataLoss, match="does not exist"):
        third.run()


def expiring() -> World:
    """A pipeline that has committed, and then fell behind a retention that continues."""
    world = World(log=FakeLog(ends={f"t/{number}": 10 for number in range(5)}))
    world.run(driver="first", limit=100)
    world.log.ends = dict.fromkeys(world.log.ends, 1000)
    world.log.begins = dict.fromkeys(world.log.ends, 20)
    return world


def expired() -> World:
    """The same, once its first loss is accepted, with all that expires until the next claim."""
    world = expiring()
    world.accept(losing(world).loss, "earliest")
    return world


def test_an_open_acceptance_covers_what_expires_until_the_next_run_claims() -> None:
    """Found: 50 acceptances by hand, and no record read: each run found a segment more gone."""
    world = expired()
    world.log.begins["t/3"] = 520
    world.run(driver="next", limit=5000)
    assert world.row().offsets == world.log.ends
    assert world.table.skipped == {**{(PIPELINE, key, 10): 20 for key in world.log.ends}, (PIPELINE, "t/3", 10): 520}


def test_a_run_under_an_open_acceptance_continues_past_what_expires_meanwhile() -> None:
    world = expired()
    loop, engine = world.loop(world.take_over(), driver="next", limit=50)
    attempts = Counter[str]()

    def expire() -> None:
        attempts["n"] += 1
        if attempts["n"] in {1, 3}:  # in the first batch after the claim, and after a commit
            world.log.begins["t/1"] += 100
            raise DataLoss("Kafka refused an offset", reason=Reason.OFFSET_OUT_OF_RANGE)

    engine.before = expire
    loop.run()
    assert world.row().offsets == world.log.ends
    moved = {start: end for (_, key, start), end in world.table.skipped.items() if key == "t/1"}
    read = {offset for key, offset in world.store.cells if key == "t/1"}
    skipped = {offset for start, end in moved.items() for offset in range(start, end)}
    assert read | skipped == set(range(1000))
    assert not read & skipped
    assert check_history(world.table.history, accepted=accepted_in(world)).violations == ()


def test_what_an_open_acceptance_skips_is_mirrored_and_the_rest_of_the_batch_stays_planned() -> None:
    """A part of it may be written, so that a stop withdraws nothing."""
    world = expired()
    loop, engine = world.loop(world.take_over(), driver="next", limit=50)
    mirrored: list[int] = []

    def expire() -> None:
        world.log.begins["t/1"] = 22
        raise DataLoss("Kafka refused an offset", reason=Reason.OFFSET_OUT_OF_RANGE)

    def mirror(offsets: Mapping[str, int]) -> None:
        mirrored.append(offsets["t/1"])
        if len(mirrored) == 2:
            loop._stop.set()

    engine.before, loop._mirror = expire, mirror
    loop.run()
    assert mirrored == [20, 22]
    assert world.row().offsets == {**dict.fromkeys(world.log.ends, 20), "t/1": 22}
    assert world.row().planned == dict.fromkeys(world.log.ends, 30)
    assert loop.hand.is_empty


def test_an_open_acceptance_covers_no_truncation() -> None:
    world = expired()
    loop, engine = world.loop(world.take_over(), driver="next", limit=50)

    def cut() -> None:
        world.log.begins["t/1"] = 100
        raise DataLoss("cut", reason=Reason.LOG_TRUNCATED)

    engine.before = cut
    with pytest.raises(DataLoss):
        loop.run()
    assert world.row().offsets == dict.fromkeys(world.log.ends, 20)


def accepted_in(world: World) -> list[AcceptedLoss]:
    return [
        AcceptedLoss(partition=key, start=start, until=end, reason="OffsetOutOfRange", choice="earliest")
        for (_, key, start), end in world.table.skipped.items()
    ]


def test_an_open_acceptance_ends_where_the_log_ended_at_the_claim() -> None:
    """Records that came after it are another loss, which is not accepted."""
    world = expired()
    loop, engine = world.loop(world.take_over(), driver="next", limit=50)

    def expire() -> None:
        world.log.ends["t/1"] = 3000
        world.log.begins["t/1"] = 2000
        raise DataLoss("Kafka refused an offset", reason=Reason.OFFSET_OUT_OF_RANGE)

    engine.before = expire
    with pytest.raises(DataLoss) as caught:
        loop.run()
    assert present(caught.value.loss).ranges == {"t/1": (20, 2000)}


def test_an_open_acceptance_covers_its_topics_alone() -> None:
    world = expiring()
    lost = losing(world)
    given = Acceptance(by="kim", choice="earliest", at=datetime(2026, 1, 1, tzinfo=UTC))
    report = ReportedLoss(loss=present(lost.loss), epoch=1, at=datetime(2026, 1, 1, tzinfo=UTC), acceptance=given)
    row = replace(
        world.row(),
        offsets={"t/0": 10, "other/0": 5},
        topic_ids={"t": "id", "other": "id"},
        accepted_until={"t/0": 1000, "other/0": 1000},
    )
    both = Watermarks(begins={"t/0": 20, "other/0": 6}, ends={"t/0": 30, "other/0": 30}, topic_ids={})
    assert without_expired(row, (report,), both) is None
    one = replace(both, begins={"t/0": 20, "other/0": 5})
    found = present(without_expired(row, (report,), one))
    assert found.row.offsets == {"t/0": 20, "other/0": 5}


@pytest.mark.parametrize("step", ["before", "midway", "after"])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_an_open_acceptance_survives_the_run_that_claimed_under_it(step: str, batch: int) -> None:
    """Found: after a crash the next segment that expired was another loss, and another page."""
    world = expired()
    world.crash(step, batch, driver="next", limit=50)
    assert set(world.row().accepted_until.values()) == {1000}
    world.log.begins["t/1"] = 500
    died_at = world.row().offsets["t/1"]
    world.run(driver="third", limit=50)
    assert world.row().offsets == world.log.ends
    assert world.row().accepted_until == {}
    assert world.table.skipped[PIPELINE, "t/1", died_at] == 500
    assert check_history(world.table.history, accepted=accepted_in(world)).violations == ()


def test_a_rewind_ends_an_open_acceptance() -> None:
    """What is read again was read before, and its rows are gone: that loss is not accepted."""
    world = expired()
    world.crash("before", 4, driver="next", limit=50)
    world.take_over()
    world.fence().rewind(world.row(), offsets=dict.fromkeys(world.log.ends, 25), leader_epochs={}, growth_barrier={})
    world.log.begins["t/1"] = 500
    assert losing(world).loss is not None
