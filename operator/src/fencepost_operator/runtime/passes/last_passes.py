"""What the last pass over each pipeline left for the next one: its status, and Kubernetes' facts of one at rest."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import Final

from fencepost_operator.api import GROUP, ObjectKey, Pipeline, Status
from fencepost_operator.decision.pausing import is_paused
from fencepost_operator.decision.rest import apart_from_figures
from fencepost_operator.observation import Known, NotAsked, Observation, Unknown, UnknownReason

_LARGEST: Final = 64 * 1024
"""Characters of what a tenant wrote, for each pipeline that is kept in memory: there may be any number of specs of a
megabyte."""
_FORGOTTEN: Final = Unknown(reason=UnknownReason.BUSY, message="it is asked for in each pass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A pipeline at rest, with its newest status, and what Kubernetes showed of it."""

    pipeline: Pipeline
    observation: Observation
    until: float
    """When that has to be asked for again, also without an event; in seconds of the monotonic clock."""
    has_glanced: bool = False
    """Whether a pass has found it so without asking Kubernetes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LastPass:
    """What is known of a pipeline, whatever its size. Times are in seconds of the monotonic clock."""

    uid: str
    status: Status
    """The newest one."""
    written: Status
    """As the API server has it; the newest one may have other figures."""
    written_at: float = -math.inf
    rest: Rest | None = None


@dataclass(slots=True, kw_only=True)
class LastPasses:
    """The last pass over each pipeline.

    `figures_interval` is the least time between two writes of figures alone.  All pipelines together have
    `figures_per_second` of them, as far as `slowest_figures` allows it.
    """

    figures_interval: float
    figures_per_second: float = math.inf
    slowest_figures: float = math.inf
    _known: dict[ObjectKey, _LastPass] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return how many pipelines there are."""
        return len(self._known)

    def begin(self, read: Pipeline) -> Pipeline:
        """Return the pipeline as it was read, with the figures that were not written yet.

        A status that another client has written meanwhile is taken as it is, and so is that of a paused pipeline, which
        stays as it was when the pause began.
        """
        last = self._known.get(read.key)
        if last is None or last.uid != read.uid or last.written != read.status or is_paused(read):
            self._known[read.key] = _LastPass(uid=read.uid, status=read.status, written=read.status)
            return read
        self._known[read.key] = replace(last, rest=None)
        return replace(read, status=last.status)

    def is_due(self, key: ObjectKey, status: Status, now: float) -> bool:
        """Return whether a status is to be written: figures alone wait for the interval."""
        last = self._known[key]
        if status == last.written:
            return False
        is_news = apart_from_figures(status) != apart_from_figures(last.written)
        return is_news or now - last.written_at >= self._pause()

    def _pause(self) -> float:
        """Return the least time between two writes of a pipeline's figures, with as many pipelines as there are."""
        return max(self.figures_interval, min(len(self) / self.figures_per_second, self.slowest_figures))

    def wrote(self, key: ObjectKey, status: Status, now: float) -> None:
        """Note a status as it was written."""
        self._known[key] = replace(self._known[key], status=status, written=status, written_at=now)

    def skipped(self, key: ObjectKey, status: Status) -> None:
        """Note a status that has news which are not written."""
        self._known[key] = replace(self._known[key], status=status)

    def begin_rest(self, pipeline: Pipeline, observation: Observation, until: float) -> None:
        """Note what Kubernetes shows of a pipeline that is at rest, and until when that holds without an event."""
        if _size(_as_kept(pipeline), observation) > _LARGEST:
            return
        resting = replace(
            observation,
            fence=_FORGOTTEN,
            source=NotAsked(),
            unread=NotAsked(),
            progress=NotAsked(),
            snapshots=NotAsked(),
            pinned=NotAsked(),
            durability=None,
        )
        self.continue_rest(Rest(pipeline=pipeline, observation=resting, until=until))

    def continue_rest(self, rest: Rest) -> None:
        """Note that a pipeline is still at rest."""
        pipeline = _as_kept(rest.pipeline)
        self._known[pipeline.key] = replace(self._known[pipeline.key], rest=replace(rest, pipeline=pipeline))

    def take_rest(self, key: ObjectKey, now: float) -> Rest | None:
        """Return what is known of a pipeline at rest, which is forgotten unless it is noted again."""
        last = self._known.get(key)
        if last is None or last.rest is None:
            return None
        self._known[key] = replace(last, rest=None)
        return last.rest if now < last.rest.until else None

    def has_glanced(self, key: ObjectKey, now: float) -> bool:
        """Return whether the last pass asked Kubernetes for nothing, and the next one need not either."""
        last = self._known.get(key)
        return last is not None and last.rest is not None and last.rest.has_glanced and now < last.rest.until

    def forget(self, key: ObjectKey) -> None:
        """Drop a pipeline that is gone."""
        self._known.pop(key, None)


def _as_kept(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline without the annotations that no decision reads."""
    own = {name: text for name, text in pipeline.annotations.items() if name.startswith(f"{GROUP}/")}
    return replace(pipeline, annotations=own)


def _size(pipeline: Pipeline, observation: Observation) -> int:
    """Return how many characters a tenant wrote: the spec and the kept ones, annotations and finalizers."""
    kept = [
        fact.value.revision.written
        for fact in (observation.began, observation.working, observation.stable)
        if isinstance(fact, Known) and fact.value.revision is not None
    ]
    return len(json.dumps([pipeline.written, pipeline.annotations, pipeline.finalizers, *kept]))
