"""Which spec it is, whatever Secrets hold by now, and how a stable spec stands in for the object's own one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fencepost_operator.api import Spec
from fencepost_operator.desired.hashes import executor_references, fingerprints

_CONFIG_MAP = "ConfigMap/"


def config_maps(spec: Spec) -> tuple[str, ...]:
    """Return the ConfigMaps that the code and its environment come from, as 'ConfigMap/name'."""
    return tuple(name for name in executor_references(spec) if name.startswith(_CONFIG_MAP))


def identity(spec: Spec, references: Mapping[str, str | None]) -> str:
    """Return what tells a spec that needs another run from this one: its code and settings, but no password."""
    return fingerprints(spec, {name: references.get(name) for name in config_maps(spec)}).run


def standing_in(stable: Spec, own: Spec) -> Spec:
    """Return a stable spec with the fields of the object's own one that need no other run: these stay in effect."""
    return replace(
        stable,
        cluster=replace(stable.cluster, workers=own.cluster.workers),
        restart=own.restart,
        upgrade=own.upgrade,
        snapshots=own.snapshots,
        deletion_policy=own.deletion_policy,
        suspend=own.suspend,
    )
