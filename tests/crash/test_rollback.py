"""A new spec that fails on its own is replaced by the last stable one, once; nothing else rolls it back.

Injected each time: drivers of the new image end as the test says, from their start on or with their first batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fakes.drivers import Driver
from fakes.gate import SIDES
from fakes.manifests import KEY, body
from fakes.stage import ROW, Died, Stage
from fencepost.contract import ExitCode
from fencepost.contract.guidance import Severity
from fencepost_operator.adapters.kubernetes.revisions import KEPT
from fencepost_operator.api import RETRY_ANNOTATION, RollbackStatus, StableStatus, State
from fencepost_operator.errors import Unreachable
from fencepost_operator.observation import PodIssue
from present import present

OLD, NEW, NEWER = (
    {"image": f"registry.example/job:{number}", "entrypoint": "orders.job:transform"} for number in (1, 2, 3)
)
UPGRADE = {"rollback": "enabled", "maxAttempts": 2, "stableAfter": {"commits": 2, "window": "20s"}}
POD = PodIssue(pod="orders-pod", reason="ImagePullBackOff", message="manifest unknown")


async def stable(*, upgrade: dict[str, Any] | None = None, **spec: Any) -> tuple[Stage, dict[str, int]]:
    """A pipeline with a stable spec, and the exit codes of images that fail from now on."""
    stage = Stage()
    stage.world.references |= {(KEY.namespace, name): "1" for name in ("ConfigMap/code", "Secret/account")}
    await Stage.streaming(stage, **{"job": OLD, "upgrade": upgrade or UPGRADE, **spec})
    await stage.until(lambda: stage.pipeline.status.stable is not None)
    return stage, stage.world.broken_images


def source(**bounds: Any) -> dict[str, Any]:
    return {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["orders"], **bounds}}


def image(driver: Driver) -> str:
    return driver.config.code.split()[0]


def running_image(stage: Stage) -> str:
    row = stage.row
    return (row.code or "").split()[0] if row.driver else ""


def conditions(stage: Stage) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in stage.pipeline.status.conditions}


def rollback_status(stage: Stage) -> RollbackStatus:
    return present(stage.pipeline.status.rolled_back)


def proven(stage: Stage) -> StableStatus:
    return present(stage.pipeline.status.stable)


def rollbacks(stage: Stage) -> int:
    return sum(
        reason == "RolledBack" and "; rolling back to revision" in message for reason, message in stage.world.events
    )


def open_pages(stage: Stage) -> dict[str, Severity]:
    return {page.reason: page.severity for page in stage.pipeline.status.pages if page.quiet_since is None}


async def rolled_back(stage: Stage, *, seconds: float = 900.0) -> None:
    """Run the loop until the stable spec streams in place of the object's."""
    row = stage.world.table.rows
    await stage.until(
        lambda: stage.ready() == "RolledBack" and running_image(stage) == OLD["image"] and row[ROW].driver is not None,
        seconds=seconds,
    )
    driver = stage.world.newest_pod().driver
    await stage.until(lambda: bool(driver.commits))


async def failed(code: int = ExitCode.BAD_SPEC, *, job: dict[str, Any] | None = None, **change: Any) -> Stage:
    """A pipeline whose new spec failed, and which is back at the stable one."""
    stage, failing = await stable(**({"job": {**OLD, **job}} if job else {}))
    failing[NEW["image"]] = code
    stage.world.change(KEY, job={**NEW, **(job or {})}, **change)
    await rolled_back(stage)
    return stage


async def test_a_spec_is_stable_after_some_commits_of_a_run_that_has_lived_for_some_time() -> None:
    stage = await Stage.streaming(upgrade=UPGRADE)
    claimed = stage.world.now
    await stage.until(lambda: stage.pipeline.status.stable is not None)
    assert stage.world.now - claimed >= timedelta(seconds=15)
    assert proven(stage).revision == present(stage.pipeline.status.run).revision
    assert proven(stage).epoch == 1


async def test_a_run_that_is_restarted_again_and_again_and_one_without_records_are_not_stable() -> None:
    stage = Stage()
    stage.world.apply(body(upgrade=UPGRADE))
    for _ in range(4):
        await stage.running()
        await stage.run(12)
        stage.world.kill_driver()
        await stage.run(2)
    assert stage.pipeline.status.stable is None
    idle = Stage()
    idle.world.rate = 0.0
    idle.world.ends = dict.fromkeys(idle.world.ends, 0)
    idle.world.apply(body(upgrade=UPGRADE))
    await idle.running()
    await idle.run(120)
    assert idle.pipeline.status.stable is None


