"""Composes what alerts people: the pager, its metrics, and the heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.kubernetes.api_server import ApiServer
from fencepost_operator.adapters.kubernetes.cluster_addresses import ClusterAddresses
from fencepost_operator.adapters.kubernetes.objects import KubernetesObjects
from fencepost_operator.adapters.kubernetes.page_receivers import SecretReceivers
from fencepost_operator.adapters.page_sender import ProcessSender
from fencepost_operator.api import ObjectKey
from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.runtime.controller import STUCK_AFTER
from fencepost_operator.runtime.heartbeat import Heartbeat, Troubles
from fencepost_operator.runtime.metrics.page_delivery import PrometheusPageMetrics
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from fencepost_operator.runtime.pager import PagerConfig, QueuedPager
from fencepost_operator.settings import Settings


@dataclass(slots=True, kw_only=True)
class Pages:
    """The loops get `pager`; it sends while the context `sent` lasts."""

    api: ApiServer
    objects: KubernetesObjects
    settings: Settings
    policy: EndpointPolicy
    metrics: PrometheusMetrics
    clock: SystemClock
    may_write: Callable[[], None]
    is_leading: Callable[[], bool]
    pager: QueuedPager = field(init=False)
    _counted: PrometheusPageMetrics = field(init=False)

    def __post_init__(self) -> None:
        settings, policy = self.settings, self.policy
        self._counted = PrometheusPageMetrics(self.metrics.registry)
        shares = settings.heartbeat_secret == settings.pages_secret
        self.pager = QueuedPager(
            source=SecretReceivers(
                api=self.api,
                namespace=settings.namespace,
                lease=settings.lease,
                secret=settings.pages_secret,
                heartbeat_key=settings.heartbeat_key if shares else "",
            ),
            sender=ProcessSender(),
            cluster=ClusterAddresses(self.api),
            metrics=self._counted,
            clock=self.clock,
            may_write=self.may_write,
            config=PagerConfig(
                allowed_endpoints=tuple(map(str, policy.entries)),
                reserved=tuple(map(str, policy.reserved)),
                pagerduty=settings.pagerduty_url,
                has_own_secret=bool(settings.pages_secret),
            ),
        )
        self._counted.watch(self.pager.oldest_unsent, self.pager.unsent_by_namespace, self.pager.receivers)

    @asynccontextmanager
    async def sent(self, wake: Callable[[ObjectKey], None]) -> AsyncIterator[None]:
        """Send pages and beat while the context lasts; `wake` has a pipeline's loop record the receipts."""
        self.pager.wake = wake
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(_beside(self.pager.run(), name="pager"))
            if self.settings.heartbeat_secret:
                await stack.enter_async_context(_beside(self._heartbeat().run(), name="heartbeat"))
            yield

    def _heartbeat(self) -> Heartbeat:
        """Return the heartbeat; its URL is read for each beat, so that a new one needs no restart."""
        settings, place = self.settings, ObjectKey(self.settings.namespace, "")

        async def address() -> str:
            return (await self.objects.secret(place, settings.heartbeat_secret)).get(settings.heartbeat_key, "")

        return Heartbeat(
            address=address,
            troubles=self._troubles,
            is_leading=self.is_leading,
            beaten=self._counted.beat,
            interval=settings.heartbeat_interval_seconds,
        )

    def _troubles(self) -> Troubles:
        now, passes = self.clock.now(), self.metrics.passes
        return Troubles(
            stuck=passes.stuck(now, bound=STUCK_AFTER),
            failing=passes.failing(now),
            undelivered=self.pager.undelivered(),
        )


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None], *, name: str) -> AsyncIterator[None]:
    """Have some work done while the context lasts."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
