"""Driver Jobs and pods as the API server shows them, and what they say of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.clock import Clock
from fencepost.contract import Reason, Verdict
from fencepost_operator.adapters.kubernetes.api_server import JOBS, NODES, PODS, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.api import ObjectKey
from fencepost_operator.decision.run.diagnosis import diagnose_end
from fencepost_operator.decision.run.liveness import stop_timeout
from fencepost_operator.desired import labels
from fencepost_operator.observation import Run
from fencepost_operator.text import single_line
from present import present

KEY, OWNER = ObjectKey("shop", "orders"), "uid-1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
VERSION = "9"
"""The resourceVersion of each list."""
NOTES = {labels.SPEC_HASH: "abc", labels.GENERATION: "3"}


class Listing(ApiServer):
    """An API server that has these Jobs and pods, and one node."""

    def __init__(self, *, jobs: list[dict[str, Any]], pods: list[dict[str, Any]]) -> None:
        self._found = {JOBS: jobs, PODS: pods}

    async def list(self, resource: Resource, **_: Any) -> list[dict[str, Any]]:
        return self._found.get(resource, [])

    async def versioned_list(self, resource: Resource, **_: Any) -> tuple[Sequence[dict[str, Any]], str]:
        return await self.list(resource), VERSION

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> dict[str, Any]:
        del namespace
        assert resource == NODES
        return {"metadata": {"name": name, "uid": "node-uid"}, "status": {"conditions": []}}


def job(epoch: int, **metadata: Any) -> dict[str, Any]:
    own = {
        "name": f"orders-run-{epoch}",
        "uid": f"job-{epoch}",
        "namespace": "shop",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": NOTES,
        "ownerReferences": [{"uid": OWNER}],
    }
    return {"metadata": {**own, **metadata}, "status": {}}


def pod(epoch: int, *, phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    marks = {labels.EPOCH: str(epoch), "batch.kubernetes.io/controller-uid": f"job-{epoch}"}
    own = {
        "name": f"orders-run-{epoch}-x",
        "uid": f"pod-{epoch}",
        "namespace": "shop",
        "creationTimestamp": "2026-01-01T00:00:01Z",
        "labels": marks,
        "annotations": NOTES,
        "ownerReferences": [{"uid": f"job-{epoch}"}],
    }
    return {"metadata": {**own, **metadata}, "spec": {"nodeName": "node-1"}, "status": {"phase": phase}}


async def runs(*, jobs: list[dict[str, Any]], pods: list[dict[str, Any]], owner: str = OWNER) -> tuple[Run, ...]:
    return (await runs_of(Listing(jobs=jobs, pods=pods)).list(KEY, owner)).runs


def runs_of(api: Listing) -> KubernetesRuns:
    return KubernetesRuns(api=api, clock=Clock(NOW), kubelets=Kubelets(api=api))


async def test_a_job_comes_with_the_pod_that_it_made() -> None:
    found = await runs(jobs=[job(12), job(7)], pods=[pod(12), pod(7)])
    assert [(run.epoch, run.pod.uid if run.pod else None, run.deleting) for run in found] == [
        (7, "pod-7", False),
        (12, "pod-12", False),
    ]


async def test_a_second_pod_that_was_fenced_out_does_not_hide_the_first() -> None:
    """Its phase is Running for some seconds more: being the newest, it made the run look dead."""
    second = pod(2, uid="second", creationTimestamp="2026-01-01T00:00:09Z")
    second["status"] |= {**ended("", code=50), "phase": "Running"}
    (run,) = await runs(jobs=[job(2)], pods=[pod(2, uid="first"), second])
    assert run.pod is not None
    assert (run.pod.uid, run.pod.exit_code) == ("first", None)


async def test_a_pod_that_outlives_its_job_stands_for_it() -> None:
    (run,) = await runs(jobs=[], pods=[pod(5, deletionTimestamp="2026-01-01T00:01:00Z")])
    assert (run.name, run.epoch, run.spec_hash, run.cluster_generation) == ("orders-run-5", 5, "abc", 3)
    assert (run.deleting, run.finished, run.orphaned) == (True, False, False)
    assert present(run.pod).deleting_since is not None


@pytest.mark.parametrize(("owners", "orphaned"), [([{"uid": "job-5"}], False), ([], True)])
async def test_a_pod_without_an_owner_is_an_orphan(owners: list[dict[str, str]], orphaned: bool) -> None:
    (run,) = await runs(jobs=[], pods=[pod(5, ownerReferences=owners)])
    assert run.orphaned is orphaned


async def test_an_orphan_is_still_its_jobs_pod_while_the_job_goes() -> None:
    (run,) = await runs(jobs=[job(5, deletionTimestamp="2026-01-01T00:00:09Z")], pods=[pod(5, ownerReferences=[])])
    assert run.pod is not None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_ended_without_its_job_is_none(phase: str) -> None:
    assert await runs(jobs=[], pods=[pod(5, phase=phase)]) == ()


async def test_an_orphan_that_ended_proves_its_end() -> None:
    """Seed 10698 of the simulation: a rewind that deletes output waited forever for the proof."""
    seen = runs_of(Listing(jobs=[], pods=[that_ended(5), pod(6, phase="Failed", ownerReferences=[])]))
    listed = await seen.list(KEY, OWNER)
    assert listed.runs == ()
    assert seen.terminated_by("pod-5", listed.version)
    assert not seen.terminated_by("pod-6", listed.version), "no container of it is known to have ended"


def that_ended(epoch: int, *, version: str = "8") -> dict[str, Any]:
    left = pod(epoch, phase="Failed", ownerReferences=[], resourceVersion=version)
    left["status"]["containerStatuses"] = [{"name": labels.DRIVER, "state": {"terminated": {"exitCode": 50}}}]
    return left


@pytest.mark.parametrize(
    ("version", "proves"), [("8", True), (VERSION, True), ("10", False), ("", False), ("a", False)]
)
async def test_an_end_that_was_watched_proves_nothing_with_a_list_that_is_older(version: str, proves: bool) -> None:
    """Seed 336296 of the simulation: the list may lack a second pod of the run's Job, which lives."""
    seen = runs_of(Listing(jobs=[], pods=[]))
    seen.note_pod(that_ended(5, version=version))
    seen.note_pod(that_ended(5, version="11"))
    assert seen.terminated_by("pod-5", (await seen.list(KEY, OWNER)).version) is proves


