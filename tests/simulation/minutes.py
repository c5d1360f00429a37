"""Minutes without commits although records wait: none passes without a reason in the status, nor a page when it lasts.

The world's own clock counts, and what the drivers really do, of which the operator may see nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from fakes.manifests import KEY
from fakes.world import START
from fencepost_operator.api import Pipeline, Reason, Spec, State
from fencepost_operator.decision.pausing import is_paused
from fencepost_operator.decision.reporting.incidents import PLANNED
from fencepost_operator.decision.rules.health import MAX_DOUBLINGS
from simulation.failure import require
from simulation.operators import CONFIG
from simulation.world import SimulatedWorld

MINUTE: Final = timedelta(minutes=1)
WELL: Final = frozenset({Reason.STREAMING, Reason.CATCHING_UP})
"""Reasons of Ready that do not explain a minute without commits."""
SLACK: Final = timedelta(seconds=2 * CONFIG.resync_interval)
PAGED_BY: Final = timedelta(seconds=CONFIG.page_not_ready_after)


@dataclass(slots=True)
class Minutes:
    """Checks the world after each step; `disturbed` says that something happens to the operators themselves."""

    world: SimulatedWorld
    offsets: Mapping[str, int] = field(default_factory=dict)
    moved_at: datetime = START
    unexplained_since: datetime | None = None
    unpaged_since: datetime | None = None

    def look(self, *, disturbed: bool) -> None:
        """Look at the world as it is now. Raises Broken."""
        now, pipeline = self.world.now, self.world.pipelines.get(KEY)
        if pipeline is None or self._moves(now, pipeline):
            self.unexplained_since = self.unpaged_since = None
            return
        if self._is_explained(pipeline) or disturbed:
            self.unexplained_since = None
        else:
            self.unexplained_since = self.unexplained_since or now
            lasted = now - self.unexplained_since
            require(lasted <= _patience(pipeline) + SLACK, f"minutes without commits or a reason: {lasted}")
        if _is_paged(pipeline) or _needs_no_page(pipeline) or disturbed:
            self.unpaged_since = None
        else:
            self.unpaged_since = self.unpaged_since or now
            lasted = now - self.unpaged_since
            limit = PAGED_BY + _patience(pipeline) + SLACK
            require(lasted <= limit, f"minutes without commits or a page: {lasted}")

    def _moves(self, now: datetime, pipeline: Pipeline) -> bool:
        """Return whether something was committed within a minute, is about to be, or nothing waits for it."""
        row = next(iter(self.world.table.rows.values()), None)
        offsets = row.offsets if row is not None else {}
        waiting = any(end > offsets.get(key, end) for key, end in self.world.ends.items())
        if offsets != self.offsets or not waiting or is_paused(pipeline) or pipeline.deleting_since is not None:
            self.offsets, self.moved_at = offsets, now
        return now - self.moved_at < MINUTE or self._works()

    def _works(self) -> bool:
        """Return whether a driver is inside a long batch, and would say so."""
        return any(
            driver.alive and not driver.frozen and not driver.hangs and driver.batch_since is not None
            for driver in self.world.processes
        )

    @staticmethod
    def _is_explained(pipeline: Pipeline) -> bool:
        ready = next((c for c in pipeline.status.conditions if c.type == "Ready"), None)
        return ready is not None and (ready.status != "True" or ready.reason not in WELL)


def _patience(pipeline: Pipeline) -> timedelta:
    """Return how long a run may stand still before it is replaced: the timeout doubles for runs that are too slow."""
    spec, failure = pipeline.spec, pipeline.status.failure
    if not isinstance(spec, Spec):
        return timedelta(minutes=10)
    doublings = min(failure.repeats, MAX_DOUBLINGS) if failure is not None and failure.count else 0
    return timedelta(seconds=max(spec.restart.stall_timeout, spec.restart.start_timeout) * 2**doublings)


def _is_paged(pipeline: Pipeline) -> bool:
    return any(page.resolved_at is None for page in pipeline.status.pages)


def _needs_no_page(pipeline: Pipeline) -> bool:
    """Return whether a user asked for what keeps the pipeline from its work."""
    ready = next((c.reason for c in pipeline.status.conditions if c.type == "Ready"), "")
    is_planned = ready in PLANNED and pipeline.status.state is not State.RESTARTING
    return is_planned or ready == Reason.SUSPENDED
