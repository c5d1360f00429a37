"""What a trial of new code compares, may use, and must find: of a PipelineTrial, and of `spec.upgrade.trial`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fencepost_operator.api.checks import SET, DurationRange, QuantityRange
from fencepost_operator.api.fields import Bytes, ColumnName, Resource, Seconds, SinkName
from fencepost_operator.api.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCompare(Model):
    """What is compared."""

    sinks: Annotated[tuple[SinkName, ...], Field(max_length=100), SET] = ()
    """Names of the sinks to compare. Defaults to each Cassandra sink."""
    ignore_columns: Annotated[tuple[ColumnName, ...], Field(max_length=100), SET] = ()
    """Columns that may differ, such as the time of processing."""
    show_values: bool = False
    """Whether samples show the values of the columns that differ. Without it they show the key and the columns' names:
    whoever may read trials reads them."""
    max_rows_per_second: Annotated[int, Field(ge=1, le=1_000_000)] = 5_000
    """Most rows that the trial reads from Cassandra per second, so that the pipeline keeps its share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLimits(Model):
    """What the trial may use."""

    max_duration: Annotated[Seconds, DurationRange("1m", "24h", such_as="30m or 2h")] = 3600.0
    """After this time the trial ends, with what it has compared."""
    cpu: Resource | None = None
    """CPUs that the trial requests; rounded up, its Spark tasks that run at the same time. Defaults to
    cluster.worker.cores."""
    memory: Annotated[Bytes, QuantityRange("1Gi", "2Gi or 4096Mi", because="Spark and Python share it")] | None = None
    """Memory of the trial's pod. Defaults to cluster.worker.memory, and at least 2Gi."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPromotion(Model):
    """When the trial's code becomes the pipeline's. Each bound counts rows of all sinks that are compared."""

    changed_rows: Annotated[int, Field(ge=0, le=1_000_000_000_000)] = 0
    """Most rows that may have changed."""
    missing_rows: Annotated[int, Field(ge=0, le=1_000_000_000_000)] = 0
    """Most rows that may be missing."""
    added_rows: Annotated[int, Field(ge=0, le=1_000_000_000_000)] = 0
    """Most rows that may be added."""
    ignore_missing: bool = False
    """Whether to promote where missing rows cannot be looked for, or whatever their number is. A table has them looked
    for if its key holds the record's place or it has a purge index."""
