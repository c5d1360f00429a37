"""Bodies of StreamingPipelines as the API server would return them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fencepost_operator.api import ObjectKey, Pipeline, Spec, read_pipeline
from fencepost_operator.desired.cluster.cluster_values import cluster_values

KEY = ObjectKey("shop", "orders")


def spec(**changes: Any) -> dict[str, Any]:
    """Return a spec as small as it can be; `changes` replace whole top-level fields."""
    return copy.deepcopy(
        {
            "job": {"image": "registry.example/job:1", "entrypoint": "orders.job:transform"},
            "source": {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["orders"]}},
            "sinks": [{"name": "orders", "cassandra": {"keyspace": "shop", "table": "orders"}}],
            "checkpoint": {"cassandra": {"contactPoints": ["cassandra"]}},
            **changes,
        }
    )


def spec_of(**changes: Any) -> Spec:
    """Return a valid spec as the operator reads it."""
    read = read_pipeline(body(**changes)).spec
    assert isinstance(read, Spec), read
    return read


def body(key: ObjectKey = KEY, *, uid: str = "uid-1", **changes: Any) -> dict[str, Any]:
    """Return a whole object, new and untouched."""
    return {
        "metadata": {"namespace": key.namespace, "name": key.name, "uid": uid, "generation": 1, "resourceVersion": "1"},
        "spec": spec(**changes),
        "status": {"observedGeneration": -1},
    }


def values_of(
    pipeline: Pipeline,
    spec: Spec,
    *,
    generation: int,
    references: Mapping[str, str | None] = MappingProxyType({}),
    cluster_domain: str = "cluster.local",
) -> dict[str, Any]:
    """Return the Helm values of a generation of the pipeline's Spark cluster."""
    return cluster_values(
        pipeline=pipeline,
        spec=spec,
        references=references,
        generation=generation,
        scope="default",
        cluster_domain=cluster_domain,
        config_hash="config-hash",
    )
