"""New code beside a pipeline that streams: what a PipelineTrial counts, what it leaves alone, and what it promotes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from e2e.new_code import FARTHER, SAME, SMALL, TRIAL, UNITED, code_of, job_of, new_code
from e2e.stream import Stream, cassandra
from e2e.test_stateful import snapshot
from harness.kubernetes.kubectl import Kubectl, Object
from harness.pipelines import code, merged
from harness.waiting import eventually
from present import present

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.mark.long
def test_code_that_changes_rows_is_counted_and_code_that_changes_none_is_promoted(
    stream: Stream, kubectl: Kubectl
) -> None:
    """No fault: two trials of the same records, one after the other, under load."""
    start = snapshot(stream, kubectl, "before-the-trials")
    stream.load.burst(500)
    before = stream.check_every_row()
    rows = stored(stream)
    try:
        with stream.load.flowing():
            refused = tried(stream, "farther", FARTHER, start)
            row = stream.commits_past(stream.fence())
            assert runs_code_of(stream, code()["metadata"]["name"])
            promoted = tried(stream, "same", SAME, start)
            stream.spec = merged(stream.spec, {"job": job_of("same")})
            while row.epoch == before.epoch:
                row = stream.commits_past(row, seconds=300)
    finally:
        kubectl.delete(TRIAL, "farther", "same")
    assert runs_code_of(stream, code_of("same"))
    found = stored(stream)
    assert {place: found.get(place) for place in rows} == rows, "a trial has written"
    assert stream.check_every_row().epoch == row.epoch == before.epoch + 1

    carriers = carriers_between(stream, refused)
    total, united = len(carriers), carriers.count(UNITED)
    assert 0 < united < total == refused["recordsTotal"]
    assert counts(refused) == {"compared": total, "equal": total - united, "changed": united}
    assert {(each["kind"], each["columns"]) for each in refused["samples"]} == {("Changed", "distance_miles")}
    assert refused["promotion"]["state"] == "NotMet"
    assert conditions(refused) == {"Ready": "False", "Stalled": "True"}
    total = len(carriers_between(stream, promoted))
    assert counts(promoted) == {"compared": total, "equal": total}
    assert promoted["promotion"]["state"] == "Promoted"
    assert conditions(promoted) == {"Ready": "True"}


def tried(stream: Stream, name: str, change: str, start: str) -> Object:
    """`kubectl apply` a trial of changed code that is to be promoted where no row differs; return its last status."""
    kubectl = stream.pipeline.kubectl
    kubectl.apply(new_code(name, change))
    kubectl.apply(
        {
            "apiVersion": "streaming.fencepost.dev/v1alpha1",
            "kind": "PipelineTrial",
            "metadata": {"name": name},
            "spec": {
                "pipeline": stream.pipeline.name,
                "job": job_of(name),
                "since": {"snapshot": start},
                "limits": SMALL,
                "promoteWhen": {"changedRows": 0},
            },
        }
    )

    def over() -> Object | None:
        status: Object = present(kubectl.get(TRIAL, name)).get("status", {})
        assert status.get("phase") == "Completed", status.get("message")
        return status if status["promotion"]["state"] != "Promoting" else None

    return eventually(f"the trial {name} is over", over, seconds=180)


def counts(status: Object) -> dict[str, int]:
    """Return what a trial counted; a trial of the example's table also looks for missing rows."""
    found: dict[str, int] = dict(status["rows"])
    assert found.pop("missing") == 0
    return {kind: count for kind, count in found.items() if count}


def conditions(status: Object) -> dict[str, str]:
    """Return the statuses of its conditions by type."""
    return {each["type"]: each["status"] for each in status["conditions"]}


def runs_code_of(stream: Stream, name: str) -> bool:
    """Whether the pipeline's spec names this ConfigMap."""
    found: str = stream.pipeline.object()["spec"]["job"]["codeFrom"]["configMapName"]
    return found == name


def carriers_between(stream: Stream, status: Object) -> list[Any]:
    """Return the carrier of each flight that a trial read. To be called while nothing is produced."""
    start: Mapping[str, int] = status["start"]
    ledger, until = stream.load.ledger, status["until"]
    places = ((f"{ledger.topic}/{partition}", offset, number) for partition, offset, number in ledger)
    read = [number for key, offset, number in places if start.get(key, 0) <= offset < until[key]]
    return [next(iter(stream.load.feed.events(number, number + 1))).fields["carrier"] for number in read]


def stored(stream: Stream) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Return each row by partition and offset, with the time of its write."""
    with cassandra(stream.place) as opened:
        table = f"{stream.place.tables}.{stream.table}"
        found = opened.execute(f"SELECT partition, offset, id, distance_miles, writetime(id) FROM {table}")  # noqa: S608
        return {(row[0], row[1]): tuple(row[2:]) for row in found}
