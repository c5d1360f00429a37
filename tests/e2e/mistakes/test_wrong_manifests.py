"""The API server refuses a wrong manifest, with a message that names the field."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from harness.kubernetes.kubectl import Kubectl, KubectlError
from testbed.environment import load
from unit.crds.schema import ROOT, minimal, walk

pytestmark = pytest.mark.e2e

WRONG: Final = sorted((Path(__file__).parent / "manifests" / "wrong").glob("*.yaml"))
NAMESPACE: Final = "wrong-manifests"
ENFORCED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="module")
def kubectl() -> Iterator[Kubectl]:
    """kubectl in a namespace of its own."""
    kubectl = Kubectl.of(load(), NAMESPACE)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": ENFORCED}})
    yield kubectl
    kubectl.delete("streamingpipelines", "--all")
    kubectl.delete("namespace", NAMESPACE)


@pytest.mark.parametrize("manifest", WRONG, ids=lambda path: path.stem)
def test_a_wrong_manifest_is_refused_by_the_fields_name(kubectl: Kubectl, manifest: Path) -> None:
    """Of several documents only the last one is wrong: it says what the others must not become."""
    text = manifest.read_text()
    field = re.match(r"# refused: (\S+)\n", text)
    assert field
    *accepted, wrong = yaml.safe_load_all(text)
    for pipeline in accepted:
        kubectl.apply(pipeline)
    with pytest.raises(KubectlError) as refusal:
        kubectl.apply(wrong)
    assert field[1] in refusal.value.stderr


def test_the_smallest_manifest_is_accepted(kubectl: Kubectl) -> None:
    kubectl.run("create", "--dry-run=server", "--filename=-", text=json.dumps(minimal()))


@pytest.mark.parametrize(("name", "part"), [("everything", None), ("everything-in-postgresql", "checkpoint")])
def test_a_pipeline_that_says_everything_is_accepted(kubectl: Kubectl, name: str, part: str | None) -> None:
    """The second one says everything of its checkpoint alone."""
    everything = yaml.safe_load((Path(__file__).parent / "manifests" / f"{name}.yaml").read_text())
    stored = yaml.safe_load(
        kubectl.run("create", "--dry-run=server", "--output=yaml", "--filename=-", text=json.dumps(everything))
    )
    found, written = stored["spec"], everything["spec"]
    if part is not None:
        found, written = found[part], written[part]
    assert found == written, "nothing pruned, nothing added"


def created(table: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "a", "cassandra": {"keyspace": "k", "table": "t", "createTable": table}}]


TWO_TABLES: Final = [{"name": name, "cassandra": {"keyspace": "demo", "table": "flights"}} for name in ("one", "two")]
STATEFUL: Final = ("spec.job.mode", "Stateful")
DATABASE: Final = {"postgresql": {"hosts": ["h"], "credentialsFrom": {"secretName": "s"}}}
IN_POSTGRESQL: Final = ("spec.checkpoint", DATABASE)
PLUGIN: Final = ("spec.sinks", [{"name": "a", "plugin": {"kind": "p"}}])
PINNED: Final = {"name": "n", "pipeline": "p", "snapshot": "6b1cf520-cb3f-11f0-8000-0123456789ab"}
AVRO: Final = {"format": "avro", "subject": "flights-value", "version": 1}
REGISTRY: Final = ("spec.source.kafka.schemaRegistry.url", "http://registry:8081")
LONG: Final = "k" * 400
"""Longer than any key may be."""
PROVOKING: Final[list[tuple[Any, ...]]] = [
    ("spec.sinks", [{"name": "own", "cassandra": {"keyspace": "fencepost", "table": "fence"}}]),
    ("spec.sinks", TWO_TABLES),
    ("spec.sinks", [{"name": "none"}]),
    ("spec.sinks", [{"name": "a", "cassandra": {"keyspace": "k", "table": "t", "ttl": 60, "ttlColumn": "seconds"}}]),
    ("spec.sinks", created({"partitionKey": ["a"], "clusteringKey": [{"column": "a"}]})),
    ("spec.sinks", created({"partitionKey": ["a"], "compaction": {"compaction_window_size": "1"}})),
    ("spec.sinks", created({"partitionKey": ["a"], "compaction": {"class": "c", "no option": "1"}})),
    ("spec.sinks", [{"name": "a", "cassandra": {"keyspace": "k", "table": "t", "purgeIndex": {"retention": "1m"}}}]),
    ("spec.sinks", [{"name": "a", "kafka": {"topic": "t", "properties": {"security.protocol": "ssl"}}}]),
    ("spec.sinks", [{"name": "a", "kafka": {"topic": "t", "topics": ["u"]}}]),
    ("spec.sinks", [{"name": "a", "kafka": {"topicColumn": "to"}}]),
    ("spec.sinks", [{"name": "a", "kafka": {"topicColumn": "to", "topics": []}}]),
    ("spec.sinks", [{"name": "a", "kafka": {"topicColumn": "to", "topics": [""]}}]),
    ("spec.sinks", [{"name": "a", "kafka": {"topic": ""}}]),
    ("spec.sinks", [{"name": "a", "kafka": {"topicColumn": "key", "topics": ["t"]}}]),
    ("spec.sinks", [{"name": "a", "http": {"url": "https://h", "timeout": "1ms"}}]),
    ("spec.job.entrypoint", "flights"),
    ("spec.job.env", [{"name": "SPARK_HOME", "value": "/"}]),
    ("spec.job.env", [{"name": "A", "value": "1", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
    ("spec.job.memory", "1Mi"),
    ("spec.state", {"maxBytes": "5Gi"}),
    ("spec.state.maxBytes", "1Mi", STATEFUL),
    ("spec.state.snapshotEvery", "1s", STATEFUL),
    ("spec.onPoison.action", "deadLetter", STATEFUL),
    ("spec.checkpoint", {"cassandra": {"contactPoints": ["c"]}, **DATABASE}),
    ("spec.checkpoint", {}),
    ("spec.failover", {"takeOverAfter": "1s"}),
    ("spec.failover", {}, ("spec.checkpoint.cassandra.serialConsistency", "LOCAL_SERIAL")),
    ("spec.restart.onUnprovenDeath", "wait", ("spec.failover", {})),
    ("spec.checkpoint.cassandra.consistency", "LOCAL_QUORUM", ("spec.failover", {})),
    ("spec.sinks", [{"name": "a", "cassandra": {"keyspace": "k", "table": "t"}}], IN_POSTGRESQL),
    ("spec.sinks", [{"name": "a", "postgresql": {"table": "t"}}]),
    ("spec.sinks", [{"name": "a", "postgresql": {"schema": "fencepost", "table": "t"}}], IN_POSTGRESQL),
    ("spec.sinks", [{"name": name, "postgresql": {"table": "t"}} for name in ("a", "b")], IN_POSTGRESQL),
    ("spec.job.mode", "Stateful", IN_POSTGRESQL, PLUGIN),
    ("spec.source.pinnedStates", [PINNED], IN_POSTGRESQL, PLUGIN),
    ("spec.upgrade.rollback", "enabled", STATEFUL),
    ("spec.upgrade.strategy", "Handoff", STATEFUL),
    ("spec.restart.standby", "Warm", STATEFUL),
    ("spec.cluster.sparkConf", {"spark.sql.shuffle.partitions": "8"}, STATEFUL),
    ("spec.job.scratchSize", "1Mi"),
    ("spec.job.resources", {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}),
    ("spec.cluster.workers", 3, ("spec.cluster.autoscale", {"maxWorkers": 4})),
    ("spec.cluster.autoscale", {"minWorkers": 3, "maxWorkers": 2}),
    ("spec.cluster.autoscale", {"maxWorkers": 2, "targetTimeLag": "1s"}),
    ("spec.cluster.worker.memory", "512Mi"),
    ("spec.cluster.worker.scratchSize", "1Mi"),
    ("spec.cluster.worker.resources", {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}),
    ("spec.cluster.master.resources", {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}),
    ("spec.cluster.master.storage.size", "0"),
    ("spec.cluster.nodeSelector", {"no label": "x"}),
    ("spec.cluster.sparkConf", {"spark.x=1": "y"}),
    ("spec.cluster.sparkConf", {"spark.submit.deployMode": "cluster"}),
    ("spec.source.kafka.bootstrapServers", "kafka:9092, kafka-2:9092"),
    ("spec.source.kafka.startingOffsets", {"partitions": {"flights": 1}}),
    ("spec.source.kafka.startingOffsets", {"partitions": {"flight/0": 1}}),
    ("spec.source.kafka.properties", {"group.id": "mine"}),
    ("spec.source.kafka.properties", {"Group-Id": "mine"}),
    ("spec.source.kafka.properties", {"sasl.password": "hunter2"}),
    ("spec.source.kafka.minRecordsPerBatch", 200_000),
    ("spec.source.kafka.targetBatchDuration", "2h"),
    ("spec.source.kafka.maxBytesPerBatch", "1Ki"),
    ("spec.source.kafka.schemaRegistry.url", "ftp://registry"),
    ("spec.source.kafka", {"topics": ["t"], "bootstrapServers": "kafka:9092", "value": AVRO}),
    ("spec.source.kafka.value", {**AVRO, "message": "air.Flight"}, REGISTRY),
    ("spec.observability.openTelemetry.endpoint", "ftp://collector"),
    ("spec.batchInterval", "2h"),
    ("spec.snapshots", {"every": "30s"}),
    ("spec.snapshots", {"keep": {"age": "1s"}}),
    ("spec.onPoison", {"retention": "1m"}),
    ("spec.restart", {"maxBackoff": "0s"}),
    ("spec.restart", {"stallTimeout": "1s"}),
    ("spec.restart", {"startTimeout": "1s"}),
    ("spec.restart", {"stopTimeout": "0s"}),
    ("spec.upgrade", {"deadline": "1s"}),
    ("spec.upgrade.trial", {"since": "0s"}),
    ("spec.upgrade.trial.limits", {"maxDuration": "1s"}),
    ("spec.upgrade.trial.limits", {"memory": "1Mi"}),
    ("spec.upgrade", {"stableAfter": {"window": "0s"}}),
    *(
        (f"spec.{holder}.resources.{part}", {LONG: "1"})
        for holder in ("job", "cluster.worker", "cluster.master")
        for part in ("requests", "limits")
    ),
    ("spec.cluster.sparkConf", {f"spark.{LONG}": "1"}),
    ("spec.cluster.nodeSelector", {LONG: "1"}),
    (
        "spec.cluster.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        [{"topologyKey": "zone", "labelSelector": {"matchLabels": {LONG: "1"}}}],
    ),
    ("spec.cluster.podAnnotations", {LONG: "1"}),
    ("spec.cluster.podAnnotations", {"not a key": "1"}),
    ("spec.cluster.podAnnotations", {"kubernetes.io/x": "1"}),
    ("spec.source.kafka.startingOffsets", {"partitions": {LONG: 1}}),
    ("spec.source.kafka.properties", {LONG: "1"}),
    *(
        ("spec.sinks", [{"name": "long", **sink}])
        for sink in (
            {
                "cassandra": {
                    "keyspace": "k",
                    "table": "t",
                    "createTable": {"partitionKey": ["a"], "compaction": {LONG: "1"}},
                }
            },
            {"kafka": {"topic": "t", "properties": {LONG: "1"}}},
            {"function": {"entrypoint": "a:b", "options": {LONG: "1"}}},
            {"plugin": {"name": "p", "options": {LONG: "1"}}},
        )
    ),
]


def test_every_rule_of_the_crd_refuses_what_it_is_there_for(kubectl: Kubectl) -> None:
    refusals = []
    for path, value, *also in PROVOKING:
        with pytest.raises(KubectlError) as refusal:
            kubectl.run("create", "--dry-run=server", "--filename=-", text=json.dumps(_with(path, value, *also)))
        assert path in refusal.value.stderr
        refusals.append(refusal.value.stderr)
    said = "\n".join(refusals)
    rules = [rule for _, schema in walk(ROOT) for rule in schema.get("x-kubernetes-validations", [])]
    unheard = [rule["message"] for rule in rules if rule["message"] not in said and "oldSelf" not in rule["rule"]]
    assert unheard == []


def test_scale_reads_and_sets_the_workers(kubectl: Kubectl) -> None:
    pipeline = _with("spec.suspend", True) | {"metadata": {"name": "scaled"}}
    kubectl.apply(pipeline)
    kubectl.run("scale", "streamingpipeline/scaled", "--replicas=3")
    found = kubectl.get("streamingpipeline", "scaled")
    assert found
    assert found["spec"]["cluster"]["workers"] == 3


def test_scale_is_refused_where_the_operator_chooses_the_workers(kubectl: Kubectl) -> None:
    autoscale = {"maxWorkers": 4}
    kubectl.apply(
        _with("spec.suspend", True, ("spec.cluster.autoscale", autoscale)) | {"metadata": {"name": "autoscaled"}}
    )
    with pytest.raises(KubectlError) as refusal:
        kubectl.run("scale", "streamingpipeline/autoscaled", "--replicas=3")
    assert "workers: must be 1 or absent beside autoscale" in refusal.value.stderr


def _with(path: str, value: object, *also: tuple[str, object]) -> dict[str, Any]:
    """The smallest pipeline with one field set, or with a few."""
    body = copy.deepcopy(minimal())
    for field, wanted in ((path, value), *also):
        place = body
        *parents, last = field.split(".")
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = wanted
    return body
