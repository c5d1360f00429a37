"""Every answer of the API server becomes a fact or one of our errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from fakes.web_server import api_server as serving_api
from fakes.web_server import serving
from fencepost_operator.adapters.kubernetes import api_server
from fencepost_operator.adapters.kubernetes.api_server import (
    JOBS,
    PODS,
    SECRETS,
    AlreadyExists,
    ApiServer,
    Gone,
    NamespaceEnds,
    Resource,
    TooLarge,
)
from fencepost_operator.errors import Conflict, Denied, FencepostError, Rejected, Unreachable
from fencepost_operator.turns import TENANT

NOT_FOUND = {"reason": "NotFound", "message": 'pods "a" not found', "details": {"name": "a", "kind": "pods"}}


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_never_makes_another_path(name: str) -> None:
    """The HTTP client takes `..` out of a path together with the part before it."""
    with pytest.raises(Rejected, match="is not the name of an object"):
        SECRETS.path(namespace="tenant", name=name)
    with pytest.raises(Rejected, match="is not the name of an object"):
        SECRETS.path(namespace=name)


def test_a_slash_in_a_name_stays_in_the_name() -> None:
    path = SECRETS.path(namespace="tenant", name="../../kube-system/secrets/x")
    assert path == "/api/v1/namespaces/tenant/secrets/..%2F..%2Fkube-system%2Fsecrets%2Fx"


@asynccontextmanager
async def answering(respond: Callable[[web.Request], web.StreamResponse]) -> AsyncIterator[ApiServer]:
    """An API server that answers every request in one way."""

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        return respond(request)

    async with serving_api(handle, token="bearer t0ken") as client:  # noqa: S106 - a test
        yield client


ENDS = {
    "message": '"a" is forbidden: unable to create new content in namespace n because it is being terminated',
    "details": {"causes": [{"reason": "NamespaceTerminating", "message": "namespace n is being terminated"}]},
}


def refusing(status: int, **body: Any) -> Callable[[web.Request], web.StreamResponse]:
    return lambda _: web.json_response({"kind": "Status", **body}, status=status)


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, {"message": "Unauthorized"}, Denied, "token"),
        (403, {"message": 'pods "a" is forbidden: User "u" cannot create resource "jobs"'}, Denied, "jobs.batch"),
        (403, {"message": 'jobs.batch "a" is forbidden: exceeded quota: small'}, Rejected, "exceeded quota"),
        (403, ENDS, NamespaceEnds, "being terminated"),
        (404, {"message": 'namespaces "n" not found', "details": {"name": "n"}}, Rejected, "namespaces"),
        (409, {"reason": "AlreadyExists", "message": "there"}, AlreadyExists, "there"),
        (409, {"reason": "Conflict", "message": "modified"}, Conflict, "modified"),
        (422, {"reason": "Invalid", "message": "spec.a: Required value"}, Rejected, "spec.a"),
        (429, {"message": "slow down"}, Unreachable, "slow down"),
        (500, {"message": "etcdserver: leader changed"}, Unreachable, "leader changed"),
        (503, {}, Unreachable, "HTTP 503"),
    ],
)
async def test_refusals_of_a_create(status: int, body: dict[str, Any], kind: type[FencepostError], words: str) -> None:
    async with answering(refusing(status, **body)) as api:
        with pytest.raises(FencepostError) as caught:
            await api.create(JOBS, namespace="n", body={})
    assert type(caught.value) is kind
    assert words in f"{caught.value} {getattr(caught.value, 'remedy', '')}"
    assert "create jobs.batch n" in str(caught.value)


@pytest.mark.parametrize("message", ['User "u" cannot list path', "no", ""])
async def test_a_read_that_is_forbidden_is_denied_in_whatever_words(message: str) -> None:
    """An authorizer of the cluster's own says it in its words; admission does not look at reads."""
    async with answering(refusing(403, message=message)) as api:
        with pytest.raises(Denied) as caught:
            await api.list(JOBS, namespace="n")
        with pytest.raises(Denied):
            await api.get(JOBS, namespace="n", name="a")
    assert caught.value.remedy == "grant the operator's ServiceAccount the verb 'list' on jobs.batch"


