"""Pipelines at rest: only an event of Kubernetes, or what Cassandra and Kafka show, can make anything due for them.

So what Kubernetes shows of one need not be asked for again until there is an event.  A pipeline whose driver runs, and
has not claimed or committed yet, is one of these.
"""

from __future__ import annotations

from dataclasses import replace

from fencepost_operator.api import AutoscaleStatus, Pipeline, Reason, Spec, Standby, State, Status, condition_of
from fencepost_operator.decision.decision import Decision
from fencepost_operator.decision.pausing import is_paused
from fencepost_operator.decision.run.handoff import is_warm, job_named, standby_of
from fencepost_operator.decision.run.liveness import has_ended
from fencepost_operator.observation import ClusterObjects, Known, Observation, Run, SparkCluster

_WITHOUT_A_RUN = frozenset({State.SUSPENDED, State.STANDBY})
_RESTING = frozenset({State.RUNNING, State.CATCHING_UP}) | _WITHOUT_A_RUN


def is_at_rest(pipeline: Pipeline, observation: Observation, decision: Decision) -> bool:
    """Return whether nothing is due, expected or wrong: of what is wrong, time alone may show more."""
    is_settled = decision.action is None and not decision.rewinds and not decision.is_queued
    if not is_settled or not (_is_ready(decision.status) or awaits_its_driver(decision)):
        return False
    if not _follows_its_own_spec(pipeline, decision.status) or not _is_all_well(observation):
        return False
    return _standby_is_as_it_should_be(pipeline, decision.status, observation)


def apart_from_figures(status: Status) -> Status:
    """Return a status without what changes while records flow, and only Cassandra and Kafka show."""
    chosen = status.autoscale
    return replace(
        status,
        autoscale=chosen and AutoscaleStatus(workers=chosen.workers, since=chosen.since, message=chosen.message),
        lag=None,
        throughput=None,
        committed=None,
        event_time=None,
        stored_state=None,
        dead_letters=None,
        open_transactions=(),
        offline_partitions=(),
        data_risk=None,
    )


def _is_ready(status: Status) -> bool:
    ready = condition_of(status.conditions, "Ready")
    return ready is not None and ready.status == "True" and status.state in _RESTING


def awaits_its_driver(decision: Decision) -> bool:
    """Return whether the driver's container runs, and the claim or the first commit is what is waited for."""
    run = decision.status.run
    return decision.reason is Reason.STARTING and run is not None and run.is_active and run.started_at is not None


def _follows_its_own_spec(pipeline: Pipeline, status: Status) -> bool:
    """Return whether the object's own spec is in effect, and nothing holds it up."""
    if pipeline.deleting_since is not None or is_paused(pipeline):
        return False
    if pipeline.superseded is not None or pipeline.refused or pipeline.irretrievable:
        return False
    return status.rolled_back is None and status.held_trial is None and status.finishing is None


def _standby_is_as_it_should_be(pipeline: Pipeline, status: Status, observation: Observation) -> bool:
    """Return whether nothing waits for an epoch, or what does is a warm standby on a whole cluster."""
    handoff = status.handoff
    asks = isinstance(pipeline.spec, Spec) and pipeline.spec.restart.standby is Standby.WARM
    if handoff is None or pipeline.status.handoff is None:
        return handoff is None and status.standby is None and not (asks and status.state not in _WITHOUT_A_RUN)
    runs = observation.runs.value if isinstance(observation.runs, Known) else ()
    job = job_named(runs, handoff.name)
    if standby_of(status) is None or job is None or not is_warm(job):
        return False
    seen = observation.cluster_of(handoff.cluster_generation)
    return handoff.cluster is None or (seen is not None and _is_whole(seen))


def _is_all_well(observation: Observation) -> bool:
    """Return whether all that is asked of Kubernetes is known, and is as it should be."""
    match observation:
        case Observation(
            references=Known(),
            release=Known(),
            cluster=Known(value=cluster),
            runs=Known(value=runs),
            cluster_objects=Known(value=objects),
            rewinds=Known(value=()),
        ):
            return _is_complete(cluster, objects) and all(map(_runs_or_has_ended, runs))
        case _:
            return False


def _is_complete(cluster: SparkCluster | None, objects: ClusterObjects) -> bool:
    if cluster is None:
        return not objects.damage
    return _is_whole(cluster) and not objects.damage


def _is_whole(cluster: SparkCluster) -> bool:
    return cluster.master_ready and cluster.ready_workers == cluster.workers and not cluster.issues


def _runs_or_has_ended(run: Run) -> bool:
    pod = run.pod
    if has_ended(run):
        return True
    return pod is not None and pod.started_at is not None and pod.deleting_since is None and pod.issue is None