async def test_a_revision_that_no_run_has_used_is_not_stable() -> None:
    """The bounds of batches change under a run that has proven itself with the old ones."""
    stage, _ = await stable()
    before = proven(stage).revision
    stage.world.change(KEY, source=source(maxRecordsPerBatch=1))
    await stage.run(60)
    assert stage.pipeline.status.run is not None
    assert stage.pipeline.status.run.revision != before, "the last valid spec"
    assert proven(stage).revision == before
    stage.world.kill_driver()
    await stage.until(lambda: proven(stage).revision != before)
    assert stage.world.newest_pod().driver.config.source.max_records_per_batch == 1
    assert proven(stage).epoch == stage.pipeline.status.run.epoch


@pytest.mark.parametrize("code", [ExitCode.BAD_SPEC, ExitCode.FAILED, ExitCode.POISON_RECORD])
async def test_a_new_spec_that_fails_rolls_back_to_the_stable_one(code: int) -> None:
    stage, failing = await stable()
    revision, asked = proven(stage).revision, dict(stage.world.objects[KEY]["spec"])
    failing[NEW["image"]] = code
    stage.world.change(KEY, job=NEW)
    await rolled_back(stage)
    assert conditions(stage)["Ready"] == ("False", "RolledBack")
    assert conditions(stage)["Stalled"] == ("True", "RolledBack")
    assert conditions(stage)["Streaming"] == ("True", "Streaming")
    assert stage.pipeline.status.state is State.STALLED
    assert stage.pipeline.status.observed_generation == stage.pipeline.generation
    assert present(stage.pipeline.status.run).revision == rollback_status(stage).revision == revision
    message = stage.pipeline.status.message
    assert f"revision {revision} is in effect instead" in message
    assert "Apply a corrected spec" in message
    assert "exit" in message
    assert stage.world.objects[KEY]["spec"] == {**asked, "job": NEW}, "the object keeps its spec"
    await stage.run(300)
    assert rollbacks(stage) == 1
    failed = [driver for driver in stage.world.drivers if image(driver) == NEW["image"]]
    assert len(failed) == (1 if code == ExitCode.BAD_SPEC else 2), "no record was named that is poison"


async def test_a_rollback_continues_with_the_newest_offsets_and_a_new_spec_ends_it() -> None:
    stage, failing = await stable()
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: running_image(stage) == NEW["image"])
    newest = stage.world.newest_pod().driver
    await stage.until(lambda: bool(newest.commits))
    reached = sum(stage.row.offsets.values())
    failing[NEW["image"]] = ExitCode.FAILED
    newest.fails_with = ExitCode.FAILED
    await rolled_back(stage)
    assert sum(stage.row.offsets.values()) >= reached
    stage.world.change(KEY, job=NEWER)
    await stage.until(lambda: running_image(stage) == NEWER["image"])
    await stage.running()
    assert stage.pipeline.status.rolled_back is None
    assert conditions(stage)["Ready"][0] == "True"
    stage.check_commits()


async def test_going_back_in_the_object_restarts_nothing() -> None:
    stage = await failed()
    jobs = list(stage.world.created_jobs)
    stage.world.change(KEY, job=OLD)
    await stage.until(lambda: conditions(stage)["Ready"][0] == "True")
    assert stage.world.created_jobs == jobs
    assert stage.pipeline.status.rolled_back is None


async def test_other_bounds_of_batches_try_the_failed_spec_again_and_reach_the_stable_one() -> None:
    """Injected: the new image runs out of memory with batches of the old size."""
    stage = await failed(ExitCode.FAILED)
    stage.world.change(KEY, job=NEW, source=source(maxRecordsPerBatch=500))
    stage.world.broken_images.clear()
    await stage.until(lambda: running_image(stage) == NEW["image"])
    await stage.running()
    assert stage.pipeline.status.rolled_back is None
    assert stage.world.newest_pod().driver.config.source.max_records_per_batch == 500


async def test_a_stable_spec_that_stands_in_has_the_bounds_of_the_object() -> None:
    stage = await failed(source=source(maxRecordsPerBatch=500))
    assert stage.world.newest_pod().driver.config.source.max_records_per_batch == 500


