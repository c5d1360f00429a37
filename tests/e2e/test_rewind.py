"""A pipeline goes back under load, its output beyond the target is deleted, and every row is there once afterwards."""

from __future__ import annotations

import pytest

from e2e.stream import Applied, Stream, cassandra
from harness.kubectl import Object
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

REWIND = "pipelinerewinds.streaming.fencepost.dev"


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


def ended(stream: Stream, name: str) -> Object:
    """Wait until a rewind has arrived, and return its status."""

    def status() -> Object | None:
        found = stream.pipeline.kubectl.get(REWIND, name)
        state: Object = (found or {}).get("status") or {}
        assert state.get("phase") != "Failed", state
        return state if state.get("phase") == "Completed" else None

    return eventually(f"the rewind {name} is completed", status, seconds=300)


def test_a_rewind_under_load_deletes_output_and_every_row_is_there_once(applied: Applied) -> None:
    """No fault: producers send all the time, and the target lies inside what is committed."""
    stream = applied("rewound")
    try:
        stream.load.burst(2000)
        row = stream.check_every_row()
        target = {key: offset // 2 for key, offset in row.offsets.items()}
        key = next(iter(target))
        add_stray_row(stream, key, target[key])

        rewind(stream, "look", to={"offsets": target}, dryRun=True)
        looked = ended(stream, "look")
        repeated = sum(row.offsets[key] - offset for key, offset in target.items())
        assert (looked["recordsToRepeat"], looked["rowsToDelete"]) == (repeated, repeated + 1)
        unmoved = stream.fence()
        assert unmoved is not None
        assert (unmoved.epoch, unmoved.offsets) == (row.epoch, row.offsets)

        with stream.load.flowing():
            rewind(stream, "back", to={"offsets": target})
            done = ended(stream, "back")
        assert done["target"]["offsets"] == target
        assert {step["name"]: step["state"] for step in done["steps"]} == dict.fromkeys(
            ("Count", "Stop", "BackUp", "Resolve", "Purge", "SetOffsets", "Resume", "Check"), "Done"
        )
        after = stream.check_every_row(seconds=300)
        assert after.epoch == row.epoch + 1
    finally:
        stream.pipeline.delete()  # the tests that come after share the nodes


def add_stray_row(stream: Stream, key: str, offset: int) -> None:
    """Write what no transform makes again: a row of the right offset in a bucket where it does not belong."""
    topic, _, partition = key.rpartition("/")
    with cassandra(stream.place) as opened:
        opened.execute(
            f"INSERT INTO {stream.place.tables}.{stream.table} (topic, partition, bucket, offset)"  # noqa: S608
            " VALUES (%s, %s, 999999, %s)",
            (topic, int(partition), offset),
        )
