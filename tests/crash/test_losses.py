"""From a loss to the run that continues without it: no run starts before a user accepts, whenever the operator dies."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fakes.manifests import body
from fakes.stage import ROW, Died, Stage
from fencepost.contract import Acceptance, ExitCode
from fencepost_operator.api import ACCEPT_LOSS_ANNOTATION, RETRY_ANNOTATION, Reason, State
from present import present

GONE = 50
"""Records of orders/0 that retention deletes beyond the committed offset."""


async def stalled_at_a_loss(**lost: object) -> Stage:
    """Return a pipeline whose driver died, and whose next one found a loss: of retention, or `lost`."""
    stage = Stage()
    stage.world.rate = 0.0
    stage.world.apply(body(source={"kafka": {"bootstrapServers": "kafka:9092", "topics": ["orders"]}}))
    await stage.running()
    await stage.until(lambda: stage.row.offsets == stage.world.ends)
    stage.world.ends["orders/0"] += 2 * GONE
    at = stage.row.offsets["orders/0"]
    stage.world.lost.update(lost or {"begins": {"orders/0": at + GONE, "orders/1": 0}})
    stage.world.kill_driver()
    await stage.until(lambda: stage.pipeline.status.state is State.STALLED)
    return stage


def loss_id(stage: Stage) -> str:
    return present(stage.pipeline.status.loss).id


async def test_a_loss_stalls_until_exactly_it_is_accepted() -> None:
    stage = await stalled_at_a_loss()
    status, jobs = stage.pipeline.status, list(stage.world.created_jobs)
    loss = present(status.loss)
    at = stage.row.offsets["orders/0"]
    assert [(r.partition, r.from_offset, r.until_offset) for r in loss.ranges] == [("orders/0", at, at + GONE)]
    assert (loss.reason, loss.records, loss.partitions, loss.estimated) == ("OffsetOutOfRange", GONE, 1, False)
    assert stage.ready() == Reason.OFFSET_OUT_OF_RANGE
    command = (
        f"kubectl annotate spl -n {stage.key.namespace} {stage.key.name} "
        f'{ACCEPT_LOSS_ANNOTATION}="{loss.id} by=$USER continue=earliest"'
    )
    assert command in status.message
    assert f"orders/0 [{at}, {at + GONE})" in status.message

    for text, problem in (
        ("0123456789ab by=kim", f"is about loss '0123456789ab', not about {loss.id}"),
        (loss.id, "does not say who"),
        (f"{loss.id} by=kim continue=latest", "takes continue=earliest or none"),
        ("x" * 200_000, "is longer than"),
        (f"{loss.id} by=kim \x1b[2J\u202e rm", "has"),
    ):
        stage.annotate(ACCEPT_LOSS_ANNOTATION, text)
        await stage.run(5)
        assert stage.world.created_jobs == jobs
        assert problem in stage.pipeline.status.message
        assert stage.pipeline.status.message.isprintable()
        assert len(stage.pipeline.status.message) < 2_000

    stage.annotate(ACCEPT_LOSS_ANNOTATION, f"{loss.id} by=kim")
    await stage.running()
    driver, status = stage.world.drivers[-1], stage.pipeline.status
    assert driver.accepted == [loss.id]
    assert [(a.id, a.by, a.choice, a.records) for a in status.accepted_losses] == [(loss.id, "kim", "", GONE)]
    await stage.until(lambda: stage.row.offsets == stage.world.ends)
    assert stage.pipeline.status.loss is None
    assert stage.reported.count(Reason.LOSS_ACCEPTED) == 1


async def test_a_used_acceptance_is_inert_and_the_next_loss_is_another_one() -> None:
    stage = await stalled_at_a_loss()
    first = loss_id(stage)
    stage.annotate(ACCEPT_LOSS_ANNOTATION, f"{first} by=kim")
    await stage.running()
    await stage.until(lambda: stage.row.offsets == stage.world.ends)
    stage.world.ends["orders/0"] += GONE
    stage.world.lost["begins"] = {"orders/0": stage.world.ends["orders/0"] - 1, "orders/1": 0}
    stage.world.kill_driver()
    await stage.until(lambda: stage.pipeline.status.state is State.STALLED)
    assert loss_id(stage) != first
    assert f"is about loss '{first}', not about {loss_id(stage)}" in stage.pipeline.status.message


async def test_an_acceptance_does_not_answer_another_failure() -> None:
    """A changed spec was tried instead, and its code cannot load: the loss has nothing to do with that."""
    stage = await stalled_at_a_loss()
    loss = loss_id(stage)
    stage.world.change(stage.key, job={"image": "registry.example/job:2", "entrypoint": "orders.job:wrong"})

    def stalled() -> bool:
        stage.world.drivers[-1].fails_with = ExitCode.BAD_SPEC
        return stage.pipeline.status.state is State.STALLED and stage.ready() == Reason.BAD_SPEC

    await stage.until(stalled)
    jobs = list(stage.world.created_jobs)
    stage.annotate(ACCEPT_LOSS_ANNOTATION, f"{loss} by=kim")
    await stage.until(lambda: bool(stage.pipeline.status.accepted_losses))
    await stage.run(30)
    assert (stage.world.created_jobs, stage.ready()) == (jobs, Reason.BAD_SPEC)


async def test_a_retry_finds_the_same_loss_and_no_acceptance() -> None:
    stage = await stalled_at_a_loss()
    first, jobs = loss_id(stage), len(stage.world.created_jobs)
    stage.annotate(RETRY_ANNOTATION, "1")
    await stage.until(lambda: len(stage.world.created_jobs) > jobs)
    await stage.until(lambda: stage.pipeline.status.state is State.STALLED)
    assert (loss_id(stage), stage.world.drivers[-1].accepted) == (first, [])


async def test_a_recreated_topic_needs_a_choice_of_its_own_offsets() -> None:
    stage = await stalled_at_a_loss(topic_ids={"orders": "another"}, begins={"orders/0": 0, "orders/1": 0})
    loss = loss_id(stage)
    assert stage.ready() == Reason.TOPIC_RECREATED
    assert "topic orders had id id-orders, now another" in stage.pipeline.status.message
    assert f'"{loss} by=$USER continue=earliest"' in stage.pipeline.status.message
    for text in (loss + " by=kim", f"{loss} by=kim continue=other/0:1", f"{loss} by=kim continue=orders/0"):
        stage.annotate(ACCEPT_LOSS_ANNOTATION, text)
        await stage.run(3)
        assert stage.pipeline.status.state is State.STALLED
        assert "continue=" in stage.pipeline.status.message.partition("accept-loss ")[2]
    stage.annotate(ACCEPT_LOSS_ANNOTATION, f"{loss} by=kim continue=orders/0:7000")
    await stage.until(lambda: "continue=orders/0:7000; that is outside the log" in stage.pipeline.status.message)
    assert stage.pipeline.status.state is State.STALLED
    stage.annotate(ACCEPT_LOSS_ANNOTATION, f"{loss} by=kim continue=orders/0:7")
    await stage.running()
    assert stage.row.topic_ids == {"orders": "another"}
    assert dict(stage.world.drivers[-1].claiming.offsets) == {}  # type: ignore[union-attr]
    await stage.until(lambda: stage.row.offsets == stage.world.ends)


async def test_an_acceptance_is_recorded_before_the_next_run_wherever_the_operator_dies() -> None:
    """Killed before and after each write from the annotation to the running driver."""
    reference = await stalled_at_a_loss()
    writes = len(reference.gate.writes)
    reference.annotate(ACCEPT_LOSS_ANNOTATION, f"{loss_id(reference)} by=kim")
    await reference.running()
    steps = len(reference.gate.writes) - writes
    assert "accept_loss" in reference.gate.writes[writes:]
    for step in range(steps):
        for moment in ("before", "after"):
            await accept_and_die(step, moment)


async def accept_and_die(step: int, moment: str) -> None:
    stage = await stalled_at_a_loss()
    jobs, first = len(stage.world.created_jobs), len(stage.gate.writes)

    def die(number: int, name: str) -> None:
        recorded = [report for report in stage.world.table.losses.values() if report.acceptance]
        if name == "start" and moment == "before":
            assert recorded, "a run is started before the acceptance is recorded"
        if number == first + step:
            raise Died

    setattr(stage.gate, moment, die)
    loss = loss_id(stage)
    stage.annotate(ACCEPT_LOSS_ANNOTATION, f"{loss} by=kim")
    await stage.until(lambda: len(stage.world.created_jobs) > jobs)
    await stage.running()
    assert stage.deaths == 1
    assert stage.world.drivers[-1].accepted == [loss]
    assert [accepted.id for accepted in stage.pipeline.status.accepted_losses] == [loss]
    await stage.until(lambda: stage.row.offsets == stage.world.ends)


async def test_an_acceptance_in_the_future_gives_one_attempt_like_any_other() -> None:
    """Injected: a tenant writes the row of its acceptance by hand, and runs fail all the time."""
    stage = await stalled_at_a_loss()
    loss = loss_id(stage)
    acceptance = Acceptance(by="mallory", choice="", at=stage.world.now + timedelta(days=9999))
    stage.world.table.accept_loss(ROW, stage.world.table.losses[ROW, loss].loss, acceptance)
    jobs = len(stage.world.created_jobs)

    def fail() -> bool:
        for driver in stage.world.drivers:
            driver.fails_with = ExitCode.BAD_SPEC
        return len(stage.world.created_jobs) > jobs

    await stage.until(fail)
    await stage.until(lambda: fail() and stage.ready() == Reason.BAD_SPEC)
    await stage.run(300)
    assert len(stage.world.created_jobs) == jobs + 1


@pytest.mark.parametrize("known", [False, True])
async def test_a_loss_that_cannot_be_read_is_not_accepted(known: bool) -> None:
    """Injected: Cassandra fails for the losses alone, from the driver's end on, or once the loss is in the status."""
    stage = await stalled_at_a_loss()
    loss = loss_id(stage)
    if not known:
        del stage.world.objects[stage.key]["status"]["loss"]
    answer = stage.world.table.before

    def fail(call: str) -> None:
        if call == "read_losses":
            stage.world.cassandra_down = True
        try:
            answer(call)
        finally:
            stage.world.cassandra_down = False

    stage.world.table.before = fail
    jobs = len(stage.world.created_jobs)
    stage.annotate(ACCEPT_LOSS_ANNOTATION, f"{loss} by=kim")
    await stage.run(10)
    assert len(stage.world.created_jobs) == jobs
    assert stage.pipeline.status.state is State.STALLED
    assert "loss cannot be read" in stage.pipeline.status.message
    stage.world.table.before = answer
    await stage.running()
