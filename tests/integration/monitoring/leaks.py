"""A program: a real Spark whose Python worker and whose driver's heap grow until Java gives up, with their metrics.

usage: leaks.py FOLDER PORT — FOLDER becomes SPARK_HOME; the driver's metrics are at PORT.

It ends when its JVM does, some minutes later.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fencepost.contract import Variable
from fencepost.driver.reporting import metrics_endpoint
from fencepost.driver.reporting.run_metrics import RunMetrics
from fencepost.spark import session
from fencepost.spark.jvm import gateway

KEPT: list[bytearray] = []
"""What a Python worker keeps from task to task, as an author's cache without a bound does."""
BEGUN = time.monotonic()
OF_WORKER = 6 << 20
OF_HEAP, OF_FULL_HEAP = 12 << 20, 512 << 10
"""Bytes that are leaked in a second, however few tasks a busy machine does in it."""
AT_ONCE = 2.0
"""Seconds whose bytes are leaked at a time, at most."""
FULL = 0.9
"""Share of the heap beyond which it grows by little: the JVM collects ever more often before it gives up."""


def task(rows: Iterator[Any]) -> Iterator[Any]:
    """Keep more of memory."""
    due = int(OF_WORKER * (time.monotonic() - BEGUN))
    KEPT.append(bytearray(b"x") * (due - sum(map(len, KEPT))))
    yield from rows


def main(folder: Path, port: str) -> None:
    """Leak on both sides, a little per second."""
    folder.mkdir(exist_ok=True)
    for part in gateway.spark_home().iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part)
    os.environ |= {"SPARK_HOME": str(folder), "SPARK_SCALA_VERSION": "2.13"}
    jvm = gateway.Gateway.start(memory="512m", options=["-XX:TieredStopAtLevel=1"])
    jvm.connect(300)
    conf = {
        "spark.master": "local-cluster[1,1,512]",
        "spark.app.name": "leaks",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    spark = session.create({**session.DEFAULTS, **conf})
    metrics_endpoint.start(RunMetrics([]), spark, {Variable.METRICS_PORT: port}, epoch=1, jvm_process=jvm.process.pid)
    java: Any = spark._jvm
    kept, heap = java.java.util.ArrayList(), java.java.lang.Runtime.getRuntime()
    last = time.monotonic()
    while True:
        passed, last = min(AT_ONCE, time.monotonic() - last), time.monotonic()
        is_full = heap.totalMemory() - heap.freeMemory() > FULL * heap.maxMemory()
        kept.add(java.java.nio.ByteBuffer.allocate(int(passed * (OF_FULL_HEAP if is_full else OF_HEAP))))
        spark.range(1).mapInArrow(task, "id long").collect()


if __name__ == "__main__":
    # By its name, so that Python workers import the module and keep what it holds.
    from integration.monitoring import leaks

    leaks.main(Path(sys.argv[1]), sys.argv[2])
