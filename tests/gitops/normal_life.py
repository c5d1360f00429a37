"""Four hours made of a few minutes: what a real operator said, with the time stretched in which only time passes.

A recording is a list of moments. While something changes, the moments are as far apart as they were; where a test says
that nothing but time passes, the last one is repeated. promtool then evaluates the chart's rules over all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic, time
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from harness.kubectl import Object
from testbed.release import NAMESPACE, RELEASE

STEP: Final = 15
"""Seconds between two scrapes, the chart's default."""
_OF_OPERATOR: Final = {"namespace": NAMESPACE, "job": f"{RELEASE}-metrics"}
_MOMENTS: Final = ("_timestamp_seconds",)

Moment = Mapping[str, float]
"""Series to its value; moments in time are seconds before or after the scrape."""


def moment(text: str, keep: Callable[[Mapping[str, str]], bool]) -> Moment:
    """Return what a scrape says of the operator, and of the pipelines that `keep` by their labels."""
    now, found = time(), {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            if not sample.name.startswith("fencepost_") or ("name" in labels and not keep(labels)):
                continue
            if "name" not in labels:
                labels |= _OF_OPERATOR
            inside = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
            relative = sample.value - now if sample.name.endswith(_MOMENTS) else sample.value
            found[f"{sample.name}{{{inside}}}"] = relative
    return found


@dataclass(slots=True)
class Recording:
    """Scrapes one STEP apart."""

    scrape: Callable[[], Moment | None]
    """None while the operator does not answer."""
    moments: list[Moment | None] = field(default_factory=list)

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

    def series(self) -> list[Object]:
        """Return promtool's input series."""
        names = {name for found in self.moments if found for name in found}
        return [{"series": name, "values": " ".join(self._values(name))} for name in sorted(names)]

    def _values(self, name: str) -> Iterator[str]:
        is_moment = name.partition("{")[0].endswith(_MOMENTS)
        there = False
        for number, found in enumerate(self.moments):
            value = found.get(name) if found else None
            if value is None:
                yield "stale" if there else "_"
                there = False
                continue
            there = True
            yield f"{value + number * STEP:.3f}" if is_moment else f"{value:g}"

    def quiet(self, alerts: Mapping[str, object]) -> Object:
        """Return promtool's test that none of these alerts fires at any minute."""
        minutes = range(1, len(self.moments) * STEP // 60)
        checks = [{"eval_time": f"{minute}m", "alertname": alert} for minute in minutes for alert in alerts]
        return {"name": "normal life", "interval": f"{STEP}s", "input_series": self.series(), "alert_rule_test": checks}
