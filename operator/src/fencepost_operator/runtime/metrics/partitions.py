"""Gauges with a series per partition of a pipeline, of which the world may name any number.

The pipelines of a namespace share a budget of such series: a scrape has those of all namespaces.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Final

from fencepost_operator.api import ObjectKey
from fencepost_operator.runtime.metrics.series import Series

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION: Final = re.compile(r"[0-9]{1,9}")


MOST_SERIES: Final = 10_000
"""Series of partitions that the pipelines of one namespace have together, some 3 MB of a scrape."""


class SeriesBudget:
    """How many series of partitions each namespace has; `fencepost_series_dropped` says how many it lacks."""

    def __init__(self, series: list[Series], *, most: int) -> None:
        self._most = most
        self._taken: dict[str, dict[object, int]] = {}
        self._lacking: dict[str, dict[object, int]] = {}
        self._dropped = Series(
            "fencepost_series_dropped",
            "Series of partitions that are not there because the pipelines of the namespace have too many together.",
            ("namespace",),
        )
        series.append(self._dropped)

    def granted(self, namespace: str, owner: object, wanted: int) -> int:
        """Return how many of the series an owner may have, beside those that others of its namespace have."""
        taken, lacking = self._taken.setdefault(namespace, {}), self._lacking.setdefault(namespace, {})
        left = self._most - sum(count for other, count in taken.items() if other != owner)
        granted = min(wanted, max(left, 0))
        for counts, count in ((taken, granted), (lacking, wanted - granted)):
            counts[owner] = count
            if not count:
                del counts[owner]
        self._report(namespace)
        return granted

    def _report(self, namespace: str) -> None:
        if lacking := sum(self._lacking[namespace].values()):
            self._dropped.set((namespace,), lacking)
            return
        self._dropped.remove((namespace,))
        if not self._taken[namespace]:
            del self._taken[namespace], self._lacking[namespace]


class PartitionGauge:
    """A figure by topic and partition, for the first partitions that the budget has series for."""

    def __init__(self, name: str, words: str, series: list[Series], budget: SeriesBudget) -> None:
        self._name = name
        self._budget = budget
        self._gauge = Series(name, words, ("namespace", "name", "topic", "partition"))
        series.append(self._gauge)
        self._known: dict[ObjectKey, frozenset[tuple[str, str]]] = {}

    def set(self, key: ObjectKey, figures: Iterable[tuple[str, int]]) -> None:
        """Set the series of these 'topic/partition', and drop the pipeline's others."""
        partitions: dict[tuple[str, str], int] = {}
        for place, figure in figures:
            topic, _, partition = place.rpartition("/")
            if _TOPIC.fullmatch(topic) and _PARTITION.fullmatch(partition):
                partitions[topic, partition] = figure
        granted = self._budget.granted(key.namespace, (self._name, key.name), len(partitions))
        partitions = dict(itertools.islice(partitions.items(), granted))
        for gone in self._known.get(key, frozenset()) - partitions.keys():
            self._gauge.remove((key.namespace, key.name, *gone))
        for (topic, partition), figure in partitions.items():
            self._gauge.set((key.namespace, key.name, topic, partition), figure)
        self._known[key] = frozenset(partitions)

    def forget(self, key: ObjectKey) -> None:
        """Drop the pipeline's series."""
        self.set(key, ())
        del self._known[key]
