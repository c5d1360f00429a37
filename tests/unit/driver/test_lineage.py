"""Lineage of a run: its events as a receiver gets them, and as OpenLineage's own client knows them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.driver_configs import USUAL
from fencepost.batch import Range, SinkWork
from fencepost.contract import FunctionSink, KafkaSink, Observability, OpenLineageEndpoint, Reason, Verdict
from fencepost.driver.reporting.commit_report import Report
from fencepost.driver.reporting.telemetry import lineage
from fencepost.driver.reporting.telemetry.outbox import Sent
from fencepost.driver.reporting.telemetry.run_telemetry import RunTelemetry
from unit.driver.test_telemetry import Receiver

POD = "6f6b0c52-3b0e-4d1c-9f0a-0d2f4c8a7e11"
CONFIG = replace(
    USUAL,
    sinks=(
        *USUAL.sinks,
        KafkaSink(name="late", topics=("late-orders",)),
        KafkaSink(name="routed", topics=("eu", "us"), topic_column="region"),
        FunctionSink(name="search", entrypoint="m:f"),
    ),
)
STOPPED = Verdict(exit_code=0, reason=Reason.STOPPED, message="", remedy="")
FAILED = Verdict(exit_code=1, reason=Reason.FAILED, message="ValueError: no number", remedy="")


def report(start: int, until: int) -> Report:
    return Report(
        epoch=4, version=until, records=until - start, size=10, limit=100, phases={}, lag=0,
        work={"rows": SinkWork(rows=2, size=20)}, ranges=(Range("t", 0, start, until),),
    )  # fmt: skip


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hours pass between two batches."""
    hours: Iterator[float] = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(time, "monotonic", lambda: next(hours))


def events(tmp_path: Path, last: Verdict, *reports: Report) -> list[dict[str, Any]]:
    """What a real receiver gets of a run."""
    receiver = Receiver(statuses=[201])
    with receiver.serve() as url:
        observed = Observability(open_lineage=OpenLineageEndpoint(url=url))
        telemetry = RunTelemetry(replace(CONFIG, observability=observed), POD, tmp_path)
        telemetry.claimed()
        for one in reports:
            telemetry.committed(one)
        telemetry.ended(last, None)
        telemetry._events.join(20)  # type: ignore[union-attr]
        assert telemetry.sent() == {"openLineage": Sent(delivered=len(receiver.bodies))}
    assert {path for path, _, _ in receiver.bodies} == {"/api/v1/lineage"}
    return [json.loads(body) for _, _, body in receiver.bodies]


def test_a_run_starts_and_completes_with_what_it_read_and_wrote(tmp_path: Path) -> None:
    start, complete = events(tmp_path, STOPPED, report(5, 9), report(9, 20))
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"] == POD
    assert (start["job"]["namespace"], start["job"]["name"]) == ("ns", "n")
    (topic,) = complete["inputs"]
    assert (topic["namespace"], topic["name"]) == ("kafka://k:9092", "t")
    assert topic["facets"]["fencepost_offsets"]["partitions"] == [{"partition": 0, "start": 5, "until": 20}]
    places = [(one["namespace"], one["name"]) for one in complete["outputs"]]
    topics = [("kafka://k:9092", name) for name in ("late-orders", "eu", "us")]
    assert places == [("cassandra://c:9042", "k.t"), *topics, ("ns", "n.search")]
    assert [bool(one["outputFacets"]) for one in complete["outputs"]] == [True, True, False, False, True]
    statistics = complete["outputs"][0]["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (4, 40)
    assert start["inputs"][0]["facets"]["fencepost_offsets"]["partitions"] == []


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    _, fail = events(tmp_path, FAILED)
    assert fail["eventType"] == "FAIL"
    assert fail["run"]["facets"]["errorMessage"]["message"] == "Failed: ValueError: no number"


@pytest.mark.usefixtures("moments")
def test_a_run_that_goes_on_says_so_at_times() -> None:
    said: list[lineage.Event] = []
    run = lineage.Lineage(CONFIG, said.append)
    run.begun()
    run.committed(report(0, 5))
    run.committed(report(5, 9))
    assert [one.kind for one in said] == ["START", "RUNNING", "RUNNING"]
    assert said[-1].progress.spans == {"t/0": (0, 9)}


def test_a_run_that_has_not_claimed_its_epoch_says_nothing() -> None:
    said: list[lineage.Event] = []
    run = lineage.Lineage(CONFIG, said.append)
    run.committed(report(0, 5))
    run.ended(FAILED)
    assert said == []


def test_an_event_has_a_bounded_number_of_partitions() -> None:
    progress = lineage.Progress(
        {f"t/{n}": (0, 1) for n in range(5000)}, 1, 1, {s.name: SinkWork() for s in CONFIG.sinks}
    )
    event = lineage.Event("RUNNING", time.time(), progress)
    offsets = json.loads(lineage.encoded(CONFIG, POD, "", [event]))["inputs"][0]["facets"]["fencepost_offsets"]
    assert (len(offsets["partitions"]), offsets["partitionCount"]) == (lineage.MOST_PARTITIONS, 5000)


def test_openlineages_own_client_takes_each_event(tmp_path: Path) -> None:
    known = pytest.importorskip("openlineage.client.event_v2")
    facets = pytest.importorskip("openlineage.client.facet_v2")
    kinds = {
        "jobType": facets.job_type_job.JobTypeJobFacet,
        "errorMessage": facets.error_message_run.ErrorMessageRunFacet,
        "outputStatistics": facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    }

    def checked(found: dict[str, Any]) -> None:
        for name, facet in found.items():
            content = {key: value for key, value in facet.items() if not key.startswith("_")}
            if name in kinds:
                assert facet["_schemaURL"] == kinds[name](**content)._schemaURL

    for event in events(tmp_path, FAILED, report(0, 5)):
        made = known.RunEvent(
            eventType=known.RunState[event["eventType"]], eventTime=event["eventTime"],
            run=known.Run(event["run"]["runId"]), job=known.Job(event["job"]["namespace"], event["job"]["name"]),
            inputs=[known.InputDataset(one["namespace"], one["name"]) for one in event["inputs"]],
            outputs=[known.OutputDataset(one["namespace"], one["name"]) for one in event["outputs"]],
            producer=event["producer"],
        )  # fmt: skip
        assert made.schemaURL == event["schemaURL"]
        for part in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
            checked({**part.get("facets", {}), **part.get("outputFacets", {})})
