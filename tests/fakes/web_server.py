"""A web server on a port of this machine that gives every request to one function."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from kubernetes.aio.client import Configuration

from fencepost_operator.adapters.kubernetes.api_server import ApiServer


@asynccontextmanager
async def serving(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """Serve for the block, at this URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def api_server(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]], *, token: str = ""
) -> AsyncIterator[ApiServer]:
    """Serve for the block, as the API server of this client."""
    async with serving(handle) as url:
        configuration = Configuration(host=url)
        if token:
            configuration.api_key["BearerToken"] = token
        client = ApiServer(configuration)
        try:
            yield client
        finally:
            await client.close()
