"""Specs are kept: an invalid one neither ends the run of the last valid one, nor keeps that from being restarted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fakes.manifests import KEY, body
from fakes.stage import Stage
from fencepost_operator.adapters.kubernetes.revisions import KEPT
from fencepost_operator.api import State
from present import present


def streams(stage: Stage) -> bool:
    return any(c.type == "Streaming" and c.status == "True" for c in stage.pipeline.status.conditions)


def stored(stage: Stage) -> dict[str, Any]:
    """The specs that are kept, by the names of their revisions."""
    return {key.name: found["data"]["spec"] for key, found in stage.world.revisions.items()}


def in_effect(stage: Stage) -> str:
    """The revision that the status names."""
    return present(stage.pipeline.status.run).revision


async def restarted_in(stage: Stage, number: int) -> None:
    stage.world.kill_driver()
    await stage.until(lambda: stage.epoch == number and streams(stage))


async def test_the_spec_is_kept_before_its_run_starts_and_once_for_all_equal_ones() -> None:
    stage = Stage()
    stage.world.apply(body())
    await stage.until(lambda: bool(stage.world.created_jobs))
    writes = stage.gate.writes
    assert writes.index("store_revision") < writes.index("start")
    assert stored(stage) == {in_effect(stage): stage.world.objects[KEY]["spec"]}
    await stage.running()
    await restarted_in(stage, 2)
    assert len(stored(stage)) == 1


async def test_an_invalid_spec_keeps_the_last_valid_one_streaming_and_restartable() -> None:
    stage = await Stage.streaming()
    valid = in_effect(stage)
    stage.world.change(KEY, batchInterval="soon", job={"image": "new", "entrypoint": "a:b"})
    await stage.until(lambda: stage.ready() == "InvalidSpec")
    for number in (2, 3):
        await restarted_in(stage, number)
        driver = stage.world.newest_pod().driver
        await stage.until(lambda: len(driver.commits) > 2)  # noqa: B023
        conditions = {c.type: (c.status, c.reason) for c in stage.pipeline.status.conditions}
        assert conditions["Ready"] == ("False", "InvalidSpec")
        assert conditions["Stalled"] == ("True", "InvalidSpec")
        assert "spec.batchInterval" in stage.pipeline.status.message
        assert valid in stage.pipeline.status.message
        assert stage.pipeline.status.state is State.STALLED
    assert stage.world.releases[KEY].values["image"] == "registry.example/job:1"
    stage.world.change(KEY, batchInterval="1s")
    await stage.running()
    assert stage.world.releases[KEY].values["image"] == "new"
    assert in_effect(stage) != valid


async def test_an_invalid_spec_restarts_with_the_workers_that_were_asked_for_last() -> None:
    stage = await Stage.streaming()
    first = in_effect(stage)
    stage.world.change(KEY, cluster={"workers": 3})
    await stage.until(lambda: in_effect(stage) != first)
    assert stage.epoch == 1
    stage.world.change(KEY, cluster={"workers": "many"})
    await restarted_in(stage, 2)
    await stage.run(30)
    assert stage.world.releases[KEY].values["workers"] == 3


async def test_a_new_operator_restarts_on_the_last_valid_spec() -> None:
    stage = await Stage.streaming()
    stage.world.change(KEY, batchInterval="soon")
    stage._operator = None
    await restarted_in(stage, 2)
    assert stage.ready() == "InvalidSpec"


@pytest.mark.parametrize("harm", ["missing", "changed", "another's", "no spec", "deep"])
async def test_a_revision_that_is_missing_or_changed_starts_nothing(harm: str) -> None:
    """Injected: a user deletes the ControllerRevision, or writes another one in its place."""
    stage = await Stage.streaming()
    place, found = replace(KEY, name=in_effect(stage)), stage.world.revisions.pop(replace(KEY, name=in_effect(stage)))
    deep: Any = "x"
    for _ in range(100_000 if harm == "deep" else 0):
        deep = [deep]
    evil = {**found["data"]["spec"], "job": {"image": "evil", "entrypoint": "a:b"}}
    spoiled = {
        "changed": {**found, "data": {**found["data"], "spec": evil}},
        "another's": {**found, "metadata": {**found["metadata"], "ownerReferences": [{"uid": "uid-9"}]}},
        "no spec": {**found, "data": ["spec"]},
        "deep": {**found, "data": {"spec": {"job": deep}}},
    }
    if harm != "missing":
        stage.world.revisions[place] = spoiled[harm]
    stage.world.change(KEY, batchInterval="soon")
    stage.world.kill_driver()
    await stage.run(60)
    assert stage.ready() == "InvalidSpec"
    assert "the last valid spec cannot be used" in stage.pipeline.status.message
    assert stage.world.created_jobs == ["orders-run-1"]
    stage.world.change(KEY, batchInterval="1s")
    if harm == "another's":
        await stage.run(30)
        assert stage.ready() in {"StartFailed", "Streaming"}
        return
    await stage.running()


async def test_the_newest_revisions_are_kept_and_the_one_in_effect() -> None:
    stage = await Stage.streaming()
    first = in_effect(stage)
    for number in range(2, KEPT + 5):
        stage.world.change(KEY, cluster={"workers": number})
        before = in_effect(stage)
        await stage.until(lambda: in_effect(stage) != before)  # noqa: B023
    assert len(stored(stage)) == KEPT + 1
    assert first in stored(stage), "the fence row names it"
    assert stored(stage)[in_effect(stage)]["cluster"]["workers"] == KEPT + 4
    await stage.deleted()
    assert not stage.world.revisions


async def test_an_outage_of_cassandra_prunes_no_revision_that_its_row_may_name() -> None:
    stage = await Stage.streaming()
    first = in_effect(stage)
    stage.world.cassandra_down = True
    for number in range(2, KEPT + 5):
        stage.world.change(KEY, cluster={"workers": number})
        await stage.run(5)
    assert first in stored(stage), "the fence row names it"
    stage.world.cassandra_down = False
    await stage.until(lambda: in_effect(stage) != first)
    assert stored(stage)[in_effect(stage)]["cluster"]["workers"] == KEPT + 4
    assert first in stored(stage)
