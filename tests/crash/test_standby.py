"""A warm standby takes over when the run that works fails, and costs the pipeline nothing while it does not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from crash.test_handoff import NEW, OLD, at_write, condition, living, running_image
from crash.test_rewind import NAME, TARGET, RewindStage
from fakes.drivers import Driver
from fakes.gate import SIDES
from fakes.manifests import KEY
from fakes.stage import FAULTS, Stage
from fakes.world import RefusedError, Release, World
from fencepost.contract import ExitCode, Reason
from fencepost_operator.api import ObjectKey
from present import present

WARM = {"standby": "Warm", "stallTimeout": "20s"}
CLUSTERS = pytest.mark.parametrize("cluster", [{"workers": 1}, {"workers": 0}], ids=["workers", "without workers"])


async def standing(stage: Stage | None = None, **spec: Any) -> Stage:
    """A pipeline whose standby is warm, and known to be."""
    stage = await Stage.streaming(stage or RewindStage(), **{"job": OLD, "restart": WARM, **spec})
    await stage.until(lambda: stage.row.committed_at is not None)
    await stage.until(lambda: is_standing(stage))
    return stage


def is_standing(stage: Stage) -> bool:
    found = stage.condition("StandbyReady")
    return found is not None and found.status == "True"


def both(stage: Stage) -> tuple[Driver, Driver]:
    """The driver that works, and the standby."""
    working, standby = sorted(living(stage), key=lambda driver: driver.config.epoch)
    return working, standby


async def taken_over(stage: Stage, standby: Driver) -> None:
    await stage.until(lambda: stage.row.driver == standby.uid and bool(standby.commits))
    await stage.until(lambda: condition(stage, "Ready") == ("True", "Streaming"))
    stage.check_commits()


@CLUSTERS
async def test_a_standby_starts_beside_a_run_that_works_and_changes_nothing(cluster: dict[str, int]) -> None:
    stage = await Stage.streaming(job=OLD, restart=WARM, cluster=cluster)
    await stage.until(lambda: condition(stage, "Ready")[0] == "True")
    while not is_standing(stage):
        assert condition(stage, "Ready") == ("True", "Streaming")
        assert condition(stage, "StandbyReady") == ("False", "StandbyStarting")
        await stage.turn()
        stage.world.advance(0.5)
    working, standby = both(stage)
    await stage.run(120)
    assert both(stage) == (working, standby)
    assert (stage.epoch, stage.row.driver, standby.commits) == (1, working.uid, [])
    assert stage.world.waiting_jobs == ["orders-run-2"]
    assert (standby.config.stands_by, standby.config.spark_master == working.config.spark_master) == (
        True,
        cluster["workers"] == 0,
    )


@CLUSTERS
async def test_it_takes_over_from_a_run_that_is_killed_and_another_one_starts(cluster: dict[str, int]) -> None:
    """Injected: SIGKILL of the driver."""
    stage = await standing(cluster=cluster)
    working, standby = both(stage)
    died = stage.world.now
    working.end(died, 137)
    await taken_over(stage, standby)
    assert standby.commits[0][0] == 2, "no epoch is skipped"
    assert present(standby.committed_at) - died <= timedelta(seconds=4), "no backoff; steps of this world: 0.5 s"
    assert (stage.pipeline.status.restarts, len(stage.pipeline.status.restarted_at)) == (1, 1)
    await stage.until(lambda: is_standing(stage) and stage.world.waiting_jobs == ["orders-run-2", "orders-run-3"])
    assert ("StandbyTookOver", "The standby orders-run-2 takes over from orders-run-1") in stage.world.events
    if cluster["workers"]:
        await stage.until(lambda: set(stage.world.sets[KEY]) == {2, 3})


async def test_the_batch_in_which_the_run_died_is_repeated_by_the_standby() -> None:
    """Injected: SIGKILL inside a batch, whose rows may exist."""
    stage = await standing()
    working, standby = both(stage)
    working.batch_takes = timedelta(minutes=1)
    await stage.until(lambda: not stage.row.is_between_batches)
    planned = stage.row.planned
    working.end(stage.world.now, 137)
    await taken_over(stage, standby)
    assert standby.commits[0][2] == planned
    assert stage.pipeline.status.mixed_output == ()


@CLUSTERS
async def test_it_takes_over_from_a_frozen_driver_within_seconds(cluster: dict[str, int]) -> None:
    """Injected: SIGSTOP of the driver, inside a batch that takes a minute and has just begun."""
    stage = await standing(cluster=cluster)
    working, standby = both(stage)
    working.batch_takes = timedelta(minutes=1)
    await stage.until(lambda: not stage.row.is_between_batches)
    await stage.run(20)
    assert (stage.epoch, working.alive) == (1, True), "a long batch with heartbeats is not a frozen driver"
    frozen, working.frozen = stage.world.now, True
    await taken_over(stage, standby)
    assert present(stage.pipeline.status.failure).reason == Reason.HEARTBEAT_LOST
    assert present(standby.committed_at) - frozen <= timedelta(seconds=10), "steps of this world: 0.5 s"
    assert stage.pipeline.status.pages == ()


async def test_a_false_alarm_costs_an_epoch_and_never_a_row() -> None:
    """Injected: the heartbeats of a driver that works on a long batch do not arrive; it writes to the end of that."""
    stage = await standing()
    working, standby = both(stage)
    working.batch_takes = timedelta(seconds=30)
    working.is_mute = True
    await taken_over(stage, standby)
    commits = list(working.commits)
    await stage.run(60)
    assert (working.alive, working.commits) == (False, commits)
    await stage.until(lambda: is_standing(stage))
    stage.check_commits()


async def test_a_driver_that_commits_is_not_replaced_for_want_of_heartbeats() -> None:
    """Injected: no heartbeat arrives, and batches take a second."""
    stage = await standing(batchInterval="500ms")
    working, _ = both(stage)
    working.batch_takes = timedelta(seconds=1)
    working.is_mute = True
    await stage.run(120)
    assert (stage.epoch, working.alive) == (1, True)


async def test_a_pause_of_the_operator_together_with_the_driver_is_no_silence() -> None:
    """Injected: both stand still for a minute inside a long batch; the operator looks before the driver continues."""
    stage = await standing()
    working, _ = both(stage)
    working.batch_takes = timedelta(minutes=5)
    await stage.until(lambda: not stage.row.is_between_batches)
    await stage.run(5)
    working.frozen = True
    stage.world.advance(60)
    for _ in range(2):
        await stage.turn()
        stage.world.advance(0.5)
    working.frozen = False
    await stage.run(30)
    assert (stage.epoch, working.alive) == (1, True)


async def test_a_driver_of_an_older_image_has_no_heartbeats_and_is_not_judged_by_them() -> None:
    """Injected: a long batch of a driver that knows none."""
    stage = await standing()
    working, _ = both(stage)
    working.config = replace(working.config, heartbeat=0.0)
    stage.world.table.progress.clear()
    working.batch_takes = timedelta(seconds=50)
    await stage.run(180)
    assert (stage.epoch, working.alive) == (1, True)


async def test_it_takes_over_from_a_frozen_driver_which_commits_nothing_when_it_wakes() -> None:
    """Injected: the driver is stopped (SIGSTOP) and wakes after the standby has committed."""
    stage = await standing()
    working, standby = both(stage)
    working.frozen = True
    await taken_over(stage, standby)
    commits = list(working.commits)
    working.frozen = False
    await stage.run(30)
    assert (working.alive, working.commits) == (False, commits)
    await stage.until(lambda: is_standing(stage))
    stage.check_commits()


async def test_it_takes_over_when_the_node_is_lost() -> None:
    """Injected: the driver's node is silent for good."""
    stage = await standing()
    working, standby = both(stage)
    (old, new) = (present(job.pod) for job in stage.world.jobs)
    assert "node-1" in str(stage.world.jobs[1].manifest["spec"]["template"]["spec"]["affinity"]), "it keeps away"
    stage.world.nodes["node-2"] = replace(stage.world.nodes["node-1"], uid="node-uid-2")
    new.node = "node-2"
    stage.world.nodes[old.node].reachable = False
    lost, working.frozen = stage.world.now, True
    await stage.until(lambda: stage.row.driver == standby.uid and bool(standby.commits), seconds=600)
    assert present(standby.committed_at) - lost <= timedelta(seconds=10)
    stage.check_commits()


