"""Argo CD's own controller and repo server on the example repository, with the health check that the chart installs."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.new_code import FARTHER, SAME, TRIAL, code_of, job_of
from e2e.stream import Stream
from fencepost_operator.api import GROUP
from gitops.customizations import PROGRAMS, config_map, customizations
from gitops.repository import CODE, PATH, PIPELINE, example, files
from gitops.trials import WAVE, trial
from harness.gitops.argo_cd import APPLICATION, ArgoCD, Repository, argo_cd, lua
from harness.kubernetes.kubectl import Kubectl, Object
from harness.pipelines import KIND, Pipeline, Place
from harness.waiting import eventually
from present import present

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(420)]

WORKERS: Final[Object] = {"cluster": {"workers": 1}}


@pytest.fixture(scope="module", params=PROGRAMS)
def argo(request: pytest.FixtureRequest, place: Place, folder: Path) -> Iterator[ArgoCD]:
    """Argo CD with the chart's customizations merged into its settings by the command of docs/gitops.md."""
    program = str(request.param)
    kubectl = Kubectl.of(place.environment, f"{place.namespace}-{program}")
    kubectl.run("create", "namespace", kubectl.namespace)
    logs = folder / program
    logs.mkdir()
    try:
        with argo_cd(place.environment, logs, namespace=kubectl.namespace, program=program) as running:
            install_customizations(kubectl)
            yield running
            # Its finalizer needs the controller.
            kubectl.run("delete", APPLICATION, "--all", "--timeout=90s", seconds=100)
    finally:
        kubectl.run("delete", "namespace", kubectl.namespace, "--wait=false")


def install_customizations(kubectl: Kubectl) -> None:
    found = config_map()
    kubectl.apply({**found, "metadata": {"name": found["metadata"]["name"]}})
    data = kubectl.run("get", "configmap", "fencepost-argo-cd", "--output=jsonpath={.data}")
    kubectl.run("patch", "configmap", "argocd-cm", "--type=merge", f'--patch={{"data":{data}}}')


