"""Fault: the CRD is older than the operator, so that the API server drops or refuses fields of each status.

The pipeline goes on, incidents end, and nothing is written at each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fakes import objects_ports
from fakes.gate import Gate
from fakes.manifests import KEY, body
from fakes.paging import Paging
from fakes.stage import POLICY, Stage
from fakes.world import World
from fencepost.contract import ExitCode
from fencepost_operator.api import Reason, write_rewind_status, write_status
from fencepost_operator.runtime.pruned_status import AGAIN

QUICK = replace(POLICY, page_resolve_after=10.0)


def without(part: Any, dropped: frozenset[str]) -> Any:
    """Return JSON without the fields of these names, wherever they are."""
    if isinstance(part, dict):
        return {name: without(each, dropped) for name, each in part.items() if name not in dropped}
    return [without(each, dropped) for each in part] if isinstance(part, list) else part


@contextmanager
def older_crd(*fields: str) -> Iterator[None]:
    """Have the API server keep none of these fields."""
    with pytest.MonkeyPatch.context() as patch:
        for write in (write_status, write_rewind_status):
            patch.setattr(objects_ports, write.__name__, partial(written, write, frozenset(fields)))
        yield


def written(write: Callable[[Any], Any], dropped: frozenset[str], status: Any) -> Any:
    return without(write(status), dropped)


def stage_of(**spec: Any) -> Stage:
    world, gate = World(), Gate()
    stage = Stage(world, gate, config=QUICK)
    stage.paging = Paging(world, gate)
    world.apply(body(**spec))
    return stage


def said(stage: Stage) -> list[str]:
    return [message for reason, message in stage.world.events if reason == Reason.CRD_OUTDATED]


def writes(stage: Stage) -> int:
    return stage.gate.writes.count("write_status")


async def stalled(stage: Stage) -> None:
    await stage.running()
    stage.world.kill_driver(code=ExitCode.BAD_SPEC)
    await stage.until(lambda: stage.ready() == Reason.BAD_SPEC)


async def passes_without_a_write(stage: Stage) -> None:
    """Nothing is written from some moment on, but for what is tried once more."""
    stage.world.rate = 0.0
    await stage.run(60)
    before, passes = writes(stage), stage.passes
    await stage.run(2 * AGAIN.total_seconds())
    assert writes(stage) - before <= 3
    assert stage.passes - passes > 20


async def test_an_incident_ends_and_nothing_is_written_at_each_pass() -> None:
    with older_crd("quietSince", "masterUid"):
        stage = stage_of()
        await stalled(stage)
        stage.world.change(KEY, job={"image": "registry.example/job:2", "entrypoint": "orders.job:transform"})
        await stage.until(lambda: stage.is_running() and not stage.pipeline.status.pages)
    assert stage.paging is not None
    assert [each.is_over for each in stage.paging.heard] == [False, True]


@pytest.mark.parametrize(
    "fields", [("notReadySince", "restartedAt"), ("pages",), ("masterUid", "restarts"), ("observedSince",)]
)
async def test_what_is_not_kept_is_not_written_at_each_pass(fields: tuple[str, ...]) -> None:
    with older_crd(*fields):
        stage = stage_of()
        await stalled(stage)
        await passes_without_a_write(stage)


async def test_it_is_told_once_by_an_event_with_the_fields_and_the_command(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with older_crd("notReadySince", "pages"):
        stage = stage_of()
        await stalled(stage)
        await stage.run(120)
    told = said(stage)
    assert len(told) == len(set(told))
    for field in ("status.notReadySince", "status.pages"):
        assert sum(field in one for one in told) == 1
    assert all("kubectl apply --server-side" in one for one in told)
    assert sum(record.__dict__.get("reason") == Reason.PAGE_FAILED for record in caplog.records) == 1


async def test_a_field_with_a_default_is_named_as_well() -> None:
    with older_crd("state"):
        stage = stage_of()
        await stage.until(lambda: stage.ready() == Reason.STREAMING)
        await passes_without_a_write(stage)
    assert "does not keep status.state." in said(stage)[0]


async def test_with_the_new_crd_what_was_not_kept_is_written() -> None:
    with older_crd("pages"):
        stage = stage_of()
        await stalled(stage)
        await stage.run(60)
        assert stage.paging is not None
        assert not stage.paging.heard
    heard, opened = stage.paging.heard, stage.world.now
    await stage.until(lambda: bool(stage.pipeline.status.pages), seconds=2 * AGAIN.total_seconds())
    (page,) = stage.pipeline.status.pages
    assert page.opened_at < opened, "it is the incident that the operator remembers"
    await stage.until(lambda: bool(heard))


async def test_another_operator_goes_by_what_is_there() -> None:
    with older_crd("quietSince"):
        stage = stage_of()
        await stalled(stage)
        stage.world.change(KEY, job={"image": "registry.example/job:2", "entrypoint": "orders.job:transform"})
        await stage.running()
        stage._operator = None
        await stage.until(lambda: not stage.pipeline.status.pages)


async def test_what_somebody_else_wrote_takes_precedence() -> None:
    with older_crd("notReadySince"):
        stage = stage_of()
        await stalled(stage)
        await stage.run(30)
        stage.world.objects[KEY]["status"]["message"] = "another's"
        await stage.until(lambda: stage.pipeline.status.message != "another's", seconds=60)


async def test_a_rewind_is_not_written_at_each_pass() -> None:
    with older_crd("recordsToRepeat", "backup"):
        stage = stage_of(suspend=True)
        stage.world.ask_for_rewind("back", {"snapshot": "none"}, pipeline=KEY)
        await stage.run(60)
        before = stage.gate.writes.count("write_rewind")
        await stage.run(60)
        assert stage.gate.writes.count("write_rewind") == before


async def test_a_whole_crd_costs_nothing() -> None:
    stage = stage_of()
    await stalled(stage)
    stage.world.rate = 0.0
    await stage.run(60)
    before = writes(stage)
    await stage.run(2 * AGAIN.total_seconds())
    assert writes(stage) == before
