"""What the operator decides about a trial: when it starts, what its Job is given, what it found, and its promotion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from fakes.manifests import KEY
from fencepost.contract import DriverConfig, Variable, Verdict
from fencepost.contract.trial import TRIAL_FILE, Sample, SinkFindings, TrialReport, TrialRequest
from fencepost.fence import FenceRow
from fencepost_operator.api import (
    Pipeline,
    Promotion,
    PromotionState,
    Reason,
    ReconcileConfig,
    SourceSpec,
    Spec,
    Trial,
    TrialPhase,
    TrialStatus,
    UpgradeTrialStatus,
    condition_of,
    read_pipeline,
    read_trial,
)
from fencepost_operator.api.managers import manager_of
from fencepost_operator.api.spec.source import PinnedStateSpec
from fencepost_operator.decision.trial.deciding import (
    DeleteTrial,
    Promote,
    StartTrial,
    StopTrial,
    TrialDecision,
    decide_trial,
)
from fencepost_operator.desired import labels
from fencepost_operator.desired.jobs import run_config
from fencepost_operator.observation import (
    DriverPod,
    Known,
    NoStart,
    NotAsked,
    PodIssue,
    References,
    Run,
    StartingPoint,
    TrialFacts,
    TrialJob,
    Unknown,
    UnknownReason,
)
from present import present
from unit.charts.pod_security import violations
from unit.operator.desired.test_builders import pipeline_and_spec

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CONFIG = ReconcileConfig(cluster_uid="cluster-1")
TOPIC = "orders"
ROW = FenceRow(
    pipeline="default/shop/orders", owner="cluster-1/uid-1", epoch=4, version=9, clock=2_000,
    offsets={f"{TOPIC}/0": 50, f"{TOPIC}/1": 8, "left/0": 3}, topic_ids={TOPIC: "id-1"},
)  # fmt: skip
START = StartingPoint(offsets={f"{TOPIC}/0": 20}, topic_ids={TOPIC: "id-1"}, clock=1_000)
UNSEEN = Unknown(reason=UnknownReason.UNREACHABLE, message="no answer", remedy="wait")
JOB = {"image": "orders:2", "args": ["--new"]}


def pipeline(case: str = "small", **metadata: Any) -> Pipeline:
    one, spec = pipeline_and_spec(case)
    kafka = replace(spec.source.kafka, topics=(TOPIC,))
    spec = replace(spec, source=replace(spec.source, kafka=kafka))
    return replace(one, spec=spec, **{"generation": 3, **metadata})


def spec_of(one: Pipeline) -> Spec:
    assert isinstance(one.spec, Spec)
    return one.spec


def trial(status: TrialStatus | None = None, **spec: Any) -> Trial:
    metadata = {
        "namespace": KEY.namespace, "name": "next", "uid": "trial-uid", "generation": 1,
        "creationTimestamp": "2026-01-01T11:59:00Z",
    }  # fmt: skip
    body = {"pipeline": KEY.name, "job": JOB, "since": {"duration": "1h"}, **spec}
    return replace(read_trial({"metadata": metadata, "spec": body}), status=status or TrialStatus())


def facts(one: Pipeline | None, **given: Any) -> TrialFacts:
    usual = {"row": Known(ROW), "start": Known(START), "references": Known(References(hashes={}))}
    return TrialFacts(now=NOW, pipeline=Known(one), **{**usual, **given})


def decide(one: Trial, seen: TrialFacts) -> TrialDecision:
    return decide_trial(one, seen, CONFIG)


def begun(one: Pipeline | None = None, **spec: Any) -> TrialStatus:
    return decide(trial(**spec), facts(one or pipeline())).status


def pod(**given: Any) -> DriverPod:
    unknown = ("node", "node_uid", "node_ready", "deleting_since", "exit_code", "termination_reason", "finished_at")
    usual = {**dict.fromkeys(unknown), "verdict": None, "issue": None, "started_at": NOW}
    return DriverPod(name="pod", uid="p", phase="Running", **{**usual, **given})


def job(*, finished: bool = False, report: TrialReport | None = None, is_late: bool = False, **given: Any) -> TrialJob:
    run = Run(
        name="orders-trial-1", epoch=0, spec_hash="", cluster_generation=0, created_at=NOW, deleting=False,
        finished=finished, pod=pod(**given),
    )  # fmt: skip
    return TrialJob(run=run, report=report, is_late=is_late)


def report(**rows: Any) -> TrialReport:
    counts = {"equal": 90, "missing": 0, **rows}
    return TrialReport(records=38, total=38, seconds=2.0, sinks=(SinkFindings(name="rows", **counts),))


def test_what_is_read_is_recorded_before_the_job_exists() -> None:
    found = decide(trial(), facts(pipeline()))
    status = found.status
    assert found.action is None
    assert found.again == 0.0
    assert (status.phase, status.pipeline_generation) == (TrialPhase.STARTING, 3)
    assert (status.start, status.until) == ({f"{TOPIC}/0": 20}, {f"{TOPIC}/0": 50, f"{TOPIC}/1": 8})
    assert (status.written_after, status.written_until, status.records_total) == (1_000, 2_000, 38)


def test_a_duration_that_reaches_beyond_the_history_is_named_in_the_messages() -> None:
    one, minute = pipeline(), timedelta(minutes=1)
    for first, expected in ((NOW - 30 * minute, True), (NOW - 62 * minute, False)):
        clock = int(first.timestamp() * 1_000_000)
        before = decide(trial(), facts(one, start=Known(replace(START, clock=clock)))).status
        done = job(finished=True, report=report(), exit_code=0)
        after = decide(trial(before), facts(one, job=Known(done))).status
        said = f"history begins at {first:%Y-%m-%dT%H:%M:%SZ}"
        assert [said in status.message for status in (before, after)] == [expected, expected]


@pytest.mark.parametrize("clock", [2**63 - 1, -(2**63), int((NOW.timestamp() + 1) * 1_000_000)])
def test_a_clock_that_no_history_has_is_not_shown(clock: int) -> None:
    """A tenant may write the fence's table, and the status: the pass would fail at a moment that no date has."""
    one = pipeline()
    before = decide(trial(), facts(one, start=Known(replace(START, clock=clock)))).status
    assert "history begins" not in before.message
    done = job(finished=True, report=report(), exit_code=0)
    assert "history begins" not in decide(trial(before), facts(one, job=Known(done))).status.message


