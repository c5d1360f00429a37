"""Every answer of the API server becomes a fact or one of our errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration

from fencepost_operator.adapters.api_server import (
    JOBS,
    PODS,
    SECRETS,
    AlreadyExists,
    ApiServer,
    Gone,
    Invalid,
    NamespaceEnds,
    Resource,
)
from fencepost_operator.errors import Conflict, Denied, FencepostError, Rejected, Unreachable

NOT_FOUND = {"reason": "NotFound", "message": 'pods "a" not found', "details": {"name": "a", "kind": "pods"}}


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_never_makes_another_path(name: str) -> None:
    """The HTTP client takes `..` out of a path together with the part before it."""
    with pytest.raises(Rejected, match="is no name"):
        SECRETS.path(namespace="tenant", name=name)
    with pytest.raises(Rejected, match="is no name"):
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

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    configuration = Configuration(host=f"http://127.0.0.1:{port}")
    configuration.api_key["BearerToken"] = "bearer t0ken"
    client = ApiServer(configuration)
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


async def test_a_refusal_by_the_schema_names_the_fields() -> None:
    """As Kubernetes 1.33 answers; a ValidatingAdmissionPolicy gives a cause without a field."""
    causes = [{"reason": "FieldValueNotSupported", "field": "status.state"}, {"message": "a policy"}]
    body = {"reason": "Invalid", "message": "status.state: Unsupported value", "details": {"causes": causes}}
    async with answering(refusing(422, **body)) as api:
        with pytest.raises(Invalid, match="Unsupported value") as caught:
            await api.replace(PODS, namespace="n", name="a", body={})
    assert caught.value.places == ("status.state",)


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
        (422, {"reason": "Invalid", "message": "spec.a: Required value"}, Invalid, "spec.a"),
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


async def test_metadata_is_asked_for_without_the_content() -> None:
    def respond(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept"] == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        return web.json_response({"kind": "PartialObjectMetadata", "metadata": {"uid": "u", "resourceVersion": "7"}})

    async with answering(respond) as api:
        found = await api.metadata(SECRETS, namespace="n", name="a")
    assert found == {"uid": "u", "resourceVersion": "7"}
    async with answering(refusing(404, **NOT_FOUND)) as api:
        assert await api.metadata(SECRETS, namespace="n", name="a") is None


async def test_an_object_that_is_not_there_is_none_but_a_kind_that_is_not_served_is_unknown() -> None:
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
    import aiohttp  # noqa: PLC0415 - only its timeout

    from fencepost_operator.adapters import api_server  # noqa: PLC0415

    monkeypatch.setattr(api_server, "_TIMEOUT", aiohttp.ClientTimeout(total=0.05))
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    application = web.Application()
    application.router.add_get("/{path:.*}", hang)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = ApiServer(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    try:
        with pytest.raises(Unreachable, match="TimeoutError"):
            await client.get(PODS, namespace="n", name="a")
    finally:
        release.set()
        await client.close()
        await runner.cleanup()


def test_resources_are_named_as_rbac_names_them() -> None:
    status = Resource(
        prefix="/apis/streaming.fencepost.dev/v1alpha1", plural="streamingpipelines", subresource="status"
    )
    assert str(status) == "streamingpipelines.streaming.fencepost.dev/status"
    assert str(PODS) == "pods"
