"""A program: makes executors and Python workers of a real Spark cluster fail, and prints what the driver makes of it.

Spark's local-cluster mode has a master, a worker and executors in processes of their own.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fencepost.driver.crash_loop import CrashLoop
from fencepost.spark import failures, session
from fencepost.spark.jvm import gateway
from fencepost.spark.jvm.log import JvmLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTOR: Final = f"{gateway.EXIT_WITHOUT_MEMORY} -XX:TieredStopAtLevel=1"
REFUSED: Final = "-Xms900g"
LARGEST: Final = 4 << 30
SCALA: Final = "2.13"


def start(options: str) -> SparkSession:
    os.environ["SPARK_HOME"] = str(gateway.spark_home())
    os.environ["SPARK_SCALA_VERSION"] = SCALA  # set by spark-class, which does not start this JVM
    jvm = gateway.Gateway.start(memory="512m", options=["-XX:TieredStopAtLevel=1"])
    jvm.connect(300)
    conf = {
        **session.DEFAULTS,
        "spark.master": "local-cluster[1,1,512]",
        "spark.app.name": "executor-failures",
        "spark.executor.memory": "512m",
        "spark.python.daemon.module": "fencepost.spark.worker_daemon",
        "spark.executor.extraJavaOptions": options,
        "spark.task.maxFailures": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    made = session.create(conf)
    made._gateway_of_the_test = jvm  # type: ignore[attr-defined]
    return made


def of_kernel(_: Iterator[Any]) -> Iterator[Any]:
    """End as the kernel's OOM killer ends a process."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield from ()


def of_limit(_: Iterator[Any]) -> Iterator[Any]:
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST, LARGEST))
    kept = [bytes(LARGEST) for _ in range(2)]
    yield from kept


def of_crash(_: Iterator[Any]) -> Iterator[Any]:
    os.kill(os.getpid(), signal.SIGSEGV)
    yield from ()


def of_executor(_: Iterator[Any]) -> Iterator[Any]:
    """Kill the executor's JVM, the parent of the daemon that forked this worker."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
    os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
    time.sleep(60)
    yield from ()


def failure_of(job: Callable[[], object]) -> dict[str, str]:
    """Return what the driver says of a job that fails."""
    try:
        job()
    except Exception as error:  # noqa: BLE001 - whatever Spark raises
        found = failures.of_transform(error, is_warm_up=False)
        return {"kind": type(found).__name__, "reason": found.reason, "message": found.message}
    return {"kind": "none"}


def memory(spark: SparkSession) -> dict[str, dict[str, str]]:
    spark.range(1).collect()

    def of_worker(function: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[], object]:
        return lambda: spark.range(1).mapInArrow(function, "id long").collect()

    found = {name: failure_of(of_worker(job)) for name, job in WORKERS.items()}
    found["heap"] = failure_of(
        lambda: spark.range(1).selectExpr("length(repeat(cast(id as string), 2000000000))").collect()
    )
    found["killed"] = failure_of(of_worker(of_executor))
    return found


WORKERS: Final = {"kernel": of_kernel, "limit": of_limit, "crash": of_crash}


def loop(spark: SparkSession) -> dict[str, dict[str, str]]:
    log, judge, lines = JvmLog(spark), CrashLoop(1), 0
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        read = log.read()
        lines += len(read)
        if (found := judge.see(read)) is not None:
            return {"loop": {"kind": type(found).__name__, "reason": found.reason, "message": found.message}}
        time.sleep(0.5)
    return {"loop": {"kind": "none", "lines": str(lines)}}


if __name__ == "__main__":
    CASE = sys.argv[1]
    print(json.dumps(memory(start(EXECUTOR)) if CASE == "memory" else loop(start(REFUSED))))
    sys.stdout.flush()
    os._exit(0)
