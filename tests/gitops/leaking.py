"""The departures transform with the mistakes that the alerts on memory are for; the module runs in a pipeline's pods.

Each mistake fills memory quickly, and continues slowly when hardly any is left: Prometheus sees it before the end.
"""

from __future__ import annotations

import importlib
import itertools
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from fencepost.memory_use import ContainerMemory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from fencepost.context import BatchContext

FULL: Final = 0.96
"""Share of the container's limit."""
MUCH, LITTLE = 24 << 20, 128 << 10
"""Bytes that a task keeps."""
PIECE: Final = 4 << 20
"""Bytes that the driver takes at a time, and gives back when its JVM wants them: the kernel is never faster."""
FULL_HEAP: Final = 0.7
"""Share of the heap: the rest is for Spark."""
NODES: Final = 200_000
"""Of a list, some 5 MB in small objects: a collection takes its time for each."""
EXECUTORS_SHARE: Final = 0.55
"""Of an executor's heap: with what Spark keeps there, the old generation is full."""
PROPERTY: Final = 144
"""Bytes of a system property with a short name: five small objects."""
KEPT: list[bytearray] = []
"""What this Python process never gives up."""
STARTED: list[threading.Thread] = []


def corrected(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Return the rows as the example does."""
    made: DataFrame = importlib.import_module("departures").transform(batch, context)
    return made


def growing(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Let the Python workers keep something of each task, as a cache without a bound does."""
    made = corrected(batch, context)
    return made.mapInArrow(_keep, made.schema)


def _keep(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    KEPT.append(bytearray(b"x") * (LITTLE if _share() > FULL else MUCH))
    yield from rows


def _share() -> float:
    here = ContainerMemory.here()
    return (here.unreclaimable or 0) / here.limit if here.limit else 1.0


def collecting(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Let the driver's Python keep what it collects, until its container is full."""
    _once(_collect)
    return corrected(batch, context)


def _collect() -> None:
    pieces: list[mmap.mmap] = []
    while True:
        here = ContainerMemory.here()
        missing = int(FULL * (here.limit or 0)) - (here.unreclaimable or 0)
        if missing > PIECE:
            pieces.append(mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            pieces[-1].write(b"x" * PIECE)
        elif missing < -PIECE and pieces:
            pieces.pop().close()
        time.sleep(0.02)


def spiralling(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Fill the driver's heap beside the batches, and keep replacing what is in it."""
    _once(_fill, batch.sparkSession._jvm)
    return corrected(batch, context)


def caching(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Let an executor's JVM keep small objects in a static map, and replace all of them with each batch."""
    spark = batch.sparkSession
    heap = int(str(spark.conf.get("spark.executor.memory")).removesuffix("m")) << 20
    keep = "java_method('java.lang.System', 'setProperty', concat('kept-', id), 'x')"
    properties = spark.range(0, int(EXECUTORS_SHARE * heap / PROPERTY), 1, 1)
    properties.selectExpr(keep).write.format("noop").mode("overwrite").save()
    return corrected(batch, context)


def _once(target: Callable[..., None], *given: Any) -> None:
    if not STARTED:
        STARTED.append(threading.Thread(target=target, args=given, daemon=True))
        STARTED[0].start()


def _fill(jvm: Any) -> None:
    heap, nodes = jvm.java.lang.Runtime.getRuntime(), jvm.java.util.Collections.nCopies(NODES, "")
    kept: list[Any] = []  # Py4J gives references up too slowly to make new ones all the time
    for turn in itertools.count():
        began = time.monotonic()
        if not kept or heap.totalMemory() - heap.freeMemory() < FULL_HEAP * heap.maxMemory():
            kept.append(jvm.java.util.concurrent.LinkedBlockingDeque())
            kept[-1].addAll(nodes)
        else:
            kept[turn % len(kept)].clear()
            kept[turn % len(kept)].addAll(nodes)
        time.sleep((time.monotonic() - began) / 2)  # a third of the time is left for batches and scrapes
