"""New code over a batch that the old code began: the old code finishes it, or what both may have written is recorded.

Injected each time: the old driver dies while a batch is half written, and the spec names other code.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from fakes.drivers import Driver
from fakes.gate import SIDES, failing_at
from fakes.manifests import KEY
from fakes.stage import FAULTS, Stage
from fencepost.contract import ExitCode
from fencepost_operator.api import MixedOutput
from fencepost_operator.desired.identity.code import revision_in
from present import present

OLD = {"image": "registry.example/job:1", "entrypoint": "orders.job:transform"}
NEW = {"image": "registry.example/job:2", "entrypoint": "orders.job:transform"}
CODE_MAP = {"image": "i", "entrypoint": "a:b", "codeFrom": {"configMapName": "code"}}


class RewoundStage(Stage):
    """A stage whose commits may go back."""

    def check_commits(self) -> None: ...


async def half_written(
    stage: Stage | None = None, *, code: int = 137, job: Mapping[str, Any] = OLD, **spec: Any
) -> Stage:
    """A pipeline whose driver died in the middle of a batch, before the operator has seen it."""
    stage = stage or Stage()
    stage.world.references[(KEY.namespace, "ConfigMap/code")] = "1"
    await Stage.streaming(stage, job=job, **spec)
    await stage.run(5)
    driver = stage.world.newest_pod().driver
    driver.batch_takes = timedelta(seconds=30)
    await stage.until(lambda: is_open(stage) and driver.batch_since is not None)
    await stage.run(3)
    assert is_open(stage)
    driver.end(stage.world.now, code)
    return stage


def is_open(stage: Stage) -> bool:
    return bool(stage.row.planned != stage.row.offsets)


def mixed(stage: Stage) -> tuple[MixedOutput, ...]:
    return stage.pipeline.status.mixed_output


def offsets(stage: Stage) -> Iterator[tuple[str, str, int]]:
    """Each (code, partition, offset) that a driver may have written a row of."""
    for driver in stage.world.drivers:
        for code, before, after in driver.wrote:
            for key, end in after.items():
                yield from ((code.split()[0], key, offset) for offset in range(before[key], end))


def doubled(stage: Stage) -> set[tuple[str, int]]:
    """The records of which two images may have written rows."""
    found: dict[tuple[str, int], set[str]] = {}
    for code, key, offset in offsets(stage):
        found.setdefault((key, offset), set()).add(code)
    return {place for place, codes in found.items() if len(codes) > 1}


def recorded(stage: Stage) -> set[tuple[str, int]]:
    return {
        (each.partition, offset)
        for entry in mixed(stage)
        for each in entry.ranges
        for offset in range(each.from_offset, each.until_offset)
    }


def runs_new_code(stage: Stage) -> bool:
    return stage.is_running() and (stage.row.code or "").startswith("registry.example/job:2 ")


def newest(stage: Stage) -> Driver:
    return stage.world.newest_pod().driver


async def upgraded(stage: Stage, *, seconds: float = 900.0) -> None:
    await stage.until(lambda: runs_new_code(stage), seconds=seconds)
    await stage.run(5)
    assert doubled(stage) <= recorded(stage)


async def test_the_old_code_finishes_its_batch_before_the_new_code_starts() -> None:
    stage = await half_written()
    began, code = dict(stage.row.planned), stage.row.code
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: len(stage.world.created_jobs) == 2)
    finishing = present(stage.pipeline.status.finishing)
    assert finishing.until == began
    assert stage.ready() in {"RunStarted", "Starting"}
    await upgraded(stage)
    assert doubled(stage) == set()
    assert mixed(stage) == ()
    assert stage.pipeline.status.finishing is None
    (finisher,) = [driver for driver in stage.world.drivers if driver.config.finish_until]
    assert (finisher.config.code, finisher.exit_code) == (code, ExitCode.STOPPED)
    assert finisher.commits[-1][2] == began
    assert stage.reported.count("RunFailed") == 1
    assert "MixedOutput" not in stage.reported


async def test_a_graceful_upgrade_starts_no_run_of_the_old_code() -> None:
    stage = await Stage.streaming(job=OLD)
    await stage.run(5)
    stage.world.change(KEY, job=NEW)
    await upgraded(stage)
    assert stage.world.created_jobs == ["orders-run-1", "orders-run-2"]


@pytest.mark.parametrize("change", [{"cluster": {"workers": 2}}, {"job": {**OLD, "memory": "2Gi"}}])
async def test_what_does_not_shape_the_output_starts_the_new_spec_at_once(change: dict[str, Any]) -> None:
    stage = await half_written()
    stage.world.change(KEY, **change)
    await stage.until(lambda: stage.is_running() and stage.row.epoch == 2)
    assert not any(driver.config.finish_until for driver in stage.world.drivers)
    assert mixed(stage) == ()


@pytest.mark.parametrize("code", [ExitCode.FAILED, ExitCode.BAD_SPEC, ExitCode.POISON_RECORD])
async def test_code_that_failed_itself_is_not_tried_again_and_the_range_is_recorded(code: ExitCode) -> None:
    stage = await half_written(code=code)
    began, before = dict(stage.row.planned), dict(stage.row.offsets)
    stage.world.change(KEY, job=NEW)
    await upgraded(stage)
    assert len(stage.world.created_jobs) == 2
    (entry,) = mixed(stage)
    assert {each.partition: (each.from_offset, each.until_offset) for each in entry.ranges} == {
        key: (before[key], end) for key, end in began.items()
    }
    assert (entry.before.split()[0], entry.after.split()[0], entry.epoch) == (OLD["image"], NEW["image"], 2)
    (message,) = [message for reason, message in stage.world.events if reason == "MixedOutput"]
    assert "PipelineRewind" in message
    assert all(f"{key}: {offset}" in message for key, offset in before.items())
    claims = [
        (earlier.code, later.code, earlier.planned)
        for earlier, later in itertools.pairwise(stage.world.table.history)
        if earlier.code and later.code and later.code != earlier.code
    ]
    assert [(a.split()[0], b.split()[0], dict(c)) for a, b, c in claims] == [(OLD["image"], NEW["image"], began)]


async def test_old_code_that_fails_while_it_finishes_lets_the_new_code_take_over() -> None:
    stage = await half_written()
    stage.world.change(KEY, job=NEW)

    def fails() -> bool:
        for driver in stage.world.drivers:
            if driver.config.finish_until:
                driver.fails_with = ExitCode.FAILED
        return runs_new_code(stage)

    await stage.until(fails, seconds=900)
    await stage.run(5)
    assert len(stage.world.created_jobs) == 3
    assert doubled(stage) <= recorded(stage)
    assert len(mixed(stage)) == 1


async def test_a_lost_run_of_the_old_code_is_tried_again() -> None:
    stage = await half_written()
    stage.world.change(KEY, job=NEW)
    for number in (2, 3):
        await stage.until(lambda n=number: stage.row.epoch == n and bool(stage.world.drivers[-1].config.finish_until))  # type: ignore[misc]
        newest(stage).end(stage.world.now, 137)
    await upgraded(stage)
    assert doubled(stage) == set()
    assert mixed(stage) == ()


async def test_old_code_that_dies_all_the_time_is_given_up() -> None:
    stage = await half_written()
    stage.world.change(KEY, job=NEW)

    def dies() -> bool:
        for driver in stage.world.drivers:
            if driver.config.finish_until and driver.alive and driver.row is not None:
                driver.end(stage.world.now, 137)
        return runs_new_code(stage)

    await stage.until(dies, seconds=1800)
    assert len(mixed(stage)) == 1
    assert "in a row failed with it" in mixed(stage)[0].why


async def test_an_outage_of_cassandra_is_waited_for() -> None:
    stage = await half_written()
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: len(stage.world.created_jobs) == 2)
    stage.world.cassandra_down = True
    await stage.run(120)
    stage.world.cassandra_down = False
    await upgraded(stage)
    assert mixed(stage) == ()


async def test_a_changed_config_map_cannot_be_finished_and_says_so() -> None:
    stage = await half_written(job=CODE_MAP)
    stage.world.references[(KEY.namespace, "ConfigMap/code")] = "2"
    await stage.until(lambda: stage.is_running() and stage.row.epoch == 2)
    (entry,) = mixed(stage)
    assert "ConfigMap/code has changed" in entry.why


@pytest.mark.parametrize("harm", ["missing", "changed"])
async def test_a_revision_that_cannot_be_used_lets_the_new_code_take_over(harm: str) -> None:
    """Injected: a user deletes or edits the ControllerRevision of the old code."""
    stage = await half_written()
    (name,) = stage.world.revisions
    assert revision_in(KEY.name, stage.row.code) == name.name
    found = stage.world.revisions.pop(name)
    if harm == "changed":
        evil = {**found["data"]["spec"], "job": {"image": "evil", "entrypoint": "a:b"}}
        stage.world.revisions[name] = {**found, "data": {**found["data"], "spec": evil}}
    stage.world.change(KEY, job=NEW)
    await upgraded(stage)
    assert len(stage.world.created_jobs) == 2
    assert ("missing" if harm == "missing" else "has been changed") in mixed(stage)[0].why


async def test_an_image_of_an_older_release_that_reads_beyond_its_end_is_stopped() -> None:
    stage = await half_written()
    stage.world.change(KEY, job=NEW)

    def is_old() -> bool:
        for driver in stage.world.drivers:
            driver.knows_finishing = False
        return runs_new_code(stage)

    await stage.until(is_old, seconds=900)
    assert len(stage.world.created_jobs) == 3
    assert doubled(stage) <= recorded(stage)


async def test_a_zombie_of_the_old_code_writes_within_what_it_began() -> None:
    """Injected: the old driver is frozen in its batch, is replaced, and wakes up after the new code runs."""
    stage = await Stage.streaming(job=OLD, restart={"stallTimeout": "15s"})
    await stage.run(5)
    zombie = newest(stage)
    zombie.batch_takes = timedelta(seconds=30)
    await stage.until(lambda: is_open(stage) and zombie.batch_since is not None)
    zombie.frozen = True
    stage.world.kubelet_kills = False
    stage.world.change(KEY, job=NEW)
    await upgraded(stage)
    committed = len(zombie.commits)
    zombie.frozen = False
    await stage.run(40)
    assert zombie.exit_code == ExitCode.FENCED
    assert len(zombie.commits) == committed
    assert doubled(stage) == set()
    assert mixed(stage) == ()


async def test_a_batch_that_was_cut_is_finished_to_where_it_first_ended() -> None:
    """Injected: the batch does not fit into memory, and the driver with half of it dies too."""
    stage = await half_written(restart={"stallTimeout": "5m"})
    whole, before = dict(stage.row.planned), dict(stage.row.offsets)

    def is_cut() -> bool:
        for driver in stage.world.drivers:
            driver.fits = (sum(whole.values()) - sum(before.values())) // 2
            driver.batch_takes = timedelta(seconds=20)
        return any(driver.config.first_batch_limit and driver.row for driver in stage.world.drivers)

    await stage.until(is_cut, seconds=600)
    assert sum(stage.row.planned.values()) < sum(whole.values())
    stage.world.kill_driver()
    stage.world.change(KEY, job=NEW)
    await upgraded(stage)
    assert doubled(stage) == set()
    assert any(driver.config.finish_until == whole for driver in stage.world.drivers)


async def test_turning_back_to_the_old_code_needs_no_extra_run() -> None:
    stage = await half_written()
    stage.world.change(KEY, job=NEW)
    await stage.until(lambda: stage.pipeline.status.finishing is not None)
    stage.world.change(KEY, job=OLD)
    await stage.running()
    await stage.run(60)
    assert stage.is_running()
    assert stage.pipeline.status.finishing is None
    assert mixed(stage) == ()


@pytest.mark.parametrize("exit_code", [137, ExitCode.FAILED], ids=["died", "failed"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("side", SIDES)
async def test_a_fault_at_each_write_of_the_operator(side: str, fault: type[BaseException], exit_code: int) -> None:
    calm = await half_written(code=exit_code)
    first = len(calm.gate.writes)
    calm.world.change(KEY, job=NEW)
    await upgraded(calm)
    for number in range(first, len(calm.gate.writes)):
        stage = await half_written(code=exit_code)
        setattr(stage.gate, side, failing_at(number, fault))
        stage.world.change(KEY, job=NEW)
        await upgraded(stage)
        assert len(mixed(stage)) == (1 if exit_code == ExitCode.FAILED else 0)
        assert exit_code == ExitCode.FAILED or doubled(stage) == set()


async def test_a_rewind_of_one_partition_leaves_the_open_batch_of_another_to_its_code() -> None:
    """Found in seed 134 of the simulation: the new code repeated it, and no record said so."""
    stage = await half_written(RewoundStage())
    began, before = stage.row.planned["orders/1"], stage.row.offsets["orders/1"]
    assert before < began
    stage.world.change(KEY, job=NEW)
    to = {"orders/0": stage.row.offsets["orders/0"] - 50}
    stage.world.ask_for_rewind("back", {"offsets": to}, pipeline=KEY)
    await stage.until(lambda: runs_new_code(stage), seconds=900.0)
    await stage.run(5)
    assert [offset for partition, offset in doubled(stage) if partition == "orders/1"] == []
    (finisher,) = [driver for driver in stage.world.drivers if driver.config.finish_until]
    assert finisher.config.finish_until == {"orders/1": began}
    assert finisher.config.code.startswith(OLD["image"])
