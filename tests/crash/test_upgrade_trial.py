"""New code is tried before it runs, and the code before streams until then, whatever happens meanwhile.

A test ends the trial, which nothing runs here: `tests/unit/operator/runtime` has the passes over it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fakes.fence_port import FakeFences
from fakes.gate import SIDES
from fakes.manifests import KEY, body
from fakes.stage import ROW, Died, Stage
from fencepost.contract import ExitCode
from fencepost.contract.guidance import Severity
from fencepost.fence.snapshots import Snapshot, Trigger, snapshot_id
from fencepost_operator.api import ACCEPT_CODE_ANNOTATION, State, UpgradeTrialState, UpgradeTrialStatus
from fencepost_operator.errors import Denied, Rejected, Unreachable
from present import present

OLD, NEW, NEWER = (
    {"image": f"registry.example/job:{number}", "entrypoint": "orders.job:transform"} for number in (1, 2, 3)
)
TRIAL = {"strategy": "Trial"}


async def streaming(**spec: Any) -> Stage:
    """A pipeline that tries new code, and has committed records with the old code."""
    stage = await Stage.streaming(**{"job": OLD, "upgrade": TRIAL, **spec})
    await stage.until(lambda: stage.row.committed_at is not None)
    return stage


async def trying(**spec: Any) -> Stage:
    """A pipeline whose new code is tried, and its old one streams."""
    stage = await streaming(**spec)
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: bool(stage.world.trials))
    return stage


async def refused(**rows: int) -> Stage:
    """A pipeline whose new code has changed rows."""
    stage = await trying()
    stage.world.end_trial(rows=rows or {"changed": 1, "equal": 9})
    await stage.until(lambda: stage.ready() == "TrialNotPassed")
    return stage


def running_image(stage: Stage) -> str:
    row = stage.row
    return (row.code or "").split()[0] if row.driver else ""


def tried(stage: Stage) -> UpgradeTrialStatus:
    return present(stage.pipeline.status.upgrade_trial)


def conditions(stage: Stage) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in stage.pipeline.status.conditions}


def images(stage: Stage) -> list[str]:
    return [driver.config.code.split()[0] for driver in stage.world.drivers]


def open_pages(stage: Stage) -> dict[str, Severity]:
    return {page.reason: page.severity for page in stage.pipeline.status.pages if page.quiet_since is None}


def refuse_trials(_: int, name: str) -> None:
    if name == "create_trial":
        raise Rejected("pipelinetrials: exceeded quota: trials")


async def rolled_out(stage: Stage, job: dict[str, str] = NEW) -> None:
    await stage.until(lambda: running_image(stage) == job["image"])
    await stage.until(lambda: conditions(stage)["Ready"][0] == "True")
    assert stage.pipeline.status.upgrade_trial is None
    stage.check_commits()


async def test_the_code_before_streams_until_the_trial_has_passed() -> None:
    stage = await trying()
    asked, jobs = dict(stage.world.objects[KEY]["spec"]), list(stage.world.created_jobs)
    driver = stage.world.newest_pod().driver
    before = len(driver.commits)
    await stage.run(60)
    assert (stage.world.created_jobs, len(stage.world.trials)) == (jobs, 1)
    assert len(driver.commits) > before
    assert conditions(stage)["Ready"] == ("False", "Trying")
    assert conditions(stage)["Reconciling"] == ("True", "Trying")
    assert conditions(stage)["Streaming"] == ("True", "Streaming")
    assert stage.pipeline.status.not_ready_since is None, "a requested step causes no page"
    assert stage.pipeline.status.observed_generation == stage.pipeline.generation
    assert f"revision {tried(stage).revision} is in effect instead" in stage.pipeline.status.message
    stage.world.end_trial()
    await rolled_out(stage)
    assert stage.world.objects[KEY]["spec"] == asked, "the object keeps its spec"
    assert images(stage) == [OLD["image"], NEW["image"]]


async def test_the_trial_is_of_the_objects_code_and_the_pipelines_own() -> None:
    stage = await trying(upgrade={"strategy": "Trial", "trial": {"since": "2h", "limits": {"memory": "4Gi"}}})
    ((key, trial),) = stage.world.trials.items()
    assert key.name == tried(stage).name
    assert trial["metadata"]["ownerReferences"][0]["uid"] == stage.pipeline.uid
    assert trial["spec"]["job"] == {**NEW, "args": []}
    assert trial["spec"]["since"] == {"duration": "2h"}
    assert trial["spec"]["limits"]["memory"] == "4Gi"
    assert "promoteWhen" not in trial["spec"], "the pipeline's own spec is judged, also after the trial has ended"


async def test_code_that_changes_rows_does_not_run_and_the_status_says_what_to_do() -> None:
    stage = await refused()
    jobs = list(stage.world.created_jobs)
    await stage.run(90)
    assert stage.world.created_jobs == jobs
    assert conditions(stage)["Ready"] == ("False", "TrialNotPassed")
    assert conditions(stage)["Stalled"] == ("True", "TrialNotPassed")
    assert conditions(stage)["Streaming"] == ("True", "Streaming")
    assert stage.pipeline.status.state is State.STALLED
    assert tried(stage).state == UpgradeTrialState.NOT_PASSED
    message = stage.pipeline.status.message
    assert "1 changed rows are more than 0" in message
    assert f"{ACCEPT_CODE_ANNOTATION}={tried(stage).name}" in message
    assert stage.reported.count("TrialNotPassed") == 1


@pytest.mark.parametrize("how", ["annotation", "bounds", "strategy", "deleted trial"])
async def test_refused_code_runs_once_it_is_accepted(how: str) -> None:
    stage = await refused()
    changes: dict[str, dict[str, Any]] = {
        "bounds": {"strategy": "Trial", "trial": {"promoteWhen": {"changedRows": 1}}},
        "strategy": {"strategy": "Immediate"},
    }
    if how == "annotation":
        stage.annotate(ACCEPT_CODE_ANNOTATION, "another")
        await stage.run(20)
        assert tried(stage).state == UpgradeTrialState.NOT_PASSED, "of another trial"
        stage.annotate(ACCEPT_CODE_ANNOTATION, tried(stage).name)
    elif how == "deleted trial":
        stage.world.trials.clear()
        await stage.until(lambda: bool(stage.world.trials))
        stage.world.end_trial()
    else:
        stage.world.change(KEY, upgrade=changes[how])
    await rolled_out(stage)
    assert len(stage.world.trials) == 1


async def test_an_accepted_name_accepts_no_later_code() -> None:
    stage = await refused()
    stage.annotate(ACCEPT_CODE_ANNOTATION, tried(stage).name)
    await rolled_out(stage)
    stage.world.change(KEY, job=NEWER)
    await stage.until(lambda: len(stage.world.trials) == 2)
    await stage.run(30)
    assert running_image(stage) == NEW["image"]


async def test_going_back_in_the_object_restarts_nothing() -> None:
    stage = await trying()
    jobs = list(stage.world.created_jobs)
    stage.world.change(KEY, job=OLD)
    await stage.until(lambda: conditions(stage)["Ready"][0] == "True")
    assert stage.world.created_jobs == jobs
    assert stage.pipeline.status.upgrade_trial is None


QUICKLY = {**TRIAL, "stableAfter": {"commits": 2, "window": "20s"}}


PINNED = f"registry.example/job@sha256:{'a' * 64}"


async def reverted(image: str = PINNED, **change: Any) -> Stage:
    """A pipeline whose stable code was replaced by other code, which became stable too, and then by the first again."""
    stage = Stage()
    stage.world.references |= {(KEY.namespace, f"ConfigMap/code-{number}"): "1" for number in (1, 2)}
    await Stage.streaming(stage, job=mounting(1, image), upgrade=QUICKLY)
    await stage.until(lambda: stage.pipeline.status.stable is not None)
    first = present(stage.pipeline.status.stable).revision
    stage.world.change(KEY, job=mounting(2, image))
    await stage.until(lambda: bool(stage.world.trials))
    stage.world.end_trial()
    await stage.until(lambda: present(stage.pipeline.status.stable).revision != first)
    if "content" in change:
        stage.world.references[KEY.namespace, "ConfigMap/code-1"] = change.pop("content")
    stage.world.change(KEY, **{"job": mounting(1, image), **change})
    return stage


def mounting(number: int, image: str = PINNED) -> dict[str, Any]:
    return {**OLD, "image": image, "codeFrom": {"configMapName": f"code-{number}"}}


async def test_a_revert_to_code_that_was_stable_waits_for_no_trial() -> None:
    stage = await reverted(batchInterval="9s")
    await stage.replaced(3)
    await stage.until(lambda: conditions(stage)["Ready"][0] == "True")
    assert len(stage.world.trials) == 1
    assert stage.world.newest_pod().driver.config.code == stage.world.drivers[0].config.code.rpartition(" ")[0] + (
        f" {present(stage.pipeline.status.run).revision}"
    )


@pytest.mark.parametrize(
    "other", [{"content": "2"}, {"job": {**mounting(1), "args": ["--fast"]}}, {"image": OLD["image"]}]
)
async def test_a_revert_that_is_not_quite_one_is_tried(other: dict[str, Any]) -> None:
    """The last one: a tag may name another image than it did."""
    stage = await reverted(**other)
    await stage.until(lambda: len(stage.world.trials) == 2)
    await stage.run(30)
    assert stage.epoch == 2


async def test_code_that_was_never_stable_is_tried_when_it_comes_back() -> None:
    stage = await streaming()
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: bool(stage.world.trials))
    stage.world.end_trial()
    await rolled_out(stage)
    stage.world.change(KEY, job=OLD)
    await stage.until(lambda: len(stage.world.trials) == 2)
    assert running_image(stage) == NEW["image"]


async def test_a_second_change_during_the_trial_is_tried_itself() -> None:
    stage = await trying()
    first = tried(stage)
    stage.world.change(KEY, job=NEWER)
    await stage.until(lambda: len(stage.world.trials) == 2)
    assert tried(stage).name != first.name
    assert tried(stage).revision == first.revision
    stage.world.trials[replace(KEY, name=first.name)]["status"] |= {"phase": "Failed"}
    await stage.run(20)
    assert running_image(stage) == OLD["image"]
    stage.world.end_trial()
    await rolled_out(stage, NEWER)
    assert NEW["image"] not in images(stage)


async def test_what_needs_no_other_code_takes_effect_during_the_trial() -> None:
    """The number of workers changes at once; a batch interval comes with the new code, in the same trial's rows."""
    stage = await trying()
    jobs = list(stage.world.created_jobs)
    stage.world.change(KEY, cluster={"workers": 3})
    await stage.until(lambda: stage.world.releases[KEY].values["workers"] == 3)
    stage.world.change(KEY, batchInterval="9s")
    await stage.run(30)
    assert (len(stage.world.trials), stage.world.created_jobs) == (1, jobs)
    stage.world.change(KEY, suspend=True)
    await stage.until(lambda: conditions(stage)["Ready"] == ("True", "Suspended"))
    stage.world.change(KEY, suspend=False)
    await stage.until(lambda: running_image(stage) == OLD["image"])
    stage.world.end_trial()
    await rolled_out(stage)
    assert stage.world.newest_pod().driver.config.batch_interval == 9.0


