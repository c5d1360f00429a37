"""Driver Jobs in a real API server; the driver is a shell here."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.contract import Reason, Verdict
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.kubernetes.api_server import CONFIG_MAPS, NODES, PODS, SECRETS, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.objects import KubernetesObjects
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Rejected
from fencepost_operator.observation import Run
from harness.waiting import eventually_async
from integration.operator.cluster import job_manifest, owner_of_runs
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration

QUOTAS = Resource(prefix="/api/v1", plural="resourcequotas")
VERDICT = Verdict(exit_code=51, reason=Reason.BAD_SPEC, message="no such module", remedy="fix it", epoch=3)


@pytest.fixture
def runs(api: ApiServer) -> KubernetesRuns:
    return KubernetesRuns(api=api, clock=SystemClock(), kubelets=Kubelets(api=api))


@pytest.fixture
def key(namespace: str) -> ObjectKey:
    return ObjectKey(namespace, "departures")


@pytest.fixture
async def uid(api: ApiServer, key: ObjectKey) -> str:
    return await owner_of_runs(api, key)


class Starter:
    """Starts Jobs whose driver is a shell."""

    def __init__(self, runs: KubernetesRuns, key: ObjectKey, uid: str, image: str) -> None:
        self.runs, self.key, self.uid, self.image = runs, key, uid, image

    async def start(self, name: str, command: str, **pod: Any) -> None:
        pod = {"image": self.image, "imagePullPolicy": "IfNotPresent"} | pod
        job = job_manifest(self.key, name, owner=self.uid, command=command, pod=pod)
        await self.runs.start(self.key, job)

    async def only(self) -> Run:
        (run,) = (await self.runs.list(self.key, self.uid)).runs
        return run


@pytest.fixture
def starter(runs: KubernetesRuns, key: ObjectKey, uid: str, testbed: Environment) -> Starter:
    return Starter(runs, key, uid, testbed.operator_image)


async def test_a_run_lives_and_is_stopped(runs: KubernetesRuns, api: ApiServer, starter: Starter) -> None:
    key = starter.key
    assert (await runs.list(key, starter.uid)).runs == ()
    await starter.start("departures-run-3", "sleep 600")
    await starter.start("departures-run-3", "sleep 600")

    async def running() -> Run | None:
        run = await starter.only()
        return run if run.pod and run.pod.started_at else None

    run = present(await eventually_async(running))
    assert run.pod is not None
    assert (run.name, run.epoch, run.spec_hash, run.cluster_generation) == ("departures-run-3", 3, "abc", 2)
    assert (run.finished, run.deleting, run.pod.exit_code, run.pod.issue) == (False, False, None, None)
    node = await api.get(NODES, name=present(run.pod.node))
    assert node is not None
    assert (run.pod.node_uid, run.pod.node_ready) == (node["metadata"]["uid"], True)

    await runs.stop(key, "departures-run-3")
    await runs.stop(key, "departures-run-3")

    async def gone() -> bool:
        return (await runs.list(key, starter.uid)).runs == ()

    assert await eventually_async(gone)
    assert await api.list(PODS, namespace=key.namespace) == []
    await runs.stop(key, "departures-run-3")


async def test_a_forced_deletion_is_seen_and_the_job_had_a_pod(api: ApiServer, starter: Starter) -> None:
    """The Job's finalizer keeps the pod until its node reports the end; until then the deletion shows as forced."""
    await starter.start("departures-run-3", "trap '' TERM; while true; do sleep 1; done")

    async def started() -> str | None:
        run = await starter.only()
        return run.pod.name if run.pod and run.pod.started_at else None

    name = present(await eventually_async(started))
    namespace = starter.key.namespace
    await api._call("DELETE", "delete", PODS, namespace=namespace, name=name, body={"gracePeriodSeconds": 0})
    first = await starter.only()
    if first.pod is not None and first.pod.exit_code is None:
        assert first.pod.force_deleted

    async def ended() -> bool:
        run = await starter.only()
        if run.pod is not None and run.pod.exit_code is not None:
            assert not run.pod.force_deleted
        return run.pod is None or run.pod.exit_code is not None

    assert await eventually_async(ended)
    assert (await starter.only()).had_pod


async def test_last_words_are_read(starter: Starter) -> None:
    await starter.start("departures-run-4", f"printf '%s' '{VERDICT.to_json()}' > /dev/termination-log; exit 51")

    async def finished() -> Run | None:
        run = await starter.only()
        return run if run.finished else None

    run = present(await eventually_async(finished))
    assert run.pod is not None
    assert (run.pod.exit_code, run.pod.termination_reason, run.pod.verdict) == (51, "Error", VERDICT)
    assert run.pod.finished_at is not None


