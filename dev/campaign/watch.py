"""Watches that no minute without commits passes without a reason in the status and, when it lasts, a page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from campaign.diagnosis import of_now
from campaign.faults import blinded
from campaign.producer import Load
from campaign.world import World
from fencepost.fence import FenceError
from flights.sink import CassandraDownError
from harness.faults.schedule import Schedule
from harness.kubernetes.kubectl import KubectlError, Object

LOOK_SECONDS: Final = 2.0
SILENT_SECONDS: Final = 60.0
"""A pipeline that is Ready may be so long without a commit while records wait."""
PAGE_SECONDS: Final = 660.0
"""A pipeline that is not Ready may be so long without a page: pages.notReadyFor and one minute."""
_PLANNED: Final = frozenset({"Suspended"})


@dataclass(slots=True)
class Watch:
    """Looks at the status and the fence. `broken` are the minutes that broke the promise, each as a sentence."""

    world: World
    load: Load
    faults: Schedule
    report: Callable[[str], None]
    broken: list[str] = field(default_factory=list)
    _offsets: Mapping[str, int] = field(default_factory=dict)
    _silent_since: float = field(default_factory=time.monotonic)
    _unready_since: float = field(default_factory=time.monotonic)
    _state: str = ""

    def look(self, stop: threading.Event) -> None:
        """Look until the event is set."""
        while not stop.wait(LOOK_SECONDS):
            try:
                found = self.world.pipeline.object()
            except (KubectlError, AssertionError):
                self._silent_since = self._unready_since = time.monotonic()  # the status cannot be read by anyone
                continue
            self._look_at(found)

    def _look_at(self, found: Object) -> None:
        now = time.monotonic()
        ready = _condition(found, "Ready")
        said = f"{found.get('status', {}).get('state')} Ready={ready.get('status')}/{ready.get('reason')}"
        if said != self._state:
            self._state = said
            self.report(f"status: {said}")
        offsets = self._committed()
        moved = offsets != self._offsets or not self._waits(offsets)
        self._offsets = offsets
        if moved or ready.get("status") != "True" or blinded(self.faults, self._silent_since):
            self._silent_since = now
        elif now - self._silent_since > SILENT_SECONDS:
            self._break(f"{SILENT_SECONDS:.0f} s without a commit, records wait, and the status is {said}")
            self._silent_since = now
        is_fine = ready.get("status") == "True" or ready.get("reason") in _PLANNED
        if is_fine or found.get("status", {}).get("pages"):
            self._unready_since = now
        elif now - self._unready_since > PAGE_SECONDS:
            self._break(f"{PAGE_SECONDS:.0f} s not Ready and no page: {said}")
            self._unready_since = now

    def _break(self, sentence: str) -> None:
        self.broken.append(sentence)
        self.report(f"broken: {sentence}")
        for line in of_now(self.world, self.faults):
            self.report(f"  {line}")

    def _committed(self) -> Mapping[str, int]:
        """Return the fence row's offsets, or those of the last look while Cassandra does not answer."""
        try:
            with self.world.cassandra() as opened:
                row = self.world.fence(opened)
        except (CassandraDownError, FenceError, OSError):
            return self._offsets
        return dict(row.offsets) if row is not None else {}

    def _waits(self, offsets: Mapping[str, int]) -> bool:
        confirmed = dict(self.load.confirmed)
        return any(end > offsets.get(f"{self.world.topic}/{partition}", 0) for partition, end in confirmed.items())


def _condition(found: Object, kind: str) -> Mapping[str, Any]:
    conditions = found.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})