async def test_a_run_of_the_code_before_that_fails_during_the_trial_is_restarted_with_it() -> None:
    stage = await trying()
    stage.world.kill_driver()
    await stage.until(lambda: running_image(stage) == OLD["image"] and stage.epoch == 2)
    assert NEW["image"] not in images(stage)
    stage.world.end_trial()
    await rolled_out(stage)


@pytest.mark.parametrize("why", ["nothing committed", "other field", "disabled", "configuration of the ConfigMap"])
async def test_no_trial_is_made_where_there_is_nothing_to_compare_or_keep(why: str) -> None:
    stage = Stage()
    stage.world.references[(KEY.namespace, "ConfigMap/code")] = "1"
    if why == "nothing committed":
        stage.world.broken_images[OLD["image"]] = ExitCode.BAD_SPEC
        stage.world.apply(body(job=OLD, upgrade=TRIAL))
        await stage.until(lambda: stage.ready() == "BadSpec", seconds=600)
    else:
        code = {**OLD, "codeFrom": {"configMapName": "code"}}
        upgrade = {"strategy": "Immediate"} if why == "disabled" else TRIAL
        await Stage.streaming(stage, job=code, upgrade=upgrade)
        await stage.until(lambda: stage.row.committed_at is not None)
    if why == "other field":
        stage.world.change(KEY, batchInterval="9s")
    elif why == "configuration of the ConfigMap":
        stage.world.references[(KEY.namespace, "ConfigMap/code")] = "2"
    else:
        stage.world.change(KEY, job=NEW)
    started = len(stage.world.created_jobs)
    await stage.until(lambda: len(stage.world.created_jobs) > started, seconds=600)
    await stage.running()
    assert stage.world.trials == {}


