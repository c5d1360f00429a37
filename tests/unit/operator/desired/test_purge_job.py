"""The Job of a rewind: a pod within Pod Security's limits that holds no more Secrets than it needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fakes.manifests import KEY
from fencepost.contract import DriverConfig, Variable, Verdict
from fencepost.contract.purge_request import PURGE_FILE, PurgeReport, PurgeRequest
from fencepost.fence import FenceRow
from fencepost_operator.api import FinishingStatus, ReconcileConfig, ResolvedTarget, Rewind, Status, read_rewind
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.rewind.purge_jobs import ranges, start_count, start_purge
from fencepost_operator.desired import labels, names
from fencepost_operator.desired.identity.hashes import fingerprints
from fencepost_operator.desired.jobs import run_config
from fencepost_operator.observation import Known, Observation, References, Unknown, UnknownReason
from present import present
from unit.charts.pod_security import violations
from unit.operator.desired.test_builders import pipeline_and_spec

ROW = FenceRow(
    pipeline="default/shop/orders",
    owner="cluster-1/uid-1",
    epoch=4,
    clock=1_000,
    offsets={"orders/0": 50, "orders/1": 8, "orders/2": 9},
    planned={"orders/0": 60, "orders/1": 8, "orders/2": 9, "orders/3": 5},
)
TARGET = ResolvedTarget(offsets={"orders/0": 20, "orders/1": 8})


def rewind() -> Rewind:
    created = "2026-01-01T00:00:00Z"
    metadata = {"namespace": KEY.namespace, "name": "back", "uid": "rewind-uid", "creationTimestamp": created}
    return read_rewind({"metadata": metadata, "spec": {"pipeline": KEY.name, "to": {"snapshot": "good"}}})


def context() -> RunContext:
    one, spec = pipeline_and_spec("full")
    unseen = Unknown(reason=UnknownReason.UNREACHABLE, message="not observed")
    return RunContext(
        pipeline=one,
        status=one.status,
        observation=Observation(
            now=datetime(2026, 1, 1, tzinfo=UTC),
            references=unseen,
            release=unseen,
            cluster=unseen,
            runs=unseen,
            run_node=unseen,
            fence=Known(ROW),
            source=unseen,
        ),
        config=ReconcileConfig(cluster_uid="cluster-1"),
        spec=spec,
        row=ROW,
        references=References(hashes={}),
        desired=fingerprints(spec, {}),
    )


def test_output_reaches_from_the_target_to_what_was_planned() -> None:
    assert ranges(ROW, Status(), TARGET) == {"orders/0": (20, 60), "orders/2": (0, 9), "orders/3": (0, 5)}


def test_only_the_one_that_deletes_has_a_timestamp_which_is_the_rows() -> None:
    """And is older than what a run writes that begins on this row, as after a rewind that is cancelled."""
    run = context()
    counted, deleted = start_count(run, rewind(), TARGET), start_purge(run, rewind(), TARGET)
    requests = [PurgeRequest.from_json(each.config_map["data"][PURGE_FILE]) for each in (counted, deleted)]
    assert [request.timestamp for request in requests] == [None, 1_000]
    assert present(requests[1].timestamp) < run.row.write_timestamp
    assert {request.ranges["orders/0"] for request in requests} == {(20, 60)}
    assert deleted.job["metadata"]["name"] == "orders-purge-4"
    assert counted.job["metadata"]["name"].startswith("orders-count-")
    config = DriverConfig.from_json(deleted.config_map["data"][run_config.KEY])
    assert names.cluster_name(KEY.name, 0) in config.spark_master, "a name that no cluster has: it uses no Spark"


def test_the_pod_keeps_to_pod_security_and_gets_no_secret_of_spark() -> None:
    job = start_purge(context(), rewind(), TARGET).job
    template = job["spec"]["template"]
    assert list(violations(template)) == []
    (container,) = template["spec"]["containers"]
    assert container["args"] == ["fencepost", "purge"]
    assert Variable.SPARK_AUTH_SECRET not in {each["name"] for each in container["env"]}
    mounted = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert mounted["config"]["configMap"]["name"] == job["metadata"]["name"]


def test_what_no_second_pod_can_change_fails_the_job_at_once() -> None:
    job = start_count(context(), rewind(), TARGET).job
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert {2, 51, 127} <= set(rule["onExitCodes"]["values"])


def test_a_purge_job_is_not_a_driver_and_is_deleted_with_the_rewind() -> None:
    action = start_purge(context(), rewind(), TARGET)
    for made in (action.job, action.config_map):
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("PipelineRewind", "rewind-uid")
        assert made["metadata"]["labels"][labels.COMPONENT] == labels.PURGE
        assert made["metadata"]["labels"][labels.PIPELINE] == KEY.name
    assert not action.job["metadata"]["name"].startswith(names.job_name(KEY.name, 0)[:-1])


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"rows": -1, "left": 0, "seconds": 1}', '{"rows": true, "left": 0, "seconds": 1}',
     '{"rows": 1, "left": 1e400, "seconds": 1}', '{"rows": 99999999999999999999, "left": 0, "seconds": 1}', "[" * 9000],
)  # fmt: skip
def test_a_report_that_the_pod_forged_is_none(text: str) -> None:
    assert PurgeReport.from_json(text) is None


def test_a_report_comes_back_as_it_went() -> None:
    report = PurgeReport(rows=3, left=1, seconds=0.25)
    assert PurgeReport.from_json(report.to_json()) == report
    assert Verdict.from_json(report.to_json()) is None


def test_a_purge_reaches_as_far_as_a_batch_that_was_cut_may_have_written() -> None:
    row = replace(ROW, log_ends={"orders/0": 100_000, "orders/1": 9})
    assert ranges(row, Status(), TARGET)["orders/0"] == (20, 100_000)
    assert "orders/1" not in ranges(row, Status(), TARGET)


def test_a_purge_reaches_what_was_begun_of_a_partition_that_stays_where_it_is() -> None:
    row = replace(ROW, log_ends={"orders/1": 900})
    assert ranges(replace(row, begun={"orders/1": 30}), Status(), TARGET)["orders/1"] == (8, 900)
    finishing = FinishingStatus(
        code="orders-1", revision="orders-1", since=datetime(2026, 1, 1, tzinfo=UTC), until={"orders/1": 40}
    )
    assert ranges(ROW, Status(finishing=finishing), TARGET)["orders/1"] == (8, 40)


def test_the_exit_codes_of_the_policy_are_in_the_order_that_the_api_server_demands() -> None:
    (rule,) = start_count(context(), rewind(), TARGET).job["spec"]["podFailurePolicy"]["rules"]
    values = rule["onExitCodes"]["values"]
    assert values == sorted(values)
