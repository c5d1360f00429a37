"""An operator that cannot see while a driver hangs: the pipeline is not Ready on old facts, and a page is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final, TypeVar

import pytest

from fakes.gate import Gate
from fakes.manifests import body
from fakes.paging import Paging
from fakes.stage import POLICY, ROW, Stage
from fakes.world import World
from fencepost_operator.api import Condition, Reason
from fencepost_operator.errors import Busy, Denied, Unreachable
from present import present

T = TypeVar("T")

NOT_READY_FOR: Final = timedelta(seconds=60)
SIDES: Final = {
    "Kafka silent": (frozenset({"source", "unread"}), Unreachable("no answer", remedy="x"), Reason.KAFKA_UNREACHABLE),
    "Kafka refuses": (frozenset({"source"}), Denied("refused", remedy="x"), Reason.KAFKA_CREDENTIALS_REJECTED),
    "Cassandra silent": (frozenset({"fence"}), Unreachable("no answer", remedy="x"), Reason.CASSANDRA_UNREACHABLE),
    "Cassandra refuses": (frozenset({"fence"}), Denied("refused", remedy="x"), Reason.CASSANDRA_CREDENTIALS_REJECTED),
    "Kafka's turn does not come": (frozenset({"source"}), Busy("no turn", remedy="x"), Reason.OPERATOR_BUSY),
    "Cassandra's turn does not come": (frozenset({"fence"}), Busy("no turn", remedy="x"), Reason.OPERATOR_BUSY),
    "the API server's turn does not come": (frozenset({"runs"}), Busy("no turn", remedy="x"), Reason.OPERATOR_BUSY),
}


class Cut(Gate):
    """Refuses only the operator the facts in `unseen`."""

    def __init__(self) -> None:
        super().__init__()
        self.unseen: frozenset[str] = frozenset()
        self.error: Exception = Unreachable("no answer", remedy="x")

    async def read(self, name: str, fact: Callable[[], T]) -> T:
        if name in self.unseen:
            raise self.error
        return await super().read(name, fact)


async def running() -> tuple[Stage, Cut]:
    gate = Cut()
    stage = Stage(World(), gate, config=replace(POLICY, page_not_ready_after=NOT_READY_FOR.total_seconds()))
    stage.paging = Paging(stage.world, gate)
    stage.world.apply(body())
    await stage.running()
    await stage.run(10)
    return stage, gate


def ready(stage: Stage) -> Condition:
    return present(stage.condition("Ready"))


@pytest.mark.parametrize("side", SIDES)
async def test_ready_is_not_true_on_facts_that_are_too_old_and_a_page_is_sent(side: str) -> None:
    stage, gate = await running()
    gate.unseen, gate.error, reason = SIDES[side]
    for driver in stage.world.drivers:
        driver.frozen = True
    began = stage.world.now
    await stage.run(NOT_READY_FOR.total_seconds() - 10)
    assert (ready(stage).status, ready(stage).reason) == ("True", reason)
    await stage.run(20)
    assert (ready(stage).status, ready(stage).reason) == ("False", reason)
    assert "has not been observed since" in ready(stage).message
    assert [page.reason for page in stage.pipeline.status.pages] == [Reason.UNOBSERVED]
    assert present(stage.paging).heard[0].at - began < NOT_READY_FOR + timedelta(seconds=30)


async def test_blindness_fences_no_run_however_long_it_lasts() -> None:
    stage, gate = await running()
    gate.unseen, gate.error, _ = SIDES["Kafka silent"]
    version = stage.row.version
    await stage.run(3 * NOT_READY_FOR.total_seconds())
    assert stage.epoch == 1
    assert stage.row.version > version
    gate.unseen = frozenset()
    await stage.run(10)
    assert (ready(stage).status, stage.pipeline.status.unobserved_since) == ("True", None)


async def test_an_outage_that_ends_leaves_nothing_for_the_next_one() -> None:
    stage, gate = await running()
    for _ in range(3):
        gate.unseen, gate.error, _ = SIDES["Kafka silent"]
        await stage.run(NOT_READY_FOR.total_seconds() / 2)
        gate.unseen = frozenset()
        await stage.run(10)
    assert ready(stage).status == "True"
    assert not stage.pipeline.status.pages


async def driver_only() -> tuple[Stage, Cut]:
    """Return a run that has read all there is, from a Kafka that only it may connect to."""
    stage, gate = await running()
    stage.world.driver_only, stage.world.rate = True, 0.0
    await stage.run(60)
    assert stage.ready() == Reason.STREAMING
    return stage, gate


async def test_a_driver_that_hangs_on_an_idle_topic_is_replaced_where_only_it_may_ask_kafka() -> None:
    stage, _ = await driver_only()
    stage.world.drivers[-1].frozen = True
    await stage.run(90)
    failure = present(stage.pipeline.status.failure)
    assert (failure.reason, "sign of life" in failure.message) == (Reason.UNRESPONSIVE, True)
    await stage.running()
    assert stage.epoch == 2


async def test_an_idle_driver_that_gives_signs_of_life_is_not_replaced() -> None:
    stage, _ = await driver_only()
    version = stage.row.version
    await stage.run(600)
    row = stage.row
    assert (row.epoch, row.version, stage.ready()) == (1, version, Reason.STREAMING)


async def test_signs_of_another_epoch_prove_nothing() -> None:
    stage, _ = await driver_only()
    stage.world.drivers[-1].frozen = True
    for _ in range(9):
        await stage.run(10)
        stage.world.table.report_progress(ROW, epoch=0, version=1, done=0)
    assert stage.epoch == 2


@pytest.mark.parametrize("error", [Denied("no SELECT", remedy="x"), Unreachable("no answer", remedy="x")])
async def test_a_driver_whose_signs_cannot_be_read_is_not_replaced(error: Exception) -> None:
    stage, gate = await driver_only()
    gate.unseen, gate.error = frozenset({"progress"}), error
    await stage.run(NOT_READY_FOR.total_seconds() - 10)
    assert ready(stage).status == "True"
    await stage.run(300)
    assert (ready(stage).status, ready(stage).reason) == ("False", Reason.PROGRESS_UNREADABLE)
    assert [page.reason for page in stage.pipeline.status.pages] == [Reason.UNOBSERVED]
    assert stage.epoch == 1
