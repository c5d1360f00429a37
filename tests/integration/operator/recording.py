"""A proxy in front of the API server, one for each operator process: what it asked for, and when."""

from __future__ import annotations

import base64
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

_HOP_BY_HOP = frozenset({"host", "connection", "transfer-encoding", "content-length", "content-encoding"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request that reached the proxy, and what the API server answered; `at` is in monotonic seconds."""

    method: str
    path: str
    at: float
    status: int


@dataclass(slots=True)
class Recorder:
    """Forwards every request, watches included."""

    kubeconfig: Path
    """For the process that goes through the proxy."""
    requests: list[Request] = field(default_factory=list)

    def writes(self, *, since: float) -> list[Request]:
        """Return what changed something, or was meant to."""
        return [found for found in self.requests if found.method != "GET" and found.at >= since]

    def passes(self, path: str, *, since: float) -> list[Request]:
        """Return the reads with which passes over a pipeline begin."""
        return [found for found in self.requests if found.method == "GET" and found.path == path and found.at >= since]


@contextlib.asynccontextmanager
async def recorded(real: Path, folder: Path) -> AsyncIterator[Recorder]:
    """Serve a proxy to the cluster of a kubeconfig while the context lasts."""
    server, context = _cluster(real, folder)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=0)) as session:
        recorder = Recorder(folder / "kubeconfig")

        async def forward(request: web.Request) -> web.StreamResponse:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
            timeout = aiohttp.ClientTimeout(total=None)
            url, body = server + request.raw_path, await request.read()
            at = time.monotonic()
            async with session.request(request.method, url, headers=headers, data=body, timeout=timeout) as answer:
                recorder.requests.append(Request(request.method, request.path, at, answer.status))
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
                    await response.write_eof()
                return response

        application = web.Application(client_max_size=16 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        recorder.kubeconfig.write_text(yaml.safe_dump(_config(f"http://127.0.0.1:{port}")))
        try:
            yield recorder
        finally:
            await runner.cleanup()


def _cluster(kubeconfig: Path, folder: Path) -> tuple[str, ssl.SSLContext]:
    """Return the API server's address and how to speak to it."""
    folder.mkdir()
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=_pem(cluster, "certificate-authority").decode())
    certificate, key = folder / "client.crt", folder / "client.key"
    certificate.write_bytes(_pem(user, "client-certificate"))
    key.touch(mode=0o600)
    key.write_bytes(_pem(user, "client-key"))
    context.load_cert_chain(certificate, key)
    server: str = cluster["server"]
    return server, context


def _pem(holder: dict[str, Any], name: str) -> bytes:
    inline = holder.get(f"{name}-data")
    return base64.b64decode(inline) if inline else Path(holder[name]).read_bytes()


def _config(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "proxy",
        "clusters": [{"name": "proxy", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
    }
