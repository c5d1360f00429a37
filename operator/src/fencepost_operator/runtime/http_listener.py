"""A listener of HTTP of its own, for probes or for metrics: neither queues behind the other."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serving(port: int, *routes: web.RouteDef, encryption: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Serve the routes on all addresses while the context lasts."""
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, None, port, ssl_context=encryption).start()
        yield
    finally:
        await runner.cleanup()
