"""The contents that a spec names are read once for each version, however many there are and however large."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from fencepost_operator.adapters.kubernetes import objects as module
from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Json, Resource
from fencepost_operator.adapters.kubernetes.objects import SECRET_HOLDS, KubernetesObjects, content_hash
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Rejected

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


@dataclass
class Accounts:
    """A Secret in an API server, and an operator that asks for it, on a clock that stands still."""

    api: Contents = field(default_factory=Contents)
    now: float = 0.0
    objects: KubernetesObjects = field(init=False)

    def __post_init__(self) -> None:
        self.objects = KubernetesObjects(self.api, monotonic=lambda: self.now)
        self.change("1")

    def change(self, number: str) -> None:
        """Write another version of the Secret."""
        password = base64.b64encode(f"password {number}".encode()).decode()
        metadata = {"name": "account", "uid": "uid", "resourceVersion": number}
        self.api.found["account"] = {"metadata": metadata, "data": {"password": password}}

    async def password(self) -> str:
        return (await self.objects.secret(KEY, "account"))["password"]


async def test_a_secret_is_read_once_for_many_looks() -> None:
    accounts = Accounts()
    assert [await accounts.password() for _ in range(3)] == ["password 1"] * 3
    assert accounts.api.sent == {"account": 1}
    accounts.change("2")
    accounts.now = SECRET_HOLDS
    assert await accounts.password() == "password 2"


async def test_a_look_at_the_references_finds_a_new_secret_at_once() -> None:
    accounts = Accounts()
    await accounts.password()
    await accounts.objects.references(KEY, ["Secret/account"])
    accounts.change("2")
    await accounts.objects.references(KEY, ["Secret/account"])
    assert await accounts.password() == "password 2"
    del accounts.api.found["account"]
    await accounts.objects.references(KEY, ["Secret/account"])
    with pytest.raises(Rejected, match="does not exist"):
        await accounts.password()


async def test_a_secret_that_has_not_changed_is_used_for_longer() -> None:
    accounts = Accounts()
    await accounts.password()
    await accounts.objects.references(KEY, ["Secret/account"])
    sent = accounts.api.sent["account"]
    for _ in range(5):
        accounts.now += SECRET_HOLDS / 2
        await accounts.objects.references(KEY, ["Secret/account"])
        await accounts.password()
    assert accounts.api.sent["account"] == sent


async def test_a_secret_that_a_server_refused_is_read_again() -> None:
    accounts = Accounts()
    await accounts.password()
    accounts.change("2")
    accounts.objects.forget_secrets("other")
    assert await accounts.password() == "password 1"
    accounts.objects.forget_secrets(KEY.namespace)
    assert await accounts.password() == "password 2"


async def test_a_secret_as_large_as_a_tenant_likes_is_not_kept() -> None:
    accounts = Accounts()
    accounts.api.found["account"]["data"]["more"] = base64.b64encode(b"x" * 100_000).decode()
    for _ in range(2):
        await accounts.password()
    assert accounts.api.sent == {"account": 2}


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 5)
    api = Contents(*(f"c{number}" for number in range(20)))
    objects = KubernetesObjects(api)
    await objects.references(KEY, [f"ConfigMap/c{number}" for number in range(20)])
    assert len(objects._hashes) == 5
