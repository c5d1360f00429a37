"""Which Spark settings a spec cannot set: those that Fencepost sets itself, and those that have no effect here.

A setting is honoured or refused with a remedy, never ignored. The driver's JVM starts before Spark reads its settings,
in a pod without access to package repositories; and Spark runs standalone, not on YARN nor as its own Kubernetes pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

RESERVED_KEYS: Final = frozenset(
    {
        "spark.app.name",
        "spark.blockManager.port",
        "spark.driver.bindAddress",
        "spark.driver.blockManager.port",
        "spark.driver.host",
        "spark.driver.port",
        "spark.master",
        "spark.python.daemon.module",
        "spark.ui.killEnabled",
    }
)
RESERVED_PREFIXES: Final = (
    "spark.authenticate",
    "spark.deploy.recovery",
    "spark.master.rest.",
    "spark.network.crypto.",
    "spark.submit.",
)
_SHUFFLE: Final = "spark.sql.shuffle.partitions"
RESERVED_WITH_STATE: Final = (
    "spark.hadoop.dfs.",
    "spark.hadoop.file.bytes-per-checksum",
    "spark.hadoop.fs.webhdfs.",
    _SHUFFLE,
    "spark.sql.adaptive.streaming.",
    "spark.sql.streaming.checkpoint",
    "spark.sql.streaming.minBatchesToRetain",
    "spark.sql.streaming.offsetLog.",
    "spark.sql.streaming.stateStore.",
)
"""Prefixes of what is reserved in stateful pipelines alone: where and how the state is stored, and its partitions."""

_JARS: Final = (
    "put the jar into the image, and its path into spark.driver.extraClassPath and spark.executor.extraClassPath"
)
_WORKER_MEMORY: Final = "set spec.cluster.worker.memory: 60 % of it, or all but 512Mi, is the executor's heap"
_DRIVER_MEMORY: Final = "set spec.job.memory, the heap of the driver's JVM"

WITHOUT_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.api.mode": "remove it: the transform runs in the driver, not over Spark Connect",
        "spark.driver.extraLibraryPath": "set LD_LIBRARY_PATH in spec.job.env",
        "spark.driver.memoryOverhead": "set spec.job.resources",
        "spark.driver.memoryOverheadFactor": "set spec.job.resources",
        "spark.driver.supervise": "remove it: the operator restarts the driver",
        "spark.driver.userClassPathFirst": "remove it, and use spark.driver.extraClassPath",
        "spark.executor.instances": "set spec.cluster.workers",
        "spark.executor.memoryOverhead": _WORKER_MEMORY,
        "spark.executor.memoryOverheadFactor": _WORKER_MEMORY,
        "spark.jars": _JARS,
        "spark.pyspark.driver.python": "remove it: the driver runs the image's Python",
        "spark.pyspark.python": "remove it: the workers run the image's Python",
        "spark.remote": "remove it: the transform runs in the driver, not over Spark Connect",
    }
)
"""Settings that Spark reads too early, or not at all in a standalone cluster; with what to do instead."""
PREFIXES_WITHOUT_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.connect.": "remove it: the transform runs in the driver, not over Spark Connect",
        "spark.jars.": _JARS,
        "spark.kubernetes.": "remove it: Spark runs standalone; pods are described by spec.job and spec.cluster",
        "spark.yarn.": "remove it: Spark runs standalone",
    }
)
FROM_THE_SPEC: Final[Mapping[str, str]] = MappingProxyType({"spark.driver.memory": _DRIVER_MEMORY})
"""Settings that the operator derives from fields of the spec, for pods of a fitting size."""
DRIVER_JAVA_OPTIONS: Final = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
"""Settings with options for the driver's JVM; the driver starts it with them."""
DRIVER_CLASS_PATH: Final = "spark.driver.extraClassPath"
EXECUTOR_CLASS_PATH: Final = "spark.executor.extraClassPath"
"""Settings with an author's jars; they come after Spark's own, which the image's class archive requires."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A setting that is refused: its key, what is wrong, what to do."""

    key: str
    problem: str
    remedy: str


def problems(conf: Mapping[str, str], *, has_state: bool = False) -> Iterator[Problem]:
    """Yield what is wrong with the settings of a spec, by key; `has_state` says that the pipeline is stateful."""
    for key in sorted(conf):
        if is_reserved(key):
            yield Problem(key, "is set by Fencepost itself", "remove it")
        elif has_state and key.startswith(RESERVED_WITH_STATE):
            remedy = "remove it; spec.state.partitions is the number" if key.startswith(_SHUFFLE) else "remove it"
            yield Problem(key, "is set by Fencepost itself in a stateful pipeline", remedy)
        elif key in FROM_THE_SPEC:
            yield Problem(key, "follows from the spec", FROM_THE_SPEC[key])
    yield from unsupported(conf)


def unsupported(conf: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the settings that a run cannot honour, by key."""
    for key in sorted(conf):
        remedy = WITHOUT_EFFECT.get(key) or next(
            (found for prefix, found in PREFIXES_WITHOUT_EFFECT.items() if key.startswith(prefix)), None
        )
        if remedy is not None:
            yield Problem(key, "has no effect in a pipeline", remedy)
        elif key in DRIVER_JAVA_OPTIONS and any(word.startswith("-Xmx") for word in conf[key].split()):
            yield Problem(key, "sets the heap size with -Xmx", _DRIVER_MEMORY)


def is_reserved(key: str) -> bool:
    """Return whether Fencepost alone sets a Spark setting."""
    return key in RESERVED_KEYS or key.startswith(RESERVED_PREFIXES)
