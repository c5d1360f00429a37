"""What is looked at for a rewind."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, cast

import pytest

from fakes.manifests import KEY, body
from fakes.ports import ports_of
from fakes.world import World
from fencepost_operator.api import (
    ReconcileConfig,
    ResolvedTarget,
    Rewind,
    RewindSpec,
    RewindStatus,
    RewindStep,
    RewindTarget,
    StepState,
    StepStatus,
    read_pipeline,
)
from fencepost_operator.observation import Known
from fencepost_operator.ports import FenceStore
from fencepost_operator.runtime.rewind_observer import RewindObserver

AT: Final = datetime(2026, 1, 2, tzinfo=UTC)
SET: Final = StepStatus(
    name=RewindStep.SET_OFFSETS.value, state=StepState.DONE, message="", started_at=AT, finished_at=AT
)
OF_STATE: Final = ResolvedTarget(snapshot="id-1")


@dataclass(slots=True)
class Finder:
    """Notes which snapshots are asked for."""

    wanted: list[str] = field(default_factory=list)

    async def find_snapshot(self, _connection: object, _pipeline: str, wanted: str) -> None:
        self.wanted.append(wanted)


async def see(answer: Awaitable[Any]) -> Known[Any]:
    return Known(await answer)


@pytest.mark.parametrize(
    ("target", "steps", "wanted"),
    [(None, (), ["good"]), (OF_STATE, (), ["id-1"]), (OF_STATE, (SET,), []), (ResolvedTarget(), (), [])],
)
async def test_a_snapshot_is_read_until_its_state_is_set(
    target: ResolvedTarget | None, steps: tuple[StepStatus, ...], wanted: list[str]
) -> None:
    """By its id, once that is recorded: a newer snapshot may have the same name."""
    rewind = Rewind(
        key=KEY,
        pipeline=KEY.name,
        uid="u",
        resource_version="1",
        generation=1,
        created_at=AT,
        spec=RewindSpec(pipeline=KEY.name, to=RewindTarget(snapshot="good")),
        status=RewindStatus(target=target, steps=steps),
    )
    finder = Finder()
    ports = replace(ports_of(World()), fences=cast("FenceStore", finder))
    observer = RewindObserver(ports, ReconcileConfig(cluster_uid="c"), see)
    await observer.facts(read_pipeline(body()), Known((rewind,)))
    assert finder.wanted == wanted
