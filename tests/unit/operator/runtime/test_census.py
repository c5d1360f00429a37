"""The census begins loops that are missing, and wakes those of pipelines of which an object has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Denied, Unreachable
from fencepost_operator.ports import Digests
from fencepost_operator.runtime.census import Census
from unit.operator.runtime.woken_loops import Woken

ONE, OTHER = ObjectKey("n", "one"), ObjectKey("n", "other")


@dataclass
class Objects:
    """What an inventory answers; None where it does not answer."""

    digests_now: Mapping[ObjectKey, Digests] | None = field(default_factory=dict)

    async def digests(self, namespaces: Sequence[str]) -> Mapping[ObjectKey, Digests]:
        del namespaces
        if self.digests_now is None:
            raise Unreachable("no answer")
        return self.digests_now


@dataclass
class Scene:
    loops: Woken = field(default_factory=Woken)
    objects: Objects = field(default_factory=Objects)
    done: int = 0
    noted: set[ObjectKey] = field(default_factory=set)
    """Of whose objects something has changed."""
    census: Census = field(init=False)

    def __post_init__(self) -> None:
        self.census = Census(
            loops=self.loops,
            inventory=self.objects,
            lists=(denied, left),
            namespaces=(),
            note_change=self.noted.add,
            done=self._note,
        )

    def _note(self) -> None:
        self.done += 1

    async def sees(self, digests: Mapping[ObjectKey, Digests] | None) -> set[ObjectKey]:
        """Return whom a look wakes."""
        self.objects.digests_now = digests
        self.loops.woken.clear()
        await self.census.look()
        return self.loops.woken


async def denied(_namespaces: Sequence[str]) -> Sequence[ObjectKey]:
    raise Denied("cannot list streamingpipelines", remedy="restore the RoleBinding")


async def left(_namespaces: Sequence[str]) -> Sequence[ObjectKey]:
    return [ONE]


async def test_what_is_left_of_pipelines_is_found_where_the_pipelines_cannot_be_listed() -> None:
    scene = Scene()
    await scene.census.look()
    assert scene.loops.begun == {ONE}


async def test_pipelines_of_which_something_changed_or_is_gone_are_woken() -> None:
    scene = Scene()
    both = {ONE: Digests(1, 0), OTHER: Digests(1, 0)}
    assert await scene.sees(both) == set(), "passes until now have asked for everything"
    assert await scene.sees(both) == set()
    assert await scene.sees({ONE: Digests(2, 0), OTHER: Digests(1, 0)}) == {ONE}
    assert await scene.sees({ONE: Digests(2, 0)}) == {OTHER}
    assert await scene.sees({ONE: Digests(2, 0), OTHER: Digests(1, 0)}) == {OTHER}
    assert scene.done == 5


async def test_what_was_known_of_objects_that_have_changed_is_asked_for_again() -> None:
    """The pass that is woken would use a list of a cluster's objects from before the event that was missed."""
    scene = Scene()
    await scene.sees({ONE: Digests(1, 0), OTHER: Digests(1, 0)})
    await scene.sees({ONE: Digests(2, 0), OTHER: Digests(1, 0)})
    assert not scene.noted, "as where a pod has changed"
    await scene.sees({ONE: Digests(2, 0), OTHER: Digests(2, 1)})
    assert scene.noted == {OTHER}
    await scene.sees({OTHER: Digests(2, 1)})
    assert scene.noted == {ONE, OTHER}


async def test_a_pipeline_that_follows_a_census_without_any_is_woken() -> None:
    """It may have come to rest before the second one, and changed since."""
    scene = Scene()
    assert await scene.sees({}) == set()
    assert await scene.sees({ONE: Digests(1, 0)}) == {ONE}


async def test_a_census_without_an_answer_shows_nothing_and_stands_for_nothing() -> None:
    scene = Scene()
    await scene.sees({ONE: Digests(1, 0)})
    assert await scene.sees(None) == set()
    assert scene.done == 1
    assert await scene.sees({ONE: Digests(2, 0)}) == {ONE}, "also what changed meanwhile"
