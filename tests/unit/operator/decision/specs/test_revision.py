"""Kept specs: what their names promise, which of two specs write the same rows, and with what old code finishes."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.manifests import KEY, spec, spec_of
from fencepost_operator.api import FinishingStatus, Revision, is_revision_of
from fencepost_operator.decision.specs.revisions import needed_revisions
from fencepost_operator.desired.identity.code import code_text, finishing_spec, output_shape, revision_in
from unit.operator.scenes import NOW, ROW, RUN, WELL

KEPT = Revision.of(KEY.name, spec(), {"ConfigMap/code": "abc"})


def test_what_is_stored_reads_back_under_its_name_alone() -> None:
    assert Revision.read(KEY.name, KEPT.name, KEPT.data) == KEPT
    assert Revision.of(KEY.name, spec(), {"ConfigMap/code": "abc"}).name == KEPT.name
    assert KEPT.spec == spec_of()


@pytest.mark.parametrize(
    "data",
    [
        None,
        "text",
        [],
        {},
        {"spec": None},
        {"spec": []},
        {**KEPT.data, "spec": spec(suspend=True)},
        {**KEPT.data, "configMaps": {}},
        {**KEPT.data, "more": 1},
        {"spec": KEPT.written},
    ],
)
def test_other_content_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match=r"has no spec|has been changed"):
        Revision.read(KEY.name, KEPT.name, data)


def test_content_of_another_pipeline_has_another_name() -> None:
    with pytest.raises(ValueError, match="has been changed"):
        Revision.read("bills", KEPT.name, KEPT.data)


@pytest.mark.parametrize(
    "name", ["", "orders", "orders-", "orders-run-1", f"x{KEPT.name}", f"{KEPT.name}0", "orders-../x"]
)
def test_other_names_are_no_revisions(name: str) -> None:
    assert is_revision_of(KEY.name, KEPT.name)
    assert not is_revision_of(KEY.name, name)


def test_the_row_names_the_revision_and_one_of_an_older_release_does_not() -> None:
    assert revision_in(KEY.name, code_text(spec_of(), {}, KEPT.name)) == KEPT.name
    for code in (None, "", code_text(spec_of(), {}), f"image {KEPT.name} entrypoint", f"i {KEPT.name}\n"):
        assert revision_in(KEY.name, code) == ""


def test_what_finishes_the_open_batch_stays() -> None:
    finishing = FinishingStatus(code="c", revision="orders-1", since=NOW, until={"orders/0": 60})
    needed = needed_revisions("orders", WELL.said(finishing=finishing).pipeline.status, ROW)
    assert set(needed) == {"orders-1", RUN.revision}


JOB = {"image": "registry.example/job:1", "entrypoint": "orders.job:transform"}
KAFKA = {"bootstrapServers": "kafka:9092", "topics": ["orders"]}
SAME: list[dict[str, Any]] = [
    {"suspend": True},
    {"batchInterval": "2s"},
    {"cluster": {"workers": 3}},
    {"cluster": {"worker": {"memory": "4Gi"}, "sparkConf": {"spark.shuffle.compress": "false"}}},
    {"job": {**JOB, "memory": "3Gi", "resources": {"limits": {"memory": "2Gi"}}}},
    {"restart": {"maxAttempts": 3}},
]
OTHER: list[dict[str, Any]] = [
    {"job": {**JOB, "image": "registry.example/job:2"}},
    {"job": {**JOB, "entrypoint": "orders.job:other"}},
    {"job": {**JOB, "args": ["x"]}},
    {"job": {**JOB, "env": [{"name": "A", "value": "b"}]}},
    {"job": {**JOB, "codeFrom": {"configMapName": "code"}}},
    {"cluster": {"image": "another"}},
    {"cluster": {"sparkConf": {"spark.sql.session.timeZone": "UTC"}}},
    {"cluster": {"sparkConf": {"spark.executorEnv.REGION": "eu"}}},
    {"source": {"kafka": {**KAFKA, "properties": {"isolation.level": "read_uncommitted"}}}},
    {
        "source": {
            "kafka": {
                **KAFKA,
                "schemaRegistry": {"url": "http://registry"},
                "value": {"format": "avro", "subject": "orders-value", "version": 2},
            }
        }
    },
    {"sinks": [{"name": "orders", "cassandra": {"keyspace": "shop", "table": "others"}}]},
]


@pytest.mark.parametrize("change", SAME)
def test_sizes_and_schedules_do_not_shape_the_output(change: dict[str, Any]) -> None:
    assert output_shape(spec_of(**change), {}) == output_shape(spec_of(), {})


@pytest.mark.parametrize("change", OTHER)
def test_code_and_sinks_shape_the_output_and_the_old_code_finishes_with_its_own(change: dict[str, Any]) -> None:
    old, new = spec_of(), spec_of(**change)
    assert output_shape(new, {}) != output_shape(old, {})
    assert output_shape(finishing_spec(old, new), {}) == output_shape(old, {})


def test_the_content_of_a_config_map_shapes_the_output_and_that_of_a_secret_does_not() -> None:
    one = spec_of(job={**JOB, "codeFrom": {"configMapName": "code"}, "envFrom": [{"secretRef": {"name": "account"}}]})
    before = output_shape(one, {"ConfigMap/code": "1", "Secret/account": "1"})
    assert output_shape(one, {"ConfigMap/code": "1", "Secret/account": "2"}) == before
    assert output_shape(one, {"ConfigMap/code": "2", "Secret/account": "1"}) != before


@pytest.mark.parametrize("registry", [None, {"url": "http://moved"}])
def test_old_code_finishes_with_the_schema_that_it_began_with(registry: dict[str, Any] | None) -> None:
    value = {"format": "avro", "subject": "orders-value", "version": 1}
    old = spec_of(source={"kafka": {**KAFKA, "schemaRegistry": {"url": "http://registry"}, "value": value}})
    new = spec_of(source={"kafka": {**KAFKA, **({"schemaRegistry": registry} if registry else {})}})
    found = finishing_spec(old, new).source.kafka
    assert found.value == old.source.kafka.value
    assert found.schema_registry is not None
    assert found.schema_registry.url == (registry or {"url": "http://registry"})["url"]


def test_old_code_finishes_with_the_connections_and_sizes_of_now() -> None:
    kafka = {"bootstrapServers": "elsewhere:9092", "topics": ["others"]}
    checkpoint = {"cassandra": {"contactPoints": ["elsewhere"], "credentialsFrom": {"secretName": "rotated"}}}
    cluster = {"workers": 5, "sparkConf": {"spark.memory.fraction": "0.5"}}
    new = spec_of(source={"kafka": kafka}, checkpoint=checkpoint, cluster=cluster, job={**JOB, "memory": "2Gi"})
    found = finishing_spec(spec_of(), new)
    assert found.source.kafka.topics == ("orders",)
    assert found.source.kafka.bootstrap_servers == "elsewhere:9092"
    assert found.checkpoint == new.checkpoint
    assert (found.cluster.workers, found.job.memory) == (5, new.job.memory)
    assert found.cluster.spark_conf == {"spark.memory.fraction": "0.5"}
