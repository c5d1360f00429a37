"""Which events wake a pipeline's loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import kopf
import pytest

from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.runtime.controller import Controller
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from fencepost_operator.runtime.watches import _registry, _settings

KEY: Final = ObjectKey("shop", "orders")
METADATA: Final[dict[str, Any]] = {
    "name": KEY.name,
    "namespace": KEY.namespace,
    "uid": "u-1",
    "generation": 1,
    "resourceVersion": "1",
    "finalizers": ["fencepost"],
    "labels": {"team": "a"},
    "annotations": {"note": "a"},
}


async def _never(key: ObjectKey, *, woken: bool) -> float | None:
    raise AssertionError(f"no loop runs here: {key}, {woken}")


class Watched(Controller):
    """Controller that only note who was woken, behind the handlers that kopf calls."""

    def __init__(self) -> None:
        super().__init__(_never, metrics=PrometheusMetrics(), clock=SystemClock())
        self.woken: list[ObjectKey] = []
        self.pods: list[Any] = []
        self.parts: list[tuple[ObjectKey, str | None]] = []
        """Each note: the pipeline, and the version of the object, None where it was deleted."""
        found = _registry(self, self, self.pods.append, self._note_part)._watching.get_all_handlers()
        self._handlers: dict[str, Callable[..., Awaitable[None]]] = {str(one.id): one.fn for one in found}  # type: ignore[misc]

    def wake(self, key: ObjectKey) -> None:
        self.woken.append(key)

    def _note_part(self, key: ObjectKey, metadata: Mapping[str, Any] | None) -> None:
        self.parts.append((key, None if metadata is None else metadata["resourceVersion"]))

    async def sees(self, kind: str | None, *, handler: str = "streamingpipelines-changed", **metadata: Any) -> int:
        """How many loops an event wakes."""
        status = metadata.pop("status", {"lag": 7})
        raw: Any = {"metadata": METADATA | metadata, "status": status}
        found = kopf.Body(raw)
        before = len(self.woken)
        await self._handlers[handler](
            namespace=KEY.namespace,
            name=found.meta.name,
            meta=found.meta,
            event={"type": kind, "object": found},
            type=kind,
            body=found,
            resource=kopf.Resource("", "v1", handler.partition("-")[0]),
        )
        return len(self.woken) - before


@pytest.fixture
def watched() -> Watched:
    return Watched()


async def test_a_write_of_the_status_wakes_no_loop(watched: Watched) -> None:
    assert await watched.sees("ADDED") == 1
    for version in range(2, 5):
        assert await watched.sees("MODIFIED", resourceVersion=str(version), managedFields=[version]) == 0


@pytest.mark.parametrize("kind", [None, "ADDED", "MODIFIED"])
async def test_the_first_event_wakes_whatever_it_is(watched: Watched, kind: str | None) -> None:
    assert await watched.sees(kind) == 1
    assert watched.woken == [KEY]


@pytest.mark.parametrize(
    "change",
    [
        {"uid": "u-2"},
        {"generation": 2},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"finalizers": []},
        {"labels": {"team": "b"}},
        {"annotations": {"note": "a", "streaming.fencepost.dev/retry": "1"}},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_each_change_by_a_user_wakes_once(watched: Watched, change: dict[str, Any]) -> None:
    await watched.sees("ADDED")
    assert await watched.sees("MODIFIED", **change) == 1
    assert await watched.sees("MODIFIED", resourceVersion="3", **change) == 0


async def test_the_order_of_labels_is_not_a_change(watched: Watched) -> None:
    await watched.sees("ADDED", labels={"a": "1", "b": "2"})
    assert await watched.sees("MODIFIED", labels={"b": "2", "a": "1"}) == 0


async def test_an_end_wakes_and_is_forgotten(watched: Watched) -> None:
    await watched.sees("ADDED")
    assert await watched.sees("DELETED") == 1
    assert await watched.sees("ADDED") == 1


@pytest.mark.parametrize(
    ("kind", "status"),
    [("pods", {"phase": "Running"}), ("jobs", {"active": 1}), ("statefulsets", {"updateRevision": "2"})],
)
async def test_what_a_decision_reads_of_an_owned_object_wakes_once(
    watched: Watched, kind: str, status: dict[str, Any]
) -> None:
    handler, mark = f"{kind}-changed", {labels.PIPELINE: KEY.name}
    assert await watched.sees("ADDED", handler=handler, labels=mark) == 1
    changes: list[dict[str, Any]] = [
        {"status": status},
        {"generation": 2},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"annotations": {labels.GENERATION: "2"}},
        {"uid": "u-2"},
    ]
    seen: dict[str, Any] = {}
    for change in changes:
        seen |= change
        assert await watched.sees("MODIFIED", handler=handler, labels=mark, **seen) == 1, change
        assert await watched.sees("MODIFIED", handler=handler, labels=mark, resourceVersion="9", **seen) == 0
    assert await watched.sees("DELETED", handler=handler, labels=mark, **seen) == 1
    assert await watched.sees("MODIFIED", handler=handler, labels={}) == 0


async def test_a_tenant_who_rewrites_annotations_and_labels_of_a_pod_wakes_no_loop(watched: Watched) -> None:
    handler, mark = "pods-changed", {labels.PIPELINE: KEY.name}
    await watched.sees("ADDED", handler=handler, labels=mark)
    for number in range(10):
        own = {"labels": {**mark, "note": str(number)}, "annotations": {"note": str(number)}}
        assert await watched.sees("MODIFIED", handler=handler, resourceVersion=str(number), **own) == 0
    assert len(watched.pods) == 11


async def test_only_pods_are_noted_with_all_that_an_event_says(watched: Watched) -> None:
    for kind in ("pods", "jobs", "statefulsets"):
        await watched.sees("DELETED", handler=f"{kind}-changed", labels={labels.PIPELINE: KEY.name})
    assert [pod["status"] for pod in watched.pods] == [{"lag": 7}]


@pytest.mark.parametrize("kind", ["services", "poddisruptionbudgets", "statefulsets"])
async def test_a_part_that_is_deleted_or_changed_is_noted_and_wakes(watched: Watched, kind: str) -> None:
    handler, mark = f"{kind}-applied", {labels.PIPELINE: KEY.name}
    await watched.sees("ADDED", handler=handler, labels=mark, resourceVersion="1")
    assert await watched.sees("MODIFIED", handler=handler, labels=mark, generation=2, resourceVersion="2") == 1
    assert await watched.sees("DELETED", handler=handler, labels=mark) == 1
    assert watched.parts == [(KEY, "1"), (KEY, "2"), (KEY, None)]
    assert await watched.sees("DELETED", handler=handler, labels={}) == 0


@pytest.mark.parametrize("kind", ["poddisruptionbudgets", "statefulsets"])
async def test_a_status_of_a_part_is_not_a_change_of_the_cluster(watched: Watched, kind: str) -> None:
    handler, mark = f"{kind}-applied", {labels.PIPELINE: KEY.name}
    await watched.sees("ADDED", handler=handler, labels=mark, resourceVersion="1")
    assert await watched.sees("MODIFIED", handler=handler, labels=mark, resourceVersion="2") == 0
    assert watched.parts == [(KEY, "1")]


def test_kopf_neither_copies_an_object_nor_writes_into_it() -> None:
    """Each event would otherwise cost a deep copy of what tenants wrote."""
    body, patch = kopf.Body({"metadata": {"annotations": {"large": "x" * 1000}}, "spec": {"a": 1}}), kopf.Patch()
    storage = _settings().persistence.diffbase_storage
    essence = storage.build(body=body)
    assert essence == {}
    storage.store(body=body, patch=patch, essence=essence)
    assert (dict(patch), storage.fetch(body=body)) == ({}, None)