async def test_jobs_of_another_object_and_their_pods_are_none() -> None:
    assert await runs(jobs=[job(5)], pods=[pod(5)], owner="another") == ()


# Facts for liveness


def with_grace(seconds: int) -> dict[str, Any]:
    return {"template": {"spec": {"terminationGracePeriodSeconds": seconds}}}


async def test_a_run_keeps_the_grace_period_that_its_job_was_made_with() -> None:
    made = job(5) | {"spec": with_grace(900)}
    left = pod(6)
    left["spec"]["terminationGracePeriodSeconds"] = 45
    first, second = await runs(jobs=[made], pods=[left])
    assert (first.termination_grace, second.termination_grace) == (900, 45)


@pytest.mark.parametrize(("written", "kept"), [(9_000_000_000_000_000_000, 3600), (-1, 0)])
async def test_a_grace_period_that_a_tenant_forged_is_bounded(written: int, kept: int) -> None:
    forged = pod(6)
    forged["spec"]["terminationGracePeriodSeconds"] = written
    found = await runs(jobs=[job(5) | {"spec": with_grace(written)}], pods=[forged])
    assert [run.termination_grace for run in found] == [kept, kept]
    stop_timeout(found[0], 30.0)  # does not raise


@pytest.mark.parametrize(
    ("status", "had"),
    [({}, False), ({"active": 1}, True), ({"failed": 1}, True), ({"succeeded": 1}, True), ({"terminating": 1}, True),
     ({"active": 0, "ready": 0}, False), ({"uncountedTerminatedPods": {"failed": ["uid"]}}, True)],
)  # fmt: skip
async def test_a_job_whose_pod_was_never_seen_says_whether_it_had_one(status: dict[str, Any], had: bool) -> None:
    (run,) = await runs(jobs=[job(5) | {"status": status}], pods=[])
    assert (run.pod, run.had_pod) == (None, had)


async def test_a_run_with_a_pod_had_one() -> None:
    (run,) = await runs(jobs=[job(5)], pods=[pod(5)])
    assert run.had_pod


