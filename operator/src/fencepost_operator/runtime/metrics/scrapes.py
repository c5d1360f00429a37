"""/metrics: rendered outside of the event loop, once for all who ask within a few seconds, and sent piece by piece.

Every pod may ask, as often as it wants, and the text grows with the pipelines of all tenants.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from fencepost_operator.runtime.http_listener import serving
from fencepost_operator.runtime.metrics.registry import CONTENT_TYPE, PrometheusMetrics

KEPT: Final = 3.0
"""Seconds for which a text is served again; Prometheus asks every 15 s."""
PATIENCE: Final = 10.0
"""Seconds that a client may take for the text, as Prometheus does by default; its connection is closed then."""
_PIECE: Final = 64 * 1024
"""Bytes that wait for a client at most: a connection that reads slowly holds no copy of the text."""


class Scrapes:
    """Answers scrapes with what the metrics render."""

    def __init__(
        self, metrics: PrometheusMetrics, *, monotonic: Callable[[], float] = time.monotonic, patience: float = PATIENCE
    ) -> None:
        self._metrics = metrics
        self._monotonic = monotonic
        self._patience = patience
        self._turn = asyncio.Lock()
        self._text = b""
        self._rendered_at: float | None = None

    @asynccontextmanager
    async def served(self, port: int) -> AsyncIterator[None]:
        """Serve on all addresses, without encryption, while the context lasts."""
        async with serving(port, web.get("/metrics", self.answer, allow_head=False)):
            yield

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Send the metrics to one client; give it up when it takes too long."""
        text = await self.text()
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        response.content_length = len(text)
        try:
            async with asyncio.timeout(self._patience):
                await response.prepare(request)
                for start in range(0, len(text), _PIECE):
                    await response.write(text[start : start + _PIECE])
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        return response

    async def text(self) -> bytes:
        """Return the metrics as they were KEPT seconds ago at most; one rendering at a time."""
        async with self._turn:
            if self._rendered_at is None or self._monotonic() - self._rendered_at >= KEPT:
                self._text = await self._metrics.rendered()
                self._rendered_at = self._monotonic()
            return self._text
