"""A status of which the API server refuses values is written without them, or the refusal is told."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fencepost.contract.guidance.operations import APPLY_CRDS
from fencepost_operator.adapters.kubernetes.api_server import Invalid
from fencepost_operator.adapters.kubernetes.status_writes import replace_status
from fencepost_operator.errors import Rejected

STATUS: dict[str, Any] = {
    "state": "Later",
    "epoch": 3,
    "run": {"name": "orders-run-3", "epoch": 3, "disruption": "Later"},
    "pages": [{"severity": "critical"}, {"severity": "later"}],
    "committed": {"offsets": {"a.b/0": "x"}, "records": 7},
    "conditions": [{"type": "Ready", "reason": "Later"}],
}


class Server:
    """An API server that refuses what is at some places for as long as it is there, and others whatever is there."""

    def __init__(self, *, at: Mapping[str, Sequence[str | int]] | None = None, always: Sequence[str] = ()) -> None:
        self.at, self.always = at or {}, tuple(always)
        self.requests = 0

    async def replace(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.requests += 1
        places = [place for place, steps in self.at.items() if is_there(body["status"], steps)]
        if refused := (*places, *self.always):
            raise Invalid(f"update: {', '.join(refused)}: Unsupported value", places=refused)
        return dict(copy.deepcopy(body))


def is_there(part: Any, steps: Sequence[str | int]) -> bool:
    for step in steps:
        if step not in (part if isinstance(part, dict) else range(len(part))):
            return False
        part = part[step]
    return True


async def kept(server: Server) -> Any:
    return (await replace_status(server.replace, {"status": copy.deepcopy(STATUS)}))["status"]


def without(*names: str) -> dict[str, Any]:
    return {name: part for name, part in STATUS.items() if name not in names}


async def test_a_refused_value_is_left_out() -> None:
    server = Server(at={"status.state": ("state",), "status.run.disruption": ("run", "disruption")})
    assert await kept(server) == {**without("state"), "run": {"name": "orders-run-3", "epoch": 3}}
    assert server.requests == 2


async def test_a_refused_item_takes_its_list_along() -> None:
    server = Server(at={f"status.pages[{index}].severity": ("pages", index, "severity") for index in (0, 1)})
    assert await kept(server) == without("pages")
    assert server.requests == 2


@pytest.mark.parametrize("again", ["status.run.disruption", "status.run.disruption.later", "status.run.disruption[0]"])
async def test_what_two_causes_name_costs_nothing_beside_it(again: str) -> None:
    places = ("status.run.disruption", again)
    assert await kept(Server(at=dict.fromkeys(places, ("run", "disruption")))) == {
        **STATUS,
        "run": {"name": "orders-run-3", "epoch": 3},
    }


async def test_of_a_key_with_dots_all_keys_are_left_out() -> None:
    server = Server(at={"status.committed.offsets.a.b/0": ("committed", "offsets")})
    assert await kept(server) == {**STATUS, "committed": {"records": 7}}


async def test_what_lacks_a_required_value_is_left_out() -> None:
    server = Server(at={"status.committed.later": ("committed",)})
    assert await kept(server) == without("committed")


async def test_what_cannot_be_without_a_refused_value_is_left_out_too() -> None:
    server = Server(at={"status.run.disruption": ("run",)})
    assert await kept(server) == without("run")
    assert server.requests == 3


@pytest.mark.parametrize(
    "place", ["spec.job", "metadata.name", "status", "status.later", "status.state", "status.conditions[0].reason"]
)
async def test_what_is_refused_whatever_is_left_out_is_told_with_the_remedy(place: str) -> None:
    server = Server(always=[place])
    with pytest.raises(Rejected, match=re.escape(place)) as caught:
        await kept(server)
    assert APPLY_CRDS in caught.value.remedy
    assert server.requests <= 4


async def test_a_refusal_that_names_nothing_is_told() -> None:
    class Silent(Server):
        async def replace(self, *_: Any, **__: Any) -> dict[str, Any]:
            raise Invalid("update: a policy forbids it", places=())

    with pytest.raises(Rejected, match="a policy forbids it"):
        await kept(Silent())
