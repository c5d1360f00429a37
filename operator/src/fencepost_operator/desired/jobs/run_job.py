"""The driver Job of one epoch.

`backoffLimit: 0`, `restartPolicy: Never` and `podReplacementPolicy: Failed`: Kubernetes starts the driver once, and
only the operator, which fences first, starts another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost.contract import (
    BLOCK_MANAGER_PORT,
    CASSANDRA_TLS_DIR,
    CODE_DIR,
    DATA_SERVICE_PORT,
    DRIVER_PORT,
    KAFKA_PROPERTIES_DIR,
    METRICS_PORT,
    NAME_SERVICE_PORT,
    POSTGRESQL_TLS_DIR,
    REGISTRY_CREDENTIALS_DIR,
    SINK_OPTIONS_DIR,
    TELEMETRY_CREDENTIALS_DIR,
    WARM_FILE,
    DriverConfig,
    Variable,
)
from fencepost_operator.api import Pipeline, Spec
from fencepost_operator.api.codec import encode
from fencepost_operator.desired import labels, names
from fencepost_operator.desired.data_service import driver_scratch
from fencepost_operator.desired.jobs import run_config
from fencepost_operator.desired.owner import owner_reference
from fencepost_operator.desired.placement import avoiding
from fencepost_operator.desired.pod_security import CONTAINER_SECURITY, POD_SECURITY
from fencepost_operator.desired.resources import driver_resources

NODE_LOSS_TOLERATIONS: Final = {"node.kubernetes.io/not-ready": 10, "node.kubernetes.io/unreachable": 0}
"""Seconds until a driver on a lost node is given up; Kubernetes' own 300 s are too long.

A node that restarts its kubelet says for some seconds that it is not ready.  One that is unreachable has been silent
for 40 s when it gets the taint.
"""

_CLUSTER_PORTS: Final = (
    {"name": "rpc", "containerPort": DRIVER_PORT},
    {"name": "blocks", "containerPort": BLOCK_MANAGER_PORT},
)
"""At which the executors reach the driver."""
_STATE_PORTS: Final = (
    {"name": "names", "containerPort": NAME_SERVICE_PORT},
    {"name": "data", "containerPort": DATA_SERVICE_PORT},
)
"""Of the checkpoint directory that a stateful pipeline's driver serves."""


_WARM: Final = {"exec": {"command": ["cat", WARM_FILE]}, "periodSeconds": 1, "failureThreshold": 24 * 3600}
"""Shows when a run that awaits its epoch is warm. It ends with its first success, and kills no run that is slow."""


def run_job(
    *,
    pipeline: Pipeline,
    spec: Spec,
    config: DriverConfig,
    generation: int,
    spec_hash: str,
    avoided_nodes: Collection[str] = (),
) -> dict[str, Any]:
    """Return the manifest of the run that `config` configures."""
    key, marks = pipeline.key, labels.run_labels(pipeline.key, config.epoch)
    notes = {labels.SPEC_HASH: spec_hash, labels.GENERATION: str(generation)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.job_name(key.name, config.epoch),
            "namespace": key.namespace,
            "labels": marks,
            "annotations": notes,
            "ownerReferences": [owner_reference(pipeline)],
        },
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "template": {
                # On the pod as well: it may outlive its Job.
                "metadata": {"labels": marks, "annotations": {**encode(spec.cluster.pod_annotations), **notes}},
                "spec": _pod(
                    spec,
                    config_map=names.job_name(key.name, config.epoch),
                    auth_secret=names.auth_secret_name(key.name, generation) if spec.cluster.exists else None,
                    avoided_nodes=avoided_nodes,
                    awaits_epoch=config.awaits_epoch,
                ),
            },
        },
    }


def _pod(
    spec: Spec, *, config_map: str, auth_secret: str | None, avoided_nodes: Collection[str], awaits_epoch: bool
) -> dict[str, Any]:
    cluster = spec.cluster
    optional = {
        "imagePullSecrets": encode(spec.job.image_pull_secrets),
        "nodeSelector": encode(cluster.node_selector),
        "affinity": avoiding(encode(cluster.affinity) or {}, avoided_nodes),
        "priorityClassName": cluster.priority_class_name,
        "serviceAccountName": cluster.service_account_name,
    }
    mounted = list(_mounted(spec, config_map=config_map))
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.job.termination_grace_period_seconds,
        "securityContext": POD_SECURITY,
        **{name: value for name, value in optional.items() if value},
        "tolerations": _tolerations(spec),
        "containers": [_container(spec, auth_secret=auth_secret, mounted=mounted, awaits_epoch=awaits_epoch)],
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": driver_scratch(spec)}},
            *({"name": each.name, **each.source} for each in mounted),
        ],
    }


