"""Each query of the dashboards on a real Prometheus, over what the operator's, a driver's and a worker's code serve.

The figures grow while Prometheus scrapes. What Spark's daemons serve was recorded from Spark 4.3.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fencepost import metrics_server
from fencepost.batch import SinkWork
from fencepost.driver.reporting.commit_report import Report
from fencepost.driver.reporting.exposition import DriverCollector
from fencepost.driver.reporting.exposition import exposition as of_driver
from fencepost.driver.reporting.run_metrics import RunMetrics
from fencepost.fence import FenceRow
from fencepost.memory_use import ContainerMemory
from fencepost.spark.jvm.metrics import Area, Collections, Executor, JvmMetrics
from fencepost.worker.exposition import Counted, WorkerCollector
from fencepost.worker.exposition import exposition as of_worker
from fencepost.worker.processes import processes
from fencepost_operator.api import Condition, FailureStatus, ObjectKey, Reason, State, Status
from fencepost_operator.observation import Backlog
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from generators.panels import BOARDS
from gitops.dashboards import figures, queries
from harness.monitoring.prometheus import Prometheus
from harness.waiting import eventually
from integration.monitoring.local import at

pytestmark = pytest.mark.integration

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ObjectKey("flights", "departures")
QUERIES = list(queries(KEY.namespace, KEY.name, interval="10s"))
PLACE = {"namespace": KEY.namespace, "name": KEY.name}
HERE = Path(__file__).parent


class Fleet:
    """A pipeline at work, as its operator, its driver and one of its workers count it."""

    def __init__(self, work: Path) -> None:
        self.ticks = 0
        self.operator, self.figures, self.counted = PrometheusMetrics(), RunMetrics(["rows"]), Counted()
        self.operator.leads(range(1), lambda _shard: True, is_sure=lambda: True)
        memory = ContainerMemory(used=1 << 29, unreclaimable=1 << 28, limit=1 << 30)
        self.servers: dict[str, Callable[[], bytes]] = {
            "operator": self.operator.exposition,
            "driver": of_driver(
                DriverCollector(self.figures, epoch=3, jvm=self.jvm, jvm_process=1, memory=lambda: memory)
            ),
            "worker": of_worker(WorkerCollector(self.counted, lambda: processes(work), memory=lambda: memory)),
            "spark-master": (HERE / "spark-master.prom").read_bytes,
            "spark-worker": (HERE / "spark-worker.prom").read_bytes,
        }

    def jvm(self) -> JvmMetrics:
        spent = Collections(count=self.ticks, seconds=self.ticks / 10)
        area = Area(used=self.ticks << 20, committed=1 << 29, limit=1 << 29)
        executor = Executor(
            id="0", host="10.0.0.1", heap_peak=self.ticks << 20, collections={"minor": spent, "major": spent},
            tasks_completed=self.ticks, tasks_failed=self.ticks, task_seconds=float(self.ticks),
        )  # fmt: skip
        return JvmMetrics(
            areas={"heap": area}, pools={"Metaspace": area}, collections={"Copy": spent}, threads=1, classes=1,
            executors=(executor,), executor_count=1,
        )  # fmt: skip

    def tick(self) -> None:
        self.ticks += 1
        ready = Condition(
            type="Ready", status="True", reason="Streaming", message="", last_transition_time=BEGUN,
            observed_generation=1,
        )  # fmt: skip
        failure = FailureStatus(count=1, epoch=1, at=BEGUN, reason=Reason.KILLED, message="", remedy="")
        status = Status(
            state=State.RUNNING, conditions=(ready,), epoch=3, restarts=self.ticks, failure=failure, lag=self.ticks
        )
        backlog = Backlog(time_lag=1.0, time_to_loss=60.0, lags={"t/0": 1})
        self.operator.heartbeat(KEY, datetime.now(UTC))
        self.operator.observed(KEY, status, {"t/0": self.ticks}, backlog)
        at = BEGUN + timedelta(seconds=self.ticks)
        self.operator.committed(KEY, FenceRow(pipeline="p", owner="o", committed_at=at, records=10, duration_ms=200))
        self.operator.reconciled(KEY, outcome="steady", seconds=0.1)
        self.operator.helm_took("install", 1.0)
        report = Report(
            epoch=3, version=self.ticks, records=10, size=100, limit=1000, lag=1,
            phases={"plan": 1, "record": 2, "write": 100, "transform": 10, "job": 90, "commit": 5, "total": 110},
            work={"rows": SinkWork(rows=10, size=80, reading=0.1, writing=0.2)},
        )  # fmt: skip
        self.figures.committed(report)
        self.figures.pausing(lambda _: None)(0.0)
        self.counted.started += 1


@contextmanager
def at_work(fleet: Fleet) -> Iterator[None]:
    """Let the figures grow."""
    done = threading.Event()

    def grow() -> None:
        while not done.wait(0.2):
            fleet.tick()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def scraped(fleet: Fleet, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes all of it, with the labels that the chart's monitors give."""
    jobs = []
    for name, exposition in fleet.servers.items():
        port = metrics_server.serve(exposition, address="127.0.0.1", port=0)
        component = name.removeprefix("spark-")
        labels = {"pod": f"{name}-0"} | ({**PLACE, "component": component} if name != "operator" else {})
        scrape = {"targets": [f"127.0.0.1:{port}"], "labels": labels}
        jobs.append({"job_name": name, "honor_labels": name == "operator", "static_configs": [scrape]})
    with at(folder, {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}) as found:
        yield found


def test_each_query_of_the_dashboards_answers_with_figures(tmp_path: Path) -> None:
    work = tmp_path / "work"
    folder = work / "app-20260101120000-0000" / "1"
    folder.mkdir(parents=True)
    fleet = Fleet(work)
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=folder, stdin=subprocess.PIPE) as python:
        with at_work(fleet), scraped(fleet, tmp_path) as found:
            eventually(
                "all are scraped for a while",
                lambda: len(found.query("count_over_time(up[1m]) > 5")) == len(fleet.servers),
                seconds=60,
                pause=0.5,
            )
            down = [sample["metric"]["job"] for sample in found.query("up == 0")]
            empty = [place for place, query in QUERIES if not figures(found, query)]
        python.communicate(b"\n")
    assert (down, empty) == ([], [])


def test_no_query_is_left_out() -> None:
    of_panels = [len(panel.queries) for board in BOARDS for panels in board.rows.values() for panel in panels]
    assert len(QUERIES) == sum(of_panels) > 0
