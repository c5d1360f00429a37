"""Which spec a pipeline runs with where that is not its object's: a kept one, as its ControllerRevision has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fencepost_operator.api import Pipeline, Revision, Spec, Violation
from fencepost_operator.api.effects import standing_in
from fencepost_operator.decision.specs.rollback import is_in_effect
from fencepost_operator.decision.specs.upgrade_trial import is_held
from fencepost_operator.decision.wording import detail, with_remedy
from fencepost_operator.desired.identity.hashes import config_maps
from fencepost_operator.observation import Known, References, Unknown
from fencepost_operator.ports import Ports
from fencepost_operator.runtime.passes.rewind_observer import See

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
            return await self._with_spec_instead(pipeline, spec) if pipeline.deleting_since is None else pipeline
        instead = status.rolled_back or status.held_trial or status.run
        name = instead.revision if instead is not None else ""
        if not name:
            return pipeline
        found = await self._kept_spec(pipeline, name)
        if found is None and pipeline.deleting_since is not None:
            return pipeline  # a foreground deletion deletes the revisions first
        if isinstance(found, tuple):
            return pipeline.restored(*found)
        return replace(pipeline, irretrievable=found or _missing(name))

    async def _with_spec_instead(self, pipeline: Pipeline, own: Spec) -> Pipeline:
        """Return the pipeline with a kept spec for as long as its object asks for one that failed, or is tried."""
        reported, tried = pipeline.status.rolled_back, pipeline.status.held_trial
        instead = reported or tried
        if instead is None:
            return pipeline
        maps, is_meant = config_maps(own), is_in_effect if reported is not None else is_held
        references = await self.see(self.ports.objects.references(pipeline.key, maps)) if maps else Known(NOTHING)
        if isinstance(references, Known) and not is_meant(pipeline, own, references.value.hashes):
            return pipeline
        found = await self._kept_spec(pipeline, instead.revision)
        if not isinstance(found, tuple):
            return replace(pipeline, irretrievable=found or _missing(instead.revision))
        revision, spec = found
        return pipeline.under_kept(revision, _in_place_of(own, spec))

    async def _kept_spec(self, pipeline: Pipeline, name: str) -> tuple[Revision, Spec] | str | None:
        """Return a revision and its spec, or why it cannot be used and what to do; None where it does not exist."""
        found = await self.see(self.ports.revisions.find(pipeline.key, pipeline.uid, name))
        if isinstance(found, Unknown):
            return with_remedy(found.message, found.remedy)
        if found.value is None:
            return None
        spec = found.value.spec
        return (found.value, spec) if isinstance(spec, Spec) else _refused(name, spec)


def _in_place_of(own: Spec, kept: Spec) -> Spec:
    """Return a kept spec with what of the object's own needs no other run.

    Of the number of workers, that is one of the same kind: a run with a Spark cluster is not one without.
    """
    found = standing_in(kept, own)
    if kept.cluster.exists is own.cluster.exists:
        return found
    cluster = replace(found.cluster, workers=kept.cluster.workers, autoscale=kept.cluster.autoscale)
    return replace(found, cluster=cluster)


def _missing(name: str) -> str:
    return f"its revision {name} is missing"


def _refused(name: str, violations: Sequence[Violation]) -> str:
    """Return why a revision cannot be used that an older release wrote."""
    what = detail("; ".join(str(violation) for violation in violations))
    return f"this release of the operator refuses its revision {name}: {what}"
