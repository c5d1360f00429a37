"""The steps of a trial: pin what is read, create the Job, watch it, record what it found, promote the code if asked.

What was decided is recorded before it is done: the offsets before the Job exists, and the promotion before the pipeline
is changed.  Nothing here delays, stops or fences the pipeline's run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from fencepost.fence import FenceRow
from fencepost_operator.actions import Manifest
from fencepost_operator.api import (
    PAUSED_ANNOTATION,
    Event,
    EventType,
    JobMode,
    Pipeline,
    PromotionState,
    Reason,
    ReconcileConfig,
    Spec,
    Trial,
    TrialPhase,
    TrialSince,
    TrialSpec,
    TrialStatus,
    asks_for_pause,
    conditions_after,
)
from fencepost_operator.decision.run.diagnosis import diagnose_end, diagnose_pod_issue
from fencepost_operator.decision.trial import promotion, result
from fencepost_operator.decision.trial.asked import compared_sinks, manifests
from fencepost_operator.decision.wording import detail, listed, with_remedy
from fencepost_operator.desired.identity.hashes import optional_references
from fencepost_operator.desired.jobs.trial_job import trial_job_name, tried_spec
from fencepost_operator.observation import Known, NoStart, NotAsked, StartingPoint, TrialFacts, TrialJob, Unknown
from fencepost_operator.text import single_line

SOON: Final = 10.0
"""Seconds until the next look at a trial that changes without events."""
ANOTHER: Final = "create another PipelineTrial"
ON_A_LAPTOP: Final = "test the new code with `fencepost run --local`"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTrial:
    """Create the trial's ConfigMap and Job; nothing to do when these very objects exist."""

    job: Manifest
    config_map: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTrial:
    """Delete the trial's Job with its pod; nothing to do when it is gone."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote:
    """Set fields of the pipeline's spec.job, on condition of its resourceVersion."""

    pipeline: Pipeline
    job: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteTrial:
    """Delete the trial itself; the garbage collector removes its Job."""


TrialAction: TypeAlias = StartTrial | StopTrial | Promote | DeleteTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDecision:
    """What is recorded, and then done; `again` is in seconds, None when there is nothing more to look for."""

    status: TrialStatus
    action: TrialAction | None = None
    again: float | None = None
    events: tuple[Event, ...] = ()


def decide_trial(trial: Trial, facts: TrialFacts, config: ReconcileConfig) -> TrialDecision:
    """Return the one decision about a trial at this moment."""
    case = _Case(trial, facts, config)
    found = _decided(case)
    if found.again is None:
        found = _kept(case, found)
    return replace(found, events=_events(trial.status, found.status))


@dataclass(frozen=True, slots=True)
class _Case:
    """One trial at one moment."""

    trial: Trial
    facts: TrialFacts
    config: ReconcileConfig

    @property
    def status(self) -> TrialStatus:
        return self.trial.status

    def says(
        self, status: TrialStatus, reason: Reason, message: str, *, is_over: bool = False, is_ready: bool = False
    ) -> TrialStatus:
        """Return the status with a message, and its conditions in kstatus' shape."""
        line = single_line(message)
        found = conditions_after(
            self.status.conditions,
            reason,
            line,
            is_ready=is_ready,
            other=None if is_ready else "Stalled" if is_over else "Reconciling",
            now=self.facts.now,
            generation=self.trial.generation,
        )
        return replace(status, observed_generation=self.trial.generation, message=line, conditions=found)

    def waits(self, message: str, *remedies: str) -> TrialDecision:
        """Report what the trial waits for; it is where it was."""
        status = self.says(self.status, Reason.TRYING, with_remedy(message, *remedies))
        return TrialDecision(status=status, again=self.config.resync_interval)

    def completed(self, status: TrialStatus, note: str = "") -> TrialStatus:
        """Return the status of a trial that has compared rows; it is ready unless its promotion is refused."""
        is_refused = promotion.is_refused(status.promotion)
        message = f"{result.summary(status, note)}{self.shortened(status)}"
        return self.says(status, Reason.TRIED, message, is_over=is_refused, is_ready=not is_refused)

    def shortened(self, status: TrialStatus) -> str:
        """Return where the trial begins if spec.since.duration reaches beyond the pipeline's history, else ''."""
        spec, after = self.trial.spec, status.written_after
        if not isinstance(spec, TrialSpec) or spec.since.duration is None or after is None:
            return ""
        asked = self.trial.created_at - timedelta(seconds=spec.since.duration)
        # The clock is of a table or a status that a tenant may write: in a datetime it may have no place.
        if not _microseconds(asked) < after <= _microseconds(self.facts.now):
            return ""
        first = _EPOCH + timedelta(microseconds=after)
        return (
            f". For its topics, the pipeline's history begins at {first:%Y-%m-%dT%H:%M:%SZ}, "
            "later than spec.since.duration asks for"
        )

    def over(self, reason: Reason, message: str, *remedies: str, stop: bool = False) -> TrialDecision:
        """End the trial without a result."""
        phase = replace(self.status, phase=TrialPhase.FAILED, finished_at=self.facts.now)
        if self.trial.owner_uid:  # the pipeline's status says what to do
            remedies = tuple(each for each in remedies if not each.startswith(ANOTHER))
        status = self.says(phase, reason, with_remedy(message, *remedies), is_over=True)
        job = self.status.job
        return TrialDecision(status=status, action=StopTrial(name=job) if stop and job else None)

    def refused(self, why: str, remedy: str) -> TrialDecision:
        """End a trial that cannot be."""
        return self.over(Reason.TRIAL_REFUSED, f"Refused: {why}", remedy)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _decided(case: _Case) -> TrialDecision:
    spec, status, seen = case.trial.spec, case.status, case.facts.pipeline
    if status.is_finished:
        return _finished(case)
    if not isinstance(spec, TrialSpec):
        return case.refused(detail("; ".join(str(violation) for violation in spec)), "")
    if isinstance(seen, Unknown):
        return TrialDecision(status=status, again=SOON)
    return _of_pipeline(case, spec, seen.value)


