"""When a snapshot of the committed offsets is taken, and which ones are deleted: housekeeping, but for one trigger.

A snapshot is decided on, recorded in the status as pending, and written; it stays pending until a list of the snapshots
has it.  Its id follows from what was recorded, so that an operator that dies in between writes it once.  Before the
first run of another spec starts, its snapshot comes first; when it cannot be written, the run starts all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fencepost.fence import FenceRow
from fencepost.fence.snapshots import NAME, Snapshot, Trigger, snapshot_id
from fencepost_operator.actions import Action, DropSnapshots, StartRun, TakeSnapshot
from fencepost_operator.api import (
    SNAPSHOT_ANNOTATION,
    KeepSpec,
    Pipeline,
    SnapshotsSpec,
    SnapshotsStatus,
    SnapshotStatus,
    Spec,
    Status,
)
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.kafka.trial_start import needs_snapshots, wants_snapshot
from fencepost_operator.decision.wording import detail
from fencepost_operator.desired.identity.hashes import is_same_spec
from fencepost_operator.observation import Known, Observation, Unknown
from fencepost_operator.text import single_line

RECENT: Final = 10
"""Snapshots that the status lists."""
DROPPED_AT_ONCE: Final = 50
_CODE: Final = 300
"""Characters of a snapshot's code in the status."""
_SHORT: Final = 63
_WRONG_NAME: Final = "a name has at most 63 lower-case letters, digits, dashes and dots; set another one"


def needs_list(pipeline: Pipeline, now: datetime) -> bool:
    """Return whether the snapshots have to be read: none are known, one is pending, or some may have to go."""
    if not isinstance(pipeline.spec, Spec) or pipeline.deleting_since is not None:
        return False
    known, rules = pipeline.status.snapshots, pipeline.spec.snapshots
    if known is None or known.pending is not None or needs_snapshots(pipeline):
        return True
    is_old = known.oldest_at is not None and now - known.oldest_at > timedelta(seconds=rules.keep.age)
    count = known.count - known.pinned
    return count > 1 and (count > rules.keep.count or is_old)


def beyond(keep: KeepSpec, found: Sequence[Snapshot], now: datetime) -> tuple[Snapshot, ...]:
    """Return what is over the count or the age, the newest first; never the newest one."""
    oldest = now - timedelta(seconds=keep.age)
    return tuple(one for place, one in enumerate(found) if place > 0 and (place >= keep.count or one.at < oldest))


def snapshots_seen(before: SnapshotsStatus | None, observation: Observation) -> SnapshotsStatus | None:
    """Return what the status says of the snapshots after an observation; without a list, nothing changes."""
    found = observation.snapshots.value if isinstance(observation.snapshots, Known) else None
    if found is None:
        return before
    known = before or SnapshotsStatus()
    pins = observation.pinned.value if isinstance(observation.pinned, Known) else frozenset[str]()
    others = [snapshot for snapshot in found if str(snapshot.id) not in pins]
    listed = tuple(_listed(snapshot) for snapshot in found[:RECENT])
    pending = known.pending
    if pending is not None and any(str(snapshot.id) == pending.id for snapshot in found):
        pending = None
    return replace(
        known,
        count=len(found),
        pinned=len(found) - len(others),
        oldest_at=whole_milliseconds(others[-1].at) if others else None,
        last=listed[0] if listed else None,
        recent=listed,
        pending=pending,
        message=known.message if pending is not None else "",
    )


def with_snapshots(
    context: Context, status: Status, action: Action | None, failures: Mapping[str, str]
) -> tuple[Status, TakeSnapshot | DropSnapshots | None]:
    """Return the status with what is due for the snapshots in it, and what to do for them.

    `action` is what a rule asks for: a snapshot comes before the first run of another spec, and otherwise only where
    nothing else is asked for.  `failures` maps the id of a snapshot that could not be written to the reason.
    """
    known, row, spec = status.snapshots, _own_row(context), context.pipeline.spec
    if known is None or row is None or not isinstance(spec, Spec):
        return status, None
    if _is_too_late(context, known.pending, row):
        known = replace(known, pending=None)
    is_changed = isinstance(action, StartRun) and _is_other_spec(context, status)
    waits = isinstance(action, StartRun) and (is_changed or _is_for(known.pending, Trigger.SPEC_CHANGE))
    if action is not None and not waits:
        return replace(status, snapshots=known), None
    known = _requested(context, known, row, is_changed=is_changed) if known.pending is None else known
    pending = known.pending
    if pending is None:
        # A rewind in progress may go back to the state of one that is due.
        expired = None if status.rewind else _expired(context, spec.snapshots)
        return replace(status, snapshots=known), expired
    failure = failures.get(pending.id)
    status = replace(status, snapshots=replace(known, message=detail(failure) if failure else known.message))
    is_blind = _is_for(pending, Trigger.SPEC_CHANGE) and isinstance(context.observation.runs, Unknown)
    if is_blind or (failure and action is not None):
        return status, None
    return status, TakeSnapshot(id=pending.id, trigger=pending.trigger, name=pending.name, owner=context.owner)


