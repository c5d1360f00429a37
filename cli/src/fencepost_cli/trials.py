"""What a trial is asked to do, and how one ended: whether a pull request may be merged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fencepost_cli.errors import CliError
from fencepost_operator.api import PromotionState, Trial, TrialPhase, TrialPromotion, TrialSpec, read_trial_spec
from fencepost_operator.api.promotion import unmet

_ANY: Final = "any"
"""In place of a number of missing rows: they need not be looked for."""
_BOUND: Final = re.compile(rf"\s*(changed|missing|added)=([0-9]{{1,18}}|{_ANY})\s*")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a trial kept its bounds, None while that is not known, and why it did not."""

    passed: bool | None
    why: str = ""


def outcome(trial: Trial, allowed: TrialPromotion | None = None) -> Outcome:
    """Return how a trial ended: by these bounds, else by its promoteWhen, else without any row that differs."""
    status, asked = trial.status, trial.spec.promote_when if isinstance(trial.spec, TrialSpec) else None
    state = status.promotion.state if status.promotion is not None else None
    if status.phase == TrialPhase.FAILED:
        return Outcome(passed=False, why=status.message or "the trial failed")
    if not status.is_finished or state == PromotionState.PROMOTING:
        return Outcome(passed=None)
    if why := unmet(allowed or asked or TrialPromotion(), status):
        return Outcome(passed=False, why=why)
    if status.promotion is not None and state == PromotionState.REFUSED:
        return Outcome(passed=False, why=f"not promoted: {status.promotion.message}")
    return Outcome(passed=True)


def parse_bounds(text: str, option: str) -> TrialPromotion:
    """Return the bounds of 'changed=0,missing=any,added=5'; what is not named is 0. Raises CliError."""
    found = [_BOUND.fullmatch(part) for part in text.split(",")]
    bounds = {part[1]: part[2] for part in found if part is not None}
    if len(bounds) < len(found) or _ANY in {bounds.get("changed"), bounds.get("added")}:
        raise CliError(
            f"{option} {text!r} does not bound rows",
            remedy=f"write {option} changed=0,missing=0,added=0, or missing=any where they cannot be looked for",
        )
    counts = {f"{name}_rows": int(value) for name, value in bounds.items() if value != _ANY}
    return TrialPromotion(**counts, ignore_missing=bounds.get("missing") == _ANY)


def checked_spec(raw: Mapping[str, Any]) -> TrialSpec:
    """Return the spec in JSON without what no option says. Raises CliError with the field that is wrong."""
    spec = read_trial_spec(_without_nothing(raw))
    if isinstance(spec, TrialSpec):
        return spec
    first = spec[0]
    raise CliError(f"{first.field} {first.problem}", remedy="correct it: `fencepost trial create --help`")


def _without_nothing(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out nulls, and objects that hold nothing else."""
    parts = {name: _without_nothing(value) if isinstance(value, Mapping) else value for name, value in raw.items()}
    return {name: value for name, value in parts.items() if value is not None and value != {}}
