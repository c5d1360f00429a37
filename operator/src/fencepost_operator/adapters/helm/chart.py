"""What the Spark cluster's chart makes of the operator's values, as one digest: it is a part of each cluster's hash.

The chart is rendered for two samples, one with the least and one with the most that a spec can say.  So comments and
the order of templates do not count, nor does a new value at its default, nor another default of a worker's memory; a
changed object counts, and so does a constant of the operator that goes into the values.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, Final

from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.adapters.helm.post_renderer import UnexpectedManifestError, objects_of
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
    """Return 12 hexadecimal digits, equal for charts that render equal objects.

    Raises Unreachable, and Rejected for a chart that does not render Kubernetes objects.
    """
    try:
        rendered = [_content(await helm.template(_values(spec))) for spec in (_least(), _most())]
    except (Rejected, UnexpectedManifestError) as error:
        remedy = getattr(error, "remedy", "") or "use the chart in the operator's image: unset FENCEPOST_CHART"
        raise Rejected(f"the chart of the Spark cluster cannot be used: {error}", remedy=remedy) from error
    return hashlib.sha256(json.dumps(rendered, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def _content(rendered: str) -> list[Any]:
    """Return the objects by kind and name, without what differs from one rendering to the next."""
    found = sorted(objects_of(rendered), key=lambda item: (item["kind"], item["metadata"]["name"]))
    if not found:
        raise UnexpectedManifestError("it renders no objects")
    for item in found:
        labels, data = item["metadata"].get("labels") or {}, item.get("data") or {}
        if not isinstance(labels, dict) or not isinstance(data, dict):
            raise UnexpectedManifestError(f"the labels or the data of a {item['kind']} are not a mapping")
        item["metadata"]["labels"] = {name: labels[name] for name in labels if name not in _LABELS_OF_THE_RELEASE}
        if item["kind"] == "Secret":
            item["data"] = sorted(data)  # its content is random
    return found


def _values(spec: Spec) -> dict[str, Any]:
    pipeline = Pipeline(key=ObjectKey("sample", "sample"), uid="sample", resource_version="", generation=1, spec=spec)
    values = cluster_values(
        pipeline=pipeline,
        spec=spec,
        references={"ConfigMap/sample": "sample"},
        generation=1,
        cluster_domain="cluster.local",
        config_hash="sample",
    )
    return {**values, "namespace": "sample"}


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
    least, plain = _least(), {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    job = replace(
        least.job,
        image_pull_policy="Always",
        image_pull_secrets=(ObjectReference(name="sample"),),
        code_from=CodeFromSpec(config_map_name="sample"),
        env=({"name": "SAMPLE", "value": "sample"},),
        env_from=({"secretRef": {"name": "sample"}},),
    )
    cluster = ClusterSpec(
        workers=2,
        worker=WorkerSpec(cores=2, memory=SMALLEST_WORKER, resources=plain),
        master=MasterSpec(resources=plain, storage=StorageSpec(size="1Gi", storage_class_name="sample")),
        image="other",
        spark_conf={"spark.sample": "sample"},
        node_selector={"sample": "sample"},
        tolerations=({"key": "sample", "operator": "Exists"},),
        affinity={"nodeAffinity": {}},
        priority_class_name="sample",
    )
    return replace(least, job=job, cluster=cluster)
