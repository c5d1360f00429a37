"""One suite for the ports of trials: what the doubles in memory promise, the adapters keep on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from fakes.manifests import body, spec
from fakes.trial_ports import FakePipelinesToTry, FakeTrialJobs, FakeTrials
from fencepost.contract.trial import TrialReport
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.kubernetes.api_server import CONFIG_MAPS, JOBS, PODS, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.pipelines import KubernetesPipelines
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.adapters.kubernetes.trial_jobs import KubernetesTrialJobs
from fencepost_operator.adapters.kubernetes.trials import KubernetesTrials
from fencepost_operator.api import (
    GROUP,
    KIND,
    PAUSED_ANNOTATION,
    TRIAL_KIND,
    TRIAL_PLURAL,
    VERSION,
    Event,
    EventType,
    ObjectKey,
    Pipeline,
    ReconcileConfig,
    RowCounts,
    Spec,
    Trial,
    TrialPhase,
    TrialSpec,
    TrialStatus,
    read_pipeline,
)
from fencepost_operator.decision.trial.asked import manifests
from fencepost_operator.desired.jobs.trial_job import trial_job_name
from fencepost_operator.errors import Conflict, Rejected
from fencepost_operator.ports import PipelinesToTry, TrialJobs, Trials
from harness.waiting import eventually_async
from integration.operator.cluster import PIPELINES, own_namespace
from present import present
from testbed.environment import load

_TRIALS: Final = Resource(prefix=f"/apis/{GROUP}/{VERSION}", plural=TRIAL_PLURAL)
_POD_STATUS: Final = Resource(prefix=PODS.prefix, plural=PODS.plural, subresource="status")
_JOB_STATUS: Final = Resource(prefix=JOBS.prefix, plural=JOBS.plural, subresource="status")
ASKED: Final[dict[str, Any]] = {"pipeline": "orders", "job": {"image": "orders:2"}, "since": {"duration": "1h"}}
REPORT: Final = TrialReport(records=5, total=5, seconds=1.0)


@dataclass(slots=True, kw_only=True)
class Stage:
    """The ports on a world with a paused pipeline and a trial of it.

    `owner` is the uid that Jobs are made under, `reference` who that is; `stranger` is the uid of another object.
    `finish` ends a Job with a report.
    """

    trials: Trials
    jobs: TrialJobs
    pipelines: PipelinesToTry
    key: ObjectKey
    place: ObjectKey
    owner: str
    reference: dict[str, str]
    stranger: str
    finish: Callable[[str], Awaitable[None]]

    async def trial(self) -> Trial:
        return present(await self.trials.read(self.place))

    async def pipeline(self) -> Pipeline:
        return present(await self.pipelines.read(self.key))

    async def over_what_was_read(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do work again while another writer, such as an operator on this cluster, comes first."""

        async def attempt() -> list[Any]:
            try:
                return [await work()]
            except Conflict:
                return []

        return (await eventually_async(attempt))[0]

    async def manifests(self, **owner: str) -> tuple[dict[str, Any], dict[str, Any]]:
        trial, pipeline = await self.trial(), await self.pipeline()
        assert isinstance(trial.spec, TrialSpec)
        assert isinstance(pipeline.spec, Spec)
        config = ReconcileConfig(cluster_uid="cluster")
        made = manifests(trial, trial.spec, pipeline, pipeline.spec, {}, config)
        for one in made:
            one["metadata"]["ownerReferences"] = [{**self.reference, **owner}]
        return made


@pytest.fixture(params=["memory", pytest.param("testbed", marks=pytest.mark.integration)])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield in_memory() if request.param == "memory" else await on_the_testbed(stack)


