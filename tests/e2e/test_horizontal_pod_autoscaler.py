"""A HorizontalPodAutoscaler of the cluster's own controller, on the scale subresource of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from e2e.stream import Stream
from e2e.test_lifecycle import wait_for_workers
from harness.kubernetes.kubectl import Kubectl, Object
from harness.kubernetes.nodes import Nodes
from harness.monitoring.external_metrics import external_metrics
from harness.waiting import eventually
from present import present
from testbed.cluster import NODES

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

SCALER: Final = "horizontalpodautoscalers.autoscaling"
WANTED: Final = "wanted"
"""The metric: how many workers are to be there."""


@pytest.fixture(scope="module")
def metrics(kubectl: Kubectl, nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Return the values of the cluster's external metrics."""
    with external_metrics(kubectl, nodes, NODES[0], tmp_path_factory.mktemp("metrics")) as values:
        yield values


def test_a_horizontal_pod_autoscaler_scales_the_workers_while_the_driver_stays(
    stream: Stream, metrics: dict[str, int]
) -> None:
    """No fault: the metric asks for 2 workers and for 1 again, under load."""
    pipeline = stream.pipeline
    driver = pipeline.driver()["metadata"]["uid"]
    metrics[WANTED] = 1
    with stream.load.flowing(), autoscaled(stream, least=1):
        for workers in (2, 1):
            metrics[WANTED] = workers
            wait_for_workers(stream, workers)
            stream.commits_past(stream.fence())
        assert pipeline.object()["spec"]["cluster"]["workers"] == 1
    assert pipeline.driver()["metadata"]["uid"] == driver, "the driver was replaced"
    pipeline.wait_ready()
    stream.check_every_row()


def test_one_beside_autoscale_changes_nothing_and_says_which_field_refuses_it(
    stream: Stream, metrics: dict[str, int]
) -> None:
    """Two scalers of one pipeline: its own, which has chosen 1 worker, and one that wants 2."""
    pipeline = stream.pipeline
    metrics[WANTED] = 2
    stream.apply(cluster={"autoscale": {"maxWorkers": 3}})
    chosen = eventually("a number is chosen", lambda: pipeline.status().get("autoscale"), seconds=60)
    assert chosen["workers"] == 1
    with autoscaled(stream, least=2) as scaler:

        def refused() -> Object:
            found = present(pipeline.kubectl.get(SCALER, scaler)).get("status", {}).get("conditions", [])
            able: Object = next((each for each in found if each["type"] == "AbleToScale"), {})
            assert (able.get("status"), able.get("reason")) == ("False", "FailedUpdateScale"), able
            return able

        message = eventually("the autoscaler is refused", refused, seconds=90)["message"]
    assert "spec.cluster" in message
    assert "must be 1 or absent beside autoscale, which chooses the number of workers" in message
    pipeline.wait_ready()
    assert pipeline.object()["spec"]["cluster"]["workers"] == 1
    assert pipeline.status()["autoscale"]["workers"] == pipeline.status()["cluster"]["workers"] == 1


@contextmanager
def autoscaled(stream: Stream, *, least: int) -> Iterator[str]:
    """Apply a HorizontalPodAutoscaler of the pipeline that follows the metric at once; yield its name."""
    pipeline = stream.pipeline
    target = {"apiVersion": "streaming.fencepost.dev/v1beta1", "kind": "StreamingPipeline", "name": pipeline.name}
    wanted = {"metric": {"name": WANTED}, "target": {"type": "AverageValue", "averageValue": "1"}}
    pipeline.kubectl.apply(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": pipeline.name},
            "spec": {
                "scaleTargetRef": target,
                "minReplicas": least,
                "maxReplicas": 2,
                "metrics": [{"type": "External", "external": wanted}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            },
        }
    )
    try:
        yield pipeline.name
    finally:
        pipeline.kubectl.delete(SCALER, pipeline.name)
