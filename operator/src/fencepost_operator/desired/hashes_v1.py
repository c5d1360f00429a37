"""The hashes of releases up to 0.1.0, which had no version: 16 hexadecimal digits, without the chart.

An operator that finds one compares by it, so that an upgrade replaces no run.  Nothing here may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from pydantic.alias_generators import to_camel

from fencepost.contract import SERIAL
from fencepost_operator.api import PoisonAction, SinkSpec, Spec
from fencepost_operator.api.codec import encode
from fencepost_operator.desired.hashes import Fingerprints, default_of, digest, executor_references, referenced


def fingerprints_v1(spec: Spec, references: Mapping[str, str | None]) -> Fingerprints:
    """Return what such a release would have recorded for a spec."""
    cluster = digest(_cluster_inputs(spec, references))
    return Fingerprints(cluster=cluster, run=digest({"cluster": cluster, **_run_inputs(spec, references)}))


def _cluster_inputs(spec: Spec, references: Mapping[str, str | None]) -> dict[str, Any]:
    cluster: dict[str, Any] = _encode(spec.cluster)
    del cluster["workers"]
    job = spec.job
    return {
        "cluster": cluster,
        "image": spec.cluster.image or job.image,
        "pull": [job.image_pull_policy, list(job.image_pull_secrets)],
        "environment": encode([job.env, job.env_from]),
        "references": {name: references.get(name) for name in executor_references(spec)},
        "code": job.code_config_map,
    }


def _run_inputs(spec: Spec, references: Mapping[str, str | None]) -> dict[str, Any]:
    checkpoint, poison = spec.checkpoint, spec.on_poison
    return {
        "job": _encode(spec.job),
        "source": _encode(spec.source),
        "sinks": [_sink_inputs(sink) for sink in spec.sinks],
        "checkpoint": [
            list(checkpoint.contact_points),
            checkpoint.port,
            checkpoint.local_datacenter,
            checkpoint.keyspace,
            checkpoint.consistency,
            checkpoint.credentials_secret,
            *(
                [{"serialConsistency": checkpoint.serial_consistency}]
                if checkpoint.serial_consistency != SERIAL
                else ()
            ),
            *([{"tls": _encode(checkpoint.tls)}] if checkpoint.tls is not None else ()),
        ],
        "batchInterval": spec.batch_interval,
        "references": {name: references.get(name) for name in referenced(spec)},
        **({"deadLetters": poison.retention} if poison.action is PoisonAction.DEAD_LETTER else {}),
    }


def _sink_inputs(sink: SinkSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"name": sink.name, **_encode(sink.cassandra)} if sink.cassandra else _encode(sink)
    return found


def _encode(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON of a value: each field that those releases always wrote, others where they are set."""
    if is_dataclass(value) and not isinstance(value, type):
        written = _WRITTEN.get(type(value).__name__, "").split()
        found = {field: getattr(value, field.name) for field in fields(value)}
        return {
            to_camel(field.name): _encode(part)
            for field, part in found.items()
            if part is not None and (field.name in written or part != default_of(field))
        }
    if isinstance(value, tuple | list):
        return [_encode(part) for part in value]
    return encode(value)


_WRITTEN: Final = {
    "JobSpec": "image_pull_secrets args env env_from resources memory termination_grace scratch_size",
    "WorkerSpec": "cores memory scratch_size resources",
    "MasterSpec": "resources storage_size",
    "ClusterSpec": "workers worker master spark_conf node_selector tolerations affinity",
    "KafkaSpec": "starting_position starting_partitions max_records_per_batch properties",
    "ClusteringColumnSpec": "order",
    "CreateTableSpec": "clustering_key compaction",
    "PurgeIndexSpec": "retention",
    "KafkaSinkSpec": "properties",
    "FunctionSinkSpec": "options",
    "PluginSinkSpec": "options",
    "CassandraTlsSpec": "verify_hostname",
}
"""The fields that were written at their default as well."""
