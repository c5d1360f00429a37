"""Flux's own kustomize-controller on the example repository."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.new_code import FARTHER, SAME, TRIAL, code_of, job_of
from e2e.stream import Stream
from gitops import trials
from gitops.repository import CODE, PATH, PIPELINE, example, files
from harness.gitops.flux import KUSTOMIZATION, Flux, flux
from harness.kubernetes.kubectl import Kubectl, Object
from harness.pipelines import KIND, SECRET, Pipeline, Place, events
from harness.waiting import eventually
from present import present

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(420)]

CREDENTIALS: Final = "flights-credentials"
PIPELINES: Final = "flights-pipelines"
FLIGHTS: Final = "flights"
"""One source of two Kustomizations."""
TRIALS: Final = "flights-trials"


@pytest.fixture(scope="module")
def running(place: Place, folder: Path) -> Iterator[Flux]:
    kubectl = Kubectl.of(place.environment, f"{place.namespace}-flux")
    kubectl.run("create", "namespace", kubectl.namespace)
    try:
        with flux(place.environment, folder, namespace=kubectl.namespace) as found:
            yield found
            # Their finalizers need the controller; the pipelines need their Secret.
            for name in (PIPELINES, TRIALS, CREDENTIALS):
                kubectl.delete(KUSTOMIZATION, name)
    finally:
        kubectl.run("delete", "namespace", kubectl.namespace, "--wait=false")


def credentials(place: Place) -> dict[str, str]:
    """Return the example's folder for this place, whose namespace is there already."""
    text = "\n".join(
        (
            "apiVersion: kustomize.config.k8s.io/v1beta1",
            "kind: Kustomization",
            f"namespace: {place.namespace}",
            "resources: [secret.yaml]",
        )
    )
    (secret,) = example("credentials/secret.yaml")
    secret["metadata"]["name"] = "from-git"
    return {"credentials/kustomization.yaml": text, "credentials/secret.yaml": str(secret).replace("'", '"')}


def kustomizations(running: Flux, *, timeout: str = "30s") -> tuple[Object, Object]:
    """Return the example's Kustomizations, fed by ExternalArtifacts of their names."""
    found = (fed(running, one, timeout, source=one["metadata"]["name"]) for one in example("flux/kustomizations.yaml"))
    credentials, pipelines = found
    pipelines["spec"]["path"] = f"./{PATH}"
    return credentials, pipelines


def fed(running: Flux, kustomization: Object, timeout: str, *, source: str) -> Object:
    """Return an example's Kustomization, fed by an ExternalArtifact."""
    kustomization["metadata"]["namespace"] = running.kubectl.namespace
    kustomization["spec"] |= {
        "sourceRef": {"kind": "ExternalArtifact", "name": source},
        "timeout": timeout,
        "retryInterval": "5s",
    }
    return kustomization


def test_a_commit_is_applied_judged_corrected_and_pruned(running: Flux, place: Place, kubectl: Kubectl) -> None:
    """Applied in order; changed by hand; suspended; a commit that the API server refuses; removed from the commit."""
    pipeline = Pipeline(kubectl, PIPELINE)

    def publish(*, with_pipelines: bool = True, **spec: Any) -> str:
        return running.publish(
            PIPELINES, files(place, with_pipelines=with_pipelines, more=(unrelated(),), suspend=True, **spec)
        )

    first = publish(batchInterval="2s")
    running.kubectl.apply(*kustomizations(running))
    eventually("the pipelines wait for their credentials", lambda: "DependencyNotReady" in said(running), seconds=60)
    assert kubectl.get(KIND, PIPELINE) is None
    running.wait(CREDENTIALS, running.publish(CREDENTIALS, credentials(place)))
    running.wait(PIPELINES, first)
    assert pipeline.condition("Ready")["reason"] == "Suspended", "Ready for Flux, and so is the pipeline"

    pipeline.patch({"batchInterval": "9s"})
    running.now(PIPELINES)
    eventually("the change by hand is undone", lambda: interval(pipeline) == "2s", seconds=60)
    running.kubectl.patch(KUSTOMIZATION, PIPELINES, {"spec": {"suspend": True}})
    pipeline.patch({"batchInterval": "8s"})
    second = publish(batchInterval="3s")
    running.now(PIPELINES)
    assert interval(pipeline) == "8s", "flux suspend keeps its hands off"
    running.kubectl.patch(KUSTOMIZATION, PIPELINES, {"spec": {"suspend": False}})
    running.wait(PIPELINES, second)
    assert interval(pipeline) == "3s"

    broken = publish(batchInterval="soon")
    failed = running.wait(PIPELINES, broken, ready=False)
    assert "spec.batchInterval" in failed["message"], failed
    assert interval(pipeline) == "3s"
    corrected = publish(batchInterval="4s")
    running.wait(PIPELINES, corrected)

    running.wait(PIPELINES, publish(with_pipelines=False))
    eventually("the pipeline is pruned", lambda: kubectl.get(KIND, PIPELINE) is None, seconds=60)
    assert kubectl.get("secret", SECRET), "what Flux did not apply stays"