async def test_copies_by_hand_and_others_jobs_are_not_ours(runs: KubernetesRuns, starter: Starter) -> None:
    await starter.start("departures-run-5", "sleep 600")
    await starter.start("departures-run-5-copy", "sleep 600")
    await starter.start("departures-run-05", "sleep 600")
    stranger = job_manifest(
        starter.key, "departures-run-6", owner="0", command="sleep 600", pod={"image": starter.image}
    )
    del stranger["metadata"]["ownerReferences"]
    await runs.start(starter.key, stranger)
    assert [run.name for run in (await runs.list(starter.key, starter.uid)).runs] == ["departures-run-5"]


async def test_an_image_that_cannot_be_pulled_is_an_issue(starter: Starter) -> None:
    await starter.start("departures-run-1", "true", image="fencepost.test/absent:1")

    async def why() -> str | None:
        run = await starter.only()
        return run.pod.issue.reason if run.pod and run.pod.issue else None

    assert await eventually_async(why) in {"ErrImagePull", "ImagePullBackOff"}


async def test_a_pod_that_fits_on_no_node_is_an_issue(starter: Starter) -> None:
    await starter.start("departures-run-1", "true", resources={"requests": {"memory": "9Ti"}})

    async def why() -> str | None:
        run = await starter.only()
        return run.pod.issue.reason if run.pod and run.pod.issue else None

    assert await eventually_async(why) == "Unschedulable"


async def test_a_pod_that_a_quota_refuses_is_the_runs_trouble(api: ApiServer, starter: Starter) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await api.create(QUOTAS, namespace=starter.key.namespace, body=quota)

    async def enforced() -> bool:
        found = await api.get(QUOTAS, namespace=starter.key.namespace, name="none")
        return bool(found and found.get("status", {}).get("hard"))

    await eventually_async(enforced)
    await starter.start("departures-run-1", "true")

    async def why() -> str | None:
        run = await starter.only()
        return run.issue.message if run.issue else None

    assert "exceeded quota" in str(await eventually_async(why))


async def test_a_node_that_is_not_there_has_no_uid(runs: KubernetesRuns) -> None:
    node = await runs.node("absent")
    assert (node.uid, node.ready) == (None, False)


async def test_references_are_hashes_of_content(api: ApiServer, key: ObjectKey) -> None:
    objects = KubernetesObjects(api)
    names = ("ConfigMap/code", "Secret/account", "Secret/absent")
    code = {"metadata": {"name": "code"}, "data": {"a.py": "1"}, "binaryData": {"b": "AA=="}}
    account = {"metadata": {"name": "account"}, "stringData": {"username": "u", "password": "p"}}
    await api.create(CONFIG_MAPS, namespace=key.namespace, body=code)
    await api.create(SECRETS, namespace=key.namespace, body=account)
    before = await objects.references(key, names)
    assert before.missing() == ("Secret/absent",)
    marked = {"metadata": {"labels": {"touched": "yes"}}}
    await api.merge(CONFIG_MAPS, namespace=key.namespace, name="code", body=marked)
    assert await objects.references(key, names) == before
    await api.merge(CONFIG_MAPS, namespace=key.namespace, name="code", body={"binaryData": {"b": "AAA="}})
    after = await objects.references(key, names)
    assert after.hashes["ConfigMap/code"] != before.hashes["ConfigMap/code"]
    assert after.hashes["Secret/account"] == before.hashes["Secret/account"]
    assert await objects.secret(key, "account") == {"username": "u", "password": "p"}
    with pytest.raises(Rejected, match="absent does not exist"):
        await objects.secret(key, "absent")


async def test_a_configuration_of_300_kib_is_started_and_read_in_the_pod(
    runs: KubernetesRuns, api: ApiServer, key: ObjectKey, uid: str, testbed: Environment
) -> None:
    """No process can be given it as a variable: such a run failed before its first line, again and again."""
    name, text = "departures-run-9", "x" * 300 * 1024
    pod = {
        "image": testbed.operator_image,
        "imagePullPolicy": "IfNotPresent",
        "volumeMounts": [{"name": "config", "mountPath": "/run-config"}],
    }
    job = job_manifest(key, name, owner=uid, command="exit $(($(wc -c </run-config/config.json) / 10240))", pod=pod)
    job["spec"]["template"]["spec"]["volumes"] = [{"name": "config", "configMap": {"name": name}}]
    metadata = {
        "name": name,
        "labels": job["metadata"]["labels"],
        "ownerReferences": job["metadata"]["ownerReferences"],
    }
    await runs.start(key, job, {"metadata": metadata, "immutable": True, "data": {"config.json": text}})

    async def ended() -> Run | None:
        (run,) = (await runs.list(key, uid)).runs
        return run if run.pod and run.pod.exit_code is not None else None

    run = present(await eventually_async(ended))
    assert run.pod is not None
    assert run.pod.exit_code == 30
    await runs.stop(key, name)
    assert await api.get(CONFIG_MAPS, namespace=key.namespace, name=name) is None
