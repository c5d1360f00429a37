"""Four hours made of a few minutes: what a real operator and the pods of a pipeline said, in stretched time.

A recording is a list of moments. While something changes, the moments are as far apart as they were; where a test says
that nothing but time passes, the last one is repeated. promtool then evaluates the chart's rules over all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic, time
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from harness.kubernetes.kubectl import Object
from harness.monitoring.pod_targets import PodScrape
from testbed.release import NAMESPACE, RELEASE

STEP: Final = 15
"""Seconds between two scrapes, the chart's default."""
_OF_OPERATOR: Final = {"namespace": NAMESPACE, "job": f"{RELEASE}-metrics"}
_MOMENTS: Final = ("_timestamp_seconds",)
_METRIC: Final = re.compile(r"\b(?:fencepost|jvm)_\w+")

Moment = Mapping[str, float]
"""Series to its value; moments in time are seconds before or after the scrape."""


def of_operator(text: str, keep: Callable[[Mapping[str, str]], bool]) -> Moment:
    """Return what a scrape says of the operator, and of the pipelines that `keep` by their labels."""
    now, found = time(), {}
    for sample in _samples(text):
        if sample.name.startswith("fencepost_") and ("name" not in sample.labels or keep(sample.labels)):
            labels = sample.labels if "name" in sample.labels else {**sample.labels, **_OF_OPERATOR}
            relative = sample.value - now if sample.name.endswith(_MOMENTS) else sample.value
            found[_series(sample.name, labels)] = relative
    return found


def of_pod(text: str, scrape: PodScrape) -> Moment:
    """Return what a scrape says of a pod; a label that the target has takes precedence, as without `honor_labels`."""
    found = {}
    for sample in _samples(text):
        if scrape.names.fullmatch(sample.name):
            own = {
                f"exported_{name}" if name in scrape.labels else name: value for name, value in sample.labels.items()
            }
            found[_series(sample.name, {**own, **scrape.labels})] = sample.value
    return found


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from family.samples


def _series(name: str, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}"


def metrics_of(rules: Mapping[str, Object]) -> set[str]:
    """Return the names of the metrics that these alerts read."""
    return {name for rule in rules.values() for name in _METRIC.findall(rule["expr"])}


@dataclass(slots=True)
class Recording:
    """Scrapes one STEP apart."""

    scrape: Callable[[], Moment]
    """Without the series of what does not answer."""
    moments: list[Moment] = field(default_factory=list)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Record what happens in the block, at its own pace, and once at its end."""
        done = Event()

        def record() -> None:
            began = monotonic()
            for number in range(10**6):
                self.moments.append(self.scrape())
                if done.wait(max(0.0, began + (number + 1) * STEP - monotonic())):
                    return

        recorder = Thread(target=record, name="recorder")
        recorder.start()
        try:
            yield
        finally:
            done.set()
            recorder.join()
            self.moments.append(self.scrape())

    def stretch(self, minutes: float) -> None:
        """Repeat the last moment for so long."""
        self.moments.extend([self.moments[-1]] * int(minutes * 60 / STEP))

    def missing(self, alerts: Mapping[str, Object]) -> set[str]:
        """Return the metrics that these alerts read and that were never there: an alert on them is quiet of itself."""
        return metrics_of(alerts) - {_name(series) for found in self.moments for series in found}

    def series(self, metrics: set[str]) -> list[Object]:
        """Return promtool's input series of these metrics."""
        found = {series for moment in self.moments for series in moment if _name(series) in metrics}
        return [{"series": series, "values": " ".join(self._values(series))} for series in sorted(found)]

    def _values(self, series: str) -> Iterator[str]:
        is_moment = _name(series).endswith(_MOMENTS)
        there = False
        for number, found in enumerate(self.moments):
            value = found.get(series)
            if value is None:
                yield "stale" if there else "_"
                there = False
                continue
            there = True
            yield f"{value + number * STEP:.3f}" if is_moment else f"{value:.12g}"

    def quiet(self, alerts: Mapping[str, Object]) -> Object:
        """Return promtool's test that none of these alerts fires at any minute."""
        minutes = range(1, len(self.moments) * STEP // 60)
        checks = [{"eval_time": f"{minute}m", "alertname": alert} for minute in minutes for alert in alerts]
        series = self.series(metrics_of(alerts))
        return {"name": "normal life", "interval": f"{STEP}s", "input_series": series, "alert_rule_test": checks}


def _name(series: str) -> str:
    return series.partition("{")[0]
