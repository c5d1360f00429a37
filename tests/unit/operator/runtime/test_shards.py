"""Each pipeline has one replica that may write, whatever happens to replicas, Leases and the number of shards."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from fakes.lease import FakeShardLeases
from fakes.shards import PIPELINES, Member, Timeline
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import NotLeading
from fencepost_operator.logs import PIPELINE
from fencepost_operator.runtime.replicas.leadership import DURATION, RENEWAL, VALIDITY
from fencepost_operator.runtime.replicas.shards import shard_of, share_of
from present import present

TARGET = 20.0
"""Seconds within which a successor acts."""


class Scene:
    """Replicas on the same Leases; no step may find two that may write to one pipeline."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.timeline, self.leases, self.chance = Timeline(at_each_step=self.check), FakeShardLeases(), chance
        self.members: list[Member] = []
        self.served = Counter[ObjectKey]()
        """Steps at which a pipeline had a replica."""
        self.steps = 0

    def start(self, name: str, count: int = 3) -> Member:
        member = Member(timeline=self.timeline, leases=self.leases, name=name, count=count, chance=self.chance)
        self.members.append(member)
        return member.start()

    def check(self) -> None:
        self.steps += 1
        for key in PIPELINES:
            owners = [member.name for member in self.members if member.may_write(key)]
            assert len(owners) <= 1, f"{key} at {self.timeline.now:.1f} s: {owners}"
            self.served[key] += len(owners)

    async def after(self, seconds: float) -> None:
        await self.timeline.pass_time(seconds)

    def transitions(self) -> int:
        """Return how often a Lease has got another holder."""
        return sum(each.record.transitions for each in self.leases.leases.values() if each.record is not None)

    def is_complete(self) -> bool:
        return all(any(member.may_write(key) for member in self.members) for key in PIPELINES)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_pipeline_belongs_to_the_same_shard_in_each_release() -> None:
    """Replicas of two releases share the Leases during an upgrade."""
    assert [shard_of(ObjectKey("orders", name), 3) for name in ("a", "b", "c", "d", "e")] == [2, 2, 2, 1, 0]
    assert {shard_of(key, 1) for key in PIPELINES} == {0}


def test_shards_are_about_equal() -> None:
    keys = [ObjectKey(f"team-{number % 50}", f"pipeline-{number}") for number in range(6000)]
    for count in (3, 7, 32):
        sizes = Counter(shard_of(key, count) for key in keys)
        assert sizes.keys() == set(range(count))
        assert max(sizes.values()) < 1.4 * min(sizes.values())


@pytest.mark.parametrize(("limit", "count"), [(5, 3), (3, 3), (10, 7), (0, 4), (10000, 32)])
def test_the_parts_of_a_limit_add_up_to_it(limit: int, count: int) -> None:
    parts = [share_of(limit, [shard], count) for shard in range(count)]
    assert sum(parts) == share_of(limit, range(count), count) == limit
    assert max(parts) - min(parts) <= 1
    assert min(parts) > 0 or limit == 0, "0 would mean any number"


async def test_a_single_replica_has_all_shards(scene: Scene) -> None:
    first = scene.start("a")
    await scene.after(DURATION + 2 * RENEWAL)
    assert first.has == {0, 1, 2}
    assert scene.is_complete()
    assert first.log[0] == "prepare 0 of [0]"
    assert {record.shards for record in scene.leases.writes} == {3}


async def test_replicas_that_join_get_a_fair_share_when_its_loops_have_ended(scene: Scene) -> None:
    first = scene.start("a")
    await scene.after(DURATION + 2 * RENEWAL)
    second = scene.start("b")
    await scene.after(6 * RENEWAL)
    assert [len(member.has) for member in (first, second)] == [2, 1]
    assert [line for line in first.log if line.startswith("end")] == ["end 2, keeps [0, 1]"]
    third = scene.start("c")
    await scene.after(6 * RENEWAL)
    assert [len(member.has) for member in (first, second, third)] == [1, 1, 1]
    handed = scene.transitions()
    await scene.after(60)
    assert scene.is_complete()
    assert scene.transitions() == handed, "nothing moves any more"
    assert not any(member.errors for member in scene.members)


async def test_with_one_shard_another_replica_waits(scene: Scene) -> None:
    first, second = scene.start("a", 1), scene.start("b", 1)
    await scene.after(120)
    assert sorted([first.has, second.has], key=len) == [set(), {0}]


