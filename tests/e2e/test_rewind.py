"""A user moves a pipeline's offsets: back with a rewind, and past lost records with the command of a condition."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from e2e.stream import Applied, Stream, cassandra
from fencepost.contract import offset_key, split_offset_key
from fencepost_cli.accepted_loss import AcceptedLoss
from harness.kubernetes.kubectl import Object
from harness.waiting import eventually
from present import present

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

REWIND = "pipelinerewinds.streaming.fencepost.dev"
STEPS = ("Count", "Stop", "BackUp", "Resolve", "Purge", "SetOffsets", "Resume", "Check")


@pytest.fixture(scope="module")
def stream(applied: Applied) -> Iterator[Stream]:
    """One pipeline for both ways to move offsets."""
    made = applied("rewound")
    yield made
    made.pipeline.delete()  # the tests that come after share the nodes


def rewind(stream: Stream, name: str, **spec: object) -> None:
    """`kubectl apply` a PipelineRewind of the pipeline."""
    kubectl = stream.pipeline.kubectl
    kubectl.apply(
        {
            "apiVersion": "streaming.fencepost.dev/v1alpha1",
            "kind": "PipelineRewind",
            "metadata": {"name": name, "namespace": stream.place.namespace},
            "spec": {"pipeline": stream.pipeline.name, **spec},
        }
    )


def fencepost_rewind(stream: Stream, name: str, target: Mapping[str, int]) -> str:
    """Run `fencepost rewind --watch` to its end, and return what it printed."""
    key = f"{stream.place.namespace}/{stream.pipeline.name}"
    done = subprocess.run(
        [sys.executable, "-m", "fencepost_cli", "rewind", key, "--to-offsets=-", f"--name={name}", "--watch", "--yes"],
        env={**os.environ, **stream.place.environment.variables(os.environ["PATH"])},
        input=json.dumps(target), capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ended(stream: Stream, name: str) -> Object:
    """Wait until a rewind has arrived, and return its status."""

    def status() -> Object | None:
        found = stream.pipeline.kubectl.get(REWIND, name)
        state: Object = (found or {}).get("status") or {}
        assert state.get("phase") != "Failed", state
        return state if state.get("phase") == "Completed" else None

    return eventually(f"the rewind {name} is completed", status, seconds=300)


def test_a_rewind_under_load_deletes_output_and_every_row_is_there_once(stream: Stream) -> None:
    """No fault: producers send all the time, and the target lies inside what is committed.

    The dry run is a manifest, the rewind is the command, which follows each step to the end.
    """
    stream.load.burst(2000)
    row = stream.check_every_row()
    target = {key: offset // 2 for key, offset in row.offsets.items()}
    key = next(iter(target))
    add_stray_row(stream, key, target[key])

    rewind(stream, "look", to={"offsets": target}, dryRun=True)
    looked = ended(stream, "look")
    repeated = sum(row.offsets[key] - offset for key, offset in target.items())
    assert (looked["recordsToRepeat"], looked["rowsToDelete"]) == (repeated, repeated + 1)
    unmoved = present(stream.fence())
    assert (unmoved.epoch, unmoved.offsets) == (row.epoch, row.offsets)

    with stream.load.flowing():
        printed = fencepost_rewind(stream, "back", target)
    done = ended(stream, "back")
    assert done["target"]["offsets"] == target
    assert {step["name"]: step["state"] for step in done["steps"]} == dict.fromkeys(STEPS, "Done")
    assert {line.split()[0] for line in printed.splitlines() if line.split()[1:2] == ["Done"]} == set(STEPS)
    assert printed.splitlines()[-1].startswith("Completed: ")
    after = stream.check_every_row(seconds=300)
    assert after.epoch == row.epoch + 1


def add_stray_row(stream: Stream, key: str, offset: int) -> None:
    """Write what no transform makes again: a row of the right offset in a bucket where it does not belong."""
    topic, _, partition = key.rpartition("/")
    with cassandra(stream.place) as opened:
        opened.execute(
            f"INSERT INTO {stream.place.tables}.{stream.table} (topic, partition, bucket, offset)"  # noqa: S608
            " VALUES (%s, %s, 999999, %s)",
            (topic, int(partition), offset),
        )


@pytest.mark.long
def test_records_that_kafka_lost_are_accepted_with_the_command_in_the_condition(stream: Stream) -> None:
    """Kafka deletes records after the committed offsets while the pipeline is suspended, as retention does."""
    pipeline = stream.pipeline
    stream.load.burst(500)
    row = stream.check_every_row()
    pipeline.patch({"suspend": True})
    pipeline.wait_condition("Ready", "True", reason="Suspended")
    stream.load.burst(600)
    lost = delete_records(stream, {key: (row.offsets[key], end) for key, end in stream.load.ends().items()})
    pipeline.patch({"suspend": False})

    stalled = pipeline.wait_condition("Stalled", "True", reason="OffsetOutOfRange", seconds=240)
    stopped = present(stream.fence())
    assert (stopped.epoch, stopped.offsets) == (row.epoch + 1, row.offsets)
    count = sum(until - start for start, until in lost.values())
    named = ", ".join(f"{key} [{start}, {until})" for key, (start, until) in sorted(lost.items()))
    assert f"{count} offsets of 2 partitions, exactly {named}" in stalled["message"]
    reported = pipeline.status()["loss"]
    assert ranges(reported) == lost

    run_as(stream, "kim", command_in(stalled["message"]))
    pipeline.wait_ready(epoch=stopped.epoch + 1)
    stream.lost += [
        AcceptedLoss(partition=key, start=start, until=until, reason="OffsetOutOfRange")
        for key, (start, until) in lost.items()
    ]
    after = stream.check_every_row()  # of the lost ranges no row, of everything else each one
    assert after.epoch == stopped.epoch + 1

    accepted = pipeline.status()["acceptedLosses"][-1]
    assert (accepted["id"], accepted["by"], accepted["records"]) == (reported["id"], "kim", count)
    assert ranges(accepted) == lost
    assert {one.partition: (one.start, one.until) for one in accepted_rows(stream, "kim", reported["id"])} == lost
    said = events_of(stream)
    assert any(named in message for message in said["RunFailed"])
    assert any(
        f"kim accepted loss {reported['id']}" in message and named in message for message in said["LossAccepted"]
    )


def delete_records(stream: Stream, waiting: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Delete the first half of what waits in each of two partitions; return the ranges by topic/partition."""
    lost = {key: (start, (start + end) // 2) for key, (start, end) in sorted(waiting.items())[:2]}
    assert all(start < until for start, until in lost.values())
    admin = AdminClient({"bootstrap.servers": stream.place.environment.kafka_host})
    before = [TopicPartition(*split_offset_key(key), until) for key, (_, until) in lost.items()]
    for deleted in admin.delete_records(before).values():
        deleted.result(30)
    return lost


def ranges(loss: Object) -> dict[str, tuple[int, int]]:
    """Return the ranges of a loss in the status."""
    return {one["partition"]: (one["fromOffset"], one["untilOffset"]) for one in loss["ranges"]}


def command_in(message: str) -> str:
    """Return the command in a condition's message, as a user copies it."""
    found = re.search(r"kubectl annotate .*? --overwrite", message)
    assert found, message
    return found[0]


def run_as(stream: Stream, user: str, command: str) -> None:
    """Run a command in a user's shell."""
    variables = {**os.environ, **stream.place.environment.variables(os.environ["PATH"]), "USER": user}
    done = subprocess.run(["/bin/sh", "-c", command], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def accepted_rows(stream: Stream, by: str, loss: str) -> list[AcceptedLoss]:
    """Return what table accepted_losses has of a loss that this user accepted."""
    with cassandra(stream.place) as opened:
        found = opened.execute(
            f"SELECT * FROM {stream.place.fences}.accepted_losses WHERE pipeline = %s",  # noqa: S608
            (stream.key,),
        )
        return [
            AcceptedLoss(
                partition=offset_key(row.topic, row.partition),
                start=row.from_offset,
                until=row.until_offset,
                reason=row.reason,
            )
            for row in found
            if (row.accepted_by, row.loss) == (by, loss) and row.at is not None
        ]


def events_of(stream: Stream) -> dict[str, list[str]]:
    """Return the messages of the pipeline's Events by reason."""
    selector = f"--field-selector=involvedObject.kind=StreamingPipeline,involvedObject.name={stream.pipeline.name}"
    found: dict[str, list[str]] = {}
    for event in stream.pipeline.kubectl.items("events", selector):
        found.setdefault(event["reason"], []).append(event.get("message", ""))
    return found
