"""Which objects of the cluster's generations are no longer needed."""

from __future__ import annotations

from fencepost_operator.actions import PruneCluster
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.run.handoff import standby_of
from fencepost_operator.observation import Known, Unknown


def stale_generations(context: Context, *, install_failed: bool = False) -> PruneCluster | None:
    """Return what to delete once the recorded generation is ready, could not be installed, or was taken down.

    Also once it has a run, or may have the next one: an older generation that was kept for the run before is of no use,
    and may take the room that this one needs.

    Helm deletes what its last deployed revision had and the new one has not.  What a revision created that the API
    server then refused is in neither, and stays: Services, Secrets, even a master.
    """
    recorded, fact = context.status.cluster, context.observation.cluster_objects
    if not isinstance(fact, Known) or isinstance(context.observation.runs, Unknown):
        return None
    if recorded is None or context.pipeline.deleting_since is not None:
        return None
    taken_down = not recorded.config_hash and context.observation.release == Known(None)
    run, handoff = context.run, context.status.handoff
    is_in_use = run is not None and run.cluster_generation == recorded.generation
    is_kept_in_vain = handoff is not None and context.active_run is None
    if not (taken_down or install_failed or recorded.ready_at is not None or is_in_use or is_kept_in_vain):
        return None
    kept = set() if taken_down else {recorded.generation}
    if context.active_run is not None:
        kept.add(context.active_run.cluster_generation)
    if (standby := standby_of(context.status)) is not None and not taken_down:
        kept.add(standby.cluster_generation)
    stale = tuple(found for found in fact.value.found if found.generation not in kept)
    return PruneCluster(objects=stale) if stale else None
