"""The operator is killed with -9 at each of its writes, before the write took effect and after it.

Whatever the moment, a new operator continues from there: one Job per epoch, consecutive epochs, contiguous commits, and
in the end what was asked for.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from fakes.gate import SIDES, failing_at
from fakes.manifests import KEY, body
from fakes.stage import FAULTS, ROW, Died, Stage
from fakes.world import NODE_LOSS
from fencepost.contract import ExitCode
from present import present


async def provisioned() -> Stage:
    return await Stage.streaming(restart={"stallTimeout": "15s"})


async def nothing_yet() -> Stage:
    stage = Stage()
    stage.world.apply(body())
    return stage


async def first_provisioning(stage: Stage) -> None:
    await stage.running()
    assert stage.epoch == 1


async def restart(stage: Stage) -> None:
    if not stage.world.buried and all(d.alive for d in stage.world.drivers):
        stage.world.kill_driver()
    await stage.replaced()
    assert stage.pipeline.status.restarts == 1


async def upgrade(stage: Stage) -> None:
    stage.world.change(KEY, job={"image": "registry.example/job:2", "entrypoint": "orders.job:transform"})
    await stage.replaced()
    assert stage.world.releases[KEY].values["image"] == "registry.example/job:2"
    assert stage.pipeline.status.restarts == 0


async def freeze(stage: Stage) -> None:
    frozen = stage.world.newest_pod().driver
    frozen.frozen = True
    stage.world.rate = 0
    await stage.replaced()
    frozen.frozen = False
    stage.world.rate = 10
    await stage.run(5)
    assert frozen.exit_code in {50, 137, 0}


async def suspend_and_resume(stage: Stage) -> None:
    await stage.suspended()
    assert not stage.world.releases
    assert not stage.world.jobs
    stage.world.change(KEY, suspend=False)
    await stage.replaced()


async def scale(stage: Stage) -> None:
    pod = stage.world.newest_pod()
    stage.world.change(KEY, cluster={"workers": 3})
    await stage.until(lambda: stage.world.releases[KEY].values["workers"] == 3 and stage.is_running())
    assert stage.world.newest_pod() is pod


async def by_load() -> Stage:
    stage = await Stage.streaming(batchInterval="1s", cluster={"autoscale": {"maxWorkers": 2, "targetTimeLag": "5s"}})
    await stage.run(25)  # until it is known how fast records arrive
    assert stage.world.releases[KEY].values["workers"] == 1
    return stage


async def load_rises(stage: Stage) -> None:
    pod = stage.world.newest_pod()
    pod.driver.batch_takes = timedelta(seconds=30)
    await stage.until(lambda: stage.world.releases[KEY].values["workers"] > 1 and stage.is_running())
    pod.driver.batch_takes = timedelta(0)
    assert stage.world.newest_pod() is pod
    assert stage.world.releases[KEY].values["workers"] == present(stage.pipeline.status.autoscale).workers


async def small() -> Stage:
    return await Stage.streaming(cluster={"workers": 0})


async def restart_small(stage: Stage) -> None:
    stage.world.kill_driver()
    await stage.replaced()
    assert not stage.world.parts.get(KEY)


async def scale_to_none_and_back(stage: Stage) -> None:
    """Each is a run of its own, and the Spark cluster is there for the one alone that has workers."""
    for epoch, workers in enumerate((2, 0), start=2):
        before = stage.world.newest_pod().driver
        stage.world.change(KEY, cluster={"workers": workers})
        await stage.replaced(epoch)
        assert before.exit_code == ExitCode.STOPPED, "its batch is interrupted"
        assert [release.values["workers"] for release in stage.world.releases.values()] == [workers] * bool(workers)
    await stage.run(10)
    assert not stage.world.parts[KEY]
    assert present(stage.pipeline.status.cluster).workers == 0
    assert stage.ready() == "Streaming"


async def delete(stage: Stage) -> None:
    if KEY in stage.world.objects:
        await stage.deleted()
    assert not stage.world.jobs
    assert not stage.world.releases
    assert not [driver for driver in stage.world.drivers if driver.alive]
    assert ROW in stage.world.table.rows


async def delete_with_row(stage: Stage) -> None:
    stage.world.change(KEY, deletionPolicy="Delete")
    await stage.deleted()
    assert not stage.world.releases
    assert stage.row.is_released


async def without_master() -> Stage:
    """A run that continues while its master's node is known to be lost."""
    stage = await provisioned()
    stage.world.lose_node(KEY, "master", ago=NODE_LOSS)
    return stage


