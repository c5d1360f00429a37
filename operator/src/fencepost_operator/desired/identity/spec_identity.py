"""Which spec it is, whatever Secrets hold by now."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost_operator.api import Spec
from fencepost_operator.desired.identity.hashes import bounds_hash, config_map_hashes, fingerprints


def identity(spec: Spec, references: Mapping[str, str | None]) -> str:
    """Return what differs for a spec that needs another run: its code and settings, but no password."""
    return fingerprints(spec, config_map_hashes(spec, references)).run


def attempt(spec: Spec, references: Mapping[str, str | None]) -> str:
    """Return what differs for a spec that may succeed where this one failed: its identity and its batches' bounds."""
    bounds = bounds_hash(spec)
    return f"{identity(spec, references)}/{bounds}" if bounds else identity(spec, references)
