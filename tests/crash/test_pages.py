"""The operator is killed at each of its writes and at each page that it sends, before the effect and after it.

Whatever the moment, each incident is sent, and so is its end; what is sent twice has the same key. A condition that
flaps is sent once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fakes.gate import SIDES, Gate, failing_at
from fakes.manifests import KEY, body
from fakes.paging import Heard, Paging
from fakes.stage import POLICY, Died, Stage
from fakes.world import World
from fencepost.contract import ExitCode
from fencepost_operator.api import SILENCE_ANNOTATION, Reason
from fencepost_operator.errors import Unreachable
from present import present

STALLED = "fencepost/cluster-1/shop/orders/BadSpec"


QUICK = replace(POLICY, page_resolve_after=10.0)


def paged() -> Stage:
    world, gate = World(), Gate()
    stage = Stage(world, gate, config=QUICK)
    stage.paging = Paging(world, gate)
    world.apply(body())
    return stage


def heard(stage: Stage) -> list[Heard]:
    return present(stage.paging).heard


def knows(stage: Stage, key: str, *, over: bool = False) -> bool:
    return any(each.key.startswith(f"{key}/") and each.is_over is over for each in heard(stage))


def recorded(stage: Stage) -> bool:
    """Whether nothing is left to send."""
    pages = stage.pipeline.status.pages
    return all(page.is_reported_to("operator/apprise/1") for page in pages)


async def stall_and_recover(stage: Stage) -> None:
    await stage.running()
    stage.world.kill_driver(code=ExitCode.BAD_SPEC)
    await stage.until(lambda: stage.ready() == Reason.BAD_SPEC)
    await stage.until(lambda: knows(stage, STALLED) and recorded(stage))
    stage.world.change(KEY, job={"image": "registry.example/job:2", "entrypoint": "orders.job:transform"})
    await stage.until(lambda: stage.is_running() and not stage.pipeline.status.pages)
    assert len({each.key for each in heard(stage)}) == 1
    assert [each.is_over for each in heard(stage)] == sorted(each.is_over for each in heard(stage))


async def stall_and_delete(stage: Stage) -> None:
    await stage.running()
    stage.world.kill_driver(code=ExitCode.BAD_SPEC)
    await stage.until(lambda: knows(stage, STALLED))
    await stage.deleted()
    assert knows(stage, STALLED, over=True), "sent before the object was gone"


async def flap(stage: Stage) -> None:
    """Each new release of the image lacks the entrypoint, and each rollback of it by hand streams for a while."""
    await stage.running()
    for release in (2, 3):
        stage.world.kill_driver(code=ExitCode.BAD_SPEC)
        await stage.until(lambda: stage.ready() == Reason.BAD_SPEC)
        await stage.until(lambda: knows(stage, STALLED) and recorded(stage))
        image = {"image": f"registry.example/job:{release}", "entrypoint": "orders.job:transform"}
        stage.world.change(KEY, job=image)
        await stage.running()
        assert not knows(stage, STALLED, over=True), "it may come back"
    await stage.until(lambda: not stage.pipeline.status.pages)


SCENES = {"recovery": stall_and_recover, "deletion": stall_and_delete, "flapping": flap}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("scene", SCENES)
async def test_a_kill_at_each_write_and_each_page(scene: str, side: str) -> None:
    calm = paged()
    await SCENES[scene](calm)
    assert [each.is_over for each in heard(calm)] == [False, True], "without a fault, each once"
    assert calm.gate.writes.count("page") == 2
    first = calm.gate.writes.index("page") if scene == "flapping" else 0  # until then it is as a recovery
    for number in range(first, len(calm.gate.writes)):
        stage = paged()
        setattr(stage.gate, side, failing_at(number, Died))
        await SCENES[scene](stage)
        assert stage.deaths == 1
        assert knows(stage, STALLED)
        assert knows(stage, STALLED, over=True)
        assert len(heard(stage)) <= 3, "at most what was sent just before the kill is sent twice"


@pytest.mark.parametrize("side", SIDES)
async def test_an_api_server_without_an_answer_costs_no_page(side: str) -> None:
    calm = paged()
    await stall_and_recover(calm)
    for number, name in enumerate(calm.gate.writes):
        if name != "page":
            stage = paged()
            setattr(stage.gate, side, failing_at(number, Unreachable))
            await stall_and_recover(stage)


async def stalled_while_the_receiver_is_down() -> tuple[Stage, Paging]:
    stage = paged()
    assert stage.paging is not None
    await stage.running()
    stage.paging.is_down = True
    stage.world.kill_driver(code=ExitCode.BAD_SPEC)
    await stage.until(lambda: stage.ready() == Reason.BAD_SPEC)
    return stage, stage.paging


async def test_a_receiver_that_is_down_hears_it_later_from_another_operator() -> None:
    stage, paging = await stalled_while_the_receiver_is_down()
    await stage.run(60)
    stage._operator = None  # killed with what it kept in memory
    paging.is_down = False
    await stage.until(lambda: knows(stage, STALLED))
    (page,) = stage.pipeline.status.pages
    assert page.opened_at <= stage.world.now - timedelta(seconds=60)


async def test_a_pipeline_that_recovered_meanwhile_is_reported_nevertheless() -> None:
    stage, paging = await stalled_while_the_receiver_is_down()
    stage.world.change(KEY, job={"image": "registry.example/job:2", "entrypoint": "orders.job:transform"})
    await stage.running()
    paging.is_down = False
    await stage.until(lambda: knows(stage, STALLED, over=True))


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_secret_that_is_recreated_neither_repeats_a_page_nor_loses_its_end(*, restarted: bool) -> None:
    stage = paged()
    assert stage.paging is not None
    await stage.running()
    stage.world.kill_driver(code=ExitCode.BAD_SPEC)
    await stage.until(lambda: knows(stage, STALLED) and recorded(stage))
    stage.paging.is_gone = True
    if restarted:
        stage._operator = None
    await stage.run(30)
    stage.world.change(KEY, job={"image": "registry.example/job:2", "entrypoint": "orders.job:transform"})
    await stage.running()
    await stage.run(60)
    stage.paging.is_gone = False
    await stage.until(lambda: not stage.pipeline.status.pages)
    assert [each.is_over for each in heard(stage)] == [False, True]


async def test_an_incident_that_begins_and_ends_without_the_secret_is_sent_when_it_is_back() -> None:
    stage = paged()
    assert stage.paging is not None
    await stage.running()
    stage.paging.is_gone = True
    await stage.run(30)
    stage.world.kill_driver(code=ExitCode.BAD_SPEC)
    await stage.until(lambda: stage.ready() == Reason.BAD_SPEC)
    stage.world.change(KEY, job={"image": "registry.example/job:2", "entrypoint": "orders.job:transform"})
    await stage.running()
    await stage.run(60)
    stage.paging.is_gone = False
    await stage.until(lambda: knows(stage, STALLED, over=True))


async def test_an_old_end_that_arrives_late_does_not_end_a_new_incident() -> None:
    """The receiver is down while the first incident ends and the second begins, and gets the end last."""
    stage, paging = await stalled_while_the_receiver_is_down()
    paging.is_down = False
    await stage.until(lambda: knows(stage, STALLED) and recorded(stage))
    paging.is_down = True
    stage.world.change(KEY, job={"image": "registry.example/job:2", "entrypoint": "orders.job:transform"})
    await stage.running()
    await stage.run(60)
    stage.world.kill_driver(code=ExitCode.BAD_SPEC)
    await stage.until(lambda: stage.ready() == Reason.BAD_SPEC)
    paging.is_down = False
    await stage.until(lambda: recorded(stage))
    old, *_ = (each.key for each in heard(stage))
    assert sorted({each.is_over for each in heard(stage) if each.key == old}) == [False, True]
    assert [each.is_over for each in heard(stage) if each.key != old] == [False]


async def test_a_silence_ends_and_what_is_still_open_is_sent() -> None:
    stage = paged()
    await stage.running()
    until = stage.world.now + timedelta(seconds=90)
    stage.annotate(SILENCE_ANNOTATION, until.isoformat())
    stage.world.kill_driver(code=ExitCode.BAD_SPEC)
    await stage.until(lambda: stage.ready() == Reason.BAD_SPEC)
    await stage.run(60)
    assert not heard(stage)
    await stage.until(lambda: knows(stage, STALLED))
    assert stage.world.now >= until