async def test_a_request_takes_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp would look for a proxy and a .netrc in a thread each, which takes as long as the request."""

    def refuse(*_: object) -> None:
        raise AssertionError("a thread for a request")

    async with answering(lambda _: web.json_response({"items": []})) as api:
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", refuse)
        assert await api.list(PODS, namespace="n") == []


@pytest.mark.parametrize(
    ("excluded", "asked"), [("", ["http://api.example/api/v1/namespaces/n/pods"]), ("api.example", [])]
)
async def test_a_proxy_of_the_environment_is_used(
    excluded: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        found.append(str(request.url))
        return web.json_response({"items": []})

    async with serving(handle) as url:
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.setenv("no_proxy", excluded)
        api = ApiServer(Configuration(host="http://api.example"))
        try:
            with contextlib.suppress(Unreachable):  # there is no such host
                await api.list(PODS, namespace="n")
        finally:
            await api.close()
    assert found == asked


async def test_metadata_is_asked_for_without_the_content() -> None:
    def respond(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept"] == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        return web.json_response({"kind": "PartialObjectMetadata", "metadata": {"uid": "u", "resourceVersion": "7"}})

    async with answering(respond) as api:
        found = await api.metadata(SECRETS, namespace="n", name="a")
    assert found == {"uid": "u", "resourceVersion": "7"}
    async with answering(refusing(404, **NOT_FOUND)) as api:
        assert await api.metadata(SECRETS, namespace="n", name="a") is None


async def test_a_missing_object_is_none_but_a_kind_that_is_not_served_is_unknown() -> None:
    async with answering(refusing(404, **NOT_FOUND)) as api:
        assert await api.get(PODS, namespace="n", name="a") is None
        await api.delete(PODS, namespace="n", name="a")
        with pytest.raises(Gone):
            await api.merge(PODS, namespace="n", name="a", body={})
    for starting in (lambda _: web.Response(status=404, text="404 page not found\n"), refusing(404, details={})):
        async with answering(starting) as api:
            with pytest.raises(Unreachable):
                await api.get(PODS, namespace="n", name="a")


async def test_requests_carry_the_token_the_selector_and_the_manager() -> None:
    seen: list[tuple[str, str, str]] = []

    def note(request: web.Request) -> web.StreamResponse:
        seen.append((request.method, request.path_qs, request.headers["Authorization"]))
        return web.json_response({"items": []})

    async with answering(note) as api:
        await api.list(SECRETS, namespace="n", labels="owner=helm,name=a")
        await api.create(JOBS, namespace="n", body={})
        await api.get(Resource(prefix="/api/v1", plural="nodes"), name="node")
    assert seen == [
        ("GET", "/api/v1/namespaces/n/secrets?labelSelector=owner%3Dhelm,name%3Da", "bearer t0ken"),
        ("POST", "/apis/batch/v1/namespaces/n/jobs?fieldManager=fencepost-operator", "bearer t0ken"),
        ("GET", "/api/v1/nodes/node", "bearer t0ken"),
    ]


async def test_a_server_that_does_not_answer_in_time_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "_TIMEOUT", aiohttp.ClientTimeout(total=0.05))
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    async with serving_api(hang) as client:
        with pytest.raises(Unreachable, match="TimeoutError"):
            await client.get(PODS, namespace="n", name="a")
        release.set()


@dataclass
class Server:
    """An API server that takes `latency` for each answer, or does not answer; and what it was asked, in order."""

    latency: float = 0.0
    is_silent: bool = False
    asked: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        await asyncio.sleep(3600 if self.is_silent else self.latency)
        return web.json_response({"items": []})

    def served(self) -> AbstractAsyncContextManager[ApiServer]:
        return serving_api(self.handle)


async def test_requests_beyond_the_connections_are_a_queue_and_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers each request at once; 1,000 loops make more of them than there are connections."""
    monkeypatch.setattr(api_server, "_CONNECTIONS", 2)
    monkeypatch.setattr(api_server, "_TIMEOUT", aiohttp.ClientTimeout(total=2))
    server = Server(latency=0.2)
    async with server.served() as api:
        await asyncio.gather(*(api.list(PODS, namespace=f"n{number}") for number in range(30)))
    assert len(server.asked) == 30


async def test_a_namespace_with_many_requests_delays_another_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "_CONNECTIONS", 1)
    server = Server()
    async with server.served() as api:
        greedy = [asyncio.create_task(api.list(PODS, namespace="greedy")) for _ in range(50)]
        await asyncio.sleep(0)
        await api.list(PODS, namespace="small")
        assert server.asked.index("/api/v1/namespaces/small/pods") <= 2
        await asyncio.gather(*greedy)