def _container(
    spec: Spec, *, auth_secret: str | None, mounted: Sequence[_Mounted], awaits_epoch: bool
) -> dict[str, Any]:
    job = spec.job
    container: dict[str, Any] = {
        "name": labels.DRIVER,
        "image": job.image,
        "args": ["fencepost", "run"],
        # A driver that is killed writes no verdict.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "envFrom": encode(job.env_from),
        "env": [*encode(job.env), *_environment(spec, auth_secret=auth_secret)],
        "ports": [
            *(_CLUSTER_PORTS if spec.cluster.exists else ()),
            {"name": "metrics", "containerPort": METRICS_PORT},
            *(_STATE_PORTS if spec.stateful and spec.cluster.exists else ()),
        ],
        "resources": driver_resources(spec),
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own volume
            *({"name": each.name, "mountPath": each.folder, "readOnly": True} for each in mounted),
        ],
    }
    if job.image_pull_policy:
        container["imagePullPolicy"] = job.image_pull_policy
    if awaits_epoch:
        container["startupProbe"] = _WARM
    return container


def _environment(spec: Spec, *, auth_secret: str | None) -> list[dict[str, Any]]:
    """Return our variables; they stand last, and of two with one name the last one counts.

    `auth_secret` is the Spark cluster's, None without one.
    """
    variables: list[dict[str, Any]] = [
        {"name": Variable.CONFIG_FILE, "value": run_config.PATH},
        {"name": Variable.POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": Variable.POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    if auth_secret is not None:
        variables.append(_from_secret(Variable.SPARK_AUTH_SECRET, auth_secret, "secret"))
    name, password = (
        (Variable.CASSANDRA_USERNAME, Variable.CASSANDRA_PASSWORD)
        if spec.checkpoint.cassandra
        else (Variable.POSTGRESQL_USERNAME, Variable.POSTGRESQL_PASSWORD)
    )
    if account := spec.checkpoint.database.credentials_secret:
        variables += [_from_secret(name, account, "username"), _from_secret(password, account, "password")]
    return variables


def _from_secret(variable: str, secret: str, key: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


@dataclass(frozen=True, slots=True)
class _Mounted:
    """A volume with files that the container reads in a folder."""

    name: str
    folder: str
    source: dict[str, Any]


def _mounted(spec: Spec, *, config_map: str) -> Iterator[_Mounted]:
    """Yield the volumes that the spec needs.

    A sink's is named by its place in the spec: the sink's own name may not be a volume's.
    """
    yield _Mounted("config", run_config.MOUNT, {"configMap": {"name": config_map}})
    if code := spec.job.code_config_map:
        yield _Mounted("code", CODE_DIR, {"configMap": {"name": code}})
    if properties := spec.source.kafka.properties_secret:
        yield _Mounted("kafka", KAFKA_PROPERTIES_DIR, {"secret": {"secretName": properties}})
    if registry := spec.source.kafka.registry_secret:
        yield _Mounted("schema-registry", REGISTRY_CREDENTIALS_DIR, {"secret": {"secretName": registry}})
    if (fence := spec.checkpoint.cassandra) is not None and fence.tls is not None:
        yield _Mounted("cassandra-tls", CASSANDRA_TLS_DIR, {"secret": {"secretName": fence.tls.secret_name}})
    if (database := spec.checkpoint.postgresql) is not None and database.tls is not None:
        yield _Mounted("postgresql-tls", POSTGRESQL_TLS_DIR, {"secret": {"secretName": database.tls.secret_name}})
    for receiver, secret in spec.observability.secrets.items():
        folder = f"{TELEMETRY_CREDENTIALS_DIR}/{receiver}"
        yield _Mounted(receiver.lower(), folder, {"secret": {"secretName": secret}})
    for index, sink in enumerate(spec.sinks):
        if options := sink.options_secret:
            yield _Mounted(f"sink-{index}", f"{SINK_OPTIONS_DIR}/{sink.name}", {"secret": {"secretName": options}})


def _tolerations(spec: Spec) -> list[dict[str, Any]]:
    given: list[dict[str, Any]] = encode(spec.cluster.tolerations)
    own = {toleration.get("key") for toleration in given}
    return given + [_give_up_on(*lost) for lost in NODE_LOSS_TOLERATIONS.items() if lost[0] not in own]


def _give_up_on(taint: str, seconds: int) -> dict[str, Any]:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
