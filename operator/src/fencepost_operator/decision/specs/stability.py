"""When a spec counts as stable: one run of it has committed often enough, and has lived for long enough."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from fencepost.fence import FenceRow
from fencepost_operator.api import RunStatus, Spec, StableStatus, Status
from fencepost_operator.decision.context import Context
from fencepost_operator.desired.identity.code import revision_in
from fencepost_operator.observation import Known

REMEMBERED: Final = 10
"""Stable specs whose rows are known by their hash."""


def with_commits(run: RunStatus, before: Status, row: FenceRow | None, spec: object) -> RunStatus:
    """Return the run with one commit more if its offsets have grown since the last look; nothing counts further."""
    seen, counted = before.committed, run.commits or 0
    if row is None or seen is None or not isinstance(spec, Spec) or counted >= spec.upgrade.stable_after.commits:
        return run
    is_its = run.claimed_at is not None and (row.epoch, row.driver) == (run.epoch, run.pod_uid)
    if not is_its or row.committed_at in {None, run.resumed_from, seen.at}:
        return run
    has_grown = sum(row.offsets.values()) > sum(seen.offsets.values())
    return replace(run, commits=counted + 1) if has_grown else run


def with_stable(context: Context, status: Status) -> Status:
    """Return the status with the revision of the active run as the stable one, once it has proven itself."""
    active, run, fence = context.active_run, status.run, context.observation.fence
    if active is None or run is None or run.name != active.name or not run.revision:
        return status
    if not isinstance(fence, Known) or fence.value is None or not _has_proven_itself(context, run):
        return status
    revision = _started_with(context, run, fence.value)
    if not revision or (status.stable is not None and status.stable.revision == revision):
        return status
    before = status.stable.outputs if status.stable is not None else ()
    found = StableStatus(
        revision=revision, epoch=run.epoch, since=context.now, outputs=_with_newest(before, run.output)
    )
    return replace(status, stable=found)


def _with_newest(before: tuple[str, ...], output: str) -> tuple[str, ...]:
    return (*(one for one in before if one != output), output)[-REMEMBERED:] if output else before


def _started_with(context: Context, run: RunStatus, row: FenceRow) -> str:
    """Return the revision that the run was started with, as its row names it; empty when the row is another run's.

    The recorded one follows the object where a change needs no other run, such as one of the bounds of batches:
    what the run commits does not prove it.
    """
    is_its = (row.epoch, row.driver) == (run.epoch, run.pod_uid)
    return revision_in(context.pipeline.key.name, row.code) if is_its else ""


def _has_proven_itself(context: Context, run: RunStatus) -> bool:
    spec, failure = context.pipeline.spec, context.status.failure
    if not isinstance(spec, Spec) or run.finishes or run.stop_requested_at is not None or run.claimed_at is None:
        return False
    wanted = spec.upgrade.stable_after
    lives = context.now - run.claimed_at >= timedelta(seconds=wanted.window)
    return lives and (run.commits or 0) >= wanted.commits and not (failure is not None and failure.count)