async def test_the_shards_of_a_killed_replica_are_taken_and_the_others_stay(scene: Scene) -> None:
    members = [scene.start(name) for name in "abc"]
    await scene.after(60)
    assert [len(member.has) for member in members] == [1, 1, 1]
    killed, *others = members
    kept, logs = [set(other.has) for other in others], [len(other.log) for other in others]
    killed.kill()
    before = scene.served.copy()
    began = scene.steps
    await scene.after(TARGET)
    assert scene.is_complete()
    assert sum(len(other.has) for other in others) == 3
    for other, shards, length in zip(others, kept, logs, strict=True):
        assert shards <= other.has
        assert not any(line.startswith("end") for line in other.log[length:])
        for key in PIPELINES:
            if shard_of(key, 3) in shards:
                assert scene.served[key] - before[key] == scene.steps - began, "its passes never paused"


async def test_the_shards_of_a_replica_that_ends_in_order_are_taken_at_once(scene: Scene) -> None:
    first, second = scene.start("a"), scene.start("b")
    await scene.after(60)
    await first.stop()
    await scene.after(2 * RENEWAL)
    assert second.has == {0, 1, 2}


async def test_a_replica_that_was_frozen_writes_nothing_when_it_wakes_up(scene: Scene) -> None:
    first, second = scene.start("a"), scene.start("b")
    await scene.after(60)
    first.is_frozen = True
    await scene.after(TARGET)
    assert second.has == {0, 1, 2}
    assert first.has == set()
    first.is_frozen = False
    await scene.after(2 * RENEWAL)
    assert first.errors


async def test_a_write_needs_the_lease_of_the_pipelines_shard(scene: Scene) -> None:
    first, second = scene.start("a"), scene.start("b")
    await scene.after(60)
    for key in PIPELINES:
        token = PIPELINE.set(str(key))
        writers = []
        for member in (first, second):
            try:
                member.shards.require()
            except NotLeading:
                continue
            writers.append(member)
        assert writers == [member for member in (first, second) if shard_of(key, 3) in member.has]
        PIPELINE.reset(token)


async def test_what_is_done_for_all_pipelines_needs_each_lease_that_a_replica_has(scene: Scene) -> None:
    first = scene.start("a")
    with pytest.raises(NotLeading):
        first.shards.require()
    await scene.after(DURATION + 2 * RENEWAL)
    first.shards.require()
    scene.leases.leases[1].down = True
    await scene.after(VALIDITY)
    assert first.has == {0, 2}
    assert not first.shards.is_sure
    with pytest.raises(NotLeading):
        first.shards.require()


async def test_the_replica_that_beats_knows_the_troubles_of_the_others(scene: Scene) -> None:
    first, second = scene.start("a"), scene.start("b")
    await scene.after(60)
    second.shards.troubles = lambda: "a loop stands still\na page waits"
    await scene.after(2 * RENEWAL)
    assert await first.shards.troubles_of_others() == ("a loop stands still", "a page waits")
    assert await second.shards.troubles_of_others() == ()
    await second.stop()
    await scene.after(2 * RENEWAL)
    assert await first.shards.troubles_of_others() == ()


async def test_a_shard_that_no_replica_can_take_is_a_trouble(scene: Scene) -> None:
    """Injected: the API server refuses each write to the Lease of one shard, as without the right to update it."""
    scene.leases.of(2).refuses = True
    first = scene.start("a")
    await scene.after(60)
    assert first.has == {0, 1}
    assert await first.shards.troubles_of_others() == ("shard 2 of 3 has no replica",)


async def test_leases_that_cannot_be_listed_are_a_trouble(scene: Scene) -> None:
    first, _ = scene.start("a"), scene.start("b")
    await scene.after(60)
    scene.leases.of(2).down = True
    assert await first.shards.troubles_of_others() == ("the Leases of the other shards cannot be listed",)


async def test_a_replica_that_cannot_write_its_number_looks_at_the_usual_pace(scene: Scene) -> None:
    """Injected: an earlier replica had another number, and writes to its free Lease are refused."""
    await scene.start("a", 5).stop()
    old = scene.start("b", 5)
    await scene.after(60)
    await old.stop()
    looks: list[float] = []
    scene.leases.before_list = lambda: looks.append(scene.timeline.now)
    scene.leases.of(4).refuses = True
    new = scene.start("c", 3)
    await scene.after(120)
    assert not new.has
    assert len(looks) < 120


