"""Of several replicas at most one may write, whatever happens to processes, clocks and the API server."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fakes.lease import START, FakeLeases, Replica
from fencepost_operator.errors import NotLeading
from fencepost_operator.ports import LeaseRecord
from fencepost_operator.runtime.replicas.leadership import DURATION, RENEWAL, VALIDITY, LeaseLost
from present import present

TARGET = 20.0
"""Seconds within which a successor acts."""


class Enough(Exception):
    """The test has seen what it wanted."""


def stop_after(replica: Replica, seconds: float) -> None:
    end = replica.seconds + seconds

    def look() -> None:
        if replica.seconds >= end:
            raise Enough

    replica.slept = look


async def keep(replica: Replica, seconds: float) -> None:
    stop_after(replica, seconds)
    with pytest.raises(Enough):
        await replica.leadership.keep()


async def waited(replica: Replica) -> float:
    """Return the seconds until it has the lease, without what sums of binary fractions are off by."""
    began = replica.seconds
    await replica.acquire()
    return round(replica.seconds - began, 6)


@pytest.fixture
def leases() -> FakeLeases:
    return FakeLeases()


@pytest.fixture
async def first(leases: FakeLeases) -> Replica:
    """It holds the lease."""
    replica = Replica(leases, "a")
    await replica.acquire()
    return replica


@pytest.fixture
def second(leases: FakeLeases) -> Replica:
    return Replica(leases, "b")


async def test_the_first_replica_takes_the_lease_and_no_other_writes() -> None:
    replica = Replica(FakeLeases(), "a")
    with pytest.raises(NotLeading):
        replica.leadership.require()
    assert await waited(replica) == DURATION
    replica.leadership.require()
    assert replica.leases.record is not None
    assert (replica.leases.record.holder, replica.leases.record.transitions) == ("a", 0)


@pytest.mark.usefixtures("first")
async def test_a_holder_that_renews_keeps_the_lease(leases: FakeLeases, second: Replica) -> None:
    renewals = 0

    def renew_meanwhile() -> None:
        nonlocal renewals
        assert leases.record is not None
        leases.record = replace(leases.record, resource_version=f"renewed-{renewals}")
        renewals += 1
        if second.seconds > 10 * DURATION:
            raise Enough

    second.slept = renew_meanwhile
    with pytest.raises(Enough):
        await second.acquire()
    assert not second.leadership.is_held


@pytest.mark.usefixtures("first")
async def test_a_killed_holder_is_succeeded_within_the_target(leases: FakeLeases, second: Replica) -> None:
    assert await waited(second) == DURATION < TARGET
    assert leases.record is not None
    assert (leases.record.holder, leases.record.transitions) == ("b", 1)


async def test_a_holder_that_ends_cleanly_is_succeeded_at_once(first: Replica, second: Replica) -> None:
    await first.leadership.release()
    with pytest.raises(NotLeading):
        first.leadership.require()
    assert await waited(second) == 0


async def test_a_container_that_restarts_takes_its_pods_lease_at_once(leases: FakeLeases) -> None:
    await Replica(leases, "pod_uid").acquire()
    assert await waited(Replica(leases, "pod_uid")) == 0
    assert present(leases.record).transitions == 0


async def test_a_holder_that_was_frozen_writes_nothing_when_it_wakes_up(
    leases: FakeLeases, first: Replica, second: Replica
) -> None:
    frozen = await waited(second)
    first.pass_time(frozen)
    with pytest.raises(NotLeading):
        first.leadership.require()
    with pytest.raises(LeaseLost, match="held by b"):
        await first.leadership.keep()
    with pytest.raises(NotLeading):
        first.leadership.require()
    await first.leadership.release()
    assert present(leases.record).holder == "b"


async def test_a_holder_that_was_frozen_and_not_succeeded_writes_only_after_a_renewal(first: Replica) -> None:
    first.pass_time(3600)
    with pytest.raises(NotLeading):
        first.leadership.require()
    await keep(first, 2 * RENEWAL)
    first.leadership.require()


async def test_the_holder_stops_before_a_successor_can_begin(leases: FakeLeases) -> None:
    """Also when the renewal took effect as soon as it was asked for, and its answer came late."""
    first, second = Replica(leases, "a"), Replica(leases, "b")
    leases.before_write = lambda: first.pass_time(2.5)
    await first.acquire()
    leases.before_write = lambda: None
    first.pass_time(VALIDITY - 2.5)
    assert not first.leadership.is_held
    assert await waited(second) >= DURATION > VALIDITY


async def test_clocks_that_are_set_change_nothing(leases: FakeLeases) -> None:
    first, second = Replica(leases, "a"), Replica(leases, "b", wall=START + timedelta(days=400))
    await first.acquire()
    first.wall -= timedelta(days=400)
    first.leadership.require()
    assert await waited(second) >= DURATION
    first.wall += timedelta(days=4000)
    first.leadership.require()


@pytest.mark.parametrize("fault", ["down", "loses_answers"])
async def test_without_an_answer_nothing_is_written_and_the_same_replica_continues(
    leases: FakeLeases, first: Replica, fault: str
) -> None:
    """A renewal whose answer is lost does not count, and no other replica wrote it."""
    setattr(leases, fault, True)
    await keep(first, VALIDITY + RENEWAL)
    with pytest.raises(NotLeading):
        first.leadership.require()
    setattr(leases, fault, False)
    await keep(first, 2 * RENEWAL)
    first.leadership.require()


async def test_of_two_replicas_that_take_it_at_once_one_gets_it(leases: FakeLeases) -> None:
    first, second = Replica(leases, "a"), Replica(leases, "b")
    taken: list[LeaseRecord] = []

    def overtake() -> None:
        leases.before_write = lambda: None
        leases.record = LeaseRecord(
            holder="b", duration=DURATION, acquired_at=START, renewed_at=START, resource_version="b-1"
        )
        taken.append(leases.record)

    leases.before_write = overtake
    seconds = await waited(first)
    assert taken
    assert seconds >= DURATION
    assert not second.leadership.is_held


async def test_a_holder_whose_lease_is_deleted_writes_nothing_until_it_has_made_it_again(
    leases: FakeLeases, first: Replica
) -> None:
    leases.record = None
    held: list[bool] = []
    leases.before_write = lambda: held.append(first.leadership.is_held)
    await keep(first, 2 * RENEWAL)
    assert held[:2] == [True, False], "its renewal, and the creation after it"
    first.leadership.require()
    assert [record.holder for record in leases.writes[-2:]] == ["a", "a"]


async def test_whoever_creates_a_deleted_lease_acts_only_when_its_holder_has_stopped(
    leases: FakeLeases, first: Replica, second: Replica
) -> None:
    leases.record = None
    assert await waited(second) >= DURATION > VALIDITY
    with pytest.raises(LeaseLost, match="held by b"):
        await first.leadership.keep()
    assert not first.leadership.is_held


@pytest.mark.usefixtures("first")
async def test_a_contender_that_restarts_while_it_waits_begins_to_wait_again(leases: FakeLeases) -> None:
    contender = Replica(leases, "pod_uid")
    leases.record = None
    stop_after(contender, DURATION / 2)
    with pytest.raises(Enough):
        await contender.acquire()
    assert await waited(Replica(leases, "pod_uid")) >= DURATION


async def test_a_lease_that_is_deleted_while_a_contender_waits_is_waited_for_again(leases: FakeLeases) -> None:
    contender = Replica(leases, "b")
    stop_after(contender, DURATION / 2)
    with pytest.raises(Enough):
        await contender.acquire()
    leases.record = None
    contender.slept = lambda: None
    assert await waited(contender) == DURATION


async def test_a_holder_that_was_frozen_and_finds_no_lease_remembers_nothing(
    leases: FakeLeases, first: Replica
) -> None:
    """Injected: another replica acted meanwhile, and then the Lease was deleted."""
    first.pass_time(3600)
    leases.record = None
    with pytest.raises(LeaseLost, match="deleted after it had expired"):
        await first.leadership.keep()
    assert leases.record is None
    assert not first.leadership.is_held


async def test_a_lease_written_by_hand_delays_for_a_minute_at_most() -> None:
    record = LeaseRecord(holder="x", duration=1e9, acquired_at=START, renewed_at=START, resource_version="x-1")
    assert await waited(Replica(FakeLeases(record), "a")) <= 60 + 2 * RENEWAL