@pytest.mark.parametrize("how", ["annotation", "nonce", "disabled"])
async def test_the_failed_spec_is_tried_again_on_request(how: str) -> None:
    stage = await failed()
    stage.world.broken_images.clear()
    if how == "annotation":
        stage.annotate(RETRY_ANNOTATION, "2")
    else:
        changes: dict[str, dict[str, Any]] = {
            "nonce": {"restart": {"nonce": "2"}},
            "disabled": {"upgrade": {**UPGRADE, "rollback": "disabled"}},
        }
        stage.world.change(KEY, **changes[how])
    await stage.until(lambda: running_image(stage) == NEW["image"])
    await stage.running()


async def test_what_needs_no_other_run_is_the_objects_own_while_it_is_rolled_back() -> None:
    stage = await failed()
    jobs = list(stage.world.created_jobs)
    stage.world.change(KEY, cluster={"workers": 3})
    await stage.until(lambda: stage.world.releases[KEY].values["workers"] == 3)
    await stage.run(20)
    assert (stage.ready(), stage.world.created_jobs) == ("RolledBack", jobs)
    stage.world.change(KEY, suspend=True)
    await stage.until(lambda: conditions(stage)["Ready"] == ("True", "Suspended"))
    stage.world.change(KEY, suspend=False)
    await rolled_back(stage)
    assert rollbacks(stage) == 1
    assert [image(driver) for driver in stage.world.drivers].count(NEW["image"]) == 1


@pytest.mark.parametrize("cause", ["its runs fail", "no room"])
async def test_an_outage_of_the_stable_spec_pages_as_such(cause: str) -> None:
    """Injected: the driver dies, and no run of the stable spec comes up any more."""
    stage = await failed()
    await stage.run(10)
    assert open_pages(stage) == {"RolledBack": Severity.WARNING}
    page = "BackingOff" if cause == "its runs fail" else "NotReady"
    if cause == "its runs fail":
        stage.world.broken_images[OLD["image"]] = ExitCode.FAILED
    else:
        stage.world.issue = replace(POD, reason="Unschedulable")
    stage.world.kill_driver()
    await stage.run(900)
    assert conditions(stage)["Reconciling"] == ("True", stage.ready())
    assert stage.ready() != "RolledBack"
    assert "is in effect instead: " in stage.pipeline.status.message
    assert open_pages(stage)[page] is Severity.CRITICAL
    stage.world.issue = None
    stage.world.broken_images.pop(OLD["image"], None)
    await rolled_back(stage)
    assert rollbacks(stage) == 1


CHOSEN: dict[str, Any] = {"autoscale": {"maxWorkers": 2, "targetTimeLag": "5s"}}


