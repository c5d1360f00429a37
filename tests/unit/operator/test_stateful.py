"""The operator's half of stateful pipelines: what is refused, what runs and workers are given, what restarts them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from fakes.manifests import body, spec_of
from fencepost.contract import (
    DATA_SERVICE_FILE,
    DATA_SERVICE_PORT,
    NAME_SERVICE_PORT,
    DataServiceConfig,
    DriverConfig,
    StateConfig,
    Variable,
)
from fencepost.spark import session
from fencepost_operator.api import ObjectKey, Pipeline, Reason, ReconcileConfig, Spec, parse, read_pipeline
from fencepost_operator.decision.rewind.machine import STATEFUL
from fencepost_operator.desired.cluster_values import cluster_values
from fencepost_operator.desired.driver_config import driver_config
from fencepost_operator.desired.hashes import Fingerprints, fingerprints
from fencepost_operator.desired.run_job import run_job
from fencepost_operator.observation import Known, RewindFacts
from unit.operator.scenes import CLUSTER, FAILED, FENCED, NOW, RECORDED, ROW, WELL, Scene, started
from unit.operator.test_rewind_steps import BEFORE, GO, seen

JOB: Final = {"image": "registry.example/job:1", "entrypoint": "orders.job:stream", "mode": "Stateful"}
CASSANDRA: Final = {
    "contactPoints": ["cassandra"],
    "credentialsFrom": {"secretName": "account"},
    "tls": {"secretName": "certificates"},
}
GIB: Final = 1024**3


def stateful(**changes: Any) -> Spec:
    return spec_of(**{"job": JOB, "checkpoint": {"cassandra": CASSANDRA}, **changes})


def pipeline_of(spec: Spec) -> Pipeline:
    return replace(read_pipeline(body()), spec=spec)


def config_of(spec: Spec, **more: Any) -> DriverConfig:
    settings = ReconcileConfig(cluster_uid="c")
    key = ObjectKey("shop", "orders")
    return driver_config(key=key, spec=spec, references={}, config=settings, epoch=5, generation=2, **more)


def pod_of(spec: Spec) -> dict[str, Any]:
    job = run_job(pipeline=pipeline_of(spec), spec=spec, config=config_of(spec), generation=2, spec_hash="h")
    pod: dict[str, Any] = job["spec"]["template"]["spec"]
    return pod


def values_of(spec: Spec) -> dict[str, Any]:
    return cluster_values(
        pipeline=pipeline_of(spec),
        spec=spec,
        references={},
        generation=2,
        scope="here",
        cluster_domain="cluster.local",
        config_hash="h",
    )


@pytest.mark.parametrize(
    ("changes", "field", "remedy"),
    [
        ({"state": {}}, "spec.state", "create a pipeline with spec.job.mode Stateful"),
        ({"job": JOB, "onPoison": {"action": "deadLetter"}}, "spec.onPoison.action", "set it to stop"),
        ({"job": JOB, "upgrade": {"rollback": "enabled"}}, "spec.upgrade.rollback", "set it to disabled"),
        (
            {"job": JOB, "cluster": {"sparkConf": {"spark.sql.streaming.stateStore.providerClass": "x"}}},
            "spec.cluster.sparkConf.spark.sql.streaming.stateStore.providerClass",
            "remove it",
        ),
        (
            {"job": JOB, "cluster": {"sparkConf": {"spark.sql.shuffle.partitions": "8"}}},
            "spec.cluster.sparkConf.spark.sql.shuffle.partitions",
            "spec.state.partitions is the number",
        ),
        (
            {"job": JOB, "state": {"partitions": 0}},
            "spec.state.partitions",
            "kubectl explain spl.spec.state.partitions",
        ),
        ({"job": JOB, "state": {"maxBytes": "1Mi"}}, "spec.state.maxBytes", "64Mi to 1Ti"),
        ({"job": {**JOB, "mode": "stateful"}}, "spec.job.mode", "kubectl explain spl.spec.job.mode"),
    ],
)
def test_what_does_not_hold_together_is_refused_by_the_fields_name(
    changes: dict[str, Any], field: str, remedy: str
) -> None:
    found = parse(body(**changes))
    assert isinstance(found, tuple)
    assert [violation.field for violation in found] == [field]
    assert remedy in str(found[0])


def test_a_run_is_given_the_settings_of_its_state() -> None:
    config = config_of(
        stateful(state={"partitions": 8, "maxBytes": "5Gi", "snapshotEvery": "2m", "outputMode": "append"})
    )
    assert config.state == StateConfig(
        partitions=8, max_bytes=5 * GIB, data_port=DATA_SERVICE_PORT, output_mode="append"
    )
    assert config.spark_conf["spark.sql.streaming.stateStore.maintenanceInterval"] == "120s"
    assert config_of(stateful()).state == StateConfig(partitions=4, max_bytes=20 * GIB, data_port=DATA_SERVICE_PORT)


def test_the_driver_takes_what_the_operator_sets_for_the_state() -> None:
    conf = session.settings(config_of(stateful()), {Variable.SPARK_AUTH_SECRET: "hush", Variable.POD_IP: "10.0.0.7"})
    store = "spark.sql.streaming.stateStore"
    assert (conf["spark.sql.shuffle.partitions"], conf[f"{store}.maintenanceInterval"]) == ("4", "60s")
    assert (conf[f"{store}.rocksdb.boundedMemoryUsage"], conf[f"{store}.rocksdb.maxMemoryUsageMB"]) == ("true", "256")


@pytest.mark.parametrize(("memory", "heap", "of_state"), [("1Gi", 480, 32), ("2Gi", 972, 256), ("8Gi", 3891, 1024)])
def test_a_worker_shares_its_memory_with_the_state(memory: str, heap: int, of_state: int) -> None:
    spec = stateful(cluster={"worker": {"memory": memory}})
    conf = config_of(spec).spark_conf
    assert conf["spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB"] == str(of_state)
    assert conf["spark.executor.memory"] == values_of(spec)["worker"]["memory"] == f"{heap}m"


def test_the_driver_serves_names_and_data_and_has_room_for_the_state() -> None:
    pod = pod_of(stateful(state={"maxBytes": "5Gi"}))
    ports = {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}
    assert (ports["names"], ports["data"]) == (NAME_SERVICE_PORT, DATA_SERVICE_PORT)
    assert len(set(ports.values())) == len(ports)
    assert {"name": "tmp", "emptyDir": {"sizeLimit": "6Gi"}} in pod["volumes"]


def test_the_data_service_of_a_worker_is_configured_without_a_secret() -> None:
    values = values_of(stateful(state={"maxBytes": "5Gi"}))
    config = DataServiceConfig.from_json(values["files"][DATA_SERVICE_FILE])
    assert (config.pipeline, config.port, config.cache_bytes) == ("here/shop/orders", DATA_SERVICE_PORT, 5 * GIB)
    assert config.cassandra == stateful().checkpoint.cassandra.endpoint
    assert not {"account", "certificates"} & set(values["files"][DATA_SERVICE_FILE].split('"'))
    assert values["dataService"] == {
        "port": DATA_SERVICE_PORT, "credentialsSecret": "account", "tlsSecret": "certificates",
    }  # fmt: skip
    assert values["worker"]["scratchSize"] == "17Gi"


def test_nothing_of_a_stateless_pipeline_changes() -> None:
    """The golden files of `test_builders` and of the chart have the rest."""
    written, absent = spec_of(job={**JOB, "mode": "Stateless"}), spec_of(job={**JOB, "mode": None})
    assert fingerprints(written, {}) == fingerprints(absent, {})
    assert "state" not in config_of(absent).to_json()
    assert not values_of(absent).keys() & {"dataService"}
    assert DATA_SERVICE_FILE not in values_of(absent)["files"]


def prints(references: dict[str, str | None] | None = None, **changes: Any) -> Fingerprints:
    return fingerprints(stateful(**changes), references or {})


def test_what_begins_another_cluster_of_a_stateful_pipeline() -> None:
    """Data services beside the workers read and write Cassandra: they end with their cluster."""
    before = prints()
    for changed in (
        prints(state={"maxBytes": "5Gi"}),
        prints(checkpoint={"cassandra": {**CASSANDRA, "port": 9142}}),
        prints({"Secret/account": "another password"}),
        prints({"Secret/certificates": "others"}),
    ):
        assert (changed.cluster != before.cluster, changed.run != before.run) == (True, True)
    for setting in ({"snapshotEvery": "2m"}, {"outputMode": "append"}):
        assert prints(state=setting).run != prints(state={}).run
        assert prints(state=setting).cluster == prints(state={}).cluster


def of_state(scene: Scene) -> Scene:
    """Return the scene of a stateful pipeline, on the cluster that its spec asks for."""
    assert isinstance(scene.observation.fence, Known)
    assert scene.observation.fence.value
    row, asked = scene.observation.fence.value, scene.asked(job=JOB)
    assert isinstance(asked.pipeline.spec, Spec)
    wanted = fingerprints(asked.pipeline.spec, {}).cluster
    return asked.said(cluster=replace(RECORDED, config_hash=wanted)).seen(
        fence=replace(row, checkpoint=b"state"), cluster=replace(CLUSTER, config_hash=wanted)
    )


def test_a_planned_batch_is_repeated_as_a_whole() -> None:
    """What tasks have stored of its state is of all its records."""
    scene = FENCED.seen(fence=replace(ROW, epoch=3, driver=None, version=10, planned={"orders/0": 90}))
    too_large = replace(FAILED, count=1, reason=Reason.OUT_OF_MEMORY, batch_records=40, next_attempt_at=NOW)
    suspect = replace(FAILED, count=3, repeats=3, reason=Reason.BATCH_FAILED, next_attempt_at=NOW)
    for failure, of_a_stateless_run in ((too_large, (20, False)), (suspect, (None, True))):
        for mode, expected in ((scene.asked(), of_a_stateless_run), (of_state(scene), (None, False))):
            spec = mode.pipeline.spec
            assert isinstance(spec, Spec)
            config = started(mode.said(failure=replace(failure, spec_hash=fingerprints(spec, {}).run)))
            assert (config.first_batch_limit, config.isolate) == expected


def test_a_row_with_the_commits_of_another_mode_is_not_run() -> None:
    """A pipeline was deleted with its row retained, and is created again with another mode."""
    for scene, mode in ((WELL.asked(job=JOB), "Stateless"), (of_state(WELL).asked(), "Stateful")):
        decision = scene.decide()
        assert (decision.reason, decision.action) == (Reason.INVALID_SPEC, None)
        assert f"the commits of a {mode} pipeline. Set it to {mode}" in decision.status.message
    assert of_state(WELL).decide().reason != Reason.INVALID_SPEC
    new = WELL.seen(fence=replace(ROW, committed_at=None)).asked(job=JOB)
    assert new.decide().reason != Reason.INVALID_SPEC


def test_a_rewind_of_a_stateful_pipeline_is_refused() -> None:
    (update,) = seen(of_state(BEFORE), (GO,), RewindFacts()).decide().rewinds
    assert (update.status.phase, update.status.message) == ("Failed", STATEFUL)