def _of_pipeline(case: _Case, spec: TrialSpec, pipeline: Pipeline | None) -> TrialDecision:
    if pipeline is None or pipeline.deleting_since is not None:
        return _without_pipeline(case, spec, pipeline)
    if case.trial.owner_uid and not _is_awaited(case.trial, pipeline):
        return case.over(Reason.TRIAL_FAILED, "No upgrade waits for it any more", stop=True)
    if not case.status.has_begun:
        return _awaited(case, pipeline) or _begin(case, spec, pipeline)
    if pipeline.uid != case.status.pipeline_uid:
        return case.over(Reason.TRIAL_FAILED, "The pipeline was deleted and created again", ANOTHER, stop=True)
    return _watch(case, spec, pipeline)


def _is_awaited(trial: Trial, pipeline: Pipeline) -> bool:
    """Return whether the pipeline's upgrade waits for a trial: it was recorded before the trial was created."""
    tried = pipeline.status.held_trial
    return tried is not None and tried.name == trial.key.name


def _without_pipeline(case: _Case, spec: TrialSpec, pipeline: Pipeline | None) -> TrialDecision:
    if case.status.has_begun:
        return case.over(Reason.TRIAL_FAILED, "The pipeline was deleted", stop=True)
    if pipeline is not None:
        return case.refused("the pipeline is deleted", "")
    return case.waits(f"StreamingPipeline {spec.pipeline} does not exist", "create it, or delete this object")


def _awaited(case: _Case, pipeline: Pipeline) -> TrialDecision | None:
    """Return that the trial waits for the pipeline, or for what is not known."""
    facts = case.facts
    if asks_for_pause(pipeline.annotations.get(PAUSED_ANNOTATION)):
        return case.waits("The pipeline is paused", f"remove its annotation {PAUSED_ANNOTATION}")
    if not isinstance(pipeline.spec, Spec):
        return case.waits("The pipeline's spec is invalid", "correct it")
    if pipeline.status.rewind is not None:
        return case.waits(f"Waiting for PipelineRewind {pipeline.status.rewind}")
    unknown = next((one for one in (facts.row, facts.start, facts.references) if isinstance(one, Unknown)), None)
    return case.waits(f"Waiting: {unknown.message}", unknown.remedy) if unknown is not None else None


def _begin(case: _Case, spec: TrialSpec, pipeline: Pipeline) -> TrialDecision:  # noqa: PLR0911 - one per condition
    """Pin what is read, once all that it depends on is known; refuse what cannot be tried."""
    row, start, references, own = case.facts.row, case.facts.start, case.facts.references, pipeline.spec
    if isinstance(own, Spec) and (refusal := _refusal(spec, own)):
        return case.refused(*refusal)
    if not isinstance(own, Spec) or not isinstance(row, Known):
        return TrialDecision(status=case.status, again=SOON)
    if not isinstance(start, Known) or not isinstance(references, Known):
        return TrialDecision(status=case.status, again=SOON)
    optional = optional_references(tried_spec(own, spec))
    if missing := [name for name in references.value.missing() if name not in optional]:
        return case.waits(f"{', '.join(missing)} not found in namespace {pipeline.key.namespace}", "create it")
    if row.value is None or not row.value.offsets:
        return case.waits("The pipeline has committed nothing yet", "wait for its first batch")
    if isinstance(start.value, NoStart):
        return case.refused(*_startless(spec.since, start.value))
    return _pinned(case, pipeline, own, row.value, start.value)