DELETED = {"deletionTimestamp": "2026-01-01T00:01:00Z"}


@pytest.mark.parametrize(
    ("metadata", "status", "forced"),
    [
        ({**DELETED, "deletionGracePeriodSeconds": 0}, {"phase": "Running"}, True),
        ({**DELETED, "deletionGracePeriodSeconds": 30}, {"phase": "Running"}, False),
        ({}, {"phase": "Running"}, False),
        # The kubelet deletes what it has ended with a grace period of zero.
        ({**DELETED, "deletionGracePeriodSeconds": 0}, {"phase": "Failed"}, False),
        (
            {**DELETED, "deletionGracePeriodSeconds": 0},
            {"phase": "Running", "containerStatuses": [{"name": "driver", "state": {"terminated": {"exitCode": 1}}}]},
            False,
        ),
    ],
)
async def test_a_forced_deletion_is_seen(metadata: dict[str, Any], status: dict[str, Any], forced: bool) -> None:
    seen = pod(5, **metadata) | {"status": status}
    (run,) = await runs(jobs=[job(5)], pods=[seen])
    assert present(run.pod).force_deleted is forced


async def test_a_pod_without_a_node_is_never_deleted_by_force() -> None:
    seen = pod(5, **DELETED, deletionGracePeriodSeconds=0) | {"spec": {}}
    (run,) = await runs(jobs=[job(5)], pods=[seen])
    assert not present(run.pod).force_deleted


# What tenants wrote


def ended(message: str, code: int = 1) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error", "message": message}}
    return {"phase": "Failed", "containerStatuses": [{"name": "driver", "state": state}]}


async def test_every_field_of_a_verdict_reaches_the_decision() -> None:
    verdict = Verdict(
        exit_code=53,
        reason=Reason.POISON_RECORD,
        message="it fails alone",
        remedy="correct it",
        epoch=5,
        version=7,
        batch={"t/0": (1, 3)},
        suspect=True,
        record={"t/0": 2},
        loss="0123456789ab",
        log=("12:00:00 ERROR fencepost.driver.run: the run failed",),
    )
    unset = [one.name for one in fields(Verdict) if one.default == getattr(verdict, one.name)]
    assert unset == [], "a new field: give it a value here"
    (run,) = await runs(jobs=[job(5)], pods=[pod(5) | {"status": ended(verdict.to_json(), code=53)}])
    assert present(run.pod).verdict == verdict


async def test_without_a_verdict_the_kubelets_lines_of_the_log_reach_the_decision() -> None:
    """FallbackToLogsOnError: the tail of the log is the termination message of a driver that was killed."""
    text = 'cut off\n{"level": "info", "message": "ready: kafka"}\n\n' + "x" * 5000 + "\u202e\nlast words\n"
    (run,) = await runs(jobs=[job(5)], pods=[pod(5) | {"status": ended(text, code=137)}])
    assert run.pod is not None
    assert run.pod.log[0] == '{"level": "info", "message": "ready: kafka"}'
    assert run.pod.log[-1] == "last words"
    assert all(line.isprintable() and len(line) <= 300 for line in run.pod.log)
    assert sum(map(len, run.pod.log)) <= 2048
    found = diagnose_end(run, run.name)
    assert (found.category, found.detail, found.log) == ("Killed", "last words", run.pod.log)


async def test_secrets_in_the_kubelets_lines_of_the_log_reach_neither_the_log_nor_the_message() -> None:
    cut = "hunter2 is what is left of a line\n" + f"{'x' * 90}\n" * 25
    text = cut + "sasl.password=hunter2\nKafkaError: https://reader:hunter2@api.example refused token: hunter2"
    (run,) = await runs(jobs=[job(5)], pods=[pod(5) | {"status": ended(text)}])
    assert run.pod is not None
    assert run.pod.log[-2] == "sasl.password=***"
    found = diagnose_end(run, run.name)
    assert found.detail == "KafkaError: https://***@api.example refused token: ***"
    assert "hunter2" not in f"{run.pod} {found}"