def in_memory() -> Stage:
    key, place = ObjectKey("shop", "orders"), ObjectKey("shop", "next")
    jobs, trials = FakeTrialJobs(), FakeTrials()
    trials.apply(place, ASKED)

    async def finish(name: str) -> None:
        assert name in jobs.jobs
        jobs.finish(REPORT)

    return Stage(
        trials=trials,
        jobs=jobs,
        pipelines=FakePipelinesToTry(read_pipeline(body(suspend=True))),
        key=key,
        place=place,
        owner="owner-1",
        reference={"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "owner-1"},
        stranger="owner-2",
        finish=finish,
    )


async def on_the_testbed(stack: AsyncExitStack) -> Stage:
    api = await ApiServer.connect(load().kubeconfig)
    stack.push_async_callback(api.close)
    namespace = await stack.enter_async_context(own_namespace(api))
    key, place = ObjectKey(namespace, "orders"), ObjectKey(namespace, "next")
    paused = {"name": key.name, "annotations": {PAUSED_ANNOTATION: "true"}}
    made = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": paused, "spec": spec(suspend=True)}
    await api.create(PIPELINES, namespace=namespace, body=made)
    asked = {"apiVersion": f"{GROUP}/{VERSION}", "kind": TRIAL_KIND, "metadata": {"name": place.name}, "spec": ASKED}
    await api.create(_TRIALS, namespace=namespace, body=asked)
    # Jobs belong to a ConfigMap here, so that an operator that runs on this cluster leaves them alone.
    owner = await api.create(CONFIG_MAPS, namespace=namespace, body={"metadata": {"name": "owner"}})
    stranger = await api.create(CONFIG_MAPS, namespace=namespace, body={"metadata": {"name": "stranger"}})
    clock = SystemClock()
    recorder = EventRecorder(api=api, clock=clock, instance="test")
    runs = KubernetesRuns(api=api, clock=clock, kubelets=Kubelets(api=api))
    uid = owner["metadata"]["uid"]
    return Stage(
        trials=KubernetesTrials(api, recorder),
        jobs=KubernetesTrialJobs(api, runs),
        pipelines=KubernetesPipelines(api, recorder),
        key=key,
        place=place,
        owner=uid,
        reference={"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid},
        stranger=stranger["metadata"]["uid"],
        finish=lambda name: _finish(api, namespace, name),
    )


async def _finish(api: ApiServer, namespace: str, name: str) -> None:
    """Let the pod of a Job, whose image does not exist, have ended with a report, as its kubelet would say."""

    async def pod() -> dict[str, Any] | None:
        found = await api.list(PODS, namespace=namespace, labels=f"batch.kubernetes.io/job-name={name}")
        return found[0] if found else None

    found = present(await eventually_async(pod, pause=0.1))
    ended = {"exitCode": 0, "reason": "Completed", "message": REPORT.to_json()}
    container = found["spec"]["containers"][0]["name"]
    states = [
        {
            "name": container, "image": "i", "imageID": "", "ready": False, "restartCount": 0,
            "state": {"terminated": ended},
        }
    ]  # fmt: skip
    status = {"phase": "Succeeded", "containerStatuses": states}
    await api.merge(_POD_STATUS, namespace=namespace, name=found["metadata"]["name"], body={"status": status})

    async def is_complete() -> bool:
        job = present(await api.get(JOBS, namespace=namespace, name=name))
        return any(one["type"] == "Complete" for one in job.get("status", {}).get("conditions", []))

    assert await eventually_async(is_complete, pause=0.1)


async def test_a_trial_is_read_or_absent(stage: Stage) -> None:
    trial = await stage.trial()
    assert (trial.key, trial.pipeline, trial.generation) == (stage.place, "orders", 1)
    assert isinstance(trial.spec, TrialSpec)
    assert await stage.trials.read(replace(stage.place, name="absent")) is None


async def test_a_status_is_replaced_only_over_what_was_read(stage: Stage) -> None:
    rows = RowCounts(compared=9, equal=8, changed=1, missing=None)
    status = TrialStatus(
        observed_generation=1, phase=TrialPhase.COMPLETED, start={"orders/0": 5}, until={"orders/0": 14}, rows=rows,
        complete=True,
    )  # fmt: skip
    stale = await stage.trial()

    async def write() -> Trial:
        return await stage.trials.write_status(await stage.trial(), status)

    assert (await stage.over_what_was_read(write)).status == status
    assert (await stage.trial()).status == status
    with pytest.raises(Conflict):
        await stage.trials.write_status(stale, TrialStatus())
    await stage.trials.publish(stale, [Event(EventType.NORMAL, "Tried", "8 rows are equal")])


async def test_a_trial_is_deleted_once_and_not_another_of_its_name(stage: Stage) -> None:
    trial = await stage.trial()
    await stage.trials.delete(replace(trial, uid="00000000-0000-0000-0000-000000000000"))
    assert await stage.trials.read(stage.place) is not None
    for _ in range(2):
        await stage.trials.delete(trial)
    assert await stage.trials.read(stage.place) is None
    with pytest.raises(Conflict):
        await stage.trials.write_status(trial, TrialStatus())


async def test_a_job_is_started_once_found_by_its_owner_and_read_at_its_end(stage: Stage) -> None:
    name = trial_job_name(await stage.trial())
    assert await stage.jobs.find(stage.key, name, stage.owner) is None
    for _ in range(2):
        await stage.jobs.start(stage.key, *await stage.manifests())
    found = present(await stage.jobs.find(stage.key, name, stage.owner))
    assert (found.run.name, found.run.finished, found.report, found.is_late) == (name, False, None, False)
    assert await stage.jobs.find(stage.key, name, "another") is None
    await stage.finish(name)
    ended = present(await stage.jobs.find(stage.key, name, stage.owner))
    assert (ended.run.finished, ended.report) == (True, REPORT)
    await stage.jobs.stop(stage.key, name, "another")
    assert await stage.jobs.find(stage.key, name, stage.owner) is not None
    await stage.jobs.stop(stage.key, name, stage.owner)

    async def is_gone() -> bool:
        return await stage.jobs.find(stage.key, name, stage.owner) is None

    assert await eventually_async(is_gone)
    await stage.jobs.stop(stage.key, name, stage.owner)


async def test_a_job_of_that_name_that_another_object_owns_is_an_error(stage: Stage) -> None:
    job, config_map = await stage.manifests(name="stranger", uid=stage.stranger)
    job["metadata"].pop("finalizers", None)
    await stage.jobs.start(stage.key, job, config_map)
    with pytest.raises(Rejected):
        await stage.jobs.start(stage.key, *await stage.manifests())


async def test_the_code_is_set_only_over_what_was_read_and_nothing_else_is(stage: Stage) -> None:
    before = await stage.pipeline()
    with pytest.raises(Conflict):
        await stage.pipelines.set_job(replace(before, resource_version="1000000"), {"image": "orders:0"})

    async def promote() -> None:
        await stage.pipelines.set_job(await stage.pipeline(), {"image": "orders:2", "args": ["--new"]})

    await stage.over_what_was_read(promote)
    after = await stage.pipeline()
    assert after.generation == before.generation + 1
    job = {**before.written["job"], "image": "orders:2", "args": ["--new"]}
    assert after.written == {**before.written, "job": job}
