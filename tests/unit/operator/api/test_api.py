"""From a body to a spec or to what is wrong with it, and a status to the API server and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fakes.manifests import body, spec
from fencepost.contract.guidance import Severity
from fencepost_operator.api import (
    ClusterStatus,
    CommittedStatus,
    Condition,
    DeletionPolicy,
    FailureStatus,
    Reason,
    RewindStatus,
    RewindStep,
    RunStatus,
    Spec,
    State,
    Status,
    StepState,
    parse,
    read_pipeline,
    read_status,
    write_status,
)
from fencepost_operator.api.codec import decode_leniently
from fencepost_operator.api.quantities import format_duration, jvm_memory, parse_bytes, parse_duration, parse_quantity
from present import present

NOW = datetime(2026, 1, 1, 12, 0, 0, 123000, tzinfo=UTC)

AVRO = {"format": "avro", "subject": "orders-value", "version": 3}
REGISTRY = {"schemaRegistry": {"url": "http://registry:8081"}}


DATABASE: dict[str, Any] = {"hosts": ["h"], "credentialsFrom": {"secretName": "s"}}
IN_POSTGRESQL: dict[str, Any] = {"postgresql": DATABASE}
PLUGIN: dict[str, Any] = {"sinks": [{"name": "s", "plugin": {"kind": "k"}}]}
JOB: dict[str, Any] = {"image": "i", "entrypoint": "a:b"}
PINNED: dict[str, Any] = {
    "kafka": {"bootstrapServers": "k:1", "topics": ["a"]},
    "pinnedStates": [{"name": "n", "pipeline": "p", "snapshot": "6b1cf520-cb3f-11f0-8000-0123456789ab"}],
}


def created(key: object) -> dict[str, Any]:
    return {"createTable": key}


def parsed(**changes: Any) -> Spec:
    found = parse({"spec": spec(**changes)})
    assert isinstance(found, Spec), found
    return found


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("5s", 5.0), ("1m30s", 90.0), ("1.5h", 5400.0), ("0s", 0.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("count", "fits"), [(20, True), (21, False)])
def test_bootstrap_servers_are_bounded(count: int, fits: bool) -> None:
    servers = ",".join(f"kafka-{number}:9092" for number in range(count))
    found = parse({"spec": spec(source={"kafka": {"bootstrapServers": servers, "topics": ["t"]}})})
    assert isinstance(found, Spec) == fits
    if not isinstance(found, Spec):
        assert [violation.field for violation in found] == ["spec.source.kafka.bootstrapServers"]


@pytest.mark.parametrize("text", ["1e19", "1e999999", "1e1000000", "1e-999999", "8Ei", "9223372036854775808", "9" * 65])
def test_a_quantity_that_kubernetes_cannot_hold_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"job": {"image": "i", "entrypoint": "a:b", "memory": "1e1000000"}}, "spec.job.memory"),
        ({"job": {"image": "i", "entrypoint": "a:b", "memory": "1e999999"}}, "spec.job.memory"),
        ({"job": {"image": "i", "entrypoint": "a:b", "scratchSize": "1e1000000"}}, "spec.job.scratchSize"),
        ({"batchInterval": "8761h"}, "spec.batchInterval"),
        ({"batchInterval": "99999999999999h"}, "spec.batchInterval"),
        ({"batchInterval": "9" * 400 + "h"}, "spec.batchInterval"),
    ],
)
def test_a_number_beyond_all_measure_is_a_violation_of_its_field(change: dict[str, Any], field: str) -> None:
    found = parse({"spec": spec(**change)})
    assert isinstance(found, tuple)
    assert [violation.field for violation in found] == [field]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"minRecordsPerBatch": 11, "maxRecordsPerBatch": 10}, "minRecordsPerBatch"),
        ({"targetBatchDuration": "0s"}, "targetBatchDuration"),
        ({"maxBytesPerBatch": "1023Ki"}, "maxBytesPerBatch"),
        ({"mirrorToGroup": "a group"}, "mirrorToGroup"),
        ({"mirrorToGroup": "g" * 250}, "mirrorToGroup"),
    ],
)
def test_a_batch_or_a_mirror_that_cannot_be_is_a_violation_of_its_field(change: dict[str, Any], field: str) -> None:
    found = parse({"spec": spec(source={"kafka": {"bootstrapServers": "k:9092", "topics": ["t"], **change}})})
    assert isinstance(found, tuple)
    assert [violation.field for violation in found] == [f"spec.source.kafka.{field}"]


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "1d", "1m 30s"])
def test_text_that_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("512Mi", 512 * 1024**2), ("1G", 10**9), ("1e3", 1000), ("0.5Gi", 2**29), (7, 7), ("1500m", 1)]
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "Mi", "1 Gi", "1gi", "x"])
def test_text_that_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


def test_words_for_sizes_and_times() -> None:
    assert jvm_memory(parse_bytes("1Gi")) == "1024m"
    assert [format_duration(s) for s in (0, 59.6, 90, 3600, 5400)] == [
        "0 s",
        "1 min",
        "1 min 30 s",
        "1 h",
        "1 h 30 min",
    ]


def test_a_spec_without_any_default_filled_in_is_read() -> None:
    found = parsed()
    assert found.batch_interval == 5.0
    assert found.cluster.workers == 1
    assert found.restart.max_backoff == 300.0
    assert found.deletion_policy is DeletionPolicy.RETAIN


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"job": {"image": "i"}}, "spec.job.entrypoint"),
        ({"job": {"image": "i", "entrypoint": "no-colon"}}, "spec.job.entrypoint"),
        ({"job": {"image": "i", "entrypoint": "a:b", "memory": "lots"}}, "spec.job.memory"),
        ({"job": "x"}, "spec.job"),
        ({"batchInterval": "soon"}, "spec.batchInterval"),
        ({"batchInterval": 5}, "spec.batchInterval"),
        ({"cluster": {"workers": -1}}, "spec.cluster.workers"),
        ({"cluster": {"workers": True}}, "spec.cluster.workers"),
        ({"cluster": {"sparkConf": {"spark.master": "x"}}}, "spec.cluster.sparkConf.spark.master"),
        ({"cluster": {"sparkConf": {"spark.authenticate.secret": "x"}}}, "spec.cluster.sparkConf.spark.authenticate"),
        ({"cluster": {"worker": {"memory": "512Mi"}}}, "spec.cluster.worker.memory"),
        ({"sinks": []}, "spec.sinks"),
        (
            {"sinks": [{"name": "a", "cassandra": {"keyspace": "Shop", "table": "t"}}]},
            "spec.sinks[0].cassandra.keyspace",
        ),
        (
            {"sinks": [{"name": n, "cassandra": {"keyspace": "k", "table": n}} for n in ("a", "a")]},
            "spec.sinks[1].name",
        ),
        (
            {"sinks": [{"name": n, "cassandra": {"keyspace": "k", "table": "t"}} for n in ("a", "b")]},
            "spec.sinks[1].cassandra.table",
        ),
        (
            {"sinks": [{"name": "a", "cassandra": {"keyspace": "fencepost", "table": "fence"}}]},
            "spec.sinks[0].cassandra.table",
        ),
        (
            {"sinks": [{"name": "a", "cassandra": {"keyspace": "k", "table": "t", "purgeIndex": {"retention": "5m"}}}]},
            "spec.sinks[0].cassandra.purgeIndex.retention",
        ),
        (
            {"sinks": [{"name": "a", "cassandra": {"keyspace": "k", "table": 39 * "t", "purgeIndex": {}}}]},
            "spec.sinks[0].cassandra.purgeIndex",
        ),
        (
            {
                "sinks": [
                    {"name": "a", "cassandra": {"keyspace": "k", "table": "t_by_offset"}},
                    {"name": "b", "cassandra": {"keyspace": "k", "table": "t", "purgeIndex": {}}},
                ]
            },
            "spec.sinks[1].cassandra.purgeIndex",
        ),
        (
            {"sinks": [{"name": "a", "cassandra": {"keyspace": "k", "table": "t", "ttl": 5, "ttlColumn": "s"}}]},
            "spec.sinks[0].cassandra.ttl",
        ),
        (
            {"sinks": [{"name": "a", "cassandra": {"keyspace": "k", "table": "t", "ttl": 0}}]},
            "spec.sinks[0].cassandra.ttl",
        ),
        *(
            (
                {
                    "sinks": [
                        {"name": "a", "cassandra": {"keyspace": "k", "table": "t", "ttlColumn": "s", **created(key)}}
                    ]
                },
                f"spec.sinks[0].cassandra.createTable.{field}",
            )
            for key, field in [
                ({}, "partitionKey"),
                ({"partitionKey": []}, "partitionKey"),
                ({"partitionKey": ['a"']}, "partitionKey[0]"),
                ({"partitionKey": ["a", "a"]}, "partitionKey[1]"),
                ({"partitionKey": ["s"]}, "partitionKey[0]"),
                ({"partitionKey": ["a"], "clusteringKey": [{"column": "a"}]}, "clusteringKey[0].column"),
                ({"partitionKey": ["a"], "clusteringKey": [{"column": "b", "order": "up"}]}, "clusteringKey[0].order"),
                ({"partitionKey": ["a"], "defaultTimeToLive": 0}, "defaultTimeToLive"),
                ({"partitionKey": ["a"], "compaction": {"compaction_window_size": "1"}}, "compaction"),
                ({"partitionKey": ["a"], "compaction": {"class": "x'} AND"}}, "compaction.class"),
            ]
        ),
        *(
            (
                {"source": {"kafka": {"bootstrapServers": "k:1", "topics": ["t"], **registry, "value": value}}},
                f"spec.source.kafka.{field}",
            )
            for registry, value, field in [
                ({}, AVRO, "value"),
                (REGISTRY, {**AVRO, "message": "m"}, "value.message"),
                (REGISTRY, {**AVRO, "version": 0}, "value.version"),
                (REGISTRY, {**AVRO, "version": "latest"}, "value.version"),
                (REGISTRY, {**AVRO, "format": "xml"}, "value.format"),
                (REGISTRY, {**AVRO, "subject": ""}, "value.subject"),
                (REGISTRY, {**AVRO, "format": "protobuf", "message": "a-b"}, "value.message"),
                *(
                    ({"schemaRegistry": {"url": url}}, AVRO, "schemaRegistry.url")
                    for url in (
                        "registry:8081",
                        "ftp://r",
                        "http://me:secret@r",
                        "http://r?x=1",
                        "http://r/a b",
                        "file:///x",
                    )
                ),
            ]
        ),
        ({"sinks": [{"name": "a", "kafka": {"topic": "orders"}}]}, "spec.sinks[0].kafka.topic"),
        ({"sinks": [{"name": n, "kafka": {"topic": "out"}} for n in ("a", "b")]}, "spec.sinks[1].kafka.topic"),
        (
            {"sinks": [{"name": "a", "kafka": {"topic": "out", "propertiesFrom": {"secretName": "s"}}}]},
            "spec.sinks[0].kafka.bootstrapServers",
        ),
        (
            {"sinks": [{"name": "a", "kafka": {"topic": "t", "bootstrapServers": "k:1", "properties": {"x": "1"}}}]},
            "spec.sinks[0].kafka.properties.x",
        ),
        (
            {
                "sinks": [
                    {
                        "name": "a",
                        "kafka": {"topic": "t", "bootstrapServers": "k:1", "properties": {"sasl.password": "1"}},
                    }
                ]
            },
            "spec.sinks[0].kafka.properties.sasl.password",
        ),
        ({"sinks": [{"name": "a"}]}, "spec.sinks[0]"),
        ({"sinks": [{"name": "a", "function": {"entrypoint": "a:b"}, "plugin": {"kind": "c"}}]}, "spec.sinks[0]"),
        ({"sinks": [{"name": "../../tmp", "plugin": {"kind": "c"}}]}, "spec.sinks[0].name"),
        ({"sinks": [{"name": "a", "plugin": {"kind": "os system"}}]}, "spec.sinks[0].plugin.kind"),
        ({"sinks": [{"name": "a", "function": {"entrypoint": "a"}}]}, "spec.sinks[0].function.entrypoint"),
        (
            {"sinks": [{"name": "a", "plugin": {"kind": "c", "options": {"port": 1}}}]},
            "spec.sinks[0].plugin.options.port",
        ),
        (
            {"sinks": [{"name": "a", "plugin": {"kind": "c", "optionsFrom": "secret"}}]},
            "spec.sinks[0].plugin.optionsFrom",
        ),
        ({"sinks": [{"name": "a", "kafka": {}}]}, "spec.sinks[0].kafka"),
        ({"sinks": [{"name": "a", "kafka": {"topicColumn": "c"}}]}, "spec.sinks[0].kafka"),
        ({"sinks": [{"name": "a", "kafka": {"topic": "t", "topics": ["u"]}}]}, "spec.sinks[0].kafka"),
        (
            {"sinks": [{"name": "a", "kafka": {"topicColumn": "key", "topics": ["u"]}}]},
            "spec.sinks[0].kafka.topicColumn",
        ),
        (
            {"sinks": [{"name": name, "kafka": {"topicColumn": "c", "topics": ["u"]}} for name in ("a", "b")]},
            "spec.sinks[1].kafka.topics",
        ),
        ({"sinks": [{"name": "a", "http": {"url": "http://u:p@h/x"}}]}, "spec.sinks[0].http.url"),
        ({"sinks": [{"name": "a", "http": {"url": "file:///etc/passwd"}}]}, "spec.sinks[0].http.url"),
        ({"sinks": [{"name": "a", "http": {"url": "http://h", "parallelism": 65}}]}, "spec.sinks[0].http.parallelism"),
        ({"sinks": [{"name": "a", "http": {"url": "http://h", "timeout": "1h"}}]}, "spec.sinks[0].http.timeout"),
        ({"sinks": [{"name": "a", "files": {"path": "file:///tmp"}}]}, "spec.sinks[0].files.path"),
        ({"sinks": [{"name": "a", "files": {"path": "s3://lake/../x"}}]}, "spec.sinks[0].files.path"),
        ({"sinks": [{"name": "a", "files": {"path": "s3://key:secret@lake/x"}}]}, "spec.sinks[0].files.path"),
        (
            {"sinks": [{"name": name, "files": {"path": "s3://lake/x"}} for name in ("a", "b")]},
            "spec.sinks[1].files.path",
        ),
        (
            {"sinks": [{"name": "a", "files": {"path": "s3://lake/x", "endpoint": "file:///etc/passwd"}}]},
            "spec.sinks[0].files.endpoint",
        ),
        ({"checkpoint": {"cassandra": {"contactPoints": []}}}, "spec.checkpoint.cassandra.contactPoints"),
        ({"checkpoint": {}}, "spec.checkpoint"),
        ({"checkpoint": {"cassandra": {"contactPoints": ["c"]}, **IN_POSTGRESQL}}, "spec.checkpoint"),
        ({"checkpoint": {"postgresql": {"hosts": ["h"]}}}, "spec.checkpoint.postgresql.credentialsFrom"),
        ({"sinks": [{"name": "a", "postgresql": {"table": "t"}}]}, "spec.sinks[0].postgresql"),
        (
            {
                "checkpoint": IN_POSTGRESQL,
                "sinks": [{"name": "a", "postgresql": {"schema": "fencepost", "table": "t"}}],
            },
            "spec.sinks[0].postgresql.schema",
        ),
        (
            {"checkpoint": IN_POSTGRESQL, "sinks": [{"name": name, "postgresql": {"table": "t"}} for name in "ab"]},
            "spec.sinks[1].postgresql.table",
        ),
        ({"checkpoint": {"postgresql": {**DATABASE, "hosts": ["/var/run"]}}}, "spec.checkpoint.postgresql.hosts"),
        ({"checkpoint": {"postgresql": {**DATABASE, "schema": 'a"; DROP'}}}, "spec.checkpoint.postgresql.schema"),
        ({"checkpoint": {"postgresql": {**DATABASE, "database": "a host=b"}}}, "spec.checkpoint.postgresql.database"),
        ({"checkpoint": IN_POSTGRESQL}, "spec.sinks[0].cassandra"),
        ({"checkpoint": IN_POSTGRESQL, **PLUGIN, "job": {**JOB, "mode": "Stateful"}}, "spec.job.mode"),
        ({"checkpoint": IN_POSTGRESQL, **PLUGIN, "source": PINNED}, "spec.source.pinnedStates"),
        ({"deletionPolicy": "Maybe"}, "spec.deletionPolicy"),
        ({"snapshots": {"every": "30s"}}, "spec.snapshots.every"),
        ({"snapshots": {"keep": {"count": 0}}}, "spec.snapshots.keep.count"),
        (
            {"source": {"kafka": {"bootstrapServers": "k:1", "topics": ["a"], "properties": {"group.id": "x"}}}},
            "spec.source.kafka.properties.group.id",
        ),
        (
            {
                "source": {
                    "kafka": {"bootstrapServers": "k:1", "topics": ["a"], "startingOffsets": {"partitions": {"b/0": 1}}}
                }
            },
            "spec.source.kafka.startingOffsets.partitions.b/0",
        ),
    ],
)
def test_violations_name_the_field_and_the_remedy(changes: dict[str, Any], field: str) -> None:
    found = parse({"spec": spec(**changes)})
    assert not isinstance(found, Spec)
    assert any(violation.field.startswith(field) for violation in found), found
    assert all(violation.remedy and violation.problem for violation in found)


@pytest.mark.parametrize("raw", [{}, {"spec": None}, {"spec": []}, {"spec": "x"}, {"spec": {"job": None, "sinks": 3}}])
def test_no_body_makes_parse_raise(raw: dict[str, Any]) -> None:
    assert not isinstance(parse(raw), Spec)


def full_status() -> Status:
    condition = Condition(
        type="Ready", status="True", reason="Streaming", message="m", last_transition_time=NOW, observed_generation=3
    )
    run = RunStatus(
        name="r", epoch=1, spec_hash="h", cluster_generation=1, recorded_at=NOW, resumed_from=NOW, created_at=NOW,
        pod_name="p", pod_uid="u", node_name="n", node_uid="nu", started_at=NOW, claimed_at=NOW,
        stop_requested_at=NOW, ended_at=NOW, dead=False,
    )  # fmt: skip
    cluster = ClusterStatus(
        release="r",
        generation=1,
        config_hash="h",
        requested_at=NOW,
        ready_at=NOW,
        workers=2,
        ready_workers=1,
        selector="s",
    )
    committed = CommittedStatus(version=3, at=NOW, since=NOW, observable_since=NOW, records=5, offsets={"a/0": 1})
    failure = FailureStatus(
        count=1, epoch=1, at=NOW, reason=Reason.RUN_FAILED, message="m", remedy="r", exit_code=137, next_attempt_at=NOW,
        spec_hash="h", retry="x",
    )  # fmt: skip
    return Status(
        observed_generation=3, state=State.RUNNING, message="m", conditions=(condition,), epoch=4, restarts=2, lag=0,
        run=run, cluster=cluster, committed=committed, failure=failure,
    )  # fmt: skip


def test_a_status_comes_back_as_it_was_written() -> None:
    assert read_status(write_status(full_status())) == full_status()


@pytest.mark.parametrize("raw", [None, {}, {"run": {"epoch": "x"}}, {"state": "Odd"}, {"conditions": 3}, "x"])
def test_a_status_of_another_version_is_read_as_absent(raw: object) -> None:
    assert read_status(raw) == Status()


def test_a_reason_that_only_another_release_knows_is_read_as_a_failed_run() -> None:
    written = write_status(full_status())
    written["failure"]["reason"] = "ReasonOfANewerRelease"
    found = read_status(written).failure
    assert found is not None
    assert found.reason is Reason.RUN_FAILED
    assert full_status().failure == replace(found, reason=Reason.RUN_FAILED)


def test_a_severity_that_only_another_release_knows_is_critical() -> None:
    written = write_status(full_status())
    written["pages"] = [
        {
            "reason": "ReasonOfANewerRelease", "condition": "Ready", "severity": "urgent", "message": "m",
            "openedAt": "2026-01-01T12:00:00Z",
        }
    ]  # fmt: skip
    (page,) = read_status(written).pages
    assert (page.reason, page.severity) == ("ReasonOfANewerRelease", Severity.CRITICAL)


def test_a_step_state_that_only_another_release_knows_keeps_the_steps_before() -> None:
    """Without its steps a rewind would begin again, though the offsets are set."""
    done = {"name": "SetOffsets", "state": "Done", "message": "m", "startedAt": "2026-01-01T12:00:00Z"}
    odd = {"name": "Check", "state": "Odd", "message": "m", "startedAt": "2026-01-01T12:00:00Z"}
    found = decode_leniently(RewindStatus, {"steps": [done, odd]})
    assert found.has_done(RewindStep.SET_OFFSETS)
    assert found.steps[1].state is StepState.RUNNING


def test_a_pipeline_is_read_whole() -> None:
    found = read_pipeline(
        {
            **body(deletionPolicy="Delete"),
            "metadata": {
                "namespace": "n", "name": "p", "uid": "u", "generation": 4, "resourceVersion": "9",
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["streaming.fencepost.dev/cleanup"],
            },
        }
    )  # fmt: skip
    assert found.deleting_since == datetime(2026, 1, 1, tzinfo=UTC)
    assert found.has_finalizer
    assert found.deletion_policy is DeletionPolicy.DELETE


def test_reasons_are_words_that_kubernetes_accepts() -> None:
    assert all(reason.value.isalnum() and reason.value[0].isupper() for reason in Reason)


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ({"lag": "many"}, {"lag": None}),
        ({"run": {"epoch": 3}}, {"run": None}),
        ({"committed": {**write_status(full_status())["committed"], "records": [1]}}, {}),
        ({"conditions": [{"type": "Ready"}]}, {"conditions": ()}),
        ({"state": "Teapot", "epoch": True, "future": {"a": [1]}}, {"state": State.PENDING, "epoch": None}),
    ],
)
def test_a_field_that_cannot_be_understood_costs_no_other(change: dict[str, Any], lost: dict[str, Any]) -> None:
    found = read_status({**write_status(full_status()), **change})
    expected = replace(full_status(), **lost)
    if "committed" in change:
        assert expected.committed is not None
        expected = replace(expected, committed=replace(expected.committed, records=None))
    assert found == expected


def test_every_violation_is_reported_at_once() -> None:
    found = parse(
        {
            "spec": spec(
                job={"image": "", "entrypoint": "x", "codeFrom": 3, "imagePullSecrets": ["a"]},
                cluster={"workers": "2", "master": {"storage": {"size": "big"}}},
                suspend="yes",
            )
        }
    )
    assert not isinstance(found, Spec)
    assert {violation.field for violation in found} == {
        "spec.job.image",
        "spec.job.entrypoint",
        "spec.job.codeFrom",
        "spec.job.imagePullSecrets[0]",
        "spec.cluster.workers",
        "spec.cluster.master.storage.size",
        "spec.suspend",
    }
    assert all("kubectl explain spl.spec." in violation.remedy for violation in found)


def test_a_fence_in_postgresql_has_its_defaults_and_its_secrets() -> None:
    found = parsed(checkpoint=IN_POSTGRESQL, **PLUGIN).checkpoint
    database = present(found.postgresql)
    assert (database.port, database.database, database.schema, database.create_schema) == (
        5432,
        "fencepost",
        "fencepost",
        True,
    )
    assert (found.cassandra, found.secrets, found.place) == (None, ("s",), "fencepost")
    with_tls = parsed(checkpoint={"postgresql": {**DATABASE, "tls": {"secretName": "t"}}}, **PLUGIN)
    assert with_tls.checkpoint.secrets == ("s", "t")
    with pytest.raises(ValueError, match=r"checkpoint\.cassandra"):
        _ = found.cluster