@pytest.mark.parametrize("code", [ExitCode.BAD_SPEC, ExitCode.DEPENDENCY_DOWN])
async def test_a_standby_that_fails_is_started_again_less_and_less_often(code: int) -> None:
    """Injected: each standby ends before it is warm."""
    stage = await Stage.streaming(RewindStage(), job=OLD, restart=WARM)
    (working,) = living(stage)
    starts: list[float] = []
    begun = stage.world.now
    for _ in range(1000):
        for driver in living(stage):
            if driver.config.awaits_epoch:
                starts.append((stage.world.now - begun).total_seconds())
                driver.end(stage.world.now, code)
        await stage.run(1)
        assert condition(stage, "Ready")[0] == "True" or not starts
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert 3 <= len(starts) <= 5
    assert all(later > 1.5 * sooner for sooner, later in itertools.pairwise(gaps))
    assert condition(stage, "StandbyReady") == ("False", "StandbyFailed")
    assert living(stage)[0] is working
    assert stage.pipeline.status.pages == ()
    await stage.until(lambda: is_standing(stage), seconds=3600)
    assert stage.pipeline.status.standby is None


async def test_a_run_that_dies_while_no_standby_is_warm_is_restarted_as_without_one() -> None:
    """Injected: a quota that has room for one cluster, then SIGKILL."""
    crowded = RewindStage()
    crowded.world.room = 1
    stage = await Stage.streaming(crowded, job=OLD, restart=WARM)
    await stage.until(lambda: condition(stage, "StandbyReady") == ("False", "StandbyFailed"))
    assert "quota" in present(stage.condition("StandbyReady")).message
    assert condition(stage, "Ready") == ("True", "Streaming")
    await stage.until(lambda: set(stage.world.sets[KEY]) == {1})
    (working,) = living(stage)
    working.end(stage.world.now, 137)
    await stage.until(lambda: stage.epoch == 2 and stage.is_running())
    stage.world.room = None
    await stage.until(lambda: is_standing(stage), seconds=900)
    stage.check_commits()


