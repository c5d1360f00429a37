"""Prometheus metrics of pages and of the heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

_KINDS: Final = ("apprise", "pagerduty", "alertmanager")
_OUTCOMES: Final = ("delivered", "failed", "partly", "refused")


class OldestUnsent(Collector):
    """How long pages wait: one series of the operator's receivers, and one of each namespace whose receivers wait.

    The operator's has no namespace, so that Prometheus gives it the one of the pod.
    """

    def __init__(self) -> None:
        self.oldest: Callable[[], float] = lambda: 0.0
        self.by_namespace: Callable[[], Mapping[str, float]] = dict

    def collect(self) -> Iterator[Metric]:
        """Yield the metric as it is now."""
        found = Metric(
            "fencepost_pages_oldest_unsent_seconds",
            "Age of the oldest page that a receiver has not got, by the owner of the receiver: 0 for the operator "
            "without such a page, no series for a namespace without one.",
            "gauge",
        )
        found.add_sample(found.name, {"owner": "operator"}, self.oldest())
        for namespace, seconds in sorted(self.by_namespace().items()):
            found.add_sample(found.name, {"owner": "namespace", "namespace": namespace}, seconds)
        yield found


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
        self._oldest = OldestUnsent()
        registry.register(self._oldest)
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

    def watch(
        self,
        oldest: Callable[[], float],
        by_namespace: Callable[[], Mapping[str, float]],
        receivers: Callable[[], dict[str, int]],
    ) -> None:
        """Read at each scrape how long the oldest page waits, and how many receivers the operator has."""
        self._oldest.oldest, self._oldest.by_namespace = oldest, by_namespace
        for kind in _KINDS:
            self._receivers.labels(kind).set_function(partial(_count, receivers, kind))


def _count(receivers: Callable[[], dict[str, int]], kind: str) -> float:
    return float(receivers().get(kind, 0))