WAITING: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "the row is not known": ({"row": UNSEEN}, "no answer"),
    "the start is not known": ({"start": UNSEEN}, "no answer"),
    "an object is not known": ({"references": UNSEEN}, "no answer"),
    "an object is missing": ({"references": Known(References(hashes={"ConfigMap/a": None}))}, "ConfigMap/a not found"),
    "nothing is committed": ({"row": Known(replace(ROW, offsets={}))}, "committed nothing yet"),
    "there is no row": ({"row": Known(None)}, "committed nothing yet"),
    "nothing is new": ({"start": Known(replace(START, offsets=dict(ROW.offsets)))}, "committed nothing since"),
}


@pytest.mark.parametrize("case", WAITING)
def test_a_trial_waits_and_pins_nothing_while_something_is_not_there(case: str) -> None:
    given, words = WAITING[case]
    found = decide(trial(), facts(pipeline(), **given))
    assert found.action is None
    assert not found.status.has_begun
    assert found.status.phase == TrialPhase.WAITING
    assert words in found.status.message
    assert present(condition_of(found.status.conditions, "Reconciling")).reason == Reason.TRYING
    assert found.again


def test_a_trial_waits_for_its_pipeline_and_for_a_rewind_and_a_pause() -> None:
    assert "does not exist" in decide(trial(), facts(None)).status.message
    one = pipeline()
    rewound = replace(one, status=replace(one.status, rewind="back"))
    assert "PipelineRewind back" in decide(trial(), facts(rewound)).status.message
    paused = replace(one, annotations={"streaming.fencepost.dev/paused": "true"})
    assert "paused" in decide(trial(), facts(paused)).status.message
    assert "invalid" in decide(trial(), facts(replace(one, spec=()))).status.message
    assert decide(trial(), replace(facts(one), pipeline=UNSEEN)).status == TrialStatus()


def stateful(one: Pipeline) -> Pipeline:
    body = {
        "metadata": {"namespace": KEY.namespace, "name": KEY.name, "uid": "uid-1"},
        "spec": {**one.written, "job": {**one.written["job"], "mode": "Stateful"}},
    }
    return replace(read_pipeline(body), generation=3)


