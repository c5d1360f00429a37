"""What a replica learns with a shard, and forgets with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from fakes.manifests import KEY
from fakes.ports import ports_of
from fakes.stage import POLICY, Stage
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Unreachable
from fencepost_operator.runtime.census import Census, Keys
from fencepost_operator.runtime.passes.reconciler import Reconciler
from fencepost_operator.runtime.replicas.shard_loops import ShardLoops
from fencepost_operator.runtime.replicas.shards import shard_of
from unit.operator.runtime.test_census import Objects
from unit.operator.runtime.woken_loops import Woken

COUNT = 3
OURS = shard_of(KEY, COUNT)
OTHER = next(key for number in range(99) if shard_of(key := ObjectKey("n", f"p{number}"), COUNT) != OURS)


@dataclass
class Scene:
    stage: Stage = field(default_factory=Stage)
    loops: Woken = field(default_factory=Woken)
    trials: Woken = field(default_factory=Woken)
    restarting: dict[ObjectKey, datetime] | None = field(default_factory=dict)
    reconciler: Reconciler = field(init=False)
    work: ShardLoops = field(init=False)

    def __post_init__(self) -> None:
        config = replace(POLICY, max_concurrent_restarts=7)
        self.reconciler = Reconciler(ports=ports_of(self.stage.world, self.stage.gate), config=config)
        census = Census(
            loops=self.loops, inventory=Objects(), lists=(unreachable, named("pipeline")), namespaces=(),
            note_change=lambda _key: None, done=lambda: None,
        )  # fmt: skip
        self.work = ShardLoops(
            count=COUNT, reconciler=self.reconciler, loops=self.loops, trials=self.trials, census=census,
            restarting=self._restarting, rewound=named("rewound"), tried=named("trial"), namespaces=(),
        )  # fmt: skip

    async def _restarting(self, _namespaces: Sequence[str]) -> Mapping[ObjectKey, datetime]:
        if self.restarting is None:
            raise Unreachable("no answer")
        return self.restarting

    def in_progress(self) -> int:
        return self.reconciler.permits.in_progress(self.stage.world.now.timestamp())


def named(name: str) -> Keys:
    async def keys(_namespaces: Sequence[str]) -> Sequence[ObjectKey]:
        return [ObjectKey("n", name)]

    return keys


async def unreachable(_namespaces: Sequence[str]) -> Sequence[ObjectKey]:
    raise Unreachable("no answer")


async def test_the_planned_restarts_of_a_shard_count_from_its_beginning() -> None:
    scene = Scene()
    scene.restarting = {KEY: scene.stage.world.now, OTHER: scene.stage.world.now}
    await scene.work.prepare([OURS], OURS)
    assert scene.in_progress() == 1, "the other one is of another shard"
    assert not scene.loops.keys, "no pass begins before"


async def test_a_replica_gives_the_part_of_the_permits_that_its_shards_have() -> None:
    scene = Scene()
    limits = []
    for shards, shard in (({0}, 0), ({0, 2}, 2), ({0, 1, 2}, 1)):
        await scene.work.prepare(shards, shard)
        limits.append(scene.reconciler.permits.limit)
    await scene.work.end({1, 2}, 0)
    assert [*limits, scene.reconciler.permits.limit] == [3, 5, 7, 4]


async def test_a_shard_begins_though_what_restarts_is_not_known() -> None:
    scene = Scene(restarting=None)
    await scene.work.prepare([OURS], OURS)
    assert scene.reconciler.permits.limit


async def test_whatever_watches_have_shown_before_is_begun() -> None:
    """Also a pipeline that does not exist, which a rewind names, and trials."""
    scene = Scene()
    assert await scene.work.begin()
    assert scene.loops.begun == {ObjectKey("n", "pipeline"), ObjectKey("n", "rewound")}
    assert scene.trials.begun == {ObjectKey("n", "trial")}


async def test_trials_that_cannot_be_listed_are_not_known() -> None:
    scene = Scene()
    scene.work = replace(scene.work, tried=unreachable)
    assert not await scene.work.begin()
    assert ObjectKey("n", "rewound") in scene.loops.begun


async def test_nothing_is_remembered_of_a_pipeline_whose_shard_another_replica_has() -> None:
    scene = Scene()
    scene.restarting = {KEY: scene.stage.world.now}
    await scene.work.prepare([OURS], OURS)
    scene.loops.ended = [KEY]
    await scene.work.end([], OURS)
    assert scene.in_progress() == 0
    assert scene.loops.asked is not None
    assert scene.loops.asked(KEY)
    assert not scene.loops.asked(OTHER)