def _refusal(trial: TrialSpec, spec: Spec) -> tuple[str, str] | None:
    """Return why a pipeline cannot be tried, and what to do."""
    if spec.job.mode is JobMode.STATEFUL and trial.since.snapshot is None:
        return (
            "a trial of a stateful pipeline begins with the state of a snapshot",
            f"{ANOTHER} with spec.since.snapshot",
        )
    names = [sink.name for sink in spec.sinks]
    if unknown := [name for name in trial.compare.sinks if name not in names]:
        return f"the pipeline has no sink {listed(unknown)}", f"{ANOTHER} with names of {listed(names)}"
    if not compared_sinks(trial, spec):
        return "none of the sinks is a Cassandra table, which alone can be read back", ON_A_LAPTOP
    return None


def _startless(since: TrialSince, found: NoStart) -> tuple[str, str]:
    """Return why a trial has no start, and what to do: a topic without one would be read from its first record."""
    if since.snapshot is not None:
        why = "the pipeline has no such snapshot as spec.since names, or that has no offsets of some topic"
        return why, f"{ANOTHER} with a snapshot that `fencepost snapshots list` shows"
    why = "the pipeline's history does not have offsets of each topic at spec.since"
    if found.earliest is None:
        return f"{why}, nor at a later moment", f"{ANOTHER} with a snapshot in spec.since"
    # In whole seconds, and not before it.
    moment = f"{found.earliest + timedelta(microseconds=999_999):%Y-%m-%dT%H:%M:%SZ}"
    return (
        f"{why}; the earliest possible moment is {moment}",
        f"{ANOTHER} with spec.since.timestamp of {moment} or later",
    )


def _pinned(case: _Case, pipeline: Pipeline, spec: Spec, row: FenceRow, start: StartingPoint) -> TrialDecision:
    """Record what is read; the next pass creates the Job."""
    topics = set(spec.source.kafka.topics)
    until = {key: end for key, end in sorted(row.offsets.items()) if key.rpartition("/")[0] in topics}
    begin = {key: at for key, at in sorted(start.offsets.items()) if key in until}
    recreated = [topic for topic, found in start.topic_ids.items() if row.topic_ids.get(topic) not in {found, None}]
    if recreated:
        return case.refused(f"topic {listed(sorted(recreated))} was recreated since spec.since", ANOTHER)
    if any(at > until[key] for key, at in begin.items()):
        why = "the pipeline was rewound since spec.since, to before what it had committed then"
        return case.refused(why, f"{ANOTHER} with a later spec.since")
    total = sum(end - begin.get(key, 0) for key, end in until.items())
    if not total and case.trial.owner_uid:
        return case.refused("the pipeline has committed nothing since spec.upgrade.trial.since", "raise that")
    if not total:
        return case.waits("The pipeline has committed nothing since spec.since", "wait, or delete this object")
    status = replace(
        case.status,
        phase=TrialPhase.STARTING,
        pipeline_generation=pipeline.generation,
        pipeline_uid=pipeline.uid,
        job=trial_job_name(case.trial),
        start=begin,
        until=until,
        snapshot=start.snapshot,
        written_after=start.clock,
        written_until=row.clock,
        records_total=total,
        records=0,
    )
    message = f"Starting the new code on {total} records of StreamingPipeline {pipeline.key.name}"
    said = case.says(status, Reason.TRYING, f"{message}{case.shortened(status)}")
    return TrialDecision(status=said, again=0.0)


def _watch(case: _Case, spec: TrialSpec, pipeline: Pipeline) -> TrialDecision:
    """Create the Job, or see how far it is."""
    seen, status = case.facts.job, case.status
    if isinstance(seen, Unknown):
        return case.waits(f"The Job is not known: {seen.message}", seen.remedy)
    if isinstance(seen, NotAsked):
        return TrialDecision(status=status, again=SOON)
    job = seen.value
    if job is None:
        return _start(case, spec, pipeline)
    begun = status if status.started_at is not None else replace(status, started_at=job.run.created_at)
    return _ended(case, begun, spec, pipeline, job) if job.run.finished else _running(case, begun, job)


