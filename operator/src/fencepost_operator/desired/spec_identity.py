"""Which spec it is, whatever Secrets hold by now, and how a stable spec stands in for the object's own one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fencepost_operator.api import Spec
from fencepost_operator.desired.hashes import bounds_hash, executor_references, fingerprints

_CONFIG_MAP = "ConfigMap/"


def config_maps(spec: Spec) -> tuple[str, ...]:
    """Return the ConfigMaps that the code and its environment come from, as 'ConfigMap/name'."""
    return tuple(name for name in executor_references(spec) if name.startswith(_CONFIG_MAP))


def identity(spec: Spec, references: Mapping[str, str | None]) -> str:
    """Return what tells a spec that needs another run from this one: its code and settings, but no password."""
    return fingerprints(spec, {name: references.get(name) for name in config_maps(spec)}).run


def attempt(spec: Spec, references: Mapping[str, str | None]) -> str:
    """Return what tells a spec that may succeed where this one failed: its identity, and the bounds of its batches."""
    bounds = bounds_hash(spec)
    return f"{identity(spec, references)}/{bounds}" if bounds else identity(spec, references)


def standing_in(stable: Spec, own: Spec) -> Spec:
    """Return a stable spec with the fields of the object's own one that need no other run: these stay in effect."""
    source = own.source
    return replace(
        stable,
        source=replace(
            stable.source,
            max_records_per_batch=source.max_records_per_batch,
            min_records_per_batch=source.min_records_per_batch,
            max_bytes_per_batch=source.max_bytes_per_batch,
            target_batch_duration=source.target_batch_duration,
        ),
        on_poison=replace(stable.on_poison, failures=own.on_poison.failures),
        cluster=replace(stable.cluster, workers=own.cluster.workers),
        restart=own.restart,
        upgrade=own.upgrade,
        snapshots=own.snapshots,
        deletion_policy=own.deletion_policy,
        suspend=own.suspend,
    )