@pytest.mark.parametrize("message", ["the image cannot be pulled", "the history does not have its start"])
async def test_a_trial_without_a_result_keeps_the_code_before(message: str) -> None:
    stage = await trying()
    stage.world.end_trial("Failed", message)
    await stage.until(lambda: stage.ready() == "TrialNotPassed")
    assert message in stage.pipeline.status.message
    assert running_image(stage) == OLD["image"]


async def test_what_a_trial_waits_for_is_said() -> None:
    stage = await trying()
    (trial,) = stage.world.trials.values()
    condition = {
        "type": "Ready", "status": "False", "reason": "ImagePullFailed", "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    trial["status"] = {"phase": "Starting", "message": "job:2 not found", "conditions": [condition]}
    await stage.until(lambda: "job:2 not found" in stage.pipeline.status.message)
    assert stage.ready() == "Trying"


@pytest.mark.parametrize("kept_by", ["quota", "finalizer"])
async def test_a_trial_that_cannot_begin_pages_as_one_that_has_not_passed(kept_by: str) -> None:
    """Injected: a quota that refuses each creation, and a trial that is deleted and that a finalizer keeps."""
    stage = await (streaming() if kept_by == "quota" else trying())
    if kept_by == "quota":
        stage.gate.before = refuse_trials
        stage.world.change(KEY, job=NEW)
    for trial in stage.world.trials.values():
        trial["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await stage.until(
        lambda: ("exceeded quota" if kept_by == "quota" else "finalizer") in stage.pipeline.status.message
    )
    assert stage.ready() == "Trying", "it may be over in a moment"
    await stage.until(lambda: stage.ready() == "TrialNotPassed", seconds=900)
    assert running_image(stage) == OLD["image"]
    await stage.run(10)
    assert open_pages(stage) == {"TrialNotPassed": Severity.WARNING}
    stage.gate.before = lambda _number, _name: None
    stage.world.trials.clear()
    await stage.until(lambda: bool(stage.world.trials))
    await stage.until(lambda: stage.ready() == "Trying")
    stage.world.end_trial()
    await rolled_out(stage)


async def test_an_outage_of_the_code_before_pages_as_such_after_a_refused_trial() -> None:
    """Injected: the driver dies, and no run with its image comes up any more."""
    stage = await refused()
    await stage.run(10)
    assert open_pages(stage) == {"TrialNotPassed": Severity.WARNING}
    stage.world.broken_images[OLD["image"]] = 1
    stage.world.kill_driver()
    await stage.run(400)
    assert conditions(stage)["Ready"] == ("False", "BackingOff")
    assert conditions(stage)["Reconciling"] == ("True", "BackingOff")
    assert "The new code does not run: " in stage.pipeline.status.message
    assert open_pages(stage)["BackingOff"] is Severity.CRITICAL
    stage.world.broken_images.clear()
    await stage.until(lambda: stage.ready() == "TrialNotPassed", seconds=900)


async def test_a_trial_of_the_name_that_a_user_created_is_not_believed() -> None:
    stage = await streaming()
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: stage.pipeline.status.upgrade_trial is not None)
    mine = {"metadata": {"namespace": KEY.namespace, "name": tried(stage).name, "ownerReferences": []}, "spec": {}}
    stage.world.trials.clear()
    stage.world.create_trial(replace(KEY, name=tried(stage).name), mine)
    stage.world.end_trial()
    await stage.until(lambda: stage.ready() == "TrialNotPassed")
    assert "belongs to another object" in stage.pipeline.status.message
    assert NEW["image"] not in images(stage)


