"""Suspend, scale, a new image, deletion: what a user does to a pipeline that streams."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from e2e.stream import Starts, Stream
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired.names import release_name
from harness.faults.cluster_faults import Faults
from harness.kubernetes.kubectl import Kubectl, Object
from harness.kubernetes.nodes import Nodes
from harness.pipelines import KIND, PIPELINE_LABEL, helm_revisions, merged
from harness.waiting import eventually
from testbed.cluster import WORKERS
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_suspended_it_holds_nothing_and_resumed_it_continues_at_the_offset(stream: Stream, kubectl: Kubectl) -> None:
    """No fault: suspend under load, records arrive meanwhile, resume. Kafka would keep the records for 71 hours."""
    pipeline = stream.pipeline
    _set_retention(stream, hours=71)
    with stream.load.flowing():
        stream.commits_past(stream.fence())
        pipeline.patch({"suspend": True})
        ready = pipeline.wait_condition("Ready", "True", reason="Suspended")
        assert ready["message"]
        assert pipeline.condition("Streaming")["status"] == "False"
        eventually("no pod runs", lambda: not _alive(kubectl), seconds=120)
        stood = stream.fence()
        assert stood is not None
    stream.load.burst(500)
    assert "less than 72 h" in pipeline.wait_condition("RetentionRisk", "True", reason="RetentionTooShort")["message"]
    assert stream.fence() == stood, "a suspended pipeline's fence row moved"
    _set_retention(stream, hours=None)
    pipeline.patch({"suspend": False})
    pipeline.wait_ready(epoch=stood.epoch + 1)
    assert stream.check_every_row().epoch == stood.epoch + 1


def _set_retention(stream: Stream, *, hours: int | None) -> None:
    """Set how long Kafka keeps the topic's records; None is the broker's default."""
    operation = AlterConfigOpType.DELETE if hours is None else AlterConfigOpType.SET
    entry = ConfigEntry("retention.ms", str(3_600_000 * (hours or 0)), incremental_operation=operation)
    topic = ConfigResource(ResourceType.TOPIC, stream.load.ledger.topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": stream.place.environment.kafka_host})
    admin.incremental_alter_configs([topic])[topic].result(30)


@pytest.mark.long
def test_workers_come_and_go_by_kubectl_scale_while_the_driver_stays(stream: Stream) -> None:
    """No fault: `kubectl scale` to 2, 3 and 1 workers under load, each step waited for."""
    pipeline = stream.pipeline
    driver = pipeline.driver()["metadata"]["uid"]
    with stream.load.flowing():
        for workers in (2, 3, 1):
            pipeline.kubectl.run("scale", f"{KIND}/{pipeline.name}", f"--replicas={workers}")
            wait_for_workers(stream, workers)
            stream.commits_past(stream.fence())
    assert pipeline.driver()["metadata"]["uid"] == driver, "the driver was replaced"
    pipeline.wait_ready()
    stream.check_every_row()


@pytest.mark.long
def test_a_new_image_rolls_the_cluster_and_starts_one_new_run(stream: Stream, nodes: Nodes) -> None:
    """No fault: the same image under a second name, as an upgrade under load."""
    pipeline = stream.pipeline
    image = stream.place.second_image
    for node in WORKERS:
        nodes.tag(node, stream.place.environment.job_image, image)
    epoch, starts = pipeline.epoch(), Starts(pipeline)
    with stream.load.flowing():
        row = stream.commits_past(stream.fence())
        stream.spec = merged(stream.spec, {"job": {"image": image}})
        stream.apply()
        pipeline.wait_ready(epoch=epoch + 1)
        while row.epoch == epoch:
            row = stream.commits_past(row)
    pods = pipeline.kubectl.items("pods", "--field-selector=status.phase=Running")
    assert {container["image"] for pod in pods for container in pod["spec"]["containers"]} == {image}
    assert stream.check_every_row().epoch == epoch + 1
    starts.check_one_per_epoch(range(epoch + 1, epoch + 2))


@pytest.mark.long
def test_new_code_that_cannot_be_loaded_is_rolled_back_to_the_last_stable_code(stream: Stream) -> None:
    """Injected under load: a spec that names a function which the code does not have."""
    pipeline, upgrade = stream.pipeline, {"rollback": "enabled", "stableAfter": {"commits": 2, "window": "5s"}}
    with stream.load.flowing():
        stream.apply(upgrade=upgrade)
        pipeline.wait_ready()  # under this spec: before, the status shows what was stable under another

        def is_stable() -> Object | None:
            status = pipeline.status()
            found: Object | None = status.get("stable")
            return found if found and found["epoch"] == status["run"]["epoch"] else None

        stable = eventually("the spec is stable", is_stable, seconds=120)
        epoch = pipeline.epoch()
        asked = merged(stream.spec["job"], {"entrypoint": "departures:missing"})
        stream.apply(upgrade=upgrade, job=asked)
        stalled = pipeline.wait_condition("Stalled", "True", reason="RolledBack", seconds=240)
        assert "departures" in stalled["message"]
        row = stream.fence()
        while row is None or row.epoch < epoch + 2:
            row = stream.commits_past(row, seconds=240)
        stream.commits_past(row)  # the operator begins an epoch before its run: a commit in it shows the run
    status = pipeline.status()
    parts = {"stable": stable, "stable now": status["stable"], "run": status["run"], "back": status["rolledBack"]}
    revisions = {name: part["revision"].rpartition("-")[2] for name, part in parts.items()}
    assert len(set(revisions.values())) == 1, revisions
    pipeline.wait_condition("Streaming", "True")
    assert pipeline.condition("Ready")["status"] == "False"
    assert pipeline.object()["spec"]["job"]["entrypoint"] == "departures:missing", "the object keeps its spec"
    assert stream.check_every_row().epoch == epoch + 2
    stream.apply()
    pipeline.wait_ready()
    assert "rolledBack" not in pipeline.status()
    assert pipeline.epoch() == epoch + 2, "going back in the object restarts nothing"


def test_a_release_that_a_crash_left_pending_is_recovered(stream: Stream, kubectl: Kubectl) -> None:
    """Helm's newest revision is marked pending-upgrade, as a helm that died leaves it; then the cluster must change."""
    pipeline = stream.pipeline
    driver = pipeline.driver()["metadata"]["uid"]
    newest = max(
        helm_revisions(kubectl, pipeline.name), key=lambda secret: int(secret["metadata"]["labels"]["version"])
    )
    _leave_pending(kubectl, newest)
    pipeline.kubectl.run("scale", f"{KIND}/{pipeline.name}", "--replicas=2")
    wait_for_workers(stream, 2)
    states = {secret["metadata"]["labels"]["status"] for secret in helm_revisions(kubectl, pipeline.name)}
    assert not any(state.startswith("pending") for state in states), states
    assert pipeline.driver()["metadata"]["uid"] == driver, "the driver was replaced"
    stream.load.burst(500)
    stream.check_every_row()


