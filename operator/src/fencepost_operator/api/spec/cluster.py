"""`spec.cluster`: the Spark cluster, and where all the pipeline's pods run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field

from fencepost.contract import spark_conf
from fencepost_operator.api.checks import DurationRange, Matching, QuantityRange, Rule
from fencepost_operator.api.effects import Effect
from fencepost_operator.api.fields import AnnotationKey, Bytes, Image, Line, ObjectName, QuantityText, Seconds
from fencepost_operator.api.model import Model
from fencepost_operator.api.spec.affinity import Affinity
from fencepost_operator.api.spec.pods import ResourceRequirements, Toleration

WORKER_MEMORY: Final = 2 * 1024 * 1024 * 1024
MOST_WORKERS: Final = 100

_KEYS: Final = sorted(spark_conf.RESERVED_KEYS)
_PREFIXES: Final = spark_conf.RESERVED_PREFIXES
_RESERVED: Final = Rule(
    f"self.all(k, !(k in {_KEYS}) && {' && '.join(f'!k.startsWith({prefix!r})' for prefix in _PREFIXES)})",
    "remove the reserved key; Fencepost sets"
    f" {', '.join([*_KEYS, *(f'{prefix}*' for prefix in _PREFIXES[:-1])])} and {_PREFIXES[-1]}* itself",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec(Model):
    """A Spark worker. All workers are equal."""

    cores: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of tasks that a worker runs at the same time; without workers, that the driver's pod runs."""
    memory: Annotated[
        Bytes,
        QuantityRange(
            "1Gi",
            "1536Mi or 4Gi",
            because="an executor's smallest heap is 450Mi; Python and the daemon come on top",
        ),
    ] = WORKER_MEMORY
    """Memory of the pod, a quantity such as 2Gi: the executor's heap, its Python workers and the worker daemon
    together."""
    scratch_size: Annotated[QuantityText, QuantityRange("64Mi", "2Gi or 512Mi")] = "2Gi"
    """Size limit of the worker's scratch volume, which holds shuffle files and spilled data, a quantity such as 8Gi.
    Kubernetes evicts a pod that writes more."""
    resources: ResourceRequirements | None = None
    """Compute resources of the worker's container. By default they follow from cores and memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSpec(Model):
    """Where the master stores its workers and applications, so that a restart of its container does not end the run.
    Without storageClassName that lasts as long as the master's pod: a run whose master's pod is replaced finishes its
    batch and continues on a new Spark cluster.
    """

    size: Annotated[QuantityText, QuantityRange("1Mi", "64Mi or 1Gi")] = "64Mi"
    """Limit of the folder, or size of the volume, a quantity such as 128Mi."""
    storage_class_name: ObjectName | None = None
    """StorageClass of a volume that outlives the master's pod, so that a drain of its node does not end the run. It
    costs the seconds that the volume takes with each new Spark cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSpec(Model):
    """The Spark master."""

    resources: ResourceRequirements | None = None
    """Compute resources of the master's container."""
    storage: StorageSpec = field(default_factory=StorageSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleSpec(Model):
    """The operator chooses the number of workers: as few as keep the age of the oldest unread record, the time lag,
    below a target. status.autoscale has the number and the reason.
    """

    MARKS = (
        Rule(
            "self.minWorkers <= self.maxWorkers",
            "must not be more than maxWorkers; lower it",
            field_path=".minWorkers",
        ),
    )

    min_workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] = 1
    """Least number of workers. A new pipeline begins with it. A batch has at most the bytes that so many workers have
    room for, unless source.kafka.maxBytesPerBatch says otherwise; a change of that takes effect with the next run."""
    max_workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)]
    """Most workers."""
    target_time_lag: Annotated[Seconds, DurationRange("5s", "24h", "30s or 10m")] = 30.0
    """Age that the oldest record may have before it is committed, such as 30s. Choose at least three times
    source.kafka.targetBatchDuration: a record waits for the batch before its own, and for its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec(Model):
    """The Spark standalone cluster of this pipeline, and the scheduling of all its pods."""

    MARKS = (
        Rule(
            "!has(self.autoscale) || self.workers == 1",
            "must be 1 or absent beside autoscale, which chooses the number of workers; remove workers or autoscale",
            field_path=".workers",
        ),
    )

    workers: Annotated[int, Field(ge=0, le=MOST_WORKERS), Effect.AT_ONCE] = 1
    """Number of Spark workers. `kubectl scale spl/NAME --replicas N` sets it. Scaling does not restart the driver,
    except from and to 0: with 0, the driver's pod runs the tasks itself, worker.cores of them at the same time, without
    a Spark cluster. job.memory and job.resources size that pod."""
    autoscale: Annotated[AutoscaleSpec | None, Effect.AT_ONCE] = None
    image: Image | None = None
    """Image of master and workers when it is not job.image. It must hold the author's code and the same Spark and
    Python as job.image."""
    worker: WorkerSpec = field(default_factory=WorkerSpec)
    master: MasterSpec = field(default_factory=MasterSpec)
    spark_conf: Annotated[
        Mapping[
            Annotated[
                str,
                Field(max_length=200),
                Matching(
                    "spark[.][A-Za-z0-9._-]+",
                    "a Spark setting: spark. and letters, digits, dots, dashes and underscores",
                ),
            ],
            Annotated[Line, Field(max_length=4096)],
        ],
        Field(max_length=200),
        _RESERVED,
    ] = field(default_factory=dict)
    """Spark settings, such as spark.sql.shuffle.partitions. Values are strings. Settings that the fence, the ports or
    the authentication depend on are reserved and are refused, and with job.mode Stateful those of the stored state."""
    node_selector: Annotated[
        Mapping[
            Annotated[
                str,
                Field(max_length=317),
                Matching("[A-Za-z0-9._/-]+", "the name of a node label, such as kubernetes.io/arch"),
            ],
            Annotated[Line, Field(max_length=63)],
        ],
        Field(max_length=50),
    ] = field(default_factory=dict)
    """Node labels that every pod of the pipeline requires."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=50)] = ()
    """Tolerations of every pod of the pipeline."""
    affinity: Affinity | None = None
    priority_class_name: ObjectName | None = None
    """PriorityClass of every pod of the pipeline."""
    service_account_name: ObjectName | None = None
    """ServiceAccount of every pod of the pipeline, in its namespace, such as one with an identity of a cloud. Its token
    for the API server is not mounted. Defaults to the account default."""
    pod_annotations: Annotated[
        Mapping[AnnotationKey, Annotated[Line, Field(max_length=1024)]], Field(max_length=32)
    ] = field(default_factory=dict)
    """Annotations of every pod of the pipeline, for what reads them in the cluster, such as a service mesh. Not those
    of kubernetes.io, k8s.io and fencepost.dev, apart from cluster-autoscaler.kubernetes.io/safe-to-evict."""

    @property
    def exists(self) -> bool:
        """Whether there is a Spark cluster: without workers the driver's pod runs the tasks itself."""
        return self.workers > 0

    @property
    def fewest_workers(self) -> int:
        """The least number of workers that a run may come to have."""
        return self.autoscale.min_workers if self.autoscale else self.workers

    @property
    def most_workers(self) -> int:
        """The largest number of workers that a run may come to have."""
        return self.autoscale.max_workers if self.autoscale else self.workers