REFUSED: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], str]] = {
    "the history begins later": (
        {}, {"start": Known(NoStart(earliest=NOW - timedelta(minutes=9, microseconds=1)))},
        "topic at spec.since; the earliest possible moment is 2026-01-01T11:51:00Z. Create another PipelineTrial with",
    ),
    "the history has nothing": ({}, {"start": Known(NoStart())}, "nor at a later moment"),
    "no snapshot": ({"since": {"snapshot": "a"}}, {"start": Known(NoStart())}, "no such snapshot as spec.since names"),
    "the pipeline was rewound": ({}, {"start": Known(replace(START, offsets={f"{TOPIC}/1": 9}))}, "was rewound"),
    "the topic is another one": (
        {}, {"start": Known(replace(START, topic_ids={TOPIC: "id-0"}))}, "orders was recreated",
    ),
    "a sink that does not exist": ({"compare": {"sinks": ["other"]}}, {}, "no sink other"),
    "two starts": ({"since": {"duration": "1h", "snapshot": "a"}}, {}, "exactly one of"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_trial_that_cannot_be_is_refused_with_the_next_step(case: str) -> None:
    spec, given, words = REFUSED[case]
    found = decide(trial(**spec), facts(pipeline(), **given))
    assert found.status.phase == TrialPhase.FAILED
    assert words in found.status.message
    assert present(condition_of(found.status.conditions, "Stalled")).reason == Reason.TRIAL_REFUSED
    assert found.action is None
    assert found.again is None


def test_the_job_reads_the_pinned_states_that_the_pipeline_names() -> None:
    one = pipeline()
    kafka, pin = spec_of(one).source.kafka, PinnedStateSpec(name="known", pipeline="others", snapshot=str(UUID(int=1)))
    one = replace(one, spec=replace(spec_of(one), source=SourceSpec(kafka=kafka, pinned_states=(pin,))))
    found = decide(trial(begun(one)), facts(one, job=Known(None))).action
    assert isinstance(found, StartTrial)
    (read,) = DriverConfig.from_json(found.config_map["data"][run_config.KEY]).pinned_states
    assert (read.name, read.pipeline) == ("known", "default/shop/others")


def test_a_stateful_pipeline_without_a_snapshot_is_refused() -> None:
    found = decide(trial(), facts(stateful(pipeline())))
    assert found.status.phase == TrialPhase.FAILED
    assert "with spec.since.snapshot" in found.status.message


def test_the_job_of_a_stateful_pipeline_begins_with_the_snapshot_that_was_pinned() -> None:
    """A name may be that of another snapshot by then."""
    one, since = stateful(pipeline()), {"snapshot": "before"}
    pinned = decide(trial(since=since), facts(one, start=Known(replace(START, snapshot="its-id")))).status
    found = decide(trial(pinned, since=since), facts(one, job=Known(None))).action
    assert isinstance(found, StartTrial)
    assert TrialRequest.from_json(found.config_map["data"][TRIAL_FILE]).snapshot == "its-id"
    (tmp,) = (each for each in found.job["spec"]["template"]["spec"]["volumes"] if each["name"] == "tmp")
    assert tmp["emptyDir"]["sizeLimit"] != "4096Mi"


def test_a_pipeline_without_a_table_is_refused() -> None:
    one = pipeline()
    sinks = tuple(replace(sink, cassandra=None) for sink in spec_of(one).sinks)
    found = decide(trial(), facts(replace(one, spec=replace(spec_of(one), sinks=sinks))))
    assert "none of the sinks is a Cassandra table" in found.status.message


def test_the_job_is_the_drivers_with_other_code_and_its_own_limits() -> None:
    one = pipeline("full")
    limits = {"maxDuration": "10m", "cpu": "1500m", "memory": "3Gi"}
    asked = trial(begun(one, limits=limits), limits=limits)
    action = decide(asked, facts(one, job=Known(None))).action
    assert isinstance(action, StartTrial)
    template = action.job["spec"]["template"]
    assert list(violations(template)) == []
    (container,) = template["spec"]["containers"]
    assert (container["image"], container["args"]) == ("orders:2", ["fencepost", "trial"])
    assert container["resources"]["requests"] == {"cpu": "1500m", "memory": "3072Mi"}
    assert template["spec"].get("serviceAccountName") == spec_of(one).cluster.service_account_name
    assert Variable.SPARK_AUTH_SECRET not in {each["name"] for each in container["env"]}
    assert action.job["spec"]["backoffLimit"] == 0
    assert action.job["spec"]["activeDeadlineSeconds"] > 600
    config = DriverConfig.from_json(action.config_map["data"][run_config.KEY])
    assert (config.spark_master, config.args, config.source.mirror_to_group) == ("local[2]", ("--new",), "")
    request = TrialRequest.from_json(action.config_map["data"][TRIAL_FILE])
    assert (request.start, request.until) == (asked.status.start, asked.status.until)
    assert (request.written_until, request.seconds) == (2_000, 600.0)
    assert "#trial-" in request.progress_key
    for made in (action.job, action.config_map):
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("PipelineTrial", "trial-uid")
        assert made["metadata"]["labels"][labels.COMPONENT] == labels.TRIAL


def test_no_job_is_created_twice_nor_with_a_spec_that_changed() -> None:
    one = pipeline()
    started = replace(begun(one), started_at=NOW)
    found = decide(trial(started), facts(one, job=Known(None)))
    assert (found.status.phase, found.action) == (TrialPhase.FAILED, None)
    changed = decide(trial(begun(one)), facts(replace(one, generation=4), job=Known(None)))
    assert "spec was changed before" in changed.status.message
    assert decide(trial(begun(one)), facts(one, job=UNSEEN)).action is None
    assert decide(trial(begun(one)), facts(one, job=NotAsked())).action is None


def test_a_pipeline_that_is_deleted_ends_the_trial_with_its_job() -> None:
    one = pipeline()
    for gone in (None, replace(one, deleting_since=NOW), replace(one, uid="another")):
        found = decide(trial(begun(one)), facts(gone, job=Known(job())))
        assert found.status.phase == TrialPhase.FAILED
        assert isinstance(found.action, StopTrial)


def test_while_it_runs_the_status_has_its_progress_and_why_a_pod_does_not_start() -> None:
    one = pipeline()
    running = decide(trial(begun(one)), facts(one, job=Known(job())))
    assert running.status.phase == TrialPhase.RUNNING
    issue = PodIssue(pod="pod", reason="ErrImagePull", message="no such image")
    held = decide(trial(begun(one)), facts(one, job=Known(job(started_at=None, issue=issue))))
    assert held.status.phase == TrialPhase.STARTING
    assert present(condition_of(held.status.conditions, "Ready")).reason == Reason.IMAGE_PULL_FAILED
    assert "no such image" in held.status.message


ENDS: Mapping[str, tuple[TrialJob, Reason, str]] = {
    "out of memory": (
        job(finished=True, exit_code=137, termination_reason="OOMKilled"),
        Reason.OUT_OF_MEMORY,
        "memory",
    ),
    "too late": (job(finished=True, is_late=True), Reason.TRIAL_FAILED, "maxDuration"),
    "bad code": (
        job(
            finished=True,
            exit_code=51,
            verdict=Verdict(exit_code=51, reason=Reason.SINK_MISMATCH, message="no column x", remedy="add it"),
        ),
        Reason.BAD_SPEC,
        "no column x",
    ),
    "no report": (job(finished=True, exit_code=0), Reason.RUN_ENDED, "failed"),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_job_without_a_report_is_diagnosed_as_a_run_is(case: str) -> None:
    ended, reason, words = ENDS[case]
    one = pipeline()
    found = decide(trial(begun(one)), facts(one, job=Known(ended)))
    assert found.status.phase == TrialPhase.FAILED
    assert present(condition_of(found.status.conditions, "Stalled")).reason == reason
    assert words in found.status.message


def ended(one: Pipeline, found: TrialReport, seen: Pipeline | None = None, **spec: Any) -> TrialDecision:
    done = job(finished=True, report=found, exit_code=0)
    return decide(trial(begun(one, **spec), **spec), facts(seen or one, job=Known(done)))


def test_a_completed_trial_has_what_was_found() -> None:
    one = pipeline()
    samples = tuple(Sample(sink="rows", kind="Changed", key=f"id={n}\n\u202e", columns="x") for n in range(30))
    found = ended(one, replace(report(changed=4, overwritten=2), samples=samples, peak_memory=95, memory_limit=100))
    status = found.status
    assert (status.phase, found.again) == (TrialPhase.COMPLETED, None)
    rows = present(status.rows)
    assert (rows.compared, rows.equal, rows.changed, rows.missing, rows.overwritten) == (94, 90, 4, 0, 2)
    assert len(status.samples) == 10
    assert all(sample.key.isprintable() for sample in status.samples)
    assert status.records_per_second == 19.0
    assert present(status.resources).fits is False
    assert present(condition_of(status.conditions, "Ready")).status == "True"
    assert status.promotion is None
    assert "4 changed" in status.message


def test_a_report_can_be_stored_whatever_the_pod_writes_and_does_not_change_what_is_pinned() -> None:
    """The CRD keys sinks by name and counts in int64: the API server would refuse each write of the status."""
    most = 2**63 - 1
    sinks = tuple(SinkFindings(name=name, equal=most, changed=most, missing=most) for name in ("a\n", "a\r", "b"))
    status = ended(pipeline(), replace(report(), records=0, total=0, sinks=sinks), promoteWhen={}).status
    assert len({sink.name for sink in status.sinks}) == len(status.sinks) == 2
    rows = present(status.rows)
    assert rows.compared == rows.equal == rows.changed == rows.missing == most
    assert status.records_total == 38
    assert present(status.promotion).message == "not all records were processed"


def test_a_pipeline_that_was_rewound_meanwhile_has_no_result() -> None:
    one = pipeline()
    back = Known(replace(ROW, offsets={**ROW.offsets, f"{TOPIC}/0": 49}))
    done = Known(job(finished=True, report=report(), exit_code=0))
    found = decide(trial(begun(one)), facts(one, job=done, row=back))
    assert "rewound during the trial" in found.status.message
    waits = decide(trial(begun(one)), facts(one, job=done, row=UNSEEN))
    assert not waits.status.is_finished


PROMOTE: Mapping[str, Any] = {"promoteWhen": {"changedRows": 1}}
NOT_MET: Mapping[str, TrialReport] = {
    "2 changed": report(changed=2),
    "1 missing": report(missing=1),
    "1 added": report(added=1),
    "not looked for": report(missing=None),
    "no row was compared": report(equal=0),
    "cannot process 1": replace(report(), poison=1, first_poison="t/0@1"),
    "not all records": replace(report(), records=1, is_complete=False),
}


@pytest.mark.parametrize("words", NOT_MET)
def test_code_that_differs_too_much_is_not_promoted(words: str) -> None:
    found = ended(pipeline(), NOT_MET[words], **PROMOTE)
    promotion = present(found.status.promotion)
    assert promotion.state == PromotionState.NOT_MET
    assert words in promotion.message
    assert found.again is None


def test_rows_that_were_not_compared_are_not_promoted() -> None:
    """The time was up in the last batch, or the report had no room for a sink."""
    found = present(ended(pipeline(), replace(report(), is_complete=False), promoteWhen={}).status.promotion)
    assert (found.state, found.message) == (PromotionState.NOT_MET, "not all rows were compared")


def test_a_promotion_is_recorded_then_made_once_then_seen() -> None:
    one = pipeline()
    recorded = ended(one, report(changed=1), **PROMOTE).status
    assert present(recorded.promotion).state == PromotionState.PROMOTING
    asked = trial(recorded, **PROMOTE)
    found = decide(asked, facts(one))
    assert isinstance(found.action, Promote)
    assert found.action.job == JOB
    assert found.status == recorded
    new = replace(one, generation=4, written={**one.written, "job": {**one.written["job"], **JOB}})
    done = decide(asked, facts(new))
    assert done.action is None
    assert present(done.status.promotion).state == PromotionState.PROMOTED
    assert decide(trial(done.status, **PROMOTE), facts(one)).action is None


@pytest.mark.parametrize("found", [report(changed=2), replace(report(), is_complete=False)])
def test_a_trial_that_is_not_promoted_is_not_ready(found: TrialReport) -> None:
    """What waits for the trial, such as Flux or a sync wave of Argo CD, does not continue."""
    conditions = ended(pipeline(), found, **PROMOTE).status.conditions
    assert present(condition_of(conditions, "Ready")).status == "False"
    assert present(condition_of(conditions, "Stalled")).reason == Reason.TRIED
    conditions = ended(pipeline(managed_by="Flux"), report(changed=1), **PROMOTE).status.conditions
    assert present(condition_of(conditions, "Ready")).status == "True"


KEPT: Mapping[str, Any] = {"ttlAfterFinished": "1h"}


def test_a_trial_is_deleted_once_its_time_is_up() -> None:
    one = pipeline()
    found = ended(one, report(), **KEPT)
    assert (found.action, found.again) == (None, 3600.0)
    for status in (found.status, decide(trial(**KEPT), facts(stateful(one))).status):
        half = decide(trial(status, **KEPT), replace(facts(one), now=NOW + timedelta(minutes=30)))
        assert (half.action, half.again) == (None, 1800.0)
        late = decide(trial(status, **KEPT), replace(facts(None), now=NOW + timedelta(hours=1)))
        assert isinstance(late.action, DeleteTrial)
        for_ever = decide(trial(status), replace(facts(None), now=NOW + timedelta(days=99)))
        assert (for_ever.action, for_ever.again) == (None, None)


def test_a_trial_is_kept_while_it_is_not_over_or_its_code_is_being_promoted() -> None:
    one, late = pipeline(), NOW + timedelta(days=1)
    recorded = ended(one, report(), promoteWhen={}, **KEPT).status
    for status in (recorded, begun(one), TrialStatus()):
        found = decide(trial(status, promoteWhen={}, **KEPT), replace(facts(one, job=Known(job())), now=late))
        assert not isinstance(found.action, DeleteTrial)
    stopped = decide(trial(begun(one), **KEPT), facts(None, job=Known(job())))
    assert isinstance(stopped.action, StopTrial)
    assert stopped.again == 3600.0


def test_a_spec_that_was_changed_since_is_not_promoted() -> None:
    one = pipeline()
    changed = replace(one, generation=4)
    assert present(ended(one, report(), changed, **PROMOTE).status.promotion).state == PromotionState.REFUSED
    recorded = ended(one, report(), **PROMOTE).status
    for seen in (changed, None, replace(one, uid="another")):
        found = decide(trial(recorded, **PROMOTE), facts(seen))
        assert found.action is None
        assert present(found.status.promotion).state == PromotionState.REFUSED


@pytest.mark.parametrize(
    ("metadata", "tool"),
    [
        ({"annotations": {"argocd.argoproj.io/tracking-id": "a:b"}}, "Argo CD"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}, "Flux"),
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "Helm"),
        ({"managedFields": [{"manager": "kustomize-controller"}]}, "Flux"),
        ({"managedFields": [{"manager": "argocd-controller", "subresource": "status"}]}, ""),
        ({"managedFields": [{"manager": "kubectl-client-side-apply"}, 5, None]}, ""),
        ({"labels": 5, "annotations": None}, ""),
    ],
)
def test_a_pipeline_from_a_repository_is_known_by_its_marks(metadata: dict[str, Any], tool: str) -> None:
    assert manager_of(metadata) == tool


def test_a_pipeline_from_a_repository_is_not_changed_and_the_status_has_the_patch() -> None:
    one = pipeline(managed_by="Flux")
    promotion = present(ended(one, report(), **PROMOTE).status.promotion)
    assert promotion.state == PromotionState.REPORTED
    assert json.loads(promotion.patch) == {"spec": {"job": JOB}}


def test_an_event_says_each_step_once() -> None:
    one = pipeline()
    first = decide(trial(), facts(one))
    assert [event.reason for event in first.events] == [Reason.TRYING]
    again = decide(trial(first.status), facts(one, job=Known(None)))
    assert again.events == ()
    promoted = replace(first.status, promotion=Promotion(state=PromotionState.NOT_MET))
    assert promoted != first.status


# The trial of an upgrade


def upgrading(name: str = "next", **metadata: Any) -> Pipeline:
    one = pipeline(**metadata)
    tried = UpgradeTrialStatus(name=name, revision="orders-1", code="", since=NOW)
    return replace(one, status=replace(one.status, upgrade_trial=tried))


def of_upgrade(status: TrialStatus | None = None, **spec: Any) -> Trial:
    return replace(trial(status, **spec), owner_uid="uid-1")


@pytest.mark.parametrize("now", [pipeline(), upgrading("another")], ids=["another code", "another trial"])
def test_a_trial_that_no_upgrade_waits_for_ends_and_stops_its_job(now: Pipeline) -> None:
    status = begun(upgrading())
    found = decide(of_upgrade(status), facts(now, job=Known(None)))
    assert found.status.phase == TrialPhase.FAILED
    assert found.action == StopTrial(name=present(status.job))
    assert not decide(trial(status), facts(now, job=Known(None))).status.is_finished, "a user's own continues"


def test_another_number_of_workers_does_not_end_the_trial_of_an_upgrade() -> None:
    status = begun(upgrading())
    changed = upgrading(generation=9)
    assert isinstance(decide(of_upgrade(status), facts(changed, job=Known(None))).action, StartTrial)
    assert decide(trial(status), facts(changed, job=Known(None))).status.phase == TrialPhase.FAILED


def test_an_upgrade_does_not_wait_for_records_to_compare() -> None:
    seen = facts(upgrading(), start=Known(replace(START, offsets=ROW.offsets)))
    found = decide(of_upgrade(), seen).status
    assert (found.phase, found.conditions[0].reason) == (TrialPhase.FAILED, Reason.TRIAL_REFUSED)
    assert "spec.upgrade.trial.since" in found.message
    assert decide(trial(), seen).status.phase == TrialPhase.WAITING