@CLUSTERS
@pytest.mark.parametrize("what", ["suspended", "deleted", "rewound", "changed", "scaled", "not wanted", "budget"])
async def test_what_a_user_asks_for_ends_the_standby(what: str, cluster: dict[str, int]) -> None:
    stage = await standing(cluster=cluster)
    working, standby = both(stage)
    if what == "deleted":
        await stage.deleted()
        assert not living(stage)
        return
    if what == "suspended":
        await stage.suspended()
        assert not living(stage)
        assert KEY not in stage.world.sets or not stage.world.sets[KEY]
        stage.world.change(KEY, suspend=False)
    elif what == "rewound":
        stage.world.ask_for_rewind(NAME.name, {"offsets": dict(TARGET)}, pipeline=KEY)
        await stage.until(lambda: stage.pipeline.status.rewind is not None)
        await stage.until(lambda: stage.pipeline.status.rewind is None and stage.is_running())
    elif what == "changed":
        stage.world.change(KEY, job=NEW)
        await stage.until(lambda: running_image(stage) == NEW["image"])
    elif what == "scaled":
        stage.world.change(KEY, cluster={"workers": 2})
    elif what == "budget":
        stage.world.change(KEY, restart={**WARM, "maxAttempts": 5})
    else:
        stage.world.change(KEY, restart={"standby": "None"})
        await stage.until(lambda: living(stage) == [working])
        await stage.until(lambda: stage.pipeline.status.handoff is None and stage.condition("StandbyReady") is None)
        assert stage.row.driver == working.uid
        if cluster["workers"]:
            await stage.until(lambda: set(stage.world.sets[KEY]) == {1})
        return
    await stage.until(lambda: not standby.alive)
    await stage.until(lambda: is_standing(stage) and len(living(stage)) == 2)
    assert not standby.commits
    if what in {"scaled", "budget"} and cluster["workers"]:
        assert working.alive
        await stage.until(lambda: {sets.values["workers"] for sets in stage.world.sets[KEY].values()} <= {2, 1})
    stage.check_commits()


async def test_a_run_that_wants_a_smaller_batch_is_not_the_standby() -> None:
    """Injected: a batch that does not fit into the memory of the run that works, nor of the standby."""
    stage = await standing()
    working, standby = both(stage)
    working.fits = standby.fits = 0
    await stage.until(lambda: not working.alive)
    assert present(working.verdict).reason is Reason.OUT_OF_MEMORY
    await stage.until(lambda: stage.is_running() and stage.row.driver not in {working.uid, standby.uid, None})
    assert not standby.commits
    newest = max(stage.world.drivers, key=lambda driver: driver.config.epoch)
    assert newest.config.first_batch_limit is not None or newest.config.awaits_epoch


