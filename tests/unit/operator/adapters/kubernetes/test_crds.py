"""The check of the CRDs when the operator starts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import pytest

from fencepost.contract.guidance.operations import APPLY_CRDS
from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Resource
from fencepost_operator.adapters.kubernetes.crds import require_current_crds
from fencepost_operator.errors import Denied, Rejected, Unreachable
from unit.crds.schema import CRDS

FOUND: dict[str, Any] = {crd["metadata"]["name"]: crd for crd in CRDS.values()}
NAME = "streamingpipelines.streaming.fencepost.dev"


class Server:
    """Has some CRDs; an error stands for one that it does not give."""

    def __init__(self, crds: Mapping[str, Any]) -> None:
        self.crds = crds

    async def get(self, _resource: Resource, *, name: str) -> Any:
        found = self.crds.get(name)
        if isinstance(found, Exception):
            raise found
        return found


async def check(crds: Mapping[str, Any]) -> None:
    await require_current_crds(cast("ApiServer", Server(crds)))


def without_status_fields(count: int) -> dict[str, Any]:
    crd = copy.deepcopy(FOUND[NAME])
    fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    for name in sorted(fields)[:count]:
        del fields[name]
    return {**FOUND, NAME: crd}


async def test_the_crds_of_this_release_pass() -> None:
    await check(FOUND)


async def test_an_older_crd_is_named_with_the_missing_fields_and_the_command() -> None:
    with pytest.raises(Rejected, match=f"the CRD {NAME} is older than the operator: it lacks status") as caught:
        await check(without_status_fields(1))
    assert APPLY_CRDS in caught.value.remedy
    with pytest.raises(Rejected, match=r"(status\.\w+, ){4}status\.\w+ and 2 more$"):
        await check(without_status_fields(7))


async def test_a_crd_that_does_not_exist_is_named() -> None:
    with pytest.raises(Rejected, match=r"pipelinerewinds.* does not exist"):
        await check({NAME: FOUND[NAME]})


async def test_without_the_right_to_read_crds_the_operator_starts() -> None:
    await check(dict.fromkeys(FOUND, Denied("forbidden", remedy="grant it")))


async def test_while_the_api_server_does_not_answer_nothing_is_concluded() -> None:
    with pytest.raises(Unreachable):
        await check({**FOUND, NAME: Unreachable("down", remedy="wait")})