@pytest.mark.parametrize(
    ("before", "after"), [({"workers": 2}, {"workers": 0}), ({"workers": 0}, {"workers": 2}), ({"workers": 0}, CHOSEN)]
)
async def test_a_rollback_takes_back_a_scale_from_or_to_no_workers(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The spec that failed scales so as well; what it is scaled to is another run, with or without a Spark cluster."""
    stage, failing = await stable(cluster=before)
    failing[NEW["image"]] = ExitCode.BAD_SPEC
    stage.world.change(KEY, job=NEW, cluster=after)
    await rolled_back(stage)
    await stage.run(10)
    assert bool(present(stage.pipeline.status.run).cluster_generation) is bool(before["workers"])
    assert bool(stage.world.releases.get(KEY)) is bool(before["workers"])


async def test_the_stable_spec_that_fails_too_stalls() -> None:
    stage, failing = await stable(restart={"maxAttempts": 3})
    failing.update({NEW["image"]: ExitCode.BAD_SPEC, OLD["image"]: ExitCode.FAILED})
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: stage.ready() == "RestartBudgetExhausted", seconds=900)
    jobs = list(stage.world.created_jobs)
    assert "is in effect instead" in stage.pipeline.status.message
    await stage.run(600)
    assert stage.world.created_jobs == jobs


@pytest.mark.parametrize("code", [ExitCode.DEPENDENCY_DOWN, ExitCode.NO_EXECUTORS, ExitCode.DATA_LOSS, ExitCode.FENCED])
async def test_what_the_surroundings_cause_never_rolls_back(code: int) -> None:
    stage, failing = await stable()
    failing[NEW["image"]] = code
    stage.world.change(KEY, job=NEW)
    await stage.run(900)
    assert rollbacks(stage) == 0
    assert stage.pipeline.status.rolled_back is None


@pytest.mark.parametrize("lost", ["kafka", "cassandra", "node"])
async def test_an_outage_during_an_upgrade_never_rolls_back(lost: str) -> None:
    stage, _ = await stable()
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: len(stage.world.created_jobs) == 2)
    if lost == "node":
        stage.world.lose_node(KEY, "driver")
    else:
        setattr(stage.world, f"{lost}_down", True)
    await stage.run(400)
    stage.world.kafka_down = stage.world.cassandra_down = False
    stage.world.recover_nodes(KEY)
    await stage.until(lambda: running_image(stage) == NEW["image"], seconds=900)
    assert rollbacks(stage) == 0


@pytest.mark.parametrize(("reason", "rolls_back"), [("ImagePullBackOff", True), ("Unschedulable", False)])
async def test_an_image_that_cannot_be_pulled_rolls_back_and_a_full_cluster_does_not(
    reason: str, rolls_back: bool
) -> None:
    stage, _ = await stable()
    stage.world.issue = replace(POD, reason=reason)
    stage.world.change(KEY, job=NEW)
    await stage.run(200)
    assert (stage.pipeline.status.rolled_back is not None) is rolls_back
    stage.world.issue = None
    if rolls_back:
        await rolled_back(stage)
    else:
        await stage.until(lambda: running_image(stage) == NEW["image"])


@pytest.mark.parametrize("why", ["disabled", "never stable", "same code", "another ConfigMap"])
async def test_without_a_stable_spec_of_other_code_it_stalls_as_before(why: str) -> None:
    code = {**OLD, "codeFrom": {"configMapName": "code"}} if why == "another ConfigMap" else OLD
    if why == "never stable":
        stage = await Stage.streaming(job=OLD, upgrade=UPGRADE)
        failing = stage.world.broken_images
    else:
        stage, failing = await stable(
            job=code, upgrade={**UPGRADE, "rollback": "disabled"} if why == "disabled" else UPGRADE
        )
    failing.update({OLD["image"]: ExitCode.BAD_SPEC, NEW["image"]: ExitCode.BAD_SPEC})
    if why == "same code":
        stage.world.kill_driver()
    elif why == "another ConfigMap":
        stage.world.references[(KEY.namespace, "ConfigMap/code")] = "2"
    else:
        stage.world.change(KEY, job=NEW)
    await stage.until(lambda: stage.ready() == "BadSpec", seconds=600)
    assert rollbacks(stage) == 0


@pytest.mark.parametrize("optional", [False, True])
async def test_a_stable_spec_whose_secret_is_gone_could_not_start_and_replaces_nothing(optional: bool) -> None:
    """Injected: the Secret that only the stable spec needs is deleted after the upgrade."""
    env = {"envFrom": [{"secretRef": {"name": "account", "optional": optional}}]}
    stage, failing = await stable(job={**OLD, **env})
    failing[NEW["image"]] = ExitCode.BAD_SPEC
    del stage.world.references[(KEY.namespace, "Secret/account")]
    stage.world.change(KEY, job=NEW)
    if optional:
        await rolled_back(stage)
        return
    await stage.until(lambda: stage.ready() == "BadSpec", seconds=600)
    await stage.run(60)
    assert rollbacks(stage) == 0
    assert stage.ready() == "BadSpec"


async def test_after_the_deadline_only_a_spent_budget_rolls_back() -> None:
    stage, failing = await stable()
    late = {**UPGRADE, "deadline": "1m", "stableAfter": {"commits": 1000, "window": "24h"}}
    stage.world.change(KEY, job=NEW, restart={"maxAttempts": 4}, upgrade=late)
    await stage.until(lambda: running_image(stage) == NEW["image"])
    await stage.run(90)
    failing[NEW["image"]] = ExitCode.FAILED
    stage.world.newest_pod().driver.fails_with = ExitCode.FAILED
    await stage.until(lambda: rollbacks(stage) == 1, seconds=900)
    assert present(stage.pipeline.status.failure).attempts == 4


async def test_the_stable_revision_outlives_every_other() -> None:
    stage, _ = await stable()
    revision = proven(stage).revision
    never = {**UPGRADE, "stableAfter": {"commits": 1000, "window": "24h"}}
    for number in range(2, KEPT + 5):
        stage.world.change(KEY, upgrade=never, job={**OLD, "image": f"registry.example/job:{number}"})
        await stage.until(lambda: running_image(stage) == f"registry.example/job:{number}")  # noqa: B023
    assert proven(stage).revision == revision
    assert revision in {key.name for key in stage.world.revisions}


async def test_a_stable_revision_that_is_gone_or_changed_is_not_used() -> None:
    """Injected: a user deletes the ControllerRevision, before the failure and after it."""
    stage, failing = await stable()
    stage.world.revisions.pop(replace(KEY, name=proven(stage).revision))
    failing[NEW["image"]] = ExitCode.BAD_SPEC
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: stage.ready() == "BadSpec", seconds=600)
    later = await failed()
    later.world.revisions.pop(replace(KEY, name=rollback_status(later).revision))
    jobs = list(later.world.created_jobs)
    later.world.kill_driver()
    await later.run(60)
    assert later.ready() == "RolledBack"
    assert "is missing" in later.pipeline.status.message
    assert later.world.created_jobs == jobs, "the spec that failed is not started again"
    later.world.change(KEY, job=NEWER)
    await later.running()


async def test_a_config_map_that_is_away_for_a_moment_does_not_try_the_failed_spec_again() -> None:
    stage = await failed(job={"codeFrom": {"configMapName": "code"}})
    found = stage.world.references.pop((KEY.namespace, "ConfigMap/code"))
    await stage.run(20)
    stage.world.references[(KEY.namespace, "ConfigMap/code")] = found
    await rolled_back(stage)
    await stage.run(20)
    assert [image(driver) for driver in stage.world.drivers].count(NEW["image"]) == 1


async def test_an_invalid_spec_after_a_rollback_keeps_the_stable_one() -> None:
    stage = await failed()
    stage.world.change(KEY, batchInterval="soon")
    await stage.until(lambda: stage.ready() == "InvalidSpec")
    stage.world.kill_driver()
    await stage.until(lambda: running_image(stage) == OLD["image"])
    stage.world.change(KEY, batchInterval="5s")
    await rolled_back(stage)
    assert [image(driver) for driver in stage.world.drivers].count(NEW["image"]) == 1


def half_written(stage: Stage) -> bool:
    row = stage.row
    return bool(row.planned != row.offsets) and running_image(stage) == NEW["image"]


@pytest.mark.parametrize(("code", "mixes"), [(ExitCode.FAILED, True), (137, False)])
async def test_a_batch_of_the_failed_code_is_finished_by_it_or_recorded_as_mixed(code: int, mixes: bool) -> None:
    """The driver of the new code dies in the middle of its first batch, each time; a killed one may finish it."""
    stage, _ = await stable(upgrade={**UPGRADE, "maxAttempts": 1})
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: running_image(stage) == NEW["image"])
    driver = stage.world.newest_pod().driver
    driver.batch_takes = timedelta(seconds=30)
    await stage.until(lambda: half_written(stage) and driver.batch_since is not None)
    driver.end(stage.world.now, code)
    await rolled_back(stage)
    assert bool(stage.pipeline.status.mixed_output) is mixes
    doubled = dict[tuple[str, int], set[str]]()
    for each in stage.world.drivers:
        for by, before, after in each.wrote:
            for key, end in after.items():
                for offset in range(before[key], end):
                    doubled.setdefault((key, offset), set()).add(by.split()[0])
    mixed = {
        (each.partition, offset)
        for found in stage.pipeline.status.mixed_output
        for each in found.ranges
        for offset in range(each.from_offset, each.until_offset)
    }
    assert {place for place, codes in doubled.items() if len(codes) > 1} <= mixed


@pytest.mark.parametrize("when", [*SIDES, pytest.param("unanswered", marks=pytest.mark.long)])
async def test_an_operator_that_dies_anywhere_in_a_rollback_ends_in_the_same_place(when: str) -> None:
    """Injected: the operator dies, or gets no answer, at one write after another."""
    for number in itertools.count(0, 3):
        stage, failing = await stable()
        failing[NEW["image"]] = ExitCode.BAD_SPEC
        stage.world.change(KEY, job=NEW)
        due = len(stage.gate.writes) + number
        setattr(stage.gate, "after" if when == "after" else "before", at_write(due, when))
        await rolled_back(stage)
        assert rollback_status(stage).revision == proven(stage).revision
        assert [image(driver) for driver in stage.world.drivers].count(NEW["image"]) == 1
        if len(stage.gate.writes) <= due:
            return


def at_write(due: int, when: str) -> Callable[[int, str], None]:
    def fail(number: int, name: str) -> None:
        if number == due:
            raise Unreachable(f"{name}: no answer") if when == "unanswered" else Died

    return fail
