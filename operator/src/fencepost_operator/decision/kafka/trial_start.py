"""With which snapshot the trial of a stateful pipeline's new code begins: its state is kept of no other moment.

With one that is as old as `upgrade.trial.since`, so that the trial has records; else with the oldest, once it is so
old.  It is recorded before the trial exists, and retention keeps it while the code is held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile
from uuid import UUID

from fencepost.fence.snapshots import Snapshot, Trigger, moment_of
from fencepost_operator.api import Pipeline, Spec, UpgradeTrialState, UpgradeTrialStatus
from fencepost_operator.decision.context import Context
from fencepost_operator.observation import Known, Observation, Unknown


def needs_snapshots(pipeline: Pipeline) -> bool:
    """Return whether the snapshots have to be read for a trial that may not exist yet."""
    tried, spec = pipeline.status.held_trial, pipeline.spec
    is_stateful = isinstance(spec, Spec) and spec.stateful is not None
    return is_stateful and tried is not None and tried.state == UpgradeTrialState.TRYING


def with_start(tried: UpgradeTrialStatus, own: Spec, observation: Observation) -> UpgradeTrialStatus:
    """Return the trial with the snapshot that it begins with; that of a trial that may exist stays."""
    found = observation.snapshots
    if own.stateful is None or not isinstance(found, Known) or observation.upgrade_trial != Known(None):
        return tried
    chosen = _chosen(found.value, observation.now - timedelta(seconds=own.upgrade.trial.since))
    return replace(tried, snapshot=str(chosen.id) if chosen is not None else "")


def _chosen(found: Sequence[Snapshot], latest: datetime) -> Snapshot | None:
    """Return the newest one up to a moment, or else the oldest: of those since the last rewind, the newest first.

    What an earlier one has is not what the pipeline continued from.
    """
    usable = list(takewhile(lambda one: one.trigger != Trigger.REWIND, found))
    return next((one for one in usable if one.at <= latest), usable[-1] if usable else None)


def wants_snapshot(context: Context) -> bool:
    """Return whether one is to be taken, because none exists to begin with."""
    tried, observation = context.status.held_trial, context.observation
    if tried is None or tried.snapshot or not needs_snapshots(context.pipeline):
        return False
    return isinstance(observation.snapshots, Known) and observation.upgrade_trial == Known(None)


def obstacle(context: Context) -> str:
    """Return why no snapshot is known to begin with, '' where nothing is known to be in the way."""
    status, observation = context.status, context.observation
    if wants_snapshot(context):
        return status.snapshots.message if status.snapshots is not None else ""
    if observation.upgrade_trial != Known(None) or not needs_snapshots(context.pipeline):
        return ""
    return observation.snapshots.message if isinstance(observation.snapshots, Unknown) else ""


def due_at(tried: UpgradeTrialStatus, own: Spec) -> datetime:
    """Return from when on there are records to try the code on."""
    taken = _moment(tried.snapshot)
    if own.stateful is None or taken is None:
        return tried.since
    return max(tried.since, taken + timedelta(seconds=own.upgrade.trial.since))


def is_due(context: Context, tried: UpgradeTrialStatus, own: Spec) -> bool:
    """Return whether the trial can begin: at once where the pipeline has no state."""
    if own.stateful is None:
        return True
    seen = context.observation.snapshots
    is_there = isinstance(seen, Known) and any(str(one.id) == tried.snapshot for one in seen.value)
    return is_there and context.now >= due_at(tried, own)


def awaited(context: Context, tried: UpgradeTrialStatus, own: Spec) -> str:
    """Return what the trial of a stateful pipeline waits for before it exists, '' where it waits for nothing."""
    if own.stateful is None or tried.state != UpgradeTrialState.TRYING:
        return ""
    if not tried.snapshot:
        return "once there is a snapshot to begin with"
    due = due_at(tried, own)
    when = f"{due:%Y-%m-%dT%H:%M:%SZ}"
    return f"from {when} on, when snapshot {tried.snapshot} is upgrade.trial.since old" if context.now < due else ""


def _moment(snapshot: str) -> datetime | None:
    try:
        return moment_of(UUID(snapshot))
    except ValueError:
        return None
