"""Signs of life: when they are given, and what counts as the silence of another cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fakes.manifests import KEY, body
from fakes.ports import ports_of
from fakes.stage import POLICY
from fakes.world import World
from fencepost.fence import FenceRow, heartbeat_key
from fencepost_operator.api import FAIL_OVER_ANNOTATION, PAUSED_ANNOTATION, read_pipeline
from fencepost_operator.observation import Known, LifeSigns, NotAsked, Observation, Unknown, UnknownReason
from fencepost_operator.runtime.passes.signs_of_life import SignsOfLife

STORE: dict[str, Any] = {"cassandra": {"contactPoints": ["cassandra"], "consistency": "QUORUM"}}
READY = {
    "type": "Ready", "status": "True", "message": "as asked", "lastTransitionTime": "2026-01-01T00:00:00Z",
    "observedGeneration": 1,
}  # fmt: skip
ROW_KEY = "default/shop/orders"
UNKNOWN = Unknown(reason=UnknownReason.UNREACHABLE, message="no answer", remedy="look")


def row(owner: str, **changes: Any) -> FenceRow:
    return replace(FenceRow(pipeline=ROW_KEY, owner=owner, epoch=2, version=5, driver="pod-1"), **changes)


@dataclass
class Side:
    """One cluster's operator, in a world whose fence the other one shares."""

    uid: str
    world: World
    reason: str = "FailoverStandby"
    signs: SignsOfLife = field(init=False)

    def __post_init__(self) -> None:
        self.signs = SignsOfLife(ports=ports_of(self.world), config=replace(POLICY, cluster_uid=self.uid))

    async def passes(
        self, seen: FenceRow | Unknown | None, annotations: dict[str, str] | None = None, **spec: Any
    ) -> Any:
        made = body(**{"failover": {}, "checkpoint": STORE, **spec})
        made["metadata"]["annotations"] = annotations or {}
        made["status"] = {"conditions": [{**READY, "reason": self.reason}]}
        fence = seen if isinstance(seen, Unknown) else Known(seen)
        observation = Observation(
            now=self.world.now,
            references=UNKNOWN,
            release=Known(None),
            cluster=Known(None),
            runs=Known(()),
            fence=fence,
            source=NotAsked(),
        )
        found = await self.signs.exchange(read_pipeline(made), observation)
        return found.other_cluster


@pytest.fixture
def world() -> World:
    return World()


OWNER, HERE = row("east/1"), row("west/2")


async def test_silence_is_measured_from_the_last_sign(world: World) -> None:
    east, west = Side("east", world), Side("west", world)
    await east.passes(OWNER)
    assert await west.passes(OWNER) == Known(LifeSigns(cluster="east", silent_for=0.0, has_moved=False))
    world.advance(10)
    assert (await west.passes(OWNER)).value.silent_for == 10.0
    await east.passes(OWNER)
    assert await west.passes(OWNER) == Known(LifeSigns(cluster="east", silent_for=0.0, has_moved=True))


async def test_commits_and_reports_of_the_driver_are_signs_too(world: World) -> None:
    east, west = Side("east", world), Side("west", world)
    await east.passes(OWNER)
    await west.passes(OWNER)
    world.advance(10)
    assert (await west.passes(replace(OWNER, version=6))).value.silent_for == 0.0
    for key in (ROW_KEY, heartbeat_key(ROW_KEY)):
        world.advance(10)
        world.table.report_progress(key, epoch=2, version=6, done=7)
        assert (await west.passes(replace(OWNER, version=6))).value == LifeSigns(
            cluster="east", silent_for=0.0, has_moved=True
        )


@pytest.mark.parametrize("unreadable", [UNKNOWN, None])
async def test_time_in_which_the_fence_does_not_answer_is_no_silence(world: World, unreadable: Any) -> None:
    east, west = Side("east", world), Side("west", world)
    await east.passes(OWNER)
    await west.passes(OWNER)
    world.advance(60)
    assert await west.passes(unreadable) == NotAsked()
    assert (await west.passes(OWNER)).value.silent_for == 0.0


