"""Which objects the operator may delete as parts of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost_operator.adapters.releases import _installed_generation
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