@pytest.mark.timeout(1200)
def test_a_commit_that_cannot_work_is_reported_and_a_prune_loses_no_record(
    running: Flux, place: Place, kubectl: Kubectl, stream: Stream
) -> None:
    """A topic and code that are not there, pruned while it streams, applied again, and pruned with its Secret."""
    pipeline = stream.pipeline

    def publish(*, with_pipelines: bool = True, more: tuple[Object, ...] = (unrelated(),), **spec: Any) -> str:
        found = stream.manifest(**spec)["spec"]
        return running.publish(
            PIPELINES, files(place, overlay="staging", with_pipelines=with_pipelines, more=more, code=CODE, **found)
        )

    def streams(revision: str) -> None:
        running.wait(PIPELINES, revision, seconds=400)
        assert pipeline.condition("Streaming").get("status") == "True", "Flux was Ready before the pipeline"

    on: Object = {"suspend": False}
    running.publish(CREDENTIALS, credentials(place))
    revision = publish(**on, source={"kafka": {"topics": ["no-such-topic"]}})
    running.kubectl.apply(*kustomizations(running))
    failed = running.wait(PIPELINES, revision, ready=False)
    assert failed["reason"] == "HealthCheckFailed"
    assert f"StreamingPipeline/{place.namespace}/{PIPELINE}" in failed["message"]

    running.kubectl.apply(*kustomizations(running, timeout="6m"))
    stream.load.burst(300)
    streams(publish(**on))
    row = stream.check_every_row()
    bad = publish(**on, job={"entrypoint": "no_such_module:transform"})
    failed = running.wait(PIPELINES, bad, ready=False, seconds=300)  # at once, not after the timeout
    assert "stalled" in failed["message"].lower(), failed
    assert pipeline.condition("Stalled")["reason"] == "BadSpec"
    streams(publish(**on))

    with stream.load.flowing():
        row = stream.commits_past(row)
        running.wait(PIPELINES, publish(with_pipelines=False))
        eventually("the pipeline is pruned", lambda: kubectl.get(KIND, PIPELINE) is None, seconds=120)
        streams(publish(**on))
        stream.commits_past(row)
    row = stream.check_every_row()

    account = {**own_account(place), "metadata": {"name": "pruned-too"}}
    dropped: Object = {
        **on,
        "deletionPolicy": "Delete",
        "checkpoint": {"cassandra": {"credentialsFrom": {"secretName": "pruned-too"}}},
    }
    streams(publish(more=(account,), **dropped))
    running.wait(PIPELINES, publish(with_pipelines=False))
    eventually("the Secret is pruned", lambda: kubectl.get("secret", "pruned-too") is None, seconds=60)
    eventually("the pipeline is pruned, too", lambda: kubectl.get(KIND, PIPELINE) is None, seconds=240)
    assert "its checkpoint is kept, because its credentials are deleted" in events(kubectl)
    kept = present(stream.fence())
    assert kept.offsets == row.offsets


@pytest.mark.timeout(1200)
def test_new_code_is_applied_once_its_trial_has_passed(
    running: Flux, place: Place, kubectl: Kubectl, stream: Stream
) -> None:
    """The Kustomizations of examples/trials, of one source: code that changes rows, and code that does not."""
    pipeline = stream.pipeline

    def publish(*tried: Object, **spec: Any) -> str:
        found = {**stream.manifest(**spec)["spec"], "suspend": False}
        folders = files(place, overlay="staging", code=CODE, **found)
        # As a repository's folder of trials has it that has none now.
        listed = {"namespace": place.namespace, "resources": ["trials.yaml"]}
        folders["trials/kustomization.yaml"] = yaml.safe_dump(listed)
        folders["trials/trials.yaml"] = yaml.safe_dump_all((unrelated(), *tried))
        return running.publish(FLIGHTS, folders)

    first = publish()
    of_trials, of_pipelines = (fed(running, one, "8m", source=FLIGHTS) for one in trials.example("flux.yaml"))
    of_pipelines["spec"]["path"] = f"./{PATH}"
    running.kubectl.delete(KUSTOMIZATION, PIPELINES)  # of the test before
    running.kubectl.apply(of_trials, of_pipelines)
    running.wait(PIPELINES, first, seconds=400)
    stream.load.burst(300)
    before = stream.check_every_row()

    changed = publish(*trials.trial("farther", FARTHER), job=job_of("farther"))
    failed = running.wait(TRIALS, changed, ready=False, seconds=400)
    assert f"PipelineTrial/{place.namespace}/farther" in failed["message"], failed
    tried = present(kubectl.get(TRIAL, "farther"))["status"]
    assert tried["phase"] == "Completed", tried["message"]
    assert tried["rows"]["changed"] > 0
    assert tried["promotion"]["state"] == "NotMet"
    assert "DependencyNotReady" in said(running)
    assert stream.check_every_row().epoch == before.epoch, "the code before streams"

    equal = publish(*trials.trial("same", SAME), job=job_of("same"))
    running.wait(PIPELINES, equal, seconds=400)
    assert present(kubectl.get(TRIAL, "same"))["status"]["promotion"]["state"] == "Reported"
    assert kubectl.get(TRIAL, "farther") is None, "a trial of an earlier commit is pruned"
    assert pipeline.object()["spec"]["job"]["codeFrom"]["configMapName"] == code_of("same")
    assert stream.check_every_row().epoch == before.epoch + 1


def own_account(place: Place) -> Object:
    """Return a Secret with the testbed's account of Cassandra, as a commit has it."""
    account = {"username": place.environment.cassandra_username, "password": place.environment.cassandra_password}
    return {"apiVersion": "v1", "kind": "Secret", "stringData": account}


def unrelated() -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "unrelated"}, "data": {}}


def interval(pipeline: Pipeline) -> str | None:
    found: str | None = pipeline.object()["spec"].get("batchInterval")
    return found


def said(running: Flux) -> str:
    found = running.kubectl.get(KUSTOMIZATION, PIPELINES) or {}
    return " ".join(one["reason"] for one in found.get("status", {}).get("conditions", []))
