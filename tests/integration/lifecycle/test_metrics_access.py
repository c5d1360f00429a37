"""Who may read the operator's metrics: tokens of a real API server, over TLS with a certificate that is rotated."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from fencepost_operator.adapters.kubernetes.access_reviews import Reviews
from fencepost_operator.adapters.kubernetes.api_server import ApiServer
from fencepost_operator.errors import NotLeading
from fencepost_operator.ports import Access
from fencepost_operator.runtime.metrics.tls_endpoint import SecureMetrics
from harness.kubernetes.control_plane import ControlPlane, control_plane
from harness.kubernetes.kubectl import Kubectl

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with control_plane() as found:
        yield found


@pytest.fixture(scope="module")
def kubectl(plane: ControlPlane) -> Kubectl:
    """Two accounts, of which one may read metrics."""
    found = plane.kubectl("default")
    for account in ("prometheus", "stranger"):
        found.run("create", "serviceaccount", account)
    found.run("create", "clusterrole", "reader", "--verb=get", "--non-resource-url=/metrics")
    found.run("create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=default:prometheus")
    return found


@pytest.fixture
async def reviews(plane: ControlPlane) -> AsyncIterator[Reviews]:
    """Of a replica that does not hold the lease."""

    def may_write() -> None:
        raise NotLeading("another replica acts")

    api = await ApiServer.connect(plane.kubeconfig, may_write)
    yield Reviews(api)
    await api.close()


def token(kubectl: Kubectl, account: str) -> str:
    return kubectl.run("create", "token", account, "--duration=1h").strip()


def certificate(folder: Path, name: str) -> None:
    """Write a certificate for 127.0.0.1 that signs itself."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={name}", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],
        check=True, capture_output=True,
    )  # fmt: skip


async def get(port: int, folder: Path, bearer: str | None = None) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    async with aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{port}/metrics"
        async with session.get(url, ssl=context, headers=headers) as answer:
            return answer.status, await answer.text()


async def exposition(_: web.Request) -> web.Response:
    return web.Response(text="a 1\n")


async def test_only_who_may_get_the_path_reads_the_metrics(
    kubectl: Kubectl, reviews: Reviews, tmp_path: Path, unused_tcp_port: int
) -> None:
    certificate(tmp_path, "first")
    secure = SecureMetrics(exposition, folder=tmp_path, access=reviews.access, check=0.1)
    async with secure.served(unused_tcp_port):
        assert await get(unused_tcp_port, tmp_path, token(kubectl, "prometheus")) == (200, "a 1\n")
        assert (await get(unused_tcp_port, tmp_path, token(kubectl, "stranger")))[0] == 403
        for wrong in (None, "", "x", "x" * 5000):
            assert (await get(unused_tcp_port, tmp_path, wrong))[0] == 401
        certificate(tmp_path, "second")
        await asyncio.sleep(0.5)
        assert (await get(unused_tcp_port, tmp_path, token(kubectl, "prometheus")))[0] == 200
        (tmp_path / "tls.key").write_text("no key")
        await asyncio.sleep(0.5)
        assert (await get(unused_tcp_port, tmp_path, token(kubectl, "prometheus")))[0] == 200  # as it was


async def test_an_answer_counts_for_a_minute(kubectl: Kubectl, plane: ControlPlane) -> None:
    clock = [0.0]
    api = await ApiServer.connect(plane.kubeconfig)
    reviews = Reviews(api, now=lambda: clock[0])
    bearer = token(kubectl, "prometheus")
    assert await reviews.access(bearer, "192.0.2.1") is Access.GRANTED
    kubectl.run("delete", "clusterrolebinding", "reader")
    try:
        assert await reviews.access(bearer, "192.0.2.1") is Access.GRANTED
        clock[0] = 61.0
        for _ in range(100):  # the authorizer of the API server follows its own watch
            if await reviews.access(bearer, "192.0.2.1") is Access.DENIED:
                break
            clock[0] += 61.0
            await asyncio.sleep(0.1)
        assert await reviews.access(bearer, "192.0.2.1") is Access.DENIED
    finally:
        kubectl.run(
            "create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=default:prometheus"
        )
        await api.close()
