"""The next run starts beside the one that works, and takes over once it is warm, whatever happens to either."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from crash.test_blindness import Cut
from crash.test_clock_steps import begin
from crash.test_rewind import NAME, TARGET, RewindStage
from fakes.drivers import Driver
from fakes.gate import SIDES
from fakes.manifests import KEY
from fakes.stage import FAULTS, Died, Stage
from fakes.stepping_clock import SteppingClock
from fakes.world import World
from fencepost.contract import ExitCode
from fencepost_operator.api import RETRY_ANNOTATION, State
from fencepost_operator.desired import labels
from fencepost_operator.errors import Unreachable
from present import present

OLD, NEW, NEWER = (
    {"image": f"registry.example/job:{number}", "entrypoint": "orders.job:transform"} for number in (1, 2, 3)
)
HANDOFF = {"strategy": "Handoff"}
SMALL = {"workers": 0}


async def streaming(stage: Stage | None = None, **spec: Any) -> Stage:
    """A pipeline that hands over, and has committed records with the old code."""
    stage = await Stage.streaming(stage or RewindStage(), **{"job": OLD, "upgrade": HANDOFF, **spec})
    await stage.until(lambda: stage.row.committed_at is not None)
    return stage


async def upgrading(**spec: Any) -> Stage:
    """A pipeline whose next run has a driver that is not warm yet."""
    stage = await streaming(**spec)
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: len(living(stage)) == 2)
    return stage


async def warm(**spec: Any) -> Stage:
    """A pipeline whose next run is warm, before the operator has noticed."""
    stage = await upgrading(**spec)
    while not stage.world.newest_pod().driver.is_warm:
        stage.world.advance(0.5)
    return stage


def living(stage: Stage) -> list[Driver]:
    return [driver for driver in stage.world.drivers if driver.alive]


def image(driver: Driver) -> str:
    return driver.config.code.split()[0]


def running_image(stage: Stage) -> str:
    row = stage.row
    return (row.code or "").split()[0] if row.driver else ""


def condition(stage: Stage, kind: str) -> tuple[str, str]:
    found = present(stage.condition(kind))
    return found.status, found.reason


async def rolled_out(stage: Stage, job: dict[str, str] = NEW, **more: Any) -> None:
    await stage.until(lambda: running_image(stage) == job["image"] and stage.is_running(), **more)
    await stage.until(lambda: condition(stage, "Ready")[0] == "True", **more)
    await stage.until(lambda: stage.pipeline.status.handoff is None, **more)
    assert stage.pipeline.status.failure is None
    await stage.until(lambda: len(living(stage)) == 1)
    stage.check_commits()


@pytest.mark.parametrize("cluster", [{"workers": 1}, SMALL], ids=["workers", "without workers"])
async def test_the_old_run_commits_until_the_new_one_is_warm(cluster: dict[str, int]) -> None:
    stage = await streaming(cluster=cluster)
    (old,) = living(stage)
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: len(living(stage)) == 2)
    (_, new) = sorted(living(stage), key=lambda driver: driver.config.epoch)
    commits = len(old.commits)
    while not new.is_warm:
        assert (stage.row.driver, condition(stage, "Streaming")) == (old.uid, ("True", "Streaming"))
        assert condition(stage, "Ready") == ("False", "Upgrading")
        assert stage.pipeline.status.state is State.UPGRADING
        await stage.turn()
        stage.world.advance(0.5)
    assert len(old.commits) > commits
    await rolled_out(stage)
    assert [image(driver) for driver in stage.world.drivers] == [OLD["image"], NEW["image"]]
    assert (new.config.epoch, stage.epoch) == (2, 2), "the epoch that the old run has ended"
    await stage.until(lambda: bool(new.commits))
    assert new.commits[0][1] == old.commits[-1][2], "no batch is repeated"
    assert stage.pipeline.status.restarts == 0


async def test_the_pause_is_the_time_of_a_batch_and_not_that_of_a_start() -> None:
    stage = await warm()
    old, new = sorted(living(stage), key=lambda driver: driver.config.epoch)
    await stage.until(lambda: bool(new.commits))
    first = present(new.committed_at)
    assert (first - present(old.committed_at)).total_seconds() <= 2.5, "steps of the clock of this world: 0.5 s"


async def test_the_old_cluster_stays_until_the_new_run_has_taken_over_and_goes_then() -> None:
    stage = await warm()
    assert set(stage.world.sets[KEY]) == {1, 2}
    await rolled_out(stage)
    await stage.until(lambda: set(stage.world.sets[KEY]) == {2})
    assert {part.generation for part in stage.world.parts[KEY]} == {2}


@pytest.mark.parametrize("moment", ["cluster", "driver", "warm"])
async def test_a_run_that_dies_meanwhile_is_replaced(moment: str) -> None:
    """Injected: the driver that works is killed between two batches, at each stage of the handoff."""
    stage = await (streaming() if moment == "cluster" else upgrading() if moment == "driver" else warm())
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: stage.pipeline.status.handoff is not None)
    old = min(living(stage), key=lambda driver: driver.config.epoch)
    old.end(stage.world.now, 137)
    await stage.until(lambda: running_image(stage) == NEW["image"] and stage.is_running())
    assert len([driver for driver in stage.world.drivers if driver.commits]) == 2
    await stage.until(lambda: condition(stage, "Ready")[0] == "True")


async def test_a_run_that_dies_inside_a_batch_has_it_finished_by_its_own_code() -> None:
    """Injected: the driver that works is killed inside a batch, which the next run may not have, warm as it is."""
    stage = await upgrading()
    old, new = sorted(living(stage), key=lambda driver: driver.config.epoch)
    old.batch_takes = timedelta(minutes=1)
    await stage.until(lambda: not stage.row.is_between_batches)
    old.end(stage.world.now, 137)
    await stage.until(lambda: running_image(stage) == NEW["image"] and stage.is_running(), seconds=600)
    wrote = [(image(driver), before, after) for driver in stage.world.drivers for _, before, after in driver.wrote]
    shared = [one for one in wrote for other in wrote if one[0] != other[0] and one[1] == other[1]]
    assert shared == [], "no batch has rows of both codes"
    assert not new.commits
    assert stage.pipeline.status.mixed_output == ()


@pytest.mark.parametrize(
    ("code", "reason"),
    [(ExitCode.BAD_SPEC, "BadSpec"), (ExitCode.FAILED, "RunFailed"), (137, "Killed")],
)
async def test_a_new_run_that_fails_is_backed_out_and_the_old_one_is_not_touched(code: int, reason: str) -> None:
    stage = await upgrading()
    old, new = sorted(living(stage), key=lambda driver: driver.config.epoch)
    jobs, asked = list(stage.world.created_jobs), dict(stage.world.objects[KEY]["spec"])
    new.end(stage.world.now, code)
    await stage.until(lambda: stage.ready() == "RolledBack")
    await stage.run(60)
    assert (living(stage), stage.world.created_jobs) == ([old], jobs)
    assert stage.world.objects[KEY]["spec"] == asked
    assert condition(stage, "Stalled") == ("True", "RolledBack")
    assert condition(stage, "Streaming") == ("True", "Streaming")
    assert present(stage.pipeline.status.rolled_back).reason == reason
    assert set(stage.world.sets[KEY]) == {1}
    assert stage.epoch == 1
    stage.world.change(KEY, job=NEWER)
    await rolled_out(stage, NEWER)
    assert stage.epoch == 2


async def test_a_backed_out_spec_is_tried_again_when_a_user_asks_for_it() -> None:
    stage = await upgrading()
    stage.world.newest_pod().driver.end(stage.world.now, ExitCode.FAILED)
    await stage.until(lambda: stage.ready() == "RolledBack")
    stage.annotate(RETRY_ANNOTATION, "1")
    await rolled_out(stage)


async def test_a_run_that_is_backed_out_and_dies_is_restarted_with_its_own_spec() -> None:
    stage = await upgrading()
    stage.world.newest_pod().driver.end(stage.world.now, ExitCode.FAILED)
    await stage.until(lambda: stage.ready() == "RolledBack")
    await stage.run(20)
    stage.world.kill_driver()
    await stage.until(lambda: running_image(stage) == OLD["image"] and stage.epoch > 1)


async def test_a_new_run_that_never_gets_warm_is_backed_out() -> None:
    stage = await upgrading()
    old, new = sorted(living(stage), key=lambda driver: driver.config.epoch)
    new.frozen = True
    await stage.until(lambda: stage.ready() == "RolledBack", seconds=400)
    assert present(stage.pipeline.status.rolled_back).reason == "NeverClaimed"
    await stage.until(lambda: living(stage) == [old])
    await stage.run(20)
    assert (stage.row.driver, stage.epoch) == (old.uid, 1)


async def test_an_outage_of_a_dependency_is_no_fault_of_the_new_spec() -> None:
    stage = await upgrading()
    old, new = sorted(living(stage), key=lambda driver: driver.config.epoch)
    new.end(stage.world.now, ExitCode.DEPENDENCY_DOWN)
    await stage.until(lambda: len(living(stage)) == 2)
    assert old in living(stage), "the next one starts again beside it"
    await rolled_out(stage)
    assert len(stage.world.waiting_jobs) == 2, "the run that works is not stopped before another one is warm"


async def test_what_an_outage_ends_is_not_tried_again_at_once() -> None:
    """Injected: each next run finds a dependency down, as with a wrong address of it; each try installs a cluster."""
    stage = await upgrading()
    for _ in range(240):
        waiting = [driver for driver in living(stage) if driver.config.awaits_epoch]
        for driver in waiting:
            driver.end(stage.world.now, ExitCode.DEPENDENCY_DOWN)
        await stage.run(1)
    assert 2 <= len(stage.world.waiting_jobs) <= 4
    assert condition(stage, "Streaming") == ("True", "Streaming")
    await rolled_out(stage)


async def test_a_job_of_a_withdrawn_spec_that_is_created_late_does_not_take_over() -> None:
    """Injected: the creation of the next run's Job takes effect after the spec has changed again."""
    stage = await upgrading()
    job = next(job for job in stage.world.jobs if job.epoch == 2)
    late = copy.deepcopy(job.manifest)
    late["metadata"]["annotations"][labels.SPEC_HASH] = "withdrawn"
    job.manifest = late
    await rolled_out(stage)
    assert stage.world.waiting_jobs == ["orders-run-2"] * 2


