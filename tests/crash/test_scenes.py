"""What goes wrong around a pipeline, and that it ends well or says what to do."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from fakes.manifests import KEY, body
from fakes.stage import POLICY, ROW, Stage
from fakes.world import Node
from fencepost.contract import ExitCode
from fencepost_operator.api import ADOPT_ANNOTATION, FINALIZER, PAUSED_ANNOTATION, RETRY_ANNOTATION, State
from fencepost_operator.observation import Known, PodIssue, Retention
from present import present


async def test_a_dead_driver_is_replaced_at_once_when_it_had_made_progress() -> None:
    stage = await Stage.streaming()
    await stage.run(10)
    before = stage.world.now
    stage.world.kill_driver()
    await stage.until(lambda: stage.epoch == 2 and len(stage.world.created_jobs) == 2)
    assert (stage.world.now - before).total_seconds() <= 1.0
    await stage.running()
    assert stage.pipeline.status.restarts == 1


async def test_five_kills_are_five_epochs_and_no_backoff() -> None:
    stage = await Stage.streaming()
    for number in range(2, 7):
        stage.world.kill_driver()
        await stage.replaced(number)
        await stage.run(6)
    assert stage.pipeline.status.restarts == 5
    assert len(stage.world.jobs) == 3


async def test_a_driver_that_fails_at_once_is_tried_ever_more_rarely() -> None:
    stage = Stage()
    stage.world.apply(body())
    attempts: list[float] = []
    start = stage.world.now

    def failing() -> bool:
        for driver in stage.world.drivers:
            driver.fails_with = ExitCode.FAILED
        while len(attempts) < len(stage.world.created_jobs):
            attempts.append((stage.world.now - start).total_seconds())
        return len(attempts) == 6

    await stage.until(failing, seconds=600)
    gaps = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    waits = [round(gap - gaps[0]) for gap in gaps]
    assert waits == pytest.approx([0, 2, 6, 12, 20], abs=2.5)
    assert present(stage.pipeline.status.failure).count == 5


async def stalled(stage: Stage, code: ExitCode) -> None:
    """Have each driver end with this code until the pipeline is stalled."""

    def is_stalled() -> bool:
        for driver in stage.world.drivers:
            driver.fails_with = code
        return stage.pipeline.status.state is State.STALLED

    await stage.until(is_stalled)


async def test_a_used_up_restart_budget_stalls_until_an_annotation_resets_it() -> None:
    stage = Stage()
    stage.world.apply(body(restart={"maxAttempts": 2}))

    await stalled(stage, ExitCode.FAILED)
    assert stage.ready() == "RestartBudgetExhausted"
    await stage.run(60)
    assert stage.epoch == 2
    stage.annotate(RETRY_ANNOTATION, "now")
    await stage.running()
    assert stage.epoch == 3


async def test_a_quiet_pipeline_outlives_any_number_of_drains() -> None:
    """A driver with nothing to read commits nothing, however long it does well."""
    stage = Stage()
    stage.world.rate = 0
    stage.world.apply(body(restart={"maxAttempts": 2, "stallTimeout": "15s"}))
    await stage.running()
    await stage.run(30)
    for number in range(2, 6):
        stage.world.delete_job(KEY, f"orders-run-{stage.epoch}")
        await stage.replaced(number)
        await stage.run(30)


async def test_a_driver_that_crashes_while_it_has_nothing_to_read_uses_the_budget_up() -> None:
    stage = Stage()
    stage.world.rate = 0
    stage.world.apply(body(restart={"maxAttempts": 3}))
    await stage.running()
    await stage.run(30)

    def stalled() -> bool:
        if stage.is_running():
            stage.world.kill_driver()
        return stage.pipeline.status.state is State.STALLED

    await stage.until(stalled)
    assert stage.ready() == "RestartBudgetExhausted"
    assert stage.epoch == 3


async def test_code_that_cannot_load_stalls_until_it_is_corrected() -> None:
    stage = Stage()
    stage.world.references[(KEY.namespace, "ConfigMap/code")] = "bad"
    job = {"image": "i", "entrypoint": "a:b", "codeFrom": {"configMapName": "code"}}
    stage.world.apply(body(job=job))

    await stalled(stage, ExitCode.BAD_SPEC)
    assert stage.ready() == "BadSpec"
    await stage.run(30)
    assert stage.epoch == 1
    stage.world.references[(KEY.namespace, "ConfigMap/code")] = "good"
    await stage.running()
    assert stage.world.releases[KEY].values["codeHash"] == "good"
    assert stage.status_of("Stalled") is None


async def test_a_lost_node_makes_a_new_generation_and_the_zombie_commits_nothing() -> None:
    """The node is paused with the driver on it, and comes back when the successor has committed."""
    stage = await Stage.streaming(restart={"stallTimeout": "15s"})
    await stage.run(10)
    pod, committed = stage.world.newest_pod(), stage.row.offsets
    lost, zombie = stage.world.nodes[pod.node], pod.driver
    stage.world.nodes = {"node-2": Node(), pod.node: lost}  # new pods go to the first one
    lost.reachable, zombie.frozen = False, True
    pod.deleting_since = stage.world.now
    before = list(zombie.commits)
    await stage.replaced()
    assert stage.generation == 2
    assert present(stage.pipeline.status.cluster).generation == 2
    successor = stage.world.newest_pod().driver
    await stage.until(lambda: bool(successor.commits))
    assert successor.commits[0][1] == committed
    assert zombie.alive, "nothing ends on a node that is paused"
    lost.reachable, zombie.frozen = True, False
    await stage.run(30)
    assert zombie.exit_code == ExitCode.FENCED, "it woke, and was refused"
    assert zombie.commits == before
    assert stage.epoch == 2
    assert stage.world.created_jobs == ["orders-run-1", "orders-run-2"]


async def test_a_master_on_a_lost_node_is_replaced_with_its_cluster_after_the_run() -> None:
    stage = await Stage.streaming()
    stage.world.lose_node(KEY, "master")
    await stage.run(300)
    assert stage.is_running()
    assert stage.epoch == 1
    stage.world.kill_driver()
    await stage.replaced()
    assert stage.generation == 2


async def test_the_only_worker_on_a_lost_node_is_replaced_with_its_cluster() -> None:
    stage = await Stage.streaming()
    stage.world.rate = 0
    await stage.run(30)
    stage.world.lose_node(KEY, "worker")
    await stage.until(lambda: stage.is_running() and stage.generation == 2)
    # One run loses its executor and ends, and one waits for an executor until the node counts as lost.
    assert stage.epoch in {2, 3}
    assert all(driver.row is None for driver in stage.world.buried), "only a run that never claimed was deleted"


async def test_a_run_that_starts_without_a_master_is_replaced_when_its_node_is_lost() -> None:
    """It would wait for its first executor or its start timeout, and only then get another cluster."""
    stage = await Stage.streaming()
    stage.world.kill_driver()
    await stage.until(lambda: stage.epoch == 2 and stage.ready() == "Starting")
    assert stage.world.newest_pod().driver.config.epoch == 2
    stage.world.lose_node(KEY, "master")
    began = stage.world.now
    await stage.until(lambda: stage.epoch == 3)
    assert stage.world.now - began < timedelta(seconds=90)
    await stage.running()
    assert stage.generation == 2


async def test_a_node_that_comes_back_soon_is_waited_for() -> None:
    stage = await Stage.streaming()
    stage.world.lose_node(KEY, "master")
    stage.world.kill_driver()
    await stage.run(12)
    assert stage.ready() == "Provisioning"
    stage.world.recover_nodes(KEY)
    await stage.replaced()
    assert stage.generation == 1


async def test_a_cluster_that_fits_nowhere_after_a_lost_node_is_not_recreated_repeatedly() -> None:
    stage = await Stage.streaming()
    stage.world.lose_node(KEY, "master")
    await stage.run(120)
    stage.world.issue = PodIssue(pod="orders-g2-master-0", reason="Unschedulable", message="0/2 nodes")
    stage.world.kill_driver()
    await stage.run(600)
    assert stage.ready() == "Unschedulable"
    assert stage.status_of("Ready") == "False"
    assert stage.generation == 2
    stage.world.issue = None
    await stage.replaced()
    assert stage.generation == 2


async def test_a_frozen_driver_is_fenced_and_refused_when_it_wakes() -> None:
    stage = await Stage.streaming(restart={"stallTimeout": "15s"}, batchInterval="1s")
    frozen, at = stage.world.newest_pod().driver, stage.world.now
    frozen.frozen = True
    await stage.replaced()
    assert (stage.world.now - at).total_seconds() < 45
    assert stage.generation == 2
    committed = len(frozen.commits)
    frozen.frozen = False
    await stage.run(5)
    assert frozen.exit_code == ExitCode.FENCED
    assert len(frozen.commits) == committed


async def test_a_driver_that_dies_while_its_pipeline_is_paused_is_replaced_after_the_pause() -> None:
    """Also the operator is replaced meanwhile: it knows of the pause by the annotation alone."""
    stage = await Stage.streaming()
    await stage.run(10)
    stage.annotate(PAUSED_ANNOTATION, "true")
    await stage.until(lambda: stage.status_of("Paused") == "True")
    stage.world.kill_driver()
    row = stage.row
    stage.gate.writes.clear()
    for _ in range(2):
        stage._operator = None
        await stage.run(300)
    assert stage.gate.writes == [], "nothing is started, and nothing is written"
    assert stage.world.created_jobs == ["orders-run-1"]
    assert stage.row == row
    stage.world.objects[KEY]["metadata"]["annotations"] = {}
    stage.world.touch(KEY)
    await stage.replaced()
    assert stage.status_of("Paused") is None
    successor = stage.world.newest_pod().driver
    await stage.until(lambda: bool(successor.commits))
    assert successor.commits[0][:2] == (2, row.offsets)
    assert stage.world.created_jobs == ["orders-run-1", "orders-run-2"]
    assert stage.reported.count("Resumed") == 1


@pytest.mark.parametrize("outage", ["kafka_down", "cassandra_down"])
async def test_an_outage_of_a_minute_replaces_nothing(outage: str) -> None:
    stage = await Stage.streaming(restart={"stallTimeout": "15s"})
    setattr(stage.world, outage, True)
    await stage.run(60)
    assert stage.status_of("Ready") == "True"
    assert stage.ready().endswith("Unreachable")
    assert stage.pipeline.status.message.endswith(".")
    setattr(stage.world, outage, False)
    await stage.run(30)
    assert stage.is_running()
    assert stage.epoch == 1
    assert stage.world.created_jobs == ["orders-run-1"]


@pytest.mark.parametrize("outage", ["kafka_down", "cassandra_down"])
async def test_a_driver_that_dies_in_an_outage_is_replaced_after_it_once(outage: str) -> None:
    stage = await Stage.streaming()
    setattr(stage.world, outage, True)
    stage.world.kill_driver()
    await stage.run(60)
    assert stage.world.created_jobs == ["orders-run-1"]
    assert stage.status_of("Ready") == "False"
    setattr(stage.world, outage, False)
    await stage.running()
    assert stage.epoch == 2


async def test_a_missing_topic_is_waited_for() -> None:
    stage = Stage()
    stage.world.ends.clear()
    stage.world.apply(body())
    await stage.run(10)
    assert stage.ready() == "TopicNotFound"
    assert not stage.world.releases
    stage.world.ends["orders/0"] = 5
    await stage.running()


async def test_an_upgrade_to_a_missing_topic_leaves_the_run_alone() -> None:
    stage = await Stage.streaming()
    pod = stage.world.newest_pod()
    source = {"kafka": {"bootstrapServers": "kafka:9092", "topics": ["orders", "absent"]}}
    stage.world.change(KEY, source=source)
    await stage.run(20)
    assert stage.ready() == "TopicNotFound"
    assert stage.world.newest_pod() is pod


async def test_a_missing_secret_is_waited_for() -> None:
    stage = Stage()
    checkpoint = {"cassandra": {"contactPoints": ["c"], "credentialsFrom": {"secretName": "account"}}}
    stage.world.apply(body(checkpoint=checkpoint))
    await stage.run(10)
    assert stage.ready() == "SecretNotFound"
    stage.world.references[(KEY.namespace, "Secret/account")] = "1"
    await stage.running()


async def test_an_image_that_cannot_be_pulled_is_said_and_corrected() -> None:
    stage = Stage()
    stage.world.issue = PodIssue(pod="orders-g1-master-0", reason="ImagePullBackOff", message="not found")
    stage.world.apply(body())
    await stage.run(30)
    assert stage.ready() == "ImagePullFailed"
    assert stage.status_of("Ready") == "False"
    stage.world.issue = None
    stage.world.change(KEY, job={"image": "good", "entrypoint": "a:b"})
    await stage.running()
    assert stage.generation == 2


async def test_an_invalid_spec_leaves_the_run_alone_and_does_not_block_deletion() -> None:
    stage = await Stage.streaming()
    stage.world.change(KEY, batchInterval="soon")
    await stage.run(20)
    assert stage.ready() == "InvalidSpec"
    assert stage.status_of("Stalled") == "True"
    assert stage.status_of("Streaming") == "True"
    assert "spec.batchInterval" in stage.pipeline.status.message
    await stage.deleted()
    assert not stage.world.jobs


async def test_a_recreated_pipeline_continues_from_its_checkpoint() -> None:
    stage = await Stage.streaming()
    await stage.run(10)
    await stage.deleted()
    offsets = stage.row.offsets
    stage.world.apply(body(uid="uid-2"))
    await stage.running()
    first = stage.world.newest_pod().driver.commits[:1]
    assert not first or first[0][1] == offsets
    assert stage.row.owner == "cluster-1/uid-2"


async def test_retain_needs_no_cassandra_and_delete_waits_for_it() -> None:
    stage = await Stage.streaming()
    stage.world.cassandra_down = True
    await stage.deleted(seconds=90)

    stage = await Stage.streaming(deletionPolicy="Delete")
    stage.world.cassandra_down = True
    stage.world.delete(KEY)
    await stage.run(90)
    assert stage.ready() == "CassandraUnreachable"
    assert stage.pipeline.finalizers == (FINALIZER,)
    stage.world.cassandra_down = False
    await stage.until(stage.is_gone)
    assert stage.row.is_released


async def test_a_namespace_that_took_the_credentials_along_is_let_go() -> None:
    stage = Stage()
    checkpoint = {"cassandra": {"contactPoints": ["c"], "credentialsFrom": {"secretName": "account"}}}
    stage.world.references[(KEY.namespace, "Secret/account")] = "1"
    stage.world.apply(body(checkpoint=checkpoint, deletionPolicy="Delete"))
    await stage.running()
    del stage.world.references[(KEY.namespace, "Secret/account")]
    stage.world.cassandra_down = True
    await stage.deleted(seconds=120)


async def test_a_row_of_another_cluster_is_refused_until_it_is_adopted() -> None:
    stage = Stage()
    stage.world.fence(ROW).create("cluster-2/uid-9")
    stage.world.apply(body())
    await stage.run(10)
    assert stage.ready() == "FenceOwnedElsewhere"
    assert not stage.world.jobs
    stage.annotate(ADOPT_ANNOTATION, "true")
    await stage.run(10)
    assert stage.ready() == "FenceOwnedElsewhere"
    command = "kubectl annotate streamingpipeline orders --namespace shop --overwrite "
    assert command + "streaming.fencepost.dev/adopt-fence=cluster-2@0; " in stage.pipeline.status.message
    stage.annotate(ADOPT_ANNOTATION, "cluster-2@0")
    await stage.running()
    assert stage.row.owner == "cluster-1/uid-1"


async def test_an_adoption_is_spent_when_the_row_is_taken_back() -> None:
    """Both clusters keep the annotation of their own takeover: neither takes the row from the other once more."""
    stage = Stage()
    fence = stage.world.fence(ROW)
    stage.world.apply(body())
    stage.annotate(ADOPT_ANNOTATION, "cluster-2@1")
    fence.create("cluster-2/uid-9")
    first = present(fence.read())
    fence.take_over(first, owner="cluster-2/uid-9")
    await stage.running()
    adopted = present(fence.read())
    fence.take_over(adopted, owner="cluster-2/uid-9")
    await stage.run(30)
    assert stage.ready() == "FenceOwnedElsewhere"
    assert "adopt-fence=cluster-2@1 is not about this owner and epoch" in stage.pipeline.status.message
    assert stage.row.owner == "cluster-2/uid-9"


async def test_a_row_that_vanished_or_went_back_stalls() -> None:
    stage = await Stage.streaming()
    kept = stage.world.table.rows.pop(ROW)
    await stage.run(10)
    assert stage.ready() == "FenceLost"
    stage.world.table.rows[ROW] = kept
    stage.world.kill_driver()
    await stage.replaced()
    stage.world.table.rows[ROW] = kept
    await stage.run(10)
    assert stage.ready() == "FenceRolledBack"


async def test_a_job_deleted_in_the_background_is_not_gone_before_its_pod() -> None:
    stage = await Stage.streaming(restart={"stallTimeout": "5m", "onUnprovenDeath": "wait"})
    old = stage.world.newest_pod().driver
    old.frozen = True
    stage.world.delete_job(KEY, "orders-run-1", cascade="background")
    await stage.run(30)
    assert old.alive
    assert stage.world.created_jobs == ["orders-run-1"]
    await stage.replaced()
    assert old.exit_code is not None
    assert stage.generation == 1


async def test_deletion_does_not_wait_for_an_orphaned_pod() -> None:
    stage = await Stage.streaming()
    old = stage.world.newest_pod().driver
    stage.world.delete_job(KEY, "orders-run-1", cascade="orphan")
    await stage.deleted(seconds=30)
    stage.world.advance(5)
    assert old.exit_code == ExitCode.FENCED


async def test_a_lost_release_is_put_back_under_the_living_driver() -> None:
    stage = await Stage.streaming()
    pod = stage.world.newest_pod()
    stage.world.releases[KEY].state = "failed"
    await stage.until(lambda: stage.world.releases[KEY].state == "deployed")
    await stage.running()
    assert stage.world.newest_pod() is pod


def taint(number: int, value: str = "") -> dict[str, Any]:
    """Return a toleration; Kubernetes refuses one with a value."""
    return {"tolerations": [{"key": f"dedicated-{number}", "operator": "Exists", "value": value}]}


def generations(stage: Stage) -> set[int]:
    return {part.generation for part in stage.world.parts.get(KEY, ())}


async def test_upgrades_that_are_refused_halfway_leave_nothing_behind() -> None:
    stage = await Stage.streaming()
    for number in range(1, 6):
        stage.world.change(KEY, cluster=taint(number, "refused"))
        await stage.until(lambda: stage.ready() == "InstallFailed")
        await stage.run(30)
        assert len(generations(stage)) == 1
        assert stage.ready() == "InstallFailed"
    stage.world.change(KEY, cluster=taint(6))
    await stage.running()
    await stage.run(60)
    assert generations(stage) == {stage.generation}
    assert stage.world.sets[KEY].keys() == generations(stage)


async def test_a_refused_upgrade_that_is_suspended_leaves_nothing_behind() -> None:
    stage = await Stage.streaming()
    stage.world.change(KEY, cluster=taint(1, "refused"))
    await stage.until(lambda: stage.ready() == "InstallFailed")
    await stage.suspended()
    await stage.run(30)
    assert generations(stage) == set()
    stage.world.change(KEY, suspend=False, cluster={})
    await stage.running()
    assert len(generations(stage)) == 1


async def test_a_lost_status_is_rebuilt_from_what_exists() -> None:
    stage = await Stage.streaming()
    pod = stage.world.newest_pod()
    stage.world.objects[KEY]["status"] = {}
    stage.world.touch(KEY)
    await stage.running()
    assert stage.world.newest_pod() is pod
    assert stage.epoch == 1


async def test_suspend_while_kubernetes_still_starts_the_first_run() -> None:
    stage = Stage()
    stage.world.apply(body())
    await stage.until(lambda: bool(stage.world.jobs))
    await stage.suspended()
    assert stage.status_of("Ready") == "True"
    assert stage.status_of("Streaming") == "False"
    await stage.run(30)
    assert not stage.world.jobs


async def test_a_driver_that_wakes_up_after_the_suspension_claims_nothing() -> None:
    """Its node fell silent before the claim, so that nothing says that it is dead."""
    stage = Stage()
    stage.world.apply(body())
    await stage.until(lambda: bool(stage.world.drivers) and stage.world.drivers[0].started_at is not None)
    driver = stage.world.drivers[0]
    driver.frozen = True
    stage.world.nodes["node-1"].reachable = False
    await stage.suspended()
    await stage.run(120)
    driver.frozen = False
    driver.step(stage.world.now, executors=True)
    assert driver.exit_code == ExitCode.FENCED
    assert driver.row is None
    assert stage.epoch == 2, "one takeover is enough"
    stage.world.nodes["node-1"].reachable = True
    stage.world.change(KEY, suspend=False)
    await stage.running()


async def test_a_suspended_pipeline_warns_before_its_records_are_deleted_and_writes_nothing_else() -> None:
    """Also after the operator was replaced: what it knew only in memory is not needed."""
    stage = Stage()
    stage.world.retention = Known(Retention(time=timedelta(days=4)))
    stage.world.apply(body())
    await stage.running()
    await stage.suspended()
    await stage.run(90)
    risk = present(stage.pipeline.status.data_risk)
    assert risk.oldest_uncommitted_at is not None
    assert risk.expires_at == risk.oldest_uncommitted_at + timedelta(days=4)
    assert "RetentionRisk" not in [c.type for c in stage.pipeline.status.conditions]
    stage.world.rate = 0.0
    await stage.run(POLICY.figures_interval + 5)
    stage.gate.writes.clear()
    await stage.run(60)
    assert stage.gate.writes == [], "nothing has changed"
    for at, reason in ((risk.warn_at, "DataExpiresSoon"), (risk.expires_at, "DataExpiresSoon")):
        stage.world.now = present(at) + timedelta(seconds=1)
        await stage.run(10)
        (found,) = [c for c in stage.pipeline.status.conditions if c.type == "RetentionRisk"]
        assert found.reason == reason
    assert stage.gate.writes == ["write_status"]
    stage._operator = None
    await stage.run(60)
    assert stage.gate.writes == ["write_status"] * 2, "a new operator measures from its own start"
    assert stage.reported.count("DataExpiresSoon") == 1
    stage.world.starts = {risk.partition or "": (risk.offset or 0) + 3}
    await stage.run(30)
    assert stage.gate.writes == ["write_status"] * 3
    assert stage.reported[-1] == "DataExpired"


async def test_a_run_that_outlives_its_grace_period_is_fenced_and_left_behind() -> None:
    stage = await Stage.streaming()
    stage.world.newest_pod().driver.frozen = True
    stage.world.kubelet_kills = False
    await stage.suspended(seconds=300)
    assert stage.epoch == 2


async def test_each_event_of_a_replacement_is_reported_once() -> None:
    stage = await Stage.streaming()
    await stage.run(60)
    stage.world.kill_driver()
    await stage.replaced()
    await stage.run(60)
    reported = stage.reported
    assert reported.count("Fenced") == 2
    assert reported.count("RunClaimed") == 2
    assert reported.count("RunFailed") == 1
    assert reported.count("ClusterReady") == 1
    assert len(reported) < 25, reported


@pytest.mark.parametrize("stall_timeout", [60, 200])
async def test_a_driver_that_lost_its_executors_ends_before_it_counts_as_unresponsive(stall_timeout: int) -> None:
    stage = await Stage.streaming(restart={"stallTimeout": f"{stall_timeout}s"})
    await stage.run(10)
    driver, before = stage.world.newest_pod().driver, stage.world.now
    stage.world.issue = PodIssue(pod="orders-g1-worker-0", reason="CrashLoopBackOff", message="back-off 10s")
    await stage.until(lambda: not driver.alive)
    assert driver.exit_code == ExitCode.NO_EXECUTORS
    assert (stage.world.now - before).total_seconds() == pytest.approx(0.8 * stall_timeout, abs=2)


async def test_a_driver_whose_workers_are_all_on_lost_nodes_is_fenced_before_its_patience_ends() -> None:
    """Kubernetes replaces no pod of a lost node, so no executor comes; the message names the node."""
    stage = await Stage.streaming(restart={"stallTimeout": "200s"})
    await stage.run(10)
    driver, before = stage.world.newest_pod().driver, stage.world.now
    stage.world.lose_node(KEY, "worker")
    await stage.until(lambda: not driver.alive)
    assert driver.exit_code == ExitCode.FENCED
    assert stage.world.now - before < timedelta(seconds=90)
    failure = present(stage.pipeline.status.failure)
    assert failure.reason == "PodLost"
    await stage.until(lambda: stage.is_running() and stage.generation == 2)
