"""The operator's builders and the spark-cluster chart: what one writes the other takes, and both use the same names."""

from typing import Any

import pytest
import yaml

from fakes.manifests import values_of
from fencepost.contract import (
    CASSANDRA_CREDENTIALS_DIR,
    CASSANDRA_TLS_DIR,
    DATA_SERVICE_FILE,
    DATA_SERVICE_PORT,
    METRICS_PORT,
    DataServiceConfig,
)
from fencepost.worker.data_service import SECRET
from fencepost_operator.api import Pipeline, Spec, read_pipeline
from fencepost_operator.api.codec import encode
from fencepost_operator.desired import labels, names
from unit.charts.rendering import REPOSITORY, Object, objects, one
from unit.crds.schema import defaulted, minimal

EVERYTHING: dict[str, Any] = yaml.safe_load(
    (REPOSITORY / "tests" / "e2e" / "mistakes" / "manifests" / "everything.yaml").read_text()
)
GENERATION = 7


def pipeline_of(body: dict[str, Any]) -> Pipeline:
    """The pipeline as the operator reads it from the API server."""
    stored = defaulted(body)
    stored["metadata"] |= {"namespace": "flights", "uid": "5d6a2fd6-9b23-438b-9361-8f3460c92464"}
    return read_pipeline(stored)


def cluster_of(pipeline: Pipeline) -> list[Object]:
    """What Helm makes of the operator's values."""
    assert isinstance(pipeline.spec, Spec)
    values = values_of(pipeline, pipeline.spec, generation=GENERATION, cluster_domain="k8s.example")
    return objects("spark-cluster", values=values)


@pytest.fixture(scope="module", params=[minimal(), EVERYTHING], ids=["minimal", "everything"])
def pipeline(request: pytest.FixtureRequest) -> Pipeline:
    return pipeline_of(request.param)


@pytest.fixture(scope="module")
def cluster(pipeline: Pipeline) -> list[Object]:
    return cluster_of(pipeline)


def test_what_the_author_asked_for_is_there(pipeline: Pipeline, cluster: list[Object]) -> None:
    spec = pipeline.spec
    assert isinstance(spec, Spec)
    worker = one(cluster, "StatefulSet", "-worker")["spec"]
    assert worker["replicas"] == spec.cluster.workers
    pod = worker["template"]["spec"]
    assert pod.get("nodeSelector", {}) == spec.cluster.node_selector
    assert pod.get("affinity", {}) == (encode(spec.cluster.affinity) or {})
    assert pod.get("priorityClassName") == spec.cluster.priority_class_name
    assert pod.get("serviceAccountName") == spec.cluster.service_account_name
    assert worker["template"]["metadata"]["annotations"].items() >= spec.cluster.pod_annotations.items()
    (container,) = pod["containers"]
    assert container["image"] == (spec.cluster.image or spec.job.image)
    variables = encode(spec.job.env)
    assert [item for item in container["env"] if item in variables] == variables
    assert container.get("envFrom", []) == encode(spec.job.env_from)


def test_the_operator_finds_what_the_chart_names(pipeline: Pipeline, cluster: list[Object]) -> None:
    name = pipeline.key.name
    assert one(cluster, "Secret", "")["metadata"]["name"] == names.auth_secret_name(name, GENERATION)
    assert set(one(cluster, "Secret", "")["data"]) == {"secret"}
    stem = names.cluster_name(name, GENERATION)
    assert all(item["metadata"]["name"].startswith(f"{stem}-") for item in cluster)
    (container,) = one(cluster, "StatefulSet", "-worker")["spec"]["template"]["spec"]["containers"]
    (master,) = [item["value"] for item in container["env"] if item["name"] == "SPARK_MASTER"]
    assert master == names.master_url(name, GENERATION, namespace="flights", cluster_domain="k8s.example")


def test_the_operators_selector_matches_only_the_workers(pipeline: Pipeline, cluster: list[Object]) -> None:
    wanted = dict(pair.split("=") for pair in labels.worker_selector(pipeline.key.name, GENERATION).split(","))
    for item in cluster:
        if item["kind"] == "StatefulSet":
            found = item["spec"]["template"]["metadata"]["labels"]
            assert (wanted.items() <= found.items()) == item["metadata"]["name"].endswith("-worker")


def test_statefulsets_carry_the_hash_that_the_operator_compares(cluster: list[Object]) -> None:
    hashes = {item["metadata"]["annotations"][labels.CONFIG_HASH] for item in cluster if item["kind"] == "StatefulSet"}
    assert len(hashes) == 1


def test_a_default_pod_asks_for_the_memory_that_the_spec_says() -> None:
    (container,) = one(cluster_of(pipeline_of(minimal())), "StatefulSet", "-worker")["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["resources"]["limits"]["memory"] in {"2Gi", "2048Mi"}


def test_metrics_are_scraped_where_they_are_served(cluster: list[Object]) -> None:
    (worker,) = one(cluster, "StatefulSet", "-worker")["spec"]["template"]["spec"]["containers"]
    assert {"name": "metrics", "containerPort": METRICS_PORT} in worker["ports"]


def test_a_worker_has_what_its_data_service_reads() -> None:
    """The address in a file beside Spark's settings, account and certificates as files, the secret as a variable."""
    cluster = cluster_of(pipeline_of(EVERYTHING))
    pod = one(cluster, "StatefulSet", "-worker")["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    assert {"name": "data", "containerPort": DATA_SERVICE_PORT} in worker["ports"]
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    mounted = {mount["mountPath"]: secrets.get(mount["name"]) for mount in worker["volumeMounts"]}
    assert (mounted[CASSANDRA_CREDENTIALS_DIR], mounted[CASSANDRA_TLS_DIR]) == ("cassandra", "cassandra-tls")
    config = DataServiceConfig.from_json(one(cluster, "ConfigMap", "-conf")["data"][DATA_SERVICE_FILE])
    assert (config.pipeline, config.port) == ("default/flights/everything", DATA_SERVICE_PORT)
    assert "/etc/fencepost/spark" in mounted
    variables = {item["name"]: item for item in worker["env"]}
    assert variables["SPARK_CONF_DIR"]["value"] == "/etc/fencepost/spark"
    assert "secretKeyRef" in variables[SECRET]["valueFrom"]
    said = str([worker["args"], [item.get("value") for item in worker["env"]]])
    assert "cassandra" not in said.replace("/etc/fencepost", "")


def test_the_pods_of_a_stateless_pipeline_have_no_data_service() -> None:
    cluster = cluster_of(pipeline_of(minimal()))
    pod = one(cluster, "StatefulSet", "-worker")["spec"]["template"]["spec"]
    assert all("secret" not in volume for volume in pod["volumes"])
    assert {port["name"] for port in pod["containers"][0]["ports"]} == {"rpc", "ui", "metrics"}
    assert DATA_SERVICE_FILE not in one(cluster, "ConfigMap", "-conf")["data"]