@pytest.mark.parametrize("alternate", [False, True], ids=["after it", "in turn with it"])
@pytest.mark.parametrize("minutes", [30, -30])
async def test_another_operator_whose_clock_differs_backs_out_no_healthy_run(minutes: int, *, alternate: bool) -> None:
    """Injected: a second operator, with a clock of its own, looks at a next run that gets warm as usual."""
    stage = await upgrading()
    first = stage._operator
    begin(stage, SteppingClock(stage.world, ahead=timedelta(minutes=minutes)))
    second = stage._operator
    turns = itertools.cycle((first, second))
    for _ in range(10 if alternate else 0):
        stage._operator = next(turns)
        await stage.turn()
        stage.world.advance(0.5)
    stage._operator = second
    await rolled_out(stage)
    assert stage.pipeline.status.rolled_back is None
    assert stage.world.waiting_jobs == ["orders-run-2"]


@pytest.mark.parametrize("volumes", [False, True], ids=["without a volume", "with a volume"])
@pytest.mark.parametrize("moment", ["before", "cluster", "driver"])
async def test_a_run_that_loses_its_master_waits_for_no_next_one(moment: str, *, volumes: bool) -> None:
    """Injected: a drain of the master that the old run works on; the next run does not get warm for a minute."""
    stage = await streaming(stage=RewindStage(World(volumes=volumes)))
    (old,) = living(stage)
    if moment == "before":
        stage.world.drain(KEY, {"master"}, generation=1)
    stage.world.change(KEY, job=NEW)
    if moment != "before":
        await stage.until(lambda: len(stage.world.sets[KEY]) == 2)
        if moment == "driver":
            await stage.until(lambda: len(living(stage)) == 2)
            stage.world.newest_pod().driver.frozen = True
        stage.world.drain(KEY, {"master"}, generation=1)
    await stage.until(lambda: not old.alive, seconds=20)
    for driver in living(stage):
        driver.frozen = False
    await stage.until(lambda: running_image(stage) == NEW["image"] and stage.is_running())
    stage.check_commits()


