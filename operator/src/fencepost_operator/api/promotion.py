"""Whether the code of a trial may become the pipeline's, as the operator and the command line judge it."""

from __future__ import annotations

from typing import Any, Final

from fencepost_operator.api.codec import encode
from fencepost_operator.api.spec.trials import TrialPromotion
from fencepost_operator.api.trial import RowCounts, TrialSpec, TrialStatus

CHANGED_SINCE: Final = "the pipeline's spec was changed since the trial began; create another PipelineTrial"


def promoting_patch(spec: TrialSpec) -> dict[str, Any]:
    """Return the merge patch of the pipeline that sets the trial's fields in spec.job."""
    return {"spec": {"job": encode(spec.job)}}


def unmet(bounds: TrialPromotion, status: TrialStatus) -> str:
    """Return which bound a completed trial does not keep, '' where it keeps all."""
    rows = status.rows or RowCounts()
    if (status.records or 0) < (status.records_total or 0):
        return "not all records were processed"
    if not status.complete:
        return "not all rows were compared"
    if status.poison is not None:
        return f"the new code cannot process {status.poison.records} records"
    if not rows.compared:
        return "no row was compared"
    if rows.missing is None and not bounds.ignore_missing:
        return "missing rows were not looked for; ignoreMissing in promoteWhen allows that"
    counts = (
        ("changed", rows.changed, bounds.changed_rows),
        ("missing", 0 if bounds.ignore_missing else rows.missing or 0, bounds.missing_rows),
        ("added", rows.added, bounds.added_rows),
    )
    return "; ".join(f"{found} {name} rows are more than {most}" for name, found, most in counts if found > most)
