"""Composes what alerts people: the pager, and the heartbeat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

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


def pager_of(
    settings: Settings,
    *,
    api: ApiServer,
    policy: EndpointPolicy,
    metrics: PrometheusPageMetrics,
    clock: SystemClock,
    may_write: Callable[[], None],
) -> QueuedPager:
    """Return the pager, whose figures are among the metrics."""
    shares = settings.heartbeat_secret == settings.pages_secret
    pager = QueuedPager(
        source=SecretReceivers(
            api=api,
            namespace=settings.namespace,
            lease=settings.lease,
            secret=settings.pages_secret,
            heartbeat_key=settings.heartbeat_key if shares else "",
        ),
        sender=ProcessSender(),
        cluster=ClusterAddresses(api),
        metrics=metrics,
        clock=clock,
        may_write=may_write,
        config=PagerConfig(
            allowed_endpoints=tuple(map(str, policy.entries)),
            reserved=tuple(map(str, policy.reserved)),
            pagerduty=settings.pagerduty_url,
            has_own_secret=bool(settings.pages_secret),
        ),
    )
    metrics.watch(pager.oldest_unsent, pager.unsent_by_namespace, pager.receivers)
    return pager


def heartbeat_of(
    settings: Settings,
    *,
    objects: KubernetesObjects,
    pager: QueuedPager,
    metrics: PrometheusMetrics,
    beaten: Callable[[str], None],
    is_leading: Callable[[], bool],
    elsewhere: Callable[[], Awaitable[Sequence[str]]],
) -> Heartbeat:
    """Return the heartbeat; its URL is read for each beat, so that a new one needs no restart."""

    async def address() -> str:
        place = ObjectKey(settings.namespace, "")
        return (await objects.secret(place, settings.heartbeat_secret)).get(settings.heartbeat_key, "")

    def troubles() -> Troubles:
        passes = metrics.passes
        return Troubles(
            stuck=passes.stuck(bound=STUCK_AFTER), failing=passes.failing(), undelivered=pager.undelivered()
        )

    return Heartbeat(
        address=address,
        troubles=troubles,
        is_leading=is_leading,
        elsewhere=elsewhere,
        beaten=beaten,
        interval=settings.heartbeat_interval_seconds,
    )