async def test_a_cluster_that_is_damaged_while_its_run_gets_warm_is_repaired() -> None:
    """Injected: a user deletes the Service of the second cluster's master, without which its run reaches no master."""
    stage = await upgrading()
    stage.world.newest_pod().driver.frozen = True
    stage.world.damage[KEY] = ("Service orders-g2-master was deleted",)
    await stage.until(lambda: KEY not in stage.world.damage, seconds=20)
    stage.world.newest_pod().driver.frozen = False
    await rolled_out(stage)


async def test_a_run_that_waited_long_has_its_whole_time_to_claim() -> None:
    """Injected: the old run stops a minute after the next one is warm, which then needs five seconds for its claim."""
    stage = await warm(restart={"startTimeout": "30s"})
    (_, new) = sorted(living(stage), key=lambda driver: driver.config.epoch)
    stage.world.advance(60)
    new.frozen = True
    await stage.until(lambda: stage.epoch == 2)
    await stage.run(5)
    new.frozen = False
    await rolled_out(stage)
    assert (stage.epoch, stage.row.driver) == (2, new.uid)


@pytest.mark.parametrize("moment", ["before", "cluster"])
@pytest.mark.parametrize("seconds", [60, 600])
async def test_no_run_starts_while_kafka_is_silent(seconds: int, moment: str) -> None:
    """Injected: the operator gets no answer from Kafka, before the change or once the second cluster is installed."""
    gate = Cut()
    stage = await streaming(stage=RewindStage(gate=gate))
    gate.unseen = frozenset({"source", "unread"}) if moment == "before" else gate.unseen
    stage.world.change(KEY, job=NEW)
    if moment == "cluster":
        await stage.until(lambda: set(stage.world.sets[KEY]) == {1, 2})
        gate.unseen = frozenset({"source", "unread"})
    (old,) = living(stage)
    await stage.run(seconds)
    assert (living(stage), stage.world.created_jobs) == ([old], ["orders-run-1"])
    assert stage.ready() == "KafkaUnreachable"
    gate.unseen = frozenset()
    await rolled_out(stage)
    assert stage.pipeline.status.rolled_back is None


