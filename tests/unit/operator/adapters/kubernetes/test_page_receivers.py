"""The Secrets with receivers, as an API server has them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fencepost_operator.adapters.kubernetes.api_server import SECRETS
from fencepost_operator.adapters.kubernetes.leases import LEASES
from fencepost_operator.adapters.kubernetes.page_receivers import SecretReceivers
from fencepost_operator.errors import Unreachable

KEY = "0123456789abcdef0123456789abcdef"


class Api:
    """An API server with some Secrets."""

    def __init__(self, secrets: dict[tuple[str, str], dict[str, bytes]]) -> None:
        self.secrets = secrets
        self.lease: dict[str, Any] | None = {"metadata": {"uid": "uid of the Lease"}}
        self.created = 1
        """How often each Secret was created."""

    async def get(self, resource: object, *, name: str, namespace: str) -> dict[str, Any] | None:
        if resource is LEASES:
            assert (namespace, name) == ("fencepost-system", "fencepost")
            return self.lease
        assert resource is SECRETS
        data = self.secrets.get((namespace, name))
        if data is None:
            return None
        return {
            "metadata": {"uid": f"uid {self.created} of {namespace}/{name}"},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }


def source(**secrets: dict[str, bytes]) -> SecretReceivers:
    """Secrets by place: own, team."""
    places = {"own": ("fencepost-system", "receivers"), "team": ("shop", "fencepost-pages")}
    api: Any = Api({places[name]: data for name, data in secrets.items()})
    return over(api)


def over(api: Any, *, lease: str = "fencepost") -> SecretReceivers:
    return SecretReceivers(
        api=api, namespace="fencepost-system", lease=lease, secret="receivers", heartbeat_key="heartbeat"  # noqa: S106
    )  # fmt: skip


async def test_the_operators_own_and_a_namespaces() -> None:
    found = source(own={"pagerduty": KEY.encode(), "heartbeat": b"https://x"}, team={"pagerduty": KEY.encode()})
    (own,) = (await found.receivers("")).receivers
    (team,) = (await found.receivers("shop")).receivers
    assert (own.namespace, team.namespace) == ("", "shop")
    assert own.id != team.id
    assert not (await found.receivers("")).problems
    assert (await found.receivers("shop")).problems == ()


async def test_a_secret_that_is_recreated_has_the_same_receivers() -> None:
    api: Any = Api({("shop", "fencepost-pages"): {"pagerduty": KEY.encode()}})
    before = await over(api).receivers("shop")
    api.created = 2
    assert await over(api).receivers("shop") == before, "also for an operator that has just started"


async def test_an_id_can_be_computed_only_by_who_may_read_the_lease_or_the_secret() -> None:
    api: Any = Api({("shop", "fencepost-pages"): {"pagerduty": KEY.encode()}})
    (before,) = (await over(api).receivers("shop")).receivers
    (alone,) = (await over(api, lease="").receivers("shop")).receivers
    api.lease = {"metadata": {"uid": "another"}}
    (other,) = (await over(api).receivers("shop")).receivers
    assert len({before.id, other.id, alone.id}) == 3


async def test_without_its_lease_an_operator_knows_no_receivers() -> None:
    api: Any = Api({("shop", "fencepost-pages"): {"pagerduty": KEY.encode()}})
    api.lease = None
    with pytest.raises(Unreachable, match="Lease"):
        await over(api).receivers("shop")


async def test_without_a_secret_a_namespace_has_none_and_the_operator_a_problem() -> None:
    assert await source().receivers("shop") == await source().receivers("other")
    (problem,) = (await source().receivers("")).problems
    assert "Secret fencepost-system/receivers of pages.secretName does not exist" in problem.message
    unused: Any = Api({})
    assert not (await SecretReceivers(api=unused, namespace="x").receivers("")).problems


async def test_bytes_and_size_are_bounded() -> None:
    for data in ({"apprise": b"\xff\xfe"}, {"apprise": b"x" * 300_000}):
        found = await source(team=data).receivers("shop")
        assert not found.receivers
        assert "Secret shop/fencepost-pages" in found.problems[0].message
