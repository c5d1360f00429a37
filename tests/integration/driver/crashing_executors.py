"""A program: a real Spark master and worker start executors that crash at once, until a number of them has.

usage: crashing_executors.py FOLDER COUNT — FOLDER becomes SPARK_HOME, so that the worker's folder is FOLDER/work.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from fencepost.spark import session
from fencepost.spark.jvm import gateway
from integration.driver.executor_failures import REFUSED, SCALA


def main(folder: Path, count: int) -> None:
    """Start the application, and wait for the executor with that number."""
    real = gateway.spark_home()
    folder.mkdir(exist_ok=True)
    for part in real.iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part)
    os.environ |= {"SPARK_HOME": str(folder), "SPARK_SCALA_VERSION": SCALA}
    jvm = gateway.Gateway.start(memory="512m", options=["-XX:TieredStopAtLevel=1"])
    jvm.connect(300)
    made = session.create(
        {
            **session.DEFAULTS,
            "spark.master": "local-cluster[1,1,512]",
            "spark.app.name": "crashing-executors",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": REFUSED,
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    )
    deadline = time.monotonic() + 2 * count
    while newest(folder / "work") < count and time.monotonic() < deadline:
        time.sleep(0.1)
    print(newest(folder / "work"))
    made.stop()


def newest(work: Path) -> int:
    """Return the largest number of an executor that has a folder."""
    return max((int(path.name) for path in work.glob("app-*/*") if path.name.isdecimal()), default=-1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
