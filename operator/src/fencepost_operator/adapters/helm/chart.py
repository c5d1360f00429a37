"""What the Spark cluster's chart makes of the operator's values, as one digest: it is a part of each cluster's hash.

The chart is rendered for two samples, one with the least and one with the most that a spec can say.  So comments and
the order of templates do not count, nor does a new value at its default, nor another default of a worker's memory; a
changed object counts, and so does a constant of the operator that goes into the values.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import yaml

from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.api import ObjectKey, Pipeline, Spec
from fencepost_operator.api.spec import (
    SMALLEST_WORKER,
    CassandraSpec,
    CheckpointSpec,
    ClusterSpec,
    CodeFromSpec,
    JobSpec,
    KafkaSpec,
    MasterSpec,
    ObjectReference,
    SinkSpec,
    SourceSpec,
    StorageSpec,
    WorkerSpec,
)
from fencepost_operator.desired.cluster_values import cluster_values
from fencepost_operator.errors import Rejected

_DIGITS: Final = 12
_LABELS_OF_THE_RELEASE: Final = frozenset({"helm.sh/chart", "app.kubernetes.io/managed-by"})
"""The chart's version says nothing about what it renders."""


async def chart_digest(helm: Helm) -> str:
    """Return 12 hexadecimal digits, equal for charts that render equal objects. Raises Unreachable, Rejected."""
    rendered = [_content(await helm.template(_values(spec))) for spec in (_least(), _most())]
    return hashlib.sha256(json.dumps(rendered, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def _content(rendered: str) -> list[Any]:
    """Return the objects by kind and name, without what differs from one rendering to the next."""
    try:
        found = [item for item in yaml.safe_load_all(rendered) if isinstance(item, dict)]
        return sorted((_plain(item) for item in found), key=lambda item: (item["kind"], item["metadata"]["name"]))
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise Rejected(
            f"the chart of the Spark cluster renders no manifests: {error}",
            remedy="use the chart in the operator's image: unset FENCEPOST_CHART",
        ) from error


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    metadata = dict(item["metadata"])
    labels = metadata.get("labels") or {}
    metadata["labels"] = {name: text for name, text in labels.items() if name not in _LABELS_OF_THE_RELEASE}
    kept = {**item, "metadata": metadata}
    if item["kind"] == "Secret":
        kept["data"] = sorted(item.get("data") or {})  # its content is random
    return kept


def _values(spec: Spec) -> dict[str, Any]:
    key = ObjectKey("sample", "sample")
    pipeline = Pipeline(key=key, uid="sample", resource_version="", generation=1, spec=spec)
    values = cluster_values(
        pipeline=pipeline,
        spec=spec,
        references={"ConfigMap/sample": "sample"},
        generation=1,
        cluster_domain="cluster.local",
        config_hash="sample",
    )
    return {**values, "namespace": key.namespace}


def _least() -> Spec:
    return Spec(
        job=JobSpec(image="sample", entrypoint="sample:sample"),
        source=SourceSpec(kafka=KafkaSpec(bootstrap_servers="sample", topics=("sample",))),
        sinks=(SinkSpec(name="sample"),),
        checkpoint=CheckpointSpec(cassandra=CassandraSpec(contact_points=("sample",))),
        cluster=ClusterSpec(worker=WorkerSpec(memory=SMALLEST_WORKER)),
    )


def _most() -> Spec:
    """Return a spec with each field that the cluster depends on; the fields of the first release.

    A field that is added to the spec is not added here: its default must replace no cluster.
    """
    plain = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    return Spec(
        job=JobSpec(
            image="sample",
            entrypoint="sample:sample",
            image_pull_policy="Always",
            image_pull_secrets=(ObjectReference(name="sample"),),
            code_from=CodeFromSpec(config_map_name="sample"),
            env=({"name": "SAMPLE", "value": "sample"},),
            env_from=({"secretRef": {"name": "sample"}},),
        ),
        source=SourceSpec(kafka=KafkaSpec(bootstrap_servers="sample", topics=("sample",))),
        sinks=(SinkSpec(name="sample"),),
        checkpoint=CheckpointSpec(cassandra=CassandraSpec(contact_points=("sample",))),
        cluster=ClusterSpec(
            workers=2,
            worker=WorkerSpec(cores=2, memory=SMALLEST_WORKER, resources=plain),
            master=MasterSpec(resources=plain, storage=StorageSpec(size="1Gi", storage_class_name="sample")),
            image="other",
            spark_conf={"spark.sample": "sample"},
            node_selector={"sample": "sample"},
            tolerations=({"key": "sample", "operator": "Exists"},),
            affinity={"nodeAffinity": {}},
            priority_class_name="sample",
        ),
    )
