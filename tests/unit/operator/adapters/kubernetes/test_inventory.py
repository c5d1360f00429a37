"""The inventory of pipelines: one number for each, which changes with its objects and not with its own status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Json, Resource
from fencepost_operator.adapters.kubernetes.inventory import KubernetesInventory
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.errors import Denied
from fencepost_operator.ports import Digests

HOME = "fencepost-system"
ONE, OTHER = ObjectKey("shop", "one"), ObjectKey("shop", "other")


class Objects(ApiServer):
    """An API server with objects by plural, of which it sends the metadata."""

    def __init__(self) -> None:
        self.found: dict[str, list[Json]] = {}
        self.denied: set[str | None] = set()
        self.before: Mapping[ObjectKey, Digests] = {}
        """The numbers as `changed` found them last."""

    def put(self, plural: str, name: str, version: str = "1", *, namespace: str = "shop", **metadata: Any) -> None:
        """Create or replace an object."""
        items = [item for item in self.found.get(plural, []) if item["metadata"]["name"] != name]
        identity = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": version}
        self.found[plural] = [*items, {"metadata": {**identity, **metadata}}]

    async def pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        accept: str = "application/json",
        size: int = 100,
    ) -> AsyncIterator[Sequence[Json]]:
        del labels, fields, size
        assert "PartialObjectMetadata" in accept
        if namespace in self.denied:
            raise Denied("may not list")
        found = self.found.get(resource.plural, [])
        yield [item for item in found if namespace in {None, item["metadata"]["namespace"]}]

    def put_revision(self, key: ObjectKey, number: int) -> None:
        """Create a revision of a Helm release."""
        marks = {labels.PIPELINE: key.name, labels.NAMESPACE: key.namespace}
        self.put("secrets", f"sh.helm.release.v1.{key.name}.v{number}", namespace=HOME, labels=marks)


def of(pipeline: ObjectKey) -> dict[str, str]:
    return {labels.PIPELINE: pipeline.name}


@pytest.fixture
def objects() -> Objects:
    made = Objects()
    for key in (ONE, OTHER):
        made.put("streamingpipelines", key.name, generation=1)
        made.put("pods", f"{key.name}-run-1-x", labels=of(key))
        made.put("jobs", f"{key.name}-run-1", labels=of(key))
        made.put_revision(key, 1)
    return made


async def changed(objects: Objects, *namespaces: str) -> set[ObjectKey]:
    """Return whose number is another one since the last call."""
    before, now = objects.before, await KubernetesInventory(objects, HOME).digests(namespaces)
    objects.before = now
    return {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}


async def test_only_a_pipeline_of_which_an_object_has_changed_has_another_number(objects: Objects) -> None:
    assert await changed(objects) == {ONE, OTHER}
    assert await changed(objects) == set()
    objects.put("pods", "one-run-1-x", "2", labels=of(ONE))
    assert await changed(objects) == {ONE}
    objects.put_revision(OTHER, 2)
    assert await changed(objects) == {OTHER}
    objects.found["jobs"].clear()
    assert await changed(objects) == {ONE, OTHER}


async def test_a_status_of_the_pipeline_itself_is_no_change_and_a_request_is_one(objects: Objects) -> None:
    await changed(objects)
    objects.put("streamingpipelines", "one", "7", generation=1)
    assert await changed(objects) == set()
    objects.put("streamingpipelines", "one", "8", generation=2)
    assert await changed(objects) == {ONE}
    objects.put("streamingpipelines", "one", "9", generation=2, annotations={"a": "b"})
    assert await changed(objects) == {ONE}
    objects.found["streamingpipelines"] = objects.found["streamingpipelines"][:1]
    assert await changed(objects) == {ONE}


async def test_a_change_of_a_part_has_another_number_and_one_of_its_status_has_not(objects: Objects) -> None:
    async def parts() -> int:
        return (await KubernetesInventory(objects, HOME).digests(()))[ONE].parts

    found = [await parts()]
    for plural, version, generation in (
        ("services", "1", None), ("services", "2", None),
        ("statefulsets", "1", 1), ("statefulsets", "2", 1), ("statefulsets", "3", 2),
    ):  # fmt: skip
        objects.put(plural, f"one-g1-{plural}", version, labels=of(ONE), generation=generation)
        found.append(await parts())
    objects.put("pods", "one-run-1-x", "2", labels=of(ONE))
    assert len({*found}) == 5
    assert found[3] == found[4], "the status of a StatefulSet"
    assert await parts() == found[-1], "no pod is a part"


async def test_other_labels_of_a_part_are_a_change_of_it(objects: Objects) -> None:
    """A cluster's objects are found by their labels, which have no generation."""
    found: set[int] = set()
    for generation in ("1", "2"):
        marks = {**of(ONE), labels.GENERATION: generation}
        objects.put("statefulsets", "one-g1-worker", generation, labels=marks, generation=1)
        found.add((await KubernetesInventory(objects, HOME).digests(()))[ONE].parts)
    assert len(found) == 2


async def test_a_namespace_that_is_closed_hides_no_other(objects: Objects) -> None:
    objects.denied.add("closed")
    assert await changed(objects, "shop", "closed") == {ONE, OTHER}
    with pytest.raises(Denied):
        await changed(objects, "closed")
