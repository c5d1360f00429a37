"""`spec.job`: the author's code and the driver's pod."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from fencepost_operator.api.checks import QuantityRange, Rule, keyed_by
from fencepost_operator.api.effects import Effect
from fencepost_operator.api.fields import Bytes, Entrypoint, Image, Line, ObjectName, QuantityText
from fencepost_operator.api.model import Model
from fencepost_operator.api.spec.pods import EnvFromSource, EnvVar, ObjectReference, ResourceRequirements

DRIVER_HEAP: Final = 1024 * 1024 * 1024
"""Bytes, for transforms of single records in production; docs/sizing.md has the reasons."""


class JobMode(StrEnum):
    """What the author's function is given."""

    STATELESS = "Stateless"
    STATEFUL = "Stateful"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFromSpec(Model):
    """Python modules from a ConfigMap instead of the image; mounted in the driver and in every worker at
    /opt/fencepost/code, which is on PYTHONPATH.
    """

    config_map_name: ObjectName
    """Name of a ConfigMap in the same namespace; each key is a file, such as departures.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(Model):
    """The author's code and the driver pod that runs it."""

    image: Annotated[Image, Effect.NEW_CLUSTER]
    """Image of the driver and, unless cluster.image is set, of the Spark cluster: a fencepost-job image, or one built
    FROM it with the author's code inside."""
    image_pull_policy: Annotated[Literal["Always", "IfNotPresent", "Never"] | None, Effect.NEW_CLUSTER] = None
    """Image pull policy of all containers. Defaults to Kubernetes' own default."""
    image_pull_secrets: Annotated[
        tuple[ObjectReference, ...], Field(max_length=10), keyed_by("name"), Effect.NEW_CLUSTER
    ] = ()
    """Secrets in the same namespace with the credentials of the image's registry."""
    entrypoint: Annotated[Entrypoint, Field(max_length=200)]
    """The author's function as module:function, such as flights.departures:transform. It takes the batch and a
    BatchContext and returns a DataFrame, or a mapping from sink name to DataFrame. With mode Stateful it takes the
    stream."""
    mode: Annotated[
        JobMode,
        Rule(
            "self == oldSelf",
            "is immutable, because a stateful pipeline's offsets and state are committed together; set it back, or"
            " create a pipeline under another name with source.kafka.startingOffsets.partitions",
        ),
        Effect.NEW_CLUSTER,
    ] = JobMode.STATELESS
    """Stateless: the function transforms one batch after the other, and keeps nothing. Stateful: it takes a streaming
    DataFrame of all batches and may keep state, such as counts, windows and sessions; docs/authors.md says how far this
    is built. It is immutable."""
    code_from: Annotated[CodeFromSpec | None, Effect.NEW_CLUSTER] = None
    args: Annotated[tuple[Annotated[Line, Field(max_length=4096)], ...], Field(max_length=100)] = ()
    """Arguments for the author's function, in context.args."""
    env: Annotated[
        tuple[EnvVar, ...],
        Field(max_length=100),
        keyed_by("name"),
        Rule(
            "self.all(e, !e.name.startsWith('FENCEPOST_') && !e.name.startsWith('SPARK_') &&"
            " !e.name.startsWith('_SPARK_'))",
            "names that start with FENCEPOST_, SPARK_ or _SPARK_ are Fencepost's own; choose another name, or use"
            " cluster.sparkConf for Spark's settings",
        ),
        Effect.NEW_CLUSTER,
    ] = ()
    """Environment variables of the driver and of every executor."""
    env_from: Annotated[tuple[EnvFromSource, ...], Field(max_length=20), Effect.NEW_CLUSTER] = ()
    """Secrets and ConfigMaps whose keys become environment variables of the driver and of every executor. Each item
    has exactly one of the fields."""
    memory: Annotated[Bytes, QuantityRange("512Mi", "512Mi or 2Gi", because="Spark refuses a smaller heap")] = (
        DRIVER_HEAP
    )
    """Heap of the driver's JVM, a quantity such as 1Gi. The pod gets more than that, for Python and the JVM itself, and
    with cluster.workers 0 for the Python workers of the tasks."""
    resources: ResourceRequirements | None = None
    """Compute resources of the driver's container. By default they follow from job.memory, and with cluster.workers 0
    from cluster.worker.cores too."""
    scratch_size: Annotated[QuantityText, QuantityRange("64Mi", "1Gi or 512Mi")] = "1Gi"
    """Size limit of the driver's scratch volume (/tmp), a quantity such as 4Gi. Kubernetes evicts a pod that writes
    more."""
    termination_grace_period_seconds: Annotated[int, Field(ge=5, le=3600)] = 60
    """Seconds that the driver has to finish and commit its batch when it is stopped. After that it is killed."""

    @property
    def code_config_map(self) -> str | None:
        """The ConfigMap that the code comes from, None for the image."""
        return self.code_from.config_map_name if self.code_from else None
