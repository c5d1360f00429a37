"""What the data service beside each worker of a stateful pipeline is given."""

from __future__ import annotations

from typing import Any, Final

from fencepost.contract import DATA_SERVICE_FILE, DATA_SERVICE_PORT, DataServiceConfig
from fencepost_operator.api import ObjectKey, Spec
from fencepost_operator.api.quantities import bytes_text, parse_bytes
from fencepost_operator.desired import names

ROOM: Final = 3
"""Times the state's size in a worker's scratch volume: its files, what a compaction writes, and the stored copies."""


def data_service_files(spec: Spec, key: ObjectKey, scope: str) -> dict[str, str]:
    """Return the data service's configuration by the name of its file; nothing for a stateless pipeline."""
    if spec.stateful is None:
        return {}
    checkpoint = spec.checkpoint.cluster
    config = DataServiceConfig(
        pipeline=names.fence_key(scope, key),
        cassandra=checkpoint.endpoint,
        keyspace=checkpoint.keyspace,
        consistency=checkpoint.consistency,
        port=DATA_SERVICE_PORT,
        cache_bytes=spec.stateful.max_bytes,
    )
    return {DATA_SERVICE_FILE: config.to_json()}


def data_service_values(spec: Spec) -> dict[str, Any]:
    """Return the chart's value `dataService`: its port, and the Secrets by which it reaches Cassandra."""
    if spec.stateful is None:
        return {}
    checkpoint = spec.checkpoint.cluster
    return {
        "port": DATA_SERVICE_PORT,
        "credentialsSecret": checkpoint.credentials_secret or "",
        "tlsSecret": checkpoint.tls.secret_name if checkpoint.tls else "",
    }


def worker_scratch(spec: Spec) -> str:
    """Return the size of a worker's scratch volume: any worker may have to hold the whole state."""
    return _with_room(spec.cluster.worker.scratch_size, ROOM * spec.stateful.max_bytes if spec.stateful else 0)


def driver_scratch(spec: Spec) -> str:
    """Return the size of the driver's scratch volume: its data service, or all of it, stands in for workers'."""
    times = 1 if spec.cluster.exists else ROOM
    return _with_room(spec.job.scratch_size, times * spec.stateful.max_bytes if spec.stateful else 0)


def _with_room(size: str, more: int) -> str:
    return bytes_text(parse_bytes(size) + more) if more else size
