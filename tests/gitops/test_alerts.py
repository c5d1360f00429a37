"""Alerts from their real faults: the operator's metrics, a Prometheus with the chart's rules, Alertmanager, a receiver.

No pipeline here gets as far as Spark: each fault is one that the operator alone finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from flights.topics import Topics
from gitops.alerts import LAG, Monitoring, monitoring, quick_rules
from gitops.runbooks import act, read
from harness.kubectl import Kubectl, Object
from harness.pipelines import KIND, Pipeline, Place, manifest
from harness.topics import produce, set_retention
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

OF_BEHIND: Final = (
    "FencepostRetentionRisk",
    "FencepostDurabilityAtRisk",
    "FencepostPipelineLagGrowing",
)
OF_BROKEN: Final = ("FencepostPipelineNotReady", "FencepostPipelinePaused")
ABSENT: Final[dict[str, Any]] = {"image": "fencepost-job:no-such-tag", "imagePullPolicy": "Never"}


@pytest.fixture(scope="module")
def monitor(place: Place, folder: Path) -> Iterator[Monitoring]:
    with monitoring(place.environment, folder, quick_rules()) as running:
        yield running


@pytest.fixture(scope="module")
def topic(place: Place) -> Iterator[str]:
    """A topic whose records are kept for an hour, and are three quarters of an hour old."""
    name, bootstrap = f"{place.namespace}-behind", place.environment.kafka_host
    topics = Topics(bootstrap)
    topics.create(name, 1)
    set_retention(bootstrap, name, hours=1)
    produce(bootstrap, name, count=2 * LAG, age=45 * 60)
    yield name
    topics.delete(name)


def test_each_fault_is_told_and_so_is_its_end(monitor: Monitoring, place: Place, kubectl: Kubectl, topic: str) -> None:
    """A topic and an image that do not exist, a pause, old records, a growing lag, a status that is refused."""
    broken, behind, stuck = (Pipeline(kubectl, name) for name in ("broken", "behind", "stuck"))
    kubectl.apply(
        manifest(place, name=broken.name, topic="no-such-topic", table="none"),
        manifest(place, name=behind.name, topic=topic, table="none", job=ABSENT),
        manifest(place, name=stuck.name, topic=topic, table="none", suspend=True),
    )

    def told(alert: str, pipeline: Pipeline, status: str = "firing") -> Object:
        return monitor.wait_told(alert, status, namespace=place.namespace, name=pipeline.name)

    environment = place.environment
    stuck.wait_condition("Ready", "True", reason="Suspended")
    with status_refused(kubectl, stuck):
        stuck.patch({"batchInterval": "2s"})
        found = told("FencepostPipelineNotReady", broken)
        assert f"kubectl describe spl -n {place.namespace} broken" in found["annotations"]["description"]
        kubectl.run("annotate", KIND, broken.name, "streaming.fencepost.dev/paused=true")
        told("FencepostRetentionRisk", behind)
        told("FencepostDurabilityAtRisk", behind)
        produce(environment.kafka_host, topic, count=5)
        told("FencepostPipelineLagGrowing", behind)
        told("FencepostPipelinePaused", broken)
        told("FencepostOperatorLoopStuck", stuck)

    for alert, pipeline in (*((alert, behind) for alert in OF_BEHIND), *((alert, broken) for alert in OF_BROKEN)):
        read(environment, alert, pipeline)
    act(environment, "FencepostPipelinePaused", broken, "paused-")
    act(environment, "FencepostPipelinePaused", behind, '"suspend":true')
    act(environment, "FencepostRetentionRisk", behind, "retention extend")
    told("FencepostOperatorLoopStuck", stuck, "resolved")
    told("FencepostPipelinePaused", broken, "resolved")
    broken.patch({"suspend": True})
    told("FencepostPipelineNotReady", broken, "resolved")
    told("FencepostPipelineLagGrowing", behind, "resolved")
    told("FencepostRetentionRisk", behind, "resolved")
    behind.delete()
    told("FencepostDurabilityAtRisk", behind, "resolved")
    assert not monitor.prometheus.failing_rules()


@contextmanager
def status_refused(kubectl: Kubectl, pipeline: Pipeline) -> Iterator[None]:
    """Let the API server refuse each write of a pipeline's status, as an admission webhook may."""
    name = f"{kubectl.namespace}-refuse"
    group = "admissionregistration.k8s.io/v1"
    match = {
        "resourceRules": [
            {
                "apiGroups": ["streaming.fencepost.dev"],
                "apiVersions": ["*"],
                "operations": ["UPDATE"],
                "resources": ["streamingpipelines/status"],
            }
        ]
    }
    expression = f"object.metadata.namespace != '{kubectl.namespace}' || object.metadata.name != '{pipeline.name}'"
    kubectl.apply(
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": match,
                "validations": [{"expression": expression, "message": "refused by a test"}],
            },
        },
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    )

    def refused() -> bool:
        text = kubectl.run(
            "patch", KIND, pipeline.name, "--subresource=status", "--type=merge",
            '--patch={"status":{"state":"Running"}}', "--dry-run=server", "--output=name",
        )  # fmt: skip
        raise AssertionError(f"accepted: {text}")

    def holds() -> bool:
        try:
            return refused()
        except AssertionError as error:
            return "refused by a test" in str(error)

    try:
        eventually("the API server refuses the status", holds, seconds=60)
        yield
    finally:
        kubectl.delete("validatingadmissionpolicybinding", name)
        kubectl.delete("validatingadmissionpolicy", name)
