"""`spec.state`: the state of a stateful pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from fencepost_operator.api.checks import DurationRange, QuantityRange
from fencepost_operator.api.effects import Effect
from fencepost_operator.api.fields import Bytes, Seconds
from fencepost_operator.api.model import Model

PARTITIONS: Final = 4
MAX_BYTES: Final = 20 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpec(Model):
    """State of a stateful pipeline (job.mode Stateful). A commit of offsets commits it too."""

    partitions: Annotated[int, Field(ge=1, le=1000)] = PARTITIONS
    """Number of partitions of each stateful operator, which as many tasks update in parallel. It is immutable, because
    the state is stored by partition: choose as many as the cores of all workers that the pipeline may ever need."""
    output_mode: Annotated[Literal["update", "append"], Effect.NEW_RUN] = "update"
    """Rows that the sinks get. update: each row that the batch changed, such as a count that went up.
    append: a row once, when no record can change it any more; an aggregate needs a watermark for that."""
    snapshot_every: Annotated[Seconds, DurationRange("10s", "1h", "1m or 10m"), Effect.NEW_RUN] = 60.0
    """Time between two full copies of a partition's state, such as 1m; at least ten batches are between them. What
    changes in between is stored with each batch, and is read again when the partition moves to another worker. From 10s
    to 1h."""
    max_bytes: Annotated[Bytes, QuantityRange("64Mi", "20Gi or 500Mi", most="1Ti")] = MAX_BYTES
    """Size of the state that every worker has room for, a quantity such as 20Gi. The size limit of a worker's scratch
    volume is three times this above cluster.worker.scratchSize, and that of the driver's is once this above
    job.scratchSize; without workers, three times."""
