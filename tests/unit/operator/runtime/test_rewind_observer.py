"""What is looked at for a rewind."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, cast
from uuid import uuid1

import pytest

from fakes.manifests import KEY, body
from fakes.ports import ports_of
from fakes.world import World
from fencepost.fence.snapshots import Snapshot
from fencepost.state.state_check import StateCheck
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
from fencepost_operator.runtime.passes.rewind_observer import RewindObserver

AT: Final = datetime(2026, 1, 2, tzinfo=UTC)
SET: Final = StepStatus(
    name=RewindStep.SET_OFFSETS.value, state=StepState.DONE, message="", started_at=AT, finished_at=AT
)
KEPT: Final = Snapshot(id=uuid1(), trigger="Schedule", checkpoint=b"state")
OF_STATE: Final = ResolvedTarget(snapshot="id-1")


@dataclass(slots=True)
class Finder:
    """Notes which snapshots are asked for, and from which file on they are checked."""

    found: Snapshot | None = None
    wanted: list[str] = field(default_factory=list)
    checked: list[int] = field(default_factory=list)

    async def find_snapshot(self, _connection: object, _pipeline: str, wanted: str) -> Snapshot | None:
        self.wanted.append(wanted)
        return self.found

    async def check_state(self, _connection: object, _pipeline: str, _checkpoint: bytes, *, start: int) -> StateCheck:
        self.checked.append(start)
        return StateCheck()


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
    finder = Finder()
    await look(finder, RewindStatus(target=target, steps=steps))
    assert finder.wanted == wanted


@pytest.mark.parametrize(
    ("found", "status", "checked"),
    [
        (KEPT, RewindStatus(), [0]),
        (KEPT, RewindStatus(checked_snapshot=str(KEPT.id), checked_files=7), [7]),
        (KEPT, RewindStatus(checked_snapshot="another", checked_files=7), [0]),
        (KEPT, RewindStatus(steps=(replace(SET, name="Stop"),)), []),
        (replace(KEPT, checkpoint=None), RewindStatus(), []),
        (None, RewindStatus(), []),
    ],
)
async def test_the_files_of_a_snapshot_are_checked_until_the_pipeline_is_stopped(
    found: Snapshot | None, status: RewindStatus, checked: list[int]
) -> None:
    finder = Finder(found)
    await look(finder, status)
    assert finder.checked == checked


async def look(finder: Finder, status: RewindStatus) -> None:
    rewind = Rewind(
        key=KEY,
        pipeline=KEY.name,
        uid="u",
        resource_version="1",
        generation=1,
        created_at=AT,
        spec=RewindSpec(pipeline=KEY.name, to=RewindTarget(snapshot="good")),
        status=status,
    )
    ports = replace(ports_of(World()), fences=cast("FenceStore", finder))
    observer = RewindObserver(ports, ReconcileConfig(cluster_uid="c"), see)
    await observer.facts(read_pipeline(body()), Known((rewind,)))
