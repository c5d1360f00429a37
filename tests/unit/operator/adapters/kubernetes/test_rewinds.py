"""Which rewinds of a namespace are a pipeline's, and how much of the others is read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import yaml
from aiohttp import web

from fakes.web_server import api_server
from fencepost.contract.guidance.operations import APPLY_CRDS
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.adapters.kubernetes.rewinds import KubernetesRewinds
from fencepost_operator.api import FINALIZER, ObjectKey
from fencepost_operator.errors import Rejected
from unit.crds.schema import REPOSITORY

KEY = ObjectKey("shop", "orders")
CRD: dict[str, Any] = yaml.safe_load((REPOSITORY / "crds" / "pipelinerewinds.streaming.fencepost.dev.yaml").read_text())
SELECTABLE = tuple(each["jsonPath"] for each in CRD["spec"]["versions"][0].get("selectableFields", ()))


def manifest(number: int, pipeline: str, **metadata: Any) -> dict[str, Any]:
    found = {
        "namespace": KEY.namespace, "name": f"back-{number:03}", "uid": f"uid-{number}",
        "creationTimestamp": "2026-01-01T00:00:00Z", **metadata,
    }  # fmt: skip
    return {"metadata": found, "spec": {"pipeline": pipeline, "to": {"offsets": {"orders/0": 5}}}}


@dataclass
class Server:
    """An API server that lists rewinds in pages, by the fields that the CRD lets it select."""

    objects: list[dict[str, Any]]
    selectable: tuple[str, ...] = SELECTABLE
    sent: int = field(default=0, init=False)
    """Bytes of all answers."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        found = self.objects
        for term in filter(None, request.query.get("fieldSelector", "").split(",")):
            name, _, value = term.partition("=")
            if f".{name}" not in self.selectable:
                return web.json_response({"message": f"field label not supported: {name}"}, status=400)
            part, _, last = name.partition(".")
            found = [each for each in found if each[part][last] == value]
        start, limit = int(request.query.get("continue") or 0), int(request.query["limit"])
        end = min(start + limit, len(found))
        more = {"continue": str(end)} if end < len(found) else {}
        body = json.dumps({"items": found[start:end], "metadata": more}).encode()
        self.sent += len(body)
        return web.Response(body=body, content_type="application/json")

    @asynccontextmanager
    async def rewinds(self) -> AsyncIterator[KubernetesRewinds]:
        async with api_server(self.handle) as api:
            yield KubernetesRewinds(api, cast("EventRecorder", None))


async def names(server: Server) -> list[str]:
    async with server.rewinds() as rewinds:
        return [found.key.name for found in await rewinds.unfinished(KEY, expected=True)]


async def test_a_rewind_beyond_a_hundred_others_of_the_namespace_is_seen() -> None:
    """A neighbour's unfinished rewinds hid it: only the first hundred by name were read."""
    others = [manifest(number, "another") for number in range(250)]
    assert await names(Server([*others, manifest(250, "orders")])) == ["back-250"]


async def test_a_pass_reads_no_rewind_of_another_pipeline() -> None:
    """A hundred rewinds with the largest annotations, each of another pipeline: each pass read all 26 MB."""
    padded = {"annotations": {"a": "x" * (255 * 1024)}}
    server = Server([manifest(number, f"another-{number}", **padded) for number in range(100)])
    server.objects.append(manifest(100, "orders"))
    assert await names(server) == ["back-100"]
    assert server.sent < 1024


@pytest.mark.parametrize("label", ["another", "orders", "", "no-such-pipeline"])
async def test_what_a_label_says_hides_no_rewind_and_gives_none_to_another_pipeline(label: str) -> None:
    """Whoever may create rewinds writes their labels; the spec alone says whose one is."""
    labels = {"labels": {"streaming.fencepost.dev/pipeline": label}}
    server = Server([manifest(0, "orders", **labels), manifest(1, "another", **labels)])
    assert await names(server) == ["back-000"]


async def test_a_crd_by_which_no_pipeline_can_be_selected_is_named_with_its_remedy() -> None:
    """Helm never upgrades CRDs: a rewind in progress must not be overlooked under an older one."""
    with pytest.raises(Rejected, match=r"field label not supported: spec\.pipeline") as caught:
        await names(Server([manifest(0, "orders")], selectable=()))
    assert APPLY_CRDS in caught.value.remedy


async def test_of_very_many_rewinds_those_in_progress_and_the_oldest_are_kept() -> None:
    """A tenant may create any number, each with a thousand offsets."""
    many = [manifest(number, "orders") for number in range(250)]
    for number, each in enumerate(many):
        each["metadata"]["creationTimestamp"] = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    many[249]["metadata"]["finalizers"] = [FINALIZER]
    assert await names(Server(many)) == [*(f"back-{number:03}" for number in range(19)), "back-249"]
