"""`spec.snapshots`: copies of the committed offsets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from fencepost_operator.api.checks import DurationRange
from fencepost_operator.api.fields import Seconds
from fencepost_operator.api.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepSpec(Model):
    """Which snapshots are kept. The newest one, those in source.pinnedStates of pipelines and that with which the trial
    of an upgrade begins are never deleted.
    """

    count: Annotated[int, Field(ge=1, le=1000)] = 100
    """Maximum number of snapshots."""
    age: Annotated[Seconds, DurationRange("1m", "87600h", "24h or 720h")] = 720 * 3600.0
    """How long a snapshot is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsSpec(Model):
    """Immutable copies of the committed offsets: on a schedule, before the first run of another spec, and when the
    annotation streaming.fencepost.dev/snapshot names one.
    """

    every: Annotated[Seconds, DurationRange("1m", "720h", "15m or 1h", or_zero=True)] = 3600.0
    """Time between two snapshots of the schedule; 0s takes none. Nothing is copied while nothing is committed."""
    keep: KeepSpec = field(default_factory=KeepSpec)