async def test_requests_count_for_the_namespace_whose_pass_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Helm's Secrets of all pipelines are in the operator's own namespace."""
    monkeypatch.setattr(api_server, "_CONNECTIONS", 1)
    server = Server()

    async def look(tenant: str, name: str) -> None:
        TENANT.set(tenant)
        await api.list(Resource(prefix="/api/v1", plural=name), namespace="fencepost-system")

    async with server.served() as api:
        passes = [asyncio.create_task(look("greedy", "many")) for _ in range(50)]
        await asyncio.sleep(0)
        await asyncio.create_task(look("small", "one"))
        assert server.asked.index("/api/v1/namespaces/fencepost-system/one") <= 2
        await asyncio.gather(*passes)


async def test_who_waited_while_the_server_was_silent_does_not_ask_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a thousand loops would notice only after ten minutes that the server is gone."""
    monkeypatch.setattr(api_server, "_CONNECTIONS", 1)
    monkeypatch.setattr(api_server, "_TIMEOUT", aiohttp.ClientTimeout(total=2))
    server = Server(is_silent=True)
    async with server.served() as api:
        requests = [asyncio.create_task(api.list(PODS, namespace=f"n{number}")) for number in range(20)]
        for outcome in await asyncio.gather(*requests, return_exceptions=True):
            assert isinstance(outcome, Unreachable)
            assert "the API server did not answer" in str(outcome)
        assert len(server.asked) == 1
        server.is_silent = False
        await api.list(PODS, namespace="n")


async def test_one_request_without_an_answer_says_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "_CONNECTIONS", 2)
    monkeypatch.setattr(api_server, "_TIMEOUT", aiohttp.ClientTimeout(total=2))
    server = Server(is_silent=True)
    async with server.served() as api:
        slow = asyncio.create_task(api.list(PODS, namespace="slow"))
        while not server.asked:  # noqa: ASYNC110 - the server's thread is this one
            await asyncio.sleep(0)
        server.is_silent, server.latency = False, 0.2
        others = [asyncio.create_task(api.list(PODS, namespace=f"n{number}")) for number in range(15)]
        with pytest.raises(Unreachable):
            await slow
        await asyncio.gather(*others)


def test_resources_are_named_as_rbac_names_them() -> None:
    status = Resource(prefix="/apis/streaming.fencepost.dev/v1beta1", plural="streamingpipelines", subresource="status")
    assert str(status) == "streamingpipelines.streaming.fencepost.dev/status"
    assert str(PODS) == "pods"


def listed(request: web.Request, *, objects: int, size: int) -> web.Response:
    """Answer a list of objects with large annotations, as many as are asked for."""
    start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or objects)
    end = min(start + limit, objects)
    items = [{"metadata": {"name": f"o{number}", "annotations": {"a": "x" * size}}} for number in range(start, end)]
    return web.json_response({"items": items, "metadata": {"continue": str(end)} if end < objects else {}})


async def test_an_answer_beyond_the_largest_is_refused_and_the_next_request_works() -> None:
    """26 MB of a tenant's objects took the operator's memory, and all pipelines with it."""
    async with answering(lambda request: listed(request, objects=200, size=256 * 1024)) as api:
        with pytest.raises(TooLarge, match=r"list jobs\.batch n: the answer has more than 4096 KiB") as caught:
            await api.list(JOBS, namespace="n")
        assert "large annotations" in caught.value.remedy
        assert len(await api.list(JOBS, namespace="n", limit=2)) == 2


async def test_large_objects_are_read_in_smaller_pages() -> None:
    sizes = list[int]()
    async with answering(lambda request: listed(request, objects=50, size=250 * 1024)) as api:
        names = list[str]()
        async for page in api.pages(JOBS, namespace="n", size=100):
            sizes.append(len(page))
            names += [item["metadata"]["name"] for item in page]
    assert names == [f"o{number}" for number in range(50)]
    assert max(sizes) * 250 * 1024 < 4 * 1024 * 1024


async def test_of_each_tenant_one_large_answer_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = {"evil": 0, "shop": 0}
    seen = dict(reading)
    read = api_server._text

    async def watched(answer: aiohttp.ClientResponse, *, most: int) -> bytes | None:
        tenant = TENANT.get()
        is_large = most > api_server._SMALL
        reading[tenant] += is_large
        seen[tenant] = max(seen[tenant], reading[tenant])
        try:
            return await read(answer, most=most)
        finally:
            reading[tenant] -= is_large

    monkeypatch.setattr(api_server, "_text", watched)

    async def of(tenant: str, api: ApiServer) -> int:
        TENANT.set(tenant)
        return len(await api.list(JOBS, namespace=tenant))

    async with answering(lambda request: listed(request, objects=4, size=250 * 1024)) as api:
        tenants = ["evil"] * 10 + ["shop"]
        assert set(await asyncio.gather(*(asyncio.create_task(of(tenant, api)) for tenant in tenants))) == {4}
    assert seen == {"evil": 1, "shop": 1}