async def test_the_code_before_that_is_gone_starts_nothing_until_the_trial_has_passed() -> None:
    """Injected: a user deletes the ControllerRevision, and the driver dies."""
    stage = await trying()
    stage.world.revisions.pop(replace(KEY, name=tried(stage).revision))
    await stage.run(10)
    assert stage.ready() == "TrialNotPassed"
    assert "is missing" in stage.pipeline.status.message
    stage.world.kill_driver()
    await stage.run(60)
    assert images(stage) == [OLD["image"]]
    stage.world.end_trial()
    await rolled_out(stage)


async def test_an_invalid_spec_during_the_trial_keeps_the_code_before() -> None:
    stage = await trying()
    stage.world.change(KEY, batchInterval="soon")
    await stage.until(lambda: stage.ready() == "InvalidSpec")
    stage.world.kill_driver()
    await stage.until(lambda: running_image(stage) == OLD["image"] and stage.epoch == 2)
    stage.world.change(KEY, batchInterval="5s")
    await stage.until(lambda: stage.ready() == "Trying")
    stage.world.end_trial()
    await rolled_out(stage)


async def test_code_that_has_passed_and_then_fails_is_rolled_back() -> None:
    upgrade = {**TRIAL, "rollback": "enabled", "maxAttempts": 1, "stableAfter": {"commits": 2, "window": "20s"}}
    stage = await streaming(upgrade=upgrade)
    await stage.until(lambda: stage.pipeline.status.stable is not None)
    stage.world.broken_images[NEW["image"]] = ExitCode.BAD_SPEC
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: bool(stage.world.trials))
    stage.world.end_trial()
    await stage.until(lambda: stage.ready() == "RolledBack" and running_image(stage) == OLD["image"], seconds=600)
    await stage.run(60)
    assert stage.pipeline.status.upgrade_trial is None
    stage.world.change(KEY, job=NEWER)
    await stage.until(lambda: len(stage.world.trials) == 2)
    stage.world.end_trial()
    await rolled_out(stage, NEWER)


