"""Serves the driver's metrics. A port that is taken, or any other mistake here, costs a warning and never the run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from fencepost import metrics_server
from fencepost.driver.reporting.run_metrics import RunMetrics
from fencepost.driver.reporting.sampling import Sampler
from fencepost.driver.reporting.telemetry.outbox import Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fencepost.spark.jvm.metrics import JvmBeans, JvmMetrics

log = logging.getLogger(__name__)

HEAD_START: Final = 2.0
"""Seconds for the first batch: the library's import takes 0.1 s of CPU time."""


def start(
    run_metrics: RunMetrics,
    spark: SparkSession,
    variables: Mapping[str, str],
    *,
    epoch: int,
    jvm_process: int | None,
    sent: Callable[[], Mapping[str, Sent]] = dict,
) -> None:
    """Serve from a thread of its own, once the loop is under way."""
    port, address = metrics_server.port_of(variables), metrics_server.address_of(variables)

    def serve() -> None:
        time.sleep(HEAD_START)
        try:
            from fencepost.driver.reporting.exposition import DriverCollector, exposition  # noqa: PLC0415

            sampler = Sampler("jvm figures", _reader(spark))
            collector = DriverCollector(
                run_metrics, epoch=epoch, jvm=sampler.latest, jvm_process=jvm_process, sent=sent
            )
            metrics_server.serve(exposition(collector), address=address, port=port)
        except Exception as error:  # noqa: BLE001 - an author's image may lack the library
            log.warning("no metrics: %s", error)

    if port:
        threading.Thread(target=serve, name="metrics", daemon=True).start()


def _reader(spark: SparkSession) -> Callable[[], JvmMetrics]:
    """Return what reads the JVM's figures; the thread that calls it looks the beans up, once."""

    @cache
    def beans() -> JvmBeans:
        from fencepost.spark.jvm.metrics import JvmBeans  # noqa: PLC0415 - not beside the first batch

        return JvmBeans(spark)

    return lambda: beans().read()