def _start(case: _Case, spec: TrialSpec, pipeline: Pipeline) -> TrialDecision:
    status, references = case.status, case.facts.references
    if status.started_at is not None:
        return case.over(Reason.TRIAL_FAILED, f"Job {status.job} was deleted", ANOTHER)
    is_same = bool(case.trial.owner_uid) or pipeline.generation == status.pipeline_generation
    if not isinstance(pipeline.spec, Spec) or not is_same:
        return case.over(Reason.TRIAL_FAILED, "The pipeline's spec was changed before the trial began", ANOTHER)
    if not isinstance(references, Known):
        return TrialDecision(status=status, again=SOON)
    job, config_map = manifests(case.trial, spec, pipeline, pipeline.spec, references.value.hashes, case.config)
    return TrialDecision(status=status, action=StartTrial(job=job, config_map=config_map), again=SOON)


def _running(case: _Case, status: TrialStatus, job: TrialJob) -> TrialDecision:
    run, progress = job.run, case.facts.progress
    issue = run.issue or (run.pod.issue if run.pod is not None else None)
    is_started = run.pod is not None and run.pod.started_at is not None
    if isinstance(progress, Known) and progress.value is not None:
        status = replace(status, records=max(status.records or 0, progress.value.done))
    status = replace(status, phase=TrialPhase.RUNNING if is_started else TrialPhase.STARTING)
    if issue is not None:
        found = diagnose_pod_issue(issue)
        said = case.says(status, found.category, with_remedy(found.message, found.remedy))
        return TrialDecision(status=said, again=SOON)
    done = f"The new code has processed {status.records or 0} of {status.records_total} records"
    message = done if is_started else f"Starting Job {status.job}"
    return TrialDecision(status=case.says(status, Reason.TRYING, message), again=SOON)


def _ended(case: _Case, status: TrialStatus, spec: TrialSpec, pipeline: Pipeline, job: TrialJob) -> TrialDecision:
    row, now = case.facts.row, case.facts.now
    if job.is_late:
        why = f"The trial did not end within limits.maxDuration and the {result.ALLOWANCE} for its start"
        return case.over(Reason.TRIAL_FAILED, why, f"{ANOTHER} with a larger limits.maxDuration or a later spec.since")
    if job.report is None:
        failed = diagnose_end(job.run, job.run.name)
        return case.over(failed.category, f"The new code failed: {failed.message}", failed.remedy, ANOTHER)
    if isinstance(row, Unknown):
        return case.waits(f"Waiting for the fence row: {row.message}", row.remedy)
    offsets = row.value.offsets if isinstance(row, Known) and row.value is not None else {}
    if any(offsets.get(key, 0) < end for key, end in status.until.items()):
        return case.over(Reason.TRIAL_FAILED, "The pipeline was rewound during the trial", ANOTHER)
    found = replace(result.recorded(status, job.report), phase=TrialPhase.COMPLETED, finished_at=now)
    found = replace(found, promotion=promotion.first(case.trial, spec, found, pipeline))
    is_promoting = found.promotion is not None and found.promotion.state == PromotionState.PROMOTING
    return TrialDecision(status=case.completed(found, job.report.note), again=0.0 if is_promoting else None)


def _finished(case: _Case) -> TrialDecision:
    """Carry a promotion through that is recorded."""
    status, seen, spec = case.status, case.facts.pipeline, case.trial.spec
    if status.promotion is None or status.promotion.state != PromotionState.PROMOTING:
        return TrialDecision(status=status)
    if isinstance(seen, Unknown) or not isinstance(spec, TrialSpec):
        return TrialDecision(status=status, again=SOON)
    after = promotion.carried_through(spec, status, seen.value)
    if after.state == PromotionState.PROMOTING and seen.value is not None:
        action = Promote(pipeline=seen.value, job=promotion.fields_of_job(spec))
        return TrialDecision(status=status, action=action, again=0.0)
    return TrialDecision(status=case.completed(replace(status, promotion=after)))


def _kept(case: _Case, found: TrialDecision) -> TrialDecision:
    """Delete a trial that is over once its time is up, or look again then."""
    spec, ended = case.trial.spec, found.status.finished_at
    if not isinstance(spec, TrialSpec) or spec.ttl_after_finished is None or ended is None:
        return found
    left = spec.ttl_after_finished - (case.facts.now - ended).total_seconds()
    return replace(found, again=left) if left > 0 else replace(found, action=DeleteTrial())


def _events(before: TrialStatus, after: TrialStatus) -> tuple[Event, ...]:
    was = before.conditions[0].reason if before.conditions else ""
    if not after.conditions:
        return ()
    reason = after.conditions[0].reason
    if (before.phase, was, before.promotion) == (after.phase, reason, after.promotion):
        return ()
    kind = EventType.NORMAL if reason in {Reason.TRYING, Reason.TRIED} else EventType.WARNING
    return (Event(kind, reason, after.message),)