async def test_loops_that_could_not_be_listed_begin_at_a_later_look(scene: Scene) -> None:
    """Injected: the API server does not answer a list of trials while a replica takes its shards."""
    member = scene.start("a")
    member.can_list = False
    await scene.after(60)
    begun = member.log.count("begin")
    assert begun > 2
    member.can_list = True
    await scene.after(2 * RENEWAL)
    begun = member.log.count("begin")
    await scene.after(60)
    assert member.log.count("begin") == begun


async def test_a_replica_with_another_number_of_shards_waits_for_the_end_of_the_others(scene: Scene) -> None:
    """An upgrade that changes the number: new replicas start before the old ones end."""
    old = [scene.start(name, 3) for name in "ab"]
    await scene.after(60)
    new = [scene.start(name, 5) for name in "cd"]
    await scene.after(60)
    assert [member.has for member in new] == [set(), set()]
    await old[0].stop()
    await scene.after(30)
    assert [member.has for member in new] == [set(), set()]
    assert old[1].has == {0, 1, 2}
    await old[1].stop()
    await scene.after(DURATION + 4 * RENEWAL)
    assert scene.is_complete()
    assert sorted(shard for member in new for shard in member.has) == [0, 1, 2, 3, 4]


async def test_a_smaller_number_of_shards_waits_as_well(scene: Scene) -> None:
    old = scene.start("a", 5)
    await scene.after(60)
    new = scene.start("b", 1)
    await scene.after(60)
    assert not new.has
    old.kill()
    await scene.after(2 * TARGET)
    assert new.has == {0}
    assert {present(each.record).shards for each in scene.leases.leases.values() if each.record} == {1}


async def test_a_frozen_replica_with_another_number_cannot_continue(scene: Scene) -> None:
    """No other replica has taken its Lease, of a shard that no longer exists: it is cleared."""
    old = scene.start("a", 5)
    await scene.after(60)
    old.is_frozen = True
    new = scene.start("b", 2)
    await scene.after(2 * TARGET)
    assert new.has == {0, 1}
    old.is_frozen = False
    await scene.after(20)
    assert old.errors
    assert not old.has
    assert scene.is_complete()


async def test_of_two_numbers_that_take_leases_at_the_same_time_one_acts(scene: Scene) -> None:
    first, second = scene.start("a", 2), scene.start("b", 3)
    await scene.after(120)
    assert scene.is_complete()
    assert bool(first.has) != bool(second.has)


async def test_a_lease_that_is_deleted_while_the_number_changes_hides_no_holder(scene: Scene) -> None:
    scene.start("a", 5)
    await scene.after(60)
    scene.start("b", 2)
    for shard in (4, 0, 3):
        scene.leases.leases[shard].record = None
        await scene.after(7)
    await scene.after(60)
    assert scene.is_complete()


@pytest.mark.parametrize("seed", range(12))
async def test_no_pipeline_ever_has_two_replicas(seed: int) -> None:
    """Injected at random: kills, freezes, orderly ends, deleted Leases, slow requests, another number of shards."""
    chance = random.Random(seed)
    random.seed(seed)  # the replicas draw the spread of their looks from it
    scene = Scene(chance)
    counts = chance.choice([(1,), (3,), (2, 3), (1, 5)])
    names = (f"replica-{number}" for number in range(1000))
    for _ in range(3):
        scene.start(next(names), counts[0])
    await scene.after(40)
    for _ in range(12):
        living = [member for member in scene.members if not member.errors]
        match chance.randrange(5):
            case 0:
                chance.choice(living).kill()
                scene.start(next(names), chance.choice(counts))
            case 1:
                victim = chance.choice(living)
                victim.is_frozen = not victim.is_frozen
            case 2:
                stopped = next((member for member in living if not member.is_frozen), None)
                if stopped is not None and scene.chance is not None:
                    stopped.chance = None  # it would wait for the clock, which waits for the test
                    await stopped.stop()
                scene.start(next(names), chance.choice(counts))
            case 3:
                chance.choice(list(scene.leases.leases.values())).record = None
            case _:
                pass
        await scene.after(chance.random() * 15)
    last = counts[-1]
    for member in scene.members:
        member.kill()
    scene.chance = None  # a Lease whose renewal was not answered in time has no holder for a moment
    scene.members = [scene.start("last-1", last), scene.start("last-2", last)]
    await scene.after(120)
    assert scene.is_complete()