def _requested(context: Context, known: SnapshotsStatus, row: FenceRow, *, is_changed: bool) -> SnapshotsStatus:
    """Return what is known, with the snapshot that is due as pending."""
    name = context.pipeline.annotations.get(SNAPSHOT_ANNOTATION, "")
    is_wrong = bool(name) and not NAME.fullmatch(name)
    known = replace(known, message=f"annotation {SNAPSHOT_ANNOTATION}: {_WRONG_NAME}" if is_wrong else "")
    if name and not is_wrong and name != known.requested:
        return replace(known, requested=name, pending=_pending(context, Trigger.ON_DEMAND, name))
    if is_changed:
        return replace(known, pending=_pending(context, Trigger.SPEC_CHANGE))
    if wants_snapshot(context):
        return replace(known, pending=_pending(context, Trigger.TRIAL))
    if _is_scheduled(context, known, row):
        return replace(known, pending=_pending(context, Trigger.SCHEDULE))
    return known


def _is_scheduled(context: Context, known: SnapshotsStatus, row: FenceRow) -> bool:
    """Return whether a run has committed something since the last snapshot, and the time has come."""
    spec, run, last = context.pipeline.spec, context.active_run, known.last
    if not isinstance(spec, Spec) or not spec.snapshots.every or run is None:
        return False
    since = last.at if last is not None else run.claimed_at
    if since is None or (last is not None and last.version == row.version):
        return False
    return context.now - since >= timedelta(seconds=spec.snapshots.every)


def _is_other_spec(context: Context, status: Status) -> bool:
    """Return whether the run that is about to start is the first one of another spec."""
    before, after = context.status.run, status.run
    return before is not None and after is not None and not is_same_spec(before.spec_hash, after.spec_hash)


def _is_too_late(context: Context, pending: SnapshotStatus | None, row: FenceRow) -> bool:
    """Return whether the run of the other spec has started: it may claim the fence at any moment."""
    return _is_for(pending, Trigger.SPEC_CHANGE) and (row.driver is not None or context.job is not None)


def _is_for(pending: SnapshotStatus | None, trigger: Trigger) -> bool:
    return pending is not None and pending.trigger == trigger


def _expired(context: Context, rules: SnapshotsSpec) -> DropSnapshots | None:
    """Return the deletion of what retention does not keep and no pipeline pins, the oldest first."""
    observed, pinned = context.observation.snapshots, context.observation.pinned
    if not isinstance(observed, Known) or not isinstance(pinned, Known):
        return None
    tried = context.status.held_trial
    kept = pinned.value | ({tried.snapshot} if tried is not None else set[str]())
    over = [str(one.id) for one in beyond(rules.keep, observed.value, context.now)]
    due = tuple(one for one in over if one not in kept)
    return DropSnapshots(ids=due[-DROPPED_AT_ONCE:]) if due else None


def _own_row(context: Context) -> FenceRow | None:
    """Return the fence row if it is this pipeline's and has something to copy."""
    fence = context.observation.fence
    row = fence.value if isinstance(fence, Known) else None
    is_right = row is not None and row.owner == context.owner and bool(row.offsets)
    return row if is_right and context.pipeline.deleting_since is None else None


def _pending(context: Context, trigger: Trigger, name: str = "") -> SnapshotStatus:
    one = snapshot_id(context.now, context.pipeline.uid, trigger, name)
    return SnapshotStatus(id=str(one), trigger=trigger, at=context.now, name=name)


def _listed(snapshot: Snapshot) -> SnapshotStatus:
    """Return a snapshot for the status, with every text bounded: any client with the account may have written it."""
    return SnapshotStatus(
        id=str(snapshot.id),
        trigger=single_line(snapshot.trigger, limit=_SHORT),
        at=whole_milliseconds(snapshot.at),
        name=single_line(snapshot.name, limit=_SHORT),
        epoch=snapshot.epoch,
        version=snapshot.version,
        code=single_line(snapshot.code, limit=_CODE),
    )


def whole_milliseconds(moment: datetime) -> datetime:
    """Return the moment as precise as a status keeps it."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
