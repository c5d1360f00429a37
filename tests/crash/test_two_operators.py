"""Two operators at once, as while a leader is replaced, in a world that changes between any two of their steps.

Each seed is one history: facts are of different moments, writes are lost or land late, drivers die and freeze, the spec
changes, Kafka and Cassandra go away.  When it is over, one operator brings the pipeline to what was asked for.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from fakes.drivers import Driver
from fakes.interleaving import Operator, Schedule
from fakes.lease import ElectedOperator, FakeShardLeases
from fakes.manifests import KEY, body
from fakes.stage import POLICY, Stage
from fakes.world import START
from fencepost_operator.api import State
from fencepost_operator.desired import labels

TROUBLED, CALM = 120.0, 420.0
"""Seconds of a world: with trouble, and after it."""


def kill(stage: Stage, _chance: random.Random) -> None:
    living = [driver for driver in stage.world.drivers if driver.alive and driver.started_at is not None]
    if living:
        living[-1].end(stage.world.now, 137)


def freeze(stage: Stage, _chance: random.Random) -> None:
    for driver in stage.world.drivers:
        driver.frozen = driver.alive and not driver.frozen


def upgrade(stage: Stage, chance: random.Random) -> None:
    image = f"registry.example/job:{chance.randrange(100)}"
    stage.world.change(KEY, job={"image": image, "entrypoint": "orders.job:transform"})


def resize(stage: Stage, chance: random.Random) -> None:
    taint = {"key": "dedicated", "operator": "Exists", "value": chance.choice(("", "refused"))}
    stage.world.change(KEY, cluster={"workers": chance.randrange(1, 4), "tolerations": [taint]})


def suspend(stage: Stage, chance: random.Random) -> None:
    stage.world.change(KEY, suspend=chance.random() < 0.5)


def lose_kafka(stage: Stage, chance: random.Random) -> None:
    stage.world.kafka_down = chance.random() < 0.5


def lose_cassandra(stage: Stage, chance: random.Random) -> None:
    stage.world.cassandra_down = chance.random() < 0.5


def delete_job(stage: Stage, chance: random.Random) -> None:
    if stage.world.jobs:
        job = chance.choice(stage.world.jobs)
        stage.world.delete_job(KEY, job.name, cascade=chance.choice(("foreground", "background", "orphan")))


TROUBLE: tuple[Callable[[Stage, random.Random], None], ...] = (
    kill, freeze, upgrade, resize, suspend, lose_kafka, lose_cassandra, delete_job,
)  # fmt: skip


def end_trouble(stage: Stage) -> None:
    stage.world.kafka_down = stage.world.cassandra_down = False
    for driver in stage.world.drivers:
        driver.frozen = False
    stage.world.change(KEY, suspend=False, cluster={"workers": 1})


def may_commit(driver: Driver) -> bool:
    return driver.alive and not driver.frozen and driver.row is not None


def check(stage: Stage, operators: Sequence[Operator]) -> None:
    """Look at all that must hold at every moment."""
    for operator in operators:
        assert operator.failure() is None, operator.failure()
        assert operator.broken == []
    epochs = [row.epoch for row in stage.world.table.history]
    assert all(later - earlier in {0, 1} for earlier, later in itertools.pairwise(epochs)), f"epochs jumped: {epochs}"
    stage.check_commits()
    stage.check_conditions()


def check_clusters(stage: Stage) -> None:
    """No Spark cluster has two living drivers that claimed: the first is dead before the second claims."""
    users = Counter(
        job.manifest["metadata"]["annotations"][labels.GENERATION]
        for job in stage.world.jobs
        if job.pod is not None and may_commit(job.pod.driver)
    )
    assert all(count == 1 for count in users.values()), f"two drivers on one cluster: {users}"


async def arrives(stage: Stage, schedule: Schedule) -> None:
    """End all trouble; what was asked for is there within `CALM`."""
    end_trouble(stage)
    schedule.faults = 0.0
    end = stage.world.now.timestamp() + CALM
    while not arrived(stage):
        assert stage.world.now.timestamp() < end, f"not arrived: {stage.pipeline.status}; {stage.world.events[-8:]}"
        await schedule.step()
        check_clusters(stage)


@pytest.mark.parametrize("seed", range(30))
async def test_two_operators_never_let_two_drivers_commit_and_arrive(seed: int) -> None:
    stage, chance = Stage(), random.Random(seed)
    schedule = Schedule(stage.world, chance)
    operators = [Operator(schedule, KEY, POLICY) for _ in range(2)]
    stage.world.apply(body(restart={"stallTimeout": "15s"}))
    for operator in operators:
        operator.begin()
    end = stage.world.now.timestamp() + TROUBLED
    while stage.world.now.timestamp() < end:
        if chance.random() < 0.01:
            chance.choice(TROUBLE)(stage, chance)
        if chance.random() < 0.002:
            await operators[1].end()
            operators[1].begin()
        await schedule.step()
        check_clusters(stage)
    check(stage, operators)
    await operators[1].end()
    await arrives(stage, schedule)
    check(stage, operators[:1])
    await operators[0].end()


async def killed(operators: list[ElectedOperator]) -> None:
    leader = next((operator for operator in operators if operator.leads), operators[0])
    await leader.end()
    leader.begin()


def stop_or_continue(operators: list[ElectedOperator]) -> None:
    leader = next((operator for operator in operators if operator.leads), operators[0])
    frozen = next((operator for operator in operators if operator.frozen), leader)
    frozen.frozen = not frozen.frozen


@pytest.mark.parametrize("counts", [(1, 1), (3, 3), (1, 3), (4, 3)], ids=str)
@pytest.mark.parametrize("seed", range(8))
async def test_of_two_operators_with_leases_one_acts_and_they_arrive(seed: int, counts: tuple[int, int]) -> None:
    """Also when the one that acts is killed, or frozen in the middle of whatever it does and awake again.

    `counts`: by how many shards each of them divides pipelines. They differ while an upgrade changes the number.
    """
    stage, chance, leases = Stage(), random.Random(seed), FakeShardLeases()
    schedule = Schedule(stage.world, chance)
    operators = [
        ElectedOperator(schedule, KEY, POLICY, leases=leases, name=name, count=count)
        for name, count in zip("ab", counts, strict=True)
    ]
    stage.world.apply(body(restart={"stallTimeout": "15s"}))
    for operator in operators:
        operator.begin()
    end, leaders = stage.world.now.timestamp() + TROUBLED, set[str]()
    while stage.world.now.timestamp() < end:
        if chance.random() < 0.01:
            chance.choice(TROUBLE)(stage, chance)
        if chance.random() < 0.002:
            await killed(operators)
        if chance.random() < 0.004:
            stop_or_continue(operators)
        await schedule.step()
        check_clusters(stage)
        leading = [operator.name for operator in operators if operator.leads]
        assert len(leading) <= 1, "two operators may write"
        leaders.update(leading)
    assert leaders
    check(stage, operators)
    for operator in operators:
        operator.frozen = False
    await arrives(stage, schedule)
    check(stage, operators)
    for operator in operators:
        await operator.end()


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_other_operator_acts_within_20_seconds(how: str) -> None:
    stage, leases = Stage(), FakeShardLeases()
    schedule = Schedule(stage.world, random.Random(7), faults=0.0)
    operators = [ElectedOperator(schedule, KEY, POLICY, leases=leases, name=name) for name in ("a", "b")]
    stage.world.apply(body())
    for operator in operators:
        operator.begin()
    while not arrived(stage):
        assert (stage.world.now - START).total_seconds() < CALM
        await schedule.step()
    leader, other = sorted(operators, key=lambda operator: not operator.leads)
    began = stage.world.now
    if how == "killed":
        await leader.end()
    leader.frozen = True
    while not other.leads:
        assert (stage.world.now - began).total_seconds() <= 20
        await schedule.step()
    wrote = len(leases.writes)
    leader.frozen = False
    for _ in range(200):
        await schedule.step()
        assert not leader.leads
    assert {record.holder for record in leases.writes[wrote:]} == {other.name}
    check(stage, operators)
    for operator in operators:
        await operator.end()


def arrived(stage: Stage) -> bool:
    pipeline = stage.pipeline
    ready = any(c.type == "Ready" and c.status == "True" for c in pipeline.status.conditions)
    return ready and stage.is_running() and pipeline.status.state is not State.STALLED
