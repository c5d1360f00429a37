"""Which spec it is, whatever Secrets hold by now, and how a stable spec stands in for the object's own one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fencepost_operator.api import Spec
from fencepost_operator.desired.hashes import BOUNDS, bounds_hash, config_map_hashes, fingerprints


def identity(spec: Spec, references: Mapping[str, str | None]) -> str:
    """Return what differs for a spec that needs another run: its code and settings, but no password."""
    return fingerprints(spec, config_map_hashes(spec, references)).run


def attempt(spec: Spec, references: Mapping[str, str | None]) -> str:
    """Return what differs for a spec that may succeed where this one failed: its identity and its batches' bounds."""
    bounds = bounds_hash(spec)
    return f"{identity(spec, references)}/{bounds}" if bounds else identity(spec, references)


def standing_in(stable: Spec, own: Spec) -> Spec:
    """Return a stable spec with the fields of the object's own one that need no other run: these stay in effect."""
    bounds: dict[str, Any] = {name: getattr(own.source, name) for name in BOUNDS}
    return replace(
        stable,
        source=replace(stable.source, **bounds),
        on_poison=replace(stable.on_poison, failures=own.on_poison.failures),
        cluster=replace(stable.cluster, workers=own.cluster.workers),
        restart=own.restart,
        upgrade=own.upgrade,
        snapshots=own.snapshots,
        deletion_policy=own.deletion_policy,
        suspend=own.suspend,
    )
