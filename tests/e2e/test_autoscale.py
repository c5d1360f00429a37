"""Workers by load, on a real cluster: the number follows, the driver stays, and each row is there once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.stream import Stream
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]

KAFKA = {"maxRecordsPerBatch": 20, "targetBatchDuration": "1s"}
"""Batches so small that little load is too much."""


def test_workers_follow_a_load_that_rises_and_falls_while_the_driver_stays(applied: Callable[..., Stream]) -> None:
    """No fault: more records than one worker does, then fewer, which still arrive when the second worker goes."""
    autoscale = {"maxWorkers": 2, "targetTimeLag": "5s"}
    stream = applied("by-load", cluster={"autoscale": autoscale}, source={"kafka": KAFKA}, batchInterval="0s")
    pipeline = stream.pipeline
    pipeline.wait_ready()
    driver, epoch = pipeline.driver()["metadata"]["uid"], pipeline.epoch()
    with stream.load.flowing(rate=200):
        _wait_for_workers(stream, 2)
    with stream.load.flowing(rate=5):
        _wait_for_workers(stream, 1)
        stream.commits_past(stream.fence())
    assert pipeline.driver()["metadata"]["uid"] == driver, "the driver was replaced"
    assert stream.check_every_row().epoch == epoch
    events = [each for each in pipeline.kubectl.items("events") if each["reason"] == "Autoscaled"]
    said = [each["message"] for each in events if each["involvedObject"]["name"] == pipeline.name]
    assert sorted(message.partition(":")[0] for message in said) == [
        "Scaling from 1 to 2 workers",
        "Scaling from 2 to 1 workers",
    ]


def _wait_for_workers(stream: Stream, count: int) -> None:
    """Wait until so many workers were chosen and are ready; the pipeline is Ready all the time."""
    unready: list[str] = []

    def there() -> bool:
        status = stream.pipeline.status()
        ready = next(each for each in status["conditions"] if each["type"] == "Ready")
        unready.extend([ready["message"]] if ready["status"] != "True" else [])
        found = (status["autoscale"]["workers"], status["cluster"]["readyWorkers"])
        assert found == (count, count), f"{found}: {status['autoscale']}"
        return True

    eventually(f"there are {count} ready workers", there, seconds=480)
    assert unready == []
