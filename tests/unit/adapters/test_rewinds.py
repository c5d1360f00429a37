"""Which rewinds of a namespace are a pipeline's."""

from __future__ import annotations

from typing import Any, cast

from fencepost_operator.adapters.api_server import ApiServer
from fencepost_operator.adapters.events import EventRecorder
from fencepost_operator.adapters.rewinds import KubernetesRewinds
from fencepost_operator.api import FINALIZER, ObjectKey

KEY = ObjectKey("shop", "orders")


def manifest(number: int, pipeline: str) -> dict[str, Any]:
    metadata = {
        "namespace": KEY.namespace, "name": f"back-{number:03}", "uid": f"uid-{number}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return {"metadata": metadata, "spec": {"pipeline": pipeline, "to": {"offsets": {"orders/0": 5}}}}


class Paged(ApiServer):
    """An API server that answers with as many objects as it is asked for, and a token for the rest."""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        self._objects = objects

    async def _call(self, *_: Any, query: Any = None, **__: Any) -> dict[str, Any]:
        start, limit = int(query["continue"] or 0), int(query["limit"])
        end = start + limit
        more = {"continue": str(end)} if end < len(self._objects) else {}
        return {"items": self._objects[start:end], "metadata": more}


async def test_a_rewind_beyond_a_hundred_others_of_the_namespace_is_seen() -> None:
    """A neighbour's unfinished rewinds hid it: only the first hundred by name were read."""
    others = [manifest(number, "another") for number in range(250)]
    rewinds = KubernetesRewinds(Paged([*others, manifest(250, "orders")]), cast("EventRecorder", None))
    assert [found.key.name for found in await rewinds.unfinished(KEY, expected=True)] == ["back-250"]


async def test_of_very_many_rewinds_those_in_progress_and_the_oldest_are_kept() -> None:
    """A tenant may create any number, each with a thousand offsets."""
    many = [manifest(number, "orders") for number in range(250)]
    for number, each in enumerate(many):
        each["metadata"]["creationTimestamp"] = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    many[249]["metadata"]["finalizers"] = [FINALIZER]
    rewinds = KubernetesRewinds(Paged(many), cast("EventRecorder", None))
    found = [found.key.name for found in await rewinds.unfinished(KEY, expected=True)]
    assert found == [*(f"back-{number:03}" for number in range(99)), "back-249"]
