"""What the Spark cluster's chart makes of the operator's values, as one digest: it is a part of each cluster's hash.

The chart is rendered for two samples, one with the least and one with the most that a spec can say.  So comments and
the order of templates do not count, nor does a new value at its default, nor another default of a worker's memory; a
changed object counts, and so does a constant of the operator that goes into the values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.adapters.helm.post_renderer import UnexpectedManifestError, objects_of
from fencepost_operator.api import ObjectKey, Pipeline, Spec
from fencepost_operator.api.codec import decode
from fencepost_operator.desired.cluster.cluster_values import cluster_values
from fencepost_operator.errors import Rejected

_DIGITS: Final = 12
_LABELS_OF_THE_RELEASE: Final = frozenset({"helm.sh/chart", "app.kubernetes.io/managed-by"})
"""The chart's version says nothing about what it renders."""


async def chart_digest(helm: Helm) -> str:
    """Return 12 hexadecimal digits, equal for charts that render equal objects.

    Raises Unreachable, and Rejected for a chart that does not render Kubernetes objects.
    """
    specs = [decode(Spec, sample) for sample in (_LEAST, _MOST)]
    try:
        rendered = [_content(await helm.template(_values(spec))) for spec in specs]
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
    return cluster_values(
        pipeline=pipeline,
        spec=spec,
        references={"ConfigMap/sample": "sample"},
        generation=1,
        scope="sample",
        cluster_domain="cluster.local",
        config_hash="sample",
    )


_LEAST: Final[Mapping[str, Any]] = {
    "job": {"image": "sample", "entrypoint": "sample:sample"},
    "source": {"kafka": {"bootstrapServers": "sample:9092", "topics": ["sample"]}},
    "sinks": [{"name": "sample"}],
    "checkpoint": {"cassandra": {"contactPoints": ["sample"]}},
    "cluster": {"worker": {"memory": "1Gi"}},
}
_RESOURCES: Final = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
_MOST: Final[Mapping[str, Any]] = {
    **_LEAST,
    "job": {
        **_LEAST["job"],
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{"name": "sample"}],
        "codeFrom": {"configMapName": "sample"},
        "env": [{"name": "SAMPLE", "value": "sample"}],
        "envFrom": [{"secretRef": {"name": "sample"}}],
        "mode": "Stateful",
    },
    "cluster": {
        "workers": 2,
        "worker": {"cores": 2, "memory": "1Gi", "resources": _RESOURCES},
        "master": {"resources": _RESOURCES, "storage": {"size": "1Gi", "storageClassName": "sample"}},
        "image": "other",
        "sparkConf": {"spark.sample": "sample"},
        "nodeSelector": {"sample": "sample"},
        "tolerations": [{"key": "sample", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "sample",
    },
    "checkpoint": {
        "cassandra": {
            "contactPoints": ["sample"],
            "credentialsFrom": {"secretName": "sample"},
            "tls": {"secretName": "sample"},
        }
    },
    "state": {},
}
"""Each field that the cluster depends on; the fields of the first release.

A field that is added to the spec is not added here: its default must replace no cluster.
"""
