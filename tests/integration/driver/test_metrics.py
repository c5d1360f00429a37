"""What a driver's /metrics says while batches run, beside its fence row; and what never stops a run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.waiting import eventually
from integration.driver.support import Pipeline, Run

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


def scrape(port: int) -> dict[str, float]:
    """The samples as 'name{label="value"}'; none while the port is closed."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_agrees_with_the_fence_row_while_batches_run_and_after(pipeline: Make, unused_tcp_port: int) -> None:
    one = pipeline(max_records_per_batch=500)
    one.kafka.produce(one.topic, 8_000)
    run = one.start(FENCEPOST_METRICS_PORT=str(unused_tcp_port))
    seen: list[tuple[float, int]] = []

    def all_shown() -> bool:
        found = scrape(unused_tcp_port).get("fencepost_driver_records_total")
        if found is not None:
            seen.append((found, one.committed_records()))
        return found == 12_000

    one.wait_committed(2_000)
    one.kafka.produce(one.topic, 4_000, start=8_000)
    eventually("the scrape has every record", all_shown, seconds=120, pause=0.05)
    assert [figure for figure, _ in seen] == sorted(figure for figure, _ in seen)
    assert all(shown <= committed for shown, committed in seen)  # the row is read after the scrape
    row, found = one.row(), scrape(unused_tcp_port)
    commits = run.committed()
    assert found["fencepost_driver_epoch"] == row.epoch
    assert found["fencepost_driver_fence_version"] == row.version
    assert found["fencepost_driver_rows_total{sink=rows}"] == 12_000 == len(one.rows())
    assert found["fencepost_driver_batches_total"] == len(commits)
    assert found["fencepost_driver_phase_duration_seconds_count{phase=commit}"] == len(commits)
    assert found["fencepost_driver_read_bytes_total"] == sum(line["bytes"] for line in commits)
    assert found["fencepost_driver_written_bytes_total{sink=rows}"] > 12_000 * 8
    assert found["fencepost_driver_task_seconds_total{phase=write}{sink=rows}"] > 0
    assert found["fencepost_driver_task_seconds_total{phase=read}{sink=rows}"] > 0
    assert found["fencepost_driver_executors"] == 1
    assert found["jvm_memory_used_bytes{area=heap}"] < found["jvm_memory_max_bytes{area=heap}"]
    assert found["jvm_memory_pool_used_bytes{pool=Metaspace}"] > 1 << 20
    assert sum(value for name, value in found.items() if name.startswith("jvm_gc_collection_seconds_count")) > 0
    assert found["fencepost_driver_jvm_resident_memory_bytes"] > found["jvm_memory_committed_bytes{area=heap}"] / 4
    assert found["process_resident_memory_bytes"] > 10 << 20
    stands_still(run, unused_tcp_port)
    run.stop()


def stands_still(run: Run, port: int) -> None:
    """A JVM that answers nothing, as in a long collection, takes its own figures away from a scrape, no more."""
    listed = subprocess.run(
        [run.docker, "top", run.container, "-eo", "pid,comm"], check=True, capture_output=True, text=True
    ).stdout
    (jvm,) = [int(line.split()[0]) for line in listed.splitlines() if line.split()[1] == "java"]
    os.kill(jvm, signal.SIGSTOP)
    try:
        before = time.monotonic()
        found = scrape(port)
        assert time.monotonic() - before < 5
        assert found["fencepost_driver_records_total"] == 12_000
    finally:
        os.kill(jvm, signal.SIGCONT)


@pytest.mark.long
def test_a_port_that_is_taken_stops_no_run(pipeline: Make) -> None:
    one = pipeline()
    one.kafka.produce(one.topic, 1_000)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = one.start(FENCEPOST_METRICS_PORT=str(taken.getsockname()[1]))
        one.wait_committed(1_000)
        eventually("the warning is logged", lambda: "no metrics: port" in run.log.read_text(), seconds=60, pause=0.2)
        one.kafka.produce(one.topic, 500, start=1_000)
        one.wait_committed(1_500)
    run.stop()
