"""Values of the spark-cluster chart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from fencepost_operator.api import GROUP, KIND, VERSION, Pipeline, Spec
from fencepost_operator.api.codec import encode
from fencepost_operator.api.quantities import jvm_memory
from fencepost_operator.desired import labels
from fencepost_operator.desired.cluster.spark_files import spark_files
from fencepost_operator.desired.data_service import data_service_files, data_service_values, worker_scratch
from fencepost_operator.desired.identity.hashes import code_hash
from fencepost_operator.desired.placement import avoiding
from fencepost_operator.desired.resources import executor_heap, master_resources, worker_resources

DAEMON_HEAP: Final = "128m"
MASTER_HEAP: Final = "256m"


def cluster_values(
    *,
    pipeline: Pipeline,
    spec: Spec,
    references: Mapping[str, str | None],
    generation: int,
    scope: str,
    cluster_domain: str,
    config_hash: str,
    avoided_nodes: Collection[str] = (),
) -> dict[str, Any]:
    """Return the values for one generation of a pipeline's cluster; `scope` is the operator's, of fence rows."""
    cluster = spec.cluster
    values: dict[str, Any] = {
        "pipeline": pipeline.key.name,
        "generation": generation,
        "clusterDomain": cluster_domain,
        "image": cluster.image or spec.job.image,
        "imagePullPolicy": spec.job.image_pull_policy or "",
        "imagePullSecrets": encode(spec.job.image_pull_secrets),
        "workers": cluster.workers,
        "worker": _worker(spec),
        "master": _master(spec),
        "files": {**spark_files(cluster.spark_conf), **data_service_files(spec, pipeline.key, scope)},
        "codeConfigMap": spec.job.code_config_map or "",
        "codeHash": code_hash(spec, references),
        "env": spec.job.env,
        "envFrom": spec.job.env_from,
        "nodeSelector": cluster.node_selector,
        "tolerations": cluster.tolerations,
        "affinity": avoiding(encode(cluster.affinity) or {}, avoided_nodes),
        "priorityClassName": cluster.priority_class_name or "",
        "ownerReference": {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "name": pipeline.key.name,
            "uid": pipeline.uid,
        },
        "annotations": {labels.CONFIG_HASH: config_hash},
    }
    # Left out at their default: with other values Helm would write each release again.
    optional = {
        "serviceAccountName": cluster.service_account_name,
        "podAnnotations": cluster.pod_annotations,
        "dataService": data_service_values(spec),
    }
    values |= {name: value for name, value in optional.items() if value}
    plain: dict[str, Any] = encode(values)
    return plain


def _worker(spec: Spec) -> dict[str, Any]:
    worker = spec.cluster.worker
    return {
        "cores": worker.cores,
        "memory": jvm_memory(executor_heap(worker.memory, is_stateful=spec.stateful is not None)),
        "daemonMemory": DAEMON_HEAP,
        "scratchSize": worker_scratch(spec),
        "resources": worker_resources(worker),
    }


def _master(spec: Spec) -> dict[str, Any]:
    master = spec.cluster.master
    return {
        "daemonMemory": MASTER_HEAP,
        "resources": master_resources(master),
        "storage": {"size": master.storage.size, "storageClassName": master.storage.storage_class_name or ""},
    }