async def stateful(*, since: str = "5m", **spec: Any) -> Stage:
    """A stateful pipeline that tries new code, and has committed records with the old code."""
    return await streaming(job=with_state(OLD), upgrade={**TRIAL, "trial": {"since": since}}, **spec)


def with_state(job: dict[str, str]) -> dict[str, str]:
    return {**job, "mode": "Stateful"}


def start_of(stage: Stage) -> Snapshot:
    """The snapshot with which the only trial begins; it is there."""
    (trial,) = stage.world.trials.values()
    assert list(trial["spec"]["since"]) == ["snapshot"]
    return stage.world.snapshots[ROW, trial["spec"]["since"]["snapshot"]]


async def test_the_trial_of_a_stateful_pipeline_begins_with_the_newest_snapshot_that_is_old_enough() -> None:
    stage = await stateful(snapshots={"every": "2m"})
    await stage.run(60 * 11)
    stage.world.change(KEY, job=with_state(NEW))
    await stage.until(lambda: bool(stage.world.trials))
    age = stage.world.now - start_of(stage).at
    assert timedelta(minutes=5) <= age < timedelta(minutes=7, seconds=30)
    assert tried(stage).snapshot == str(start_of(stage).id)
    await stage.run(60 * 5)
    assert running_image(stage) == OLD["image"]
    stage.world.end_trial()
    await rolled_out(stage)


