"""One instance, whatever the timing: what others do between the operator's observation and its action."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fakes.drivers import Driver
from fakes.manifests import KEY, body
from fakes.ports import ports_of
from fakes.stage import POLICY, Stage
from fakes.world import RefusedError, World
from fencepost.contract import ExitCode
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.errors import Busy, Conflict, Rejected, Unreachable
from fencepost_operator.observation import ClusterObject, References
from fencepost_operator.runtime.passes.reconciler import Reconciler
from present import present


def ready(stage: Stage) -> tuple[str, str]:
    found = present(stage.condition("Ready"))
    return found.status, found.reason


def commits_before_each_takeover(stage: Stage) -> Driver:
    """Let the newest driver commit between each observation and the takeover that follows."""
    zombie = stage.world.newest_pod().driver

    def commit(_number: int, name: str) -> None:
        if name == "take_over" and zombie.alive and zombie.row is not None:
            ends = {key: offset + 1 for key, offset in zombie.row.offsets.items()}
            zombie._commit(stage.world.now, ends)

    stage.gate.before = commit
    return zombie


async def test_a_driver_that_commits_all_the_time_is_fenced_and_replaced() -> None:
    stage = await Stage.streaming()
    zombie = commits_before_each_takeover(stage)
    stage.world.delete_job(KEY, "orders-run-1", cascade="orphan")
    await stage.replaced(seconds=120)
    await stage.run(5)
    assert zombie.exit_code == ExitCode.FENCED


@pytest.mark.parametrize("ending", ["suspend", "delete"])
async def test_a_driver_that_commits_all_the_time_stops_neither_suspension_nor_deletion(ending: str) -> None:
    stage = await Stage.streaming()
    zombie = commits_before_each_takeover(stage)
    stage.world.delete_job(KEY, "orders-run-1", cascade="orphan")
    if ending == "suspend":
        await stage.suspended(seconds=120)
    else:
        await stage.deleted(seconds=120)
    stage.world.advance(10)
    assert zombie.exit_code == ExitCode.FENCED


class CappedWorld(World):
    """An admission webhook lets no cluster have more than one worker."""

    def install(self, key: ObjectKey, values: Mapping[str, Any], *, keep: int | None = None) -> None:
        World.install(self, key, {**values, "workers": min(1, values["workers"])}, keep=keep)


async def test_workers_that_admission_caps_are_reported_and_tried_ever_more_rarely() -> None:
    stage = await Stage.streaming(Stage(CappedWorld()))
    first = len(stage.gate.writes)
    stage.world.change(KEY, cluster={"workers": 3})
    await stage.run(300)
    assert stage.gate.writes[first:].count("install") < 15
    assert ready(stage) == ("False", "NoEffect")
    assert "look for what reverts or caps it" in stage.pipeline.status.message.lower()
    assert stage.reported.count("NoEffect") == 1
    stage.world.change(KEY, cluster={"workers": 1})
    await stage.run(5)
    assert ready(stage)[0] == "True"


class SwallowingWorld(World):
    """Creates that are answered with success and leave nothing behind."""

    def create_job(self, key: ObjectKey, manifest: Mapping[str, Any]) -> None:
        pass


async def test_a_create_that_leaves_nothing_behind_is_reported_and_tried_ever_more_rarely() -> None:
    stage = Stage(world=SwallowingWorld())
    stage.world.apply(body())
    await stage.until(lambda: "start" in stage.gate.writes)
    await stage.run(120)
    assert stage.gate.writes.count("start") < 12
    assert ready(stage) == ("False", "NoEffect")


def refuses(stage: Stage, action: str, error: Exception, *, times: float = math.inf) -> Callable[[], int]:
    """Let the next writes of a kind fail; return what counts its tries from now on."""
    first = stage.gate.writes.count(action)

    def tries() -> int:
        return stage.gate.writes.count(action) - first

    def fail(_number: int, name: str) -> None:
        if name == action and tries() <= times:
            raise error

    stage.gate.before = fail
    return tries


@pytest.mark.parametrize(("action", "reason"), [("start", "StartFailed"), ("take_over", "CassandraRejected")])
async def test_an_action_that_always_conflicts_is_reported_and_tried_ever_more_rarely(action: str, reason: str) -> None:
    stage = await Stage.streaming()
    tries = refuses(stage, action, Conflict("another client writes it at the same time"))
    stage.world.kill_driver()
    await stage.run(300)
    assert 2 < tries() < 15
    assert ready(stage) == ("False", reason)
    assert "another client writes it at the same time (tried" in stage.pipeline.status.message
    stage.gate.before = lambda _number, _name: None
    await stage.running()


async def test_an_action_that_waits_for_its_turn_has_not_failed_and_is_tried_until_it_comes() -> None:
    """A hundred deletions at once wait for Helm: none of them fails, and each keeps its pipeline under observation."""
    stage = await Stage.streaming()
    tries = refuses(stage, "start", Busy("no turn at Helm within 60 s"), times=19)
    stage.world.kill_driver()
    await stage.until(lambda: tries() >= 20)
    assert "StartFailed" not in stage.reported
    await stage.running()


async def test_one_conflict_is_not_a_failure() -> None:
    stage = await Stage.streaming()
    tries = refuses(stage, "start", Conflict("another client has just written"), times=1)
    stage.world.kill_driver()
    await stage.until(lambda: tries() > 1)
    assert "StartFailed" not in stage.reported


class PickyWorld(World):
    """The API server refuses one image."""

    def install(self, key: ObjectKey, values: Mapping[str, Any], *, keep: int | None = None) -> None:
        if values["image"] == "bad":
            raise Rejected("StatefulSet is invalid: spec.template: Invalid value", remedy="correct it")
        World.install(self, key, values, keep=keep)


async def test_neither_the_error_nor_the_backoff_of_a_spec_outlives_it() -> None:
    stage = Stage(world=PickyWorld())
    stage.world.apply(body(job={"image": "bad", "entrypoint": "a:b"}))
    await stage.run(200)
    assert stage.ready() == "InstallFailed"
    stage.world.change(KEY, job={"image": "good", "entrypoint": "a:b"})
    before = len(stage.world.events)
    await stage.turn()
    assert stage.world.releases[KEY].values["image"] == "good"
    await stage.running()
    assert not [message for _, message in stage.world.events[before:] if "invalid" in message]


class LitteringWorld(World):
    """The API server refuses each install, which leaves an object of another generation behind."""

    def install(self, key: ObjectKey, values: Mapping[str, Any], *, keep: int | None = None) -> None:
        del values, keep
        left = self.parts.setdefault(key, [])
        left.append(ClusterObject(kind="Service", name="orders-g9", uid=f"uid-{next(self.uids)}", generation=9))
        raise RefusedError("StatefulSet is invalid")


async def test_housekeeping_between_two_attempts_shortens_no_backoff() -> None:
    stage = Stage(world=LitteringWorld())
    stage.world.apply(body())
    await stage.run(300)
    assert stage.gate.writes.count("prune") > 1
    assert stage.gate.writes.count("install") < 15
    assert stage.ready() == "InstallFailed"


class RefusingWorld(LitteringWorld):
    """The API server refuses each install, which leaves an object behind, and each deletion, until it is repaired."""

    broken: bool = True

    def install(self, key: ObjectKey, values: Mapping[str, Any], *, keep: int | None = None) -> None:
        if self.broken:
            LitteringWorld.install(self, key, values, keep=keep)
        World.install(self, key, values, keep=keep)

    def prune(self, key: ObjectKey, uids: Collection[str]) -> None:
        if self.broken:
            raise Rejected("deletion is forbidden")
        World.prune(self, key, uids)


async def test_two_actions_that_fail_in_turn_both_back_off_and_neither_waits_for_the_other_to_succeed() -> None:
    """Injected: the prune after a failed install was refused, and the install was never tried again."""
    world = RefusingWorld()
    stage = Stage(world=world)
    stage.world.apply(body())
    moments: dict[str, list[float]] = {"install": [], "prune": []}

    def note(_number: int, name: str) -> None:
        if name in moments:
            moments[name].append(stage.world.now.timestamp())

    stage.gate.before = note
    await stage.run(300)
    for name, tries in moments.items():
        gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
        assert 6 <= len(tries) < 15, (name, gaps)
        assert all(later >= earlier - 1 for earlier, later in itertools.pairwise(gaps)), (name, gaps)
        assert gaps[-1] >= 32, (name, gaps)
    assert stage.ready() == "InstallFailed"
    world.broken = False
    await stage.running(seconds=120)


@dataclass(slots=True)
class LateWorld(World):
    """The first create of a Job times out, and takes effect just before the second one."""

    late: list[tuple[ObjectKey, Mapping[str, Any]]] = field(default_factory=list)
    tries: int = 0

    def create_job(self, key: ObjectKey, manifest: Mapping[str, Any]) -> None:
        self.tries += 1
        if self.tries == 1:
            self.late.append((key, manifest))
            raise Unreachable("timed out")
        for request in self.late:
            World.create_job(self, *request)
        self.late.clear()
        World.create_job(self, key, manifest)


async def test_a_job_that_a_late_create_made_from_an_older_spec_is_replaced() -> None:
    stage = Stage(world=LateWorld())
    stage.world.apply(body(batchInterval="5s"))
    await stage.until(lambda: "start" in stage.gate.writes)
    stage.world.change(KEY, batchInterval="60s")
    await stage.until(
        lambda: stage.is_running() and stage.world.newest_pod().driver.config.batch_interval == 60, seconds=120
    )
    hashes = [job.manifest["metadata"]["annotations"][labels.SPEC_HASH] for job in stage.world.jobs]
    run = present(stage.pipeline.status.run)
    assert run.spec_hash == hashes[-1]
    await stage.running()
    assert ready(stage)[0] == "True"


async def test_a_generation_is_not_ready_while_cassandra_hides_that_the_old_one_runs() -> None:
    stage = await Stage.streaming()
    stage.world.cassandra_down = True
    stage.world.change(KEY, job={"image": "registry.example/job:2", "entrypoint": "orders.job:transform"})
    await stage.run(20)
    status = stage.pipeline.status
    assert status.observed_generation == stage.pipeline.generation == 2
    assert ready(stage) == ("False", "CassandraUnreachable")
    stage.world.cassandra_down = False
    await stage.until(lambda: ready(stage)[0] == "True", seconds=120)
    assert stage.world.releases[KEY].values["image"] == "registry.example/job:2"


async def test_a_pipeline_that_is_created_again_continues_the_epochs_of_the_deleted_one() -> None:
    stage = await Stage.streaming(deletionPolicy="Delete")
    await stage.run(20)
    zombie = stage.world.newest_pod().driver
    zombie.frozen = True
    clock = stage.row.clock
    stage.world.delete_job(KEY, "orders-run-1", cascade="orphan")
    await stage.deleted()
    released = stage.row
    assert released.is_released
    assert not released.offsets
    assert released.epoch > 1
    assert released.clock > clock
    zombie.commits.clear()  # the new pipeline's are another series: it reads from the start
    stage.world.apply(body(uid="uid-2"))
    await stage.running()
    assert stage.epoch > 1
    zombie.frozen = False
    await stage.run(10)
    assert zombie.exit_code == ExitCode.FENCED
    assert not zombie.commits


async def test_references_that_cannot_be_read_leave_a_new_generation_unready() -> None:
    stage = await Stage.streaming()
    ports = ports_of(stage.world, stage.gate)
    stage._operator = Reconciler(ports=replace(ports, objects=UnreadableObjects()), config=POLICY)
    job = {
        "image": "registry.example/job:2",
        "entrypoint": "orders.job:transform",
        "codeFrom": {"configMapName": "code"},
    }
    stage.world.change(KEY, job=job)
    await stage.run(20)
    assert ready(stage) == ("False", "KubernetesUnreachable")


class UnreadableObjects:
    """The API server answers no question about ConfigMaps and Secrets."""

    async def references(self, key: ObjectKey, names: Any, *, age: float = 0.0) -> References:
        del age
        raise Unreachable(f"no answer about {names} of {key}")

    async def secret(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        raise Unreachable(f"no answer about {name} of {key}")

    def forget_secrets(self, namespace: str) -> None:
        """None is kept."""


async def test_a_batch_that_takes_longer_than_the_stall_timeout_ends_under_its_own_run() -> None:
    stage = await Stage.streaming(restart={"stallTimeout": "15s"})
    await stage.run(10)
    driver = stage.world.newest_pod().driver
    driver.batch_takes = timedelta(seconds=200)
    await stage.run(150)
    assert driver.alive
    before = len(driver.commits)
    await stage.run(100)
    assert len(driver.commits) > before
    assert stage.world.created_jobs == ["orders-run-1"]


async def test_a_driver_that_hangs_in_its_batch_is_replaced_and_the_next_one_gets_twice_the_time() -> None:
    stage = await Stage.streaming(restart={"stallTimeout": "15s"})
    lives: dict[int, list[datetime]] = {}

    def all_drivers_hang() -> bool:
        for driver in stage.world.drivers:
            driver.hangs = True
            if driver.row is not None and driver.alive and not driver.asked_at:
                lives.setdefault(driver.config.epoch, []).append(stage.world.now)
        return stage.epoch == 5

    await stage.until(all_drivers_hang, seconds=900)
    _, second, third, fourth = ((seen[-1] - seen[0]).total_seconds() for _, seen in sorted(lives.items()))
    assert third > 1.5 * second
    assert fourth > 1.5 * third
