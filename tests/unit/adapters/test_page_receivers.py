"""The Secrets with receivers, as an API server has them."""

from __future__ import annotations

import base64
from typing import Any

from fencepost_operator.adapters.api_server import SECRETS
from fencepost_operator.adapters.page_receivers import SecretReceivers

KEY = "0123456789abcdef0123456789abcdef"


class Api:
    """An API server with some Secrets."""

    def __init__(self, secrets: dict[tuple[str, str], dict[str, bytes]]) -> None:
        self.secrets = secrets

    async def get(self, resource: object, *, name: str, namespace: str) -> dict[str, Any] | None:
        assert resource is SECRETS
        data = self.secrets.get((namespace, name))
        if data is None:
            return None
        return {
            "metadata": {"uid": f"uid of {namespace}/{name}"},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }


def source(**secrets: dict[str, bytes]) -> SecretReceivers:
    """Secrets by place: own, team."""
    places = {"own": ("fencepost-system", "receivers"), "team": ("shop", "fencepost-pages")}
    api: Any = Api({places[name]: data for name, data in secrets.items()})
    return SecretReceivers(api=api, namespace="fencepost-system", secret="receivers", heartbeat_key="heartbeat")  # noqa: S106


async def test_the_operators_own_and_a_namespaces() -> None:
    found = source(own={"pagerduty": KEY.encode(), "heartbeat": b"https://x"}, team={"pagerduty": KEY.encode()})
    (own,) = (await found.receivers("")).receivers
    (team,) = (await found.receivers("shop")).receivers
    assert (own.namespace, team.namespace) == ("", "shop")
    assert own.id != team.id
    assert not (await found.receivers("")).problems
    assert (await found.receivers("shop")).problems == ()


async def test_without_a_secret_a_namespace_has_none_and_the_operator_a_problem() -> None:
    assert await source().receivers("shop") == await source().receivers("other")
    (problem,) = (await source().receivers("")).problems
    assert "Secret fencepost-system/receivers of pages.secretName does not exist" in problem.message
    nobody: Any = Api({})
    assert not (await SecretReceivers(api=nobody, namespace="x").receivers("")).problems


async def test_bytes_and_size_are_bounded() -> None:
    for data in ({"apprise": b"\xff\xfe"}, {"apprise": b"x" * 300_000}):
        found = await source(team=data).receivers("shop")
        assert not found.receivers
        assert "Secret shop/fencepost-pages" in found.problems[0].message