async def test_a_snapshot_is_taken_for_the_trial_where_there_is_none() -> None:
    stage = await stateful(snapshots={"every": "0s"})
    stage.world.change(KEY, job=with_state(NEW))
    await stage.run(60 * 4)
    assert [one.trigger for one in stage.world.snapshots.values()] == ["Trial"]
    assert stage.world.trials == {}
    assert conditions(stage)["Ready"] == ("False", "Trying")
    assert "is upgrade.trial.since old; revision" in stage.pipeline.status.message
    await stage.until(lambda: bool(stage.world.trials), seconds=120)
    assert stage.world.now - start_of(stage).at >= timedelta(minutes=5)
    await stage.run(10)
    assert (stage.ready(), open_pages(stage)) == ("Trying", {}), "a requested wait"
    stage.world.end_trial()
    await rolled_out(stage)


async def test_retention_keeps_the_snapshot_of_a_trial_as_long_as_the_code_is_held_back() -> None:
    stage = await stateful(snapshots={"every": "1m", "keep": {"count": 2, "age": "1h"}})
    await stage.run(60 * 5)
    stage.world.change(KEY, job=with_state(NEW))
    await stage.until(lambda: bool(stage.world.trials), seconds=400)
    begins = (ROW, str(start_of(stage).id))
    stage.world.end_trial(rows={"changed": 1})
    await stage.run(60 * 5)
    assert begins in stage.world.snapshots
    assert (len(stage.world.snapshots), present(stage.pipeline.status.snapshots).pinned) == (3, 1)
    stage.annotate(ACCEPT_CODE_ANNOTATION, tried(stage).name)
    await rolled_out(stage)
    await stage.run(60 * 2)
    assert begins not in stage.world.snapshots


async def test_what_was_before_a_rewind_is_no_start_of_a_trial() -> None:
    """Its state is not what the pipeline continued from, and its offsets may be ahead."""
    stage = await stateful(snapshots={"every": "2m"})
    await stage.run(60 * 7)
    last = max(stage.world.snapshots.values(), key=lambda one: one.at)
    backup = replace(last, id=snapshot_id(stage.world.now, "backup"), trigger=Trigger.REWIND)
    stage.world.snapshots[ROW, str(backup.id)] = backup
    stage.world.change(KEY, job=with_state(NEW))
    await stage.until(lambda: bool(stage.world.trials), seconds=500)
    assert start_of(stage).at > backup.at


async def test_a_snapshot_for_the_trial_that_cannot_be_written_pages_as_one_that_cannot_begin() -> None:
    """Injected: the account may not write to the table of snapshots."""
    stage = await stateful(snapshots={"every": "0s"})

    def refuse(_: int, name: str) -> None:
        if name == "take_snapshot":
            raise Denied("no MODIFY permission", remedy="grant it")

    stage.gate.before = refuse
    stage.world.change(KEY, job=with_state(NEW))
    await stage.until(lambda: "no MODIFY permission" in stage.pipeline.status.message)
    assert stage.ready() == "Trying"
    await stage.until(lambda: stage.ready() == "TrialNotPassed", seconds=900)
    stage.gate.before = lambda _number, _name: None
    await stage.until(lambda: bool(stage.world.trials), seconds=900)
    assert stage.ready() == "Trying"


