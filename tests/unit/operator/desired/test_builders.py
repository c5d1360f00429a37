"""Desired state as golden files, and against what will read it: the chart's schema, the driver's contract."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from fakes import manifests
from fakes.manifests import body, spec_of
from fencepost.contract import (
    CASSANDRA_TLS_DIR,
    POSTGRESQL_TLS_DIR,
    SINK_OPTIONS_DIR,
    WARM_FILE,
    CassandraSink,
    CassandraTls,
    DriverConfig,
    FilesSink,
    FunctionSink,
    KafkaSource,
    PluginSink,
    PostgresqlEndpoint,
    PostgresqlTls,
    StartingOffsets,
    Variable,
)
from fencepost_operator.api import Pipeline, ReconcileConfig, Spec, read_pipeline, read_rewind
from fencepost_operator.api.codec import decode
from fencepost_operator.api.spec.pods import ResourceRequirements
from fencepost_operator.desired import labels, names
from fencepost_operator.desired.identity.hashes import fingerprints, optional_references, referenced
from fencepost_operator.desired.jobs.driver_config import driver_config
from fencepost_operator.desired.jobs.purge_job import purge_job
from fencepost_operator.desired.jobs.run_config import KEY, run_config
from fencepost_operator.desired.jobs.run_job import run_job
from fencepost_operator.desired.resources import driver_memory, executor_heap, resources

ROOT = Path(__file__).parents[4]
GOLDEN = Path(__file__).with_name("golden")
GIB = 1024**3

FULL: dict[str, Any] = {
    "job": {
        "image": "registry.example/job:2",
        "imagePullPolicy": "IfNotPresent",
        "imagePullSecrets": [{"name": "registry"}],
        "entrypoint": "orders.job:transform",
        "codeFrom": {"configMapName": "code"},
        "args": ["--currency", "EUR"],
        "env": [
            {"name": "TZ", "value": "UTC"},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        "envFrom": [{"configMapRef": {"name": "settings", "optional": True}}],
        "memory": "1Gi",
        "resources": {"requests": {"cpu": "500m"}},
        "terminationGracePeriodSeconds": 30,
    },
    "cluster": {
        "workers": 3,
        "worker": {"cores": 2, "memory": "4Gi"},
        "master": {"resources": {"limits": {"memory": "1Gi"}}, "storage": {"size": "1Gi", "storageClassName": "fast"}},
        "sparkConf": {"spark.sql.shuffle.partitions": "8"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "spark", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "serviceAccountName": "streaming",
        "podAnnotations": {"sidecar.istio.io/inject": "false"},
    },
    "source": {
        "kafka": {
            "bootstrapServers": "kafka:9093",
            "topics": ["orders"],
            "startingOffsets": {"partitions": {"orders/0": 7}},
            "maxRecordsPerBatch": 500,
            "targetBatchDuration": "5s",
            "maxBytesPerBatch": "64Mi",
            "splitPartitions": False,
            "mirrorToGroup": "orders-fence",
            "properties": {"security.protocol": "SASL_SSL"},
            "propertiesFrom": {"secretName": "kafka"},
            "schemaRegistry": {"url": "https://registry:8081", "credentialsFrom": {"secretName": "registry"}},
            "value": {"format": "avro", "subject": "orders-value", "version": 3},
        }
    },
    "checkpoint": {
        "cassandra": {"contactPoints": ["a", "b"], "port": 9142, "credentialsFrom": {"secretName": "account"}}
    },
    "batchInterval": "1m30s",
    "observability": {
        "openTelemetry": {"endpoint": "https://collector:4318", "credentialsFrom": {"secretName": "collector"}},
        "openLineage": {"url": "http://marquez:5000", "credentialsFrom": {"secretName": "marquez"}},
    },
}
STATEFUL: dict[str, Any] = {
    "job": {"image": "registry.example/job:1", "entrypoint": "orders.job:stream", "mode": "Stateful"},
    "checkpoint": {
        "cassandra": {
            "contactPoints": ["a"],
            "credentialsFrom": {"secretName": "account"},
            "tls": {"secretName": "certificates"},
        }
    },
}
CASES = {"small": {}, "full": FULL, "stateful": STATEFUL}
ALONE: dict[str, Any] = {"cluster": {"workers": 0, "worker": {"cores": 2}}}
"""Without workers: there is no Spark cluster."""
HASHES: dict[str, str | None] = {"ConfigMap/code": "abc"}


def pipeline_and_spec(case: str) -> tuple[Pipeline, Spec]:
    pipeline = read_pipeline(body(**CASES[case]))
    assert isinstance(pipeline.spec, Spec), pipeline.spec
    return pipeline, pipeline.spec


def values_of(case: str) -> dict[str, Any]:
    pipeline, spec = pipeline_and_spec(case)
    return manifests.values_of(pipeline, spec, generation=2, references=HASHES)


def config_of(pipeline: Pipeline, spec: Spec, **more: Any) -> DriverConfig:
    settings = ReconcileConfig(cluster_uid="c")
    return driver_config(key=pipeline.key, spec=spec, references=HASHES, config=settings, epoch=5, generation=2, **more)


def job_of(case: str) -> dict[str, Any]:
    pipeline, spec = pipeline_and_spec(case)
    config = config_of(pipeline, spec)
    return run_job(pipeline=pipeline, spec=spec, config=config, generation=2, spec_hash="spec-hash")


def config_and_pod_of(**spec: Any) -> tuple[DriverConfig, dict[str, Any]]:
    """Return a small pipeline's configuration of its driver, and the spec of the driver's pod."""
    pipeline = read_pipeline(body(**spec))
    assert isinstance(pipeline.spec, Spec)
    config = config_of(pipeline, pipeline.spec)
    job = run_job(pipeline=pipeline, spec=pipeline.spec, config=config, generation=2, spec_hash="h")
    return config, job["spec"]["template"]["spec"]


def config_map_of(case: str) -> dict[str, Any]:
    pipeline, spec = pipeline_and_spec(case)
    return run_config(pipeline=pipeline, config=config_of(pipeline, spec))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["values", "job"])
def test_golden(case: str, kind: str, request: pytest.FixtureRequest) -> None:
    built = values_of(case) if kind == "values" else job_of(case)
    text = yaml.safe_dump(json.loads(json.dumps(built)), sort_keys=False, width=120)
    path = GOLDEN / f"{case}-{kind}.yaml"
    if not path.exists():
        path.write_text(text)
        pytest.fail(f"{path.name} was written; look at it and run {request.node.nodeid} again")
    assert text == path.read_text()


def test_a_driver_without_workers_runs_the_tasks_in_its_own_pod() -> None:
    config, pod = config_and_pod_of(**ALONE)
    assert (config.spark_master, config.executors) == ("local[2,2]", 1)
    assert not [key for key in config.spark_conf if key.startswith("spark.executor")]
    assert config.spark_conf["spark.driver.defaultJavaOptions"] == "-XX:TieredStopAtLevel=1"
    (container,) = pod["containers"]
    assert [port["name"] for port in container["ports"]] == ["metrics"]
    names = {variable["name"] for variable in container["env"]}
    assert Variable.SPARK_AUTH_SECRET not in names, "the chart of the cluster would create it"
    assert Variable.POD_IP in names, "the address of its metrics"
    # 1 GiB of heap, its quarter is less than 384 MiB, and 256 MiB for each of two Python workers.
    assert container["resources"] == {"requests": {"cpu": "400m", "memory": "1920Mi"}, "limits": {"memory": "1920Mi"}}


def test_a_stateful_driver_without_workers_has_the_state_in_its_own_pod() -> None:
    config, pod = config_and_pod_of(**STATEFUL, cluster={"workers": 0}, state={"maxBytes": "1Gi"})
    assert config.spark_conf["spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB"] == "128"
    (scratch,) = (volume for volume in pod["volumes"] if volume["name"] == "tmp")
    assert scratch["emptyDir"] == {"sizeLimit": "4Gi"}, "1 GiB, and three times the state"
    (container,) = pod["containers"]
    assert [port["name"] for port in container["ports"]] == ["metrics"], "the state is served on the loopback device"
    assert container["resources"]["limits"] == {"memory": f"{1024 + 384 + 256 + 128}Mi"}


@pytest.mark.parametrize(("given", "attempts"), [("5", "5"), ("1] or elsewhere", "2")])
def test_the_attempts_of_a_task_hold_without_workers_too(given: str, attempts: str) -> None:
    config, _ = config_and_pod_of(cluster={"workers": 0, "sparkConf": {"spark.task.maxFailures": given}})
    assert config.spark_master == f"local[1,{attempts}]"


@pytest.mark.parametrize("case", CASES)
def test_the_chart_accepts_the_values(case: str) -> None:
    schema = json.loads((ROOT / "charts/spark-cluster/values.schema.json").read_text())
    defaults = yaml.safe_load((ROOT / "charts/spark-cluster/values.yaml").read_text())
    built = values_of(case)
    jsonschema.validate(built, schema)
    assert set(built) <= set(defaults), "a value that the chart does not know"


def test_the_driver_reads_back_its_configuration() -> None:
    config = DriverConfig.from_json(config_map_of("full")["data"][KEY])
    assert (config.epoch, config.batch_interval, config.executors) == (5, 90.0, 3)
    assert config.source.starting_offsets == StartingOffsets(partitions={"orders/0": 7})
    assert config.spark_master == "spark://orders-g2-master-0.orders-g2-master.shop.svc.cluster.local:7077"


def test_the_driver_reads_its_configuration_from_the_file_that_the_job_mounts() -> None:
    pod, config_map = job_of("full")["spec"]["template"]["spec"], config_map_of("full")
    volume = next(volume for volume in pod["volumes"] if volume["name"] == "config")
    mount = next(mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "config")
    path = next(found["value"] for found in pod["containers"][0]["env"] if found["name"] == Variable.CONFIG_FILE)
    assert volume["configMap"]["name"] == config_map["metadata"]["name"] == "orders-run-5"
    (key,) = config_map["data"]
    assert path == f"{mount['mountPath']}/{key}"
    assert DriverConfig.from_json(config_map["data"][key]) == config_of(*pipeline_and_spec("full"))
    assert config_map["immutable"]
    assert config_map["metadata"]["ownerReferences"] == job_of("full")["metadata"]["ownerReferences"]


def test_no_variable_is_longer_than_a_process_can_be_given() -> None:
    pipeline = read_pipeline(body(job={"image": "i", "entrypoint": "a:b", "args": ["x" * 4000] * 75}))
    assert isinstance(pipeline.spec, Spec)
    config = config_of(pipeline, pipeline.spec)
    job = run_job(pipeline=pipeline, spec=pipeline.spec, config=config, generation=1, spec_hash="h")
    environment = job["spec"]["template"]["spec"]["containers"][0]["env"]
    assert max(len(variable.get("value", "")) for variable in environment) < 128 * 1024
    text = run_config(pipeline=pipeline, config=config)["data"]["config.json"]
    assert DriverConfig.from_json(text).args == ("x" * 4000,) * 75


def test_a_configuration_that_no_config_map_holds_is_a_violation_that_names_the_field() -> None:
    job = {"image": "i", "entrypoint": "a:b", "args": ["\u00e9" * 4000] * 100}
    pipeline = read_pipeline(body(job=job))
    assert isinstance(pipeline.spec, tuple)
    assert [violation.field for violation in pipeline.spec] == ["spec.job.args"]


def test_our_variables_come_after_the_authors() -> None:
    container = job_of("full")["spec"]["template"]["spec"]["containers"][0]
    found = [variable["name"] for variable in container["env"]]
    assert found[:2] == ["TZ", "KEY"]
    assert set(found[2:]) >= {Variable.CONFIG_FILE, Variable.POD_UID, Variable.POD_IP, Variable.SPARK_AUTH_SECRET}


def test_kubernetes_starts_a_driver_once() -> None:
    job = job_of("small")["spec"]
    assert (job["backoffLimit"], job["podReplacementPolicy"]) == (0, "Failed")
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def test_a_run_that_awaits_its_epoch_shows_when_it_is_warm_and_is_not_killed_for_being_slow() -> None:
    pipeline, spec = pipeline_and_spec("small")
    config = replace(config_of(pipeline, spec), awaits_epoch=True)
    job = run_job(pipeline=pipeline, spec=spec, config=config, generation=2, spec_hash="h")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    probe = container["startupProbe"]
    assert probe["exec"]["command"] == ["cat", WARM_FILE]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 24 * 3600
    (usual,) = job_of("small")["spec"]["template"]["spec"]["containers"]
    assert {name: part for name, part in container.items() if name != "startupProbe"} == usual


def test_a_run_hands_over_where_it_is_asked_to_stop_and_not_where_it_ends_unasked() -> None:
    pipeline = read_pipeline(body(upgrade={"strategy": "Handoff"}))
    assert isinstance(pipeline.spec, Spec)
    assert config_of(pipeline, pipeline.spec).hands_over
    assert not config_of(pipeline, pipeline.spec, finish_until={"t/0": 3}).hands_over


def test_node_loss_is_given_up_soon_unless_the_user_says_otherwise() -> None:
    given = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 60}]
    _, pod = config_and_pod_of(cluster={"tolerations": given})
    found = {t["key"]: t["tolerationSeconds"] for t in pod["tolerations"]}
    assert found == {"node.kubernetes.io/unreachable": 60, "node.kubernetes.io/not-ready": 10}
    found = {t["key"]: t["tolerationSeconds"] for t in job_of("small")["spec"]["template"]["spec"]["tolerations"]}
    assert found["node.kubernetes.io/unreachable"] == 0, "Kubernetes has waited 40 s already"


def prints(references: dict[str, str | None] | None = None, **changes: Any) -> tuple[str, str]:
    pipeline = read_pipeline(body(**changes))
    assert isinstance(pipeline.spec, Spec)
    found = fingerprints(pipeline.spec, references or {})
    return found.cluster, found.run


@pytest.mark.parametrize(
    ("changes", "cluster", "run"),
    [
        ({"cluster": {"workers": 5}}, False, False),
        ({"suspend": True}, False, False),
        ({"restart": {"maxAttempts": 3}}, False, False),
        ({"deletionPolicy": "Delete"}, False, False),
        ({"batchInterval": "1s"}, False, True),
        ({"sinks": [{"name": "o", "cassandra": {"keyspace": "k", "table": "t"}}]}, False, True),
        ({"job": {"image": "registry.example/job:1", "entrypoint": "orders.job:other"}}, False, True),
        ({"job": {"image": "another", "entrypoint": "orders.job:transform"}}, True, True),
        ({"cluster": {"sparkConf": {"spark.a": "1"}}}, True, True),
        ({"cluster": {"worker": {"memory": "4Gi"}}}, True, True),
        ({"cluster": {"workers": 0}}, True, True),
    ],
)
def test_what_replaces_a_run_and_what_a_cluster(changes: dict[str, Any], cluster: bool, run: bool) -> None:
    before, after = prints(), prints(**changes)
    assert (before[0] != after[0], before[1] != after[1]) == (cluster, run)


def test_what_only_a_cluster_has_replaces_no_run_without_workers() -> None:
    alone = prints(cluster={"workers": 0})
    of_pods = {"image": "another", "worker": {"memory": "4Gi"}, "master": {"storage": {"size": "1Gi"}}}
    assert alone == prints(cluster={"workers": 0, **of_pods}), "neither the workers nor the master exist"
    assert alone[1] != prints(cluster={"workers": 0, "worker": {"cores": 2}})[1]
    assert alone[0] == "", "no cluster matches"
    spec = spec_of(cluster={"workers": 0})
    assert fingerprints(spec, {}, "one") == fingerprints(spec, {}, "another"), "no chart is installed"


def test_an_operator_with_new_fields_keeps_the_runs_that_do_not_use_them() -> None:
    code: dict[str, str | None] = {"ConfigMap/code": "abc"}
    kafka = body()["spec"]["source"]["kafka"]
    assert prints(code, source={"kafka": {**kafka, "targetBatchDuration": "10s", "splitPartitions": True}}) == prints(
        code
    )
    assert prints(code, source={"kafka": {**kafka, "targetBatchDuration": "5s"}}) == prints(code), "a bound of batches"
    for used in ({"splitPartitions": False}, {"mirrorToGroup": "g"}):
        assert prints(code, source={"kafka": {**kafka, **used}})[1] != prints(code)[1]


def test_the_bytes_of_a_batch_follow_from_the_heaps_unless_the_spec_says() -> None:
    kafka = body()["spec"]["source"]["kafka"]

    def source_of(**changes: Any) -> KafkaSource:
        pipeline = read_pipeline(body(**changes))
        assert isinstance(pipeline.spec, Spec)
        return config_of(pipeline, pipeline.spec).source

    small = source_of()
    heap = 2 * GIB - int(0.4 * 2 * GIB)
    assert (small.max_bytes_per_batch, small.target_batch_duration) == (heap // 4, 10.0)
    assert (small.min_records_per_batch, small.max_records_per_batch) == (1_000, 100_000)
    assert source_of(cluster={"workers": 4}).max_bytes_per_batch == 4 * heap // 4
    assert source_of(cluster={"workers": 0}).max_bytes_per_batch == GIB // 8, "a quarter of half of the driver's heap"
    by_load = source_of(cluster={"autoscale": {"minWorkers": 2, "maxWorkers": 8}})
    assert by_load.max_bytes_per_batch == 2 * heap // 4, "it has to fit however few workers are left"
    said = source_of(source={"kafka": {**kafka, "maxBytesPerBatch": "3Mi", "maxRecordsPerBatch": 500}})
    assert (said.max_bytes_per_batch, said.min_records_per_batch) == (3 * 1024**2, 500)


def test_the_content_of_what_is_referenced_counts() -> None:
    job = {"image": "i", "entrypoint": "a:b", "codeFrom": {"configMapName": "code"}}
    account = {"cassandra": {"contactPoints": ["c"], "credentialsFrom": {"secretName": "account"}}}
    code = [prints({"ConfigMap/code": digest}, job=job) for digest in ("1", "2")]
    assert code[0][0] != code[1][0]
    secrets = [prints({"Secret/account": digest}, checkpoint=account) for digest in ("1", "2")]
    assert secrets[0][0] == secrets[1][0], "executors do not see the account by reference"
    assert secrets[0][1] != secrets[1][1]


def test_references() -> None:
    _, spec = pipeline_and_spec("full")
    config_maps = ("ConfigMap/code", "ConfigMap/settings")
    assert referenced(spec) == (
        *config_maps, "Secret/account", "Secret/collector", "Secret/kafka", "Secret/marquez",
        "Secret/registry", "Secret/s",
    )  # fmt: skip
    assert optional_references(spec) == {"ConfigMap/settings"}


SINKS: list[dict[str, Any]] = [
    {"name": "orders", "cassandra": {"keyspace": "shop", "table": "orders"}},
    {"name": "search_index", "function": {"entrypoint": "a:b", "optionsFrom": {"secretName": "search"}}},
    {"name": "lake", "files": {"path": "s3://lake/orders", "credentialsFrom": {"secretName": "lake"}}},
    {"name": "copy", "plugin": {"kind": "postgresql", "options": {"table": "t"}}},
]


def test_the_options_of_a_sinks_secret_are_in_the_driver_alone() -> None:
    pipeline = read_pipeline(body(sinks=SINKS))
    assert isinstance(pipeline.spec, Spec)
    assert "Secret/search" in referenced(pipeline.spec)
    config = config_of(pipeline, pipeline.spec)
    assert config.sinks == (
        CassandraSink(name="orders", keyspace="shop", table="orders"),
        FunctionSink(name="search_index", entrypoint="a:b"),
        FilesSink(name="lake", path="s3://lake/orders"),
        PluginSink(name="copy", plugin="postgresql", options={"table": "t"}),
    )
    job = run_job(pipeline=pipeline, spec=pipeline.spec, config=config, generation=2, spec_hash="h")
    pod = job["spec"]["template"]["spec"]
    assert {"name": "sink-1", "secret": {"secretName": "search"}} in pod["volumes"]
    mounts = pod["containers"][0]["volumeMounts"]
    assert {"name": "sink-1", "mountPath": f"{SINK_OPTIONS_DIR}/search_index", "readOnly": True} in mounts
    values = manifests.values_of(pipeline, pipeline.spec, generation=2, references=HASHES)
    assert "search" not in json.dumps(values)


def test_memory() -> None:
    assert executor_heap(GIB) == GIB // 2
    assert executor_heap(10 * GIB) == 6 * GIB
    assert driver_memory(GIB // 2) == GIB // 2 + 384 * 1024**2
    assert driver_memory(4 * GIB) == 5 * GIB


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"requests": {"cpu": "1", "memory": "1024Mi"}, "limits": {"memory": "1024Mi"}}),
        ({"limits": {"memory": "2Gi"}}, {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "2Gi"}}),
        (
            {"requests": {"memory": "1Gi"}, "limits": {"memory": "3Gi", "cpu": "2"}},
            {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "3Gi", "cpu": "2"}},
        ),
    ],
)
def test_resources_are_completed(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert resources(decode(ResourceRequirements, given), cpu="1", memory=GIB) == expected


def test_names_fit_a_label() -> None:
    longest = "p" * 38
    for name in (names.job_name(longest, 10**9), names.auth_secret_name(longest, 10**6)):
        assert len(name) <= 63
    assert labels.worker_selector("p", 3) == (
        "streaming.fencepost.dev/pipeline=p,streaming.fencepost.dev/generation=3,streaming.fencepost.dev/component=worker"
    )


def test_the_driver_alone_mounts_the_certificates_of_cassandra() -> None:
    checkpoint = {
        "cassandra": {"contactPoints": ["c"], "tls": {"secretName": "certificates", "serverName": "c.example"}}
    }
    config, pod = config_and_pod_of(checkpoint=checkpoint)
    assert {"name": "cassandra-tls", "secret": {"secretName": "certificates"}} in pod["volumes"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["cassandra-tls"] == CASSANDRA_TLS_DIR
    assert DriverConfig.from_json(config.to_json()).cluster.tls == CassandraTls(server_name="c.example")
    assert "certificates" not in config.to_json()


def test_the_driver_has_the_account_and_the_certificates_of_postgresql() -> None:
    database = {"hosts": ["db"], "credentialsFrom": {"secretName": "account"}, "tls": {"secretName": "certificates"}}
    config, pod = config_and_pod_of(
        checkpoint={"postgresql": {**database, "schema": "fences"}}, sinks=[{"name": "s", "plugin": {"kind": "p"}}]
    )
    assert {"name": "postgresql-tls", "secret": {"secretName": "certificates"}} in pod["volumes"]
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["postgresql-tls"] == POSTGRESQL_TLS_DIR
    keys = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"] if "POSTGRESQL" in one["name"]}
    assert keys == {
        Variable.POSTGRESQL_USERNAME: {"name": "account", "key": "username"},
        Variable.POSTGRESQL_PASSWORD: {"name": "account", "key": "password"},
    }
    assert not any("CASSANDRA" in one["name"] for one in container["env"])
    read = DriverConfig.from_json(config.to_json())
    assert (read.cassandra, read.fence_keyspace) == (None, "fences")
    assert read.postgresql == PostgresqlEndpoint(hosts=("db",), tls=PostgresqlTls())
    assert "certificates" not in config.to_json()


def test_the_pods_of_a_rewind_have_the_account_and_the_annotations_of_the_driver() -> None:
    pipeline, spec = pipeline_and_spec("full")
    rewind = read_rewind(
        {
            "metadata": {
                "name": "back", "namespace": pipeline.key.namespace, "uid": "u", "resourceVersion": "1",
                "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"pipelineRef": {"name": pipeline.key.name}, "to": {"snapshot": "s"}},
        }
    )  # fmt: skip
    job = purge_job(pipeline=pipeline, spec=spec, config=config_of(pipeline, spec), rewind=rewind, name="n")
    template = job["spec"]["template"]
    assert template["spec"]["serviceAccountName"] == "streaming"
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
