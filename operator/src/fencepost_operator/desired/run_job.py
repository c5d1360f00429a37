"""The driver Job of one epoch.

`backoffLimit: 0`, `restartPolicy: Never` and `podReplacementPolicy: Failed`: Kubernetes starts the driver once, and
only the operator, which fences first, starts another.
"""

from __future__ import annotations

from collections.abc import Collection
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
    SINK_OPTIONS_DIR,
    DriverConfig,
    Variable,
)
from fencepost_operator.api import Pipeline, SinkSpec, Spec
from fencepost_operator.api.codec import encode
from fencepost_operator.desired import labels, names, run_config
from fencepost_operator.desired.data_service import driver_scratch
from fencepost_operator.desired.owner import owner_reference
from fencepost_operator.desired.placement import avoiding
from fencepost_operator.desired.pod_security import CONTAINER_SECURITY, POD_SECURITY
from fencepost_operator.desired.resources import driver_memory, resources

NODE_LOSS_TOLERATIONS: Final = {"node.kubernetes.io/not-ready": 10, "node.kubernetes.io/unreachable": 0}
"""Seconds until a driver on a lost node is given up; Kubernetes' own 300 s are too long.

A node that restarts its kubelet says for some seconds that it is not ready.  One that is unreachable has been silent
for 40 s when it gets the taint.
"""

_STATE_PORTS: Final = (
    {"name": "names", "containerPort": NAME_SERVICE_PORT},
    {"name": "data", "containerPort": DATA_SERVICE_PORT},
)
"""Of the checkpoint directory that a stateful pipeline's driver serves."""


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
                    auth_secret=names.auth_secret_name(key.name, generation),
                    avoided_nodes=avoided_nodes,
                ),
            },
        },
    }


def _pod(spec: Spec, *, config_map: str, auth_secret: str, avoided_nodes: Collection[str]) -> dict[str, Any]:
    cluster = spec.cluster
    optional = {
        "imagePullSecrets": encode(spec.job.image_pull_secrets),
        "nodeSelector": encode(cluster.node_selector),
        "affinity": avoiding(encode(cluster.affinity) or {}, avoided_nodes),
        "priorityClassName": cluster.priority_class_name,
        "serviceAccountName": cluster.service_account_name,
    }
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.job.termination_grace_period_seconds,
        "securityContext": POD_SECURITY,
        **{name: value for name, value in optional.items() if value},
        "tolerations": _tolerations(spec),
        "containers": [_container(spec, auth_secret=auth_secret)],
        "volumes": _volumes(spec, config_map=config_map),
    }


def _container(spec: Spec, *, auth_secret: str) -> dict[str, Any]:
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
            {"name": "rpc", "containerPort": DRIVER_PORT},
            {"name": "blocks", "containerPort": BLOCK_MANAGER_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
            *(_STATE_PORTS if spec.stateful else ()),
        ],
        "resources": resources(job.resources, cpu="200m", memory=driver_memory(job.memory)),
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": _mounts(spec),
    }
    if job.image_pull_policy:
        container["imagePullPolicy"] = job.image_pull_policy
    return container


def _environment(spec: Spec, *, auth_secret: str) -> list[dict[str, Any]]:
    """Return our variables; they stand last, and of two with one name the last one counts."""
    variables: list[dict[str, Any]] = [
        {"name": Variable.CONFIG_FILE, "value": run_config.PATH},
        {"name": Variable.POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": Variable.POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        _from_secret(Variable.SPARK_AUTH_SECRET, auth_secret, "secret"),
    ]
    if account := spec.checkpoint.cassandra.credentials_secret:
        variables += [
            _from_secret(Variable.CASSANDRA_USERNAME, account, "username"),
            _from_secret(Variable.CASSANDRA_PASSWORD, account, "password"),
        ]
    return variables


def _from_secret(variable: str, secret: str, key: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _mounts(spec: Spec) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own volume
        {"name": "config", "mountPath": run_config.MOUNT, "readOnly": True},
    ]
    if spec.job.code_config_map:
        mounts.append({"name": "code", "mountPath": CODE_DIR, "readOnly": True})
    if spec.source.kafka.properties_secret:
        mounts.append({"name": "kafka", "mountPath": KAFKA_PROPERTIES_DIR, "readOnly": True})
    if spec.checkpoint.cassandra.tls:
        mounts.append({"name": "cassandra-tls", "mountPath": CASSANDRA_TLS_DIR, "readOnly": True})
    mounts += [
        {"name": volume, "mountPath": f"{SINK_OPTIONS_DIR}/{sink.name}", "readOnly": True}
        for volume, sink in _sinks_with_secrets(spec)
    ]
    return mounts


def _volumes(spec: Spec, *, config_map: str) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "tmp", "emptyDir": {"sizeLimit": driver_scratch(spec)}},
        {"name": "config", "configMap": {"name": config_map}},
    ]
    if spec.job.code_config_map:
        volumes.append({"name": "code", "configMap": {"name": spec.job.code_config_map}})
    if spec.source.kafka.properties_secret:
        volumes.append({"name": "kafka", "secret": {"secretName": spec.source.kafka.properties_secret}})
    if tls := spec.checkpoint.cassandra.tls:
        volumes.append({"name": "cassandra-tls", "secret": {"secretName": tls.secret_name}})
    volumes += [
        {"name": volume, "secret": {"secretName": sink.options_secret}} for volume, sink in _sinks_with_secrets(spec)
    ]
    return volumes


def _sinks_with_secrets(spec: Spec) -> list[tuple[str, SinkSpec]]:
    """Return each sink with options in a Secret, after the name of its volume (a sink's own may not be one)."""
    return [(f"sink-{index}", sink) for index, sink in enumerate(spec.sinks) if sink.options_secret]


def _tolerations(spec: Spec) -> list[dict[str, Any]]:
    given: list[dict[str, Any]] = encode(spec.cluster.tolerations)
    own = {toleration.get("key") for toleration in given}
    return given + [_give_up_on(*lost) for lost in NODE_LOSS_TOLERATIONS.items() if lost[0] not in own]


def _give_up_on(taint: str, seconds: int) -> dict[str, Any]:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
