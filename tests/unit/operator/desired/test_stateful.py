"""Stateful pipelines: what is refused, and what runs and workers are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from fakes import manifests
from fakes.manifests import body, spec_of
from fencepost.contract import (
    DATA_SERVICE_FILE,
    DATA_SERVICE_PORT,
    NAME_SERVICE_PORT,
    DataServiceConfig,
    DriverConfig,
    PinnedState,
    StateConfig,
    Variable,
)
from fencepost.spark import session
from fencepost_operator.api import (
    ObjectKey,
    Pipeline,
    ReconcileConfig,
    Spec,
    parse,
    read_pipeline,
)
from fencepost_operator.api.pins import pinned_by_pipelines, pinned_by_revision
from fencepost_operator.desired.identity.hashes import Fingerprints, fingerprints
from fencepost_operator.desired.jobs.driver_config import driver_config
from fencepost_operator.desired.jobs.run_job import run_job

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
    return manifests.values_of(pipeline_of(spec), spec, generation=2)


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
    assert (config.pipeline, config.port, config.cache_bytes) == ("default/shop/orders", DATA_SERVICE_PORT, 5 * GIB)
    assert config.cassandra == stateful().checkpoint.cluster.endpoint
    assert not {"account", "certificates"} & set(values["files"][DATA_SERVICE_FILE].split('"'))
    assert values["dataService"] == {
        "port": DATA_SERVICE_PORT, "credentialsSecret": "account", "tlsSecret": "certificates",
    }  # fmt: skip
    assert values["worker"]["scratchSize"] == "17Gi"


def test_nothing_of_a_stateless_pipeline_changes() -> None:
    """The golden files of `test_builders` and of the chart have the rest."""
    written, absent = spec_of(job={**JOB, "mode": "Stateless"}), spec_of(job={**JOB, "mode": None})
    assert fingerprints(written, {}) == fingerprints(absent, {})
    assert config_of(absent).state is None
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
        assert prints(state=setting).run != before.run
        assert prints(state=setting).cluster == before.cluster
    assert prints(state={}) == before


PIN: Final = {"name": "orders", "pipeline": "newest", "snapshot": "6b1cf520-cb3f-11f0-8000-0123456789ab"}


def test_a_pinned_state_is_one_of_the_own_namespace_and_a_change_starts_a_run() -> None:
    kafka = spec_of().source.kafka
    source = {"kafka": {"bootstrapServers": kafka.bootstrap_servers, "topics": list(kafka.topics)}}

    def pinning(*pins: dict[str, Any]) -> Any:
        return parse(body(source={**source, "pinnedStates": list(pins)}))

    spec = pinning(PIN, {**PIN, "name": "left", "operator": 1, "store": "left"})
    assert config_of(spec).pinned_states == (
        PinnedState(name="orders", pipeline="default/shop/newest", snapshot=PIN["snapshot"]),
        PinnedState(name="left", pipeline="default/shop/newest", snapshot=PIN["snapshot"], operator=1, store="left"),
    )
    other = pinning({**PIN, "snapshot": PIN["snapshot"].replace("b", "c")})
    before, after = (fingerprints(one, {}) for one in (pinning(PIN), other))
    assert (before.run != after.run, before.cluster == after.cluster) == (True, True)
    for wrong, where in [
        ({"pipeline": "other/newest"}, "spec.source.pinnedStates[0].pipeline"),
        ({"snapshot": "before-the-sale"}, "spec.source.pinnedStates[0].snapshot"),
        ({"name": "../x"}, "spec.source.pinnedStates[0].name"),
    ]:
        (violation,) = pinning({**PIN, **wrong})
        assert violation.field == where
    (violation,) = pinning(PIN, PIN)
    assert str(violation) == "spec.source.pinnedStates[1].name: 'orders' is there twice; give each entry its own name"


def test_pins_are_found_in_a_spec_that_is_otherwise_wrong() -> None:
    wrong = {"spec": {"job": 7, "source": {"pinnedStates": [PIN, 7, {**PIN, "pipeline": "another"}]}}}
    assert pinned_by_pipelines([wrong], "newest") == ({PIN["snapshot"]}, set())
    empty: list[dict[str, Any]] = [
        {},
        {"spec": [], "status": [], "metadata": 7, "data": {"spec": 7}},
        {"spec": {"source": {"pinnedStates": "newest"}}, "status": {"run": "7", "stable": {"revision": 7}}},
    ]
    assert pinned_by_pipelines(empty, "newest") == (set(), set())
    assert [one for nothing in empty for one in pinned_by_revision(nothing, "newest")] == []


def test_each_kept_spec_that_may_run_pins_too() -> None:
    named = ("run", "stable", "finishing", "rolledBack", "upgradeTrial")
    status = {name: {"revision": name, "snapshot": f"of {name}"} for name in named}
    body = {"metadata": {"name": "newest"}, "status": status}
    assert pinned_by_pipelines([body], "newest") == ({"of upgradeTrial"}, set(named))
    assert pinned_by_pipelines([body], "another") == (set(), set(named))
    kept = {"data": {"spec": {"source": {"pinnedStates": [PIN, {**PIN, "pipeline": "another"}]}}}}
    assert list(pinned_by_revision(kept, "newest")) == [PIN["snapshot"]]