async def test_failures_in_a_row_without_progress_back_off_as_without_a_standby() -> None:
    """Injected: each driver ends as soon as it has claimed."""
    stage = await standing()
    begun, ended = stage.world.now, set()
    while stage.world.now - begun < timedelta(minutes=10):
        for driver in living(stage):
            if stage.row.driver == driver.uid and driver.uid not in ended:
                ended.add(driver.uid)
                driver.end(stage.world.now, ExitCode.FAILED)
        await stage.run(1)
    assert 4 <= len(ended) <= 14, "n²+n seconds between them"


@dataclass(slots=True)
class RefusingWorld(World):
    """Helm fails with each cluster but the first one, and leaves its release failed."""

    installs: int = 0

    def install(self, key: ObjectKey, values: Mapping[str, Any], *, keep: int | None = None) -> None:
        self.installs += 1
        if values["generation"] > 1:
            before = self.releases[key]
            self.releases[key] = Release(values, before.revision + 1, "failed", before.deployed)
            raise RefusedError("admission webhook denied the request")
        World.install(self, key, values, keep=keep)


async def test_a_cluster_that_helm_refuses_leaves_the_run_that_works_alone() -> None:
    """Injected: an admission webhook refuses the standby's cluster."""
    world = RefusingWorld()
    stage = await Stage.streaming(RewindStage(world=world), job=OLD, restart=WARM)
    (working,) = living(stage)
    await stage.until(lambda: condition(stage, "StandbyReady") == ("False", "StandbyFailed"))
    for _ in range(600):
        await stage.run(1)
        assert condition(stage, "Ready")[0] == "True"
    assert living(stage) == [working]
    assert "admission webhook" in present(stage.condition("StandbyReady")).message
    assert world.installs <= 10, "less and less often"


async def test_a_standby_waits_for_the_proof_of_a_death_that_is_to_be_proved() -> None:
    """Injected: the driver freezes for good, and restart.onUnprovenDeath is wait."""
    stage = await standing(restart={**WARM, "onUnprovenDeath": "wait"})
    working, standby = both(stage)
    working.frozen = True
    stage.world.kubelet_kills = False
    await stage.until(lambda: stage.ready() == "DeathUnproven", seconds=600)
    await stage.run(60)
    assert (stage.epoch, stage.row.driver, standby.commits) == (1, working.uid, [])
    working.end(stage.world.now, 137)
    await taken_over(stage, standby)


async def test_a_standby_that_hangs_is_replaced_soon_after_its_turn() -> None:
    """Injected: the standby freezes when it is warm, then SIGKILL of the run that works."""
    stage = await standing()
    working, standby = both(stage)
    standby.frozen = True
    killed = stage.world.now
    working.end(killed, 137)
    await stage.until(lambda: stage.epoch > 2 and stage.is_running())
    assert stage.world.now - killed < timedelta(seconds=60)
    standby.frozen = False
    await stage.run(20)
    assert standby.commits == []
    stage.check_commits()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("when", SIDES)
async def test_an_operator_that_dies_anywhere_leaves_one_committer_and_a_standby(
    when: str, fault: type[BaseException]
) -> None:
    """Injected: the operator dies, or gets no answer, at one write after another, while the driver is killed."""
    for number in itertools.count(0, 2):
        stage = await Stage.streaming(RewindStage(), job=OLD, restart=WARM)
        (working,) = living(stage)
        due = len(stage.gate.writes) + number
        setattr(stage.gate, "after" if when == "after" else "before", at_write(due, fault))
        await stage.until(lambda: is_standing(stage))  # noqa: B023
        working.end(stage.world.now, 137)
        await stage.until(lambda: stage.epoch >= 2 and stage.is_running())  # noqa: B023
        await stage.until(lambda: is_standing(stage) and len(living(stage)) == 2)  # noqa: B023
        stage.check_commits()
        assert len({driver.uid for driver in stage.world.drivers if driver.commits}) == 2
        if len(stage.gate.writes) <= due:
            return
