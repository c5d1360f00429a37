"""What runs on the testbed and in the demo states its memory: the default is for production, and does not fit there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import pytest
import yaml

from bench.stage import pipeline as benched
from campaign.world import World as Campaign
from fencepost_operator.api import KIND, ReconcileConfig, Spec
from fencepost_operator.desired.jobs.driver_config import driver_config
from fencepost_operator.desired.jobs.run_job import run_job
from fencepost_operator.desired.resources import driver_resources
from harness.pipelines import Place, manifest
from testbed.environment import Environment
from unit.charts.rendering import one
from unit.charts.test_agreement import cluster_of, pipeline_of

ROOT: Final = Path(__file__).parents[3]
SMALL: Final = {"driver": "896Mi", "master": "448Mi", "worker": "1024Mi"}
"""Memory of the pods; three nodes share 24 GiB with Kafka and Cassandra."""
ALONE: Final = "examples/small.yaml"
"""It has no Spark cluster, so its driver's pod is larger, and the only one."""
NOT_RUN: Final = {
    *(f"examples/{name}.yaml" for name in ("minimal", "schema-registry", "files", "http")),
    "examples/orders-postgresql/pipeline.yaml",
    ALONE,
}
"""They show what has a default, and what a registry or a receiver of rows needs."""


def examples() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each pipeline of the examples that is run."""
    for file in sorted((ROOT / "examples").rglob("*.yaml")):
        found = [one for one in yaml.safe_load_all(file.read_text()) if one and one.get("kind") == KIND]
        name = file.relative_to(ROOT).as_posix()
        yield from ((name, one) for one in found if name not in NOT_RUN)


def made() -> Iterator[tuple[str, dict[str, Any]]]:
    """Pipelines as tests, the campaign and the benchmarks make them of an example."""
    places = {"kafka_cluster": "kafka.test:9092", "cassandra_cluster": "cassandra.test", "cassandra_cluster_port": 9042}
    environment = Mock(Environment, **places, job_image="registry.test/job:1")
    place = Place(environment=environment, namespace="flights", tables="tables", fences="fences")
    yield "tests", manifest(place, name="small", topic="flights", table="departures")
    changes = benched("departures:transform", maxRecordsPerBatch=1000)
    yield "benchmarks", manifest(place, name="small", topic="flights", table="departures", **changes)
    yield "campaign", Campaign(place, Mock(), Mock(), "flights").spec()


RUN: Final = dict([*examples(), *made()])


def requested(body: dict[str, Any]) -> dict[str, str]:
    """Return the memory that each pod requests, by its component: of the rendered chart and of the driver's Job."""
    pipeline = pipeline_of(body)
    spec = pipeline.spec
    assert isinstance(spec, Spec)
    cluster = cluster_of(pipeline)
    config = driver_config(
        key=pipeline.key, spec=spec, references={}, config=ReconcileConfig(cluster_uid="c"), epoch=1, generation=1
    )
    job = run_job(pipeline=pipeline, spec=spec, config=config, generation=1, spec_hash="h")
    owners = {
        "driver": job,
        "master": one(cluster, "StatefulSet", "-master"),
        "worker": one(cluster, "StatefulSet", "-worker"),
    }
    found = {}
    for component, owner in owners.items():
        (container,) = owner["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]
        found[component] = container["resources"]["requests"]["memory"]
    return found


def test_a_pipeline_without_workers_is_one_small_pod() -> None:
    pipeline = pipeline_of(yaml.safe_load((ROOT / ALONE).read_text()))
    assert isinstance(pipeline.spec, Spec)
    assert not pipeline.spec.cluster.exists
    assert driver_resources(pipeline.spec)["limits"] == {"memory": "1152Mi"}


@pytest.mark.parametrize("name", RUN)
def test_its_memory_is_written_and_small(name: str) -> None:
    spec = RUN[name]["spec"]
    assert "memory" in spec["job"]
    assert "memory" in spec["cluster"]["worker"]
    assert requested(RUN[name]) == SMALL
