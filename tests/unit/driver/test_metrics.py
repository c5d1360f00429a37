"""The driver's metrics: what a scrape shows of the loop's own reports, and what a scrape can never do to a run."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fencepost import metrics_server
from fencepost.batch import EventTime, SinkWork
from fencepost.contract import METRICS_PORT
from fencepost.driver.reporting import run_metrics as counted
from fencepost.driver.reporting.commit_report import Report, StateSize
from fencepost.driver.reporting.exposition import DriverCollector, exposition
from fencepost.driver.reporting.run_metrics import RunMetrics
from fencepost.driver.reporting.sampling import Sampler
from fencepost.memory_use import ContainerMemory
from fencepost.spark.jvm.metrics import Area, Collections, Executor, JvmMetrics
from present import present

REPORT = Report(
    epoch=7, version=12, records=1000, size=20_000, limit=5000, lag=3, clock_skew_ms=-20,
    work={
        "orders": SinkWork(rows=900, size=7_000, reading=0.5, writing=1.5, retries=3),
        "not in the spec": SinkWork(rows=1),
    },
    phases={"plan": 2, "record": 5, "write": 400, "transform": 30, "job": 350, "commit": 8, "total": 420, "new": 1},
)  # fmt: skip
JVM = JvmMetrics(
    areas={"heap": Area(used=10, committed=20, limit=30), "nonheap": Area(used=1, committed=2, limit=None)},
    pools={"Metaspace": Area(used=5, committed=6, limit=None)},
    collections={"Copy": Collections(count=4, seconds=0.25)},
    threads=40,
    classes=9000,
    executors=(
        Executor(
            id="3", host="10.0.0.7", heap_peak=100, collections={"major": Collections(count=2, seconds=3.5)},
            tasks_completed=8, tasks_failed=1, task_seconds=6.0,
        ),
    ),
    executor_count=80,
)  # fmt: skip


UNKNOWN = ContainerMemory(used=None, unreclaimable=None, limit=None)


def samples(text: bytes) -> dict[str, float]:
    """The samples that our own code makes, as 'name{label="value"}'."""
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def scrape(
    run_metrics: RunMetrics, jvm: JvmMetrics | None = None, memory: ContainerMemory = UNKNOWN
) -> dict[str, float]:
    collector = DriverCollector(run_metrics, epoch=7, jvm=lambda: jvm, jvm_process=None, memory=lambda: memory)
    return samples(exposition(collector)())


def test_a_scrape_shows_what_the_loop_reported() -> None:
    run_metrics = RunMetrics(["orders", "idle", "topic"], uncounted=["topic"])
    run_metrics.committed(REPORT)
    run_metrics.committed(
        replace(
            REPORT,
            version=13,
            records=1,
            lag=None,
            dead_letter="t/0@5",
            work={},
            phases={"total": 9},
            event_time=EventTime(watermark=1500, late_rows=3),
            state=StateSize(used=5, room=9),
        )
    )
    run_metrics.pausing(lambda _: None)(0.25)
    found = scrape(run_metrics)
    expected = {
        "fencepost_driver_epoch": 7,
        "fencepost_driver_fence_version": 13,
        "fencepost_driver_batches_total": 2,
        "fencepost_driver_records_total": 1001,
        "fencepost_driver_read_bytes_total": 40_000,
        "fencepost_driver_dead_letters_total": 1,
        "fencepost_driver_late_rows_total": 3,
        "fencepost_driver_watermark_timestamp_seconds": 1.5,
        "fencepost_driver_state_bytes": 5,
        "fencepost_driver_state_max_bytes": 9,
        "fencepost_driver_fence_retries_total": 1,
        "fencepost_driver_rows_total{sink=orders}": 900,
        "fencepost_driver_rows_total{sink=idle}": 0,
        "fencepost_driver_written_bytes_total{sink=orders}": 7_000,
        "fencepost_driver_task_seconds_total{phase=read}{sink=orders}": 0.5,
        "fencepost_driver_task_seconds_total{phase=write}{sink=orders}": 1.5,
        "fencepost_driver_sink_retries_total{sink=orders}": 3,
        "fencepost_driver_sink_retries_total{sink=idle}": 0,
        "fencepost_driver_batch_limit_records": 5000,
        "fencepost_driver_clock_skew_seconds": -0.02,
        "fencepost_driver_batch_duration_seconds_count": 2,
        "fencepost_driver_batch_duration_seconds_bucket{le=0.25}": 1,
        "fencepost_driver_batch_duration_seconds_bucket{le=+Inf}": 2,
        "fencepost_driver_batch_records_sum": 1001,
        "fencepost_driver_phase_duration_seconds_sum{phase=commit}": 0.008,
        "fencepost_driver_phase_duration_seconds_bucket{le=0.01}{phase=commit}": 1,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert "fencepost_driver_lag_records" not in found  # the last commit did not know it
    assert found["fencepost_driver_rows_total{sink=topic}"] == 0
    assert "fencepost_driver_sink_retries_total{sink=topic}" not in found
    assert found["process_resident_memory_bytes"] > 0
    assert not any("jvm_" in name or "executor" in name or "not in the spec" in name for name in found)
    assert {name for name in found if "{phase=new}" in name} == set()


def test_a_scrape_before_the_first_commit_has_no_figures_of_one() -> None:
    found = scrape(RunMetrics(["orders"]))
    assert found["fencepost_driver_batches_total"] == 0
    assert "fencepost_driver_fence_version" not in found


def test_the_memory_of_the_container_is_beside_its_limit_before_the_first_commit() -> None:
    found = scrape(RunMetrics([]), memory=ContainerMemory(used=900, unreclaimable=700, limit=1000))
    assert {name: value for name, value in found.items() if "_container_" in name} == {
        "fencepost_driver_container_memory_bytes": 900,
        "fencepost_driver_container_unreclaimable_bytes": 700,
        "fencepost_driver_container_memory_limit_bytes": 1000,
    }
    assert not [name for name in scrape(RunMetrics([])) if "_container_" in name]


def test_the_jvm_and_the_executors_are_shown_while_they_answer() -> None:
    found = scrape(RunMetrics([]), JVM)
    expected = {
        "jvm_memory_used_bytes{area=heap}": 10,
        "jvm_memory_max_bytes{area=heap}": 30,
        "jvm_memory_pool_used_bytes{pool=Metaspace}": 5,
        "jvm_gc_collection_seconds_count{gc=Copy}": 4,
        "jvm_gc_collection_seconds_sum{gc=Copy}": 0.25,
        "jvm_threads_current": 40,
        "fencepost_driver_executors": 80,  # of which the others have no series of their own
        "fencepost_executor_heap_peak_bytes{executor=3}{host=10.0.0.7}": 100,
        "fencepost_executor_gc_collection_seconds_sum{executor=3}{gc=major}{host=10.0.0.7}": 3.5,
        "fencepost_executor_tasks_total{executor=3}{host=10.0.0.7}{outcome=failed}": 1,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert "jvm_memory_max_bytes{area=nonheap}" not in found


def test_a_jvm_that_stands_still_delays_a_scrape_by_the_patience_at_most() -> None:
    stuck, calls, clock = threading.Event(), [0], [0.0]

    def read() -> int:
        calls[0] += 1
        if calls[0] > 1:
            stuck.wait(30)
        return calls[0]

    sampler = Sampler("test", read, patience=0.05, now=lambda: clock[0])
    waited = Sampler("test", lambda: 1)
    assert waited.latest() == 1
    while sampler.latest() is None:  # a slow machine
        time.sleep(0.01)
    assert [sampler.latest() for _ in range(3)] == [1, 1, 1]
    assert calls[0] == 2  # scrapes that come meanwhile start no second call
    clock[0] = 61.0
    assert sampler.latest() is None
    stuck.set()


def test_figures_that_cannot_be_read_are_left_out() -> None:
    def read() -> int:
        raise ConnectionRefusedError("the JVM is gone")

    assert Sampler("test", read).latest() is None


@pytest.fixture
def port() -> int:
    return present(metrics_server.serve(lambda: b"a 1\n", address="127.0.0.1", port=0))


def get(port: int, path: str = "/metrics") -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        body: bytes = answer.read()
        return body


def test_metrics_are_served_and_nothing_else(port: int) -> None:
    assert get(port) == get(port, "/metrics?name=x") == b"a 1\n"
    for path in ("/", "/metrics/", "/etc/passwd"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(port, path)


def test_a_port_that_is_taken_costs_a_warning(port: int, caplog: pytest.LogCaptureFixture) -> None:
    assert metrics_server.serve(lambda: b"", address="127.0.0.1", port=port) is None
    assert f"no metrics: port {port} cannot be opened" in caplog.text


def test_clients_that_send_nothing_take_no_thread_and_are_cut_off(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "DEADLINE", 0.2)
    before = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
    for each in silent[:2]:
        each.sendall(b"GET /met")
    assert get(port) == b"a 1\n"
    assert threading.active_count() <= before + 1
    for each in silent:
        each.close()


def test_a_scrape_that_fails_ends_neither_the_server_nor_the_run() -> None:
    answers: list[Any] = [ValueError("once"), b"b 1\n"]

    def broken() -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)

    other = present(metrics_server.serve(broken, address="127.0.0.1", port=0))
    with pytest.raises(OSError):  # noqa: PT011 - the connection ends without an answer
        get(other)
    assert get(other) == b"b 1\n"


def test_where_a_driver_listens() -> None:
    assert metrics_server.address_of({}) == "127.0.0.1"
    assert metrics_server.address_of({"FENCEPOST_POD_IP": "10.0.0.1"}) == metrics_server.ANY
    both = present(metrics_server.serve(lambda: b"a 1\n", address=metrics_server.ANY, port=0))
    assert get(both) == b"a 1\n"
    assert metrics_server.port_of({}) == METRICS_PORT
    assert metrics_server.port_of({"FENCEPOST_METRICS_PORT": "0"}) == 0
    for wrong in ("", "-1", "70000", "http"):
        assert metrics_server.port_of({"FENCEPOST_METRICS_PORT": wrong}) == METRICS_PORT


def test_the_phases_are_those_of_the_loop() -> None:
    assert set(REPORT.phases) - {"total", "new"} == set(counted.PHASES)
