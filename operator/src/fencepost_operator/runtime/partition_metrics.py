"""Gauges with a series per partition of a pipeline, of which the world may name any number."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from fencepost_operator.api import ObjectKey

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION: Final = re.compile(r"[0-9]{1,9}")


class PartitionGauge:
    """A figure by topic and partition."""

    def __init__(self, name: str, words: str, registry: CollectorRegistry) -> None:
        labels = ["namespace", "name", "topic", "partition"]
        self._gauge = Gauge(name, words, labels, registry=registry)
        self._known: dict[ObjectKey, frozenset[tuple[str, str]]] = {}

    def set(self, key: ObjectKey, figures: Iterable[tuple[str, int]]) -> None:
        """Set the series of these 'topic/partition', and drop the pipeline's others."""
        partitions: dict[tuple[str, str], int] = {}
        for place, figure in figures:
            topic, _, partition = place.rpartition("/")
            if _TOPIC.fullmatch(topic) and _PARTITION.fullmatch(partition):
                partitions[topic, partition] = figure
        for gone in self._known.get(key, frozenset()) - partitions.keys():
            self._gauge.remove(key.namespace, key.name, *gone)
        for (topic, partition), figure in partitions.items():
            self._gauge.labels(key.namespace, key.name, topic, partition).set(figure)
        self._known[key] = frozenset(partitions)

    def forget(self, key: ObjectKey) -> None:
        """Drop the pipeline's series."""
        self.set(key, ())
        del self._known[key]
