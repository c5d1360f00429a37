"""Settings of Kafka and Cassandra with which an acknowledged write can be lost."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_operator.api.model import Model
from fencepost_operator.api.moments import Since


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakSetting(Model):
    """A setting with which an acknowledged write can be lost: where it is, what it is, what it should be."""

    setting: str
    """Name of the setting."""
    where: str
    """What it is a setting of."""
    found: str
    """Its value."""
    wanted: str
    """The value that it should have."""
    remedy: str
    """What to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DurabilityStatus(Model):
    """Newest check of the durability settings; see the condition DurabilityAtRisk."""

    checked_at: Since
    """When they were read."""
    generation: int
    """The generation of the spec that they were read for."""
    # A check that is not complete is repeated sooner.
    complete: bool
    """Whether both Kafka and Cassandra answered."""
    weak: tuple[WeakSetting, ...] = ()
    """Settings with which an acknowledged write can be lost."""
    unknown: tuple[str, ...] = ()
    """What could not be read, and why."""