HOSTILE_VERDICTS = {
    "a list for a reason": {"exit_code": 51, "reason": ["BadSpec"], "message": {"a": 1}, "remedy": 7},
    "numbers": {"exit_code": "x", "reason": 1, "message": 1e300, "remedy": None, "epoch": "many", "version": []},
    "huge": {"exit_code": 1, "reason": "R" * 900, "message": "m" * 900, "remedy": "r" * 900},
    "control": {"exit_code": 1, "reason": "A\u2028b", "message": "x\ny\x00z\u202e", "remedy": "a\tb"},
    "a batch of text": {"exit_code": 1, "reason": "A", "message": "m", "remedy": "r", "batch": {"t/0": ["a", "b"]}},
}


@pytest.mark.parametrize("verdict", HOSTILE_VERDICTS.values(), ids=HOSTILE_VERDICTS)
async def test_a_hostile_verdict_breaks_no_diagnosis(verdict: dict[str, Any]) -> None:
    (run,) = await runs(jobs=[job(5)], pods=[pod(5) | {"status": ended(json.dumps(verdict))}])
    found = diagnose_end(run, run.name)
    assert found.message.isprintable()
    assert len(found.message) < 1200
    assert single_line(found.remedy, limit=600) == found.remedy
    assert run.pod is not None
    assert run.pod.verdict is None or run.pod.verdict.exit_code == 1


@pytest.mark.parametrize("text", ["[" * 4096, '{"batch": {"a": [1e999, 1]}}', "NaN", "\ud800", "null", '"text"', "{}"])
async def test_last_words_of_any_kind_are_at_most_ignored(text: str) -> None:
    (run,) = await runs(jobs=[job(5)], pods=[pod(5) | {"status": ended(text)}])
    assert present(run.pod).verdict is None


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 63, "9223372036854775808", "-1", "1.5", "²", "٣", "07", " 3", ""])
async def test_numbers_that_tenants_write_are_bounded(number: str) -> None:
    notes = {**NOTES, labels.GENERATION: number}
    left = pod(5, annotations=notes)
    stray = pod(6, name="stray", labels={labels.EPOCH: number, "batch.kubernetes.io/controller-uid": "gone"})
    named = job(7, name=f"orders-run-{number}")
    found = await runs(jobs=[job(4, annotations=notes), named], pods=[left, stray])
    assert [(run.epoch, run.cluster_generation) for run in found] == [(4, 0), (5, 0)]


async def test_a_spec_hash_is_a_short_word() -> None:
    for text in ("x" * 200_000, "a\nb", "{{ toYaml }}"):
        (run,) = await runs(jobs=[job(4, annotations={**NOTES, labels.SPEC_HASH: text})], pods=[])
        assert run.spec_hash == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    verdict=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("exit_code", "reason", "message", "remedy", "epoch", "version", "batch"), JSON)
    ),
    notes=st.dictionaries(st.sampled_from([labels.GENERATION, labels.SPEC_HASH, labels.EPOCH]), st.text()),
)
async def test_no_text_of_a_pod_raises(verdict: dict[str, Any], notes: dict[str, str]) -> None:
    seen = pod(5, annotations=notes) | {"status": ended(json.dumps(verdict))}
    for run in await runs(jobs=[job(5, annotations=notes)], pods=[seen, pod(6, labels=notes)]):
        assert diagnose_end(run, run.name).message.isprintable()


async def test_the_driver_is_the_container_of_that_name() -> None:
    sidecar = {"name": "a-sidecar", "state": {"running": {}}}
    driver = {"name": "driver", "state": {"terminated": {"exitCode": 52}}}
    (run,) = await runs(jobs=[job(5)], pods=[pod(5) | {"status": {"containerStatuses": [sidecar, driver]}}])
    assert present(run.pod).exit_code == 52


class Counting(Listing):
    """Counts how often a node is read."""

    nodes = 0

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> dict[str, Any]:
        self.nodes += 1
        return await super().get(resource, name=name, namespace=namespace)


@pytest.mark.parametrize(("phase", "asked"), [("Running", 1), ("Failed", 3)], ids=["it lives", "its end is proven"])
async def test_the_node_of_many_pods_is_read_once_unless_it_proves_an_end(phase: str, asked: int) -> None:
    api = Counting(jobs=[job(5)], pods=[pod(5, phase=phase)])
    seen = runs_of(api)
    for _ in range(3):
        await seen.list(KEY, OWNER)
    assert api.nodes == asked
