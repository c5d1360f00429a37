"""An API server for kopf's own watches, that knows lists, in pages, and watches without an event."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fakes.web_server import serving
from fencepost_operator.api import GROUP, PLURAL, REWIND_PLURAL, TRIAL_PLURAL, VERSION

KINDS = {
    ("", "v1"): ("pods", "namespaces"),
    ("apps", "v1"): ("statefulsets",),
    ("batch", "v1"): ("jobs",),
    (GROUP, VERSION): (PLURAL, REWIND_PLURAL, TRIAL_PLURAL),
    ("apiextensions.k8s.io", "v1"): ("customresourcedefinitions",),
}
DISCOVERY: dict[str, Any] = {
    "/api": {"versions": ["v1"]},
    "/apis": {
        "groups": [
            {"name": name, "versions": [{"version": version}], "preferredVersion": {"version": version}}
            for name, version in KINDS
            if name
        ]
    },
    **{
        f"/apis/{group}/{version}" if group else f"/api/{version}": {
            "resources": [
                {"name": name, "kind": name, "singularName": name, "namespaced": True, "verbs": ["list", "watch"]}
                for name in names
            ]
        }
        for (group, version), names in KINDS.items()
    },
}


class Server:
    """An API server with one pipeline in each namespace; `closed` namespaces are forbidden."""

    def __init__(self, *, closed: set[str] | None = None, pipelines: tuple[str, ...] = ("orders",)) -> None:
        self.closed = closed or set()
        self.pipelines = pipelines
        self.refused: Counter[str] = Counter()
        self.largest: Counter[str] = Counter()
        """Of each kind, the objects that one answer could hold at most."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in DISCOVERY:
            return web.json_response(DISCOVERY[request.path])
        namespace, plural = request.path.split("/")[-2:]
        if namespace in self.closed:
            self.refused[plural] += 1
            return web.json_response({"kind": "Status", "code": 403, "message": "forbidden"}, status=403)
        if "watch" in request.query:
            return await _silence(request)
        items = [_pipeline(namespace, name) for name in self.pipelines] if plural == PLURAL else []
        limit, start = int(request.query.get("limit") or 10**6), int(request.query.get("continue") or 0)
        self.largest[plural] = max(self.largest[plural], limit)
        end = start + limit
        metadata = {"resourceVersion": "1", "continue": str(end) if end < len(items) else ""}
        return web.json_response({"kind": "List", "metadata": metadata, "items": items[start:end]})

    @asynccontextmanager
    async def served(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
        """Have a kubeconfig in the folder lead here."""
        async with serving(self.answer) as url:
            config = {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {}}],
            }
            path = folder / "kubeconfig"
            path.write_text(json.dumps(config))
            monkeypatch.setenv("KUBECONFIG", str(path))
            monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
            yield


def _pipeline(namespace: str, name: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}", "resourceVersion": "1"}}


async def _silence(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.sleep(600)
    return response
