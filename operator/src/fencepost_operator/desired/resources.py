"""Compute resources and how memory is shared out; all sizes in bytes."""

from __future__ import annotations

from typing import Any, Final

from fencepost_operator.api import Spec
from fencepost_operator.api.quantities import MEBIBYTE, mebibytes
from fencepost_operator.api.spec.cluster import MasterSpec, WorkerSpec
from fencepost_operator.api.spec.pods import ResourceRequirements

MASTER_MEMORY: Final = 448 * MEBIBYTE
"""A pod of Spark's master: its heap, and what the JVM takes beside it."""
DRIVER_OVERHEAD: Final = 384 * MEBIBYTE
"""Beside the driver's heap: its Python with librdkafka and Arrow, metaspace, threads, the JVM's own memory."""
WORKER_OVERHEAD: Final = 512 * MEBIBYTE
WORKER_OVERHEAD_SHARE: Final = 0.4
"""Beside an executor's heap: its Python workers, off-heap buffers and the worker's daemon; the larger of the two."""
TASK_OVERHEAD: Final = 256 * MEBIBYTE
"""Beside all that, for each task of a driver without workers: a Python worker with librdkafka, Arrow and the sinks."""
LOCAL_STATE: Final = 128 * MEBIBYTE
"""Of RocksDB in the pod of a stateful driver without workers."""
STATE_SHARE: Final = 8
"""Of a worker's memory, the part of RocksDB. Without a bound 8 partitions took up to 271 MiB, and that grows with them;
within 128 MiB they took a quarter longer per batch of 200,000 new keys, so a worker of 2Gi gives 256 MiB."""
SMALLEST_HEAP: Final = 480 * MEBIBYTE
"""Spark refuses to start with less than 450 MiB of what the JVM says it has: the heap without one survivor space, which
is up to a 24th of the heap. With 450 MiB each executor ended at once."""


def executor_heap(worker_memory: int, *, is_stateful: bool = False) -> int:
    """Return how much of a worker pod's memory is for the executor's heap."""
    heap = worker_memory - max(WORKER_OVERHEAD, int(worker_memory * WORKER_OVERHEAD_SHARE))
    return heap - state_memory(worker_memory) if is_stateful else heap


def state_memory(worker_memory: int) -> int:
    """Return how much of a stateful pipeline's worker pod is for RocksDB, outside of the heap."""
    return min(worker_memory // STATE_SHARE, executor_heap(worker_memory) - SMALLEST_HEAP)


def driver_memory(heap: int) -> int:
    """Return the memory of the driver's pod without tasks: its heap and what comes on top of it."""
    return heap + max(DRIVER_OVERHEAD, heap // 4)


def tasks_memory(spec: Spec) -> int:
    """Return what the tasks take of the driver's pod, outside of its heap: nothing where workers run them."""
    if spec.cluster.exists:
        return 0
    return spec.cluster.worker.cores * TASK_OVERHEAD + (LOCAL_STATE if spec.stateful else 0)


def driver_resources(spec: Spec) -> dict[str, Any]:
    """Return requests and limits of the driver's container."""
    cores = 1 if spec.cluster.exists else spec.cluster.worker.cores
    memory = driver_memory(spec.job.memory) + tasks_memory(spec)
    return resources(spec.job.resources, cpu=f"{cores * 200}m", memory=memory)


def worker_resources(worker: WorkerSpec) -> dict[str, Any]:
    """Return requests and limits of a worker's container."""
    return resources(worker.resources, cpu=f"{worker.cores * 500}m", memory=worker.memory)


def master_resources(master: MasterSpec) -> dict[str, Any]:
    """Return requests and limits of the master's container."""
    return resources(master.resources, cpu="100m", memory=MASTER_MEMORY)


def resources(given: ResourceRequirements | None, *, cpu: str, memory: int) -> dict[str, Any]:
    """Return requests and limits: what was given, completed so that memory is both requested and limited.

    CPU is requested and never limited: a throttled JVM misses heartbeats.
    """
    requests = dict(given.requests or {}) if given else {}
    limits = dict(given.limits or {}) if given else {}
    size = requests.get("memory", limits.get("memory", mebibytes(memory)))
    return {
        "requests": {"cpu": limits.get("cpu", cpu), "memory": size, **requests},
        "limits": {"memory": size, **limits},
    }
