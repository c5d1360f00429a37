"""Which spec a pipeline runs with where that is not its object's: a kept one, as its ControllerRevision has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fencepost_operator.api import Pipeline, Revision, RollbackStatus, Spec, Violation
from fencepost_operator.api.effects import standing_in
from fencepost_operator.decision.specs.rollback import is_in_effect
from fencepost_operator.decision.wording import detail, with_remedy
from fencepost_operator.desired.identity.hashes import config_maps
from fencepost_operator.observation import Known, References, Unknown
from fencepost_operator.ports import Ports
from fencepost_operator.runtime.rewind_observer import See

NOTHING: References = References(hashes={})


@dataclass(frozen=True, slots=True)
class SpecInEffect:
    """Finds the spec in effect among those that are kept."""

    ports: Ports
    see: See

    async def of(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline with the spec in effect: the last valid or stable one, as far as it is kept.

        That is another one than the object's where this is invalid, or failed and was rolled back.
        """
        status, spec = pipeline.status, pipeline.spec
        if isinstance(spec, Spec):
            back = status.rolled_back if pipeline.deleting_since is None else None
            return await self._with_stable_spec(pipeline, spec, back) if back is not None else pipeline
        run, back = status.run, status.rolled_back
        name = back.revision if back is not None else run.revision if run is not None else ""
        if not name:
            return pipeline
        found = await self._kept_spec(pipeline, name)
        if found is None and pipeline.deleting_since is not None:
            return pipeline  # a foreground deletion deletes the revisions first
        if isinstance(found, tuple):
            return pipeline.restored(*found)
        return replace(pipeline, irretrievable=found or _missing(name))

    async def _with_stable_spec(self, pipeline: Pipeline, own: Spec, reported: RollbackStatus) -> Pipeline:
        """Return the pipeline with the stable spec for as long as its object asks for the one that failed."""
        maps = config_maps(own)
        references = await self.see(self.ports.objects.references(pipeline.key, maps)) if maps else Known(NOTHING)
        if isinstance(references, Known) and not is_in_effect(pipeline, own, references.value.hashes):
            return pipeline
        found = await self._kept_spec(pipeline, reported.revision)
        if not isinstance(found, tuple):
            return replace(pipeline, irretrievable=found or _missing(reported.revision))
        revision, spec = found
        return pipeline.rolled_back(revision, standing_in(spec, own))

    async def _kept_spec(self, pipeline: Pipeline, name: str) -> tuple[Revision, Spec] | str | None:
        """Return a revision and its spec, or why it cannot be used and what to do; None where it does not exist."""
        found = await self.see(self.ports.revisions.find(pipeline.key, pipeline.uid, name))
        if isinstance(found, Unknown):
            return with_remedy(found.message, found.remedy)
        if found.value is None:
            return None
        spec = found.value.spec
        return (found.value, spec) if isinstance(spec, Spec) else _refused(name, spec)


def _missing(name: str) -> str:
    return f"its revision {name} is missing"


def _refused(name: str, violations: Sequence[Violation]) -> str:
    """Return why a revision cannot be used that an older release wrote."""
    what = detail("; ".join(str(violation) for violation in violations))
    return f"this release of the operator refuses its revision {name}: {what}"
