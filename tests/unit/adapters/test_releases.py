"""Which objects the operator may delete as parts of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost_operator.adapters.releases import _installed_generation, _runs
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels, names

KEY = ObjectKey("shop", "orders")


def part(release: str, *, owner: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "orders-g3-master",
            "labels": {labels.PIPELINE: "orders", labels.GENERATION: "3"},
            "annotations": {"meta.helm.sh/release-name": release},
            "ownerReferences": [{"uid": owner}],
        }
    }


@pytest.mark.parametrize(
    ("release", "owner", "expected"),
    [
        (names.release_name(KEY), "uid-1", 3),
        ("fencepost-orders", "uid-1", 3),
        ("fencepost-orders", "another", None),
        ("fencepost-others", "uid-1", None),
        ("mine", "uid-1", None),
    ],
)
def test_an_older_builds_part_is_ours_by_its_owner_as_well(release: str, owner: str, expected: int | None) -> None:
    assert _installed_generation(KEY, "uid-1", part(release, owner=owner)) == expected


SET: dict[str, Any] = {"metadata": {"uid": "set-1", "generation": 1}, "status": {"observedGeneration": 1}}


def pod(*containers: dict[str, Any], owner: str = "set-1", **metadata: str) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{"uid": owner}], **metadata}, "status": {"containerStatuses": containers}}


RUNNING: dict[str, Any] = {"state": {"running": {}}, "restartCount": 0}
WAITING: dict[str, Any] = {"state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0}


@pytest.mark.parametrize(
    ("master", "runs"),
    [
        (pod(RUNNING), True),
        (pod(), False),
        (pod(RUNNING, WAITING), False),
        (pod({**RUNNING, "restartCount": 1}), False),
        (pod(RUNNING, owner="set-2"), False),
        (pod(RUNNING, deletionTimestamp="2026-01-01T12:00:00Z"), False),
    ],
)
def test_a_master_runs_for_the_first_time(master: dict[str, Any], runs: bool) -> None:
    assert _runs(master, {**SET, "status": {**SET["status"], "updateRevision": None}}) is runs
