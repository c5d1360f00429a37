"""Elections: what each leader's log has, and what a pipeline that reads from them commits and reports as lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.batch import Range, Sighting, Watermarks
from fencepost.contract import Acceptance, Loss, Reason
from fencepost.errors import BatchFailed, DataLoss, DependencyDown
from present import present
from unit.driver.loop_world import PIPELINE, FakeLog, World

KEY = "t/0"
ACCEPTED = Acceptance(by="kim", choice="", at=datetime(2026, 1, 1, tzinfo=UTC))


@dataclass
class Replicas(FakeLog):
    """One partition on several brokers: of each the epochs of its records, and the epoch under which it leads.

    A broker that is cut off leads on for whoever asks it: `look`, `driver` and `tasks` name who answers whom.
    """

    logs: dict[str, list[int]] = field(default_factory=dict)
    leads: dict[str, int] = field(default_factory=dict)
    look: str = "A"
    driver: str = "A"
    tasks: str = "A"
    gaps: set[int] = field(default_factory=set)
    """Offsets without a record, as markers and aborted records leave them."""
    read: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By offset: broker and epoch of the record that a task read last."""

    def everyone_asks(self, broker: str) -> None:
        self.look = self.driver = self.tasks = broker

    def state(self) -> Watermarks:
        ends = {KEY: len(self.logs[self.look])}
        return Watermarks(begins={KEY: 0}, ends=ends, topic_ids={"t": "id"}, leader_epochs={KEY: self.leads[self.look]})

    def check(self, parts: Sequence[Range], at_least: Mapping[str, int]) -> Mapping[str, int]:
        if not parts:
            return {}
        (part,) = parts
        log, asked = self.logs[self.driver], part.leader_epoch
        assert asked is not None
        if asked > self.leads[self.driver]:
            raise DependencyDown("the leader knows no epoch so late")
        end = next((at for at, epoch in enumerate(log) if epoch > asked), len(log))
        has_none = asked not in log and asked < self.leads[self.driver]
        if end < part.start:
            raise truncated(min(end, part.epoch_start) if has_none and part.epoch_start is not None else end, part)
        record = next((log[at] for at in range(part.start, len(log)) if at not in self.gaps), None)
        if record is None:
            return {}
        if part.epoch_start is not None and record < asked:
            raise truncated(part.epoch_start, part)
        if record < at_least.get(KEY, 0):
            raise DependencyDown("the answer is of a leader that was cut off")
        return {KEY: record}

    def sightings(self, part: Range) -> tuple[Sighting, ...]:
        log = self.logs[self.tasks]
        records = [Sighting(at, log[at]) for at in range(part.start, len(log)) if at not in self.gaps]
        inside = [record for record in records if record.offset < part.until]
        self.read |= {record.offset: (self.tasks, record.epoch) for record in inside}
        return (*inside, *records[len(inside) : len(inside) + 1])


def truncated(start: int, part: Range) -> DataLoss:
    loss = Loss(reason=Reason.LOG_TRUNCATED, ranges={KEY: (start, part.start)})
    return DataLoss("the log was truncated", reason=Reason.LOG_TRUNCATED, loss=loss)


def run(world: World, limit: int = 1000) -> None:
    world.run(driver=f"pod-{len(world.table.history)}", limit=limit)


def losing(world: World) -> tuple[int, int]:
    """Run into a loss, which is recorded; accept it; return its range."""
    with pytest.raises(DataLoss) as caught:
        run(world)
    assert caught.value.loss is not None
    world.table.accept_loss(PIPELINE, caught.value.loss, ACCEPTED)
    return caught.value.loss.ranges[KEY]


def assert_read_whole(world: World, log: Replicas, broker: str, start: int = 0) -> None:
    """Every record of a broker's log was read from it, or from one that has the same."""
    found = {offset: epoch for offset, (_, epoch) in log.read.items() if offset >= start}
    records = {at: epoch for at, epoch in enumerate(log.logs[broker]) if at >= start and at not in log.gaps}
    assert found == records
    assert world.row().offsets == {KEY: len(log.logs[broker])}


def with_a_leader_that_was_cut_off(*, new: int) -> tuple[World, Replicas]:
    """A world that has committed 40 records; then A has 50 more of its own, and the next leader B has `new` others."""
    log = Replicas(logs={"A": [1] * 40, "B": [1] * 40}, leads={"A": 1})
    world = World(log=log)
    run(world)
    log.logs = {"A": [1] * 90, "B": [1] * 40 + [2] * new}
    log.leads["B"] = 2
    log.look = "B"  # the driver sees the next leader, and neither its own question nor its tasks reach it
    return world, log


def test_rows_of_a_leader_that_was_cut_off_are_committed_under_its_epoch_and_lost_under_the_next_leader_s() -> None:
    """Found: a worker's consumer read from it a batch that was planned by the log of the next leader."""
    world, log = with_a_leader_that_was_cut_off(new=50)
    run(world)
    assert world.row().offsets == {KEY: 90}
    assert (world.row().leader_epochs, world.row().epoch_starts) == ({KEY: 1}, {KEY: 0})
    log.logs["B"] += [2] * 10
    log.everyone_asks("B")
    assert losing(world) == (40, 90)
    run(world)
    assert_read_whole(world, log, "B")


