"""Helm 3, Helm 4 and `kubectl wait` on live objects: the operator's chart, and a user's chart with a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.stream import Stream, create_table
from flights.topics import Topics
from gitops.operators import PATIENCE, flags, own_namespace, own_values
from harness.faults.cluster_faults import Faults
from harness.gitops.kstatus import SEEN_AS, Versions, condition, kstatus, watched
from harness.helm import Helm, HelmError, write_chart
from harness.kubernetes.kubectl import Kubectl, Object
from harness.kubernetes.nodes import Nodes
from harness.load import Load
from harness.pipelines import KIND, Pipeline, Place, merged
from testbed.release import CHART

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]

REWIND: Final = "pipelinerewinds"
RELEASED: Final = "flights"
SMALL_BATCHES: Final[Object] = {"source": {"kafka": {"maxRecordsPerBatch": 20}}}
"""The backlog of a first start is worth many of them."""


@pytest.fixture(scope="module")
def stream(place: Place, kubectl: Kubectl) -> Iterator[Stream]:
    """A pipeline that is not applied yet, over a topic that is there."""
    name, bootstrap = "charted", place.environment.kafka_host
    topic = f"{place.namespace}-{name}"
    loaded = Load.to(bootstrap, topic)
    create_table(place, name)
    made = Stream(place=place, pipeline=Pipeline(kubectl, name), load=loaded, table=name)
    yield made
    made.pipeline.delete()
    Topics(bootstrap).delete(topic)


@pytest.mark.parametrize("program", ["helm", "helm-4"])
def test_the_operators_chart_is_installed_when_helm_says_so(place: Place, program: str) -> None:
    """A second operator, which watches nothing that is there, in a namespace of its own."""
    with own_namespace(place.environment, f"{place.namespace}-{program}") as kubectl:
        helm = Helm.of(place.environment, kubectl.namespace, program)
        values = flags(own_values(place.environment, kubectl.namespace))
        helm.run("install", kubectl.namespace, str(CHART), *values, "--wait", PATIENCE)
        (deployment,) = kubectl.items("deployments")
        assert deployment["status"].get("readyReplicas") == deployment["spec"]["replicas"]
        helm.run("uninstall", kubectl.namespace, "--wait", PATIENCE)
        assert not kubectl.items("deployments")


def test_helm_and_kubectl_wait_for_a_pipeline_as_the_docs_say(
    stream: Stream, place: Place, kubectl: Kubectl, folder: Path
) -> None:
    """Waits for a topic, catches up, is killed, changed, rewound, stalled by its code, suspended, and uninstalled."""
    three, four = (Helm.of(place.environment, place.namespace, program) for program in ("helm", "helm-4"))
    pipeline = stream.pipeline

    def charted(**spec: Any) -> str:
        return write_chart(folder / "chart", stream.manifest(**merged(SMALL_BATCHES, spec)))

    def wait(resource: str, state: str, *, seconds: int = 240) -> None:
        kubectl.run("wait", resource, f"--for={state}", f"--timeout={seconds}s", seconds=seconds + 30)

    missing = {"source": {"kafka": {"topics": ["no-such-topic"]}}}
    live = f"{KIND}/{pipeline.name}"
    stream.load.burst(1500)
    with watched(kubectl, f"{KIND},{REWIND}") as seen:
        three.run("install", RELEASED, charted(**missing), "--wait", PATIENCE)
        pipeline.wait_condition("Ready", "False", reason="TopicNotFound")  # Helm 3 did not wait for it
        three.run("uninstall", RELEASED, "--wait", PATIENCE)
        wait(live, "delete")

        with pytest.raises(HelmError, match="status: InProgress, message: "):
            four.run("install", RELEASED, charted(**missing), "--wait", "--timeout=20s")
        four.run("upgrade", RELEASED, charted(), "--wait", PATIENCE)
        assert condition(pipeline.object(), "Ready") == "True", "Helm 4 came back before the pipeline streamed"
        wait(live, "condition=Ready", seconds=30)
        wait(live, "condition=Streaming", seconds=30)

        Faults(kubectl, Nodes.of(place.environment)).sigkill(pipeline.driver())
        stream.kills += 1
        wait(live, "condition=Ready=False", seconds=60)
        wait(live, "condition=Ready")
        four.run("upgrade", RELEASED, charted(job={"args": ["another"]}), "--wait", PATIENCE)

        row = stream.check_every_row()
        back = {key: offset // 2 for key, offset in row.offsets.items()}
        kubectl.apply(rewind(pipeline, "back", back), rewind(pipeline, "nowhere", {"no-such-topic/0": 1}))
        wait(f"{REWIND}/nowhere", "condition=Stalled")
        wait(f"{REWIND}/back", "condition=Ready")

        with pytest.raises(HelmError, match=r"status: Failed, message: .*no_such_module"):
            four.run("upgrade", RELEASED, charted(job={"entrypoint": "no_such_module:transform"}), "--wait", PATIENCE)
        wait(live, "condition=Stalled", seconds=30)
        four.run("upgrade", RELEASED, charted(suspend=True), "--wait", PATIENCE)
        wait(live, "condition=Ready", seconds=30)
        wait(live, "jsonpath={.status.state}=Suspended", seconds=30)
        assert condition(pipeline.object(), "Streaming") == "False"
        four.run("uninstall", RELEASED, "--wait", PATIENCE)
        assert kubectl.get(KIND, pipeline.name) is None, "Helm 4 came back before the pipeline was gone"
    judge(place, seen)


def rewind(pipeline: Pipeline, name: str, offsets: dict[str, int]) -> Object:
    """Return a PipelineRewind of the pipeline to these offsets."""
    return {
        "apiVersion": "streaming.fencepost.dev/v1beta1",
        "kind": "PipelineRewind",
        "metadata": {"name": name},
        "spec": {"pipeline": pipeline.name, "to": {"offsets": offsets}},
    }


def judge(place: Place, seen: Versions) -> None:
    """Ask kstatus about every version that there was: what it says goes by the phase."""
    pipelines = seen.of("StreamingPipeline")
    phases: dict[str, set[str]] = {}
    for found, status in zip(pipelines, kstatus(place.environment, pipelines), strict=True):
        state = phase(found)
        phases.setdefault(state, set()).add(status)
        if "deletionTimestamp" not in found["metadata"] and state != UNSEEN:
            assert (status == "Current") == (condition(found, "Ready") == "True"), found
    assert SEEN_AS.keys() <= phases.keys(), "the story did not go through it"
    assert all(statuses <= {**SEEN_AS, UNSEEN: {"InProgress"}}[state] for state, statuses in phases.items()), phases

    rewinds = seen.of("PipelineRewind")
    ends = {(found["metadata"]["name"], found["status"].get("phase")): status for found, status in
            zip(rewinds, kstatus(place.environment, rewinds), strict=True)}  # fmt: skip
    assert {name: status for (name, at), status in ends.items() if at in {"Completed", "Failed"}} == {
        "back": "Current",
        "nowhere": "Failed",
    }
    assert {status for (_, at), status in ends.items() if at not in {"Completed", "Failed"}} == {"InProgress"}


UNSEEN: Final = "not seen"


def phase(found: Object) -> str:
    """Return `status.state` of a pipeline whose status is about its spec."""
    if "deletionTimestamp" in found["metadata"]:
        return "Deleting"
    if found["status"].get("observedGeneration") != found["metadata"]["generation"]:
        return UNSEEN
    return str(found["status"]["state"])