@pytest.mark.parametrize("error", [Denied("no SELECT permission"), Unreachable("no SELECT permission")])
async def test_snapshots_that_cannot_be_read_page_as_a_trial_that_cannot_begin(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: the account may not read the table of snapshots, or reading it gets no answer."""
    stage = await stateful(snapshots={"every": "0s"})

    def refuse(_: FakeFences, __: str) -> tuple[Snapshot, ...]:
        raise error

    with monkeypatch.context() as fault:
        fault.setattr(FakeFences, "_snapshots", refuse)
        stage.world.change(KEY, job=with_state(NEW))
        await stage.until(lambda: "no SELECT permission" in stage.pipeline.status.message)
        assert stage.ready() == "Trying"
        await stage.until(lambda: stage.ready() == "TrialNotPassed", seconds=900)
    await stage.until(lambda: bool(stage.world.trials), seconds=900)
    assert stage.ready() == "Trying"


async def test_a_trial_of_a_stateful_pipeline_that_is_deleted_begins_anew_with_a_newer_snapshot() -> None:
    stage = await stateful(snapshots={"every": "2m"})
    await stage.run(60 * 7)
    stage.world.change(KEY, job=with_state(NEW))
    await stage.until(lambda: bool(stage.world.trials))
    first = start_of(stage)
    stage.world.end_trial(rows={"changed": 1})
    await stage.run(60 * 5)
    stage.world.trials.clear()
    await stage.until(lambda: bool(stage.world.trials))
    assert start_of(stage).at > first.at


async def test_a_revert_of_a_stateful_pipeline_is_tried_too() -> None:
    """Its state may have been written by the code that is taken back."""
    stage = await streaming(job=with_state(OLD), upgrade={**QUICKLY, "trial": {"since": "1m"}})
    await stage.until(lambda: stage.pipeline.status.stable is not None)
    stage.world.change(KEY, job=with_state(NEW))
    await stage.until(lambda: bool(stage.world.trials))
    stage.world.end_trial()
    await rolled_out(stage)
    stage.world.change(KEY, job=with_state(OLD))
    await stage.until(lambda: len(stage.world.trials) == 2)
    assert running_image(stage) == NEW["image"]


@pytest.mark.parametrize("when", [*SIDES, pytest.param("unanswered", marks=pytest.mark.long)])
async def test_an_operator_that_dies_anywhere_takes_one_snapshot_and_tries_once(when: str) -> None:
    """Injected: the operator dies, or gets no answer, at one write after another."""
    for number in itertools.count(0, 2):
        stage = await stateful(since="1m", snapshots={"every": "0s"})
        due = len(stage.gate.writes) + number
        setattr(stage.gate, "after" if when == "after" else "before", at_write(due, when))
        stage.world.change(KEY, job=with_state(NEW))
        await stage.until(lambda: bool(stage.world.trials))  # noqa: B023
        assert start_of(stage).trigger == "Trial"
        stage.world.end_trial()
        await rolled_out(stage)
        assert [one.trigger for one in stage.world.snapshots.values()].count("Trial") == 1
        assert images(stage) == [OLD["image"], NEW["image"]]
        if len(stage.gate.writes) <= due:
            return


async def test_a_pipeline_that_is_deleted_during_the_trial_goes() -> None:
    stage = await trying()
    await stage.deleted()
    assert not [driver for driver in stage.world.drivers if driver.alive]


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("when", [*SIDES, pytest.param("unanswered", marks=pytest.mark.long)])
async def test_an_operator_that_dies_anywhere_in_an_upgrade_ends_in_the_same_place(when: str, *, passes: bool) -> None:
    """Injected: the operator dies, or gets no answer, at one write after another."""
    for number in itertools.count(0, 3):
        stage = await streaming()
        due = len(stage.gate.writes) + number
        setattr(stage.gate, "after" if when == "after" else "before", at_write(due, when))
        stage.world.change(KEY, job=NEW)
        await stage.until(lambda: bool(stage.world.trials))  # noqa: B023
        assert NEW["image"] not in images(stage)
        stage.world.end_trial(rows={} if passes else {"changed": 1})
        if passes:
            await rolled_out(stage)
        else:
            await stage.until(lambda: stage.ready() == "TrialNotPassed")  # noqa: B023
        assert len(stage.world.trials) == 1
        assert images(stage) == ([OLD["image"], NEW["image"]] if passes else [OLD["image"]])
        if len(stage.gate.writes) <= due:
            return


def at_write(due: int, when: str) -> Callable[[int, str], None]:
    def fail(number: int, name: str) -> None:
        if number == due:
            raise Unreachable(f"{name}: no answer") if when == "unanswered" else Died

    return fail
