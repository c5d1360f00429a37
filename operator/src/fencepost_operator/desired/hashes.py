"""Fingerprints of what is desired: a run is replaced when its own changes, a cluster when its own does.

What can change under a live driver (workers, suspend, restart, deletionPolicy, how a schema is created) counts for
neither.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from pydantic.alias_generators import to_camel

from fencepost.contract import SERIAL
from fencepost_operator.api import CheckpointSpec, PoisonAction, SinkSpec, Spec
from fencepost_operator.api.codec import encode
from fencepost_operator.api.spec import KafkaSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprints:
    """Of the cluster, and of the run (which counts the cluster's in)."""

    cluster: str
    run: str


def fingerprints(spec: Spec, references: Mapping[str, str | None]) -> Fingerprints:
    """Return both; `references` holds a hash of the content of each object that the spec names."""
    cluster = _digest(_cluster_inputs(spec, references))
    return Fingerprints(cluster=cluster, run=_digest({"cluster": cluster, **_run_inputs(spec, references)}))


def code_hash(spec: Spec, references: Mapping[str, str | None]) -> str:
    """Return the hash of the ConfigMap that the code comes from, '' when it comes from the image."""
    return references.get(f"ConfigMap/{spec.job.code_config_map}") or "" if spec.job.code_config_map else ""


def executor_references(spec: Spec) -> tuple[str, ...]:
    """Return the objects that executors see: the code and what the environment is filled from."""
    code = {f"ConfigMap/{spec.job.code_config_map}"} if spec.job.code_config_map else set[str]()
    return tuple(sorted(code | {name for name, _ in _env_references(spec)}))


def referenced(spec: Spec) -> tuple[str, ...]:
    """Return every object that the spec names and needs, as 'ConfigMap/name' or 'Secret/name'."""
    optional = (spec.source.properties_secret, *(sink.options_secret for sink in spec.sinks))
    secrets = (*checkpoint_secrets(spec.checkpoint), *(name for name in optional if name))
    return tuple(sorted({*executor_references(spec), *(f"Secret/{name}" for name in secrets)}))


def checkpoint_secrets(checkpoint: CheckpointSpec) -> tuple[str, ...]:
    """Return the names of the Secrets without which Cassandra cannot be reached."""
    names = (checkpoint.credentials_secret, checkpoint.tls.secret_name if checkpoint.tls else None)
    return tuple(name for name in names if name)


def optional_references(spec: Spec) -> frozenset[str]:
    """Return those of the referenced objects that the spec can do without."""
    needed = {name for name, optional in _env_references(spec) if not optional}
    return frozenset(name for name, optional in _env_references(spec) if optional and name not in needed)


def _env_references(spec: Spec) -> tuple[tuple[str, bool], ...]:
    found: list[tuple[str, bool]] = []
    for source in spec.job.env_from:
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if reference := source.get(field):
                found.append((f"{kind}/{reference['name']}", bool(reference.get("optional"))))
    for variable in spec.job.env:
        for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if reference := (variable.get("valueFrom") or {}).get(field):
                found.append((f"{kind}/{reference['name']}", bool(reference.get("optional"))))
    return tuple(found)


def _cluster_inputs(spec: Spec, references: Mapping[str, str | None]) -> dict[str, Any]:
    cluster: dict[str, Any] = encode(spec.cluster)
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
    checkpoint = spec.checkpoint
    return {
        "job": encode(spec.job),
        "source": _source(spec.source),
        "sinks": [_sink_inputs(sink) for sink in spec.sinks],
        "checkpoint": [
            list(checkpoint.contact_points),
            checkpoint.port,
            checkpoint.local_datacenter,
            checkpoint.keyspace,
            checkpoint.consistency,
            checkpoint.credentials_secret,
            *_since_the_first_release(spec.checkpoint),
        ],
        "batchInterval": spec.batch_interval,
        "references": {name: references.get(name) for name in referenced(spec)},
        **_dead_letters(spec),
    }


def _dead_letters(spec: Spec) -> dict[str, Any]:
    """Return what a run is told about dead letters; nothing where it writes none, as before there were any."""
    poison = spec.on_poison
    return {"deadLetters": poison.retention} if poison.action is PoisonAction.DEAD_LETTER else {}


def _sink_inputs(sink: SinkSpec) -> dict[str, Any]:
    # A table's fields beside the name: in any other form, an upgrade of the operator would restart every run.
    return {"name": sink.name, **encode(sink.cassandra)} if sink.cassandra else encode(sink)


def _source(source: KafkaSpec) -> dict[str, Any]:
    """Return the source without unused fields of later releases: a newer operator restarts no run for them."""
    written: dict[str, Any] = encode(source)
    return {name: value for name, value in written.items() if name not in _ADDED or value != _ADDED[name]}


_ADDED: Final = {
    to_camel(field.name): field.default
    for field in fields(KafkaSpec)
    if field.name in {"target_batch_duration", "split_partitions"}
}
"""Fields that the first release did not have, and their defaults; a field whose default is None is never written."""


def _since_the_first_release(checkpoint: CheckpointSpec) -> list[Any]:
    """Return what older operators do not know, where it is set: a default must not replace every run at an upgrade."""
    found: list[Any] = []
    if checkpoint.serial_consistency != SERIAL:
        found.append({"serialConsistency": checkpoint.serial_consistency})
    if checkpoint.tls is not None:
        found.append({"tls": encode(checkpoint.tls)})
    return found


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
