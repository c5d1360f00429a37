"""What a change of each field of a spec does to a pipeline that runs; the only place that says so.

The hashes leave out what needs no other run (see `desired.hashes`); docs/reference.md has this as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Effect(StrEnum):
    """What happens when a field changes."""

    AT_ONCE = "takes effect at once; the driver keeps running"
    NEXT_RUN = "takes effect with the next run, whatever starts it; the driver keeps running"
    NEW_RUN = "the run finishes its batch, and a new run starts on the same Spark cluster"
    NEW_CLUSTER = "the run finishes its batch, and a new run starts on a new Spark cluster"
    SUSPENDS = "the run finishes its batch, and driver and Spark cluster are removed; false starts both again"


EFFECTS: Final[Mapping[str, Effect]] = {
    "suspend": Effect.SUSPENDS,
    "deletionPolicy": Effect.AT_ONCE,
    "restart": Effect.AT_ONCE,
    "upgrade": Effect.AT_ONCE,
    "snapshots": Effect.AT_ONCE,
    "batchInterval": Effect.NEW_RUN,
    "job": Effect.NEW_RUN,
    "job.image": Effect.NEW_CLUSTER,
    "job.imagePullPolicy": Effect.NEW_CLUSTER,
    "job.imagePullSecrets": Effect.NEW_CLUSTER,
    "job.codeFrom": Effect.NEW_CLUSTER,
    "job.env": Effect.NEW_CLUSTER,
    "job.envFrom": Effect.NEW_CLUSTER,
    "cluster": Effect.NEW_CLUSTER,
    "cluster.workers": Effect.AT_ONCE,
    "source": Effect.NEW_RUN,
    "source.kafka.maxRecordsPerBatch": Effect.NEXT_RUN,
    "source.kafka.minRecordsPerBatch": Effect.NEXT_RUN,
    "source.kafka.maxBytesPerBatch": Effect.NEXT_RUN,
    "source.kafka.targetBatchDuration": Effect.NEXT_RUN,
    "sinks": Effect.NEW_RUN,
    "checkpoint": Effect.NEW_RUN,
    "checkpoint.cassandra.createSchema": Effect.AT_ONCE,
    "checkpoint.cassandra.replication": Effect.AT_ONCE,
    "onPoison.action": Effect.NEW_RUN,
    "onPoison.retention": Effect.NEW_RUN,
    "onPoison.failures": Effect.AT_ONCE,
}
"""By the field's path; a field that is not here has the effect of the object that it is in."""


def effect_of(path: str) -> Effect:
    """Return what a change of the field at a path such as 'job.image' does. Raises KeyError for an unknown field."""
    steps = path.replace("[]", "").split(".")
    places = (".".join(steps[:count]) for count in range(len(steps), 0, -1))
    place = next((place for place in places if place in EFFECTS), None)
    if place is None:
        raise KeyError(path)
    return EFFECTS[place]