async def test_an_image_that_does_not_wait_gets_the_epoch_after_the_old_run_has_stopped() -> None:
    """Injected: a driver of an older release, which ends when the row is not at its epoch."""
    stage = await upgrading()
    stage.world.newest_pod().driver.end(stage.world.now, ExitCode.FENCED)
    await rolled_out(stage)
    assert len(stage.world.waiting_jobs) == 1


async def test_without_room_for_both_the_old_run_is_stopped_first() -> None:
    """Injected: a quota refuses the pods of the second cluster until those of the first are gone."""
    stage = await streaming()
    stage.world.room = 1
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: "no room for a second run" in stage.pipeline.status.message)
    await rolled_out(stage)
    assert set(stage.world.sets[KEY]) == {2}
    assert stage.pipeline.status.rolled_back is None


@pytest.mark.parametrize("moment", ["driver", "warm"])
@pytest.mark.parametrize("what", ["suspended", "deleted", "rewound", "changed", "changed back"])
async def test_what_a_user_asks_for_meanwhile_has_no_second_driver(what: str, moment: str) -> None:
    stage = await (upgrading() if moment == "driver" else warm())
    if what == "deleted":
        await stage.deleted()
        assert not living(stage)
        return
    if what == "suspended":
        await stage.suspended()
        assert not living(stage)
        assert KEY not in stage.world.sets or not stage.world.sets[KEY]
        stage.world.change(KEY, suspend=False)
        await stage.until(lambda: running_image(stage) == NEW["image"] and stage.is_running())
    elif what == "rewound":
        stage.world.ask_for_rewind(NAME.name, {"offsets": dict(TARGET)}, pipeline=KEY)
        await stage.until(lambda: stage.pipeline.status.rewind is not None)
        await stage.until(lambda: stage.pipeline.status.rewind is None and stage.is_running())
        assert running_image(stage) == NEW["image"]
    elif what == "changed":
        stage.world.change(KEY, job=NEWER)
        await rolled_out(stage, NEWER)
        assert len(stage.world.waiting_jobs) == 2
    else:
        stage.world.change(KEY, job=OLD)
        await rolled_out(stage, OLD)
        assert stage.epoch in {1, 2}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("when", SIDES)
async def test_an_operator_that_dies_anywhere_in_a_handoff_ends_in_the_same_place(
    when: str, fault: type[BaseException]
) -> None:
    """Injected: the operator dies, or gets no answer, at one write after another."""
    for number in itertools.count(0, 2):
        stage = await streaming()
        due = len(stage.gate.writes) + number
        setattr(stage.gate, "after" if when == "after" else "before", at_write(due, fault))
        stage.world.change(KEY, job=NEW)
        await rolled_out(stage)
        await stage.until(lambda: set(stage.world.sets[KEY]) == {2})  # noqa: B023
        await stage.until(lambda: len([one for one in stage.world.drivers if one.commits]) == 2)  # noqa: B023
        if len(stage.gate.writes) <= due:
            return


def at_write(due: int, fault: type[BaseException]) -> Callable[[int, str], None]:
    def fail(number: int, name: str) -> None:
        if number == due:
            raise fault(f"{name}: no answer") if fault is Unreachable else Died

    return fail


async def test_a_zombie_of_a_next_run_claims_nothing_once_its_epoch_is_over() -> None:
    """Injected: the next run freezes when it is warm; the old one dies in a batch, and two epochs later it wakes."""
    stage = await warm()
    old, new = sorted(living(stage), key=lambda driver: driver.config.epoch)
    new.frozen = True
    old.end(stage.world.now, 137)
    await stage.until(lambda: stage.row.driver is not None and stage.epoch > new.config.epoch, seconds=900)
    new.frozen = False
    await stage.run(20)
    assert (new.commits, new.alive) == ([], False)
    stage.check_commits()


async def test_a_drained_run_that_ended_its_epoch_is_replaced_in_the_next_one() -> None:
    """Injected: the API deletes the driver's pod, as for a drain, and nothing waits for its epoch."""
    stage = await streaming()
    stage.world.delete_pod(stage.world.newest_pod())
    await stage.until(lambda: stage.epoch == 2 and stage.is_running())
    assert "Superseded" not in stage.reported
    assert stage.world.created_jobs == ["orders-run-1", "orders-run-2"]
    stage.check_commits()
