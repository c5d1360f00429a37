"""The contents that a spec names are read once for each version, however many there are and however large."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from fencepost_operator.adapters.kubernetes import objects as module
from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Json, Resource
from fencepost_operator.adapters.kubernetes.objects import KubernetesObjects, content_hash
from fencepost_operator.api import ObjectKey

KEY = ObjectKey("shop", "orders")


class Contents(ApiServer):
    """An API server that has these objects, and counts how often it sends their contents."""

    def __init__(self, *names: str) -> None:
        self.found: dict[str, Json] = {name: version(name, "1") for name in names}
        self.sent = Counter[str]()
        self.sending = self.most = 0

    async def metadata(self, resource: Resource, *, name: str, namespace: str) -> Json | None:
        del resource, namespace
        await asyncio.sleep(0)
        found: dict[str, Any] = self.found.get(name, {})
        return found.get("metadata")

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Json | None:
        del resource, namespace
        self.sent[name] += 1
        self.sending += 1
        self.most = max(self.most, self.sending)
        await asyncio.sleep(0)
        self.sending -= 1
        return self.found.get(name)


def version(name: str, number: str, uid: str = "uid") -> Json:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": number}, "data": {"text": f"{uid}{number}"}}


async def test_the_content_of_a_version_is_read_once() -> None:
    api = Contents("code")
    objects, names = KubernetesObjects(api), ["ConfigMap/code", "ConfigMap/absent"]
    for _ in range(3):
        found = await objects.references(KEY, names)
        assert found.hashes == {"ConfigMap/code": content_hash(api.found["code"]), "ConfigMap/absent": None}
    assert api.sent == {"code": 1}


@pytest.mark.parametrize("changed", [version("code", "2"), version("code", "1", uid="another")])
async def test_another_version_or_another_object_is_read_again(changed: Json) -> None:
    api = Contents("code")
    objects = KubernetesObjects(api)
    before = await objects.references(KEY, ["ConfigMap/code"])
    api.found["code"] = changed
    after = await objects.references(KEY, ["ConfigMap/code"])
    assert after.hashes["ConfigMap/code"] == content_hash(changed) != before.hashes["ConfigMap/code"]
    del api.found["code"]
    assert (await objects.references(KEY, ["ConfigMap/code"])).missing() == ("ConfigMap/code",)


async def test_the_same_name_is_another_object_by_namespace_and_kind() -> None:
    api = Contents("code")
    objects = KubernetesObjects(api)
    await objects.references(KEY, ["ConfigMap/code", "Secret/code"])
    await objects.references(ObjectKey("other", "orders"), ["ConfigMap/code"])
    assert api.sent == {"code": 3}


async def test_a_namespace_reads_one_content_at_a_time_and_each_once() -> None:
    api = Contents(*(f"c{number}" for number in range(20)))
    objects, names = KubernetesObjects(api), [f"ConfigMap/c{number}" for number in range(20)]
    await asyncio.gather(*(objects.references(KEY, names) for _ in range(3)))
    assert api.most == 1
    assert set(api.sent.values()) == {1}


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 5)
    api = Contents(*(f"c{number}" for number in range(20)))
    objects = KubernetesObjects(api)
    await objects.references(KEY, [f"ConfigMap/c{number}" for number in range(20)])
    assert len(objects._hashes) == 5
