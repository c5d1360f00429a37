"""Objects of generations that are no longer wanted are deleted, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fakes.manifests import body
from fencepost_operator.api import ClusterStatus, ReconcileConfig, RunStatus, Status, read_pipeline
from fencepost_operator.decision.cluster.cluster_pruning import stale_generations
from fencepost_operator.decision.context import Context
from fencepost_operator.observation import ClusterObject, ClusterObjects, Known, Observation, Unknown, UnknownReason

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SILENT = Unknown(reason=UnknownReason.UNREACHABLE, message="no answer")
OBJECTS = tuple(
    ClusterObject(kind=kind, name=f"orders-g{generation}-{kind}", uid=f"{generation}-{kind}", generation=generation)
    for generation in (1, 2, 3)
    for kind in ("StatefulSet", "Secret")
)
READY = ClusterStatus(
    release="fencepost-orders", generation=2, config_hash="abc", requested_at=NOW, ready_at=NOW, workers=1
)
NOT_READY = replace(READY, ready_at=None)
TAKEN_DOWN = replace(NOT_READY, config_hash="")
RUN = RunStatus(
    name="orders-run-4", epoch=4, spec_hash="h", cluster_generation=1, recorded_at=NOW, created_at=NOW
)  # fmt: skip
ENDED = replace(RUN, ended_at=NOW, dead=False)


def context(
    cluster: ClusterStatus | None, *, run: RunStatus | None = None, deleted: bool = False, **facts: Any
) -> Context:
    none = Known(None)
    observed: dict[str, Any] = {
        "references": SILENT,
        "release": none,
        "cluster": none,
        "runs": Known(()),
    }
    observed |= {"fence": none, "source": SILENT, "cluster_objects": Known(ClusterObjects(found=OBJECTS)), **facts}
    pipeline = replace(read_pipeline(body()), deleting_since=NOW if deleted else None)
    return Context(
        pipeline=pipeline,
        status=Status(cluster=cluster, run=run),
        observation=Observation(now=NOW, **observed),
        config=ReconcileConfig(cluster_uid="cluster-1"),
    )


@pytest.mark.parametrize(
    ("seen", "failed", "expected"),
    [
        (context(READY), False, {1, 3}),
        (context(NOT_READY), False, set()),
        (context(NOT_READY), True, {1, 3}),
        (context(TAKEN_DOWN), False, {1, 2, 3}),
        (context(TAKEN_DOWN, release=SILENT), False, set()),
        (context(READY, run=RUN), False, {3}),
        (context(READY, run=ENDED), False, {1, 3}),
        (context(READY, cluster_objects=SILENT), False, set()),
        (context(READY, runs=SILENT), False, set()),
        (context(READY, cluster_objects=Known(ClusterObjects(found=OBJECTS[2:4]))), False, set()),
        (context(READY, deleted=True), False, set()),
        (context(None), True, set()),
    ],
    ids=[
        "ready", "on its way", "install failed", "taken down", "perhaps not taken down", "used by a run",
        "used by a run that is over", "objects unseen", "runs unseen", "all is well", "deleted", "record lost",
    ],
)  # fmt: skip
def test_what_is_deleted(seen: Context, failed: bool, expected: set[int]) -> None:
    action = stale_generations(seen, install_failed=failed)
    assert {found.generation for found in action.objects} == expected if action else expected == set()
