"""A small local Spark session for tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    # A test's batch is small: compiling a query takes longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextmanager
def local_session(settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start Spark in this process's own JVM, and stop it after the block; `settings` take precedence."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - costs a second

    builder = SparkSession.builder.master("local[2]").appName("fencepost-tests")
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    # Workers import the author's packages. The `python3` of the PATH, which PySpark takes otherwise, may lack them.
    session.sparkContext.pythonExec = sys.executable
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
