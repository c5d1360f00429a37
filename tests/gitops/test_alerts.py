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
from harness.kubernetes.kubectl import Kubectl, Object
from harness.pipelines import KIND, Pipeline, Place, manifest
from harness.topics import produce, set_retention
from harness.waiting import eventually
from testbed.release import NAMESPACE, RELEASE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

OF_BEHIND: Final = ("FencepostRetentionRisk", "FencepostDurabilityAtRisk", "FencepostPipelineLagGrowing")
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


def test_each_fault_is_reported_and_so_is_its_end(
    monitor: Monitoring, place: Place, kubectl: Kubectl, topic: str
) -> None:
    """A topic and an image that do not exist, a pause, old records, a growing lag, a status that is refused."""
    broken, behind, stuck = (Pipeline(kubectl, name) for name in ("broken", "behind", "stuck"))
    kubectl.apply(
        manifest(place, name=broken.name, topic="no-such-topic", table="none"),
        manifest(place, name=behind.name, topic=topic, table="none", job=ABSENT),
        manifest(place, name=stuck.name, topic=topic, table="none", suspend=True),
    )

    def received(alert: str, pipeline: Pipeline, status: str = "firing") -> Object:
        return monitor.wait_received(alert, status, namespace=place.namespace, name=pipeline.name)

    environment = place.environment
    stuck.wait_condition("Ready", "True", reason="Suspended")
    with status_refused(kubectl, stuck):
        stuck.patch({"batchInterval": "2s"})
        found = received("FencepostPipelineNotReady", broken)
        assert f"kubectl describe spl -n {place.namespace} broken" in found["annotations"]["description"]
        kubectl.run("annotate", KIND, broken.name, "streaming.fencepost.dev/paused=true")
        received("FencepostRetentionRisk", behind)
        received("FencepostDurabilityAtRisk", behind)
        produce(environment.kafka_host, topic, count=5)
        received("FencepostPipelineLagGrowing", behind)
        received("FencepostPipelinePaused", broken)
        received("FencepostOperatorLoopStuck", stuck)

    for alert, pipeline in (*((alert, behind) for alert in OF_BEHIND), *((alert, broken) for alert in OF_BROKEN)):
        read(environment, alert, pipeline, monitor.prometheus)
    act(environment, "FencepostPipelinePaused", broken, "paused-")
    act(environment, "FencepostPipelinePaused", behind, '"suspend":true')
    act(environment, "FencepostRetentionRisk", behind, "retention extend")
    received("FencepostOperatorLoopStuck", stuck, "resolved")
    received("FencepostPipelinePaused", broken, "resolved")
    broken.patch({"suspend": True})
    received("FencepostPipelineNotReady", broken, "resolved")
    received("FencepostPipelineLagGrowing", behind, "resolved")
    received("FencepostRetentionRisk", behind, "resolved")
    behind.delete()
    received("FencepostDurabilityAtRisk", behind, "resolved")
    assert not monitor.prometheus.failing_rules()


@pytest.mark.long
def test_a_receiver_that_takes_no_pages_is_reported(
    monitor: Monitoring, place: Place, kubectl: Kubectl, topic: str
) -> None:
    """A receiver of the operator and one of a namespace that do not answer, until the test starts them."""
    operator = kubectl.within(NAMESPACE)
    environment = place.environment
    set_retention(environment.kafka_host, topic, hours=1)
    paged = Pipeline(kubectl, "paged")
    owners = {"FencepostPagesNotDelivered": NAMESPACE, "FencepostNamespacePagesNotDelivered": place.namespace}
    with receiver_down(kubectl, place) as address, operator_pages(operator, address):
        kubectl.apply(secret("fencepost-pages", address))
        kubectl.apply(manifest(place, name=paged.name, topic=topic, table="none", job=ABSENT))
        for alert, namespace in owners.items():
            monitor.wait_received(alert, seconds=240, namespace=namespace)
            read(environment, alert, paged, monitor.prometheus)
        paged.wait_condition("PagingDegraded", "True", seconds=300)
        kubectl.run("scale", "deployment/receiver", "--replicas=1")
        for alert, namespace in owners.items():
            monitor.wait_received(alert, "resolved", seconds=300, namespace=namespace)
        paged.delete()


def secret(name: str, address: str) -> Object:
    """Return a Secret with one receiver of pages."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"alertmanager": address}}


@contextmanager
def receiver_down(kubectl: Kubectl, place: Place) -> Iterator[str]:
    """Make a receiver in the cluster that is not started; return its base URL."""
    script = (
        "import http.server as h\n"
        "class Taker(h.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        self.rfile.read(int(self.headers['Content-Length']))\n"
        "        self.send_response(200)\n"
        "        self.end_headers()\n"
        "h.ThreadingHTTPServer(('', 9093), Taker).serve_forever()\n"
    )
    labels = {"app": "receiver"}
    container = {
        "name": "receiver",
        "image": place.environment.job_image,
        "command": ["python3", "-c", script],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "resources": {"requests": {"cpu": "10m"}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {"terminationGracePeriodSeconds": 0, "securityContext": security, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    metadata = {"name": "receiver"}
    kubectl.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"port": 9093}]},
        },
    )
    try:
        yield f"http://receiver.{kubectl.namespace}.svc:9093"
    finally:
        kubectl.delete("deployment,service", "receiver")


@contextmanager
def operator_pages(operator: Kubectl, address: str) -> Iterator[None]:
    """Let the operator page this receiver, as `pages.secretName` of its chart does."""
    name = "pages-of-a-test"

    def use(chosen: str) -> None:
        operator.run("set", "env", f"deployment/{RELEASE}", f"FENCEPOST_PAGES_SECRET={chosen}")
        operator.run("rollout", "status", f"deployment/{RELEASE}", "--timeout=120s", seconds=130)

    operator.apply(secret(name, address))
    try:
        use(name)
        yield
    finally:
        use("")
        operator.delete("secret", name)


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