async def restart_without_master(stage: Stage) -> None:
    stage.world.kill_driver()
    await stage.replaced()
    assert stage.generation == 2


async def background(stage: Stage) -> None:
    stage.world.delete_job(KEY, "orders-run-1", cascade="background")
    await stage.replaced()
    assert stage.generation == 1


async def orphan(stage: Stage) -> None:
    old = stage.world.newest_pod().driver
    old.frozen = True
    stage.world.delete_job(KEY, "orders-run-1", cascade="orphan")
    await stage.replaced()
    assert stage.generation == 2
    assert "was deleted without its pod" in present(stage.pipeline.status.failure).message
    old.frozen = False
    await stage.run(5)
    assert old.exit_code == ExitCode.FENCED


SCENES: dict[str, tuple[Callable[[], Awaitable[Stage]], Callable[[Stage], Awaitable[None]]]] = {
    "first provisioning": (nothing_yet, first_provisioning),
    "restart": (provisioned, restart),
    "upgrade": (provisioned, upgrade),
    "freeze": (provisioned, freeze),
    "Job deleted in the background": (provisioned, background),
    "restart without master": (without_master, restart_without_master),
    "pod orphaned": (provisioned, orphan),
    "suspend and resume": (provisioned, suspend_and_resume),
    "scale": (provisioned, scale),
    "scale by load": (by_load, load_rises),
    "restart without workers": (small, restart_small),
    "scale from 0 to 2 workers and back": (small, scale_to_none_and_back),
    "delete": (provisioned, delete),
    "delete with row": (provisioned, delete_with_row),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("scene", SCENES)
async def test_a_fault_at_each_write(scene: str, side: str, fault: type[BaseException]) -> None:
    prepare, play = SCENES[scene]
    calm = await prepare()
    first = len(calm.gate.writes)
    await play(calm)
    last = len(calm.gate.writes)
    assert last > first
    for number in range(first, last):
        stage = await prepare()
        setattr(stage.gate, side, failing_at(number, fault))
        await play(stage)
        assert fault is not Died or stage.deaths == 1


def dying_inside_a_release(stage: Stage, side: str, fatal: int) -> Callable[[int, str], None]:
    """Kill the operator at the request with this number that it sends to Cassandra for a release."""
    usual, requests = getattr(stage.world.table, side), itertools.count()

    def strike(call: str) -> None:
        usual(call)
        if next(requests) == fatal:
            raise Died(call)

    return lambda _number, name: setattr(stage.world.table, side, strike if name == "delete_fence" else usual)


@pytest.mark.parametrize("side", SIDES)
async def test_an_operator_that_dies_inside_a_release_leaves_nothing_of_the_deleted_pipeline(side: str) -> None:
    """A release is several requests to Cassandra; the fault is a kill at each of them."""
    deaths = 0
    for fatal in range(6):
        stage = await provisioned()
        await stage.run(5)
        stage.world.table.report_progress(ROW, epoch=1, version=1, done=1)
        stage.gate.before = dying_inside_a_release(stage, side, fatal)
        await delete_with_row(stage)
        deaths += stage.deaths
        assert (stage.world.table.history, stage.world.table.progress) == ([], {})
    assert deaths >= 4


@pytest.mark.parametrize("seed", range(6))
async def test_an_operator_that_dies_all_the_time_still_arrives(seed: int) -> None:
    """Only what is recorded carries over from one operator to the next."""
    stage, chance = Stage(), random.Random(seed)

    def strike(_number: int, name: str) -> None:
        if chance.random() < 0.3:
            raise Died(name)

    stage.gate.before = stage.gate.after = strike
    stage.world.apply(body())
    await stage.running(seconds=900)
    stage.world.kill_driver()
    await stage.replaced(seconds=900)
    await stage.deleted(seconds=900)
    assert not stage.world.jobs
    assert stage.deaths > 5
