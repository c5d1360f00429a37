"""Prometheus metrics of pages and of the heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

_KINDS: Final = ("apprise", "pagerduty", "alertmanager")
_OWNERS: Final = {"operator": True, "namespace": False}
_OUTCOMES: Final = ("delivered", "failed", "partly", "refused")


class PrometheusPageMetrics:
    """Implements the PageMetrics port over a registry of the operator's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pages = Counter(
            "fencepost_pages", "Messages to receivers of pages, by kind and outcome.", ["receiver", "outcome"],
            registry=registry,
        )  # fmt: skip
        for kind in _KINDS:
            for outcome in _OUTCOMES:
                self._pages.labels(kind, outcome)
        self._oldest = Gauge(
            "fencepost_pages_oldest_unsent_seconds",
            "Age of the oldest page that some receiver was not told, 0 without one, by whose receivers.",
            ["owner"],
            registry=registry,
        )
        for owner in _OWNERS:
            self._oldest.labels(owner)
        self._receivers = Gauge(
            "fencepost_page_receivers", "Receivers in the operator's own Secret, by kind.", ["receiver"],
            registry=registry,
        )  # fmt: skip
        self._heartbeats = Counter(
            "fencepost_heartbeats", "Calls of the heartbeat's URL, by outcome.", ["outcome"], registry=registry
        )

    def sent(self, kind: str, outcome: str) -> None:
        """Count a page that was sent, or was not."""
        self._pages.labels(kind, outcome).inc()

    def beat(self, outcome: str) -> None:
        """Count a heartbeat."""
        self._heartbeats.labels(outcome).inc()

    def watch(self, oldest: Callable[..., float], receivers: Callable[[], dict[str, int]]) -> None:
        """Ask at each scrape how long the oldest page waits, and whom the operator tells."""
        for owner, own in _OWNERS.items():
            self._oldest.labels(owner).set_function(partial(oldest, own=own))
        for kind in _KINDS:
            self._receivers.labels(kind).set_function(partial(_count, receivers, kind))


def _count(receivers: Callable[[], dict[str, int]], kind: str) -> float:
    return float(receivers().get(kind, 0))
