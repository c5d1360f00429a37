"""One Spark session for the tests of a module, made as a run makes it: our own gateway, local mode, two cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fakes.driver_configs import USUAL
from fencepost.spark import session
from fencepost.spark.jvm.gateway import Gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = replace(
    USUAL,
    spark_conf={
        "spark.executor.heartbeatInterval": "1s",
        # In local mode the JVM ends with its executor: a busy machine must not count as a lost driver.
        "spark.executor.heartbeat.maxFailures": "600",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    },
)

JVMS: list[Gateway] = []
"""Kept: a JVM ends when its standard input closes, and PySpark stays connected to it."""


def connect_jvm() -> None:
    """Connect PySpark with a JVM; another module's serves as well when one runs already."""
    from pyspark import SparkContext  # noqa: PLC0415 - costs a second, also for a run of other tests

    if SparkContext._gateway is None:
        jvm = Gateway.start(memory="512m", options=["-XX:TieredStopAtLevel=1"])
        jvm.connect(300)
        JVMS.append(jvm)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """The session."""
    connect_jvm()
    made = session.create(session.settings(CONFIG, {}))
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()
