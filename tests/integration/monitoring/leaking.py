"""The leaking program and what runs beside its worker, with a Prometheus that scrapes both."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from gitops.alerts import rules
from harness.kubernetes.kubectl import Object
from harness.monitoring.prometheus import Prometheus
from harness.processes import free_port
from harness.waiting import eventually
from integration.monitoring.local import at

REPOSITORY: Final = Path(__file__).parents[3]
PLACE: Final = {"namespace": "shop", "name": "orders"}
ALERT: Final = 'ALERTS{alertname="FencepostGarbageCollection", alertstate="firing"}'


@dataclass(frozen=True, slots=True)
class Leak:
    """The program: its process, its log, and the ports of the driver's and the worker's metrics."""

    driver: subprocess.Popen[bytes]
    log: Path
    ports: Mapping[str, int]


@contextmanager
def leaking(folder: Path) -> Iterator[Leak]:
    """Run it until it ends, or the block does."""
    spark, ports = folder / "spark", {"driver": free_port(), "worker": free_port()}
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": f"{REPOSITORY / 'dev'}:{REPOSITORY / 'tests'}",  # Python workers work in another folder
    }
    program = [sys.executable, "-m", "integration.monitoring.leaks", str(spark), str(ports["driver"])]
    log = folder / "leaks.log"
    with log.open("wb") as output:
        driver = subprocess.Popen(program, env=environment, stdout=output, stderr=subprocess.STDOUT)
    beside = subprocess.Popen(
        [sys.executable, "-Im", "fencepost.worker", str(spark / "work")],
        env={**os.environ, "FENCEPOST_METRICS_PORT": str(ports["worker"])},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield Leak(driver, log, ports)
    finally:
        for process in (driver, beside):
            process.kill()
            process.wait()


def quick_rules() -> list[Object]:
    """Return the chart's rules with its bound for collections, which look seconds back where it looks minutes."""
    values = {"lookback.memory": "10s", "for": {"FencepostGarbageCollection": "5s"}}
    return rules({f"metrics.prometheusRule.{name}": value for name, value in values.items()})


@contextmanager
def scraped(folder: Path, leak: Leak, *, groups: Sequence[Mapping[str, Any]]) -> Iterator[Prometheus]:
    """Scrape both each second; `groups` are rules."""
    jobs = [
        {"job_name": pod, "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {**PLACE, "pod": pod}}]}
        for pod, port in leak.ports.items()
    ]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": list(groups)}))
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    with at(folder, {"global": every, "rule_files": ["rules.yaml"], "scrape_configs": jobs}) as found:
        yield found


def first(found: Prometheus, query: str) -> float:
    """Return the first moment at which a query had an answer, in seconds since 1970. Raises NotInTimeError.

    An answer of this second is found in the next one.
    """
    asked = f"min(min_over_time(timestamp({query})[10m:1s]))"
    (sample,) = eventually(f"{query} has had an answer", lambda: found.query(asked), seconds=10)
    return float(sample["value"][1])
