"""The kubelet's probes, served by the loop that does the work: when it is blocked, probes fail.

On a listener of its own: however many connections wait for metrics, a probe does not queue behind them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from fencepost_operator.runtime.controller import STUCK_AFTER
from fencepost_operator.runtime.http_listener import serving
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics


class Probes:
    """/healthz and /readyz. `unready` returns why the operator cannot work yet, or None."""

    def __init__(
        self,
        metrics: PrometheusMetrics,
        *,
        unready: Callable[[], str | None],
        stuck_after: float = STUCK_AFTER,
    ) -> None:
        self._metrics = metrics
        self._unready = unready
        self._stuck_after = stuck_after

    @asynccontextmanager
    async def served(self, port: int) -> AsyncIterator[None]:
        """Serve on all addresses while the context lasts."""
        async with serving(port, web.get("/healthz", self.healthz), web.get("/readyz", self.readyz)):
            yield

    async def healthz(self, _: web.Request) -> web.Response:
        """Return 503 and the names of the loops that are stuck, else 200."""
        stuck = self._metrics.passes.stuck(bound=self._stuck_after)
        if not stuck:
            return web.Response(text="ok\n")
        lines = [f"the loop of {key} began no pass for {age:.0f} s\n" for key, age in stuck.items()]
        return web.Response(status=503, text="".join(lines))

    async def readyz(self, _: web.Request) -> web.Response:
        """Return 503 and the reason until the operator watches pipelines."""
        reason = self._unready()
        return web.Response(text="ok\n") if reason is None else web.Response(status=503, text=f"{reason}\n")