def test_a_run_that_reads_on_from_the_leader_that_was_cut_off_finds_it_with_the_first_record_of_the_next_one() -> None:
    world, log = with_a_leader_that_was_cut_off(new=70)
    loop, engine = world.loop(world.take_over(), driver="other", limit=50)

    def move() -> None:
        if world.row().offsets == {KEY: 90}:
            log.everyone_asks("B")

    engine.before = move
    with pytest.raises(DataLoss) as caught:
        loop.run()
    assert present(caught.value.loss).ranges == {KEY: (40, 90)}
    assert world.row().offsets == {KEY: 90}


def test_a_batch_of_two_leaders_is_not_committed() -> None:
    """The first slice is of the one that was cut off."""
    log = Replicas(logs={"A": [1] * 160, "B": [1] * 40 + [2] * 100}, leads={"A": 1, "B": 2})
    log.everyone_asks("B")
    world = World(log=log)
    loop, engine = world.loop(world.take_over(), limit=100)
    engine.sightings = lambda _: (Sighting(0, 1), Sighting(69, 1), Sighting(70, 2), Sighting(99, 2))
    with pytest.raises(BatchFailed, match="Kafka's log holds all that follows the committed offsets"):
        loop.run()
    assert world.row().offsets == {KEY: 0}
    log.driver = "A"  # and that is answered by the leader that was cut off
    loop, engine = world.loop(world.take_over(), driver="other", limit=100)
    engine.sightings = lambda _: (Sighting(0, 1), Sighting(69, 1), Sighting(70, 2), Sighting(99, 2))
    with pytest.raises(DependencyDown):
        loop.run()
    assert world.row().offsets == {KEY: 0}
    log.everyone_asks("B")
    run(world)
    assert_read_whole(world, log, "B")


def elected_again(old: list[int]) -> tuple[World, Replicas]:
    """B was elected with [0, 100) and wrote 50 records, which were read; then A is again, with its old log."""
    log = Replicas(logs={"A": [1] * 100, "B": [1] * 100}, leads={"A": 1})
    world = World(log=log)
    run(world)
    log.logs["B"] += [2] * 50
    log.leads = {"B": 2}
    log.everyone_asks("B")
    run(world)
    assert (world.row().leader_epochs, world.row().epoch_starts) == ({KEY: 2}, {KEY: 100})
    log.logs["A"] = old
    log.leads = {"A": 3}
    log.everyone_asks("A")
    return world, log


@pytest.mark.parametrize("old", [[1] * 160, [1] * 160 + [3] * 10, [1] * 120 + [3] * 40])
def test_a_leader_that_is_elected_again_with_its_old_log_has_records_that_were_not_read(old: list[int]) -> None:
    """Found: the log ends the next earlier epoch beyond the committed offset, so Kafka's answer shows nothing."""
    world, log = elected_again(old)
    assert losing(world) == (100, 150)
    run(world)
    assert_read_whole(world, log, "A")


def test_its_election_between_two_looks_is_found_too() -> None:
    log = Replicas(logs={"A": [1] * 160, "B": [1] * 100 + [2] * 50}, leads={"A": 3, "B": 2})
    log.everyone_asks("B")
    world = World(log=log)
    engine = world.run(limit=200)
    log.logs["B"] += [2] * 10
    loop, engine = world.loop(world.take_over(), driver="other", limit=200)

    def elect() -> None:
        log.tasks = "A"

    engine.before = elect
    with pytest.raises(DependencyDown, match="two logs"):
        loop.run()
    assert world.row().offsets == {KEY: 150}
    log.everyone_asks("A")
    assert losing(world) == (100, 150)
    run(world)
    assert_read_whole(world, log, "A")


def test_a_clean_election_costs_one_question_and_a_backlog_one_for_each_rise() -> None:
    log = Replicas(logs={"A": [1] * 30 + [2] * 30 + [4] * 30}, leads={"A": 7})
    world = World(log=log)
    run(world, limit=10)
    assert world.records_steps == ["check"] * 3  # about the leader, and where the epochs rise
    log.logs["A"] += [7] * 30
    world.records_steps.clear()
    run(world, limit=10)
    assert world.records_steps == ["check"]
    assert (world.row().leader_epochs, world.row().epoch_starts) == ({KEY: 7}, {KEY: 90})
    run(world)
    assert world.records_steps == ["check"]
    assert_read_whole(world, log, "A")


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 30)),
            st.tuples(st.just("mark"), st.integers(1, 12)),
            st.tuples(st.just("elect"), st.integers(1, 3)),
            st.tuples(st.just("run"), st.integers(1, 40)),
        ),
        max_size=30,
    )
)
def test_whatever_happens_to_leaders_that_lose_nothing_no_run_ends_and_few_questions_are_asked(
    steps: list[tuple[str, int]],
) -> None:
    """Restarts, moved partitions and preferred elections, with markers, aborted records and backlogs."""
    log = Replicas(logs={"A": [0]}, leads={"A": 0})
    world = World(log=log)
    runs = elections = 0
    for step, number in [*steps, ("run", 7)]:
        written, leader = log.logs["A"], log.leads["A"]
        match step:
            case "append":
                written += [leader] * number
            case "mark":
                log.gaps |= set(range(len(written), len(written) + number))
                written += [leader] * number
            case "elect":
                log.leads["A"], elections = leader + number, elections + 1
            case _:
                runs += 1
                run(world, limit=number)
    assert_read_whole(world, log, "A")
    assert len(world.records_steps) <= runs + 2 * elections
