"""Twenty pipelines as release 0.1.0 of the operator, whose hashes had no version, recorded them.

`previous_release.json` holds what that release's own code said.  To write it again, with its code first on the path:

    git archive 2394ba9 operator job-image | tar --extract --directory=OLD
    PYTHONPATH=OLD/operator/src:OLD/job-image/src:tests python -m fakes.previous_release
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fakes.manifests import body
from fencepost_operator.api import ObjectKey, Pipeline, Spec, read_pipeline
from fencepost_operator.desired.cluster_values import cluster_values
from fencepost_operator.desired.hashes import fingerprints, referenced

RECORDED: Final = Path(__file__).with_suffix(".json")
DOMAIN: Final = "cluster.local"

_KAFKA: Final = {"bootstrapServers": "kafka:9092", "topics": ["orders"]}
_CASSANDRA: Final = {"contactPoints": ["cassandra"]}
_JOB: Final = {"image": "registry.example/job:1", "entrypoint": "orders.job:transform"}
_TABLE: Final = {"keyspace": "shop", "table": "orders"}
_SECRET: Final = {"secretName": "properties"}
_RESOURCES: Final = {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}}

_SPECS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"cluster": {"workers": 3, "worker": {"cores": 2, "memory": "2Gi", "resources": _RESOURCES}}},
    {"cluster": {"master": {"resources": _RESOURCES, "storage": {"size": "1Gi", "storageClassName": "fast"}}}},
    {"cluster": {"image": "registry.example/spark:1", "sparkConf": {"spark.sql.shuffle.partitions": "4"}}},
    {"cluster": {"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "a"}], "priorityClassName": "high"}},
    {"cluster": {"affinity": {"nodeAffinity": {}}, "worker": {"scratchSize": "4Gi"}}},
    {"job": {**_JOB, "codeFrom": {"configMapName": "code"}, "args": ["--fast"]}},
    {"job": {**_JOB, "env": [{"name": "A", "value": "1"}], "envFrom": [{"secretRef": {"name": "settings"}}]}},
    {"job": {**_JOB, "imagePullPolicy": "Always", "imagePullSecrets": [{"name": "registry"}], "memory": "1Gi"}},
    {"job": {**_JOB, "resources": _RESOURCES, "terminationGracePeriodSeconds": 120, "scratchSize": "2Gi"}},
    {"source": {"kafka": {**_KAFKA, "topics": ["orders", "returns"], "maxRecordsPerBatch": 5000}}},
    {"source": {"kafka": {**_KAFKA, "startingOffsets": {"position": "latest", "partitions": {"orders/0": 7}}}}},
    {"source": {"kafka": {**_KAFKA, "targetBatchDuration": "5s", "splitPartitions": False, "mirrorToGroup": "g"}}},
    {"source": {"kafka": {**_KAFKA, "properties": {"security.protocol": "ssl"}, "propertiesFrom": _SECRET}}},
    {"checkpoint": {"cassandra": {**_CASSANDRA, "credentialsFrom": {"secretName": "account"}, "keyspace": "fences"}}},
    {"checkpoint": {"cassandra": {**_CASSANDRA, "tls": {"secretName": "tls"}, "serialConsistency": "LOCAL_SERIAL"}}},
    {"sinks": [{"name": "orders", "cassandra": {**_TABLE, "ttl": 60, "createTable": {"partitionKey": ["id"]}}}]},
    {"sinks": [{"name": "copy", "kafka": {"topic": "copy"}}, {"name": "f", "function": {"entrypoint": "a:b"}}]},
    {"sinks": [{"name": "p", "plugin": {"kind": "postgresql", "optionsFrom": {"secretName": "options"}}}]},
    {"onPoison": {"action": "deadLetter", "retention": "48h"}, "batchInterval": "1s", "deletionPolicy": "Delete"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A pipeline and what the release recorded of it: the two hashes, and the values that it gave to Helm."""

    pipeline: Pipeline
    spec: Spec
    references: dict[str, str | None]
    run: str
    cluster: str
    values: dict[str, Any]


def fleet() -> list[tuple[Pipeline, Spec, dict[str, str | None]]]:
    """Return the pipelines with a hash of the content of each object that they name."""
    found = []
    for number, changes in enumerate(_SPECS):
        pipeline = read_pipeline(body(ObjectKey("shop", f"orders-{number}"), uid=f"uid-{number}", **changes))
        assert isinstance(pipeline.spec, Spec), pipeline.spec
        references: dict[str, str | None] = {name: f"content of {name}" for name in referenced(pipeline.spec)}
        found.append((pipeline, pipeline.spec, references))
    return found


def recorded() -> list[Recorded]:
    """Return the pipelines with what was recorded of them."""
    stored = json.loads(RECORDED.read_text())
    return [
        Recorded(pipeline=pipeline, spec=spec, references=references, **stored[pipeline.key.name])
        for pipeline, spec, references in fleet()
    ]


def _record() -> None:
    """Write what the code on the path says; meant for that release's own code, whose functions have its parameters."""
    values_of: Callable[..., dict[str, Any]] = cluster_values
    found = {}
    for pipeline, spec, references in fleet():
        hashes = fingerprints(spec, references)
        values = values_of(pipeline=pipeline, spec=spec, references=references, generation=1, cluster_domain=DOMAIN)
        found[pipeline.key.name] = {"run": hashes.run, "cluster": hashes.cluster, "values": values}
    RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    _record()