async def test_an_owner_that_never_gave_a_sign_is_not_known(world: World) -> None:
    west = Side("west", world)
    for _ in range(3):
        assert await west.passes(OWNER) == Known(None)
        world.advance(60)


async def test_signs_are_given_six_times_in_the_least_timeout(world: World) -> None:
    east = Side("east", world)
    given = set()
    for _ in range(30):
        await east.passes(OWNER)
        given.add(world.table.progress[f"{ROW_KEY}#cluster-east"].done)
        world.advance(1)
    assert 6 <= len(given) <= 7


@pytest.mark.parametrize(
    ("reason", "owner", "note"),
    [
        ("FailoverStandby", OWNER, ""),
        ("Suspended", OWNER, "Suspended"),
        ("SecretNotFound", OWNER, "SecretNotFound"),
        ("FenceOwnedElsewhere", OWNER, "FenceOwnedElsewhere"),
        ("Suspended", HERE, "Suspended"),
        ("FailoverStandby", HERE, ""),  # its first pass over a row that was moved to it
        ("Provisioning", HERE, ""),
    ],
)
async def test_a_sign_says_why_its_cluster_could_not_run_the_pipeline(
    world: World, reason: str, owner: FenceRow, note: str
) -> None:
    await Side("west", world, reason).passes(owner)
    assert world.table.progress[f"{ROW_KEY}#cluster-west"].note == note


async def test_a_paused_pipeline_could_not_run_either(world: World) -> None:
    await Side("west", world).passes(OWNER, {PAUSED_ANNOTATION: "true"})
    assert world.table.progress[f"{ROW_KEY}#cluster-west"].note == "Paused"


@pytest.mark.parametrize(("written", "note"), [("Suspended", "Suspended"), ("", ""), ("run: rm -r /", "Unknown")])
async def test_the_note_of_the_other_cluster_is_a_reason_or_nothing(world: World, written: str, note: str) -> None:
    """Whoever may write to the store writes it."""
    west = Side("west", world)
    world.table.report_progress(f"{ROW_KEY}#cluster-east", epoch=2, version=5, done=1, note=written)
    assert (await west.passes(OWNER)).value.note == note


async def test_a_sign_that_the_store_forgets_stays_seen_and_is_no_movement(world: World) -> None:
    east, west = Side("east", world), Side("west", world)
    await east.passes(OWNER)
    await west.passes(OWNER)
    for _ in range(4):
        world.advance(10)
        await west.passes(OWNER)
    world.table.progress.clear()
    assert await west.passes(OWNER) == Known(LifeSigns(cluster="east", silent_for=40.0, has_moved=False))


async def test_the_owner_looks_where_it_is_to_move(world: World) -> None:
    east, west = Side("east", world), Side("west", world)
    await east.passes(HERE)
    asked = {FAIL_OVER_ANNOTATION: f"east@{HERE.epoch}"}
    assert await west.passes(HERE) == NotAsked()
    assert not (await west.passes(HERE, asked)).value.has_moved
    world.advance(10)
    await east.passes(HERE)
    assert (await west.passes(HERE, asked)).value.has_moved


async def test_a_long_action_does_not_silence_the_owner(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Helm that waits for its turn in a mass start."""
    east = Side("east", world)
    monkeypatch.setattr("fencepost_operator.runtime.passes.signs_of_life.sign_interval", lambda _spec: 0.01)
    pipeline = read_pipeline(body(failover={}, checkpoint=STORE))
    observation = Observation(
        now=world.now, references=UNKNOWN, release=UNKNOWN, cluster=UNKNOWN, runs=Known(()), fence=Known(OWNER),
        source=NotAsked(),
    )  # fmt: skip
    async with east.signs.given_meanwhile(pipeline, observation):
        for _ in range(200):
            world.advance(1)
            await asyncio.sleep(0.01)
            if f"{ROW_KEY}#cluster-east" in world.table.progress:
                break
    assert f"{ROW_KEY}#cluster-east" in world.table.progress
    assert pipeline.key == KEY
