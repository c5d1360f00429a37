"""A batch that other code began than what the spec names: that code finishes it, then the new code continues.

Rows of a half-written batch stay where the new code has other keys for its records.  So the batch is finished by the
code that began it, as its revision keeps it.  Where that code cannot, the new code takes over, and the range that both
may have written is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from fencepost.contract import LOSSES, split_offset_key
from fencepost.fence import FenceRow
from fencepost_operator.api import FinishingStatus, MixedOutput, OffsetRange, Reason, Revision, RunStatus, Spec, Status
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.kafka import loss_status
from fencepost_operator.decision.outcome import KUBERNETES_REASONS, Outcome, reconciling, unobservable
from fencepost_operator.decision.run.diagnosis import pod_issue
from fencepost_operator.decision.wording import detail
from fencepost_operator.desired.identity.code import code_text, finishing_spec, output_shape, revision_in
from fencepost_operator.desired.identity.hashes import fingerprints, optional_references
from fencepost_operator.observation import Began, NotAsked, References, Unknown, UnknownReason
from fencepost_operator.text import single_line

FAULTS_OF_THE_CODE: Final = frozenset(
    {
        Reason.BAD_SPEC,
        Reason.RUN_FAILED,
        Reason.BATCH_FAILED,
        Reason.POISON_RECORD,
        Reason.DATA_LOSS,
        *LOSSES,
    }
)
"""Failures after which the same code is not tried again; outages, lost nodes and too little memory are others."""
CANNOT_START: Final = frozenset({Reason.IMAGE_PULL_FAILED, Reason.CONTAINER_CONFIG_ERROR})
START_PATIENCE: Final = timedelta(minutes=2)
"""Until a pod that cannot start counts as gone for good: a registry may be down for a moment."""
ATTEMPTS: Final = 5
"""Runs in a row of the old code without a commit, unless the restart budget allows fewer."""
RECORDED: Final = 5
"""Ranges of mixed output that the status keeps, the newest."""
SHOWN: Final = 100
"""Partitions of each of them."""
_CODE: Final = 300
"""Characters of a code in the status: it may name any image."""


def open_until(context: RunContext) -> dict[str, int]:
    """Return the end of what was begun and is not committed, per 'topic/partition'; also what a cut left of a batch.

    What a user accepts as lost is no longer a part of it.
    """
    found = _begun_until(context.row)
    return loss_status.without_gone(found, context.status, context.row, context.observation)


def _begun_until(row: FenceRow) -> dict[str, int]:
    return {key: end for key, end in row.written_until.items() if end > row.offsets.get(key, end)}


def written_until(status: Status, row: FenceRow) -> dict[str, int]:
    """Return up to where there may be rows beyond what is committed, per 'topic/partition'."""
    return furthest(_begun_until(row), _reported(status.finishing, row))


def furthest(*ends: Mapping[str, int]) -> dict[str, int]:
    """Return the largest offset that any of these has, per 'topic/partition'."""
    return {key: max(each.get(key, 0) for each in ends) for each in ends for key in each}


def is_open(status: Status, row: FenceRow) -> bool:
    """Return whether a batch is begun and not committed, or is being finished."""
    return bool(written_until(status, row)) or row.planned_log is not None


def left_open(context: RunContext, offsets: Mapping[str, int]) -> Status:
    """Return the status with what is being finished in the partitions that stay when the offsets are set.

    Of those that move, all beyond the target is written again, as was asked for.  The status has only a batch that is
    being finished; the fence row keeps the ends of any other in `begun`.
    """
    known, row = _known(context), context.row
    until = {key: end for key, end in _until(context, known).items() if offsets.get(key) == row.offsets.get(key)}
    finishing = replace(known, until=until) if known is not None and until else None
    return replace(context.status, finishing=finishing)


def resolve(context: RunContext) -> RunContext | Outcome:
    """Return the context with the spec that the next run needs: of the code that began the open batch, or the new one.

    An active run of the pipeline's own spec is left alone; so is a row that a driver still holds: it may plan more.
    """
    batch = _open_batch(context)
    if batch is None:
        return _settled(context)
    old = _old_code(context)
    if isinstance(old, Outcome):
        return old
    if _writes_the_same(context, batch, old):
        return _settled(context)
    why = batch.given_up or (old if isinstance(old, str) else _why_not(context, batch, old))
    resolved = replace(context, status=replace(context.status, finishing=replace(batch, given_up=detail(why))))
    if why or isinstance(old, str):
        return resolved
    return replace(
        resolved,
        spec=old.spec,
        references=old.references,
        desired=fingerprints(old.spec, old.references.hashes, context.config.chart),
        finishes=resolved.status.finishing,
    )


def mixed_output(context: RunContext, run: RunStatus, code: str) -> tuple[MixedOutput, ...]:
    """Return what is recorded before new code starts on a batch that the code before could not finish."""
    before, row = context.status.mixed_output, context.row
    given_up = context.status.finishing
    if given_up is None or not given_up.given_up:
        return before
    ranges = [
        OffsetRange(partition=key, from_offset=row.offsets[key], until_offset=end)
        for key, end in sorted(open_until(context).items())
    ]
    found = MixedOutput(
        epoch=run.epoch,
        at=context.now,
        before=given_up.code,
        after=single_line(code, limit=_CODE),
        why=given_up.given_up,
        records=sum(each.until_offset - each.from_offset for each in ranges),
        partitions=len(ranges),
        ranges=tuple(ranges[:SHOWN]),
    )
    last = before[-1] if before else None
    if last is not None and (last.before, last.ranges) == (found.before, found.ranges):
        # The code that took over has not claimed the fence yet, whichever it was.
        found = replace(found, at=last.at) if last.after == found.after else found
        before = before[:-1]
    return (*before, found)[-RECORDED:]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OldCode:
    """The code that began the batch: as it was, and with the `spec` and the `references` with which it would finish."""

    revision: Revision
    written: Spec
    spec: Spec
    references: References


def _known(context: RunContext) -> FinishingStatus | None:
    """Return what is recorded of the open batch; nothing once other code has claimed the fence."""
    known = context.status.finishing
    return known if known is not None and known.code == single_line(context.row.code or "", limit=_CODE) else None


def _open_batch(context: RunContext) -> FinishingStatus | None:
    """Return the batch that may have to be finished, None without one or while the run that began it is active."""
    known, row = _known(context), context.row
    until = _until(context, known)
    if not until or not row.code:
        return None
    if known is not None:
        return replace(known, until=until)
    if context.active_run is not None or row.driver is not None:
        return None
    return FinishingStatus(
        code=single_line(row.code, limit=_CODE),
        revision=revision_in(context.pipeline.key.name, row.code),
        since=context.now,
        until=until,
    )


def _until(context: RunContext, known: FinishingStatus | None) -> dict[str, int]:
    """Return where the open batch ends; for a run that finishes it, the end in its configuration."""
    row = context.row
    until = _reported(known, row)
    if known is None or context.active_run is None or known.given_up:
        until = furthest(open_until(context), until)
    # A batch of a stateful pipeline may have no records, and rows for the sinks all the same: it ends where it begins.
    return until or (dict(row.offsets) if row.planned_log is not None else {})


def _reported(known: FinishingStatus | None, row: FenceRow) -> dict[str, int]:
    until = known.until if known is not None else {}
    return {key: end for key, end in until.items() if row.offsets.get(key, end) < end}


def _settled(context: RunContext) -> RunContext:
    if context.status.finishing is None:
        return context
    return replace(context, status=replace(context.status, finishing=None))


def _old_code(context: RunContext) -> _OldCode | str | Outcome:
    """Return the code that began the batch, why it cannot be had, or that this is not known yet."""
    name, began = revision_in(context.pipeline.key.name, context.row.code), context.observation.began
    if not name:
        return "an older release of the operator started it, and kept no spec"
    if isinstance(began, Unknown):
        if began.reason is UnknownReason.REJECTED:
            return began.message
        what = "The revision of the code that began the open batch cannot be read"
        return unobservable(context, KUBERNETES_REASONS[began.reason], began, what=what)
    if isinstance(began, NotAsked):
        return reconciling(context, Reason.PROVISIONING, f"Looking for revision {name}, which began the open batch")
    return _usable(context, name, began.value)


def _usable(context: RunContext, name: str, began: Began) -> _OldCode | str:
    revision = began.revision
    if revision is None:
        return f"its revision {name} is missing"
    written = revision.spec
    if not isinstance(written, Spec):
        what = "; ".join(str(violation) for violation in written)
        return f"this release of the operator refuses its revision {name}: {what}"
    spec = finishing_spec(written, context.spec)
    return _OldCode(revision=revision, written=written, spec=spec, references=began.references)


def _writes_the_same(context: RunContext, batch: FinishingStatus, old: _OldCode | str) -> bool:
    """Return whether the new code writes what the old one does, and reads all of the batch."""
    now = context.references.hashes
    if isinstance(old, str):
        return context.row.code == code_text(context.spec, now)  # of an older release: all that is known of it
    topics = {split_offset_key(key)[0] for key in batch.until}
    same = output_shape(old.written, old.revision.config_maps) == output_shape(context.spec, now)
    return same and topics <= set(context.spec.source.kafka.topics)


def _why_not(context: RunContext, batch: FinishingStatus, old: _OldCode) -> str:
    """Return why the old code cannot finish its batch, '' while it can."""
    hashes = old.references.hashes
    if changed := sorted(name for name, digest in old.revision.config_maps.items() if hashes.get(name) != digest):
        return f"{', '.join(changed[:3])} has changed since, and its former content is not kept"
    optional = optional_references(old.spec)
    if missing := [name for name in old.references.missing() if name not in optional]:
        return f"{', '.join(missing[:3])} does not exist any more"
    return _why_failed(context) or _why_not_started(context, batch)


def _why_failed(context: RunContext) -> str:
    run, failure = context.run, context.status.failure
    if run is None or context.active_run is not None:
        return ""
    if run.finishes and _known(context) is None:
        return f"{run.name} did not end after the batch that it should finish, as with an image of an older release"
    if failure is None or not failure.count or failure.epoch != run.epoch or not (run.claimed_at or run.finishes):
        return ""
    if failure.reason in FAULTS_OF_THE_CODE:
        return f"{run.name} failed with it ({failure.reason}: {failure.message})"
    most = 1 if context.status.rolled_back is not None else ATTEMPTS  # what was rolled back has failed before
    if run.finishes and failure.count >= min(most, context.spec.restart.max_attempts or most):
        return f"{failure.count} runs in a row failed with it, the last one with {failure.reason}: {failure.message}"
    return ""


def _why_not_started(context: RunContext, batch: FinishingStatus) -> str:
    """Return what keeps the old code's pods from starting, once that counts as final."""
    run = context.active_run
    if context.now - batch.since < START_PATIENCE or (run is not None and run.claimed_at):
        return ""
    issue = pod_issue(context)
    return issue.message if issue is not None and issue.category in CANNOT_START else ""