def test_deleted_it_leaves_nothing_but_the_fence_row_and_comes_back_at_its_offset(
    stream: Stream, faults: Faults, kubectl: Kubectl
) -> None:
    """The pipeline is deleted and recreated; the helm that installs it is killed with -9 between its two writes."""
    pipeline = stream.pipeline
    with stream.load.flowing():
        stream.commits_past(stream.fence())
        pipeline.delete()
        kept = stream.fence()
    assert kept is not None
    eventually("nothing is left", lambda: not _left(stream), seconds=120)
    stream.load.burst(500)
    assert stream.fence() == kept, "the fence row of a deleted pipeline moved"

    def begun() -> bool:
        return any(
            secret["metadata"]["labels"]["status"].startswith("pending")
            for secret in helm_revisions(kubectl, pipeline.name)
        )

    release = release_name(ObjectKey(kubectl.namespace, pipeline.name))
    with faults.helm_killed(release, midway=lambda: True):  # it renders; the operator writes the first revision
        stream.apply()
    pipeline.wait_ready(epoch=kept.epoch + 1)
    assert not begun(), "the revision that helm died over is still pending"
    assert stream.check_every_row().epoch == kept.epoch + 1


def test_deleted_with_the_policy_delete_it_forgets_the_fence_row(stream: Stream) -> None:
    """No fault: deletionPolicy Delete."""
    pipeline = stream.pipeline
    pipeline.patch({"deletionPolicy": "Delete"})
    pipeline.wait_ready()
    pipeline.delete()
    assert stream.fence() is None
    eventually("nothing is left", lambda: not _left(stream), seconds=120)


def _alive(kubectl: Kubectl) -> list[Object]:
    """Return the pods that run or may; those of ended runs stay for a while, to be looked at."""
    return [pod for pod in kubectl.items("pods") if pod["status"].get("phase") not in {"Succeeded", "Failed"}]


def wait_for_workers(stream: Stream, count: int) -> None:
    """Wait until so many workers are ready, by the scale subresource and by the pods."""

    def there() -> bool:
        cluster = stream.pipeline.status().get("cluster", {})
        selector = f"{PIPELINE_LABEL}={stream.pipeline.name},streaming.fencepost.dev/component=worker"
        pods = stream.pipeline.kubectl.items("pods", f"--selector={selector}")
        assert (cluster.get("readyWorkers"), len(pods)) == (count, count), f"{len(pods)} pods, status: {cluster}"
        return True

    eventually(f"there are {count} ready workers", there, seconds=180)


def _left(stream: Stream) -> list[str]:
    left = stream.pipeline.owned()
    assert not left, f"left: {', '.join(left)}"
    return left


def _leave_pending(kubectl: Kubectl, revision: Object) -> None:
    """Make a release's Secret what a helm that was killed in an upgrade leaves behind."""
    status = "pending-upgrade"
    stored = base64.b64decode(revision["data"]["release"])
    release = json.loads(gzip.decompress(base64.b64decode(stored)))
    release["info"]["status"] = status
    packed = base64.b64encode(gzip.compress(json.dumps(release).encode()))
    change = {"metadata": {"labels": {"status": status}}, "data": {"release": base64.b64encode(packed).decode()}}
    kubectl.within(OPERATOR_NAMESPACE).patch("secret", revision["metadata"]["name"], change)