def hook(place: Place, name: str, when: str) -> Object:
    """Return a Job that Argo CD runs at a point of each sync."""
    container = {
        "name": "hook",
        "image": place.environment.job_image,
        "command": ["true"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "resources": {"requests": {"cpu": "10m"}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    annotations = {"argocd.argoproj.io/hook": when, "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation"}
    pod = {"restartPolicy": "Never", "securityContext": security, "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"template": {"spec": pod}},
    }


def later(text: str) -> Object:
    """Return a ConfigMap of a wave after the pipeline's."""
    metadata = {"name": "after-the-pipeline", "annotations": {WAVE: "1"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}}


def application(place: Place, argo: ArgoCD, repository: Repository) -> Object:
    """Return the example's Application for this place."""
    (found,) = example("argo-cd/application.yaml")
    # Argo CD knows what belongs to an Application by its name, in all namespaces.
    found["metadata"] |= {"namespace": argo.kubectl.namespace, "name": place.namespace}
    found["spec"]["source"] |= {"repoURL": repository.url, "path": PATH}
    found["spec"]["destination"]["namespace"] = place.namespace
    # As docs/gitops.md has it where the commit names the number of workers.
    workers = {"group": GROUP, "kind": "StreamingPipeline", "jsonPointers": ["/spec/cluster/workers"]}
    found["spec"]["ignoreDifferences"] = [workers]
    found["spec"]["syncPolicy"]["syncOptions"] = ["RespectIgnoreDifferences=true"]
    found["spec"]["syncPolicy"]["retry"] = {"limit": 0}  # the next commit waits for five of them, by default
    return found


@dataclass(frozen=True, slots=True)
class Suspended:
    """The example repository with its pipeline suspended, and with what else each commit has."""

    argo: ArgoCD
    place: Place
    kubectl: Kubectl
    repository: Repository
    more: tuple[Object, ...] = ()

    def push(self, text: str, **spec: Any) -> str:
        """Commit the pipeline and, in the wave after its own, a ConfigMap with the text; return the commit."""
        objects = (later(text), *self.more)
        found = files(self.place, overlay="staging", more=objects, suspend=True, **WORKERS, **spec)
        commit = self.repository.commit(found, text)
        if self.kubectl.within(self.argo.kubectl.namespace).get(APPLICATION, self.place.namespace):
            self.argo.refresh(self.place.namespace)
        return commit

    def check_healthy(self, commit: str, text: str) -> Object:
        """Wait until Argo CD calls the commit synced and healthy, look for the later wave, return the status."""
        status = self.argo.wait(self.place.namespace, commit, health="Healthy")
        assert text_of_the_later_wave(self.kubectl) == text, "the wave after the suspended pipeline's"
        return status


def test_a_suspended_pipeline_holds_up_no_wave_no_commit_and_no_deletion(
    argo: ArgoCD, place: Place, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Applied with waves, changed by a commit, deleted with its Application."""
    repository, flights = Repository.made(tmp_path / "repository"), place.namespace
    commits = Suspended(argo, place, kubectl, repository)
    first = commits.push("one", batchInterval="2s")
    argo.kubectl.apply(application(place, argo, repository))
    status = commits.check_healthy(first, "one")
    (shown,) = [each for each in status["resources"] if each["kind"] == "StreamingPipeline"]
    assert "uspend" in shown["health"]["message"]

    commits.check_healthy(commits.push("two", batchInterval="3s"), "two")
    assert interval(Pipeline(kubectl, PIPELINE)) == "3s"
    delete_application(argo, kubectl, flights)


def test_hooks_wait_and_what_differs_from_the_commit_is_reported_corrected_or_pruned(
    argo: ArgoCD, place: Place, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Applied with hooks, refused, scaled by an autoscaler, changed by hand and by an action, pruned, applied again."""
    repository, pipeline = Repository.made(tmp_path / "repository"), Pipeline(kubectl, PIPELINE)
    hooks, flights = (hook(place, "before", "PreSync"), hook(place, "behind", "PostSync")), place.namespace
    commits = Suspended(argo, place, kubectl, repository, hooks)
    first = commits.push("one", batchInterval="2s")
    argo.kubectl.apply(application(place, argo, repository))
    commits.check_healthy(first, "one")
    check_hooks(kubectl, pipeline)

    refused = commits.push("refused", batchInterval="soon")
    status = argo.wait(flights, refused, sync="OutOfSync", health="Healthy", phase="Failed")
    (failed,) = [
        each for each in status["operationState"]["syncResult"]["resources"] if each.get("status") == "SyncFailed"
    ]
    assert (failed["kind"], failed["name"]) == ("StreamingPipeline", PIPELINE)
    assert "spec.batchInterval" in failed["message"], failed
    assert interval(pipeline) == "2s"
    assert text_of_the_later_wave(kubectl) == "one"

    # Not by a commit: Argo CD waits for an autoscaler's metrics, and the testbed has none.
    kubectl.apply(*example("overlays/production/autoscaler.yaml"))
    eventually("the autoscaler has scaled", lambda: workers(pipeline) == 3, seconds=90)
    commits.check_healthy(commits.push("two", batchInterval="3s"), "two")
    assert interval(pipeline) == "3s"
    check_hooks(kubectl, pipeline)

    pipeline.patch({"batchInterval": "9s"})
    eventually("the change by hand is undone", lambda: interval(pipeline) == "3s", seconds=60)
    assert workers(pipeline) == 3, "the autoscaler's number is not a drift"
    kubectl.delete("horizontalpodautoscalers", PIPELINE)

    run_action(place, kubectl, "resume")
    eventually("the commit takes precedence", lambda: pipeline.object()["spec"]["suspend"], seconds=60)

    gone = repository.commit(files(place, with_pipelines=False, more=(later("three"),)), "three")
    argo.refresh(flights)
    eventually("the pipeline is pruned", lambda: kubectl.get(KIND, PIPELINE) is None, seconds=90)
    argo.wait(flights, gone, health="Healthy")

    commits.check_healthy(commits.push("four"), "four")
    delete_application(argo, kubectl, flights)


def push_running(
    argo: ArgoCD, repository: Repository, stream: Stream, text: str, *, more: tuple[Object, ...] = (), **spec: Any
) -> str:
    """Commit the pipeline of the stream, not suspended, and what else the commit has; return the commit."""
    found = {**stream.manifest(**spec)["spec"], "suspend": False}
    commit = repository.commit(files(stream.place, overlay="staging", code=CODE, more=more, **found), text)
    if argo.kubectl.get(APPLICATION, stream.place.namespace):
        argo.refresh(stream.place.namespace)
    return commit


@pytest.mark.timeout(1200)
def test_a_run_is_restarted_suspended_resumed_and_waited_for(
    argo: ArgoCD, place: Place, kubectl: Kubectl, stream: Stream, tmp_path: Path
) -> None:
    """Code that is not there, a restart by the action, its correction, suspend and resume, deletion under load."""
    repository, pipeline, flights = Repository.made(tmp_path / "repository"), stream.pipeline, place.namespace
    app = application(place, argo, repository)
    app["spec"]["syncPolicy"]["automated"]["selfHeal"] = False  # it would take the actions' changes back

    push = functools.partial(push_running, argo, repository, stream)

    bad = push("bad", job={"entrypoint": "no_such_module:transform"})
    argo.kubectl.apply(app)
    argo.wait(flights, bad, health="Degraded", seconds=300)
    assert pipeline.condition("Stalled")["reason"] == "BadSpec"
    epoch = pipeline.epoch()
    has_been_so_for_an_hour(pipeline)
    run_action(place, kubectl, "restart")

    def restarted() -> Object | None:
        found = pipeline.object()
        return found if int(found["status"]["epoch"]) > epoch else None

    starts = eventually("the action starts a run", restarted, seconds=120)
    assert lua(place.environment, starts, customizations())["health"]["status"] == "Progressing", starts["status"]

    stream.load.burst(300)
    has_been_so_for_an_hour(pipeline)
    good = push("good", more=(later("good"), hook(place, "behind", "PostSync")))
    argo.wait(flights, good, health="Healthy", seconds=300)
    assert text_of_the_later_wave(kubectl) == "good", "the wave after the corrected pipeline's"
    check_post_sync(kubectl, pipeline)
    pipeline.wait_ready()
    row = stream.check_every_row()
    run_action(place, kubectl, "suspend")
    pipeline.wait_condition("Ready", "True", reason="Suspended")
    stream.load.burst(300)
    run_action(place, kubectl, "resume")
    pipeline.wait_ready(epoch=row.epoch + 1)
    row = stream.check_every_row()

    with stream.load.flowing():
        stream.commits_past(row)
        argo.kubectl.run("delete", APPLICATION, flights, "--wait=false")

        def gone() -> bool:
            if argo.kubectl.get(APPLICATION, flights):
                return False
            assert kubectl.get(KIND, PIPELINE) is None, "the Application went before its pipeline"
            return True

        eventually("the Application is deleted", gone, seconds=180)
    kept = present(stream.fence())
    assert sum(kept.offsets.values()) > sum(row.offsets.values()), "the last batches are committed"


@pytest.mark.timeout(1200)
def test_new_code_is_applied_once_its_trial_has_passed(
    argo: ArgoCD, place: Place, kubectl: Kubectl, stream: Stream, tmp_path: Path
) -> None:
    """The trial of examples/trials in the wave before: code that changes rows, and code that does not."""
    repository, pipeline, flights = Repository.made(tmp_path / "repository"), stream.pipeline, place.namespace

    push = functools.partial(push_running, argo, repository, stream)

    first = push("first", more=(later("first"),))
    argo.kubectl.apply(application(place, argo, repository))
    argo.wait(flights, first, health="Healthy", seconds=300)
    stream.load.burst(300)
    before = stream.check_every_row()

    changed = push("farther", more=(*trial("farther", FARTHER), later("farther")), job=job_of("farther"))
    argo.wait(flights, changed, sync="OutOfSync", health="Degraded", phase="Failed", seconds=400)
    tried = present(kubectl.get(TRIAL, "farther"))["status"]
    assert tried["phase"] == "Completed", tried["message"]
    assert tried["rows"]["changed"] > 0
    assert tried["promotion"]["state"] == "NotMet"
    assert text_of_the_later_wave(kubectl) == "first"
    assert stream.check_every_row().epoch == before.epoch, "the code before streams"

    equal = push("same", more=(*trial("same", SAME), later("same")), job=job_of("same"))
    argo.wait(flights, equal, health="Healthy", seconds=400)
    assert present(kubectl.get(TRIAL, "same"))["status"]["promotion"]["state"] == "Reported"
    assert kubectl.get(TRIAL, "farther") is None, "a trial of an earlier commit is pruned"
    assert pipeline.object()["spec"]["job"]["codeFrom"]["configMapName"] == code_of("same")
    assert text_of_the_later_wave(kubectl) == "same"
    assert stream.check_every_row().epoch == before.epoch + 1
    delete_application(argo, kubectl, flights)


def delete_application(argo: ArgoCD, kubectl: Kubectl, name: str) -> None:
    """Delete it in a cascade, and check that it outlives what it applied."""
    argo.kubectl.run("delete", APPLICATION, name, "--timeout=90s", seconds=100)
    assert kubectl.get(KIND, PIPELINE) is None, "the Application went before its pipeline"
    assert kubectl.get("configmap", "after-the-pipeline") is None


def check_hooks(kubectl: Kubectl, pipeline: Pipeline) -> None:
    """Assert that PreSync ended before the commit's spec was written, and PostSync came once it was in effect."""
    before = kubectl.get("job", "before")
    assert before
    text = kubectl.run("get", KIND, PIPELINE, "--show-managed-fields", "--output=json")
    writers = json.loads(text)["metadata"]["managedFields"]
    written = max(one["time"] for one in writers if "f:batchInterval" in one["fieldsV1"].get("f:spec", {}))
    assert before["status"]["completionTime"] <= written
    check_post_sync(kubectl, pipeline)


def check_post_sync(kubectl: Kubectl, pipeline: Pipeline) -> None:
    behind, ready = kubectl.get("job", "behind"), pipeline.condition("Ready")
    assert behind
    assert ready["status"] == "True"
    assert ready["lastTransitionTime"] <= behind["metadata"]["creationTimestamp"]


def has_been_so_for_an_hour(pipeline: Pipeline) -> None:
    """Put back the times that the operator continues from, beyond the limit of the health check."""
    then = f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"

    def put_back() -> bool:
        found = pipeline.object()
        conditions = [{**one, "lastTransitionTime": then} for one in found["status"]["conditions"]]
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        status = {"observedSince": then, "conditions": conditions}
        pipeline.kubectl.patch(KIND, pipeline.name, {"metadata": version, "status": status}, subresource="status")
        return True

    eventually("the times are put back", put_back, seconds=30)


def text_of_the_later_wave(kubectl: Kubectl) -> str | None:
    found = kubectl.get("configmap", "after-the-pipeline")
    return found["data"]["text"] if found else None


def run_action(place: Place, kubectl: Kubectl, action: str) -> None:
    """Run an action on the live pipeline, and write what it returns, as Argo CD's API server does."""
    live = Pipeline(kubectl, PIPELINE).object()
    changed = lua(place.environment, live, customizations(), action)["object"]
    kubectl.patch(KIND, PIPELINE, {"spec": changed["spec"]})


def workers(pipeline: Pipeline) -> int:
    return int(pipeline.object()["spec"]["cluster"]["workers"])


def interval(pipeline: Pipeline) -> str | None:
    found: str | None = pipeline.object()["spec"].get("batchInterval")
    return found
